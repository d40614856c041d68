//! Questions to a control file, and the pieces of their answers.
//!
//! A question is a page, given by the ioctl [`IOCTL_ASK`](super::flags::IOCTL_ASK); then each read
//! of the control file returns the next piece of the answer, until one has [`LAST`].
//!
//! ```text
//! question := head | directory... or name, in at most 4,096 bytes
//! head     := version 2 | kind 2 | flags 4 | count of directories 4 | length of the name 4
//! directory:= inode 8 | cookie 8 | generation 4 | zero 4
//! piece    := version 2 | kind 2 | flags 4 | length in use 4 | zero 4 | record... | zeros
//! record   := form 2 | number of the directory 2 | lengths of name and target 2, 2
//!             | 96, 16, 16 or 64 bytes by form | name | target | zeros up to a multiple of 8
//! ```
//!
//! | [`Kind`] | question | answer |
//! | --- | --- | --- |
//! | `List` | [`NAMES_ONLY`], [`TARGETS`]; directories | of each directory in their order: at most [`ENTRIES_MAX`] entries, and the end |
//! | `Entry` | [`TARGETS`]; a name in the directory of the control file, or `.` for itself | the entry |
//! | `Totals` | [`SUBVOLUMES`] | the totals of the directory of the control file |
//!
//! A piece is as long as the read; what is behind its records is zeros. Questions come from any
//! user: [`parse`] accepts nothing that the table does not have. Answers are read by programs that
//! need not trust the server: [`Records`] ends at the first record that is not whole.

use super::Errno;
pub use super::flags::QUESTION;
use super::wire::{
    EndRecord, EntryRecord, NameRecord, PieceHead, QuestionDir, QuestionHead, RecordHead,
    TotalsRecord,
};
use shoal::raw::limits::NAME_MAX;
use shoal::raw::{Attr, FileKind, Generation, Ino, Time, Totals};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of these structures.
pub const VERSION: u16 = 1;
/// Name of the control file, in every directory. A real file of that name comes first.
pub const CONTROL_NAME: &str = ".shoal-control";

/// Question: entries have names and types alone.
pub const NAMES_ONLY: u32 = 1 << 0;
/// Question: symlinks come with their targets.
pub const TARGETS: u32 = 1 << 1;
/// Question: subvolumes below count, too.
pub const SUBVOLUMES: u32 = 1 << 2;
/// Piece: it is the last one.
pub const LAST: u32 = 1 << 0;

/// Length of a piece: the largest read that comes as one request, whatever the transport (32 pages
/// through rings) and wherever the reader's buffer begins in its first page.
pub const PIECE: usize = 124 << 10;
/// Length of the shortest piece: any record fits into it.
pub const PIECE_MIN: usize = 8 << 10;
/// Most entries of a directory that one question gets. The next question goes on from there.
pub const ENTRIES_MAX: usize = 1024;
/// Most directories of a question.
pub const DIRS_MAX: usize = (QUESTION - HEAD) / DIR;

const HEAD: usize = size_of::<QuestionHead>();
const DIR: usize = size_of::<QuestionDir>();
const PIECE_HEAD: usize = size_of::<PieceHead>();
const RECORD: usize = size_of::<RecordHead>();
const ALIGN: usize = 8;
/// Longest target of a symlink.
const TARGET_MAX: usize = 4096;

const _: () = assert!(PIECE_HEAD + RECORD + 96 + NAME_MAX + TARGET_MAX + ALIGN <= PIECE_MIN);
const _: () = assert!(HEAD + NAME_MAX <= QUESTION && DIRS_MAX <= u16::MAX as usize);

/// Subject of a question. Numbers are never used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Kind {
    /// Entries of directories.
    List = 1,
    /// One entry.
    Entry = 2,
    /// Totals of a directory.
    Totals = 3,
}

impl Kind {
    /// All of them.
    pub const ALL: &[Kind] = &[Kind::List, Kind::Entry, Kind::Totals];

    /// Returns the flags that a question may have.
    fn flags(self) -> u32 {
        match self {
            Kind::List => NAMES_ONLY | TARGETS,
            Kind::Entry => TARGETS,
            Kind::Totals => SUBVOLUMES,
        }
    }
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Subject.
    pub kind: Kind,
    /// By kind.
    pub flags: u32,
    /// Directories to list.
    pub dirs: Vec<QuestionDir>,
    /// Name to look up.
    pub name: Vec<u8>,
}

impl Question {
    /// Writes it to a page. `None` if it is longer.
    pub fn write(&self, page: &mut [u8; QUESTION]) -> Option<()> {
        let Question { kind, flags, dirs, name } = self;
        page.fill(0);
        let (count, len) = (dirs.len() as u32, name.len() as u32);
        let head = QuestionHead { version: VERSION, kind: *kind as u16, flags: *flags, count, len };
        head.write_to_prefix(page).ok()?;
        let dirs = dirs.as_bytes();
        page.get_mut(HEAD..HEAD + dirs.len())?.copy_from_slice(dirs);
        page.get_mut(HEAD + dirs.len()..HEAD + dirs.len() + name.len())?.copy_from_slice(name);
        Some(())
    }
}

/// Parses a question.
///
/// # Errors
/// `EPROTONOSUPPORT` for another version, `ENAMETOOLONG` for a name that no directory can hold,
/// `EINVAL` for anything else that the table above does not have.
pub fn parse(page: &[u8]) -> Result<Question, Errno> {
    let (head, rest) = QuestionHead::read_from_prefix(page).map_err(|_| Errno::EINVAL)?;
    if head.version != VERSION {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let kind = Kind::ALL.iter().copied().find(|kind| *kind as u16 == head.kind);
    let kind = kind.ok_or(Errno::EINVAL)?;
    let (count, len) = (head.count as usize, head.len as usize);
    if len > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let has_dirs = if kind == Kind::List { (1..=DIRS_MAX).contains(&count) } else { count == 0 };
    if head.flags & !kind.flags() != 0 || !has_dirs || (kind == Kind::Entry) != (len > 0) {
        return Err(Errno::EINVAL);
    }
    let dirs = rest.get(..count * DIR).ok_or(Errno::EINVAL)?;
    let dirs: Vec<_> =
        dirs.chunks_exact(DIR).filter_map(|dir| QuestionDir::read_from_bytes(dir).ok()).collect();
    let name = rest.get(count * DIR..count * DIR + len).ok_or(Errno::EINVAL)?;
    let is_name = name != b".." && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if !is_name || dirs.iter().any(|dir| dir.padding != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(Question { kind, flags: head.flags, dirs, name: name.to_vec() })
}

/// A record of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// An entry with its attributes, and its target if it is a symlink and that was asked for.
    Entry {
        /// Number of its directory in the question.
        dir: u16,
        /// Name.
        name: &'a [u8],
        /// Attributes.
        attr: Attr,
        /// Target; otherwise empty.
        target: &'a [u8],
    },
    /// An entry by name and type.
    Name {
        /// Number of its directory in the question.
        dir: u16,
        /// Name.
        name: &'a [u8],
        /// Inode.
        ino: Ino,
        /// Generation of a directory; of another file 0.
        generation: Generation,
        /// Type.
        kind: FileKind,
    },
    /// The end of a directory's entries in the answer.
    End {
        /// Number of the directory in the question.
        dir: u16,
        /// The place to go on after; 0: the directory has no more entries.
        cookie: u64,
        /// Why it could not be read (further); 0: it could.
        errno: u32,
    },
    /// Totals.
    Totals(Totals),
}

const FORM_ENTRY: u16 = 1;
const FORM_NAME: u16 = 2;
const FORM_END: u16 = 3;
const FORM_TOTALS: u16 = 4;

/// A piece of an answer, being written.
pub struct Piece<'a> {
    bytes: &'a mut [u8],
    end: usize,
}

impl<'a> Piece<'a> {
    /// Begins a piece that fills `bytes`, of which there must be [`PIECE_MIN`].
    pub fn new(bytes: &'a mut [u8]) -> Result<Piece<'a>, Errno> {
        if bytes.len() < PIECE_MIN || u32::try_from(bytes.len()).is_err() {
            return Err(Errno::EINVAL);
        }
        Ok(Piece { bytes, end: PIECE_HEAD })
    }

    /// Adds a record. Returns whether it fits.
    pub fn push(&mut self, record: &Record<'_>) -> bool {
        match record {
            Record::Entry { dir, name, attr, target } => {
                self.put(FORM_ENTRY, *dir, &entry_record(attr), [name, target])
            }
            Record::Name { dir, name, ino, generation, kind } => {
                let (generation, mode) = (generation.0, kind.mode_bits());
                self.put(FORM_NAME, *dir, &NameRecord { ino: ino.0, generation, mode }, [name, b""])
            }
            Record::End { dir, cookie, errno } => {
                let end = EndRecord { cookie: *cookie, errno: *errno, padding: 0 };
                self.put(FORM_END, *dir, &end, [b"", b""])
            }
            Record::Totals(totals) => self.put(FORM_TOTALS, 0, &totals_record(totals), [b"", b""]),
        }
    }

    fn put<T: IntoBytes + Immutable>(
        &mut self,
        form: u16,
        dir: u16,
        body: &T,
        [name, target]: [&[u8]; 2],
    ) -> bool {
        let len = [name, target].map(|text| u16::try_from(text.len()));
        let [Ok(name_len), Ok(target_len)] = len else { return false };
        let texts = RECORD + size_of::<T>();
        let whole = (texts + name.len() + target.len()).next_multiple_of(ALIGN);
        let Some(room) = self.bytes.get_mut(self.end..self.end + whole) else { return false };
        let head = RecordHead { form, dir, name: name_len, target: target_len };
        room[..RECORD].copy_from_slice(head.as_bytes());
        room[RECORD..texts].copy_from_slice(body.as_bytes());
        let (middle, end) = (texts + name.len(), texts + name.len() + target.len());
        room[texts..middle].copy_from_slice(name);
        room[middle..end].copy_from_slice(target);
        room[end..].fill(0);
        self.end += whole;
        true
    }

    /// Ends the piece. Returns its length: all of the bytes.
    pub fn finish(self, kind: Kind, is_last: bool) -> usize {
        let (len, flags) = (self.end as u32, if is_last { LAST } else { 0 });
        let head = PieceHead { version: VERSION, kind: kind as u16, flags, len, padding: 0 };
        self.bytes[..PIECE_HEAD].copy_from_slice(head.as_bytes());
        // What others have read before must not get out.
        self.bytes[self.end..].fill(0);
        self.bytes.len()
    }
}

/// Reads a piece: whether it is the last one, and its records. `None` if it is not a piece of an
/// answer to this kind of question.
pub fn read_piece(bytes: &[u8], kind: Kind) -> Option<(bool, Records<'_>)> {
    let (head, _) = PieceHead::read_from_prefix(bytes).ok()?;
    let records = bytes.get(PIECE_HEAD..head.len as usize)?;
    let is_ours = head.version == VERSION && head.kind == kind as u16;
    is_ours.then_some((head.flags & LAST != 0, Records { bytes: records }))
}

/// Records of a piece.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
}

impl Records<'_> {
    /// Returns whether all of them have been read; `false` at the end means that a record is
    /// malformed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (head, rest) = RecordHead::read_from_prefix(self.bytes).ok()?;
        let dir = head.dir;
        let (record, len) = match head.form {
            FORM_ENTRY => {
                let (body, name, target, len) = split::<EntryRecord>(&head, rest)?;
                (Record::Entry { dir, name, attr: attr_of(&body)?, target }, len)
            }
            FORM_NAME => {
                let (body, name, _, len) = split::<NameRecord>(&head, rest)?;
                let (ino, generation) = (Ino(body.ino), Generation(body.generation));
                let kind = FileKind::from_mode(body.mode)?;
                (Record::Name { dir, name, ino, generation, kind }, len)
            }
            FORM_END => {
                let (body, _, _, len) = split::<EndRecord>(&head, rest)?;
                (Record::End { dir, cookie: body.cookie, errno: body.errno }, len)
            }
            FORM_TOTALS => {
                let (body, _, _, len) = split::<TotalsRecord>(&head, rest)?;
                (Record::Totals(totals_of(&body)), len)
            }
            _ => return None,
        };
        self.bytes = self.bytes.get(len..)?;
        Some(record)
    }
}

/// Takes a record apart: its body, name and target; and its length with head and padding. A name
/// must be one.
fn split<'a, T: FromBytes + KnownLayout + Immutable>(
    head: &RecordHead,
    rest: &'a [u8],
) -> Option<(T, &'a [u8], &'a [u8], usize)> {
    let (body, texts) = T::read_from_prefix(rest).ok()?;
    let (name, target) = (usize::from(head.name), usize::from(head.target));
    let has_name = matches!(head.form, FORM_ENTRY | FORM_NAME);
    let (name, target) = (texts.get(..name)?, texts.get(name..name + target)?);
    let is_name = match has_name {
        true => !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/')),
        false => name.is_empty(),
    };
    let has_target = head.form == FORM_ENTRY || target.is_empty();
    let len = RECORD + size_of::<T>() + name.len() + target.len();
    (is_name && has_target).then_some((body, name, target, len.next_multiple_of(ALIGN)))
}

fn entry_record(attr: &Attr) -> EntryRecord {
    let times = [attr.atime, attr.mtime, attr.ctime, attr.btime];
    EntryRecord {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        seconds: times.map(|time| time.sec),
        nanoseconds: times.map(|time| time.nsec),
        generation: attr.generation.0,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
    }
}

/// Returns the attributes in a record; `None` for a mode without a type.
fn attr_of(record: &EntryRecord) -> Option<Attr> {
    let time = |at: usize| Time { sec: record.seconds[at], nsec: record.nanoseconds[at] };
    Some(Attr {
        ino: Ino(record.ino),
        generation: Generation(record.generation),
        kind: FileKind::from_mode(record.mode)?,
        mode: record.mode,
        nlink: record.nlink,
        uid: record.uid,
        gid: record.gid,
        rdev: record.rdev,
        size: record.size,
        blocks: record.blocks,
        atime: time(0),
        mtime: time(1),
        ctime: time(2),
        btime: time(3),
    })
}

fn totals_record(totals: &Totals) -> TotalsRecord {
    TotalsRecord {
        files: totals.files,
        dirs: totals.dirs,
        others: totals.others,
        linked: totals.linked,
        bytes: totals.bytes,
        blocks: totals.blocks,
        seconds: totals.newest_change.sec,
        nanoseconds: totals.newest_change.nsec,
        padding: 0,
    }
}

fn totals_of(record: &TotalsRecord) -> Totals {
    Totals {
        files: record.files,
        dirs: record.dirs,
        others: record.others,
        linked: record.linked,
        bytes: record.bytes,
        blocks: record.blocks,
        newest_change: Time { sec: record.seconds, nsec: record.nanoseconds },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::tests::sample;
    use proptest::prelude::*;

    fn ask(question: &Question) -> Result<Question, Errno> {
        let mut page = [0xff; QUESTION];
        question.write(&mut page).unwrap();
        parse(&page)
    }

    fn list(dirs: usize) -> Question {
        let dir = QuestionDir { ino: 7, cookie: 3, generation: 5, padding: 0 };
        Question { kind: Kind::List, flags: 0, dirs: vec![dir; dirs], name: Vec::new() }
    }

    #[test]
    fn questions_read_back() {
        let entry =
            |name: &[u8]| Question { kind: Kind::Entry, dirs: vec![], ..list(1) }.named(name);
        let totals = Question { kind: Kind::Totals, flags: SUBVOLUMES, ..entry(b"") };
        let names = Question { flags: NAMES_ONLY | TARGETS, ..list(3) };
        for good in [list(1), list(DIRS_MAX), names, entry(b"."), entry(&[b'x'; 255]), totals] {
            assert_eq!(ask(&good), Ok(good));
        }
        let mut page = [0; QUESTION];
        assert_eq!(list(DIRS_MAX + 1).write(&mut page), None);
        assert_eq!(ask(&entry(&[b'x'; 256])), Err(Errno::ENAMETOOLONG));
        let bad = [
            list(0),
            list(1).named(b"x"),
            entry(b""),
            entry(b".."),
            entry(b"a/b"),
            entry(b"a\0"),
            Question { flags: SUBVOLUMES, ..list(1) },
            Question { flags: NAMES_ONLY, ..entry(b"x") },
            Question { kind: Kind::Totals, ..list(1) },
            Question { kind: Kind::Entry, ..list(1) }.named(b"x"),
        ];
        for bad in bad {
            assert_eq!(ask(&bad), Err(Errno::EINVAL), "{bad:?}");
        }
    }

    impl Question {
        fn named(mut self, name: &[u8]) -> Question {
            self.name = name.to_vec();
            self
        }
    }

    #[test]
    fn other_versions_are_refused() {
        let mut page = [0; QUESTION];
        list(1).write(&mut page).unwrap();
        page[0] = 2;
        assert_eq!(parse(&page), Err(Errno::EPROTONOSUPPORT));
        page[0] = 1;
        page[HEAD + 20] = 1;
        assert_eq!(parse(&page), Err(Errno::EINVAL));
        assert_eq!(parse(&page[..HEAD - 1]), Err(Errno::EINVAL));
        assert_eq!(parse(&page[..HEAD + DIR - 1]), Err(Errno::EINVAL));
    }

    #[test]
    fn a_full_piece_reads_back() {
        let (attr, generation) = (sample(), Generation(9));
        let kind = FileKind::Socket;
        let records = [
            Record::Entry { dir: 0, name: b"name", attr, target: b"" },
            Record::Entry { dir: 3, name: &[b'n'; 255], attr, target: &[b't'; 4096] },
            Record::Name { dir: 65535, name: b"x", ino: Ino(1), generation, kind },
            Record::End { dir: 1, cookie: u64::MAX, errno: 0 },
            Record::End { dir: 1, cookie: 0, errno: 116 },
            Record::Totals(Totals::default()),
        ];
        for room in [PIECE_MIN, PIECE_MIN + 5, PIECE] {
            let mut bytes = vec![0xff; room];
            let mut piece = Piece::new(&mut bytes).unwrap();
            let mut put = Vec::new();
            for record in records.iter().cycle() {
                if !piece.push(record) {
                    break;
                }
                put.push(*record);
            }
            assert!(put.len() >= records.len());
            assert_eq!(piece.finish(Kind::List, true), room);
            let (is_last, mut read) = read_piece(&bytes, Kind::List).unwrap();
            assert!(is_last && read.by_ref().eq(put) && read.is_empty());
            assert!(read_piece(&bytes, Kind::Totals).is_none());
        }
        assert_eq!(Piece::new(&mut vec![0; PIECE_MIN - 1]).err(), Some(Errno::EINVAL));
        let long = vec![b'x'; 1 << 16];
        let mut bytes = vec![0; 1 << 20];
        let mut piece = Piece::new(&mut bytes).unwrap();
        assert!(!piece.push(&Record::Entry { dir: 0, name: &long, attr, target: b"" }));
    }

    #[test]
    fn nothing_old_is_in_a_piece() {
        let mut bytes = vec![0xff; PIECE_MIN];
        let mut piece = Piece::new(&mut bytes).unwrap();
        let kind = FileKind::Regular;
        let generation = Generation(0);
        assert!(piece.push(&Record::Name { dir: 0, name: b"a", ino: Ino(2), generation, kind }));
        piece.finish(Kind::List, false);
        let used = PIECE_HEAD + RECORD + 16;
        assert_eq!(bytes[used], b'a');
        assert!(bytes[used + 1..].iter().all(|byte| *byte == 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]
        /// Any bytes are refused or read to some end; a record that was read can be written, and
        /// reads the same.
        #[test]
        fn arbitrary_bytes_never_panic(
            form in 0u16..6,
            lens in (0u16..20, 0u16..20),
            len in 0u32..400,
            rest in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let head = PieceHead { version: VERSION, kind: 1, flags: 1, len, padding: 0 };
            let record = RecordHead { form, dir: 1, name: lens.0, target: lens.1 };
            let bytes = [head.as_bytes(), record.as_bytes(), &rest].concat();
            let _ = parse(&bytes);
            let Some((_, records)) = read_piece(&bytes, Kind::List) else { return Ok(()) };
            for read in records {
                let mut room = vec![0xff; PIECE_MIN];
                let mut piece = Piece::new(&mut room).unwrap();
                prop_assert!(piece.push(&read));
                piece.finish(Kind::List, true);
                let again = read_piece(&room, Kind::List).unwrap().1.next();
                prop_assert_eq!(again, Some(read));
            }
        }
    }
}
