//! The bytes of a device at one moment: sparse, and cheap to copy, because copies share their
//! chunks until one of them writes. A run keeps many: the durable state, each crash image, each
//! corrupted variant.

use std::sync::Arc;

/// Bytes of a chunk, the unit of sharing.
const CHUNK: usize = 32 << 10;

/// A sparse array of bytes; what was never written is zero.
#[derive(Clone)]
pub struct Image {
    capacity: u64,
    chunks: Vec<Option<Arc<Vec<u8>>>>,
}

impl Image {
    /// `capacity` zero bytes.
    pub fn new(capacity: u64) -> Image {
        Image { capacity, chunks: vec![None; capacity.div_ceil(CHUNK as u64) as usize] }
    }

    /// Bytes in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns whether `len` bytes at `offset` lie inside.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.capacity)
    }

    /// Copies out; the range must lie inside.
    pub fn read(&self, buf: &mut [u8], offset: u64) {
        assert!(self.contains(offset, buf.len() as u64));
        let mut done = 0;
        while done < buf.len() {
            let (chunk, within) = place(offset + done as u64);
            let take = (CHUNK - within).min(buf.len() - done);
            let out = &mut buf[done..done + take];
            match &self.chunks[chunk] {
                Some(bytes) => out.copy_from_slice(&bytes[within..within + take]),
                None => out.fill(0),
            }
            done += take;
        }
    }

    /// Copies in; the range must lie inside.
    pub fn write(&mut self, data: &[u8], offset: u64) {
        assert!(self.contains(offset, data.len() as u64));
        let mut done = 0;
        while done < data.len() {
            let (chunk, within) = place(offset + done as u64);
            let take = (CHUNK - within).min(data.len() - done);
            let shared = self.chunks[chunk].get_or_insert_with(|| Arc::new(vec![0; CHUNK]));
            let bytes = Arc::make_mut(shared);
            bytes[within..within + take].copy_from_slice(&data[done..done + take]);
            done += take;
        }
    }

    /// Makes a range zero.
    pub fn zero(&mut self, offset: u64, len: u64) {
        assert!(self.contains(offset, len));
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let (chunk, within) = place(at);
            let take = (CHUNK - within).min((end - at) as usize);
            if take == CHUNK {
                self.chunks[chunk] = None;
            } else if let Some(bytes) = &mut self.chunks[chunk] {
                Arc::make_mut(bytes)[within..within + take].fill(0);
            }
            at += take as u64;
        }
    }

    /// Inverts one bit.
    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        let mut byte = [0];
        self.read(&mut byte, offset);
        self.write(&[byte[0] ^ 1 << (bit % 8)], offset);
    }

    /// Cuts the device short; what lay behind is gone.
    pub fn truncate(&mut self, capacity: u64) {
        assert!(capacity <= self.capacity);
        self.capacity = capacity;
        self.chunks.truncate(capacity.div_ceil(CHUNK as u64) as usize);
    }

    /// Ranges that may hold something other than zeros, in order: places worth damaging.
    pub fn written(&self) -> Vec<std::ops::Range<u64>> {
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for (i, _) in self.chunks.iter().enumerate().filter(|(_, c)| c.is_some()) {
            let start = (i * CHUNK) as u64;
            let end = (start + CHUNK as u64).min(self.capacity);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// Offset of every place where `needle` stands, for aiming damage at a structure by its magic.
    pub fn find(&self, needle: &[u8]) -> Vec<u64> {
        assert!(!needle.is_empty());
        let mut found = Vec::new();
        for range in self.written() {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.read(&mut bytes, range.start);
            let hits = bytes.windows(needle.len()).enumerate().filter(|(_, w)| *w == needle);
            found.extend(hits.map(|(i, _)| range.start + i as u64));
        }
        found
    }
}

/// Chunk number, and byte within it.
fn place(at: u64) -> (usize, usize) {
    ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_nothing_that_is_written_later() {
        let mut a = Image::new(1 << 20);
        a.write(&[7; 100], CHUNK as u64 - 50);
        let b = a.clone();
        a.write(&[9; 10], CHUNK as u64);
        a.zero(CHUNK as u64 - 50, 50);
        let (mut from_a, mut from_b) = ([0; 100], [0; 100]);
        a.read(&mut from_a, CHUNK as u64 - 50);
        b.read(&mut from_b, CHUNK as u64 - 50);
        assert_eq!(from_b, [7; 100]);
        assert_eq!((from_a[0], from_a[50], from_a[60]), (0, 9, 7));
        assert_eq!(a.written().first(), Some(&(0..2 * CHUNK as u64)));
    }

    #[test]
    fn damage_goes_where_it_is_aimed() {
        let mut image = Image::new(100_000);
        image.write(b"SHOALNOD", 70_000);
        assert_eq!(image.find(b"ALNO"), [70_003]);
        image.flip_bit(70_003, 0);
        assert!(image.find(b"SHOALNOD").is_empty());
        image.truncate(70_001);
        assert_eq!((image.capacity(), image.contains(70_000, 2)), (70_001, false));
    }
}
