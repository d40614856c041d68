//! Parent pointers: for each name of a file or directory, an attribute with the directory, its
//! generation and the name (after XFS parent pointers, Darrick J. Wong).
//!
//! | written by | where |
//! | --- | --- |
//! | a call that makes an inode | its bytes: [`Paths::first_parent`]; its place: `namei/birth.rs` |
//! | calls and repairs that add, move or remove a name | [`Paths::plan_parent`], then [`Paths::apply_parent`], in the transaction that changes the entry |
//! | a recovery | `Replay` of the crate `shoal-txn`, from the record of the entry, or from that of the attributes |
//!
//! The last unlink leaves the pointer, which is freed with the inode. A file without links may
//! therefore have a pointer; it must be ignored.

mod list;

use crate::name::NameIn;
use crate::objects::Objects;
use crate::state::room;
use crate::types::Parent;
use crate::xattr::inline::broken;
use crate::xattr::{Change, Pending, Plan, Side, Xattrs};
use shoal_base::limits::NAME_MAX;
use shoal_base::sync::thread;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Generation, Ino, Result, RootId};
use shoal_format::attr::{Attr, Attrs, HEADER, Link, Namespace, PARENT_SIZE, Value, parent_bytes};
use shoal_format::inode::{Form, Inode};
use shoal_format::item::Item;
use shoal_itable::{InodeTable, Locked};
use shoal_txn::Txn;

/// Bytes of a parent pointer without its name.
const PARENT_FIXED: usize = HEADER + PARENT_SIZE;
/// Attempts of a walk while directories are being renamed, before transactions are quiesced.
const TRIES: usize = 64;
/// Maximum directories on a path: more than in any real tree.
const DEPTH_MAX: usize = 1 << 16;

room! {
    /// Parent pointers, and the paths that they lead to.
    pub struct Paths { objects: Objects, xattrs: Xattrs }
}

impl Paths<'_> {
    /// Returns the attribute fork of a new inode of `root` with this name; empty if the volume has
    /// no parent pointers.
    #[inline]
    pub(crate) fn first_parent(self, root: RootId, name: &NameIn<'_>) -> Box<[u8]> {
        match self.0.parents {
            true => parent_bytes(root, name.link, name.name),
            false => Box::default(),
        }
    }

    /// Bytes of [`Paths::first_parent`].
    pub(crate) fn first_parent_len(self, name: &[u8]) -> usize {
        if self.0.parents { PARENT_FIXED + name.len() } else { 0 }
    }

    /// Plans that a locked inode loses the name `old` and gets the name `new`.
    pub(crate) fn plan_parent(
        self,
        ino: Ino,
        inode: &Inode,
        old: Option<&NameIn<'_>>,
        new: Option<&NameIn<'_>>,
    ) -> Result<Plan> {
        if !self.0.parents {
            return Ok(Plan::Nothing);
        }
        if let (Some(old), Some(new)) = (old, new)
            && old.is_all_of(ino.root(), inode)
            && PARENT_FIXED + new.name.len() + inode.data.len() <= self.objects().inline_max()
            && !self.0.options.lab().attr_intents
        {
            return Ok(Plan::Sole);
        }
        self.plan_any_parent(ino, inode, old, new)
    }

    fn plan_any_parent(
        self,
        ino: Ino,
        inode: &Inode,
        old: Option<&NameIn<'_>>,
        new: Option<&NameIn<'_>>,
    ) -> Result<Plan> {
        let value = new.map(|new| new.link.encode(ino.root())).unwrap_or_default();
        let set = new.map(|new| Attr {
            space: Namespace::Parent,
            name: new.name,
            value: Value::Local(&value),
        });
        self.xattrs().plan(ino, inode, &Change { remove: old.map(NameIn::id), set })
    }

    /// Applies a plan by which an inode gets the name `new`.
    pub(crate) fn apply_parent(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
        new: &NameIn<'_>,
    ) -> Result<Option<Pending>> {
        if let Plan::Sole = plan {
            self.move_sole(txn, self.0.table(locked.ino())?, locked, new);
            let (ino, bytes) = (locked.ino(), &locked.inode().attr[..]);
            txn.log(Item::AttrFork { ino, form: Form::Inline, bytes });
            return Ok(None);
        }
        self.xattrs().apply(txn, locked, plan)
    }

    /// Changes a parent pointer that is the whole attribute fork to this name. The caller must log
    /// it, together with the entry if possible ([`Item::Named`]).
    #[inline]
    pub(crate) fn move_sole(
        self,
        txn: &mut Txn<'_>,
        table: &InodeTable,
        locked: &mut Locked<'_>,
        new: &NameIn<'_>,
    ) {
        let root = locked.ino().root();
        let fork = &mut locked.edit(table, txn.epoch()).attr;
        let end = HEADER + new.name.len();
        if fork.len() == end + PARENT_SIZE {
            fork[HEADER..end].copy_from_slice(new.name);
            fork[end..].copy_from_slice(&new.link.encode(root));
        } else {
            *fork = parent_bytes(root, new.link, new.name);
        }
    }

    /// Returns the names of an inode with their directories, from its parent pointers. Empty for
    /// the volume's top directory and for a file without a name.
    pub fn parents_of(self, ino: Ino) -> Result<Vec<Parent>> {
        self.0.measured(Call::Paths, || {
            self.has_parents()?;
            let inode = self.0.inode(ino)?;
            let slot = inode.read();
            crate::stat::attr_of(ino, &slot.inode)?;
            self.parents_in(ino, &slot.inode)
        })
    }

    /// Returns whether the volume has parent pointers, so that the names of a file can be found.
    pub fn has_parent_pointers(self) -> bool {
        self.0.parents
    }

    /// Returns a directory in which the inode has a name, if the inode itself has that information.
    /// A hint that needs no other reads; `None` also if the parent pointers are in the tree.
    pub fn home_of(self, ino: Ino) -> Option<Ino> {
        let inode = self.0.inode(ino).ok()?;
        let slot = inode.read();
        let core = &slot.inode.core;
        if core.nlink == 0 {
            None
        } else if core.is_dir() {
            Some(Ino(core.parent_or_rdev))
        } else if core.attr_form == Form::Inline {
            let root = ino.root();
            let found = Attrs::new(&slot.inode.attr).find_map(|attr| parent_of(root, attr?));
            found.map(|(link, _)| link.dir)
        } else {
            None
        }
    }

    /// Returns directory and name of an inode with one name, if its attributes are in the inode.
    #[inline]
    pub(crate) fn sole_name(self, ino: Ino, inode: &Inode) -> Option<(Ino, &[u8])> {
        sole_parent(ino, inode).map(|(link, name)| (link.dir, name))
    }

    /// Returns the directory of an inode with one name, if its attributes are in the inode.
    #[inline]
    pub(crate) fn sole_dir(self, ino: Ino, inode: &Inode) -> Option<Ino> {
        sole_parent(ino, inode).map(|(link, _)| link.dir)
    }

    fn has_parents(self) -> Result<()> {
        match self.0.parents {
            true => Ok(()),
            false => Err(Error::Code(Code::NotSupported)),
        }
    }

    pub(crate) fn parents_in(self, ino: Ino, inode: &Inode) -> Result<Vec<Parent>> {
        let mut parents = Vec::new();
        if inode.core.nlink == 0 {
            return Ok(parents);
        }
        self.xattrs().each_attr(ino, inode, Side::Parents, &mut |attr| {
            let link = attr.link(ino.root()).ok_or_else(|| broken(ino, "parent pointer"))?;
            let generation = Generation(link.generation);
            parents.push(Parent { dir: link.dir, generation, name: attr.name.to_vec() });
            Ok(true)
        })?;
        Ok(parents)
    }

    /// Returns whether an inode has this parent pointer.
    pub(crate) fn has_parent(self, ino: Ino, inode: &Inode, name: &NameIn<'_>) -> Result<bool> {
        Ok(self.xattrs().with_attr(ino, inode, &name.id(), |_| Ok(()))?.is_some())
    }

    /// Returns all paths to an inode, from the volume's top directory, each as it was at one moment
    /// of the call. Empty if the inode has no name or is below an unlinked directory.
    pub fn paths_of(self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.0.measured(Call::Paths, || self.find_paths(ino))
    }

    fn find_paths(self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.has_parents()?;
        for _ in 0..TRIES {
            let before = self.0.shape.quiet();
            if let Some(stamp) = before {
                let paths = self.walk_up(ino);
                if self.0.shape.is_still(stamp) {
                    // An inconsistency may be another call's change in progress: try again.
                    match paths {
                        Ok(Some(paths)) => return Ok(paths),
                        Ok(None) => {}
                        Err(e) => return Err(e),
                    }
                }
            }
            thread::yield_now();
        }
        // Directories are renamed without pause: transactions are quiesced for one walk.
        let walked = self.0.store.checkpoints().quiesced(|_| self.walk_up(ino))?;
        walked.ok_or_else(|| broken(ino, "its parent pointers do not lead to the top"))
    }

    /// Returns `None` if the pointers changed during the walk, or lead nowhere.
    fn walk_up(self, ino: Ino) -> Result<Option<Vec<Vec<u8>>>> {
        if ino == Ino::ROOT {
            return Ok(Some(vec![b"/".to_vec()]));
        }
        let mut up = Up::default();
        let inode = self.0.inode(ino)?;
        let parents = {
            let slot = inode.read();
            crate::stat::attr_of(ino, &slot.inode)?;
            match sole_parent(ino, &slot.inode) {
                Some((link, name)) if slot.inode.core.nlink != 0 => {
                    up.push(name);
                    Names::One(link)
                }
                _ => Names::Many(self.parents_in(ino, &slot.inode)?),
            }
        };
        let mut paths = Vec::with_capacity(1);
        match &parents {
            Names::One(link) => match self.climb(&mut up, *link)? {
                Some(true) => paths.push(up.path()),
                Some(false) => {}
                None => return Ok(None),
            },
            Names::Many(parents) => {
                for parent in parents {
                    up.clear();
                    up.push(&parent.name);
                    let link = Link { dir: parent.dir, generation: parent.generation.0 };
                    match self.climb(&mut up, link)? {
                        Some(true) => paths.push(up.path()),
                        Some(false) => {}
                        None => return Ok(None),
                    }
                }
            }
        }
        // The file's own names change without the sequence counter: check that they are the same.
        let slot = inode.read();
        let same = match (&parents, sole_parent(ino, &slot.inode)) {
            (Names::One(link), Some((now, name))) => *link == now && up.ends_with(name),
            (Names::One(_), None) => false,
            (Names::Many(before), _) => *before == self.parents_in(ino, &slot.inode)?,
        };
        Ok((same && slot.inode.core.in_use()).then_some(paths))
    }

    /// Returns the current or last directory and name of an inode without links. The last unlink
    /// leaves the pointer.
    pub(crate) fn last_parent(self, ino: Ino, inode: &Inode) -> Option<(Link, Vec<u8>)> {
        let mut last = None;
        let each = self.xattrs().each_attr(ino, inode, Side::Parents, &mut |attr| {
            last = attr.link(ino.root()).map(|link| (link, attr.name.to_vec()));
            Ok(false)
        });
        each.ok().and(last)
    }

    /// Prepends the names of the directories from `link` to the top to `up`. Returns `false` if one
    /// of them is unlinked; `None` if the pointers are inconsistent.
    fn climb(self, up: &mut Up, mut link: Link) -> Result<Option<bool>> {
        for _ in 0..DEPTH_MAX {
            if link.dir == Ino::ROOT {
                return Ok(Some(true));
            }
            let dir = match self.0.inode(link.dir) {
                Ok(dir) => dir,
                Err(Error::Code(Code::Stale)) => return Ok(None),
                Err(e) => return Err(e),
            };
            let slot = dir.read();
            let core = &slot.inode.core;
            if !core.is_dir() || core.generation != link.generation {
                return Ok(None);
            }
            if core.nlink == 0 {
                return Ok(Some(false));
            }
            link = match sole_parent(link.dir, &slot.inode) {
                Some((above, name)) => {
                    up.push(name);
                    above
                }
                // The pointer is beside other attributes, or in the tree.
                None => match self.parents_in(link.dir, &slot.inode)?.pop() {
                    Some(parent) => {
                        up.push(&parent.name);
                        Link { dir: parent.dir, generation: parent.generation.0 }
                    }
                    None => return Ok(None),
                },
            };
        }
        Ok(None)
    }
}

/// Returns the parent pointer of an inode with one name, if its attributes are in the inode.
#[inline]
fn sole_parent(ino: Ino, inode: &Inode) -> Option<(Link, &[u8])> {
    if inode.core.attr_form != Form::Inline || !(inode.core.nlink == 1 || inode.core.is_dir()) {
        return None;
    }
    Attrs::new(&inode.attr).find_map(|attr| parent_of(ino.root(), attr?))
}

fn parent_of(root: RootId, attr: Attr<'_>) -> Option<(Link, &[u8])> {
    attr.link(root).map(|link| (link, attr.name))
}

enum Names {
    One(Link),
    Many(Vec<Parent>),
}

/// A path that is built from its end.
struct Up {
    bytes: Vec<u8>,
    start: usize,
}

impl Default for Up {
    fn default() -> Up {
        Up { bytes: vec![0; 512], start: 512 }
    }
}

impl Up {
    fn clear(&mut self) {
        self.start = self.bytes.len();
    }
    /// Prepends a slash and a name.
    #[inline]
    fn push(&mut self, name: &[u8]) {
        if self.start < name.len() + 1 {
            self.grow();
        }
        self.start -= name.len();
        self.bytes[self.start..self.start + name.len()].copy_from_slice(name);
        self.start -= 1;
        self.bytes[self.start] = b'/';
    }
    #[cold]
    fn grow(&mut self) {
        let more = self.bytes.len() + NAME_MAX + 1;
        self.bytes.splice(0..0, std::iter::repeat_n(0, more));
        self.start += more;
    }
    fn path(&self) -> Vec<u8> {
        self.bytes[self.start..].to_vec()
    }
    fn ends_with(&self, name: &[u8]) -> bool {
        let path = &self.bytes[self.start..];
        path.strip_suffix(name).is_some_and(|rest| rest.ends_with(b"/"))
    }
}
