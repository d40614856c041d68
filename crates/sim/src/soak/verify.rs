//! Is a directory as after one of the operations that are possible?

use super::actor::{ATTRIBUTE, Actor, directories, files};
use crate::exec::Lockstep;
use crate::model::{Body, Content};
use crate::op::Op;
use rustix::fs::getxattr;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Its bytes.
    pub data: Arc<Vec<u8>>,
    /// [`ATTRIBUTE`], if it has it.
    pub xattr: Option<Vec<u8>>,
}

/// Contents of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// Directories in it.
    pub dirs: BTreeSet<String>,
    /// Names, with inodes.
    pub names: BTreeMap<String, u64>,
    /// Files by inode.
    pub files: BTreeMap<u64, File>,
}

impl Tree {
    /// Returns the contents that the directory of an actor must have.
    pub fn of(run: &Lockstep) -> Tree {
        let dirs = directories(&run.model).into_iter().collect();
        let mut tree = Tree { dirs, ..Tree::default() };
        for (path, ino) in files(&run.model) {
            tree.names.insert(path, ino.0);
            let Some(node) = run.model.node(ino) else { continue };
            let all = |content: &Content| content.read(0, content.size());
            let data = match &node.body {
                Body::File(content) => Arc::new(all(content)),
                _ => Arc::default(),
            };
            let xattr = node.xattrs.get(ATTRIBUTE.as_bytes()).map(|value| value.to_vec());
            tree.files.insert(ino.0, File { data, xattr });
        }
        tree
    }
}

/// Notes of an actor.
#[derive(Debug, Default)]
pub struct Notes {
    /// Set if its directory was begun.
    begun: bool,
    /// Operations that were done, in order.
    pub done: Vec<Op>,
    /// The one under way.
    last: Option<Op>,
    /// How many of `done` must be there in any case.
    pub acknowledged: usize,
}

impl Notes {
    /// Reads what an actor noted; what it found wrong is an error.
    pub fn read(path: &Path, actor: Actor) -> Result<Notes, String> {
        let text = match fs::read_to_string(path) {
            // It was killed before it wrote anything.
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(|e| format!("{}: {e}", path.display()))?,
        };
        if let Some(wrong) = text.lines().find(|line| !matches!(*line, "<" | ">")) {
            return Err(format!("{}: {wrong}", path.display()));
        }
        Ok(Notes::of(text.matches('<').count(), text.matches('>').count(), actor))
    }

    /// So many operations were begun, and ended; the first is to make the directory.
    fn of(begun: usize, ended: usize, mut actor: Actor) -> Notes {
        let done: Vec<Op> = (1..ended).map(|_| actor.step().0).collect();
        let last = (begun > ended.max(1)).then(|| actor.step().0);
        // An fsync of anything makes durable what was before it.
        let acknowledges = |op: &Op| matches!(op, Op::Fsync { .. });
        let acknowledged = done.iter().rposition(acknowledges).map_or(0, |at| at + 1);
        Notes { begun: begun > 0, done, last, acknowledged }
    }

    /// Everything noted is durable: the volume was unmounted.
    pub fn acknowledge_all(&mut self) {
        self.acknowledged = self.done.len();
    }

    /// Finds the operation after which the directory stands; `run` is the actor's at its beginning.
    /// Returns how many of the files were acknowledged.
    pub fn judge(
        &self,
        name: &str,
        mut run: Lockstep,
        found: Option<&Tree>,
    ) -> Result<usize, String> {
        let Some(found) = found else {
            return match self.acknowledged {
                0 => Ok(0),
                _ => Err(format!("{name}: the directory is gone")),
            };
        };
        if !self.begun {
            return Err(format!("{name}: a directory that nobody made"));
        }
        let (mut promised, mut nearest) = (0, String::new());
        let after = self.done.iter().chain(&self.last).map(Some).chain([None]);
        for (at, next) in after.enumerate() {
            if at == self.acknowledged {
                promised = files(&run.model).len();
            }
            if at >= self.acknowledged {
                match compare(&run, found, next) {
                    None => return Ok(promised),
                    // The first is the one that says most: what was acknowledged.
                    Some(difference) if nearest.is_empty() => nearest = difference,
                    Some(_) => {}
                }
            }
            if let Some(op) = next {
                run.replay(op, None);
            }
        }
        Err(format!(
            "{name}: as after none of operations {} to {}; against the first: {nearest}",
            self.acknowledged,
            self.done.len() + usize::from(self.last.is_some())
        ))
    }
}

/// Returns the difference from the state of an actor; parts of `next` may have been done.
fn compare(run: &Lockstep, found: &Tree, next: Option<&Op>) -> Option<String> {
    let mut tree = Tree::of(run);
    if let Some(Op::RemoveTree { at, .. }) = next {
        // `rm -r` takes one name after the other; what is left must be as it was.
        let dir = format!("{}/", String::from_utf8_lossy(&at.name));
        let left =
            |name: &String, _: &mut u64| !name.starts_with(&dir) || found.names.contains_key(name);
        tree.names.retain(left);
    }
    if let Some(write @ Op::Write { file, .. }) = next {
        // The kernel sends one write in parts: pages of it may be there, others not.
        let mut after = run.clone();
        after.replay(write, None);
        let ino = run.resolve(file).map_or(0, |ino| ino.0);
        let name = tree.names.iter().find(|(_, of)| **of == ino).map(|(name, _)| name);
        let file = name.and_then(|name| found.files.get(found.names.get(name)?));
        if let (Some(before), Some(file)) = (tree.files.get_mut(&ino), file)
            && is_between(&before.data, &Tree::of(&after).files[&ino].data, &file.data)
        {
            before.data = file.data.clone();
        }
    }
    different(&tree, found)
}

/// Returns the difference. The inodes need not be the same.
pub fn different(expected: &Tree, found: &Tree) -> Option<String> {
    if expected.dirs != found.dirs {
        return Some(format!("directories {:?}, expected {:?}", found.dirs, expected.dirs));
    }
    let names = |tree: &Tree| tree.names.keys().cloned().collect::<Vec<_>>();
    if names(expected) != names(found) {
        return Some(format!("names {:?}, expected {:?}", names(found), names(expected)));
    }
    let mut numbers = BTreeMap::new();
    for ((name, id), ino) in expected.names.iter().zip(found.names.values()) {
        if *numbers.entry(id).or_insert(ino) != ino {
            return Some(format!("{name} is no longer another name of the same file"));
        }
        let (expected, file) = (&expected.files[id], &found.files[ino]);
        if expected.xattr != file.xattr {
            return Some(format!("{name}: attribute {:?}, not {:?}", file.xattr, expected.xattr));
        }
        if let Some(difference) = difference(&expected.data, &file.data) {
            return Some(format!("{name}: {difference}"));
        }
    }
    None
}

/// Returns whether contents are as during a write that leads from `before` to `after`.
fn is_between(before: &[u8], after: &[u8], found: &[u8]) -> bool {
    let byte = |of: &[u8], at: usize| of.get(at).copied().unwrap_or(0);
    let fits = |(at, found): (usize, &u8)| [byte(before, at), byte(after, at)].contains(found);
    (before.len()..=after.len()).contains(&found.len()) && found.iter().enumerate().all(fits)
}

/// Returns the first difference of contents, in words.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected == found {
        return None;
    }
    let shorter = expected.len().min(found.len());
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(shorter);
    let text = |bytes: &[u8]| bytes[at..bytes.len().min(at + 32)].escape_ascii().to_string();
    Some(format!(
        "{} bytes, expected {}; at {at} '{}', expected '{}'",
        found.len(),
        expected.len(),
        text(found),
        text(expected)
    ))
}

/// Reads an actor's directory; `None`: it is not there.
pub fn read(directory: &Path) -> io::Result<Option<Tree>> {
    let mut tree = Tree::default();
    match fs::symlink_metadata(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
        Ok(_) => {}
    }
    read_below(directory, "", &mut tree)?;
    Ok(Some(tree))
}

fn read_below(directory: &Path, prefix: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        let attr = fs::symlink_metadata(&path)?;
        if attr.is_dir() {
            read_below(&path, &format!("{name}/"), tree)?;
            tree.dirs.insert(name);
            continue;
        }
        let mut value = [0u8; 64];
        let xattr = match getxattr(&path, ATTRIBUTE, &mut value[..]) {
            Err(Errno::NODATA) => None,
            Err(e) => return Err(e.into()),
            Ok(len) => Some(value[..len].to_vec()),
        };
        let data = Arc::new(fs::read(&path)?);
        if data.len() as u64 != attr.size() {
            return Err(io::Error::other(format!("{name}: read {} bytes", data.len())));
        }
        tree.names.insert(name, attr.ino());
        tree.files.insert(attr.ino(), File { data, xattr });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor() -> Actor {
        Actor::new(1, 0, 0)
    }

    /// The directory after so many operations.
    fn after(count: usize) -> Tree {
        let mut actor = actor();
        (0..count).for_each(|_| drop(actor.step()));
        Tree::of(&actor.run)
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let notes = Notes::of(301, 300, actor());
        assert_eq!(notes.done.len(), 299);
        assert!((200..299).contains(&notes.acknowledged), "{}", notes.acknowledged);
        let judge = |found: Option<&Tree>| notes.judge("h", actor().run, found);
        for count in notes.acknowledged..=300 {
            judge(Some(&after(count))).expect("it may have come so far");
        }
        let synced = after(notes.acknowledged);
        let before = (0..notes.acknowledged).rev().find(|count| after(*count) != synced);
        let lost = judge(Some(&after(before.expect("something changed"))));
        lost.expect_err("a change is lost");
        judge(None).expect_err("all is lost");
        Notes::of(0, 0, actor()).judge("h", actor().run, None).expect("nothing was done");
        Notes::of(0, 0, actor()).judge("h", actor().run, Some(&after(0))).expect_err("not begun");
    }

    #[test]
    fn a_write_may_be_there_in_part() {
        let (mut actor, mut tried) = (actor(), 0);
        for at in 0..300 {
            let before = actor.run.clone();
            let (op, _) = actor.step();
            let Op::Write { data, .. } = &op else { continue };
            let (old, mut torn) = (Tree::of(&before), Tree::of(&actor.run));
            let Some(ino) = torn.files.keys().find(|ino| {
                let (old, new) = (&old.files[*ino].data, &torn.files[*ino].data);
                old != new && old.len() == new.len() && data.len > 1
            }) else {
                continue;
            };
            let ino = *ino;
            let file = torn.files.get_mut(&ino).expect("found");
            let old = &old.files[&ino].data;
            let first = file.data.iter().zip(old.iter()).position(|(a, b)| a != b);
            let first = first.expect("they differ");
            Arc::make_mut(&mut file.data)[first] = old[first];
            assert_eq!(compare(&before, &torn, Some(&op)), None, "operation {at}");
            assert!(compare(&before, &torn, None).is_some() || torn.files[&ino].data == *old);
            tried += 1;
        }
        assert!(tried > 3, "{tried}");
    }
}
