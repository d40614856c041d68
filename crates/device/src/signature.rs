//! Well-known signatures of other formats, so that a typing error in a `mkfs` command does not
//! destroy data. A table, so that a new format needs only a new row.

use crate::device::Device;
use shoal_base::Result;

/// One signature: `bytes` at `offset`, or at any of `count` places `stride` bytes apart.
struct Signature {
    name: &'static str,
    at: At,
    stride: u64,
    count: u64,
    bytes: &'static [u8],
}

/// The place of a signature.
#[derive(Clone, Copy)]
enum At {
    /// Bytes from the start of the device.
    Start(u64),
    /// In the last whole block of `block` bytes that starts at least `back` bytes before the end.
    End { back: u64, block: u64 },
}

const fn row(name: &'static str, offset: u64, bytes: &'static [u8]) -> Signature {
    Signature { name, at: At::Start(offset), stride: 0, count: 1, bytes }
}

const fn rows(
    name: &'static str,
    offset: u64,
    stride: u64,
    count: u64,
    bytes: &'static [u8],
) -> Signature {
    Signature { name, at: At::Start(offset), stride, count, bytes }
}

const fn from_end(name: &'static str, back: u64, block: u64, bytes: &'static [u8]) -> Signature {
    Signature { name, at: At::End { back, block }, stride: 0, count: 1, bytes }
}

const MD_RAID: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const ZFS_UBERBLOCK: &[u8] = &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];
const BCACHE: &[u8] = &[
    0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81,
];
const BCACHEFS: &[u8] = &[
    0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef,
];

/// The first match wins: exact signatures first, the two bytes that end every boot sector last
/// (FAT, NTFS, exFAT and many bootable images have them too).
#[rustfmt::skip]
const SIGNATURES: &[Signature] = &[
    rows("Shoal", 0, 65_536, 2, b"SHOALFS1"),
    row("LUKS", 0, b"LUKS\xba\xbe"),
    row("XFS", 0, b"XFSB"),
    row("squashfs", 0, b"hsqs"),
    row("Ceph BlueStore", 0, b"bluestore block device"),
    row("APFS", 32, b"NXSB"),
    row("ext2/ext3/ext4", 1080, &[0x53, 0xef]),
    row("btrfs", 65_600, b"_BHRfS_M"),
    row("bcachefs", 4096 + 24, BCACHEFS),
    row("bcache or old bcachefs", 4096 + 24, BCACHE),
    row("F2FS", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    row("EROFS", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    row("JFS", 32_768, b"JFS1"),
    row("ReiserFS", 65_536 + 52, b"ReIsEr"),
    row("GFS2", 65_536, &[0x01, 0x16, 0x19, 0x70]),
    row("ISO 9660", 32_769, b"CD001"),
    row("NTFS", 3, b"NTFS    "),
    row("exFAT", 3, b"EXFAT   "),
    row("FAT12", 54, b"FAT12   "),
    row("FAT16", 54, b"FAT16   "),
    row("FAT32", 82, b"FAT32   "),
    row("Linux swap", 4086, b"SWAPSPACE2"),
    row("old Linux swap", 4086, b"SWAP-SPACE"),
    rows("LVM2 physical volume", 0, 512, 4, b"LABELONE"),
    rows("ZFS", 128 << 10, 1024, 128, ZFS_UBERBLOCK),
    rows("ZFS (second label)", 384 << 10, 1024, 128, ZFS_UBERBLOCK),
    row("MD RAID 1.1", 0, MD_RAID),
    row("MD RAID 1.2", 4096, MD_RAID),
    from_end("MD RAID 1.0", 8192, 4096, MD_RAID),
    from_end("MD RAID 0.90", 65_536, 65_536, MD_RAID),
    row("GPT partition table", 512, b"EFI PART"),
    row("GPT partition table (4 KiB sectors)", 4096, b"EFI PART"),
    from_end("GPT partition table (backup copy)", 512, 512, b"EFI PART"),
    row("MBR partition table or boot sector", 510, &[0x55, 0xaa]),
];

/// Returns the name of the format found on the device; `None` if no known signature is found.
pub fn foreign_signature(dev: &dyn Device) -> Result<Option<&'static str>> {
    for signature in SIGNATURES {
        if matches(dev, signature)? {
            return Ok(Some(signature.name));
        }
    }
    Ok(None)
}

fn matches(dev: &dyn Device, signature: &Signature) -> Result<bool> {
    let Some(first) = first_place(dev.capacity(), signature.at) else { return Ok(false) };
    if first >= dev.capacity() {
        return Ok(false);
    }
    let len = signature.bytes.len() as u64;
    let span = signature.stride * (signature.count - 1) + len;
    // One read for all places. Those past the end of a small device are skipped.
    let span = span.min(dev.capacity() - first);
    let mut found = vec![0; span as usize];
    dev.read_at(&mut found, first)?;
    Ok((0..signature.count).any(|n| {
        let at = (n * signature.stride) as usize;
        found.get(at..at + signature.bytes.len()) == Some(signature.bytes)
    }))
}

fn first_place(capacity: u64, at: At) -> Option<u64> {
    match at {
        At::Start(offset) => Some(offset),
        At::End { back, block } => capacity.checked_sub(back).map(|at| at / block * block),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileDevice, MemDevice, OpenMode};
    use std::process::Command;

    const CAPACITY: u64 = (2 << 20) + 4096;

    #[test]
    fn every_row_is_found_at_each_of_its_places() {
        for signature in SIGNATURES {
            for n in [0, signature.count / 2, signature.count - 1] {
                let dev = MemDevice::new(CAPACITY);
                let first = first_place(CAPACITY, signature.at).unwrap();
                dev.write_at(signature.bytes, first + n * signature.stride).unwrap();
                assert_eq!(foreign_signature(&dev).unwrap(), Some(signature.name), "place {n}");
            }
        }
    }

    #[test]
    fn a_fat_volume_is_not_called_a_boot_sector() {
        let dev = MemDevice::new(CAPACITY);
        dev.write_at(&[0x55, 0xaa], 510).unwrap();
        dev.write_at(b"FAT32   ", 82).unwrap();
        assert_eq!(foreign_signature(&dev).unwrap(), Some("FAT32"));
    }

    #[test]
    fn nothing_is_found_on_an_empty_or_tiny_device() {
        for capacity in [0, 1, 511, 512, 5000, 70_000, CAPACITY] {
            assert_eq!(foreign_signature(&MemDevice::new(capacity)).unwrap(), None);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut seen = std::collections::HashSet::new();
        assert!(SIGNATURES.iter().all(|s| seen.insert(s.name)));
    }

    /// Real images, made by their own tools. A tool that is not installed is named.
    #[test]
    fn real_images_are_recognised() {
        let dir = crate::file::tests::TempDir::new("signature");
        for (tool, args, name) in [
            ("mkfs.ext4", &["-q", "-F"][..], "ext2/ext3/ext4"),
            ("mkfs.xfs", &["-q", "-f"][..], "XFS"),
            ("mkfs.btrfs", &["-q", "-f"][..], "btrfs"),
            ("mkswap", &[][..], "Linux swap"),
        ] {
            let path = dir.path().join(tool);
            std::fs::File::create(&path).unwrap().set_len(320 << 20).unwrap();
            let ran = Command::new(tool).args(args).arg(&path).output();
            match ran {
                Ok(output) if output.status.success() => {}
                other => {
                    shoal_skip::skipped(&format!("{tool}: {:?}", other.map(|o| o.status)));
                    continue;
                }
            }
            let dev = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
            assert_eq!(foreign_signature(&dev).unwrap(), Some(name), "{tool}");
        }
    }
}
