//! Pieces of the answers of a control file, and their records ([`super::question`]).

use super::Errno;
use super::wire::{
    ChangeRecord, EndRecord, EntryRecord, NameRecord, PieceHead, ProgressRecord, RecordHead,
    TotalsRecord,
};
use shoal::raw::limits::NAME_MAX;
use shoal::raw::{Attr, ChangeKind, FileKind, Generation, Ino, Time, Totals};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of these structures.
pub const VERSION: u16 = 1;
/// Piece: it is the last one.
pub const LAST: u32 = 1 << 0;

/// Length of a piece: the largest read that comes as one request, whatever the transport (32 pages
/// through rings) and wherever the reader's buffer begins in its first page.
pub const PIECE: usize = 124 << 10;
/// Length of the shortest piece: any record fits into it.
pub const PIECE_MIN: usize = 8 << 10;
/// Most bytes of a path in one record. A longer one is in several.
pub const PATH_PART: usize = 4096;

const PIECE_HEAD: usize = size_of::<PieceHead>();
const RECORD: usize = size_of::<RecordHead>();
const ALIGN: usize = 8;
/// Longest target of a symlink.
const TARGET_MAX: usize = 4096;

const _: () = assert!(PIECE_HEAD + RECORD + 96 + NAME_MAX + TARGET_MAX + ALIGN <= PIECE_MIN);
const _: () = assert!(PIECE_HEAD + RECORD + PATH_PART + ALIGN <= PIECE_MIN);

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
    /// Changes below a directory since a mark.
    Changes = 4,
    /// Question if anything in the volume is newer than a mark.
    Newer = 5,
    /// A change of owners, permissions or times of a directory and everything below.
    Change = 6,
    /// The end of the change that the same file has begun.
    Cancel = 7,
}

impl Kind {
    /// All of them.
    pub const ALL: &[Kind] = &[
        Kind::List,
        Kind::Entry,
        Kind::Totals,
        Kind::Changes,
        Kind::Newer,
        Kind::Change,
        Kind::Cancel,
    ];
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
    /// A change; its paths follow.
    Change(ChangeFacts),
    /// A path of the change or of the failure before, or a part of it.
    Path {
        /// It is the earlier path of something renamed.
        is_from: bool,
        /// The next record has more of it.
        goes_on: bool,
        /// The part; not empty.
        text: &'a [u8],
    },
    /// The end of the changes.
    Mark {
        /// The mark for the next question.
        text: &'a [u8],
        /// All removed names were told.
        all_removed: bool,
    },
    /// News: something may be newer than the mark.
    Newer(bool),
    /// Something that could not be changed; its path follows, unless it is the directory itself.
    Failure {
        /// The inode.
        ino: Ino,
        /// Why.
        errno: u32,
    },
    /// Progress of a change, or of a search for changes.
    Progress(Progress),
}

/// A change without its paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeFacts {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The inode.
    pub ino: Ino,
    /// Its generation; 0 if not known.
    pub generation: Generation,
    /// Its type; `None` of a removed name.
    pub file: Option<FileKind>,
    /// The next change has further paths of the inode.
    pub more: bool,
}

/// Progress of a change of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Inodes changed so far.
    pub inodes: u64,
    /// Inodes that could not be changed, and directories that could not be listed.
    pub failures: u64,
    /// Those of them that are not told by a record of their own, because too many were not read.
    pub untold: u64,
    /// The change was cancelled.
    pub cancelled: bool,
}

const FORM_ENTRY: u16 = 1;
const FORM_NAME: u16 = 2;
const FORM_END: u16 = 3;
const FORM_TOTALS: u16 = 4;
const FORM_CHANGE: u16 = 5;
const FORM_PATH: u16 = 6;
const FORM_MARK: u16 = 7;
const FORM_NEWER: u16 = 8;
const FORM_FAILURE: u16 = 9;
const FORM_PROGRESS: u16 = 10;

/// Flags of records, in the field for the number of a directory.
const IS_FROM: u16 = 1 << 0;
const GOES_ON: u16 = 1 << 1;
/// Of a mark, of news, of a change and of progress: yes.
const YES: u16 = 1 << 0;

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
            Record::Change(facts) => {
                let more = flag(facts.more, YES);
                self.put(FORM_CHANGE, more, &change_record(facts), [b"", b""])
            }
            Record::Path { is_from, goes_on, text } => {
                let flags = flag(*is_from, IS_FROM) | flag(*goes_on, GOES_ON);
                self.put(FORM_PATH, flags, &[0_u8; 0], [text, b""])
            }
            Record::Mark { text, all_removed } => {
                self.put(FORM_MARK, flag(*all_removed, YES), &[0_u8; 0], [text, b""])
            }
            Record::Newer(newer) => self.put(FORM_NEWER, flag(*newer, YES), &[0_u8; 0], [b"", b""]),
            Record::Failure { ino, errno } => {
                let failure = EndRecord { cookie: ino.0, errno: *errno, padding: 0 };
                self.put(FORM_FAILURE, 0, &failure, [b"", b""])
            }
            Record::Progress(Progress { inodes, failures, untold, cancelled }) => {
                let body = ProgressRecord { numbers: [*inodes, *failures, *untold] };
                self.put(FORM_PROGRESS, flag(*cancelled, YES), &body, [b"", b""])
            }
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
            _ => feed_record(&head, rest)?,
        };
        self.bytes = self.bytes.get(len..)?;
        Some(record)
    }
}

/// Reads a record about changes; returns it and its length.
fn feed_record<'a>(head: &RecordHead, rest: &'a [u8]) -> Option<(Record<'a>, usize)> {
    let has = |bit: u16| head.dir & bit != 0;
    let known = match head.form {
        FORM_PATH => IS_FROM | GOES_ON,
        FORM_CHANGE | FORM_MARK | FORM_NEWER | FORM_PROGRESS => YES,
        _ => 0,
    };
    if head.dir & !known != 0 {
        return None;
    }
    match head.form {
        FORM_CHANGE => {
            let (body, _, _, len) = split::<ChangeRecord>(head, rest)?;
            Some((Record::Change(change_of(&body, has(YES))?), len))
        }
        FORM_PATH => {
            let (_, text, _, len) = split::<[u8; 0]>(head, rest)?;
            Some((Record::Path { is_from: has(IS_FROM), goes_on: has(GOES_ON), text }, len))
        }
        FORM_MARK => {
            let (_, text, _, len) = split::<[u8; 0]>(head, rest)?;
            Some((Record::Mark { text, all_removed: has(YES) }, len))
        }
        FORM_NEWER => {
            let (_, _, _, len) = split::<[u8; 0]>(head, rest)?;
            Some((Record::Newer(has(YES)), len))
        }
        FORM_FAILURE => {
            let (body, _, _, len) = split::<EndRecord>(head, rest)?;
            Some((Record::Failure { ino: Ino(body.cookie), errno: body.errno }, len))
        }
        FORM_PROGRESS => {
            let (body, _, _, len) = split::<ProgressRecord>(head, rest)?;
            let [inodes, failures, untold] = body.numbers;
            let cancelled = has(YES);
            Some((Record::Progress(Progress { inodes, failures, untold, cancelled }), len))
        }
        _ => None,
    }
}

/// Returns a bit if it is to be set.
fn flag(is_set: bool, bit: u16) -> u16 {
    if is_set { bit } else { 0 }
}

/// Takes a record apart: its body, name and target; and its length with head and padding. A name
/// must be one.
fn split<'a, T: FromBytes + KnownLayout + Immutable>(
    head: &RecordHead,
    rest: &'a [u8],
) -> Option<(T, &'a [u8], &'a [u8], usize)> {
    let (body, texts) = T::read_from_prefix(rest).ok()?;
    let (name, target) = (usize::from(head.name), usize::from(head.target));
    let (name, target) = (texts.get(..name)?, texts.get(name..name + target)?);
    let is_name = match head.form {
        FORM_ENTRY | FORM_NAME => {
            !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
        }
        FORM_PATH => (1..=PATH_PART).contains(&name.len()) && !name.contains(&0),
        FORM_MARK => (1..=NAME_MAX).contains(&name.len()),
        _ => name.is_empty(),
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

fn change_record(facts: &ChangeFacts) -> ChangeRecord {
    ChangeRecord {
        ino: facts.ino.0,
        generation: facts.generation.0,
        mode: facts.file.map_or(0, FileKind::mode_bits),
        kind: u32::from(facts.kind as u8),
        padding: 0,
    }
}

fn change_of(record: &ChangeRecord, more: bool) -> Option<ChangeFacts> {
    const KINDS: [ChangeKind; 4] =
        [ChangeKind::Created, ChangeKind::Changed, ChangeKind::Renamed, ChangeKind::Removed];
    Some(ChangeFacts {
        kind: KINDS.into_iter().find(|kind| u32::from(*kind as u8) == record.kind)?,
        ino: Ino(record.ino),
        generation: Generation(record.generation),
        file: match record.mode {
            0 => None,
            mode => Some(FileKind::from_mode(mode)?),
        },
        more,
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
            Record::Change(ChangeFacts {
                kind: ChangeKind::Renamed,
                ino: Ino(u64::MAX),
                generation,
                file: Some(FileKind::Directory),
                more: true,
            }),
            Record::Path { is_from: true, goes_on: true, text: &[b'/'; PATH_PART] },
            Record::Path { is_from: false, goes_on: false, text: b"a/b" },
            Record::Mark { text: b"mark", all_removed: true },
            Record::Newer(true),
            Record::Failure { ino: Ino(3), errno: 13 },
            Record::Progress(Progress { inodes: 1, failures: 2, untold: 3, cancelled: true }),
        ];
        for room in [2 * PIECE_MIN, 2 * PIECE_MIN + 5, PIECE] {
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
}
