//! What a checkpoint writes goes to the metadata stream of the space, gathered into large writes.

use crate::store::Store;
use shoal_base::counters::Counter;
use shoal_base::{Addr, Result, checksum};
use shoal_format::Ptr;
use shoal_space::{Class, Frozen, Stream};
use shoal_tree::NodeWriter;

/// Bytes gathered before they are written.
const GATHER: usize = 1 << 20;

/// Writer of one checkpoint.
pub(crate) struct MetaWriter<'s> {
    pub store: &'s Store,
    pub frozen: Frozen,
    at: Addr,
    gathered: Vec<u8>,
}

impl<'s> MetaWriter<'s> {
    pub fn new(store: &'s Store, frozen: Frozen) -> MetaWriter<'s> {
        MetaWriter { store, frozen, at: Addr(0), gathered: Vec::with_capacity(GATHER + (64 << 10)) }
    }

    /// Writes what has been gathered.
    pub fn flush(&mut self) -> Result<()> {
        if !self.gathered.is_empty() {
            self.store.device.write_at(&self.gathered, self.at.0)?;
            self.store.counters.add(Counter::CheckpointBytes, self.gathered.len() as u64);
            self.gathered.clear();
        }
        Ok(())
    }

    /// Leaves bytes out between two objects, so that no damaged sector has both.
    pub fn gap(&mut self, len: usize) -> Result<()> {
        let addr = self.alloc(len)?;
        self.write(addr, &vec![0; len])?;
        self.retire(Ptr { addr, len: len as u32, checksum: 0 });
        Ok(())
    }

    /// Places and writes an object; returns the pointer to it.
    pub fn place(&mut self, bytes: &[u8]) -> Result<Ptr> {
        let addr = self.alloc(bytes.len())?;
        self.write(addr, bytes)?;
        Ok(Ptr { addr, len: bytes.len() as u32, checksum: checksum(bytes) })
    }
}

impl NodeWriter for MetaWriter<'_> {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        let addr = self.store.space.alloc(Stream::Meta, len as u32, Class::Reserved)?;
        self.store.space.meta_add(&mut self.frozen, addr, len as u32);
        Ok(addr)
    }

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        let end = self.at.0 + self.gathered.len() as u64;
        let follows = !self.gathered.is_empty() && addr.0 >= end && addr.0 - end < 8;
        if !follows || self.gathered.len() >= GATHER {
            self.flush()?;
            self.at = addr;
        } else {
            self.gathered.resize((addr.0 - self.at.0) as usize, 0);
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    fn retire(&mut self, ptr: Ptr) {
        if !ptr.is_null() {
            self.store.space.meta_sub(&mut self.frozen, ptr.addr, ptr.len);
        }
    }
}
