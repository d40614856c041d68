//! The oracle: POSIX in memory, as plainly as it can be written. Maps of nodes, maps of names, no
//! caching, no laziness. Calls have the shape of the volume's own and return the codes that Linux
//! returns, in Linux' order of precedence where several apply.
//!
//! Every change also maintains `digest`, a sum of hashes over all reachable nodes and entries, so
//! that "which of the last thousand states is this?" is a comparison of numbers.
//!
//! Inode numbers come from the volume under test (the model has no opinion on them beyond "not one
//! in use"), and so do times: the model knows *which* times a call must change, and remembers the
//! values the volume chose, which must then never change by themselves.

mod attr;
mod batch;
mod content;
mod data;
mod digest;
mod namespace;
mod node_state;
mod resolve;
mod roots;
mod state;
mod tree;
mod xattr;

pub use batch::{Failed, is_unknown};
pub use content::Content;
pub use digest::{entry_hash, node_hash};
pub use state::{NodeState, State, diff, same_attr, seen};
pub use xattr::{Xattrs, xattr_hash};

use shoal::raw::{Attr, Code, FileKind, Generation, Ino, Time};
use std::collections::BTreeMap;

/// Result of a model call.
pub type Outcome<T> = std::result::Result<T, Code>;

/// A name in a directory.
pub type Name = Vec<u8>;

/// Contents of an inode.
#[derive(Clone, Debug)]
pub enum Body {
    /// Entries.
    Dir(BTreeMap<Name, Ino>),
    /// Bytes.
    File(Content),
    /// A symlink's target.
    Link(Vec<u8>),
    /// Pipe, socket, device.
    Special,
}

/// The four times of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

impl Times {
    /// The times that `stat` shows.
    pub fn of(attr: &Attr) -> Times {
        Times { atime: attr.atime, mtime: attr.mtime, ctime: attr.ctime, btime: attr.btime }
    }
}

/// Effect of a call on one time of one inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Change {
    /// Nothing.
    #[default]
    Keep,
    /// Sets it by the volume's clock, or may do so.
    Any,
    /// Sets it to this.
    To(Time),
}

/// Effect of a call on the times of one inode. `btime` only ever changes at birth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Touch {
    /// Access time.
    pub atime: Change,
    /// Modification time.
    pub mtime: Change,
    /// Change time.
    pub ctime: Change,
    /// The inode is new: all four are the volume's choice.
    pub born: bool,
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// Generation of the number.
    pub generation: Generation,
    /// Type.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky.
    pub perm: u32,
    /// Names (a directory: 1 while it has one).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Contents.
    pub body: Body,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// The times seen last; `None` until the volume was asked.
    pub times: Option<Times>,
    /// References that keep it alive without a name.
    pub held: u64,
    /// A directory's parent.
    pub parent: Ino,
    /// Made without a name, and never given one: may still be linked.
    pub linkable: bool,
}

impl Node {
    /// Size as `stat` shows it: of a directory the number of entries.
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::Dir(entries) => entries.len() as u64,
            Body::File(content) => content.size(),
            Body::Link(target) => target.len() as u64,
            Body::Special => 0,
        }
    }
    /// Mode with the type bits.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.perm
    }
}

/// Description of a new inode: the fields that its maker chooses.
struct Birth {
    kind: FileKind,
    perm: u32,
    rdev: u32,
    body: Body,
}

/// The whole filesystem.
#[derive(Clone)]
pub struct Model {
    root: Ino,
    nodes: BTreeMap<Ino, Node>,
    digest: u64,
    /// Each node's share of `digest`, to take it out again.
    shares: BTreeMap<Ino, u64>,
    touched: BTreeMap<Ino, Touch>,
    /// Inodes that are gone: their handles must be stale for ever.
    graves: Vec<(Ino, Generation)>,
    /// Whole trees were removed: with a background thread, what was in them goes later.
    trees_removed: bool,
    next_ino: u64,
}

impl Model {
    /// A tree of one directory, whose attributes are those given.
    pub fn new(root: Ino, perm: u32, uid: u32, gid: u32) -> Model {
        let node = Node {
            generation: Generation(0),
            kind: FileKind::Directory,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            body: Body::Dir(BTreeMap::new()),
            xattrs: Xattrs::new(),
            times: None,
            held: 0,
            parent: root,
            linkable: false,
        };
        let mut model = Model {
            root,
            nodes: BTreeMap::from([(root, node)]),
            digest: 0,
            shares: BTreeMap::new(),
            touched: BTreeMap::new(),
            graves: Vec::new(),
            trees_removed: false,
            next_ino: root.0 + 1,
        };
        model.touch(root, Touch::default());
        model.settle();
        model
    }

    /// The top directory.
    pub(crate) fn root(&self) -> Ino {
        self.root
    }
    /// The hash of the whole reachable state.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
    /// An inode, if it exists.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }
    /// Number of inodes, unlinked but held ones included.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
    /// Bytes of file contents that are not holes, roughly.
    pub(crate) fn data_bytes(&self) -> u64 {
        let files = self.nodes.values().filter_map(|n| match &n.body {
            Body::File(content) => Some(content.data_bytes()),
            _ => None,
        });
        files.sum()
    }
    /// Handles of inodes that are gone.
    pub(crate) fn graves(&self) -> &[(Ino, Generation)] {
        &self.graves
    }
    /// Returns whether a whole tree was removed.
    pub(crate) fn trees_removed(&self) -> bool {
        self.trees_removed
    }
    /// Inodes that the last call changed (directories of names included).
    pub(crate) fn touched(&self) -> impl Iterator<Item = (Ino, Touch)> + '_ {
        self.touched.iter().map(|(ino, touch)| (*ino, *touch))
    }
    /// The entries of a directory.
    pub(crate) fn entries(&self, dir: Ino) -> Outcome<&BTreeMap<Name, Ino>> {
        match self.node(dir).map(|n| &n.body) {
            Some(Body::Dir(entries)) => Ok(entries),
            Some(_) => Err(Code::NotDirectory),
            None => Err(Code::Stale),
        }
    }
    /// Walks plain names from the top, without permissions, symlinks or dots: how operations say
    /// which file they mean.
    pub fn find(&self, path: &[u8]) -> Option<Ino> {
        let mut at = self.root;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = *self.entries(at).ok()?.get(name)?;
        }
        Some(at)
    }

    /// Notes that `ino` changes now; what an earlier step of the same call noted is kept.
    fn touch(&mut self, ino: Ino, touch: Touch) {
        let known = self.touched.entry(ino).or_default();
        for (known, new) in [
            (&mut known.atime, touch.atime),
            (&mut known.mtime, touch.mtime),
            (&mut known.ctime, touch.ctime),
        ] {
            if new != Change::Keep {
                *known = new;
            }
        }
        known.born |= touch.born;
    }
    /// The inode's own attributes changed.
    fn touch_ctime(&mut self, ino: Ino) {
        self.touch(ino, Touch { ctime: Change::Any, ..Touch::default() });
    }
    /// Its contents changed.
    fn touch_contents(&mut self, ino: Ino) {
        self.touch(ino, Touch { mtime: Change::Any, ctime: Change::Any, ..Touch::default() });
    }
    /// Forgets what the last call touched; called at the start of each.
    pub fn begin(&mut self) {
        self.touched.clear();
    }
    /// Brings the digest up to date; called at the end of each call.
    pub(crate) fn settle(&mut self) {
        for ino in self.touched.keys().copied().collect::<Vec<_>>() {
            self.reckon(ino);
        }
    }

    /// Recomputes one node's share of the digest.
    fn reckon(&mut self, ino: Ino) {
        let share = match self.nodes.get(&ino) {
            Some(node) if node.nlink > 0 => node_hash(&node.state(ino)),
            _ => 0,
        };
        let old = self.shares.insert(ino, share).unwrap_or(0);
        self.digest = self.digest.wrapping_sub(old).wrapping_add(share);
        if share == 0 {
            self.shares.remove(&ino);
        }
    }

    /// Remembers the times that the volume shows for `ino` after a call; tells when a time changed
    /// that the call must leave alone, or is not what the call set it to.
    pub(crate) fn learn(&mut self, ino: Ino, attr: &Attr) -> std::result::Result<(), String> {
        let touch = self.touched.get(&ino).copied().unwrap_or_default();
        let seen = Times::of(attr);
        let Some(node) = self.nodes.get_mut(&ino) else { return Ok(()) };
        let known = node.times.replace(seen);
        if touch.born {
            node.generation = attr.generation;
        }
        self.reckon(ino);
        let Some(known) = known.filter(|_| !touch.born) else { return Ok(()) };
        for (name, change, before, after) in [
            ("atime", touch.atime, known.atime, seen.atime),
            ("mtime", touch.mtime, known.mtime, seen.mtime),
            ("ctime", touch.ctime, known.ctime, seen.ctime),
            ("btime", Change::Keep, known.btime, seen.btime),
        ] {
            let right = match change {
                Change::Keep => after == before,
                Change::Any => true,
                Change::To(time) => after == time,
            };
            if !right {
                return Err(format!(
                    "inode {ino}: {name} {before:?} -> {after:?}, must {change:?}"
                ));
            }
        }
        Ok(())
    }

    /// After a crash: nobody holds anything, so what has no name is gone.
    pub(crate) fn drop_holds(&mut self) {
        self.begin();
        for ino in self.nodes.keys().copied().collect::<Vec<_>>() {
            let node = self.nodes.get_mut(&ino).expect("listed");
            node.held = 0;
            self.bury_if_dead(ino);
        }
        self.settle();
    }

    /// Frees an inode without names and holders.
    fn bury_if_dead(&mut self, ino: Ino) {
        let dead = self.node(ino).is_some_and(|n| n.nlink == 0 && n.held == 0);
        // The handle of what came and went in one batch nobody knows.
        if dead
            && let Some(node) = self.nodes.remove(&ino)
            && !is_unknown(ino)
        {
            self.graves.push((ino, node.generation));
        }
    }
}

#[cfg(test)]
mod tests;
