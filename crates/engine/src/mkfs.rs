//! Making a volume.

use crate::clock::now;
use crate::random::random;
use crate::stat::attr_of;
use crate::storage::{is_bucket, make_bucket};
use crate::types::{FileKind, MkfsOptions, OpenOptions, VolumeInfo};
use crate::volume::Volume;
use shoal_base::{Code, Error, Ino, Result, limits};
use shoal_device::{ClaimOptions, Device, FileDevice};
use shoal_format::features::RO_COMPAT_PARENTS;
use shoal_format::inode::Core;
use shoal_format::superblock::{COPIES, Superblock};
use shoal_format::{Geometry, Ptr};
use shoal_txn::StoreOptions;
use std::path::Path;
use std::sync::Arc;

/// Default size of a new file.
const SIZE_DEFAULT: u64 = 8 << 30;
/// Maximum number of segments, as long as they can be larger: 2 TiB of 4 MiB.
const SEGMENTS: u64 = 1 << 19;
/// Volumes smaller than this get small segments, so that there are enough of them.
const SMALL: u64 = 512 << 20;

/// Makes a volume in a new file, an existing file, a block device or a bucket. Refuses to overwrite
/// an existing filesystem unless `force`.
pub fn mkfs(path: &Path, options: &MkfsOptions) -> Result<VolumeInfo> {
    if is_bucket(path) {
        check_options(options)?;
        let device = make_bucket(path, options)?;
        mkfs_on(device.clone(), options)?;
        device.close()?;
        drop(device);
        return info(path);
    }
    let exists = path.exists();
    let size = if options.size == 0 && !exists { SIZE_DEFAULT } else { options.size };
    check_options(options)?;
    let claim = ClaimOptions { notice: options.notice, ..ClaimOptions::default() };
    let device = FileDevice::create_with(path, size, options.force, &claim)?;
    let device: Arc<dyn Device> = Arc::new(device);
    if let Err(e) = mkfs_on(device, options) {
        if !exists {
            // Created by this call, and useless.
            let _ = std::fs::remove_file(path);
        }
        return Err(e);
    }
    info(path)
}

/// Reads what was made.
fn info(path: &Path) -> Result<VolumeInfo> {
    let volume = Volume::open(path, &OpenOptions { read_only: true, ..OpenOptions::default() })?;
    Ok(volume.info())
}

fn check_options(options: &MkfsOptions) -> Result<()> {
    let bad = |message: String| Err(Error::refused(Code::Invalid, message));
    let inode = options.inode_size as usize;
    let range = limits::INODE_SIZE_MIN..=limits::INODE_SIZE_MAX;
    if !inode.is_power_of_two() || !range.contains(&inode) {
        return bad(format!("inode size {inode}: must be 256, 512, 1024 or 2048"));
    }
    let (segment, range) =
        (options.segment_size, limits::SEGMENT_SIZE_MIN..=limits::SEGMENT_SIZE_MAX);
    if segment != 0 && (!segment.is_power_of_two() || !range.contains(&segment)) {
        return bad(format!("segment size {segment}: must be a power of two from 1M to 64M"));
    }
    Ok(())
}

fn geometry(device: &dyn Device, options: &MkfsOptions) -> Result<Geometry> {
    let capacity = device.capacity();
    let bytes = if options.size == 0 { capacity } else { options.size.min(capacity) };
    let segment = match options.segment_size {
        0 if bytes < SMALL => limits::SEGMENT_SIZE_MIN,
        0 => {
            // Large volumes get larger segments, because each uses memory while the volume is open.
            let sizes = std::iter::successors(Some(limits::SEGMENT_SIZE_DEFAULT), |s| Some(s * 2));
            let mut sizes = sizes.take_while(|s| *s <= limits::SEGMENT_SIZE_MAX);
            sizes.find(|s| bytes / s <= SEGMENTS).unwrap_or(limits::SEGMENT_SIZE_MAX)
        }
        chosen => chosen,
    };
    if bytes / segment > u64::from(limits::SEGMENTS_MAX) {
        let message = format!(
            "{}: {bytes} bytes is too large for segments of {segment} bytes; \
             choose larger ones (--segment-size, at most 64M) or a smaller --size",
            device.describe()
        );
        return Err(Error::refused(Code::Invalid, message));
    }
    Geometry::fit(bytes, segment, options.inode_size).ok_or_else(|| {
        let smallest = limits::SEGMENTS_MIN * segment;
        let message = format!(
            "{}: {bytes} bytes is too small; a volume needs at least {smallest} (--size)",
            device.describe()
        );
        Error::refused(Code::Invalid, message)
    })
}

/// Makes a volume on an open device, whatever its contents.
pub fn mkfs_on(device: Arc<dyn Device>, options: &MkfsOptions) -> Result<()> {
    check_options(options)?;
    let id = options.id.map_or_else(random_id, Ok)?;
    let geometry = geometry(&*device, options)?;
    for addr in COPIES {
        // An old superblock with a higher sequence must not win.
        device.write_at(&[0; 4096], addr)?;
    }
    let superblock = Superblock {
        id,
        geometry,
        compat: 0,
        ro_compat: if options.parents { RO_COMPAT_PARENTS } else { 0 },
        incompat: options.compression.feature(),
        compression: options.compression,
        sequence: 0,
        incarnation: 1,
        clean: false,
        checkpoint: Ptr::NULL,
        created: now().sec,
        label: options.label,
    };
    let store_options = StoreOptions {
        read_only: false,
        cache_bytes: 8 << 20,
        commit_interval_ms: 5000,
        checkpoint_bytes: u64::MAX,
        background: false,
        #[cfg(feature = "lab")]
        flush_rolls: false,
        discard: true,
        recent: 0,
        segments: 0,
    };
    let store = shoal_txn::create(device, superblock, store_options)?;
    make_top(&store, options)?;
    store.checkpoints().write_clean()
}

/// Returns a random UUID, version 4.
fn random_id() -> Result<[u8; 16]> {
    let mut id: [u8; 16] = random()?;
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Ok(id)
}

/// Creates the top directory, in the first epoch.
fn make_top(store: &shoal_txn::Store, options: &MkfsOptions) -> Result<()> {
    let table = &store.root(Ino::ROOT)?.table;
    let inode = table.numbers().allocate_first()?;
    assert_eq!(inode.ino, Ino::ROOT, "the first inode of a volume is its top");
    let stamp = now();
    let mut locked = inode.write();
    locked.edit(table, store.epoch()).core = Core {
        mode: FileKind::Directory.mode_bits() | options.root_mode & 0o7777,
        nlink: 2,
        uid: options.root_uid,
        gid: options.root_gid,
        generation: 1,
        parent_or_rdev: Ino::ROOT.0,
        atime: stamp,
        mtime: stamp,
        ctime: stamp,
        btime: stamp,
        ..Core::default()
    };
    table.count_inodes(1);
    attr_of(Ino::ROOT, locked.inode()).map(|_| ())
}
