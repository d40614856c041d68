//! A sound volume that is shared, and what one run has changed of it: a damaged copy costs its
//! changed pages, not the whole volume. A run is ten times as fast for it.

use shoal::raw::{Device, Error, Result};
use shoal_base::error::DeviceFailure;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Pages by number.
pub type Pages = HashMap<usize, Box<[u8; PAGE]>>;

/// The device: pages of its own where there are any, else those of the sound volume.
pub struct Overlay<'s> {
    sound: &'s [u8],
    own: Mutex<Pages>,
}

impl<'s> Overlay<'s> {
    /// `sound` with these pages in the place of its own. Its length is a multiple of a page.
    pub fn new(sound: &'s [u8], own: Pages) -> Overlay<'s> {
        assert_eq!(sound.len() % PAGE, 0, "a volume is whole pages");
        Overlay { sound, own: Mutex::new(own) }
    }

    fn own(&self) -> MutexGuard<'_, Pages> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write outside the volume is what must never be, and so is no error, but a finding.
    fn check(&self, operation: &'static str, offset: u64, len: u64) -> Result<()> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.capacity());
        assert!(inside || operation == "read", "{operation} of {len} bytes at {offset}: outside");
        let (device, errno) = (self.describe(), 0);
        let outside = DeviceFailure { operation, device, offset, len, errno };
        if inside { Ok(()) } else { Err(Error::Device(Box::new(outside))) }
    }
}

/// Cuts a range at the borders of pages: number, start in it, start in the range, length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let (mut at, end) = (offset as usize, offset as usize + len);
    std::iter::from_fn(move || {
        let take = (PAGE - at % PAGE).min(end - at);
        let piece = (at / PAGE, at % PAGE, at - offset as usize, take);
        at += take;
        (take > 0).then_some(piece)
    })
}

/// The bytes of a page of `sound`.
pub fn page_of(sound: &[u8], page: usize) -> &[u8; PAGE] {
    sound[page * PAGE..].first_chunk().expect("a page of the volume")
}

impl Device for Overlay<'_> {
    fn capacity(&self) -> u64 {
        self.sound.len() as u64
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check("read", offset, buf.len() as u64)?;
        let own = self.own();
        for (page, within, at, len) in pieces(offset, buf.len()) {
            let bytes = own.get(&page).map_or(page_of(self.sound, page), |own| &**own);
            buf[at..at + len].copy_from_slice(&bytes[within..within + len]);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check("write", offset, buf.len() as u64)?;
        let mut own = self.own();
        for (page, within, at, len) in pieces(offset, buf.len()) {
            let bytes = own.entry(page).or_insert_with(|| Box::new(*page_of(self.sound, page)));
            bytes[within..within + len].copy_from_slice(&buf[at..at + len]);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes may stay; here they do.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check("discard", offset, len)
    }

    fn describe(&self) -> String {
        format!("memory device of {} bytes", self.sound.len())
    }
}
