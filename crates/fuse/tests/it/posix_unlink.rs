//! `unlink`, `rmdir`, hard links, and open files without a name.

use crate::common::*;
use rustix::fs::{AtFlags, CWD, OFlags};

#[test]
fn errors() {
    let Some(m) = mount("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    touch(m.path("dir/file"));
    touch(m.path("file"));
    symlink("dir", m.path("link")).unwrap();
    fails!(NOENT, unlink(m.path("none")));
    fails!(ISDIR, unlink(m.path("dir")));
    fails!(NOTDIR, unlink(m.path("file/x")));
    fails!(NOENT, rmdir(m.path("none")));
    fails!(NOTDIR, rmdir(m.path("file")));
    fails!(NOTDIR, rmdir(m.path("link")));
    fails!(NOTEMPTY, rmdir(m.path("dir")));
    fails!(INVAL, rmdir(m.path("dir/.")));
    fails!(NOTEMPTY, rmdir(m.path("dir/..")));
    fails!(EXIST, mkdir(m.path("dir"), 0o755));
    fails!(EXIST, mkdir(m.path("file"), 0o755));
    fails!(EXIST, mkdir(m.path("link"), 0o755));
    fails!(EXIST, symlink("x", m.path("file")));
    unlink(m.path("dir/file")).unwrap();
    rmdir(m.path("dir")).unwrap();
    unlink(m.path("link")).unwrap();
    assert_eq!(list(&m.dir), ["file"]);
}

#[test]
fn an_open_file_lives_on() {
    let Some(m) = mount("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    pwrite(&fd, 0, b"before");
    unlink(m.path("file")).unwrap();
    fails!(NOENT, stat(m.path("file")));
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_nlink, 0);
    pwrite(&fd, 6, b" and after");
    assert_eq!(pread(&fd, 0, 99), b"before and after");
    rustix::fs::ftruncate(&fd, 3).unwrap();
    assert_eq!(pread(&fd, 0, 99), b"bef");
    rustix::fs::fsync(&fd).unwrap();
    // A new file of that name is another file.
    let new = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    let (old, new) = (rustix::fs::fstat(&fd).unwrap(), rustix::fs::fstat(&new).unwrap());
    assert_ne!(old.st_ino, new.st_ino);
}

/// The kernel may have dropped the inode but for the open file.
#[test]
fn an_open_file_lives_on_without_the_kernels_caches() {
    let Some(m) = mount("") else { return };
    let data = pattern(1 << 20, 1);
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    pwrite(&fd, 0, &data);
    unlink(m.path("file")).unwrap();
    drop_caches();
    for number in 0..100 {
        touch(m.path(&format!("new{number}")));
    }
    assert_eq!(pread(&fd, 0, 2 << 20), data);
}

#[test]
fn a_removed_directory_in_use() {
    let Some(m) = mount("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    let dir = open(m.path("dir"), OFlags::DIRECTORY).unwrap();
    rmdir(m.path("dir")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let flags = OFlags::CREATE | OFlags::WRONLY;
    fails!(NOENT, rustix::fs::openat(&dir, "x", flags, mode));
    fails!(NOENT, rustix::fs::mkdirat(&dir, "x", mode));
    assert_eq!(rustix::fs::fstat(&dir).unwrap().st_nlink, 0);
    mkdir(m.path("dir"), 0o755).unwrap();
    fails!(NOENT, rustix::fs::openat(&dir, "x", flags, mode));
    touch(m.path("dir/x"));
}

#[test]
fn hard_links() {
    let Some(m) = mount("") else { return };
    std::fs::write(m.path("a"), b"shared").unwrap();
    mkdir(m.path("dir"), 0o755).unwrap();
    link(m.path("a"), m.path("b")).unwrap();
    link(m.path("a"), m.path("dir/c")).unwrap();
    let facts = stat(m.path("a")).unwrap();
    assert_eq!(facts.st_nlink, 3);
    assert_eq!(stat(m.path("dir/c")).unwrap().st_ino, facts.st_ino);
    std::fs::write(m.path("b"), b"changed").unwrap();
    assert_eq!(std::fs::read(m.path("dir/c")).unwrap(), b"changed");
    unlink(m.path("a")).unwrap();
    assert_eq!(stat(m.path("b")).unwrap().st_nlink, 2);
    unlink(m.path("b")).unwrap();
    assert_eq!(std::fs::read(m.path("dir/c")).unwrap(), b"changed");
    fails!(EXIST, link(m.path("dir/c"), m.path("dir/c")));
    fails!(NOENT, link(m.path("none"), m.path("x")));
    fails!(PERM, link(m.path("dir"), m.path("x")));
    // A link to a symlink is to the symlink itself.
    symlink("dir/c", m.path("s")).unwrap();
    link(m.path("s"), m.path("s2")).unwrap();
    assert_eq!(lstat(m.path("s2")).unwrap().st_ino, lstat(m.path("s")).unwrap().st_ino);
}

#[test]
fn many_links_to_one_file() {
    let Some(mut m) = mount("") else { return };
    touch(m.path("0"));
    for number in 1..500 {
        link(m.path("0"), m.path(&number.to_string())).unwrap();
    }
    assert_eq!(stat(m.path("77")).unwrap().st_nlink, 500);
    m.remount();
    assert_eq!(stat(m.path("499")).unwrap().st_nlink, 500);
    for number in 0..499 {
        unlink(m.path(&number.to_string())).unwrap();
    }
    assert_eq!(stat(m.path("499")).unwrap().st_nlink, 1);
}

#[test]
fn links_of_directories_are_counted() {
    let Some(m) = mount_only("") else { return };
    assert_eq!(stat(&m.dir).unwrap().st_nlink, 2);
    for name in ["a", "b", "c"] {
        mkdir(m.path(name), 0o755).unwrap();
    }
    touch(m.path("file"));
    assert_eq!(stat(&m.dir).unwrap().st_nlink, 5);
    rmdir(m.path("b")).unwrap();
    assert_eq!(stat(&m.dir).unwrap().st_nlink, 4);
}

#[test]
fn temporary_files_without_a_name() {
    let Some(m) = mount("") else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    let fd = rustix::fs::open(&m.dir, flags, mode).unwrap();
    pwrite(&fd, 0, b"contents");
    let facts = rustix::fs::fstat(&fd).unwrap();
    assert_eq!((facts.st_nlink, facts.st_mode & 0o7777), (0, 0o640));
    assert!(list(&m.dir).is_empty());
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    rustix::fs::linkat(CWD, &path, CWD, m.path("name"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_nlink, 1);
    assert_eq!(std::fs::read(m.path("name")).unwrap(), b"contents");
    // O_EXCL: it may never get a name.
    let fd = rustix::fs::open(&m.dir, flags | OFlags::EXCL, mode).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    fails!(NOENT, rustix::fs::linkat(CWD, &path, CWD, m.path("other"), AtFlags::SYMLINK_FOLLOW));
    fails!(INVAL, rustix::fs::open(&m.dir, OFlags::TMPFILE, mode));
    // The umask applies.
    with_umask(0o077, || {
        let fd = rustix::fs::open(&m.dir, flags, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_mode & 0o7777, 0o600);
    });
}

/// Unmounting while the server still holds unlinked inodes must leave a clean volume.
#[test]
fn removed_trees_are_gone_after_a_remount() {
    let Some(mut m) = mount("") else { return };
    for dir in 0..10 {
        mkdir(m.path(&format!("d{dir}")), 0o755).unwrap();
        for file in 0..50 {
            std::fs::write(m.path(&format!("d{dir}/f{file}")), vec![b'x'; file * 100]).unwrap();
        }
    }
    for dir in 0..9 {
        std::fs::remove_dir_all(m.path(&format!("d{dir}"))).unwrap();
    }
    m.remount();
    assert_eq!(list(&m.dir), ["d9"]);
    assert_eq!(list(m.path("d9")).len(), 50);
    assert_eq!(stat(m.path("d9/f49")).unwrap().st_size, 4900);
}
