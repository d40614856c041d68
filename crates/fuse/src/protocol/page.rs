//! Pages in which ioctls give their answers: a head, then records at multiples of 8, each followed
//! by bytes of its own. What does not fit into one page comes in the next.

use super::Errno;
use super::reply::put;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of a page: as many as an ioctl's number can say, in eights.
pub const PAGE: usize = 16_376;
/// Records are at multiples of this.
pub const ALIGN: usize = 8;

const _: () = assert!(PAGE.is_multiple_of(ALIGN) && PAGE < 1 << 14);

/// What stands in a page in front of bytes of its own.
pub trait Record: FromBytes + IntoBytes + Immutable {
    /// How many bytes follow.
    fn tail(&self) -> usize;
}

/// Writes a page.
pub struct Writer<'a> {
    page: &'a mut [u8],
    end: usize,
    count: u32,
}

impl<'a> Writer<'a> {
    /// Over `room`, of which no more than a page is used; with room for a head.
    pub fn new(room: &'a mut [u8], head: usize) -> Writer<'a> {
        let len = room.len().min(PAGE);
        Writer { page: &mut room[..len], end: head, count: 0 }
    }

    /// Adds a record and what follows it; `false`: it does not fit.
    pub fn push<R: Record>(&mut self, record: &R, tail: &[u8]) -> bool {
        debug_assert_eq!(record.tail(), tail.len());
        let end = (self.end + size_of::<R>() + tail.len()).next_multiple_of(ALIGN);
        let Some(room) = self.page.get_mut(self.end..end) else { return false };
        room.fill(0);
        let Ok(start) = put(room, 0, record) else { return false };
        room[start..start + tail.len()].copy_from_slice(tail);
        (self.end, self.count) = (end, self.count + 1);
        true
    }

    /// Records so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Puts the head; the length of it all.
    pub fn finish(self, head: &(impl IntoBytes + Immutable)) -> Result<usize, Errno> {
        put(self.page, 0, head)?;
        Ok(self.end)
    }
}

/// The first `count` records behind a head of so many bytes. What is cut off or malformed ends the
/// list.
pub fn records<R: Record>(
    page: &[u8],
    head: usize,
    count: u32,
) -> impl Iterator<Item = (R, &[u8])> {
    let mut rest = page.get(head..).unwrap_or_default();
    (0..count).map_while(move |_| {
        let (record, behind) = R::read_from_prefix(rest).ok()?;
        let len = record.tail();
        let tail = behind.get(..len)?;
        rest = behind.get(len.next_multiple_of(ALIGN)..)?;
        Some((record, tail))
    })
}
