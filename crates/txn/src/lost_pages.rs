//! Recovery of subvolumes from pages of the root table of which both copies are unreadable.
//!
//! | needed | source |
//! | --- | --- |
//! | live subvolumes and their names | the entries of the volume's top directory; if not all of those are readable: an older version of the page found on the device, or the inode of the subvolume's top directory if it is newer than that |
//! | inode blocks | on the device, the newest of each number |
//! | extents, attributes | on the device: leaves of the trees (`scan.rs`) |
//! | names in the subvolume | the parent pointers of its inodes, by the repair |
//!
//! A subvolume without any such evidence is vacant, and its space is free.

use crate::held::Held;
use crate::read::read_around;
use crate::store::Store;
use shoal_base::limits::ALIGN;
use shoal_base::{Addr, Ino, Result, RootId, SegNo};
use shoal_format::checkpoint::{RootRecord, RootState};
use shoal_format::dirent::Dirent;
use shoal_format::inode::{BlockId, BlockPlace, decode_block};
use shoal_format::node::Key;
use shoal_format::root::{ROOTS, RootPage};
use shoal_format::{Geometry, Ptr};
use std::collections::{BTreeMap, BTreeSet};

/// An inode block found on the device.
#[derive(Clone, Copy)]
struct FoundBlock {
    epoch: u64,
    ptr: Ptr,
    /// Its second inode, which in the first block is the subvolume's top directory, is in use.
    top: bool,
}

/// The result of searching the device for lost pages.
pub(crate) struct Search {
    /// The newest version of each page.
    pages: BTreeMap<u16, RootPage>,
    /// The newest inode blocks, by subvolume and number.
    blocks: BTreeMap<(RootId, u64), FoundBlock>,
    /// Names of subvolumes found in the top directory, by number; and whether all of its entries
    /// are readable.
    named: BTreeMap<RootId, Vec<u8>>,
    all_named: bool,
}

impl Search {
    /// Searches the whole device for `lost` pages.
    pub(crate) fn of(store: &Store, lost: &BTreeSet<usize>, held: &Held) -> Result<Search> {
        let mut search = Search {
            pages: BTreeMap::new(),
            blocks: BTreeMap::new(),
            named: BTreeMap::new(),
            all_named: false,
        };
        let geometry = store.geometry;
        let mut raw = vec![0; geometry.segment_size as usize];
        for seg in (1..geometry.segments).filter(|seg| held.may_hold_metadata(*seg)) {
            let start = geometry.start_of(SegNo(seg));
            read_around(&*store.device, &mut raw, start.0)?;
            for at in (0..raw.len()).step_by(ALIGN) {
                let addr = Addr(start.0 + at as u64);
                search.page_at(store, lost, &raw[at..], addr);
                search.block_at(store, lost, &raw[at..], addr);
            }
        }
        Ok(search)
    }

    fn page_at(&mut self, store: &Store, lost: &BTreeSet<usize>, here: &[u8], addr: Addr) {
        let len = RootPage::len_at(here, store.volume).filter(|len| *len <= here.len());
        let Some(len) = len else { return };
        let number = RootPage::number_at(here);
        if !lost.contains(&usize::from(number)) {
            return;
        }
        let Ok(page) = RootPage::decode(&here[..len], addr, store.volume) else { return };
        let newest = self.pages.get(&number).is_none_or(|known| known.epoch < page.epoch);
        if newest && page.epoch < store.epoch() {
            self.pages.insert(number, page);
        }
    }

    fn block_at(&mut self, store: &Store, lost: &BTreeSet<usize>, here: &[u8], addr: Addr) {
        let Some(place) = BlockPlace::decode(here) else { return };
        let (root, number) = (place.id.first.root(), place.id.number());
        let ours = lost.contains(&(usize::from(root.0) / ROOTS))
            && place.id == block_id(store.volume, &store.geometry, root, number)
            && place.addr == addr
            && place.epoch < store.epoch()
            && place.coding.len as usize <= here.len();
        let key = (root, number);
        let newest = || self.blocks.get(&key).is_none_or(|known| known.epoch < place.epoch);
        if !ours || !newest() {
            return;
        }
        let raw = &here[..place.coding.len as usize];
        let Ok(inodes) = decode_block(raw, place.coding, place.id, addr) else { return };
        let ptr = Ptr::coded(addr, place.epoch, raw, place.coding);
        let top = inodes.get(Ino::ROOT.index() as usize).is_some_and(|top| top.core.in_use());
        self.blocks.insert(key, FoundBlock { epoch: place.epoch, ptr, top });
    }

    /// Notes the subvolumes named by the top directory, once subvolume 0 has been added. `whole`:
    /// its page is readable.
    pub(crate) fn name_roots(&mut self, store: &Store, whole: bool) -> Result<()> {
        let Some(root) = store.roots.get(RootId(0)) else { return Ok(()) };
        let (mut named, mut all) = (BTreeMap::new(), whole);
        let end = Key::behind(Ino::ROOT);
        let mut entry = |key: Key, value: &[u8]| {
            if let Some(entry) = Dirent::decode(RootId(0), value).filter(|_| key < end)
                && entry.child.root() != RootId(0)
            {
                named.insert(entry.child.root(), entry.name.to_vec());
            }
            Ok(())
        };
        let mut lost = |_, _, _| all = false;
        root.dirents.for_each_readable(Key::MIN, Key::MAX, &mut entry, &mut lost)?;
        (self.named, self.all_named) = (named, all);
        Ok(())
    }

    /// Returns a record to replace that of subvolume `id`, whose trees are lost. The record is
    /// vacant if there is no evidence of such a subvolume.
    pub(crate) fn stand_in(&self, id: RootId) -> RootRecord {
        let page = self.pages.get(&(id.0 / ROOTS as u16));
        let old = page.and_then(|page| page.roots.iter().find(|root| root.id == id));
        // A subvolume missing in the old page may have been created after that page was written.
        let since = page.map_or(0, |page| page.epoch);
        let top = |block: &FoundBlock| block.top && block.epoch > since;
        let witness = old.is_some_and(|old| old.state == RootState::Live)
            || self.blocks.get(&(id, 0)).is_some_and(top);
        let named = self.named.get(&id);
        if id != RootId(0) && named.is_none() && (self.all_named || !witness) {
            return RootRecord::vacant(id);
        }
        let name = named.cloned().or_else(|| old.map(|old| old.name.clone()));
        let last = self.blocks.range((id, 0)..=(id, u64::MAX)).next_back();
        RootRecord {
            id,
            state: RootState::Live,
            name: name.unwrap_or_default(),
            next_block: last.map_or(0, |((_, number), _)| number + 1),
            ..RootRecord::default()
        }
    }

    /// One past the last subvolume of a lost page that may have existed.
    pub(crate) fn end(&self, number: usize) -> usize {
        let ids = number * ROOTS..(number + 1) * ROOTS;
        let live = |id: &usize| self.stand_in(RootId(*id as u16)).state == RootState::Live;
        ids.rev().find(live).map_or(number * ROOTS, |last| last + 1)
    }

    /// The inode blocks of a subvolume.
    pub(crate) fn blocks_of(&self, id: RootId) -> impl Iterator<Item = (u64, Ptr)> {
        let blocks = self.blocks.range((id, 0)..=(id, u64::MAX));
        blocks.map(|((_, number), block)| (*number, block.ptr))
    }
}

fn block_id(volume: u64, geometry: &Geometry, root: RootId, number: u64) -> BlockId {
    let first = Ino::new(root, number * shoal_base::limits::INODES_PER_BLOCK as u64);
    BlockId { volume, first, inode_size: geometry.inode_size }
}
