//! Reading a volume that is damaged: all that still shows, and the errors met; and whether what
//! shows is something that there was.

use crate::model::{Model, NodeState, State, entry_hash};
use crate::walk::visit_alone;
use shoal::raw::{Attr, Caller, Error, FileKind, Ino, Volume};
use std::collections::{HashMap, HashSet};

/// Readable part of a volume.
#[derive(Default)]
pub struct Shown {
    /// All that showed without an error.
    pub state: State,
    /// The errors.
    pub errors: Vec<String>,
}

/// Reads everything below the top that can be read. `Err`: something else is wrong than damage.
pub fn look(volume: &Volume) -> Result<Shown, String> {
    let mut shown =
        Shown { state: State { root: Ino::ROOT, ..State::default() }, ..Shown::default() };
    let mut queue = vec![Ino::ROOT];
    if let Some(attr) = shown.note(volume.attributes().getattr(Ino::ROOT), || "the top".into())? {
        shown.visit(volume, &attr)?;
    }
    while let Some(dir) = queue.pop() {
        let mut entries = Vec::new();
        let listed = volume.directories().readdirplus(dir, 0, &mut |entry, attr| {
            entries.push((entry.name.to_vec(), entry.ino, attr.copied()));
            true
        });
        shown.note(listed.map(drop), || format!("readdirplus of inode {dir}"))?;
        entries.retain(|(name, ..)| name != b"." && name != b"..");
        for (name, ino, attr) in entries {
            let at = || format!("{} in inode {dir}", name.escape_ascii());
            let found = shown.note(volume.namespace().lookup(&Caller::root(), dir, &name), at)?;
            // The name is listed without attributes.
            shown.state.entries.insert((dir, name.clone()), ino);
            let Some(attr) = shown.note(attr, at)? else { continue };
            if ino != attr.ino || found.is_some_and(|found| found != attr) {
                return Err(format!("{}: lookup shows {found:?}, readdirplus {attr:?}", at()));
            }
            if shown.state.nodes.contains_key(&ino) {
                continue;
            }
            shown.visit(volume, &attr)?;
            if attr.kind == FileKind::Directory {
                queue.push(ino);
            }
        }
    }
    Ok(shown)
}

impl Shown {
    fn note<T>(
        &mut self,
        result: Result<T, Error>,
        what: impl Fn() -> String,
    ) -> Result<Option<T>, String> {
        match result {
            Ok(value) => Ok(Some(value)),
            // What damage may say.
            Err(error @ (Error::Corrupt(_) | Error::Device(_))) => {
                self.errors.push(format!("{}: {error}", what()));
                Ok(None)
            }
            Err(error) => Err(format!("{}: {error}", what())),
        }
    }

    fn visit(&mut self, volume: &Volume, attr: &Attr) -> Result<(), String> {
        let read = visit_alone(volume, attr);
        match read {
            Ok(node) => drop(self.state.nodes.insert(attr.ino, node)),
            // In words, as the walk says it.
            Err(error) if error.contains("corrupt ") => {
                self.errors.push(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Everything that a volume has ever shown in a run: each part of an inode, each entry.
#[derive(Default)]
pub struct Facts {
    inodes: HashMap<Ino, HashSet<Part>>,
    entries: HashSet<u64>,
}

/// Facts that belong together in an inode. Times, links and the count of entries are left out: what
/// a repair mends, or a recovery ends, changes them.
#[derive(PartialEq, Eq, Hash)]
enum Part {
    Contents { kind: u32, size: u64, hash: u64, target: Vec<u8> },
    Attributes(u64),
    Owner { mode: u32, uid: u32, gid: u32, rdev: u32 },
}

fn parts(node: &NodeState) -> [Part; 3] {
    let kind = node.mode & 0o170_000;
    let is_dir = FileKind::from_mode(node.mode) == Some(FileKind::Directory);
    let size = if is_dir { 0 } else { node.size };
    [
        Part::Contents { kind, size, hash: node.content, target: node.target.clone() },
        Part::Attributes(node.xattrs),
        Part::Owner { mode: node.mode, uid: node.uid, gid: node.gid, rdev: node.rdev },
    ]
}

impl Facts {
    /// Learns the inodes that the last call touched.
    pub fn learn(&mut self, model: &Model) {
        for ino in model.touched().map(|(ino, _)| ino) {
            self.learn_one(model, ino);
        }
    }

    /// Learns an inode of the model.
    pub fn learn_one(&mut self, model: &Model, ino: Ino) {
        let Some(node) = model.node(ino) else { return };
        self.inodes.entry(ino).or_default().extend(parts(&node.state(ino)));
        if let Ok(entries) = model.entries(ino) {
            self.entries.extend(entries.iter().map(|(name, child)| entry_hash(ino, name, *child)));
        }
    }

    /// Returns whether all of it is known. Of inodes in `lost` contents and attributes may be
    /// anything, and entries may point to or be in inodes that `new` names.
    pub fn all_known(
        &self,
        found: &State,
        lost: &dyn Fn(Ino) -> bool,
        new: &dyn Fn(Ino) -> bool,
    ) -> Result<(), String> {
        for (ino, node) in &found.nodes {
            let Some(known) = self.inodes.get(ino) else {
                if new(*ino) {
                    continue;
                }
                return Err(format!("inode {ino} never was: {node:?}"));
            };
            let wrong = parts(node).into_iter().position(|part| !known.contains(&part));
            if let Some(part) = wrong.filter(|_| !lost(*ino)) {
                let what = ["contents", "attributes", "owner or mode"][part];
                return Err(format!("inode {ino} shows {what} that it never had: {node:?}"));
            }
        }
        for ((dir, name), child) in &found.entries {
            let known = self.entries.contains(&entry_hash(*dir, name, *child));
            if !known && !new(*dir) && !new(*child) {
                let name = name.escape_ascii();
                return Err(format!("inode {child} shows as {name} in inode {dir}: never was"));
            }
        }
        Ok(())
    }
}
