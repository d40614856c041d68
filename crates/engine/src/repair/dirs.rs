//! Restores directories whose inodes are lost under their old numbers, if an entry names them as
//! directories, if they have entries, or if parent pointers name them. Owner and permissions are
//! unknown, so they become root's, with access only for root.

use super::{DIRECTORY, Repair};
use crate::clock::now;
use crate::types::FileKind;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::checkpoint::RootState;
use shoal_format::dirent::Dirent;
use shoal_format::inode::{Core, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_txn::LostKind;
use std::collections::{BTreeMap, HashMap};

impl Repair<'_> {
    pub(crate) fn lost_directories(&mut self) -> Result<()> {
        if self.losses.iter().any(|loss| is_of_inodes(loss.kind)) {
            // Numbers with lost generations will be reused later.
            let newest = self.nodes.values().map(|node| node.generation).max().unwrap_or(0);
            self.volume.0.store.raise_generation_floor(newest.saturating_add(1));
            let wanted = self.wanted()?;
            for (ino, generation) in wanted {
                self.make_again(ino, generation)?;
            }
        }
        let volume = self.volume;
        for root in volume.0.store.roots().iter().filter(|r| r.state() == RootState::Live) {
            if !self.nodes.contains_key(&root.top()) {
                self.make_again(root.top(), 1)?;
            }
        }
        Ok(())
    }

    /// Returns the lost directories that other structures name, with their generations if parent
    /// pointers have them.
    fn wanted(&mut self) -> Result<BTreeMap<Ino, u32>> {
        let mut names = HashMap::new();
        let mut wanted: BTreeMap<Ino, u32> = BTreeMap::new();
        let volume = self.volume;
        for root in volume.0.store.roots().iter().filter(|r| r.state() == RootState::Live) {
            root.dirents.for_each(Key::MIN, Key::MAX, &mut |key, raw| {
                let named = Dirent::decode(root.id, raw).filter(|d| d.kind & 0x7f == DIRECTORY);
                let dir = key.ino(root.id);
                for ino in [Some(dir), named.map(|d| d.child)].into_iter().flatten() {
                    if !self.nodes.contains_key(&ino) && self.is_lost(ino) {
                        wanted.entry(ino).or_default();
                    }
                }
                if let Some(entry) = named.filter(|d| wanted.contains_key(&d.child)) {
                    names.insert(entry.child, (dir, entry.name.to_vec()));
                }
                Ok(true)
            })?;
        }
        self.lost_names = names;
        for ino in self.nodes.keys() {
            let place = volume.0.place_of(*ino)?;
            let slot = place.read();
            // Damaged attributes are handled by their own pass.
            let Ok(parents) = volume.paths().parents_in(*ino, &slot.inode) else { continue };
            for parent in parents {
                if !self.nodes.contains_key(&parent.dir) && self.is_lost(parent.dir) {
                    let generation = wanted.entry(parent.dir).or_default();
                    *generation = (*generation).max(parent.generation.0);
                }
            }
        }
        Ok(wanted)
    }

    /// Returns whether an inode was in a lost block, and is not merely free.
    fn is_lost(&self, ino: Ino) -> bool {
        let number = ino.index() / INODES_PER_BLOCK as u64;
        let mut lost = self.losses.iter().filter(|loss| is_of_inodes(loss.kind));
        let in_range = lost
            .any(|loss| loss.root == ino.root() && (loss.low.hi..loss.high.hi).contains(&number));
        let known = self.volume.0.store.root(ino).is_ok_and(|r| number < r.table.next_block());
        in_range
            && known
            && match self.volume.0.place_of(ino) {
                Err(e) => e.is(Code::Stale),
                // The journal has restored its block.
                Ok(place) => {
                    let core = place.read().inode.core;
                    !core.in_use() && core.generation == 0
                }
            }
    }

    pub(super) fn make_again(&mut self, ino: Ino, generation: u32) -> Result<()> {
        let store = &self.volume.0.store;
        let root = store.root(ino)?;
        let generation = match generation {
            0 => store.generation_floor().max(1),
            known => known,
        };
        if ino.index() == 0 || root.state() != RootState::Live {
            return Ok(());
        }
        let place = match root.table.numbers().claim(ino) {
            Err(e @ Error::Code(_)) => return Err(e),
            other => other?,
        };
        let stamp = now();
        let permissions = if ino == root.top() { 0o755 } else { 0o700 };
        let core = Core {
            mode: FileKind::Directory.mode_bits() | permissions,
            nlink: 2,
            generation,
            parent_or_rdev: Ino::ROOT.0,
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            ..Core::default()
        };
        let inode = Inode { core, ..Inode::default() };
        self.note(ino, &inode);
        *place.write().edit(&root.table, self.epoch) = inode;
        root.table.count_inodes(1);
        self.lost(format!("directory {ino} restored, mode {permissions:o}, owner root"));
        Ok(())
    }
}

fn is_of_inodes(kind: LostKind) -> bool {
    matches!(kind, LostKind::InodeBlock | LostKind::Node(TreeId::Imap))
}
