//! Backing files of a block device, as far as sysfs shows them: those of loop devices, through
//! partitions and device mapper.
//!
//! A `flock` on a loop device is invisible to an opener of its backing file, or of another loop
//! device over it. So an opener of a block device locks the backing files too, where any two of
//! them meet. This is quick and names the holder, but it covers only visible files: not a path in
//! another mount namespace, not a deleted file, not another host. The claim in the volume covers
//! those.
//!
//! A device that is only a part of its backing file (a partition, a device mapper table, a loop
//! device with an offset) takes a shared lock, because other parts may be other volumes. A device
//! that is the whole file takes an exclusive one.

use rustix::fs::{major, minor};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Deepest stack of devices examined.
const DEPTH_MAX: u32 = 8;
/// Largest number of backing files examined.
const FILES_MAX: usize = 64;

/// A backing file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Backing {
    pub path: PathBuf,
    /// `true` if the device is the whole file, from its start.
    pub is_whole: bool,
}

/// Returns the backing files below block device number `rdev`.
pub(crate) fn below(rdev: u64) -> Vec<Backing> {
    let mut found = Vec::new();
    walk(Path::new("/sys"), &sysfs_of(Path::new("/sys"), rdev), true, 0, &mut found);
    found
}

fn sysfs_of(sys: &Path, rdev: u64) -> PathBuf {
    sys.join(format!("dev/block/{}:{}", major(rdev), minor(rdev)))
}

fn walk(sys: &Path, device: &Path, is_whole: bool, depth: u32, found: &mut Vec<Backing>) {
    let Ok(device) = device.canonicalize() else { return };
    if depth > DEPTH_MAX || found.len() >= FILES_MAX {
        return;
    }
    if device.join("partition").exists() {
        let disk = device.parent().unwrap_or(&device);
        return walk(sys, disk, false, depth + 1, found);
    }
    if let Some(path) = backing_file(&device) {
        let zero = |name: &str| number_in(&device.join("loop").join(name)) == Some(0);
        let is_whole = is_whole && zero("offset") && zero("sizelimit");
        if let Ok(meta) = std::fs::metadata(&path)
            && meta.file_type().is_block_device()
        {
            walk(sys, &sysfs_of(sys, meta.rdev()), is_whole, depth + 1, found);
        }
        found.push(Backing { path, is_whole });
    }
    for lower in std::fs::read_dir(device.join("slaves")).into_iter().flatten().flatten() {
        walk(sys, &lower.path(), false, depth + 1, found);
    }
}

/// The backing file of a loop device, from its directory in sysfs.
fn backing_file(device: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mut raw = std::fs::read(device.join("loop/backing_file")).ok()?;
    if raw.last() == Some(&b'\n') {
        raw.pop();
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(raw)))
}

fn number_in(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns a loop device over an opened file that is in exclusive use: mounted, or part of another
/// device.
pub(crate) fn used_loop_over(opened: &Metadata) -> Option<PathBuf> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.filter(|device| device.file_name().as_encoded_bytes().starts_with(b"loop")).find_map(
        |device| {
            let backing = std::fs::metadata(backing_file(&device.path())?).ok()?;
            let node = Path::new("/dev").join(device.file_name());
            (is_same(&backing, opened) && is_held(&node)).then_some(node)
        },
    )
}

fn is_same(one: &Metadata, two: &Metadata) -> bool {
    match one.file_type().is_block_device() {
        true => two.file_type().is_block_device() && one.rdev() == two.rdev(),
        false => (one.dev(), one.ino()) == (two.dev(), two.ino()),
    }
}

/// Returns whether an exclusive open of a block device fails.
fn is_held(node: &Path) -> bool {
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(exclusive).open(node);
    opened.is_err_and(|e| e.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()))
}

/// Opens a backing file for locking.
pub(crate) fn open(path: &Path) -> Option<File> {
    // Exclusive locks on NFS require a file that is open for writing.
    let open = |write: bool| OpenOptions::new().read(true).write(write).open(path);
    open(true).or_else(|_| open(false)).ok()
}

/// Magic numbers of filesystems whose files no other host can access as the same files.
const LOCAL: [u64; 12] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlay
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x4d44,      // FAT
];

/// Returns whether an open file is on a filesystem of this machine only.
pub(crate) fn is_local(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::TempDir;
    use rustix::fs::makedev;
    use std::fs::{create_dir_all, write};

    /// A fake sysfs: a loop device, one with an offset, a partition, a mapped device over it.
    #[test]
    fn backing_files_are_found_through_partitions_and_mapped_devices() {
        let dir = TempDir::new("sysfs");
        let sys = dir.path().join("sys");
        let devices = sys.join("devices/block");
        let device = |name: &str, number: &str| {
            create_dir_all(devices.join(name)).unwrap();
            create_dir_all(sys.join("dev/block")).unwrap();
            let link = sys.join("dev/block").join(number);
            std::os::unix::fs::symlink(devices.join(name), link).unwrap();
        };
        let looped = |name: &str, offset: &str| {
            create_dir_all(devices.join(name).join("loop")).unwrap();
            write(devices.join(name).join("loop/backing_file"), "/v a.img\n").unwrap();
            write(devices.join(name).join("loop/offset"), offset).unwrap();
            write(devices.join(name).join("loop/sizelimit"), "0\n").unwrap();
        };
        device("loop0", "7:0");
        looped("loop0", "0\n");
        device("loop1", "7:1");
        looped("loop1", "4096\n");
        device("loop0/loop0p1", "259:0");
        write(devices.join("loop0/loop0p1/partition"), "1\n").unwrap();
        device("dm-0", "253:0");
        create_dir_all(devices.join("dm-0/slaves")).unwrap();
        let slave = devices.join("dm-0/slaves/loop0p1");
        std::os::unix::fs::symlink(devices.join("loop0/loop0p1"), slave).unwrap();
        device("vda", "252:0");
        let below = |major, minor| {
            let mut found = Vec::new();
            walk(&sys, &sysfs_of(&sys, makedev(major, minor)), true, 0, &mut found);
            found.into_iter().map(|it| (it.path, it.is_whole)).collect::<Vec<_>>()
        };
        let file = |is_whole| vec![(PathBuf::from("/v a.img"), is_whole)];
        assert_eq!(below(7, 0), file(true));
        assert_eq!(below(7, 1), file(false));
        assert_eq!(below(259, 0), file(false));
        assert_eq!(below(253, 0), file(false));
        assert_eq!(below(252, 0), []);
        assert_eq!(below(1, 1), []);
    }

    #[test]
    fn devices_stacked_in_a_circle_end() {
        let dir = TempDir::new("circle");
        let sys = dir.path().join("sys");
        let slaves = sys.join("devices/dm-0/slaves");
        create_dir_all(&slaves).unwrap();
        std::os::unix::fs::symlink(sys.join("devices/dm-0"), slaves.join("dm-0")).unwrap();
        let mut found = Vec::new();
        walk(&sys, &sys.join("devices/dm-0"), true, 0, &mut found);
        assert_eq!(found, []);
    }
}
