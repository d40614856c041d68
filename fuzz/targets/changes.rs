//! Marks of the change feed, parsed from bytes and text, and refused by a volume that has not made
//! them; the stored window of removed names.

use shoal::{Changes, Credentials, Mark, Volume};
use shoal_txn::{RemovedChunk, RemovedHeader};
use std::sync::OnceLock;

/// A volume, and a mark that it has made.
fn volume() -> &'static (Volume, Mark) {
    static VOLUME: OnceLock<(Volume, Mark)> = OnceLock::new();
    VOLUME.get_or_init(|| {
        let volume = Volume::options().size(64 << 20).in_memory().expect("a volume in memory");
        let root = volume.root(Credentials::root());
        root.write("file", b"contents").expect("a file");
        let mark = Mark::now(&root).expect("a mark");
        (volume, mark)
    })
}

/// The changes since any mark are read to their end, or it is refused.
fn read(mark: &Mark) {
    let (volume, _) = volume();
    match Changes::since(&volume.root(Credentials::root()), Some(mark)) {
        Ok(changes) => changes.for_each(|change| drop(change.expect("a sound volume"))),
        Err(e) => assert!(matches!(e.errno(), 18 | 116), "{e}"),
    }
}

/// Bytes and text of a mark, and of the stored window; then the input as changes of a valid mark.
pub fn changes(data: &[u8]) {
    let (_, valid) = volume();
    if let Ok(mark) = Mark::from_bytes(data) {
        assert_eq!(mark.to_bytes(), data);
        assert_eq!(mark.to_string().parse::<Mark>().ok(), Some(mark));
        read(&mark);
    }
    if let Some(mark) = std::str::from_utf8(data).ok().and_then(|text| text.parse::<Mark>().ok()) {
        // Each mark has one text.
        assert_eq!(mark.to_string().as_bytes(), data);
        read(&mark);
    }
    if let Some(header) = RemovedHeader::from_bytes(data) {
        assert_eq!(header.to_bytes(), data);
    }
    if let Some(chunk) = RemovedChunk::decode(7, data.to_vec()) {
        assert_eq!(chunk.bytes(), data);
    }
    let mut bytes = valid.to_bytes();
    let (checked, sum) = bytes.split_at_mut(49);
    checked.iter_mut().zip(data).for_each(|(byte, change)| *byte ^= change);
    sum.copy_from_slice(&shoal_base::checksum::checksum(checked).to_le_bytes());
    if let Ok(mark) = Mark::from_bytes(&bytes) {
        read(&mark);
    }
}
