//! The leaves of a large checkpoint, encoded and written by several threads.
//!
//! Addresses are allocated in key order, so that neighbours are adjacent on the device. The rest of
//! the work is independent for each leaf. `persist.rs` explains what other threads may do to a leaf
//! meanwhile, and why its version for the checkpoint stays until it is written. The inner nodes
//! follow when all leaves have their pointers.

use crate::cell::LeafCell;
use crate::inner::{Children, InnerCell};
use crate::sync::Mutex;
use crate::sync::crew::{Steps, in_order};
use crate::tree::Tree;
use shoal_base::limits::{ALIGN, NODE_SIZE};
use shoal_base::{Addr, Epoch, Result, invariant};
use shoal_format::node::{Key, stamp_node};
use shoal_format::{Coding, Compression, Ptr};
use std::sync::Arc;

/// Leaves that a thread encodes and writes at once: 1 MiB.
const CHUNK: usize = if cfg!(any(test, feature = "scheduled")) { 2 } else { 64 };
/// Number of leaves up to which no threads are started.
const FEW: usize = 2 * CHUNK;

/// Writes bytes at an address.
pub type WriteAt = dyn Fn(Addr, &[u8]) -> Result<()> + Send + Sync;

/// The threads that a checkpoint may use, and their write function.
#[derive(Clone)]
pub struct Helpers {
    /// Number of threads, including the calling one.
    pub threads: usize,
    /// Writes at addresses from the writer's `alloc`; effective before the checkpoint ends.
    pub write: Arc<WriteAt>,
}

/// The destination of a checkpoint's writes.
pub trait NodeWriter: Send {
    /// Allocates an address for `len` bytes.
    fn alloc(&mut self, len: usize) -> Result<Addr>;
    /// Writes `bytes` at an address from `alloc`. May be buffered until the checkpoint's end.
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()>;
    /// Compression of nodes and inode blocks.
    fn compression(&self) -> Compression {
        Compression::NONE
    }
    /// Begins a new sector for the next object, because it is written separately from the previous
    /// ones.
    fn align(&mut self) -> Result<()> {
        Ok(())
    }
    /// Frees the target of a pointer that is not part of the new image.
    fn retire(&mut self, ptr: Ptr);
    /// Threads that may help with many writes.
    fn helpers(&self) -> Option<Helpers> {
        None
    }
}

/// An object's place in a buffer and on the device.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Its address on the device.
    pub addr: Addr,
    /// Its first byte in the buffer.
    pub start: usize,
    /// Its length.
    pub len: usize,
}

impl Helpers {
    /// Writes objects of `raw`. Those that are adjacent both in `raw` and on the device are written
    /// together, with the bytes between them.
    pub fn write_runs(&self, raw: &[u8], placed: &[Placed]) -> Result<()> {
        let offset = |one: &Placed| one.addr.0.wrapping_sub(one.start as u64);
        for run in placed.chunk_by(|a, b| offset(a) == offset(b)) {
            if let [first, ..] = run
                && let [.., last] = run
            {
                (self.write)(first.addr, &raw[first.start..last.start + last.len])?;
            }
        }
        Ok(())
    }
}

/// Leaves that one thread processes, encoded in sequence.
#[derive(Default)]
struct Piece {
    leaves: Vec<Arc<LeafCell>>,
    raw: Vec<u8>,
    codings: Vec<Coding>,
    /// Place of each leaf in `raw` and on the device.
    placed: Vec<Placed>,
}

impl Tree {
    /// Writes the leaves that changed up to `epoch` and whose lowest keys are among `keys`, if
    /// there are enough to start threads for. The others are left to the caller.
    pub(crate) fn write_leaves(
        &self,
        keys: &[Key],
        epoch: Epoch,
        writer: &mut dyn NodeWriter,
    ) -> Result<()> {
        let Some(helpers) = writer.helpers().filter(|_| keys.len() > FEW) else { return Ok(()) };
        let mut chunks = keys.chunks(CHUNK);
        let how = writer.compression();
        let sink = Mutex::new(&mut *writer);
        let done: Result<()> = in_order(
            helpers.threads,
            Steps {
                take: || chunks.next(),
                prepare: |keys: &[Key]| {
                    let mut leaves = Vec::with_capacity(keys.len());
                    self.unwritten_leaves(&self.root, keys, epoch, &mut leaves);
                    Ok(self.encode_leaves(leaves, how, epoch))
                },
                place: |piece: &mut Piece| {
                    let mut writer = sink.lock();
                    writer.align()?;
                    piece.placed.iter_mut().try_for_each(|placed| {
                        placed.addr = writer.alloc(placed.len)?;
                        Ok(())
                    })
                },
                finish: |mut piece: Piece| {
                    let retired = self.write_piece(&mut piece, epoch, &helpers)?;
                    let mut writer = sink.lock();
                    retired.into_iter().for_each(|ptr| writer.retire(ptr));
                    Ok(())
                },
            },
        );
        done?;
        writer.align()
    }

    /// Finds the unwritten leaves whose lowest key is one of `keys`. So each leaf is found by one
    /// key only, and by one thread.
    fn unwritten_leaves(
        &self,
        cell: &InnerCell,
        keys: &[Key],
        epoch: Epoch,
        found: &mut Vec<Arc<LeafCell>>,
    ) {
        let Some((data, _)) = self.version(cell, epoch) else { return };
        for (i, keys) in data.routes(keys) {
            match &data.children {
                Children::Inners(v) => self.unwritten_leaves(&v[i], keys, epoch, found),
                Children::Leaves(v) => {
                    let state = v[i].state.read();
                    if state.is_unwritten(epoch) && keys.contains(&state.low) {
                        found.push(v[i].clone());
                    }
                }
            }
        }
    }

    /// Encodes leaves as they were at the end of `epoch`. That version of a leaf stays until
    /// [`Tree::leaf_written`]: later changes belong to a later epoch and go to a copy.
    fn encode_leaves(&self, leaves: Vec<Arc<LeafCell>>, how: Compression, epoch: Epoch) -> Piece {
        let mut piece = Piece::default();
        piece.raw.reserve(leaves.len() * NODE_SIZE);
        for leaf in leaves {
            let mut state = leaf.state.write();
            let node = state.unwritten(epoch);
            invariant!(node.is_some(), "a leaf was written twice");
            let Some(node) = node else { continue };
            let start = piece.raw.len();
            let coding = node.encode(how, epoch, self.id.root, &mut piece.raw);
            let len = coding.len as usize;
            piece.raw.resize((start + len).next_multiple_of(ALIGN), 0);
            piece.codings.push(coding);
            piece.placed.push(Placed { addr: Addr(0), start, len });
            drop(state);
            piece.leaves.push(leaf);
        }
        piece
    }

    /// Writes encoded leaves at their addresses. Returns the pointers that they replace.
    fn write_piece(&self, piece: &mut Piece, epoch: Epoch, helpers: &Helpers) -> Result<Vec<Ptr>> {
        let mut retired = Vec::with_capacity(piece.leaves.len());
        let codings = piece.codings.iter().zip(&piece.placed);
        for (leaf, (coding, placed)) in piece.leaves.iter().zip(codings) {
            let stored = &mut piece.raw[placed.start..placed.start + placed.len];
            stamp_node(stored, placed.addr);
            let ptr = Ptr::coded(placed.addr, epoch, stored, *coding);
            retired.push(self.leaf_written(&mut leaf.state.write(), ptr, epoch));
        }
        helpers.write_runs(&piece.raw, &piece.placed)?;
        Ok(retired)
    }
}
