//! Parent pointers: for each name of a file or directory, an attribute of it that says in which
//! directory, of which generation, and under which name (after XFS parent pointers, Darrick J.
//! Wong). Written here and nowhere else, in the transaction that changes the entry.
//!
//! The last unlink leaves the pointer alone: it goes with the inode. So a file without links may
//! have one, which means nothing.

use crate::types::Parent;
use crate::volume::Inner;
use crate::xattr::inline::broken;
use crate::xattr::{Change, Pending, Plan, Side};
use shoal_base::limits::NAME_MAX;
use shoal_base::sync::thread;
use shoal_base::{Code, Error, Generation, Ino, Result, RootId};
use shoal_format::attr::{
    Attr, Attrs, HEADER, Id, Link, Namespace, PARENT_SIZE, Value, parent_bytes,
};
use shoal_format::inode::{Core, Form, Inode};
use shoal_format::item::Item;
use shoal_itable::{InodeTable, Locked};
use shoal_txn::Txn;

/// A name in a directory, as a parent pointer has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameIn<'a> {
    pub link: Link,
    pub name: &'a [u8],
}

impl<'a> NameIn<'a> {
    /// The directory is locked: its generation stands.
    #[inline]
    pub fn new(dir: Ino, core: &Core, name: &'a [u8]) -> NameIn<'a> {
        NameIn { link: Link { dir, generation: core.generation }, name }
    }
    fn id(&self) -> Id<'a> {
        Id::parent(self.link, self.name)
    }
    /// Whether the pointer of this name is all that the attribute fork of an inode of `root` holds.
    #[inline]
    fn is_all_of(&self, root: RootId, inode: &Inode) -> bool {
        let (fork, end) = (&inode.attr[..], HEADER + self.name.len());
        fork.len() == end + PARENT_SIZE
            && fork[..2] == [Namespace::Parent as u8, self.name.len() as u8]
            && fork[HEADER..end] == *self.name
            && fork[end..] == self.link.encode(root)
    }
}

/// Bytes of a parent pointer beside its name.
const PARENT_FIXED: usize = HEADER + PARENT_SIZE;
/// Times that a walk up is tried while directories are being renamed, before they are stopped.
const TRIES: usize = 64;
/// Directories on a path, at most: more than fit in any real tree.
const DEPTH_MAX: usize = 1 << 16;

impl Inner {
    /// The attribute fork of a new inode of `root` with this name; empty when the volume keeps no
    /// pointers.
    #[inline]
    pub(crate) fn first_parent(&self, root: RootId, name: &NameIn<'_>) -> Box<[u8]> {
        match self.parents {
            true => parent_bytes(root, name.link, name.name),
            false => Box::default(),
        }
    }

    /// Plans that an inode, whose lock is held, loses one name and gets another.
    pub(crate) fn plan_parent(
        &self,
        ino: Ino,
        inode: &Inode,
        old: Option<&NameIn<'_>>,
        new: Option<&NameIn<'_>>,
    ) -> Result<Plan> {
        if !self.parents {
            return Ok(Plan::Nothing);
        }
        if let (Some(old), Some(new)) = (old, new)
            && old.is_all_of(ino.root(), inode)
            && PARENT_FIXED + new.name.len() + inode.data.len() <= self.inline_max()
            && !self.options.attr_intents
        {
            return Ok(Plan::Sole);
        }
        self.plan_any_parent(ino, inode, old, new)
    }

    fn plan_any_parent(
        &self,
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
        self.plan(ino, inode, &Change { remove: old.map(NameIn::id), set })
    }

    /// Applies a plan by which an inode gets the name `new`.
    pub(crate) fn apply_parent(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
        new: &NameIn<'_>,
    ) -> Result<Option<Pending>> {
        if let Plan::Sole = plan {
            self.move_sole(txn, self.table(locked.ino())?, locked, new);
            let (ino, bytes) = (locked.ino(), &locked.inode().attr[..]);
            txn.log(Item::AttrFork { ino, form: Form::Inline, bytes });
            return Ok(None);
        }
        self.apply(txn, locked, plan)
    }

    /// Makes the only thing in an attribute fork, a parent pointer, say this name. What to log is
    /// the caller's: [`Item::Named`] says it together with the entry.
    #[inline]
    pub(crate) fn move_sole(
        &self,
        txn: &mut Txn<'_>,
        table: &InodeTable,
        locked: &mut Locked<'_>,
        new: &NameIn<'_>,
    ) {
        let root = locked.ino().root();
        let fork = &mut locked.edit(table, txn.epoch).attr;
        let end = HEADER + new.name.len();
        if fork.len() == end + PARENT_SIZE {
            fork[HEADER..end].copy_from_slice(new.name);
            fork[end..].copy_from_slice(&new.link.encode(root));
        } else {
            *fork = parent_bytes(root, new.link, new.name);
        }
    }

    /// The names of an inode, as its parent pointers say: where they are, not which paths lead
    /// there. None for the volume's top, and for a file without a name.
    pub fn parents_of(&self, ino: Ino) -> Result<Vec<Parent>> {
        self.has_parents()?;
        let inode = self.inode(ino)?;
        let slot = inode.read();
        crate::attr::attr_of(ino, &slot.inode)?;
        self.parents_in(ino, &slot.inode)
    }

    /// Whether the volume keeps parent pointers, so that it can say where a file has its names.
    pub fn has_parent_pointers(&self) -> bool {
        self.parents
    }

    /// A directory in which an inode has a name, if it has one and says so itself: a hint that
    /// takes no reads beside the inode. `None` also where parent pointers are kept in the tree.
    pub fn home_of(&self, ino: Ino) -> Option<Ino> {
        let inode = self.inode(ino).ok()?;
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

    fn has_parents(&self) -> Result<()> {
        match self.parents {
            true => Ok(()),
            false => Err(Error::Code(Code::NotSupported)),
        }
    }

    pub(crate) fn parents_in(&self, ino: Ino, inode: &Inode) -> Result<Vec<Parent>> {
        let mut parents = Vec::new();
        if inode.core.nlink == 0 {
            return Ok(parents);
        }
        self.each_attr(ino, inode, Side::Parents, &mut |attr| {
            let link = attr.link(ino.root()).ok_or_else(|| broken(ino, "parent pointer"))?;
            let generation = Generation(link.generation);
            parents.push(Parent { dir: link.dir, generation, name: attr.name.to_vec() });
            Ok(true)
        })?;
        Ok(parents)
    }

    /// Whether an inode has this parent pointer.
    pub(crate) fn has_parent(&self, ino: Ino, inode: &Inode, name: &NameIn<'_>) -> Result<bool> {
        Ok(self.with_attr(ino, inode, &name.id(), |_| Ok(()))?.is_some())
    }

    /// All paths that lead to an inode, from the volume's top, each as it was at one moment of the
    /// call. Empty when it has no name, or is below a removed directory.
    pub fn paths_of(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.has_parents()?;
        for _ in 0..TRIES {
            let before = self.shape.quiet();
            if let Some(stamp) = before {
                let paths = self.walk_up(ino);
                if self.shape.is_still(stamp) {
                    // What did not hold together may have been a change on its way.
                    match paths {
                        Ok(Some(paths)) => return Ok(paths),
                        Ok(None) => {}
                        Err(e) => return Err(e),
                    }
                }
            }
            thread::yield_now();
        }
        // Renames without pause: stop all calls for the moment of one walk.
        let walked = self.store.quiesced(|_| self.walk_up(ino))?;
        walked.ok_or_else(|| broken(ino, "its parent pointers do not lead to the top"))
    }

    /// `None`: the pointers changed on the way, or lead nowhere.
    fn walk_up(&self, ino: Ino) -> Result<Option<Vec<Vec<u8>>>> {
        if ino == Ino::ROOT {
            return Ok(Some(vec![b"/".to_vec()]));
        }
        let mut up = Up::default();
        let inode = self.inode(ino)?;
        let parents = {
            let slot = inode.read();
            crate::attr::attr_of(ino, &slot.inode)?;
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
        // The file's own names, which change without the shape: still these?
        let slot = inode.read();
        let same = match (&parents, sole_parent(ino, &slot.inode)) {
            (Names::One(link), Some((now, name))) => *link == now && up.ends_with(name),
            (Names::One(_), None) => false,
            (Names::Many(before), _) => *before == self.parents_in(ino, &slot.inode)?,
        };
        Ok((same && slot.inode.core.in_use()).then_some(paths))
    }

    /// The directory and name that an inode without links had last, or has: the last unlink leaves
    /// the pointer.
    pub(crate) fn last_parent(&self, ino: Ino, inode: &Inode) -> Option<(Link, Vec<u8>)> {
        let mut last = None;
        let each = self.each_attr(ino, inode, Side::Parents, &mut |attr| {
            last = attr.link(ino.root()).map(|link| (link, attr.name.to_vec()));
            Ok(false)
        });
        each.ok().and(last)
    }

    /// Puts the names of the directories from `link` up to the top in front of what is in `up`;
    /// `false`: they lead to a removed directory.
    fn climb(&self, up: &mut Up, mut link: Link) -> Result<Option<bool>> {
        for _ in 0..DEPTH_MAX {
            if link.dir == Ino::ROOT {
                return Ok(Some(true));
            }
            let dir = match self.inode(link.dir) {
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
                // Beside other attributes, or in the tree.
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

/// The parent pointer of an inode that has one name, if its attributes are in the inode.
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

/// A path under construction, from its end.
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
    /// Puts a slash and a name in front.
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
