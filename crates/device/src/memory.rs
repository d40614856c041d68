//! A device in memory: sparse, shared by threads, lost with the process. For tests, and for
//! measuring everything except the storage.

use crate::device::{Device, failure};
use parking_lot::RwLock;
use shoal_base::{Result, shard};
use std::collections::HashMap;

/// Bytes of a chunk, which is allocated when its first byte is written.
const CHUNK: u64 = 256 << 10;

type Chunks = HashMap<u64, Box<[u8]>>;

/// A sparse byte store in memory.
pub struct MemDevice {
    capacity: u64,
    /// Chunks by number, sharded so that threads writing to different places do not wait.
    shards: Box<[RwLock<Chunks>]>,
}

impl MemDevice {
    /// Makes a device of `capacity` zero bytes. Memory is allocated as it is written.
    pub fn new(capacity: u64) -> MemDevice {
        let shards = (0..shard::SHARDS).map(|_| RwLock::default()).collect();
        MemDevice { capacity, shards }
    }

    /// Bytes of memory allocated for chunks.
    pub fn allocated(&self) -> u64 {
        self.shards.iter().map(|s| s.read().len() as u64 * CHUNK).sum()
    }

    fn shard_of(&self, chunk: u64) -> &RwLock<Chunks> {
        &self.shards[shard::spread(chunk) as usize % self.shards.len()]
    }

    fn check(&self, operation: &'static str, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity => Ok(()),
            _ => Err(failure(operation, self.describe(), offset, len, 0)),
        }
    }
}

/// Splits `[offset, offset + len)` at chunk boundaries. Yields chunk number, offset in the chunk,
/// offset in the range, length.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done;
        let within = at % CHUNK;
        let take = (CHUNK - within).min(len - done);
        let piece = (at / CHUNK, within as usize, done as usize, take as usize);
        done += take;
        Some(piece)
    })
}

impl Device for MemDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check("read", offset, buf.len() as u64)?;
        for (chunk, within, at, len) in pieces(offset, buf.len() as u64) {
            let out = &mut buf[at..at + len];
            match self.shard_of(chunk).read().get(&chunk) {
                Some(bytes) => out.copy_from_slice(&bytes[within..within + len]),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check("write", offset, buf.len() as u64)?;
        for (chunk, within, at, len) in pieces(offset, buf.len() as u64) {
            let mut chunks = self.shard_of(chunk).write();
            let bytes =
                chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK as usize].into_boxed_slice());
            bytes[within..within + len].copy_from_slice(&buf[at..at + len]);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check("discard", offset, len)?;
        for (chunk, within, _, len) in pieces(offset, len) {
            let mut chunks = self.shard_of(chunk).write();
            if len as u64 == CHUNK {
                chunks.remove(&chunk);
            } else if let Some(bytes) = chunks.get_mut(&chunk) {
                bytes[within..within + len].fill(0);
            }
        }
        Ok(())
    }

    fn is_sparse(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("memory device of {} bytes", self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;

    #[test]
    fn bytes_come_back_across_chunks_and_holes_are_zero() {
        let dev = MemDevice::new(10 * CHUNK);
        let data: Vec<u8> = (0..3 * CHUNK).map(|i| (i % 251) as u8).collect();
        dev.write_at(&data, CHUNK / 2).unwrap();
        let mut back = vec![1; data.len() + 16];
        dev.read_at(&mut back, CHUNK / 2 - 8).unwrap();
        assert_eq!(&back[..8], &[0; 8]);
        assert_eq!(&back[8..8 + data.len()], &data[..]);
        assert_eq!(&back[8 + data.len()..], &[0; 8]);
        assert_eq!(dev.allocated(), 4 * CHUNK);
    }

    #[test]
    fn vectored_writes_follow_each_other() {
        let dev = MemDevice::new(CHUNK);
        dev.write_vectored_at(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")], 5).unwrap();
        let mut back = [0; 7];
        dev.read_at(&mut back, 4).unwrap();
        assert_eq!(&back, b"\0abcde\0");
    }

    #[test]
    fn discard_zeroes_and_frees() {
        let dev = MemDevice::new(4 * CHUNK);
        dev.write_at(&vec![7; 4 * CHUNK as usize], 0).unwrap();
        dev.discard(CHUNK / 2, 2 * CHUNK).unwrap();
        assert_eq!(dev.allocated(), 3 * CHUNK);
        let mut back = vec![1; 4 * CHUNK as usize];
        dev.read_at(&mut back, 0).unwrap();
        let zeros = CHUNK as usize / 2..CHUNK as usize * 5 / 2;
        for (i, byte) in back.iter().enumerate() {
            assert_eq!(*byte, if zeros.contains(&i) { 0 } else { 7 }, "byte {i}");
        }
    }

    #[test]
    fn access_past_the_end_is_an_error_that_says_where() {
        let dev = MemDevice::new(CHUNK);
        for error in [
            dev.read_at(&mut [0; 2], CHUNK - 1).unwrap_err(),
            dev.write_at(&[0; 2], CHUNK - 1).unwrap_err(),
            dev.discard(u64::MAX, 2).unwrap_err(),
        ] {
            assert!(error.to_string().contains("unexpected end"), "{error}");
        }
    }
}
