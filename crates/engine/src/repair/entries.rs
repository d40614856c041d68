//! Entries: an entry is kept if it is valid, its directory exists, and it names an inode in use. A
//! directory keeps only one name, that of its parent pointer.

use super::{Name, Repair};
use crate::directories::CHAINED;
use crate::name::NameIn;
use crate::types::check_name;
use shoal_base::{Ino, Result, RootId};
use shoal_format::attr::Link;
use shoal_format::checkpoint::RootState;
use shoal_format::dirent::{AT_KIND, Dirent, HEADER, SUFFIX_MASK, name_hash};
use shoal_format::node::Key;
use shoal_tree::Action;

/// Decision about an entry.
enum Verdict {
    /// It is kept; `pointed` if its child has the parent pointer.
    Keep { pointed: bool },
    /// It is kept for now: it names a directory without such a parent pointer.
    Doubt,
    /// It is removed, with the reason.
    Drop(String),
}

/// An entry without its directory and key.
pub(super) struct Entry {
    pub child: Ino,
    pub kind: u8,
    pub name: Vec<u8>,
}

impl Repair<'_> {
    pub(crate) fn entries(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.0.store.roots().iter().filter(|r| r.state() == RootState::Live) {
            let mut group: Vec<(Key, Vec<u8>)> = Vec::new();
            let (mut misplaced, mut foreign) = (Vec::new(), Vec::new());
            root.dirents.for_each(Key::MIN, Key::MAX, &mut |key, raw| {
                if key.ino(root.id).root() != root.id {
                    foreign.push(key);
                    return Ok(true);
                }
                let base = |key: Key| (key.hi, key.lo & !SUFFIX_MASK);
                if group.first().is_some_and(|(first, _)| base(*first) != base(key)) {
                    self.group(root.id, &group, &mut misplaced)?;
                    group.clear();
                }
                group.push((key, raw.to_vec()));
                Ok(true)
            })?;
            self.group(root.id, &group, &mut misplaced)?;
            for key in foreign {
                root.dirents.delete(key, self.epoch)?;
                let dir = key.ino(root.id);
                let id = root.id.0;
                self.lost(format!("entry in subvolume {id} removed: its key is of inode {dir}"));
            }
            for (dir, entry) in misplaced {
                if volume.directories().find_entry(dir, &entry.name)?.is_none() {
                    self.judge_misplaced(dir, &entry)?;
                }
            }
        }
        Ok(())
    }

    /// Processes all entries of one hash in one directory.
    fn group(
        &mut self,
        root: RootId,
        group: &[(Key, Vec<u8>)],
        misplaced: &mut Vec<(Ino, Entry)>,
    ) -> Result<()> {
        let Some((first, _)) = group.first() else { return Ok(()) };
        let (dir, base) = (first.ino(root), first.lo & !SUFFIX_MASK);
        let mut kept: Vec<Entry> = Vec::with_capacity(1);
        for (key, raw) in group {
            self.step();
            let Some(found) = Dirent::decode(root, raw) else {
                self.lost(format!("entry {:#x} of directory {dir} removed: invalid", key.lo));
                continue;
            };
            let kind = found.kind & !CHAINED;
            let mut entry = Entry { child: found.child, kind, name: found.name.to_vec() };
            if name_hash(self.volume.0.store.volume(), found.name) != base {
                misplaced.push((dir, entry));
                continue;
            }
            if kept.iter().any(|other| other.name == entry.name) {
                self.dropped(dir, &entry, "duplicate name");
                continue;
            }
            if self.keeps(dir, &mut entry)? {
                kept.push(entry);
            }
        }
        let whole = kept.len() == group.len()
            && (0..).zip(&kept).zip(group).all(|((i, entry), (key, raw))| {
                let chained = i + 1 < group.len() as u64;
                let kind = entry.kind | if chained { CHAINED } else { 0 };
                key.lo == base | i && raw[AT_KIND] == kind
            });
        if !whole {
            let had: Vec<Key> = group.iter().map(|(key, _)| *key).collect();
            self.write_group(dir, base, &kept, &had)?;
        }
        Ok(())
    }

    /// Returns whether an entry is kept; corrects its type.
    fn keeps(&mut self, dir: Ino, entry: &mut Entry) -> Result<bool> {
        match self.judge(dir, entry)? {
            Verdict::Drop(why) => {
                self.dropped(dir, entry, &why);
                return Ok(false);
            }
            Verdict::Doubt => {
                let Entry { child, name, .. } = &*entry;
                self.doubtful.push(Name { child: *child, dir, name: name.clone() });
            }
            Verdict::Keep { pointed } => self.accept(entry.child, dir, &entry.name, pointed),
        }
        let kind = self.nodes.get(&entry.child).map_or(entry.kind, |node| node.kind);
        if kind != entry.kind {
            let path = self.volume.inspection().path_below(dir, &entry.name);
            self.did(format!("{path}: type {kind}, was {}", entry.kind));
            entry.kind = kind;
        }
        Ok(true)
    }

    fn judge(&self, dir: Ino, entry: &Entry) -> Result<Verdict> {
        let drop = |why: String| Ok(Verdict::Drop(why));
        if check_name(&entry.name).is_err() {
            return drop("invalid name".into());
        }
        let Some(above) = self.nodes.get(&dir).filter(|node| node.is_dir()) else {
            return drop("its directory does not exist".into());
        };
        let Some(child) = self.nodes.get(&entry.child) else {
            return drop(format!("inode {} is not in use", entry.child));
        };
        if !self.may_be_in(entry.child, dir) {
            return drop(format!("inode {} cannot have a name there", entry.child));
        }
        let link = Link { dir, generation: above.generation };
        let pointed = !self.volume.0.parents || {
            let place = self.volume.0.place_of(entry.child)?;
            let slot = place.read();
            let here = NameIn { link, name: &entry.name };
            self.volume.paths().has_parent(entry.child, &slot.inode, &here)?
        };
        if child.is_dir() {
            let sure = if self.volume.0.parents { pointed } else { child.parent == dir };
            if child.names > 0 {
                return drop(format!("directory {} has another name", entry.child));
            }
            if !sure {
                return Ok(Verdict::Doubt);
            }
        }
        Ok(Verdict::Keep { pointed })
    }

    /// Returns whether an inode may have a name in a directory: of the same subvolume, or the top
    /// of another one in the volume's top directory.
    pub(super) fn may_be_in(&self, child: Ino, dir: Ino) -> bool {
        let is_top = child.index() == Ino::ROOT.index();
        match child.root() == dir.root() {
            true => !is_top,
            false => is_top && dir == Ino::ROOT,
        }
    }

    /// Counts a name that is kept.
    pub(super) fn accept(&mut self, child: Ino, dir: Ino, name: &[u8], pointed: bool) {
        if !pointed {
            self.missing.push(Name { child, dir, name: name.to_vec() });
        }
        let mut is_dir = false;
        if let Some(node) = self.nodes.get_mut(&child) {
            node.names += 1;
            is_dir = node.is_dir();
            if is_dir {
                node.parent = dir;
            }
        }
        if is_dir {
            self.dir_names.insert(child, name.to_vec());
        }
        if let Some(above) = self.nodes.get_mut(&dir) {
            above.entries += 1;
            above.subdirs += u32::from(is_dir);
        }
    }

    fn dropped(&mut self, dir: Ino, entry: &Entry, why: &str) {
        let path = self.path(dir, &entry.name);
        self.lost(format!("{path}: entry removed: {why}"));
    }

    /// Processes an entry that was under the key of another name.
    fn judge_misplaced(&mut self, dir: Ino, entry: &Entry) -> Result<()> {
        let mut entry = Entry { name: entry.name.clone(), ..*entry };
        if self.keeps(dir, &mut entry)? {
            self.insert(dir, entry)?;
        }
        Ok(())
    }

    /// Writes the remaining entries of one hash; `had` are the previous keys.
    fn write_group(&self, dir: Ino, base: u64, kept: &[Entry], had: &[Key]) -> Result<()> {
        let dirents = &self.volume.0.store.root(dir)?.dirents;
        let mut value = Vec::new();
        for (i, entry) in kept.iter().enumerate() {
            let chained = if i + 1 < kept.len() { CHAINED } else { 0 };
            let Entry { child, kind, name } = entry;
            value.clear();
            Dirent { child: *child, kind: kind | chained, name }.encode(dir.root(), &mut value);
            dirents.put(Key::of(dir, base | i as u64), &value, self.epoch)?;
        }
        for key in had.iter().filter(|key| key.lo & SUFFIX_MASK >= kept.len() as u64) {
            dirents.delete(*key, self.epoch)?;
        }
        Ok(())
    }

    /// Inserts an entry whose name does not exist.
    pub(super) fn insert(&self, dir: Ino, entry: Entry) -> Result<()> {
        let base = name_hash(self.volume.0.store.volume(), &entry.name);
        let mut value = Vec::with_capacity(HEADER + entry.name.len());
        let Entry { child, kind, name } = &entry;
        Dirent { child: *child, kind: *kind, name }.encode(dir.root(), &mut value);
        let dirents = &self.volume.0.store.root(dir)?.dirents;
        let put = dirents.update(Key::of(dir, base), self.epoch, &mut |was| match was {
            None => Action::Put(&value),
            Some(_) => Action::Keep,
        })?;
        if put {
            return Ok(());
        }
        let (mut kept, had) = self.read_group(dir, base)?;
        kept.push(entry);
        self.write_group(dir, base, &kept, &had)
    }

    /// Removes an entry.
    pub(super) fn remove(&self, dir: Ino, name: &[u8]) -> Result<()> {
        let base = name_hash(self.volume.0.store.volume(), name);
        let (mut kept, had) = self.read_group(dir, base)?;
        kept.retain(|entry| entry.name != name);
        self.write_group(dir, base, &kept, &had)
    }

    fn read_group(&self, dir: Ino, base: u64) -> Result<(Vec<Entry>, Vec<Key>)> {
        let dirents = &self.volume.0.store.root(dir)?.dirents;
        let (mut kept, mut had) = (Vec::new(), Vec::new());
        for suffix in 0..=SUFFIX_MASK {
            let key = Key::of(dir, base | suffix);
            let entry = dirents.get(key, |raw| {
                let d = Dirent::decode(dir.root(), raw)?;
                Some(Entry { child: d.child, kind: d.kind & !CHAINED, name: d.name.to_vec() })
            })?;
            let Some(entry) = entry.flatten() else { break };
            kept.push(entry);
            had.push(key);
        }
        Ok((kept, had))
    }
}
