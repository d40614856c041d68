//! The checkpoint's writer: writes to the metadata stream of the space, in large writes of whole
//! sectors. No sector has bytes of an earlier checkpoint, or of an earlier write.

use crate::store::Store;
use shoal_base::counters::{Counter, Counters};
use shoal_base::invariant;
use shoal_base::limits::{ALIGN, SECTOR};
use shoal_base::planted::{self, Defect};
use shoal_base::sync::crew::processors;
use shoal_base::{Addr, Epoch, Result};
use shoal_device::Device;
use shoal_format::{Compression, Ptr};
use shoal_space::{Class, Frozen, Stream};
use shoal_tree::{Helpers, NodeWriter};
use std::sync::Arc;

/// Bytes collected before they are written.
const GATHER: usize = 1 << 20;

/// Writer of one checkpoint.
pub(crate) struct MetaWriter<'s> {
    pub store: &'s Store,
    pub frozen: Frozen,
    /// Epoch of the checkpoint, which is the birth of its objects.
    pub epoch: Epoch,
    at: Addr,
    gathered: Vec<u8>,
}

impl<'s> MetaWriter<'s> {
    pub(crate) fn new(store: &'s Store, frozen: Frozen, epoch: Epoch) -> MetaWriter<'s> {
        let gathered = Vec::with_capacity(GATHER + (64 << 10));
        if !planted::is(Defect::CheckpointUnaligned) {
            store.space.sectors().align_meta();
        }
        MetaWriter { store, frozen, epoch, at: Addr(0), gathered }
    }

    /// Address of the collected bytes.
    pub(crate) fn at(&self) -> Addr {
        self.at
    }

    /// Writes the collected bytes, to the end of their last sector.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if !planted::is(Defect::CheckpointUnaligned) {
            let end = self.gathered.len().next_multiple_of(SECTOR as usize);
            self.gathered.resize(end, 0);
        }
        self.write_gathered(self.gathered.len())
    }

    fn write_gathered(&mut self, len: usize) -> Result<()> {
        if len > 0 {
            write(&*self.store.device, &self.store.counters, self.at, &self.gathered[..len])?;
            self.gathered.drain(..len);
            self.at.0 += len as u64;
        }
        Ok(())
    }

    /// Leaves a gap between two objects, so that no damaged sector contains both.
    pub(crate) fn gap(&mut self, len: usize) -> Result<()> {
        let addr = self.alloc(len)?;
        self.write(addr, &vec![0; len])?;
        self.retire(Ptr::place(addr, len as u32));
        Ok(())
    }

    /// Allocates an address for an object and writes it. Returns the pointer to it.
    pub(crate) fn place(&mut self, bytes: &[u8]) -> Result<Ptr> {
        let addr = self.alloc(bytes.len())?;
        self.write(addr, bytes)?;
        Ok(Ptr::to(addr, self.epoch, bytes))
    }
}

fn write(device: &dyn Device, counters: &Counters, at: Addr, bytes: &[u8]) -> Result<()> {
    device.write_at(bytes, at.0)?;
    counters.add(Counter::CheckpointBytes, bytes.len() as u64);
    Ok(())
}

impl NodeWriter for MetaWriter<'_> {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        let addr = self.store.space.alloc(Stream::Meta, len as u32, Class::Reserved)?;
        self.store.space.checkpointing().meta_add(&mut self.frozen, addr, len as u32);
        Ok(addr)
    }

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        let end = self.at.0 + self.gathered.len() as u64;
        let follows = addr.0 >= end && addr.0 - end < ALIGN as u64;
        if !follows {
            self.flush()?;
            let may = addr.0.is_multiple_of(SECTOR) || planted::is(Defect::CheckpointUnaligned);
            invariant!(may, "a checkpoint continues at {}, inside a sector", addr.0);
            self.at = addr;
        } else if self.gathered.len() >= GATHER {
            self.write_gathered(GATHER)?;
        }
        self.gathered.resize((addr.0 - self.at.0) as usize, 0);
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    fn compression(&self) -> Compression {
        self.store.compression
    }
    fn align(&mut self) -> Result<()> {
        self.flush()?;
        self.store.space.sectors().align_meta();
        Ok(())
    }

    fn retire(&mut self, ptr: Ptr) {
        if !ptr.is_null() {
            self.store.space.checkpointing().meta_sub(&mut self.frozen, ptr.addr, ptr.len);
        }
    }

    /// None without background threads: the result must not depend on the machine.
    fn helpers(&self) -> Option<Helpers> {
        let threads = processors();
        if !self.store.options.background || threads < 2 {
            return None;
        }
        let (device, counters) = (self.store.device.clone(), self.store.counters.clone());
        let write = Arc::new(move |at, bytes: &[u8]| write(&*device, &counters, at, bytes));
        Some(Helpers { threads, write })
    }
}
