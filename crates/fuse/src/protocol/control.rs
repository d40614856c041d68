//! The control ioctl, by which programs ask the server of a mount: one page in, one page back.
//!
//! ```text
//! page  := head | name (request) or entry... (answer), in at most 16,376 bytes
//! head  := version 2 | kind 2 | flags 4 | cursor 8, 8, 8 | numbers 8, 8, 8, 8 | count 4 | length 4
//! entry := numbers 8, 8, 8 | flags 4 | lengths 2, 2 | text, text, zeros up to a multiple of 8
//! ```
//!
//! A list that does not fit into a page goes on: the next request is the head of the answer, with
//! the flags of the first request and without a count. It ends with [`END`]. The first cursor is 0,
//! and only the server knows what others mean.
//!
//! | [`Kind`] | request: flags, numbers | answer: flags, numbers | entry |
//! | --- | --- | --- | --- |
//! | `Names` | [`PATHS`]; inode (0: the opened file), generation (0: any) | [`TOP`]; inode, generation | directory, its generation; name, or path from the top of the mount |
//! | `RemoveTree` | [`TOP_ONLY`]; the name | [`STILL_SHOWN`]; inode that was removed | none |
//! | `Counters` | | | value; [`GAUGE`]; name, description |
//! | `ReadOnly` | | | none if the volume takes changes; otherwise the reason |
//! | `Orphans` | | | inode, size, allocated bytes; flags and state; path |
//! | `Deleted` | | | top of a deleted subvolume, inodes left in it |
//! | `Trim` | | | bytes discarded: about a GiB for each page; the first page makes a checkpoint |
//! | `Scrub` | bytes to read, at most [`SCRUB_MAX`] | bytes, blocks, objects read; problems that did not fit | rule, problem |
//! | `Share` | rights as of `access(2)`; lifetime in seconds; for the opened file | [`BY_NAME`] | text of the token |
//! | `Revoke` | | | none |
//! | `SetQuota` | [`SET_BYTES`], [`SET_INODES`]; limits of bytes and inodes, [`NO_LIMIT`] for none; for the opened directory | | none |
//! | `RemoveQuota` | for the opened directory | | none |
//! | `Quota` | for the opened file | | that of the tree which it is in, if there is one: as of `Quotas` |
//! | `Quotas` | | | directory, bytes, inodes; [`IS_EXACT`], [`HAS_PATH`]; path, two limits of 8 bytes |
//! | `Operations` | | | nanoseconds, errors, bytes; [`IN_VOLUME`], [`IS_CALL`]; name, histogram ([`super::histogram`]) |
//! | `Top` | | | user or thread, requests, nanoseconds; [`IS_PROCESS`]; load ([`super::histogram`]) |
//! | `Trace` | cursor: number of the request wanted, 0 for those from now on | [`INTERRUPTED`]; number to ask for next | number, beginning in nanoseconds since 1970, nanoseconds; code of the operation; facts ([`super::traced`]), names |
//! | `Facts` | | | name, value |
//! | `Remount` | [`READ_ONLY`], [`NO_ATIME`]: the new state | | none |
//! | `SetLabel` | the label | | none |
//! | `MakeSubvolume` | the name; permission bits, umask | inode of its top | none |
//! | `DeleteSubvolume` | the name | [`STILL_SHOWN`]; inode of its top | none |
//! | `Subvolumes` | | | top, inodes; [`IS_DELETED`]; name |
//!
//! Requests come from any user: [`parse`] accepts nothing that the table does not have.
//! Authorisation is in `ops/control.rs`.

use super::Errno;
pub use super::flags::PAGE;
use super::reply::put;
use super::wire::{ControlEntry, ControlHead};
use shoal::raw::OrphanState;
use shoal::raw::limits::NAME_MAX;
use zerocopy::FromBytes;

/// Version of these structures.
pub const VERSION: u16 = 1;

/// Answer: the list, or the scrub, has ended.
pub const END: u32 = 1 << 0;
/// Answer to `Names`: the file is the top of the mount, which has no name in it.
pub const TOP: u32 = 1 << 1;
/// Answer to `RemoveTree`: the tree is gone, but the kernel may show its name for a moment more.
pub const STILL_SHOWN: u32 = 1 << 1;
/// Answer to `Share`: the mount opens tokens by name (`tokens.rs`).
pub const BY_NAME: u32 = 1 << 1;
/// Request of `Names`: paths in place of names.
pub const PATHS: u32 = 1 << 0;
/// Request of `RemoveTree`: permission is checked on the top's name alone. For the superuser.
pub const TOP_ONLY: u32 = 1 << 0;
/// Entry of `Counters`: the value also goes down.
pub const GAUGE: u32 = 1 << 0;
/// Entry of `Orphans`: the inode has an orphan slot.
pub const HAS_SLOT: u32 = 1 << 0;
/// Entry of `Orphans`: the inode is open, or known to the kernel.
pub const IS_HELD: u32 = 1 << 1;
/// Entry of `Orphans` and `Quotas`: the path is known.
pub const HAS_PATH: u32 = 1 << 2;
/// Request of `SetQuota`: the limit of bytes is given; otherwise it stays.
pub const SET_BYTES: u32 = 1 << 0;
/// Request of `SetQuota`: the limit of inodes is given; otherwise it stays.
pub const SET_INODES: u32 = 1 << 1;
/// Limit of a quota: none.
pub const NO_LIMIT: u64 = u64::MAX;
/// Entry of `Quotas`: the use is known; otherwise a lower bound.
pub const IS_EXACT: u32 = 1 << 0;
/// Entry of `Operations`: inside the volume.
pub const IN_VOLUME: u32 = 1 << 0;
/// Entry of `Operations`: a call of the library.
pub const IS_CALL: u32 = 1 << 1;
/// Entry of `Top`: a process.
pub const IS_PROCESS: u32 = 1 << 0;
/// Answer to `Trace`: requests before it were not kept for want of a reader, or have been answered
/// by a server before this one.
pub const INTERRUPTED: u32 = 1 << 1;
/// Request of `Remount`: nothing may be changed from now on; without it, changes are allowed.
pub const READ_ONLY: u32 = 1 << 0;
/// Request of `Remount`: access times stay as they are.
pub const NO_ATIME: u32 = 1 << 1;
/// Entry of `Subvolumes`: it is being freed, and has no name.
pub const IS_DELETED: u32 = 1 << 0;
/// Entry of `Orphans`: the state is in the bits from here on.
const STATE_SHIFT: u32 = 8;

/// Most bytes that one request reads in a scrub. Meanwhile no freed space is reused, so it must
/// take only tens of milliseconds.
pub const SCRUB_MAX: u64 = 8 << 20;

const HEAD: usize = size_of::<ControlHead>();
const ENTRY: usize = size_of::<ControlEntry>();
const ALIGN: usize = 8;

/// Most entries that fit into a page.
pub const ENTRIES_MAX: usize = (PAGE - HEAD) / ENTRY;

const _: () = assert!(PAGE.is_multiple_of(ALIGN) && PAGE < 1 << 14);
const _: () = assert!(HEAD.is_multiple_of(ALIGN) && ENTRY.is_multiple_of(ALIGN));

/// Place in a list where the next page begins.
pub type Cursor = [u64; 3];

macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $name:ident $number:literal: $flags:literal $cursor:literal $numbers:literal;
    )*) => {
        /// Subject of a request. Numbers are never used again.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Kind { $($(#[$doc])* $name = $number,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Kind] = &[$(Kind::$name,)*];

            /// Returns the flags, words of the cursor and numbers that a request may have.
            fn limits(self) -> (u32, usize, usize) {
                match self { $(Kind::$name => ($flags, $cursor, $numbers),)* }
            }
        }
    };
}

// Name, number: flags, words of the cursor, numbers.
kinds! {
    /// Names or paths of a file.
    Names 1: 1 1 2;
    /// Removal of a tree, or of anything else that has a name.
    RemoveTree 2: 1 0 0;
    /// Counters.
    Counters 3: 0 1 0;
    /// Reason why the volume takes no changes.
    ReadOnly 4: 0 1 0;
    /// Inodes without a name.
    Orphans 5: 0 1 0;
    /// Deleted subvolumes.
    Deleted 6: 0 1 0;
    /// Discards free space.
    Trim 7: 0 1 0;
    /// Checks a piece of the volume.
    Scrub 8: 0 3 1;
    /// A token for a file.
    Share 9: 7 0 1;
    /// Revocation of all tokens.
    Revoke 10: 0 0 0;
    /// Limits of a directory tree.
    SetQuota 11: 3 0 2;
    /// Removal of a quota.
    RemoveQuota 12: 0 0 0;
    /// The quota of the tree that a file is in.
    Quota 13: 0 0 0;
    /// All quotas.
    Quotas 14: 0 1 0;
    /// Facts about the mount and its volume.
    Facts 30: 0 1 0;
    /// Change of options.
    Remount 31: 3 0 0;
    /// Change of the volume's label.
    SetLabel 32: 0 0 0;
    /// A new subvolume.
    MakeSubvolume 33: 0 0 2;
    /// Deletion of a subvolume.
    DeleteSubvolume 34: 0 0 0;
    /// All subvolumes.
    Subvolumes 35: 0 1 0;
    /// Histograms of operations.
    Operations 40: 0 1 0;
    /// Users and processes by load.
    Top 41: 0 1 0;
    /// Requests as they are answered.
    Trace 42: 0 1 0;
}

/// Parses a request: its kind, its head and its name, empty if it needs none.
///
/// # Errors
/// `EPROTONOSUPPORT` for another version, `ENAMETOOLONG` for a name that no directory can hold,
/// `EINVAL` for anything else that the table above does not have.
pub fn parse(page: &[u8]) -> Result<(Kind, ControlHead, &[u8]), Errno> {
    let (head, rest) = ControlHead::read_from_prefix(page).map_err(|_| Errno::EINVAL)?;
    if head.version != VERSION {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let kind = Kind::ALL.iter().copied().find(|kind| *kind as u16 == head.kind);
    let kind = kind.ok_or(Errno::EINVAL)?;
    let (flags, cursor, numbers) = kind.limits();
    let is_zero = |words: &[u64]| words.iter().all(|word| *word == 0);
    let is_known = head.flags & !flags == 0
        && is_zero(&head.cursor[cursor..])
        && is_zero(&head.numbers[numbers..])
        && head.count == 0;
    let len = head.len as usize;
    if len > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let name = rest.get(..len).ok_or(Errno::EINVAL)?;
    let is_good = match kind {
        Kind::RemoveTree | Kind::MakeSubvolume | Kind::DeleteSubvolume => is_name(name),
        Kind::SetLabel => !name.contains(&0),
        Kind::Scrub => len == 0 && head.numbers[0] > 0,
        _ => len == 0,
    };
    if is_known && is_good { Ok((kind, head, name)) } else { Err(Errno::EINVAL) }
}

/// Returns whether a directory can hold such a name.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// An entry of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry<'a> {
    /// Numbers, by kind.
    pub numbers: [u64; 3],
    /// Flags, by kind.
    pub flags: u32,
    /// Texts, by kind; each shorter than 64 KiB.
    pub texts: [&'a [u8]; 2],
}

/// An answer being written.
pub struct Answer<'a> {
    page: &'a mut [u8],
    end: usize,
    /// Its head; `flags` and `numbers` are the handler's.
    pub head: ControlHead,
}

impl<'a> Answer<'a> {
    /// Begins an answer in `room`, of which no more than a page is used.
    pub fn new(room: &'a mut [u8], kind: Kind) -> Answer<'a> {
        let len = room.len().min(PAGE);
        let head = ControlHead { version: VERSION, kind: kind as u16, ..ControlHead::default() };
        Answer { page: &mut room[..len], end: HEAD, head }
    }

    /// Adds an entry. Returns whether it fits.
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        let [first, second] = entry.texts;
        let len = [first, second].map(|text| u16::try_from(text.len()));
        let [Ok(first_len), Ok(second_len)] = len else { return false };
        let end = (self.end + ENTRY + first.len() + second.len()).next_multiple_of(ALIGN);
        let Some(room) = self.page.get_mut(self.end..end) else { return false };
        room.fill(0);
        let (numbers, flags, len) = (entry.numbers, entry.flags, [first_len, second_len]);
        let Ok(start) = put(room, 0, &ControlEntry { numbers, flags, len }) else { return false };
        let (middle, text) = (start + first.len(), first.len() + second.len());
        room[start..middle].copy_from_slice(first);
        room[middle..start + text].copy_from_slice(second);
        (self.end, self.head.count) = (end, self.head.count + 1);
        true
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        (self.end, self.head.count) = (HEAD, 0);
    }

    /// Puts the head; `next` is the start of the next page, `None` at the end. Returns the length.
    ///
    /// # Errors
    /// `EIO` if the room was too small for a head.
    pub fn finish(mut self, next: Option<Cursor>) -> Result<usize, Errno> {
        self.head.flags |= if next.is_none() { END } else { 0 };
        self.head.cursor = next.unwrap_or_default();
        put(self.page, 0, &self.head)?;
        Ok(self.end)
    }
}

/// Iterates over the entries of an answer. A truncated or malformed one ends the list.
pub fn entries(page: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let count = ControlHead::read_from_prefix(page).map_or(0, |(head, _)| head.count);
    let mut rest = page.get(HEAD..).unwrap_or_default();
    (0..count).map_while(move |_| {
        let (ControlEntry { numbers, flags, len }, behind) =
            ControlEntry::read_from_prefix(rest).ok()?;
        let len = len.map(usize::from);
        let (first, second) = behind.get(..len[0] + len[1])?.split_at(len[0]);
        rest = behind.get((len[0] + len[1]).next_multiple_of(ALIGN)..)?;
        Some(Entry { numbers, flags, texts: [first, second] })
    })
}

/// Returns the flag bits of an orphan's state.
pub fn state_bits(state: OrphanState) -> u32 {
    let number = match state {
        OrphanState::Unlinked => 0,
        OrphanState::Tree => 1,
        OrphanState::Truncating => 2,
        OrphanState::Broken => 3,
        OrphanState::Changing => 4,
    };
    number << STATE_SHIFT
}

/// Returns the state in an orphan's flags.
pub fn state_of(flags: u32) -> OrphanState {
    match flags >> STATE_SHIFT {
        0 => OrphanState::Unlinked,
        1 => OrphanState::Tree,
        2 => OrphanState::Truncating,
        4 => OrphanState::Changing,
        _ => OrphanState::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;
    use zerocopy::IntoBytes;

    fn head(kind: Kind) -> ControlHead {
        ControlHead { version: VERSION, kind: kind as u16, ..ControlHead::default() }
    }

    fn ask(head: ControlHead, name: &[u8]) -> Result<(Kind, Vec<u8>), Errno> {
        let head = ControlHead { len: name.len() as u32, ..head };
        let mut page = [head.as_bytes(), name].concat();
        page.resize(PAGE, b'/');
        parse(&page).map(|(kind, _, name)| (kind, name.to_vec()))
    }

    #[test]
    fn a_full_page_reads_back() {
        let mut page = vec![0xff; PAGE + 100];
        let mut answer = Answer::new(&mut page, Kind::Names);
        assert!(answer.push(&Entry { texts: [b"to be", b"cleared"], ..Entry::default() }));
        answer.clear();
        let texts: Vec<(Vec<u8>, Vec<u8>)> =
            (0..ENTRIES_MAX).map(|n| (vec![b'a'; n % 20], vec![b'b'; n % 7])).collect();
        let entry = |n: usize| Entry {
            numbers: [n as u64, 1, u64::MAX],
            flags: n as u32,
            texts: [&texts[n].0, &texts[n].1],
        };
        let pushed = (0..ENTRIES_MAX).take_while(|n| answer.push(&entry(*n))).count();
        let long = vec![0; 1 << 16];
        assert!(!answer.push(&Entry { texts: [&long, b""], ..Entry::default() }));
        let len = answer.finish(Some([3, 2, 1])).unwrap();
        assert!(len <= PAGE && len > PAGE - 64 && pushed > 300);
        assert!(page[PAGE..].iter().all(|byte| *byte == 0xff), "no more than a page");
        let (head, _) = ControlHead::read_from_prefix(&page).unwrap();
        assert_eq!((head.flags, head.cursor, head.count as usize), (0, [3, 2, 1], pushed));
        assert!(entries(&page).eq((0..pushed).map(entry)));
        let mut answer = Answer::new(&mut page, Kind::Names);
        while answer.push(&Entry::default()) {}
        assert_eq!(answer.head.count as usize, ENTRIES_MAX);
        assert_eq!(Answer::new(&mut [0; HEAD - 1], Kind::Scrub).finish(None), Err(Errno::EIO));
    }

    #[test]
    fn requests_are_checked() {
        for kind in Kind::ALL.iter().copied() {
            let (flags, cursor, numbers) = kind.limits();
            let is_named =
                matches!(kind, Kind::RemoveTree | Kind::MakeSubvolume | Kind::DeleteSubvolume);
            let name = if is_named { &b"name"[..] } else { b"" };
            let mut most = ControlHead { flags, ..head(kind) };
            most.cursor[..cursor].fill(u64::MAX);
            most.numbers[..numbers].fill(u64::MAX);
            assert_eq!(ask(most, name), Ok((kind, name.to_vec())));
            let mut bad = vec![
                ControlHead { flags: 1 << 4, ..most },
                ControlHead { count: 1, ..most },
                ControlHead { kind: 0, ..most },
                ControlHead { kind: Kind::ALL.len() as u16 + 1, ..most },
            ];
            for n in cursor..3 {
                bad.push(most);
                bad.last_mut().unwrap().cursor[n] = 1;
            }
            for n in numbers..4 {
                bad.push(most);
                bad.last_mut().unwrap().numbers[n] = 1;
            }
            for bad in bad {
                assert_eq!(ask(bad, name), Err(Errno::EINVAL), "{bad:?}");
            }
            let other = ControlHead { version: VERSION + 1, ..most };
            assert_eq!(ask(other, name), Err(Errno::EPROTONOSUPPORT));
            if kind == Kind::SetLabel {
                continue;
            }
            let swapped = if name.is_empty() { &b"name"[..] } else { b"" };
            assert_eq!(ask(most, swapped), Err(Errno::EINVAL));
            // Bytes that are missing.
            let long = ControlHead { len: 5, ..most };
            assert_eq!(parse(&[long.as_bytes(), b"name"].concat()), Err(Errno::EINVAL));
            assert_eq!(parse(&most.as_bytes()[..HEAD - 1]), Err(Errno::EINVAL));
        }
        assert_eq!(ask(head(Kind::Scrub), b""), Err(Errno::EINVAL), "0 bytes");
        let tree = head(Kind::RemoveTree);
        assert_eq!(ask(tree, &[b'x'; 255]), Ok((Kind::RemoveTree, vec![b'x'; 255])));
        assert_eq!(ask(tree, &[b'x'; 256]), Err(Errno::ENAMETOOLONG));
        let endless = ControlHead { len: u32::MAX, ..tree };
        assert_eq!(parse(endless.as_bytes()), Err(Errno::ENAMETOOLONG));
        for bad in [&b"."[..], b"..", b"a/b", b"a\0"] {
            assert_eq!(ask(tree, bad), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn states_have_bits() {
        use OrphanState::*;
        for state in [Unlinked, Tree, Truncating, Broken, Changing] {
            assert_eq!(state_of(state_bits(state) | HAS_SLOT | IS_HELD | HAS_PATH), state);
        }
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn arbitrary_pages_never_panic(mut page in proptest::collection::vec(any::<u8>(), 0..300)) {
            for _ in 0..2 {
                prop_assert!(entries(&page).count() <= page.len() / ENTRY);
                let _ = parse(&page);
                if let Some(start) = page.first_chunk_mut::<4>() {
                    *start = [VERSION as u8, 0, start[2] % 15, 0];
                }
            }
        }
    }
}
