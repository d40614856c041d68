//! A data object to be verified (`objects.rs`).

use shoal_base::Ino;
use shoal_format::Ptr;
use shoal_format::attr::KEY_HIGH;
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::sums::Sums;
use std::ops::Range;

/// Rules that an object can break: address, readable, owner, checksum.
pub(super) type Rules = [&'static str; 4];
pub(super) const DATA: Rules =
    ["extent-address", "data-unreadable", "data-header", "data-checksum"];
const VALUE: Rules = ["value-address", "value-unreadable", "value-header", "value-checksum"];

/// Problems of an object: rule and message.
pub(super) type Wrong = Vec<(&'static str, String)>;

/// A pointer to an object.
#[derive(Clone)]
pub(super) struct Object {
    pub ptr: Ptr,
    pub ino: Ino,
    /// Range of the file in bytes; `None` for a value of an attribute.
    pub data: Option<(u64, u64)>,
    /// Length in bytes of the referenced part.
    pub len: u32,
    /// Range of pieces whose checksums the extent has, and these checksums.
    pub pieces: Range<usize>,
    pub sums: Sums,
}

impl Object {
    /// Returns its range on the device, header included.
    pub(super) fn span(&self) -> Range<u64> {
        let start = self.ptr.addr.0.saturating_sub(HEADER as u64);
        start..start.saturating_add(HEADER as u64 + u64::from(self.ptr.len))
    }
    pub(super) fn rules(&self) -> Rules {
        if self.data.is_some() { DATA } else { VALUE }
    }
    pub(super) fn is_mine(&self, h: DataHeader) -> bool {
        // Subvolumes never share objects: the owner in the header must be in the same one.
        let is_data = h.offset & KEY_HIGH == 0;
        // Data may have grown since its header was written.
        let fits = h.may_be_of(&self.ptr) && (is_data || h.len.get() == self.ptr.len);
        h.ino() == self.ino && fits && is_data == self.data.is_some()
    }
}

/// Collected objects.
#[derive(Default)]
pub(super) struct Objects {
    pub list: Vec<Object>,
    pub bytes: u64,
    pub raw: Vec<u8>,
}

pub(super) fn data_of(ino: Ino, extent: &Extent) -> Object {
    let data = Some((extent.offset, extent.end()));
    Object {
        ptr: extent.ptr,
        ino,
        data,
        len: extent.len,
        pieces: extent.pieces(),
        sums: extent.sums,
    }
}

pub(super) fn value_of(ino: Ino, ptr: Ptr) -> Object {
    Object { ptr, ino, data: None, len: ptr.logical.get(), pieces: 0..0, sums: Sums::NONE }
}

/// Returns the range of the file, for messages.
pub(super) fn part(object: &Object) -> String {
    object.data.map_or(String::new(), |(from, to)| format!("bytes {from} to {to}: "))
}
