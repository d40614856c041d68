//! A whole volume as a stream, and a volume from such a stream.
//!
//! ```text
//! stream := head | piece... | end
//! head   := "SHOALDMP" | version 4 | zero 4 | volume id 16 | segment size 8 | segments 4
//!           | pieces 4 | zero 8 | checksum 8
//! piece  := segment 4 | length 4 | checksum of the bytes 8 | checksum of these 16 8 | bytes
//! end    := 0xffffffff 4 | 0 4 | chain of the pieces' checksums 8 | checksum of these 16 8
//! ```
//!
//! A piece is a segment that is in use, without the zeros at its end. The chain is a checksum of
//! the last piece's checksum, seeded with the chain before: it takes no memory, however large the
//! volume is. Segment 0 comes last: a restore writes everything else first, verifies the end, and
//! only then makes a volume of it, so that one that is interrupted, or whose stream is cut off,
//! leaves none.
//!
//! *A restored volume continues under an incarnation of its own.* The device may hold batches of
//! the journal that the original wrote after the dump, at the very place where the restored one
//! continues: a recovery would take them for its own if only their number were the next.

use crate::random::random;
use crate::storage::{self, is_bucket, make_bucket};
use crate::types::{MkfsOptions, OpenOptions};
use crate::volume::Volume;
use shoal_base::checksum::{checksum as xxh3, checksum_seeded};
use shoal_base::{Code, Error, Result};
use shoal_device::{Device, FileDevice, OpenMode};
use shoal_format::Geometry;
use shoal_format::claim::{ADDR as CLAIM, SIZE as CLAIM_SIZE};
use shoal_format::superblock::{COPIES, Superblock};
use shoal_format::usage::SegKind;
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"SHOALDMP";
/// Version of the stream.
const VERSION: u32 = 1;
const HEAD: usize = 64;
const PIECE: usize = 24;
/// Number in the place of a segment's at the end.
const END: u32 = u32::MAX;
/// Bytes of zeros that are not written to a new file.
const HOLE: usize = 64 << 10;
/// Bytes of a copy of the superblock.
const SUPERBLOCK: usize = 4096;

/// Called with bytes done and bytes to do.
pub type Moved<'a> = &'a mut dyn FnMut(u64, u64);

/// The head of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    id: [u8; 16],
    segment_size: u64,
    segments: u32,
    pieces: u32,
}

impl Head {
    fn encode(&self) -> [u8; HEAD] {
        let mut raw = [0; HEAD];
        raw[..8].copy_from_slice(&MAGIC);
        raw[8..12].copy_from_slice(&VERSION.to_le_bytes());
        raw[16..32].copy_from_slice(&self.id);
        raw[32..40].copy_from_slice(&self.segment_size.to_le_bytes());
        raw[40..44].copy_from_slice(&self.segments.to_le_bytes());
        raw[44..48].copy_from_slice(&self.pieces.to_le_bytes());
        let sum = xxh3(&raw[..HEAD - 8]);
        raw[HEAD - 8..].copy_from_slice(&sum.to_le_bytes());
        raw
    }

    fn decode(raw: &[u8; HEAD]) -> Result<Head> {
        if raw[..8] != MAGIC {
            return Err(bad("is no dump of a volume; make one by shoal dump"));
        }
        if u64_at(raw, HEAD - 8) != xxh3(&raw[..HEAD - 8]) {
            return Err(bad("is damaged: the checksum of its head is wrong"));
        }
        let version = u32_at(raw, 8);
        if version != VERSION {
            return Err(bad(format!("is of version {version}, this Shoal reads {VERSION}")));
        }
        let mut id = [0; 16];
        id.copy_from_slice(&raw[16..32]);
        let (segment_size, segments) = (u64_at(raw, 32), u32_at(raw, 40));
        let head = Head { id, segment_size, segments, pieces: u32_at(raw, 44) };
        let bytes = segment_size.checked_mul(segments.into());
        // As a superblock that could be read would have it.
        let is_good = segment_size.is_power_of_two()
            && bytes.and_then(|bytes| Geometry::fit(bytes, segment_size, 0)).is_some()
            && (1..=segments).contains(&head.pieces);
        match is_good && segment_size <= shoal_base::limits::SEGMENT_SIZE_MAX {
            true => Ok(head),
            false => Err(bad("is damaged: sizes that no volume has")),
        }
    }
}

/// Encodes the head of a piece.
fn piece(segment: u32, length: usize, sum: u64) -> [u8; PIECE] {
    let mut raw = [0; PIECE];
    raw[..4].copy_from_slice(&segment.to_le_bytes());
    raw[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    raw[8..16].copy_from_slice(&sum.to_le_bytes());
    let own = xxh3(&raw[..16]);
    raw[16..].copy_from_slice(&own.to_le_bytes());
    raw
}

/// Adds the checksum of a piece to a chain.
fn chained(chain: u64, sum: u64) -> u64 {
    checksum_seeded(chain, &sum.to_le_bytes())
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(raw: &[u8], at: usize) -> u64 {
    raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn bad(rule: impl std::fmt::Display) -> Error {
    Error::refused(Code::Invalid, format!("the stream {rule}"))
}

fn stream(error: &std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull => Code::NoSpace,
        _ => Code::Io,
    };
    Error::refused(code, format!("the stream: {error}"))
}

/// Writes the volume in a file or on a block device to a stream: all that is in use, exactly as it
/// is. A volume that was not closed is opened and closed first. Returns the bytes written.
///
/// # Errors
/// Those of [`Volume::open`]: above all, the volume must not be in use; those of the stream.
pub fn dump(
    path: &Path,
    out: &mut dyn Write,
    options: &OpenOptions,
    moved: Moved<'_>,
) -> Result<u64> {
    let open = || storage::open(path, OpenMode::ReadOnly, options);
    let mut device = open()?;
    if !shoal_txn::read_superblock(&*device)?.clean {
        drop(device);
        Volume::open(path, options)?.close()?;
        device = open()?;
    }
    let sb = shoal_txn::read_superblock(&*device)?;
    let read_only = OpenOptions { read_only: true, background: false, ..options.clone() };
    let volume = Volume::open_on(device.clone(), &read_only)?;
    dump_open(&volume, &*device, &sb, out, moved)
}

fn dump_open(
    volume: &Volume,
    device: &dyn Device,
    sb: &Superblock,
    out: &mut dyn Write,
    moved: Moved<'_>,
) -> Result<u64> {
    let geometry = sb.geometry;
    let usage = volume.state.store.space().usage().into_iter();
    let used = usage.filter(|(segment, kind, ..)| segment.0 != 0 && *kind != SegKind::Free);
    let mut segments: Vec<u32> = used.map(|(segment, ..)| segment.0).collect();
    segments.push(0);
    let head = Head {
        id: sb.id,
        segment_size: geometry.segment_size,
        segments: geometry.segments,
        pieces: segments.len() as u32,
    };
    let mut written = HEAD as u64;
    out.write_all(&head.encode()).map_err(|e| stream(&e))?;
    let mut raw = vec![0; geometry.segment_size as usize];
    let (all, mut chain) = (segments.len() as u64 * geometry.segment_size, 0);
    for (done, segment) in (0..).zip(segments) {
        moved(done * geometry.segment_size, all);
        device.read_at(&mut raw, u64::from(segment) * geometry.segment_size)?;
        let length = raw.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let (bytes, sum) = (&raw[..length], xxh3(&raw[..length]));
        chain = chained(chain, sum);
        out.write_all(&piece(segment, length, sum)).map_err(|e| stream(&e))?;
        out.write_all(bytes).map_err(|e| stream(&e))?;
        written += (PIECE + length) as u64;
    }
    out.write_all(&piece(END, 0, chain)).and_then(|()| out.flush()).map_err(|e| stream(&e))?;
    moved(all, all);
    Ok(written + PIECE as u64)
}

/// Makes a volume from a stream, in a new file, an existing one or on a block device: with the same
/// contents, size and id. Until everything is there and verified, no volume is there.
///
/// # Errors
/// `Invalid` for a stream that is none, is damaged or ends too early; `Exists` for a device with
/// data, unless `force`; `NoSpace` for one that is too small.
pub fn restore(
    input: &mut dyn Read,
    path: &Path,
    force: bool,
    options: &OpenOptions,
    moved: Moved<'_>,
) -> Result<()> {
    let mut raw = [0; HEAD];
    read(input, &mut raw)?;
    let head = Head::decode(&raw)?;
    let size = head.segment_size * u64::from(head.segments);
    if is_bucket(path) {
        let made = MkfsOptions { size, force, notice: options.notice, ..MkfsOptions::default() };
        let device = make_bucket(path, &made)?;
        fill(input, &*device, &head, true, moved)?;
        return device.close();
    }
    let existed = path.exists();
    let device = FileDevice::create_with(path, size, force, &options.claim())?;
    let is_sparse = !existed;
    let restored = fill(input, &device, &head, is_sparse, moved);
    drop(device);
    if restored.is_err() && !existed {
        // Created by this call, and useless.
        let _ = std::fs::remove_file(path);
    }
    restored
}

fn fill(
    input: &mut dyn Read,
    device: &dyn Device,
    head: &Head,
    is_sparse: bool,
    moved: Moved<'_>,
) -> Result<()> {
    for addr in COPIES {
        // What was there before is no volume any more.
        device.write_at(&[0; SUPERBLOCK], addr)?;
    }
    let (mut chain, mut first) = (0, Vec::new());
    let all = u64::from(head.pieces) * head.segment_size;
    for done in 0..head.pieces {
        moved(u64::from(done) * head.segment_size, all);
        let (segment, bytes, sum) = next(input, head)?;
        chain = chained(chain, sum);
        if (segment == 0) != (done + 1 == head.pieces) {
            return Err(bad("is damaged: its pieces are in another order"));
        }
        match segment {
            0 => first = bytes,
            _ => put(device, &bytes, u64::from(segment) * head.segment_size, is_sparse)?,
        }
    }
    let mut end = [0; PIECE];
    read(input, &mut end)?;
    if end != piece(END, 0, chain) {
        return Err(bad("is damaged: its end is another one's"));
    }
    device.flush()?;
    publish(device, head, first)?;
    moved(all, all);
    Ok(())
}

/// Reads a piece: segment, bytes, checksum.
fn next(input: &mut dyn Read, head: &Head) -> Result<(u32, Vec<u8>, u64)> {
    let mut raw = [0; PIECE];
    read(input, &mut raw)?;
    let (segment, length, sum) = (u32_at(&raw, 0), u32_at(&raw, 4), u64_at(&raw, 8));
    let is_good = segment < head.segments && u64::from(length) <= head.segment_size;
    if u64_at(&raw, 16) != xxh3(&raw[..16]) || !is_good {
        return Err(bad("is damaged: the head of a piece is wrong"));
    }
    let mut bytes = vec![0; length as usize];
    read(input, &mut bytes)?;
    match xxh3(&bytes) == sum {
        true => Ok((segment, bytes, sum)),
        false => Err(bad(format!("is damaged: the checksum of segment {segment} is wrong"))),
    }
}

fn read(input: &mut dyn Read, raw: &mut [u8]) -> Result<()> {
    input.read_exact(raw).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => bad("ends too early: it was cut off"),
        _ => stream(&error),
    })
}

/// Writes bytes; to a new file without the zeros.
pub(crate) fn put(device: &dyn Device, bytes: &[u8], at: u64, is_sparse: bool) -> Result<()> {
    if !is_sparse {
        return device.write_at(bytes, at);
    }
    for (chunk, at) in bytes.chunks(HOLE).zip((at..).step_by(HOLE)) {
        if chunk.iter().any(|byte| *byte != 0) {
            device.write_at(chunk, at)?;
        }
    }
    Ok(())
}

/// Writes segment 0: first everything but the superblocks, which make it a volume.
fn publish(device: &dyn Device, head: &Head, mut first: Vec<u8>) -> Result<()> {
    first.resize(head.segment_size as usize, 0);
    let mut newest: Option<Superblock> = None;
    for addr in COPIES {
        let copy = &mut first[addr as usize..addr as usize + SUPERBLOCK];
        if let Ok(Some(sb)) = Superblock::decode(copy, addr)
            && newest.is_none_or(|known| sb.sequence > known.sequence)
        {
            newest = Some(sb);
        }
        copy.fill(0);
    }
    first[CLAIM as usize..CLAIM as usize + CLAIM_SIZE].fill(0);
    let sb = newest.ok_or_else(|| bad("has no superblock"))?;
    let fits = sb.geometry.segment_size == head.segment_size
        && sb.geometry.segments == head.segments
        && sb.id == head.id
        && sb.clean;
    if !fits {
        return Err(bad("is damaged: its superblock is another volume's"));
    }
    device.write_at(&first, 0)?;
    device.flush()?;
    own_superblocks(device, &sb)
}

/// Writes the superblocks of a copy of the volume with this one, which make it a volume, under an
/// incarnation of its own.
pub(crate) fn own_superblocks(device: &dyn Device, sb: &Superblock) -> Result<()> {
    // One that no original reaches: each opening is an incarnation.
    let incarnation = sb.incarnation.wrapping_add(u32::from_le_bytes(random()?) | 1 << 24);
    for step in 1..=COPIES.len() as u64 {
        let sequence = sb.sequence + step;
        let copy = Superblock { sequence, incarnation, ..*sb };
        device.write_at(&copy.encode(), COPIES[(sequence % COPIES.len() as u64) as usize])?;
    }
    device.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    fn head() -> Head {
        Head { id: [7; 16], segment_size: 1 << 20, segments: 64, pieces: 5 }
    }

    #[test]
    fn heads_read_back_and_sizes_are_checked() {
        assert_eq!(Head::decode(&head().encode()).unwrap(), head());
        for odd in [
            Head { segment_size: 3 << 20, ..head() },
            Head { segment_size: 0, ..head() },
            Head { segment_size: 1 << 63, segments: u32::MAX, ..head() },
            Head { segments: 3, pieces: 3, ..head() },
            Head { pieces: 0, ..head() },
            Head { pieces: 65, ..head() },
        ] {
            assert!(Head::decode(&odd.encode()).is_err(), "{odd:?}");
        }
        for at in 0..HEAD {
            let mut raw = head().encode();
            raw[at] ^= 1;
            assert!(Head::decode(&raw).is_err(), "{at}");
        }
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn arbitrary_pieces_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            length in 0usize..300,
            segment in 0u32..100,
        ) {
            let _ = next(&mut &bytes[..], &head());
            let with_head = [&piece(segment, length, xxh3(&bytes))[..], &bytes].concat();
            let read = next(&mut &with_head[..], &head());
            prop_assert_eq!(read.is_ok(), length == bytes.len() && segment < 64);
        }
    }
}
