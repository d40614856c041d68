//! Overlays whose layers and work directory are on a mount, as those of Docker and Podman. The
//! kernel mounts one on FUSE only if the upper layer has all that it probes for: types in listings,
//! `O_TMPFILE`, extended attributes, `RENAME_WHITEOUT`.

use crate::common::*;
use rustix::fs::{AtFlags, CWD, FileType, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// An overlay of the directories `low`, `up` and `work` of a mount, seen at `merged`.
struct Overlay {
    merged: PathBuf,
}

impl Overlay {
    /// Mounts it, with options of overlayfs.
    fn mount(m: &TestMount, options: &str) -> Overlay {
        let merged = m.base().join("merged");
        fs::create_dir_all(&merged).unwrap();
        let [low, up, work] = ["low", "up", "work"].map(|name| m.path(name).display().to_string());
        let data = format!("lowerdir={low},upperdir={up},workdir={work}{options}");
        let data = CString::new(data).unwrap();
        let mounted = rustix::mount::mount(
            "overlay-of-a-test",
            &merged,
            "overlay",
            MountFlags::empty(),
            Some(&*data),
        );
        mounted.unwrap_or_else(|errno| panic!("an overlay with \"{options}\": {errno}"));
        Overlay { merged }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.merged.join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.merged, UnmountFlags::DETACH);
    }
}

/// Mounts a volume with the layers of an overlay; `None`: cannot be tested here.
fn layers(options: &str) -> Option<TestMount> {
    let m = mount_only(options)?;
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !known.lines().any(|line| line.ends_with("\toverlay")) {
        skipped("no overlayfs in this kernel");
        return None;
    }
    for name in ["low/dir/sub", "low/gone", "low/kept", "up", "work"] {
        fs::create_dir_all(m.path(name)).unwrap();
    }
    for name in ["low/file", "low/other", "low/dir/inner", "low/gone/inner", "low/kept/inner"] {
        fs::write(m.path(name), name).unwrap();
    }
    chown(m.path("low/file"), USER, OTHER);
    chmod(m.path("low/file"), 0o640);
    let (name, flags) = (m.path("low/file"), XattrFlags::empty());
    rustix::fs::setxattr(&name, "user.note", b"kept", flags).unwrap();
    Some(m)
}

fn is_whiteout(path: impl AsRef<Path>) -> bool {
    let found = lstat(path).unwrap();
    let (kind, device) = (FileType::from_raw_mode(found.st_mode), found.st_rdev);
    kind == FileType::CharacterDevice && device == 0
}

fn xattr(path: impl AsRef<Path>, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    match rustix::fs::lgetxattr(path.as_ref(), name, &mut value) {
        Ok(len) => Some(value[..len].to_vec()),
        Err(Errno::NODATA) => None,
        Err(errno) => panic!("{name} of {:?}: {errno}", path.as_ref()),
    }
}

/// The calls of a container on its layers; `prefix` is that of the overlay's own attributes.
fn work_in(m: &TestMount, options: &str, prefix: &str) {
    let overlay = Overlay::mount(m, options);
    let at = |name: &str| overlay.path(name);
    // Copied up by a write, with owner, mode and attributes.
    fs::write(at("file"), "changed").unwrap();
    let copied = stat(m.path("up/file")).unwrap();
    assert_eq!((copied.st_uid, copied.st_gid, copied.st_mode & 0o7777), (USER, OTHER, 0o640));
    assert_eq!(xattr(m.path("up/file"), "user.note").unwrap(), b"kept");
    assert_eq!(fs::read(m.path("low/file")).unwrap(), b"low/file");
    // Removed, and renamed: whiteouts.
    unlink(at("other")).unwrap();
    assert!(is_whiteout(m.path("up/other")));
    rename(at("file"), at("renamed")).unwrap();
    assert!(is_whiteout(m.path("up/file")));
    rename(at("dir/inner"), at("kept/inner")).unwrap();
    assert!(is_whiteout(m.path("up/dir/inner")));
    assert_eq!(fs::read(at("kept/inner")).unwrap(), b"low/dir/inner");
    // A directory that is removed and made again hides that of the lower layer.
    fs::remove_dir_all(at("gone")).unwrap();
    assert!(is_whiteout(m.path("up/gone")));
    mkdir(at("gone"), 0o755).unwrap();
    assert_eq!(list(at("gone")), [""; 0]);
    assert_eq!(xattr(m.path("up/gone"), &format!("{prefix}opaque")).unwrap(), b"y");
    // The names that a whiteout hides can be used again.
    fs::write(at("other"), b"new").unwrap();
    assert!(fs::symlink_metadata(m.path("up/other")).unwrap().is_file());
    rename(at("other"), at("file")).unwrap();
    symlink("renamed", at("link")).unwrap();
    link(at("renamed"), at("hard")).unwrap();
    assert_eq!(stat(at("renamed")).unwrap().st_nlink, 2);
    let unnamed = unnamed(&overlay.merged);
    rustix::io::write(&unnamed, b"unnamed").unwrap();
    rustix::fs::linkat(&unnamed, "", CWD, at("tmp"), AtFlags::EMPTY_PATH).unwrap();
    let names = ["dir", "file", "gone", "hard", "kept", "link", "renamed", "tmp"];
    assert_eq!(list(&overlay.merged), names);
    drop(overlay);
    // Seen the same by another overlay of the layers.
    let again = Overlay::mount(m, options);
    assert_eq!(list(&again.merged), names);
    assert_eq!(fs::read(again.path("link")).unwrap(), b"changed");
    assert_eq!(fs::read(again.path("tmp")).unwrap(), b"unnamed");
    assert_eq!(list(again.path("dir")), ["sub"]);
    assert_eq!(fs::read(again.path("kept/inner")).unwrap(), b"low/dir/inner");
}

#[test]
fn upper_layer() {
    for options in ["no_handles", "allow_other,no_handles", "no_open,no_handles"] {
        let Some(m) = layers(options) else { return };
        work_in(&m, "", "trusted.overlay.");
    }
}

/// As a rootless container mounts it.
#[test]
fn upper_layer_with_attributes_of_users() {
    let Some(m) = layers("allow_other,no_handles") else { return };
    work_in(&m, ",userxattr", "user.overlay.");
}

/// A directory of the lower layer is renamed without a copy of what is in it.
#[test]
fn renamed_directories() {
    let Some(m) = layers("allow_other,no_handles") else { return };
    let overlay = Overlay::mount(&m, ",redirect_dir=on,metacopy=on");
    rename(overlay.path("dir"), overlay.path("moved")).unwrap();
    assert!(is_whiteout(m.path("up/dir")));
    assert_eq!(xattr(m.path("up/moved"), "trusted.overlay.redirect").unwrap(), b"dir");
    assert_eq!(list(m.path("up/moved")), [""; 0]);
    assert_eq!(list(overlay.path("moved")), ["inner", "sub"]);
    // Exchanged through the overlay, and a name of the lower layer that is not replaced.
    let with = |from, to, flags| {
        rustix::fs::renameat_with(CWD, overlay.path(from), CWD, overlay.path(to), flags)
    };
    with("file", "other", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(overlay.path("other")).unwrap(), b"low/file");
    fails!(EXIST, with("file", "other", RenameFlags::NOREPLACE));
    chmod(overlay.path("other"), 0o600);
    assert_eq!(xattr(m.path("up/other"), "trusted.overlay.metacopy").map(|it| it.len()), Some(0));
    assert_eq!(fs::read(overlay.path("other")).unwrap(), b"low/file");
}

/// With handles the kernel finds the origin of a copied file by one when it has dropped its inodes,
/// and FUSE (Linux 6.18) takes an origin without a name for gone: `ESTALE`.
#[test]
fn layers_after_eviction() {
    let Some(m) = layers("allow_other,no_handles") else { return };
    let overlay = Overlay::mount(&m, "");
    fs::write(overlay.path("file"), "changed").unwrap();
    rename(overlay.path("file"), overlay.path("renamed")).unwrap();
    for round in 0..10 {
        drop_caches();
        for _ in 0..3 {
            let found = stat(overlay.path("renamed"));
            assert_eq!(found.map(|it| it.st_size), Ok(7), "round {round}");
            assert_eq!(list(overlay.path("dir")), ["inner", "sub"]);
        }
    }
}

/// Whiteouts outlive the server.
#[test]
fn whiteouts_after_a_crash() {
    let Some(mut m) = layers("no_handles") else { return };
    let overlay = Overlay::mount(&m, "");
    rename(overlay.path("file"), overlay.path("renamed")).unwrap();
    fs::File::open(&overlay.merged).unwrap().sync_all().unwrap();
    fs::File::open(m.path("up")).unwrap().sync_all().unwrap();
    drop(overlay);
    m.kill();
    let _ = shoal_fuse::unmount_lazy(&m.dir);
    m.start(0);
    let overlay = Overlay::mount(&m, "");
    assert_eq!(list(&overlay.merged), ["dir", "gone", "kept", "other", "renamed"]);
    assert!(fs::symlink_metadata(m.path("up/file")).unwrap().file_type().is_char_device());
}
