//! Is a directory as after one of the deeds that are possible?

use super::deed::{Deed, File, Tree, is_below};
use rustix::fs::getxattr;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// What a hand noted.
#[derive(Debug, Default)]
pub struct Notes {
    /// Whether its directory was begun, and made.
    top: (bool, bool),
    /// Deeds that were done.
    pub done: Vec<Deed>,
    /// The one under way.
    pub last: Option<Deed>,
    /// How many of `done` must be there in any case.
    pub acknowledged: usize,
}

impl Notes {
    /// Reads them; what a hand found wrong is an error.
    pub fn read(path: &Path) -> Result<Notes, String> {
        let text = match fs::read_to_string(path) {
            // It was killed before it wrote anything.
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(|e| format!("{}: {e}", path.display()))?,
        };
        let mut notes = Notes::default();
        for line in text.lines() {
            match line.split_at_checked(2) {
                Some(("< ", "top")) => notes.top.0 = true,
                Some(("< ", deed)) => {
                    let deed = Deed::parse(deed).ok_or_else(|| format!("note '{line}'"))?;
                    notes.last = Some(deed);
                }
                None if line == ">" => notes.end(),
                _ => return Err(format!("{}: {line}", path.display())),
            }
        }
        Ok(notes)
    }

    fn end(&mut self) {
        let Some(deed) = self.last.take() else {
            self.top.1 = true;
            return;
        };
        let acknowledges = deed.acknowledges();
        self.done.push(deed);
        if acknowledges {
            self.acknowledged = self.done.len();
        }
    }

    /// Everything noted is durable: the volume was unmounted.
    pub fn acknowledge_all(&mut self) {
        self.acknowledged = self.done.len();
    }

    /// Finds the deed after which the directory stands. Returns what it contains and must contain
    /// from now on, and how many of the files were acknowledged.
    pub fn judge(&self, hand: &str, found: Option<&Tree>) -> Result<(Tree, usize), String> {
        let Some(found) = found else {
            return match self.acknowledged {
                0 => Ok((Tree::default(), 0)),
                _ => Err(format!("{hand}: the directory is gone")),
            };
        };
        if !self.top.0 {
            return Err(format!("{hand}: a directory that nobody made"));
        }
        let (mut tree, mut promised, mut nearest) = (Tree::default(), 0, String::new());
        for at in 0..=self.done.len() {
            if at >= self.acknowledged {
                if at == self.acknowledged {
                    promised = tree.names.len();
                }
                let next = self.done.get(at).or(self.last.as_ref());
                match compare(hand, &tree, found, next) {
                    None => return Ok((found.clone(), promised)),
                    // The first is the one that says most: what was acknowledged.
                    Some(difference) if nearest.is_empty() => nearest = difference,
                    Some(_) => {}
                }
            }
            let Some(deed) = self.done.get(at) else { break };
            tree.apply(hand, deed);
        }
        if let Some(last) = &self.last {
            tree.apply(hand, last);
            if compare(hand, &tree, found, None).is_none() {
                return Ok((found.clone(), promised));
            }
        }
        Err(format!(
            "{hand}: as after none of deeds {} to {}; against the first: {nearest}",
            self.acknowledged,
            self.done.len() + usize::from(self.last.is_some())
        ))
    }
}

/// What is different; parts of `next` may have been done.
pub fn compare(hand: &str, tree: &Tree, found: &Tree, next: Option<&Deed>) -> Option<String> {
    let mut tree = tree.clone();
    if let Some(Deed::RemoveTree(dir)) = next {
        // `rm -r` takes one name after the other; what is left must be as it was.
        let left =
            |name: &String, _: &mut u64| !is_below(dir, name) || found.names.contains_key(name);
        tree.names.retain(left);
    }
    if let Some(write @ Deed::Write(name, ..)) = next {
        // The kernel sends one write in parts: pages of it may be there, others not.
        let mut after = tree.clone();
        after.apply(hand, write);
        let id = tree.names[name];
        let file = found.names.get(name).and_then(|ino| found.files.get(ino));
        if let (Some(before), Some(file)) = (tree.files.get_mut(&id), file)
            && is_between(&before.data, &after.files[&id].data, &file.data)
        {
            before.data = file.data.clone();
        }
    }
    if tree.dirs != found.dirs {
        return Some(format!("directories {:?}, expected {:?}", found.dirs, tree.dirs));
    }
    let names = |tree: &Tree| tree.names.keys().cloned().collect::<Vec<_>>();
    if names(&tree) != names(found) {
        return Some(format!("names {:?}, expected {:?}", names(found), names(&tree)));
    }
    let mut numbers = BTreeMap::new();
    for ((name, id), ino) in tree.names.iter().zip(found.names.values()) {
        if *numbers.entry(id).or_insert(ino) != ino {
            return Some(format!("{name} is no longer another name of the same file"));
        }
        let (expected, file) = (&tree.files[id], &found.files[ino]);
        if expected.xattr != file.xattr {
            return Some(format!("{name}: attribute {:?}, not {:?}", file.xattr, expected.xattr));
        }
        if let Some(difference) = difference(&expected.data, &file.data) {
            return Some(format!("{name}: {difference}"));
        }
    }
    None
}

/// Whether contents are as during a write that leads from `before` to `after`.
fn is_between(before: &[u8], after: &[u8], found: &[u8]) -> bool {
    let byte = |of: &[u8], at: usize| of.get(at).copied().unwrap_or(0);
    let fits = |(at, found): (usize, &u8)| [byte(before, at), byte(after, at)].contains(found);
    (before.len()..=after.len()).contains(&found.len()) && found.iter().enumerate().all(fits)
}

/// Where contents begin to differ.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected == found {
        return None;
    }
    let shorter = expected.len().min(found.len());
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(shorter);
    let text = |bytes: &[u8]| {
        let record = at / 32 * 32;
        let (from, to) = (record.min(bytes.len()), (record + 32).min(bytes.len()));
        String::from_utf8_lossy(&bytes[from..to]).into_owned()
    };
    let (sizes, texts) = ((found.len(), expected.len()), (text(found), text(expected)));
    let (found, expected) = texts;
    Some(format!(
        "{} bytes, expected {}; at {at} {found:?}, expected {expected:?}",
        sizes.0, sizes.1
    ))
}

/// Reads a hand's directory; `None`: it is not there.
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
        let mut value = [0u8; 32];
        let xattr = match getxattr(&path, "user.soak", &mut value[..]) {
            Err(Errno::NODATA) => None,
            Err(e) => return Err(e.into()),
            Ok(len) => std::str::from_utf8(&value[..len]).ok().and_then(|text| text.parse().ok()),
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

    fn notes(text: &str) -> Notes {
        let mut notes = Notes { top: (true, true), ..Notes::default() };
        for deed in text.lines() {
            notes.last = Deed::parse(deed);
            notes.end();
        }
        notes
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let notes = notes("create a 1\nwrite a 0 50\nfsync a\ncreate b 2\nunlink a");
        let after = |deeds: usize| {
            let mut tree = Tree::default();
            notes.done[..deeds].iter().for_each(|deed| tree.apply("h", deed));
            tree
        };
        for deeds in 3..=5 {
            notes.judge("h", Some(&after(deeds))).expect("it may have come so far");
        }
        assert!(notes.judge("h", Some(&after(2))).is_ok(), "fsync changes nothing");
        let lost = notes.judge("h", Some(&after(1))).expect_err("the write is lost");
        assert!(lost.contains("0 bytes, expected 50"), "{lost}");
        notes.judge("h", None).expect_err("all is lost");
    }
}
