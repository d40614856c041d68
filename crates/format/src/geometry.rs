//! The fixed layout parameters of a volume, chosen by `mkfs`.

use crate::declare::layout;
use shoal_base::{Addr, SegNo, limits};

layout! {
    /// Geometry of a volume, from its superblock.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Geometry: "geometry", 16 of 16,
    "Layout parameters of a volume; its size is the product of the first two." {
        0 segment_size: u64, "bytes of a segment (a power of two)";
        8 segments: u32, "number of segments";
        12 inode_size: u32, "bytes of an inode slot: its core and literal area (a power of two)";
    }
}

impl Geometry {
    /// Returns the largest geometry that fits in `bytes`; `None` if that is below the smallest
    /// volume or above the largest.
    pub fn fit(bytes: u64, segment_size: u64, inode_size: u32) -> Option<Geometry> {
        let segments = bytes / segment_size;
        if segments < limits::SEGMENTS_MIN || segments > u64::from(limits::SEGMENTS_MAX) {
            return None;
        }
        Some(Geometry { segment_size, segments: segments as u32, inode_size })
    }
    /// Size of the volume in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.segment_size * u64::from(self.segments)
    }
    /// The segment that contains this address.
    #[inline]
    pub fn segment_of(&self, addr: Addr) -> SegNo {
        SegNo((addr.0 / self.segment_size) as u32)
    }
    /// First byte of a segment.
    #[inline]
    pub fn start_of(&self, seg: SegNo) -> Addr {
        Addr(u64::from(seg.0) * self.segment_size)
    }
    /// Returns whether `[addr, addr + len)` is inside one segment other than segment 0.
    #[inline]
    pub fn contains(&self, addr: Addr, len: u64) -> bool {
        let start = addr.0 % self.segment_size;
        addr.0 >= self.segment_size && addr.0 < self.bytes() && start + len <= self.segment_size
    }
}
