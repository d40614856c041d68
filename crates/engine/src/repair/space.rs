//! Counting space again, from everything that points to it.

use crate::repair::Mending;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Code, Ino, Result};
use shoal_format::Ptr;
use shoal_format::attr::Attr;
use shoal_format::checkpoint::RootState;
use shoal_format::extent::Extent;
use shoal_format::inode::{Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_txn::{Root, fork_extents, remote_extents};

/// Live bytes of data and of metadata in each segment; and promised bytes.
struct Live<'v> {
    volume: Mending<'v>,
    segments: Vec<(u64, u64)>,
    prealloc: u64,
}

impl Mending<'_> {
    /// Returns, for each segment, the live bytes of data and of metadata; and the bytes of
    /// preallocated extents. The volume must not change meanwhile.
    pub(super) fn live_bytes_by_segment(self) -> Result<(Vec<(u64, u64)>, u64)> {
        let segments = vec![(0, 0); self.0.store.geometry().segments as usize];
        let mut live = Live { volume: self, segments, prealloc: 0 };
        for root in self.0.store.roots().iter() {
            live.root(root)?;
        }
        self.0.store.checkpoints().newest().for_each_object(&mut |_, ptr| live.meta(ptr));
        for (_, intent) in self.0.store.intents().all() {
            live.extent(intent.to_set().and_then(|attr| attr.value.extent()));
        }
        Ok((live.segments, live.prealloc))
    }
}

impl Live<'_> {
    fn meta(&mut self, ptr: Ptr) {
        let seg = self.volume.0.store.geometry().segment_of(ptr.addr).0 as usize;
        if let Some(live) = self.segments.get_mut(seg).filter(|_| !ptr.is_null()) {
            live.1 += u64::from(ptr.len);
        }
    }

    fn extent(&mut self, extent: Option<Extent>) {
        let Some(extent) = extent else { return };
        if extent.is_prealloc() {
            self.prealloc += u64::from(extent.len);
            return;
        }
        let seg = self.volume.0.store.geometry().segment_of(extent.data_addr()).0 as usize;
        if let Some(live) = self.segments.get_mut(seg) {
            live.0 += u64::from(extent.stored_len());
        }
    }

    fn root(&mut self, root: &Root) -> Result<()> {
        for id in TreeId::ALL {
            root.tree(id).for_each_node(&mut |ptr| self.meta(ptr))?;
        }
        root.table.for_each_block(&mut |_, ptr, _| {
            self.meta(ptr);
            Ok(true)
        })?;
        root.extents.for_each(Key::MIN, Key::MAX, &mut |key, value| {
            self.extent(Extent::decode_value(key.lo, value));
            Ok(true)
        })?;
        root.attrs.for_each(Key::MIN, Key::MAX, &mut |_, value| {
            self.extent(Attr::decode_whole(value).and_then(|attr| attr.value.extent()));
            Ok(true)
        })?;
        let mut next = 0;
        while let Some(number) = root.table.next_in_use(next)? {
            next = number + 1;
            if root.state() != RootState::Vacant {
                self.block(root, number)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, root: &Root, number: u64) -> Result<()> {
        for slot in 0..INODES_PER_BLOCK as u64 {
            let ino = Ino::new(root.id, number * INODES_PER_BLOCK as u64 + slot);
            match root.table.get(ino) {
                Err(e) if e.is(Code::Stale) => return Ok(()),
                place => self.inode(&place?.read().inode),
            }
        }
        Ok(())
    }

    fn inode(&mut self, inode: &Inode) {
        if inode.core.data_form == Form::Extents {
            let extents = fork_extents(&inode.data).unwrap_or_default();
            extents.into_iter().for_each(|extent| self.extent(Some(extent)));
        }
        remote_extents(&inode.attr).for_each(|extent| self.extent(Some(extent)));
    }
}
