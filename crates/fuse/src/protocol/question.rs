//! Questions to a control file, and the pieces of their answers.
//!
//! A question is a page, given by the ioctl [`IOCTL_ASK`](super::flags::IOCTL_ASK); then each read
//! of the control file returns the next piece of the answer, until one has [`LAST`].
//!
//! ```text
//! question := head | directory..., or change, then name; in at most 4,096 bytes
//! head     := version 2 | kind 2 | flags 4 | count of directories 4 | length of the name 4
//! directory:= inode 8 | cookie 8 | generation 4 | zero 4
//! change   := seconds of two times 16 | nanoseconds 8 | owner, group, umask 12 | zero 4
//! piece    := version 2 | kind 2 | flags 4 | length in use 4 | zero 4 | record... | zeros
//! record   := form 2 | number of the directory 2 | lengths of name and target 2, 2
//!             | 0 to 96 bytes by form | name | target | zeros up to a multiple of 8
//! ```
//!
//! | [`Kind`] | question | answer |
//! | --- | --- | --- |
//! | `List` | [`NAMES_ONLY`], [`TARGETS`]; directories | of each directory in their order: at most [`ENTRIES_MAX`] entries, and the end. An entry whose inode cannot be read comes by name and type |
//! | `Entry` | [`TARGETS`]; a name in the directory of the control file, or `.` for itself | the entry |
//! | `Totals` | [`SUBVOLUMES`] | the totals of the directory of the control file |
//! | `Changes` | [`MARK_ONLY`]; as name the text of a mark, or nothing | what has changed below the directory since the mark, and a new mark |
//! | `Newer` | as name the text of a mark | whether anything in the volume may be newer |
//! | `Change` | [`SET_UID`] to [`MTIME_NOW`]; a change; as name a mode as of chmod(1), or nothing | makes the change in the directory and below; failures, and the progress, until it is done |
//! | the same | [`SET_ACL`] to [`ACL_KEEPS_MASK`]; a change of zeros; as name entries of an access control list | the same |
//! | `Cancel` | | none: ends the change that the file is asked for, which is read on to its end |
//!
//! A piece is as long as the read; what is behind its records is zeros. Questions come from any
//! user: [`parse`] accepts nothing that the table does not have. Answers are read by programs that
//! need not trust the server: [`Records`] ends at the first record that is not whole.

use super::Errno;
pub use super::flags::QUESTION;
pub use super::record::{
    ChangeFacts, Kind, LAST, PATH_PART, PIECE, PIECE_MIN, Piece, Progress, Record, Records,
    VERSION, read_piece,
};
use super::wire::{QuestionChange, QuestionDir, QuestionHead};
use shoal::raw::limits::NAME_MAX;
use shoal::raw::{AclChange, ModeChange, SetTime, Time, TreeChange};
use zerocopy::{FromBytes, IntoBytes};

/// Name of the control file, in every directory. A real file of that name comes first.
pub const CONTROL_NAME: &str = ".shoal-control";

/// Question: entries have names and types alone.
pub const NAMES_ONLY: u32 = 1 << 0;
/// Question: symlinks come with their targets.
pub const TARGETS: u32 = 1 << 1;
/// Question: subvolumes below count, too.
pub const SUBVOLUMES: u32 = 1 << 2;
/// Question: no changes, but a mark of this moment.
pub const MARK_ONLY: u32 = 1 << 3;
/// Question: the owner is changed.
pub const SET_UID: u32 = 1 << 4;
/// Question: the group is changed.
pub const SET_GID: u32 = 1 << 5;
/// Question: the access time is changed.
pub const SET_ATIME: u32 = 1 << 6;
/// Question: the modification time is changed.
pub const SET_MTIME: u32 = 1 << 7;
/// Question: the access time becomes that of the change.
pub const ATIME_NOW: u32 = 1 << 8;
/// Question: the modification time becomes that of the change.
pub const MTIME_NOW: u32 = 1 << 9;
/// Question: access control lists are changed, and nothing else.
pub const SET_ACL: u32 = 1 << 10;
/// Question: it is the default lists of directories.
pub const ACL_DEFAULT: u32 = 1 << 11;
/// Question: first everything is removed that a list need not have.
pub const ACL_CLEARS: u32 = 1 << 12;
/// Question: masks stay as they are.
pub const ACL_KEEPS_MASK: u32 = 1 << 13;

/// Most entries of a directory that one question gets. The next question goes on from there.
pub const ENTRIES_MAX: usize = 1024;
/// Most directories of a question.
pub const DIRS_MAX: usize = (QUESTION - HEAD) / DIR;

const HEAD: usize = size_of::<QuestionHead>();
const DIR: usize = size_of::<QuestionDir>();
const CHANGE: usize = size_of::<QuestionChange>();
/// Permission bits.
const UMASK_MAX: u32 = 0o777;
/// Most bytes of a mode, or of entries.
const TEXT_MAX: usize = QUESTION - HEAD - CHANGE;
/// Flags of a change of owners and times.
const SET_ALL: u32 = SET_UID | SET_GID | SET_ATIME | SET_MTIME | ATIME_NOW | MTIME_NOW;
/// Flags of a change of lists.
const ACL_ALL: u32 = SET_ACL | ACL_DEFAULT | ACL_CLEARS | ACL_KEEPS_MASK;

const _: () = assert!(NAME_MAX <= TEXT_MAX && DIRS_MAX <= u16::MAX as usize);

impl Kind {
    /// Returns the flags that a question may have.
    fn flags(self) -> u32 {
        match self {
            Kind::List => NAMES_ONLY | TARGETS,
            Kind::Entry => TARGETS,
            Kind::Totals => SUBVOLUMES,
            Kind::Changes => MARK_ONLY,
            Kind::Change => SET_ALL | ACL_ALL,
            Kind::Newer | Kind::Cancel => 0,
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
    /// Change to be made; of other kinds zeros.
    pub change: QuestionChange,
    /// Name to look up; mark; mode.
    pub name: Vec<u8>,
}

impl Question {
    /// A question without directories.
    pub fn new(kind: Kind, flags: u32, name: &[u8]) -> Question {
        let change = QuestionChange::default();
        Question { kind, flags, dirs: Vec::new(), change, name: name.to_vec() }
    }

    /// A question for entries of directories.
    pub fn list(flags: u32, dirs: Vec<QuestionDir>) -> Question {
        Question { dirs, ..Question::new(Kind::List, flags, b"") }
    }

    /// A change of a tree. Its mode is given as text; `umask` is for parts of that that name no
    /// users.
    pub fn change(change: &TreeChange, mode: &str, umask: u32) -> Question {
        if let Some(acl) = &change.acl {
            return Question::acl_change(acl);
        }
        let time = |time: Option<SetTime>, set: u32, now: u32| match time {
            None => (0, Time { sec: 0, nsec: 0 }),
            Some(SetTime::Now) => (set | now, Time { sec: 0, nsec: 0 }),
            Some(SetTime::To(time)) => (set, time),
        };
        let (atime_flags, atime) = time(change.atime, SET_ATIME, ATIME_NOW);
        let (mtime_flags, mtime) = time(change.mtime, SET_MTIME, MTIME_NOW);
        let owners = change.uid.map_or(0, |_| SET_UID) | change.gid.map_or(0, |_| SET_GID);
        let change = QuestionChange {
            seconds: [atime.sec, mtime.sec],
            nanoseconds: [atime.nsec, mtime.nsec],
            uid: change.uid.unwrap_or(0),
            gid: change.gid.unwrap_or(0),
            umask,
            padding: 0,
        };
        let flags = owners | atime_flags | mtime_flags;
        Question { change, ..Question::new(Kind::Change, flags, mode.as_bytes()) }
    }

    /// A change of access control lists. With it nothing else can be changed.
    fn acl_change(acl: &AclChange) -> Question {
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let flags = SET_ACL
            | flag(acl.is_of_default(), ACL_DEFAULT)
            | flag(acl.clears(), ACL_CLEARS)
            | flag(acl.keeps_mask(), ACL_KEEPS_MASK);
        Question::new(Kind::Change, flags, acl.entries().as_bytes())
    }

    /// Returns the change of lists that is asked for.
    fn acl(&self) -> Result<AclChange, Errno> {
        let has = |flag: u32| self.flags & flag != 0;
        let text = std::str::from_utf8(&self.name).map_err(|_| Errno::EINVAL)?;
        let list = match has(ACL_DEFAULT) {
            true => AclChange::of_default(),
            false => AclChange::of_access(),
        };
        let list = if has(ACL_CLEARS) { list.clear() } else { list };
        let list = if has(ACL_KEEPS_MASK) { list.keep_mask() } else { list };
        list.with_entries(text).map_err(|_| Errno::EINVAL)
    }

    /// Returns the change of a tree that is asked for.
    ///
    /// # Errors
    /// `EINVAL` for a name that is no mode, or no entries.
    pub fn tree_change(&self) -> Result<TreeChange, Errno> {
        if self.flags & SET_ACL != 0 {
            return Ok(TreeChange { acl: Some(self.acl()?), ..TreeChange::default() });
        }
        let QuestionChange { seconds, nanoseconds, uid, gid, .. } = self.change;
        let has = |flag: u32| self.flags & flag != 0;
        let time = |at: usize, set: u32, now: u32| match (has(set), has(now)) {
            (false, _) => None,
            (true, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::To(Time { sec: seconds[at], nsec: nanoseconds[at] })),
        };
        let mode = match self.name.is_empty() {
            true => None,
            false => {
                let text = std::str::from_utf8(&self.name).map_err(|_| Errno::EINVAL)?;
                Some(ModeChange::parse(text).ok_or(Errno::EINVAL)?)
            }
        };
        Ok(TreeChange {
            uid: has(SET_UID).then_some(uid),
            gid: has(SET_GID).then_some(gid),
            mode,
            atime: time(0, SET_ATIME, ATIME_NOW),
            mtime: time(1, SET_MTIME, MTIME_NOW),
            acl: None,
        })
    }

    /// Writes it to a page. `None` if it is longer.
    pub fn write(&self, page: &mut [u8; QUESTION]) -> Option<()> {
        let Question { kind, flags, dirs, change, name } = self;
        page.fill(0);
        let (count, len) = (dirs.len() as u32, name.len() as u32);
        let head = QuestionHead { version: VERSION, kind: *kind as u16, flags: *flags, count, len };
        head.write_to_prefix(page).ok()?;
        let dirs = match kind {
            Kind::Change => change.as_bytes(),
            _ => dirs.as_bytes(),
        };
        page.get_mut(HEAD..HEAD + dirs.len())?.copy_from_slice(dirs);
        page.get_mut(HEAD + dirs.len()..HEAD + dirs.len() + name.len())?.copy_from_slice(name);
        Some(())
    }
}

/// Parses a question.
///
/// # Errors
/// `EPROTONOSUPPORT` for another version, `ENAMETOOLONG` for a name that no directory can hold (a
/// mode, or entries, can be longer), `EINVAL` for anything else that the table above does not have.
pub fn parse(page: &[u8]) -> Result<Question, Errno> {
    let (head, rest) = QuestionHead::read_from_prefix(page).map_err(|_| Errno::EINVAL)?;
    if head.version != VERSION {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let kind = Kind::ALL.iter().copied().find(|kind| *kind as u16 == head.kind);
    let kind = kind.ok_or(Errno::EINVAL)?;
    let (count, len) = (head.count as usize, head.len as usize);
    if len > if kind == Kind::Change { TEXT_MAX } else { NAME_MAX } {
        return Err(Errno::ENAMETOOLONG);
    }
    let has_dirs = if kind == Kind::List { (1..=DIRS_MAX).contains(&count) } else { count == 0 };
    let has_name = match kind {
        Kind::Entry | Kind::Newer => len > 0,
        Kind::Changes | Kind::Change => true,
        Kind::List | Kind::Totals | Kind::Cancel => len == 0,
    };
    if head.flags & !kind.flags() != 0 || !has_dirs || !has_name {
        return Err(Errno::EINVAL);
    }
    let before = if kind == Kind::Change { CHANGE } else { count * DIR };
    let (body, name) = rest.get(..before + len).ok_or(Errno::EINVAL)?.split_at(before);
    let is_name = name != b".." && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if !is_name {
        return Err(Errno::EINVAL);
    }
    let mut question = Question::new(kind, head.flags, name);
    if kind == Kind::Change {
        question.change = QuestionChange::read_from_bytes(body).map_err(|_| Errno::EINVAL)?;
    } else {
        let dirs = body.chunks_exact(DIR);
        question.dirs.extend(dirs.filter_map(|dir| QuestionDir::read_from_bytes(dir).ok()));
    }
    match question.is_consistent() {
        true => Ok(question),
        false => Err(Errno::EINVAL),
    }
}

impl Question {
    /// Returns whether what is not asked for is zero, and no flag lacks the one that it goes with.
    fn is_consistent(&self) -> bool {
        let Question { kind, flags, dirs, change, name } = self;
        let has = |flag: u32| flags & flag != 0;
        let time = |at: usize, set: u32, now: u32| {
            let is_zero = (change.seconds[at], change.nanoseconds[at]) == (0, 0);
            match (has(set), has(now)) {
                (true, false) => true,
                (true, true) | (false, false) => is_zero,
                (false, true) => false,
            }
        };
        match kind {
            Kind::List => dirs.iter().all(|dir| dir.padding == 0),
            Kind::Changes => !has(MARK_ONLY) || name.is_empty(),
            Kind::Change if has(SET_ACL) => {
                let is_something = has(ACL_CLEARS) || !name.is_empty();
                *flags & SET_ALL == 0 && *change == QuestionChange::default() && is_something
            }
            Kind::Change => {
                *flags & ACL_ALL == 0
                    && (has(SET_UID) || change.uid == 0)
                    && (has(SET_GID) || change.gid == 0)
                    && time(0, SET_ATIME, ATIME_NOW)
                    && time(1, SET_MTIME, MTIME_NOW)
                    && change.umask <= UMASK_MAX
                    && change.padding == 0
                    && (*flags != 0 || !name.is_empty())
            }
            Kind::Entry | Kind::Totals | Kind::Newer | Kind::Cancel => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::{PieceHead, RecordHead};
    use proptest::prelude::*;
    use shoal_skip::property;

    fn ask(question: &Question) -> Result<Question, Errno> {
        let mut page = [0xff; QUESTION];
        question.write(&mut page).unwrap();
        parse(&page)
    }

    fn list(dirs: usize) -> Question {
        let dir = QuestionDir { ino: 7, cookie: 3, generation: 5, padding: 0 };
        Question::list(0, vec![dir; dirs])
    }

    #[test]
    fn questions_read_back() {
        let entry =
            |name: &[u8]| Question { kind: Kind::Entry, dirs: vec![], ..list(1) }.named(name);
        let totals = Question { kind: Kind::Totals, flags: SUBVOLUMES, ..entry(b"") };
        let names = Question { flags: NAMES_ONLY | TARGETS, ..list(3) };
        let change = TreeChange {
            uid: Some(7),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::To(Time { sec: -5, nsec: 9 })),
            ..TreeChange::default()
        };
        let mode = Question::change(&TreeChange::default(), "u=rwX,go-w", 0o022);
        let owner = Question::change(&change, "", 0);
        assert_eq!(owner.tree_change(), Ok(change));
        let text = mode.tree_change().unwrap();
        assert_eq!(text.mode, ModeChange::parse("u=rwX,go-w"));
        assert_eq!(Question::new(Kind::Change, 0, b"u=q").tree_change(), Err(Errno::EINVAL));
        let others = [
            Question::new(Kind::Changes, 0, b"mark"),
            Question::new(Kind::Changes, 0, b""),
            Question::new(Kind::Changes, MARK_ONLY, b""),
            Question::new(Kind::Newer, 0, b"mark"),
            Question::new(Kind::Cancel, 0, b""),
            owner,
            mode,
        ];
        let first = [list(1), list(DIRS_MAX), names, entry(b"."), entry(&[b'x'; 255]), totals];
        for good in first.into_iter().chain(others) {
            assert_eq!(ask(&good), Ok(good));
        }
        let mut page = [0; QUESTION];
        assert_eq!(list(DIRS_MAX + 1).write(&mut page), None);
        assert_eq!(ask(&entry(&[b'x'; 256])), Err(Errno::ENAMETOOLONG));
        let unasked = QuestionChange { gid: 1, ..QuestionChange::default() };
        let padded = QuestionChange { padding: 1, ..QuestionChange::default() };
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
            Question::new(Kind::Changes, MARK_ONLY, b"mark"),
            Question::new(Kind::Newer, 0, b""),
            Question::new(Kind::Cancel, 0, b"x"),
            Question::new(Kind::Change, 0, b""),
            Question::new(Kind::Change, ATIME_NOW, b""),
            Question { change: unasked, ..Question::new(Kind::Change, SET_UID, b"") },
            Question { change: padded, ..Question::new(Kind::Change, SET_UID, b"") },
        ];
        for bad in bad {
            assert_eq!(ask(&bad), Err(Errno::EINVAL), "{bad:?}");
        }
    }

    #[test]
    fn changes_of_lists_read_back() {
        let acl =
            AclChange::of_default().clear().set("u:5:rwX,m::r").unwrap().remove("g:7").unwrap();
        let lists = TreeChange { acl: Some(acl), ..TreeChange::default() };
        let kept = AclChange::of_access().set(&"u:1000000:rwx,".repeat(200)[..2799]).unwrap();
        let long = TreeChange { acl: Some(kept.keep_mask()), ..TreeChange::default() };
        for change in [lists, long] {
            assert_eq!(ask(&Question::change(&change, "", 0)).unwrap().tree_change(), Ok(change));
        }
        assert_eq!(Question::new(Kind::Change, SET_ACL, b"u:5").tree_change(), Err(Errno::EINVAL));
        let unasked = QuestionChange { gid: 1, ..QuestionChange::default() };
        let bad = [
            Question::new(Kind::Change, SET_ACL, b""),
            Question::new(Kind::Change, ACL_CLEARS, b"u:5:r"),
            Question::new(Kind::Change, SET_ACL | SET_UID, b"u:5:r"),
            Question { change: unasked, ..Question::new(Kind::Change, SET_ACL, b"u:5:r") },
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

    proptest! {
        #![proptest_config(property(4000))]

        /// Any bytes are refused or read to some end; a record that was read can be written, and
        /// reads the same.
        #[test]
        fn arbitrary_bytes_never_panic(
            form in 0u16..12,
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
