//! Reads of what a volume begins with: superblocks, the record of a checkpoint, and the objects
//! that the record points to.

use shoal_base::{Code, Error, Result};
use shoal_device::Device;
use shoal_format::checkpoint::Checkpoint;
use shoal_format::copy_mark::{self, CopyMark};
use shoal_format::root::{PagePtr, RootPage};
use shoal_format::superblock::{self, COPIES, Superblock};
use shoal_format::{Geometry, Ptr};

/// Reads an object that a checkpoint points to, and verifies its checksum.
pub fn read_object(
    device: &dyn Device,
    geometry: &Geometry,
    ptr: Ptr,
    object: &str,
) -> Result<Vec<u8>> {
    if ptr.is_null() || !geometry.contains(ptr.addr, u64::from(ptr.len)) {
        let rule = format!("pointer to {} bytes outside any segment", ptr.len);
        return Err(Error::corrupt(object, Some(ptr.addr.0), rule));
    }
    if !ptr.is_plain() {
        let rule = format!("coded with {}, which only nodes and blocks are", ptr.codec.name());
        return Err(Error::corrupt(object, Some(ptr.addr.0), rule));
    }
    let mut raw = vec![0; ptr.len as usize];
    device.read_at(&mut raw, ptr.addr.0)?;
    ptr.verify(&raw, object)?;
    Ok(raw)
}

/// Reads bytes of the device, with zeros in place of those that it cannot read.
pub(crate) fn read_around(device: &dyn Device, raw: &mut [u8], at: u64) -> Result<()> {
    match device.read_at(raw, at) {
        Err(e) if e.is_damage() => {}
        read => return read,
    }
    for (page, at) in raw.chunks_mut(4096).zip((at..).step_by(4096)) {
        match device.read_at(page, at) {
            Err(e) if e.is_damage() => page.fill(0),
            read => read?,
        }
    }
    Ok(())
}

/// Reads the newest valid superblock.
pub fn read_superblock(device: &dyn Device) -> Result<Superblock> {
    let name = device.describe();
    let mut newest: Option<Superblock> = None;
    let mut broken = None;
    for addr in COPIES {
        let mut raw = vec![0; 4096];
        if device.capacity() < addr + raw.len() as u64 {
            continue;
        }
        let read = device.read_at(&mut raw, addr).and_then(|()| Superblock::decode(&raw, addr));
        match read {
            Ok(Some(sb)) if newest.is_none_or(|n| sb.sequence > n.sequence) => newest = Some(sb),
            Ok(_) => {}
            Err(e) => broken = Some(e),
        }
    }
    let Some(sb) = newest else {
        return Err(match broken {
            Some(Error::Corrupt(it)) => {
                let rule = format!(
                    "{}; the other copy cannot be used either: 'shoal fsck --repair {name}' \
                     searches for the backup superblock of the newest checkpoint",
                    it.rule
                );
                Error::corrupt(it.object, it.addr, rule)
            }
            Some(e) => e,
            None if unfinished_copy(device)?.is_some() => {
                let message = format!(
                    "{name} is an unfinished copy of a volume: give the same 'shoal copy' again"
                );
                Error::refused(Code::Invalid, message)
            }
            None => {
                let message = format!(
                    "{name} is not a Shoal volume; make one with 'shoal mkfs', or, if it was one, \
                     let 'shoal fsck --repair' search for a backup superblock"
                );
                Error::refused(Code::Invalid, message)
            }
        });
    };
    if device.capacity() < sb.geometry.bytes() {
        let (has, wants) = (device.capacity(), sb.geometry.bytes());
        let message = format!(
            "{name} is truncated: {has} bytes, the volume has {wants}; restore it from a copy"
        );
        return Err(Error::refused(Code::Invalid, message));
    }
    Ok(sb)
}

/// Reads the mark of an unfinished copy. It counts only where there is no superblock.
pub fn unfinished_copy(device: &dyn Device) -> Result<Option<CopyMark>> {
    let mut newest: Option<CopyMark> = None;
    for addr in copy_mark::COPIES {
        let mut raw = [0; copy_mark::SIZE];
        if device.capacity() < addr + raw.len() as u64 {
            continue;
        }
        match device.read_at(&mut raw, addr) {
            Err(error) if error.is_damage() => continue,
            read => read?,
        }
        let mark = CopyMark::decode(&raw).filter(|mark| mark.addr() == addr);
        newest = newest.into_iter().chain(mark).max_by_key(|mark| mark.sequence);
    }
    Ok(newest)
}

/// Reads the checkpoint that a superblock points to.
pub fn read_checkpoint(device: &dyn Device, sb: &Superblock) -> Result<Checkpoint> {
    let raw = read_object(device, &sb.geometry, sb.checkpoint, "checkpoint")?;
    Checkpoint::decode(&raw, sb.checkpoint.addr, sb.volume())
}

/// Reads every copy of the superblock: its contents or the error. A copy that was never written is
/// left out.
pub fn superblock_copies(device: &dyn Device) -> Result<Vec<Result<Superblock>>> {
    let mut copies = Vec::new();
    let mut blank = None;
    for addr in COPIES {
        let mut raw = vec![0; 4096];
        if device.capacity() < addr + raw.len() as u64 {
            continue;
        }
        let bad = |rule: &str| Error::corrupt("superblock", Some(addr), rule);
        match device.read_at(&mut raw, addr).and_then(|()| Superblock::decode(&raw, addr)) {
            Ok(Some(_)) if raw[superblock::SIZE..].iter().any(|b| *b != 0) => {
                copies.push(Err(bad("not zero behind its end")));
            }
            Ok(Some(sb)) => copies.push(Ok(sb)),
            Ok(None) if raw.iter().all(|b| *b == 0) => blank = Some(bad("all zero")),
            Ok(None) => copies.push(Err(bad("magic"))),
            Err(e) => copies.push(Err(e)),
        }
    }
    // Only mkfs leaves one of them out: the second write goes to the other.
    let written = copies.iter().flatten().any(|sb| sb.sequence > 1);
    copies.extend(blank.filter(|_| written).map(Err));
    Ok(copies)
}

/// A page of the root table that was read.
pub(crate) struct ReadRootPage {
    pub page: RootPage,
    /// The error in one of its copies; the next checkpoint must then write both again.
    pub damage: Option<Error>,
}

/// Reads page `number` of the root table, if necessary from its backup copy. A null page has no
/// subvolumes.
pub(crate) fn read_root_page(
    device: &dyn Device,
    geometry: &Geometry,
    volume: u64,
    number: usize,
    ptr: PagePtr,
) -> Result<ReadRootPage> {
    if ptr.first.is_null() {
        return Ok(ReadRootPage { page: RootPage::default(), damage: None });
    }
    let read = |ptr: Ptr, what: &str| {
        let raw = read_object(device, geometry, ptr, what)?;
        let page = RootPage::decode(&raw, ptr.addr, volume)?;
        match usize::from(page.number) == number {
            true => Ok(page),
            false => {
                let rule = format!("number {}, expected {number}", page.number);
                Err(Error::corrupt(what, Some(ptr.addr.0), rule))
            }
        }
    };
    let error = match read(ptr.first, "root page") {
        Ok(page) => return Ok(ReadRootPage { page, damage: None }),
        Err(e) if e.is_damage() => e,
        Err(e) => return Err(e),
    };
    match read(ptr.copy(), "root page's second copy") {
        Ok(page) => Ok(ReadRootPage { page, damage: Some(error) }),
        Err(e) if e.is_damage() => Err(error),
        Err(e) => Err(e),
    }
}
