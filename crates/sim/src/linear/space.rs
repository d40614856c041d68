//! The sequential meaning of the operations of a history: the model, copied at each step of the
//! search, and what the search learns of numbers on the way.
//!
//! What an operation makes has in the model a number that follows from the operation's place in the
//! history. So two orders of the same operations that lead to the same state lead to the same
//! [`Space::key`], and the search need not go on from both.

use super::program::{CHANGES_MAX, DIRS, Flavour, HANDLES, is_held, making, paths};
use super::reply::{Reply, Seen};
use crate::exec::{Answer, Lockstep};
use crate::model::Model;
use crate::op::{Op, Place, Target};
use shoal::raw::{Code, FileKind, Ino};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The model's number of what the first operation makes.
const NEW: u64 = 100;

/// A state of the search.
#[derive(Clone)]
pub struct Space {
    run: Lockstep,
    /// Number and generation of each inode as far as they are known; generation 0: not yet.
    known: BTreeMap<Ino, (u64, u32)>,
    /// Names of the files that have handles in trees that were removed: they go when nobody sees
    /// it.
    fading: [u32; HANDLES],
}

impl Space {
    /// Returns the state that a history begins with. `inos` are the numbers of the handles.
    pub fn new(flavour: Flavour, inos: [u64; HANDLES]) -> Space {
        let mut run = Lockstep::of(Model::new(Ino::ROOT, 0o777, 0, 0));
        for op in making(flavour.trees) {
            let made = run.replay(&op, None);
            assert!(matches!(made, Some(Ok(_))), "{op}: {made:?}");
        }
        let mut known = BTreeMap::new();
        for ((slot, path), ino) in paths(flavour.trees).iter().enumerate().zip(inos) {
            let file = run.model.find(path.as_bytes()).expect("made");
            known.insert(file, (ino, 0));
            run.slots[slot] = Some(file);
            if is_held(flavour.trees, slot) {
                run.model.hold(file).expect("made");
            }
        }
        Space { run, known, fading: [0; HANDLES] }
    }

    /// A number that says which state this is.
    pub fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.run.model.digest(), self.fading, &self.known).hash(&mut hasher);
        // What has no name is not in the digest.
        for ino in self.run.slots.iter().flatten() {
            if let Some(node) = self.run.model.node(*ino).filter(|node| node.nlink == 0) {
                let state = node.state(*ino);
                (ino, node.parent, state.size, state.content).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Returns whether this operation, done here, may be answered so; if it may, it has been done.
    /// `new` is the number of the operation.
    pub fn explains(&mut self, op: &Op, reply: &Reply, new: usize) -> bool {
        if let Some(decided) = self.faded(op, reply) {
            return decided;
        }
        let fading = self.names_in(op);
        // As many numbers for each operation as it can need.
        let first = NEW + CHANGES_MAX * new as u64;
        let hint = match op {
            Op::Batch { .. } => {
                Answer::Made((0..CHANGES_MAX).map(|nth| Some(Ino(first + nth))).collect())
            }
            _ => Answer::Node(Ino(first)),
        };
        let is_new = matches!(op, Op::Create { .. } | Op::Mkdir { .. });
        let Some(outcome) = self.run.replay(op, Some(&hint)) else { return false };
        if let Op::Link { from, .. } = op
            && let Some(file) = self.run.resolve(from)
        {
            self.run.model.let_link(file, false);
        }
        let explained = match (outcome, reply) {
            (Err(code), Reply::Failed(errno)) => code.errno() == *errno,
            (Err(Code::NotFound), Reply::Probed(None)) => true,
            (Ok(Answer::Node(ino)), Reply::Found(seen) | Reply::Probed(Some(seen))) => {
                self.is(ino, seen)
            }
            (Ok(_), Reply::Attrs { links, entries }) if matches!(op, Op::Getattr { .. }) => {
                self.attrs(op) == (*links, *entries)
            }
            (Ok(Answer::Bytes(bytes)), reply @ Reply::Bytes(..)) => {
                Reply::of_bytes(&bytes) == *reply
            }
            // Who made it may not have been told its number.
            (Ok(Answer::Node(_)), Reply::Done) => is_new || matches!(op, Op::Link { .. }),
            (Ok(Answer::Unit | Answer::Number(_)), Reply::Done) => true,
            _ => false,
        };
        for (more, fading) in self.fading.iter_mut().zip(fading) {
            *more += fading;
        }
        // What nobody can see any more is as if it had never been.
        self.known.retain(|ino, _| self.run.model.node(*ino).is_some());
        explained
    }

    /// Returns whether a volume in this state shows this after a crash: nobody holds anything any
    /// more, and what had no name, or was in a removed tree, is gone.
    pub fn recovers(&self, seen: &[(Op, Reply)]) -> bool {
        let mut space = self.clone();
        space.run.model.drop_holds();
        space.fading = [0; HANDLES];
        seen.iter().all(|(op, reply)| space.explains(op, reply, 0))
    }

    /// Returns whether this inode can be the one that was seen, and learns its number.
    fn is(&mut self, ino: Ino, seen: &Seen) -> bool {
        let Some(node) = self.run.model.node(ino) else { return false };
        let known = self.known.get(&ino).copied();
        if (node.kind == FileKind::Directory) != seen.dir {
            return false;
        }
        let age = match known {
            Some((number, age)) => {
                if number != seen.ino || age != 0 && seen.age != 0 && age != seen.age {
                    return false;
                }
                age
            }
            // The number of what is held is not given out, with or without a name.
            None if self.known.values().any(|(number, _)| *number == seen.ino) => return false,
            None => 0,
        };
        self.known.insert(ino, (seen.ino, age.max(seen.age)));
        true
    }

    /// Links and entries that `stat` shows.
    fn attrs(&self, op: &Op) -> (u32, u64) {
        let node = op.targets().first().and_then(|target| self.run.resolve(target));
        let Some((ino, node)) = node.and_then(|ino| Some((ino, self.run.model.node(ino)?))) else {
            return (u32::MAX, u64::MAX);
        };
        let Ok(entries) = self.run.model.entries(ino) else { return (node.nlink, 0) };
        let is_dir = |ino: &&Ino| {
            self.run.model.node(**ino).is_some_and(|node| node.kind == FileKind::Directory)
        };
        let dirs = entries.values().filter(is_dir).count() as u32;
        let links = if node.nlink == 0 { 0 } else { 2 + dirs };
        (links, entries.len() as u64)
    }

    /// By handle, how many names a removal of a tree takes from its file.
    fn names_in(&self, op: &Op) -> [u32; HANDLES] {
        let mut names = [0; HANDLES];
        let Op::RemoveTree { at, .. } = op else { return names };
        let mut queue: Vec<Ino> = self.child(at).into_iter().collect();
        if queue.first().is_some_and(|top| self.run.model.entries(*top).is_err()) {
            return names;
        }
        while let Some(dir) = queue.pop() {
            for child in self.run.model.entries(dir).into_iter().flat_map(|all| all.values()) {
                queue.push(*child);
                let handle = self.run.slots[DIRS..].iter().position(|slot| *slot == Some(*child));
                if let Some(handle) = handle {
                    names[DIRS + handle] += 1;
                }
            }
        }
        names
    }

    fn child(&self, at: &Place) -> Option<Ino> {
        let dir = self.run.resolve(&at.dir)?;
        self.run.model.entries(dir).ok()?.get(&at.name).copied()
    }

    /// Operations that notice whether names in a removed tree have gone yet, and what may be
    /// answered in more than one way. `Some`: decided.
    fn faded(&mut self, op: &Op, reply: &Reply) -> Option<bool> {
        match (op, reply) {
            (Op::Getattr { file: Target::Slot(handle) }, Reply::Attrs { links, .. }) => {
                let node = self.run.model.node(self.run.slots[*handle]?)?;
                if self.fading[*handle] == 0 || node.kind == FileKind::Directory {
                    return None;
                }
                let fading = links.checked_sub(node.nlink);
                let possible = fading.filter(|fading| *fading <= self.fading[*handle]);
                self.fading[*handle] = possible.unwrap_or(0);
                Some(possible.is_some())
            }
            // An inode with more attributes and names than it has room for takes one change in a
            // batch: the model does not know what room there is.
            (Op::Batch { changes, .. }, Reply::Failed(errno)) if changes.len() > 1 => {
                (*errno == Code::NotSupported.errno()).then_some(true)
            }
            // A session removes no file as a tree.
            (Op::RemoveTree { at, .. }, Reply::Failed(errno))
                if *errno == Code::NotDirectory.errno() =>
            {
                let child = self.child(at)?;
                Some(self.run.model.entries(child).is_err())
            }
            // Nothing moves into a removed directory. Linux says so first unless it remembers the
            // name, and then that the directory was below what was to move.
            (Op::Rename { from, to, flags, .. }, Reply::Failed(errno)) => {
                let dir = self.run.resolve(&to.dir)?;
                if self.run.model.node(dir)?.nlink > 0 {
                    return None;
                }
                let below = self.child(from).is_some_and(|source| self.was_below(dir, source));
                let remembered = below && !flags.exchange && *errno == Code::Invalid.errno();
                (remembered || *errno == Code::NotFound.errno()).then_some(true)
            }
            (Op::Link { from: Target::Slot(handle), at, .. }, reply) => {
                let file = self.run.slots[*handle]?;
                let unlinked = self.run.model.node(file)?.nlink == 0;
                if self.fading[*handle] == 0 || !unlinked {
                    return None;
                }
                let gone =
                    self.child(at).is_none() && *reply == Reply::Failed(Code::NotFound.errno());
                if gone {
                    self.fading[*handle] = 0;
                    return Some(true);
                }
                self.run.model.let_link(file, true);
                None
            }
            _ => None,
        }
    }

    /// Returns whether a directory is, or was when it had a name, below another.
    fn was_below(&self, dir: Ino, above: Ino) -> bool {
        let mut at = dir;
        // Not more than there are inodes: a removed directory's parent may be what was moved below
        // it since.
        for _ in 0..self.run.model.len() {
            match self.run.model.node(at) {
                _ if at == above => return true,
                Some(node) if node.parent != at => at = node.parent,
                _ => return false,
            }
        }
        false
    }
}
