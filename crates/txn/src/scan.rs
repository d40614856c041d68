//! Finding inode blocks without `imap`: each says which block of which root it is, of which volume,
//! where it was written and in which epoch. The newest that no later checkpoint could have written
//! is the one that `imap` named.

use crate::roots::Root;
use crate::salvage::Held;
use crate::store::Store;
use shoal_base::limits::ALIGN;
use shoal_base::{Result, SegNo, checksum};
use shoal_format::Ptr;
use shoal_format::inode::BlockPlace;
use shoal_format::usage::SegKind;
use std::collections::BTreeMap;
use std::ops::Range;

/// Looks on the whole device for the inode blocks of `root` whose numbers are in `ranges`, and
/// enters those that are found in `imap`.
pub(crate) fn adopt_blocks(
    store: &Store,
    root: &Root,
    ranges: &[Range<u64>],
    held: &mut Held,
) -> Result<()> {
    let geometry = store.geometry;
    let mut raw = vec![0; geometry.segment_size as usize];
    // By number: the epoch, and where.
    let mut found: BTreeMap<u64, (u64, Ptr)> = BTreeMap::new();
    for seg in (1..geometry.segments).filter(|seg| held.may_hold_metadata(*seg)) {
        let start = geometry.start_of(SegNo(seg));
        store.device.read_at(&mut raw, start.0)?;
        for at in (0..raw.len()).step_by(ALIGN) {
            let here = &raw[at..];
            let Some(place) = BlockPlace::decode(here) else { continue };
            let number = place.id.number();
            let ours = place.id == root.table.block_id(number)
                && place.addr.0 == start.0 + at as u64
                && place.epoch < store.epoch()
                && place.len <= here.len()
                && number < root.table.next_block()
                && ranges.iter().any(|range| range.contains(&number));
            if ours && found.get(&number).is_none_or(|(epoch, _)| *epoch < place.epoch) {
                let sum = checksum(&here[..place.len]);
                let ptr = Ptr { addr: place.addr, len: place.len as u32, checksum: sum };
                found.insert(number, (place.epoch, ptr));
            }
        }
    }
    for (number, (_, ptr)) in found {
        if root.table.adopt(number, ptr, store.epoch())? {
            held.pointer(&geometry, ptr, SegKind::Meta);
        }
    }
    Ok(())
}
