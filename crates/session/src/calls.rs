//! The calls: everything that a program can ask of a volume, each a whole question.
//!
//! A call names a file by a [`Node`], which is open, and a path below it. One implementation makes
//! the calls on an open volume (the library's), another one sends them to the process that serves
//! it ([`crate::client`]). The list is a table: from each line come the method
//! of [`Calls`], what sends it, and what answers it. The answer to a call that a dead server had
//! carried out is in the table of `resent.rs`, for each row.

use crate::about::{Fact, HardLinks, Load, Metric, Operation, ScrubStep, Trace};
use shoal_engine::{
    Attr, BatchOp, Caller, Change, ChangeMark, ChangeReader, DirEntry, Fallocate, Fields,
    Freshness, Handle, Ino, Listing, OrphanInfo, Quota, QuotaLimits, RenameFlags, Result, Rights,
    RootInfo, ScrubAt, Seek, SetAttr, Stat, StatFs, Token, Totals, TreeChange, TreeChanged,
    TreeCheck, TreeStep, XattrFlags,
};
use std::ops::ControlFlow;
use std::time::Duration;

/// An open file or directory. Of a volume that this process has open it is the inode's number; of
/// a session a number that the server has given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node(pub u64);

impl Node {
    /// The top directory. It is open as long as the volume is.
    pub const TOP: Node = Node(1);
}

/// A node that a call has opened, to be given back by [`Calls::close`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The node.
    pub node: Node,
    /// Its attributes when it was opened.
    pub attr: Attr,
}

/// How a file is opened, as by the flags of `open(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct How {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// For writing at its end.
    pub append: bool,
    /// It is cut to 0 bytes.
    pub truncate: bool,
    /// It is made if it is missing.
    pub create: bool,
    /// It is made, and must be missing.
    pub create_new: bool,
    /// Permission bits of a file that is made, before the umask.
    pub mode: u32,
}

/// A wish for copies ([`Calls::copies`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyWish {
    /// Entries, at most: of a directory with more there is no copy. At most
    /// [`ENTRIES_MAX`](crate::copies::ENTRIES_MAX).
    pub entries: u32,
    /// With the attributes of the entries.
    pub attributes: bool,
    /// With the information which entries have extended attributes.
    pub xattrs: bool,
    /// Of the directories below too, each before those that follow it, while there is room.
    pub below: bool,
}

/// Offset of a write that appends.
pub const AT_END: u64 = u64::MAX;

/// Bit beside those of a caller's umask: the client can ask the kernel of the mount instead, and
/// wants `EBUSY` for a change of which the kernel would have to be told, which takes several times
/// as long.
pub const OR_KERNEL: u32 = 1 << 31;

/// The effect of a call on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It reads.
    Reads,
    /// It changes the volume.
    Changes,
}

/// A change feed that a call has begun, to be ended by [`Calls::end_changes`].
pub struct ChangeFeed {
    /// The mark for the next feed.
    pub mark: ChangeMark,
    /// All removed names are returned.
    pub has_all_removed: bool,
    /// Its position.
    pub reader: FeedReader,
}

/// Position of a change feed.
pub enum FeedReader {
    /// On a volume that this process has open.
    Here(Box<ChangeReader>),
    /// At the server, under this number.
    Remote(u32),
}

/// Called after each step of a change of a tree. If it breaks, the change ends there.
pub type TreeWatch<'c> = dyn Fn(&TreeStep<'_>) -> ControlFlow<()> + Sync + 'c;

/// Called with the entries of a listing, each with its attributes as far as they were wanted;
/// `false` ends it.
pub type EachEntry<'c> = dyn FnMut(&DirEntry<'_>, Result<Stat>) -> bool + 'c;

/// The types of the table, for what is made of it elsewhere.
pub(crate) mod types {
    pub(crate) use super::{CopyWish, EachEntry, How, Opened};
    pub(crate) use crate::about::{Fact, HardLinks, Load, Metric, Operation, ScrubStep, Trace};
    pub(crate) use shoal_engine::{
        Attr, BatchOp, Change, ChangeMark, Fallocate, Fields, Freshness, Handle, Ino, Listing,
        OrphanInfo, Quota, QuotaLimits, RenameFlags, Rights, RootInfo, ScrubAt, Seek, SetAttr,
        Stat, StatFs, Token, Totals, TreeCheck, XattrFlags,
    };
    pub(crate) use std::time::Duration;
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its number, which is never used again.
    pub number: u16,
    /// The name of the call.
    pub name: &'static str,
    /// Its effect on the volume.
    pub effect: Effect,
}

/// Makes the trait and the list of rows of the table.
macro_rules! declare {
    (
        $($(#[$doc:meta])* $number:literal $name:ident $effect:ident (
            $($arg:ident : $type:ty),* $(,)?
        ) -> $result:ty;)*
        by hand:
        $($(#[$hand_doc:meta])* $hand_number:literal $hand:ident $hand_effect:ident (
            $($hand_arg:ident : $hand_type:ty),* $(,)?
        ) -> $hand_result:ty;)*
    ) => {
        /// The calls, made for a caller.
        ///
        /// # Errors
        /// Those of the engine's call of the same meaning; of a session besides those of its
        /// connection.
        pub trait Calls: Send + Sync {
            $(
                $(#[$doc])*
                #[allow(clippy::missing_errors_doc, reason = "said of the trait")]
                fn $name(&self, who: &Caller, $($arg: $type),*) -> Result<$result>;
            )*
            $(
                $(#[$hand_doc])*
                #[allow(clippy::missing_errors_doc, reason = "said of the trait")]
                fn $hand(&self, who: &Caller, $($hand_arg: $hand_type),*) -> Result<$hand_result>;
            )*
        }

        /// All rows, in the order of their numbers.
        pub const ROWS: &[Row] = &[
            $(Row {
                number: $number, name: stringify!($name), effect: Effect::$effect,
            },)*
            $(Row {
                number: $hand_number, name: stringify!($hand), effect: Effect::$hand_effect,
            },)*
        ];

        /// Numbers of the rows.
        #[allow(non_upper_case_globals, dead_code, reason = "named as the calls; not all are used")]
        pub(crate) mod number {
            $(pub(crate) const $name: u16 = $number;)*
            $(pub(crate) const $hand: u16 = $hand_number;)*
        }
    };
}

/// The table: passes it to a macro that makes something of it.
macro_rules! table {
    ($make:ident) => {
        $make! {
    /// Attributes of what a path leads to. The empty path is the node itself.
    1 find Reads (dir: Node, path: &[u8], follow: bool) -> Attr;
    /// Attributes of an open node.
    2 attr Reads (node: Node) -> Attr;
    /// Opens a directory.
    3 open_dir Reads (dir: Node, path: &[u8]) -> Opened;
    /// Opens or makes a file.
    4 open_file Changes (dir: Node, path: &[u8], how: How) -> Opened;
    /// Opens what a handle names: a file if there is a way to open it, else a directory.
    5 open_handle Changes (dir: Node, handle: Handle, how: Option<How>) -> Opened;
    /// Opens the file of a token, with its rights.
    6 open_token Reads (token: Token) -> Opened;
    /// Makes a directory, and opens it.
    8 make_dir Changes (dir: Node, path: &[u8], mode: u32) -> Opened;
    /// Makes the missing directories of a path, and opens the last.
    9 make_dirs Changes (dir: Node, path: &[u8], mode: u32) -> Opened;
    /// Makes a special file, or an empty regular one: mode with type bits, and device number.
    10 make_node Changes (dir: Node, path: &[u8], mode: u32, device: u32) -> Attr;
    /// Makes a symbolic link.
    11 symlink Changes (dir: Node, path: &[u8], target: &[u8]) -> Attr;
    /// Gives a file one more name, below `to`.
    12 link Changes (dir: Node, path: &[u8], to: Node, to_path: &[u8]) -> Attr;
    /// Removes a name of a file.
    13 unlink Changes (dir: Node, path: &[u8]) -> ();
    /// Removes an empty directory.
    14 remove_dir Changes (dir: Node, path: &[u8]) -> ();
    /// Removes a directory with everything below it, as one change.
    15 remove_tree Changes (dir: Node, path: &[u8], check: TreeCheck) -> ();
    /// Renames, to a path below `to`.
    16 rename Changes (dir: Node, path: &[u8], to: Node, to_path: &[u8], flags: RenameFlags) -> ();
    /// Target of a symbolic link.
    17 read_link Reads (dir: Node, path: &[u8]) -> Vec<u8>;
    /// Question whether the caller may read (4), write (2), execute or search (1).
    18 access Reads (dir: Node, path: &[u8], mask: u32) -> ();
    /// Changes attributes of what a path leads to.
    19 set_attr Changes (dir: Node, path: &[u8], follow: bool, set: SetAttr) -> Attr;
    /// Value of an extended attribute.
    20 xattr Reads (dir: Node, path: &[u8], follow: bool, name: &[u8]) -> Vec<u8>;
    /// Names of extended attributes, each with a NUL behind it.
    21 xattrs Reads (dir: Node, path: &[u8], follow: bool) -> Vec<u8>;
    /// Sets an extended attribute.
    22 set_xattr Changes (
        dir: Node, path: &[u8], follow: bool, name: &[u8], value: &[u8], flags: XattrFlags
    ) -> ();
    /// Removes an extended attribute.
    23 remove_xattr Changes (dir: Node, path: &[u8], follow: bool, name: &[u8]) -> ();
    /// Changes the size of an open file: the node must be open for writing.
    24 set_size Changes (file: Node, size: u64) -> ();
    /// Allocates, or makes a hole.
    26 allocate Changes (file: Node, mode: Fallocate, at: u64, len: u64) -> ();
    /// Next data, or hole.
    27 seek Reads (file: Node, at: u64, what: Seek) -> u64;
    /// Makes a file durable, and everything before.
    28 fsync Reads (node: Node, data_only: bool) -> ();
    /// Makes everything durable.
    29 sync Reads () -> ();
    /// A token for what a path leads to.
    31 share Reads (dir: Node, path: &[u8], rights: Rights, lifetime: Duration) -> Token;
    /// Makes all tokens invalid.
    32 revoke_tokens Changes () -> ();
    /// Space and inodes.
    33 statfs Reads () -> StatFs;
    /// Reason why the volume is read-only.
    34 read_only_reason Reads () -> Option<String>;
    /// Sums over everything below a directory, also in the subvolumes there.
    36 totals Reads (dir: Node, subvolumes: bool) -> Totals;
    /// Makes a subvolume whose top has this mode, before the umask, and opens that.
    38 make_subvolume Changes (name: &[u8], mode: u32) -> Opened;
    /// Opens the top of a subvolume.
    39 open_subvolume Reads (name: &[u8]) -> Opened;
    /// Deletes a subvolume.
    40 delete_subvolume Changes (name: &[u8]) -> ();
    /// Sets the quota of a directory.
    41 set_quota Changes (dir: Node, limits: QuotaLimits) -> Quota;
    /// The quota of a directory.
    42 quota Reads (dir: Node) -> Option<Quota>;
    /// Removes the quota of a directory.
    43 remove_quota Changes (dir: Node) -> ();
    /// A mark for the changes below a directory.
    45 mark Reads (dir: Node) -> ChangeMark;
    /// Question whether anything in the volume is newer than a mark.
    46 is_newer Reads (mark: ChangeMark) -> bool;
    /// Keeps the names of removed files for the changes, or no longer.
    47 keep_removed Changes (keep: bool) -> ();
    /// The volume's number.
    48 volume_id Reads () -> [u8; 16];
    /// Makes a file without a name in a directory, and opens it for reading and writing. It goes
    /// when it is closed, unless it has been linked.
    49 make_temporary Changes (dir: Node, path: &[u8], mode: u32) -> Opened;
    /// Space and inodes, as far as the quota of what a path leads to gives some.
    50 space_at Reads (dir: Node, path: &[u8]) -> StatFs;
    /// The place that the volume is in, for comparison: a copy of a volume has the same id.
    51 stored_in Reads () -> Option<String>;
    /// Hard links of an inode; without a number, of an open node. The first part begins at 0.
    52 links Reads (file: Node, ino: Option<Ino>, from: u64) -> HardLinks;
    /// Subvolumes with numbers above one; none at the end.
    53 subvolumes Reads (after: u16) -> Vec<RootInfo>;
    /// Quotas of directories with numbers above one; none at the end.
    54 quotas Reads (after: Ino) -> Vec<Quota>;
    /// Counters and gauges, from a place in their list on; none at the end.
    55 metrics Reads (from: u32) -> Vec<Metric>;
    /// Operations that there have been, from a place in their list on; none at the end.
    56 operations Reads (from: u32) -> Vec<Operation>;
    /// Facts about the server and the volume, from a place in their list on; none at the end.
    57 facts Reads (from: u32) -> Vec<Fact>;
    /// Users, then processes, by their load, from a place in their list on; none at the end.
    58 loads Reads (from: u32) -> Vec<Load>;
    /// Requests that the server has answered, from a number on; 0: from now on.
    59 trace Reads (from: u64) -> Trace;
    /// Inodes without a name that are not free, with numbers above one; none at the end.
    60 orphans Reads (after: Ino) -> Vec<OrphanInfo>;
    /// Discards a piece of the free space, `first`: of everything that is free now. Returns the
    /// number of bytes, 0 at the end.
    61 trim Reads (first: bool) -> u64;
    /// Checks a piece of the volume, about as many bytes. `run` is a number of the client's for the
    /// whole scrub.
    62 scrub Reads (run: u32, at: ScrubAt, bytes: u64) -> ScrubStep;
    /// Changes the label.
    63 set_label Changes (label: &[u8]) -> ();
    /// Lets the server refuse changes, or keep access times as they are. Not a change itself: it
    /// waits for those in progress.
    75 remount Reads (read_only: bool, noatime: bool) -> ();
    by hand:
    /// Gives a node back.
    7 close Reads (node: Node) -> ();
    /// Writes; returns where, and how many bytes: fewer than all only when space ran out on the
    /// way. `at` of [`AT_END`] appends: what others write at the same time comes before or after.
    25 write Changes (file: Node, at: u64, bytes: &[u8]) -> (u64, u64);
    /// Writes a whole file: opens it as `how` says, which usually makes or cuts it, writes all
    /// bytes, and closes it. After an error a part may have been written.
    30 put Changes (dir: Node, path: &[u8], how: How, bytes: &[u8]) -> ();
    /// Reads into `into`; fewer bytes only at the end of the file.
    64 read Reads (file: Node, at: u64, into: &mut [u8]) -> usize;
    /// Reads a whole file: its attributes, and its contents behind what is in `into`.
    65 get Reads (dir: Node, path: &[u8], into: &mut Vec<u8>) -> Attr;
    /// Lists a part of a directory: `path` below an open node, which had the inode number `ino`
    /// when it was found. An open volume uses the number, a session the path: `ESTALE` if another
    /// directory is there by now. The caller must be allowed to list the directory and, if
    /// attributes are wanted, to search it.
    66 list Reads (
        top: Node, path: &[u8], ino: Ino, listing: &Listing, each: &mut EachEntry<'_>
    ) -> ();
    /// Attributes of many names in a directory.
    67 stat_many Reads (
        dir: Node, names: &[&[u8]], want: Fields, freshness: Freshness
    ) -> Vec<Result<Stat>>;
    /// Makes several changes as one.
    68 batch Changes (dir: Node, changes: &[BatchOp<'_>]) -> ();
    /// Scans the inodes of a subvolume behind `after`, at most `at_most`, in their order.
    69 inodes Reads (after: Ino, at_most: usize) -> Vec<Attr>;
    /// Attributes of an entry that a listing of an open directory has returned; `ESTALE` if it has
    /// been removed. An open volume uses the number, a session the name.
    70 entry Reads (dir: Node, name: &[u8], ino: Ino) -> Attr;
    /// Begins to read the changes below a directory since a mark; without one, everything.
    71 changes Reads (dir: Node, since: Option<ChangeMark>) -> ChangeFeed;
    /// Returns the next changes of a feed, about `at_most`; none at the end. A session returns
    /// fewer.
    72 next_changes Reads (feed: &mut ChangeFeed, at_most: usize) -> Vec<Change>;
    /// Ends a feed.
    73 end_changes Reads (feed: &ChangeFeed) -> ();
    /// Changes a directory and everything below it. A session makes the change at the server, and
    /// asks for its progress ([`crate::wire::TreeQuestion`]).
    74 change_tree Changes (
        dir: Node, change: &TreeChange, watch: &TreeWatch<'_>
    ) -> TreeChanged;
    /// Copies a directory, or those of some names in it, and what is below, each as a listing would
    /// find it, behind what is in `into` ([`crate::copies`]). Fewer than were wished for if there
    /// are many entries, or if one cannot be read; nothing if the first has too many. Returns the
    /// number of the volume's state that they are of; `None`: they cannot be kept, as the volume is
    /// being changed, or its server cannot tell of changes.
    76 copies Reads (
        dir: Node, path: &[u8], names: &[&[u8]], wish: &CopyWish, into: &mut Vec<u8>
    ) -> Option<u64>;
        }
    };
}

pub(crate) use table;

table!(declare);
