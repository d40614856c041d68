//! The mount as such: options, beginning and end, sync, a dead server, other users.

use crate::common::*;
use rustix::fs::OFlags;
use shoal::raw::{Caller, TreeCheck};
use shoal_fuse::MountOptions;
use shoal_skip::wait_until;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn entry_of(dir: &std::path::Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let wanted = format!(" {} ", dir.display());
    table.lines().find(|line| line.contains(&wanted)).map(str::to_owned)
}

#[test]
fn how_it_shows() {
    let Some(mut m) = mount_only("noexec,noatime") else { return };
    let line = entry_of(&m.dir).unwrap();
    let wanted = format!("{} {} fuse.shoal ", m.volume().display(), m.dir.display());
    assert!(line.starts_with(&wanted), "{line}");
    for option in ["rw", "nosuid", "nodev", "noexec", "noatime", "user_id=0", "group_id=0"] {
        assert!(line.contains(option), "{option}: {line}");
    }
    assert!(shoal_fuse::is_mounted(&m.dir));
    assert!(!shoal_fuse::is_mounted(m.base()));
    assert_eq!(shoal_fuse::server_pid(&m.dir), Some(m.server_pid()));
    touch(m.path("file"));
    m.stop();
    assert!(entry_of(&m.dir).is_none());
    assert!(!shoal_fuse::is_mounted(&m.dir));
    assert_eq!(shoal_fuse::server_pid(&m.dir), None);
}

#[test]
fn a_name_of_ones_own() {
    let Some(m) = mount_only("fsname=my volume,allow_other") else { return };
    let line = entry_of(&m.dir).unwrap();
    assert!(line.starts_with("my\\040volume "), "{line}");
    assert!(line.contains("allow_other") && line.contains("default_permissions"), "{line}");
}

#[test]
fn read_only() {
    let Some(mut m) = mount_only("") else { return };
    std::fs::write(m.path("file"), b"x").unwrap();
    m.stop();
    let Some(mut ro) = mount_only("ro") else { return };
    std::fs::rename(m.volume(), m.base().join("moved")).unwrap();
    ro.stop();
    std::fs::rename(m.base().join("moved"), ro.volume()).unwrap();
    ro.start(0);
    assert_eq!(std::fs::read(ro.path("file")).unwrap(), b"x");
    fails!(ROFS, create(ro.path("new"), OFlags::WRONLY, 0o600));
    fails!(ROFS, open(ro.path("file"), OFlags::WRONLY));
    fails!(ROFS, unlink(ro.path("file")));
    fails!(ROFS, try_chmod(ro.path("file"), 0o600));
}

/// Everything is there, and the volume free, as soon as `unmount_and_wait` returns.
#[test]
fn unmounting_waits() {
    let Some(mut m) = mount_only("") else { return };
    for round in 0..5 {
        for number in 0..100 {
            std::fs::write(m.path(&format!("{round}-{number}")), b"contents").unwrap();
        }
        m.remount();
        assert_eq!(list(&m.dir).len(), (round + 1) * 100);
    }
}

#[test]
fn a_busy_mount_is_not_unmounted() {
    let Some(m) = mount_only("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    let error = shoal_fuse::unmount_and_wait(&m.dir).unwrap_err();
    assert_eq!(error.code(), shoal::raw::Code::Busy);
    assert!(error.to_string().contains("in use"), "{error}");
    pwrite(&fd, 0, b"still here");
    assert_eq!(pread(&fd, 0, 99), b"still here");
}

#[test]
fn detaching_ends_with_the_last_user() {
    let Some(mut m) = mount_only("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    shoal_fuse::unmount_lazy(&m.dir).unwrap();
    assert!(!shoal_fuse::is_mounted(&m.dir));
    pwrite(&fd, 0, b"still here");
    assert_eq!(pread(&fd, 0, 99), b"still here");
    drop(fd);
    let status = m.wait_for_server();
    assert!(status.success(), "{status}");
    m.start(0);
    assert_eq!(std::fs::read(m.path("file")).unwrap(), b"still here");
}

#[test]
fn busy_and_bad_mount_points() {
    let Some(m) = mount_only("") else { return };
    let other = m.base().join("other-volume");
    let wish = shoal::raw::MkfsOptions { size: 64 << 20, ..shoal::raw::MkfsOptions::default() };
    shoal::raw::mkfs(&other, &wish).unwrap();
    let options = shoal::raw::OpenOptions::default();
    let volume = Arc::new(shoal::raw::Volume::open(&other, &options).unwrap());
    let try_mount = |dir: &std::path::Path| {
        let options = MountOptions::default();
        match shoal_fuse::Mount::new(volume.clone(), dir, "x", &options) {
            Ok(_) => panic!("mounted"),
            Err(error) => error,
        }
    };
    let busy = try_mount(&m.dir);
    assert_eq!(busy.code(), shoal::raw::Code::Busy, "{busy}");
    assert!(!busy.to_string().contains("lost its server"), "{busy}");
    let missing = try_mount(&m.base().join("missing"));
    assert_eq!(missing.code(), shoal::raw::Code::NotFound, "{missing}");
    let file = try_mount(&other);
    assert_eq!(file.code(), shoal::raw::Code::NotDirectory, "{file}");
    for error in [busy, missing, file] {
        assert!(!error.to_string().contains('\n'));
    }
    Arc::try_unwrap(volume).ok().unwrap().close().unwrap();
}

#[test]
fn a_dead_server() {
    let Some(mut m) = mount_only("") else { return };
    touch(m.path("synced"));
    shoal_fuse::sync(&m.dir).unwrap();
    m.kill();
    // Cached attributes would still be shown; the volume's figures are never cached. (CANCELED: the
    // kernel dismantles a dead server's rings in the background.)
    use rustix::io::Errno;
    match rustix::fs::statvfs(&m.dir) {
        Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => {}
        other => panic!("{:?}", other.map(drop)),
    }
    assert!(shoal_fuse::is_mounted(&m.dir), "the dead mount is still found");
    assert_eq!(shoal_fuse::server_pid(&m.dir), None);
    // A new server must not be hidden under it.
    let volume = Arc::new(
        shoal::raw::Volume::open(&m.volume(), &shoal::raw::OpenOptions::default()).unwrap(),
    );
    let options = MountOptions::default();
    match shoal_fuse::Mount::new(volume.clone(), &m.dir, "x", &options) {
        Ok(_) => panic!("mounted"),
        Err(error) => assert!(error.to_string().contains("lost its server"), "{error}"),
    }
    Arc::try_unwrap(volume).ok().unwrap().close().unwrap();
    shoal_fuse::unmount_and_wait(&m.dir).unwrap();
    m.start(0);
    assert_eq!(list(&m.dir), ["synced"]);
}

#[test]
fn sync_from_below() {
    let Some(mut m) = mount_only("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    for number in 0..500 {
        touch(m.path(&format!("dir/{number}")));
    }
    shoal_fuse::sync(&m.path("dir")).unwrap();
    m.kill();
    shoal_fuse::unmount_lazy(&m.dir).unwrap();
    m.start(0);
    assert_eq!(list(m.path("dir")).len(), 500);
    let error = shoal_fuse::sync(m.base()).unwrap_err();
    assert!(error.to_string().contains("not in a mounted Shoal volume"), "{error}");
}

#[test]
fn unknown_ioctls_and_attributes() {
    let Some(m) = mount_only("") else { return };
    touch(m.path("file"));
    let fd = open(m.path("file"), OFlags::RDONLY).unwrap();
    // The ioctl of `isatty`.
    fails!(NOTTY, rustix::termios::tcgetattr(&fd));
    fails!(NODATA, rustix::fs::fgetxattr(&fd, "user.x", &mut [0u8; 10][..]));
}

/// More callers in `fsync` than there are threads: the others are served meanwhile, and all end.
#[test]
fn many_callers_in_fsync() {
    let Some(m) = mount_only("threads=2") else { return };
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let m = &m;
            scope.spawn(move || {
                for round in 0..5 {
                    let name = format!("{thread}-{round}");
                    let fd = create(m.path(&name), OFlags::RDWR, 0o600).unwrap();
                    pwrite(&fd, 0, name.as_bytes());
                    rustix::fs::fsync(&fd).unwrap();
                }
            });
        }
    });
    assert_eq!(list(&m.dir).len(), 120);
}

/// A bit of everything from several threads, in shared and private directories.
#[test]
fn a_storm() {
    let Some(mut m) = mount_only("") else { return };
    mkdir(m.path("shared"), 0o755).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let m = &m;
            scope.spawn(move || {
                let own = m.path(&format!("own{thread}"));
                mkdir(&own, 0o755).unwrap();
                for round in 0..200 {
                    let name = format!("t{thread}r{round}");
                    let file = own.join(&name);
                    std::fs::write(&file, name.as_bytes()).unwrap();
                    let shared = m.path("shared").join(&name);
                    link(&file, &shared).unwrap();
                    assert_eq!(stat(&shared).unwrap().st_nlink, 2);
                    if round % 3 == 0 {
                        rename(&shared, m.path("shared").join(format!("{name}-moved"))).unwrap();
                    }
                    if round % 2 == 0 {
                        unlink(&file).unwrap();
                    }
                    if round % 50 == 0 {
                        assert!(std::fs::read_dir(m.path("shared")).unwrap().count() > 0);
                    }
                }
            });
        }
    });
    m.remount();
    assert_eq!(list(m.path("shared")).len(), 1200);
    for thread in 0..6 {
        assert_eq!(list(m.path(&format!("own{thread}"))).len(), 100);
    }
    let text = std::fs::read(m.path("shared/t3r10")).unwrap();
    assert_eq!(text, b"t3r10");
}

/// A caller in the middle of a call when the server is killed gets an error, not a hang; the next
/// server finds a consistent volume with everything that had been synced.
#[test]
fn killed_under_load() {
    let Some(mut m) = mount_only("") else { return };
    for round in 0..3 {
        let synced = m.path(&format!("synced{round}"));
        std::fs::write(&synced, b"contents").unwrap();
        shoal_fuse::sync(&m.dir).unwrap();
        let dir = m.dir.clone();
        let written = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let written = written.clone();
                let own = dir.join(format!("load{round}-{thread}"));
                std::thread::spawn(move || -> std::io::Result<()> {
                    std::fs::create_dir(&own)?;
                    for number in 0.. {
                        let path = own.join(format!("file{number}"));
                        std::fs::write(&path, vec![b'x'; number % 5000])?;
                        written.fetch_add(1, Ordering::Relaxed);
                        std::fs::rename(&path, own.join(format!("moved{number}")))?;
                        if number % 3 == 0 {
                            std::fs::remove_file(own.join(format!("moved{number}")))?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        // Some of the load is synced half-way, the rest is interrupted anywhere.
        let reaches = |count| {
            wait_until(format!("{count} files"), || written.load(Ordering::Relaxed) >= count);
        };
        reaches(500);
        shoal_fuse::sync(&m.dir).unwrap();
        reaches(written.load(Ordering::Relaxed) + 500);
        m.kill();
        for thread in threads {
            assert!(thread.join().unwrap().is_err());
        }
        shoal_fuse::unmount_lazy(&m.dir).unwrap();
        m.start(0);
        for before in 0..=round {
            let path = m.path(&format!("synced{before}"));
            assert_eq!(std::fs::read(path).unwrap(), b"contents");
        }
        // Everything that is there can be read and removed.
        for name in list(&m.dir).iter().filter(|name| name.starts_with("load")) {
            for file in std::fs::read_dir(m.path(name)).unwrap() {
                let data = std::fs::read(file.unwrap().path()).unwrap();
                assert!(data.iter().all(|byte| *byte == b'x'));
            }
        }
        std::fs::remove_dir_all(m.path(&format!("load{round}-0"))).unwrap();
    }
}

/// `fusermount3` needs a user with a name; this one exists everywhere.
const NOBODY: u32 = 65_534;

/// An ordinary user mounts with the help of fusermount3.
#[test]
fn by_an_ordinary_user() {
    let Some(mut m) = mount_only("") else { return };
    if !std::path::Path::new("/usr/bin/fusermount3").exists() {
        skipped("no fusermount3");
        return;
    }
    m.stop();
    std::fs::remove_file(m.volume()).unwrap();
    chown(m.base(), NOBODY, NOBODY);
    chown(&m.dir, NOBODY, NOBODY);
    let device = std::fs::metadata("/dev/fuse").unwrap();
    let bits = std::os::unix::fs::PermissionsExt::mode(&device.permissions()) & 0o777;
    if bits & 0o006 != 0o006 {
        skipped("/dev/fuse is not open to everybody here");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    if !as_user(NOBODY, &[], || std::fs::File::open(&exe).is_ok()) {
        skipped("an ordinary user cannot run this test program where it is");
        return;
    }
    m.start(NOBODY);
    let line = entry_of(&m.dir).unwrap();
    assert!(line.contains("fuse.shoal") && line.contains(&format!("user_id={NOBODY}")), "{line}");
    as_user(NOBODY, &[], || {
        std::fs::write(m.path("mine"), b"x").unwrap();
        chmod(m.path("mine"), 0o400);
        fails!(ACCESS, open(m.path("mine"), OFlags::WRONLY));
        assert_eq!(lstat(m.path("mine")).unwrap().st_uid, NOBODY);
        // The server cannot copy its mount, so a notice drops the names.
        let top = open(&m.dir, OFlags::RDONLY).unwrap();
        for _ in 0..3 {
            std::fs::create_dir_all(m.path("tree/a/b")).unwrap();
            (0..500).for_each(|n| touch(m.path(&format!("tree/a/b/{n}"))));
            remove_tree(&top, "tree", TreeCheck::Tree).unwrap();
            fails!(NOENT, lstat(m.path("tree/a/b/7")));
            fails!(NOENT, lstat(m.path("tree")));
        }
        let orphans = calls(&top).all_orphans(&Caller::root());
        assert!(orphans.is_ok(), "it is this user's server");
    });
    fails!(ACCESS, stat(m.path("mine")));
    m.stop_as(NOBODY);
}
