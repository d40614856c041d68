//! Permissions: the same expectations whether the kernel checks them or Shoal does.

use crate::common::*;
use rustix::fs::{Access, Mode, OFlags};
use std::path::Path;

/// A shared mount whose permissions the kernel checks, and one whose permissions Shoal checks.
const BOTH: [&str; 2] = ["allow_other", "allow_other,no_default_permissions"];

fn each(test: impl Fn(&TestMount, &str)) {
    for options in BOTH {
        let Some(m) = mount(options) else { return };
        test(&m, options);
        if m.is_native() {
            return;
        }
    }
}

fn try_access(path: impl AsRef<std::path::Path>, what: Access) -> Res<()> {
    rustix::fs::access(path.as_ref(), what)
}

#[test]
fn files_by_owner_group_and_others() {
    each(|m, _| {
        let file = m.path("file");
        std::fs::write(&file, b"x").unwrap();
        chown(&file, USER, OTHER);
        // Mode, then the rights of owner, member of the group and others: read, write.
        let table = [
            (0o600, [(true, true), (false, false), (false, false)]),
            (0o040, [(false, false), (true, false), (false, false)]),
            (0o024, [(false, false), (false, true), (true, false)]),
            // A narrower class wins over a wider one that allows more.
            (0o066, [(false, false), (true, true), (true, true)]),
            (0o606, [(true, true), (false, false), (true, true)]),
        ];
        for (bits, wanted) in table {
            chmod(&file, bits);
            let who: [(u32, &[u32]); 3] = [(USER, &[]), (61_005, &[OTHER]), (61_006, &[])];
            for ((uid, groups), (read, write)) in who.into_iter().zip(wanted) {
                as_user(uid, groups, || {
                    let may = |flags| match open(&file, flags) {
                        Ok(_) => true,
                        Err(errno) => {
                            assert_eq!(errno, rustix::io::Errno::ACCESS);
                            false
                        }
                    };
                    assert_eq!(may(OFlags::RDONLY), read, "{bits:o} {uid} read");
                    assert_eq!(may(OFlags::WRONLY), write, "{bits:o} {uid} write");
                    assert_eq!(may(OFlags::RDWR), read && write, "{bits:o} {uid} both");
                    assert_eq!(try_access(&file, Access::READ_OK).is_ok(), read);
                    assert_eq!(try_access(&file, Access::WRITE_OK).is_ok(), write);
                    fails!(ACCESS, try_access(&file, Access::EXEC_OK));
                });
            }
        }
        // Root may do everything but execute a file that nobody may execute.
        chmod(&file, 0);
        open(&file, OFlags::RDWR).unwrap();
        fails!(ACCESS, try_access(&file, Access::EXEC_OK));
    });
}

#[test]
fn truncation_and_times_need_rights() {
    each(|m, _| {
        let file = m.path("file");
        std::fs::write(&file, b"contents").unwrap();
        chmod(&file, 0o644);
        as_user(USER, &[], || {
            fails!(ACCESS, truncate(&file, 0));
            fails!(ACCESS, open(&file, OFlags::WRONLY | OFlags::TRUNC));
            fails!(ACCESS, open(&file, OFlags::RDONLY | OFlags::TRUNC));
            let now = rustix::fs::UTIME_NOW;
            fails!(ACCESS, touch_times(&file, now));
            fails!(PERM, touch_times(&file, 5));
        });
        assert_eq!(std::fs::read(&file).unwrap(), b"contents");
        chmod(&file, 0o666);
        as_user(USER, &[], || {
            touch_times(&file, rustix::fs::UTIME_NOW).unwrap();
            fails!(PERM, touch_times(&file, 5));
            truncate(&file, 3).unwrap();
        });
        assert_eq!(std::fs::read(&file).unwrap(), b"con");
    });
}

fn touch_times(path: &std::path::Path, nsec: i64) -> Res<()> {
    let time = rustix::fs::Timespec { tv_sec: 5, tv_nsec: nsec };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty())
}

#[test]
fn a_descriptor_keeps_its_rights() {
    each(|m, _| {
        let file = m.path("file");
        std::fs::write(&file, b"contents").unwrap();
        chown(&file, USER, USER);
        as_user(USER, &[], || {
            let fd = open(&file, OFlags::RDWR).unwrap();
            chmod(&file, 0);
            fails!(ACCESS, open(&file, OFlags::RDONLY));
            assert_eq!(pread(&fd, 0, 3), b"con");
            pwrite(&fd, 0, b"C");
            rustix::fs::ftruncate(&fd, 4).unwrap();
        });
        assert_eq!(std::fs::read(&file).unwrap(), b"Cont");
        // Created without any right, and still writable through the descriptor.
        chmod(&m.dir, 0o777);
        as_user(USER, &[], || {
            let fd = create(m.path("mine"), OFlags::RDWR, 0o000).unwrap();
            pwrite(&fd, 0, b"data");
            rustix::fs::ftruncate(&fd, 2).unwrap();
            assert_eq!(pread(&fd, 0, 9), b"da");
        });
    });
}

#[test]
fn directories_need_search_and_write() {
    each(|m, options| {
        let dir = m.path("dir");
        mkdir(&dir, 0o700).unwrap();
        touch(m.path("dir/file"));
        mkdir(m.path("dir/sub"), 0o777).unwrap();
        // Names that the kernel has never looked up, so that Shoal is asked.
        as_user(USER, &[], || {
            fails!(ACCESS, stat(m.path("dir/unknown")));
            fails!(ACCESS, create(m.path("dir/new"), OFlags::WRONLY, 0o600));
            fails!(ACCESS, open(&dir, OFlags::DIRECTORY));
        });
        chmod(&dir, 0o755);
        as_user(USER, &[], || {
            assert_eq!(list(&dir), ["file", "sub"]);
            fails!(NOENT, stat(m.path("dir/unknown")));
            fails!(ACCESS, create(m.path("dir/new"), OFlags::WRONLY, 0o600));
            fails!(ACCESS, mkdir(m.path("dir/new"), 0o700));
            fails!(ACCESS, symlink("x", m.path("dir/new")));
            fails!(ACCESS, unlink(m.path("dir/file")));
            fails!(ACCESS, rmdir(m.path("dir/sub")));
            fails!(ACCESS, rename(m.path("dir/file"), m.path("dir/moved")));
            touch(m.path("dir/sub/mine"));
            fails!(ACCESS, rename(m.path("dir/sub/mine"), m.path("dir/mine")));
            fails!(ACCESS, rename(m.path("dir/file"), m.path("dir/sub/file")));
            fails!(ACCESS, link(m.path("dir/sub/mine"), m.path("dir/mine")));
        });
        // Read without search: names, but nothing about them.
        chmod(&dir, 0o744);
        if options.ends_with("allow_other") {
            as_user(USER, &[], || {
                let fd = open(&dir, OFlags::DIRECTORY).unwrap();
                let mut room = [std::mem::MaybeUninit::uninit(); 4096];
                assert!(rustix::fs::RawDir::new(&fd, &mut room).next().unwrap().is_ok());
                fails!(ACCESS, stat(m.path("dir/file")));
            });
        }
    });
}

/// The kernel opens special files without a request. Where it checks permissions it does so itself;
/// where Shoal does, devices are refused, and FIFOs and sockets open for every user who reaches
/// them.
#[test]
fn special_files_are_opened_by_the_kernel() {
    use rustix::fs::{CWD, FileType, mknodat};
    let read = |path: &Path| open(path, OFlags::RDONLY | OFlags::NONBLOCK).map(drop);
    for (options, enforced) in [("allow_other,dev", true), ("allow_other", true), (BOTH[1], false)]
    {
        let Some(m) = mount_only(options) else { return };
        let (fifo, device) = (m.path("fifo"), m.path("dir/null"));
        mkdir(m.path("dir"), 0o700).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        let null = rustix::fs::makedev(1, 3);
        mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        mknodat(CWD, m.path("dir/fifo"), FileType::Fifo, mode, 0).unwrap();
        mknodat(CWD, &device, FileType::CharacterDevice, mode, null).unwrap();
        as_user(USER, &[], || {
            fails!(ACCESS, read(&m.path("dir/fifo")));
            match enforced {
                true => fails!(ACCESS, read(&fifo)),
                false => read(&fifo).unwrap(),
            }
        });
        chmod(m.path("dir"), 0o755);
        as_user(USER, &[], || fails!(ACCESS, read(&device)));
        assert_eq!(read(&device).is_ok(), options.contains("dev"), "{options}");
    }
}

#[test]
fn sticky_directories() {
    each(|m, _| {
        let tmp = m.path("tmp");
        mkdir(&tmp, 0o1777).unwrap();
        chmod(&tmp, 0o1777);
        assert_eq!(mode(&tmp), 0o1777);
        as_user(USER, &[], || {
            touch(m.path("tmp/his"));
            mkdir(m.path("tmp/dir"), 0o777).unwrap();
        });
        as_user(OTHER, &[], || {
            fails!(PERM, unlink(m.path("tmp/his")));
            fails!(PERM, rmdir(m.path("tmp/dir")));
            fails!(PERM, rename(m.path("tmp/his"), m.path("tmp/mine")));
            touch(m.path("tmp/mine"));
            // Replacing is removing.
            fails!(PERM, rename(m.path("tmp/mine"), m.path("tmp/his")));
            unlink(m.path("tmp/mine")).unwrap();
        });
        // The owner of the file may, and the owner of the directory.
        as_user(USER, &[], || unlink(m.path("tmp/his")).unwrap());
        as_user(USER, &[], || touch(m.path("tmp/his")));
        chown(&tmp, OTHER, OTHER);
        as_user(OTHER, &[], || unlink(m.path("tmp/his")).unwrap());
    });
}

#[test]
fn owners_of_what_is_made() {
    each(|m, _| {
        mkdir(m.path("plain"), 0o777).unwrap();
        mkdir(m.path("setgid"), 0o777).unwrap();
        chown(m.path("setgid"), 0, OTHER);
        chmod(m.path("setgid"), 0o2777);
        for member in [false, true] {
            let groups: &[u32] = if member { &[OTHER] } else { &[] };
            let name = format!("by-{member}");
            as_user(USER, groups, || {
                for dir in ["plain", "setgid"] {
                    touch(m.path(dir).join(format!("{name}-file")));
                    mkdir(m.path(dir).join(format!("{name}-dir")), 0o755).unwrap();
                    symlink("x", m.path(dir).join(format!("{name}-link"))).unwrap();
                }
            });
            for kind in ["file", "dir", "link"] {
                let plain = lstat(m.path(&format!("plain/{name}-{kind}"))).unwrap();
                assert_eq!((plain.st_uid, plain.st_gid), (USER, USER), "{name} {kind}");
                let setgid = lstat(m.path(&format!("setgid/{name}-{kind}"))).unwrap();
                assert_eq!((setgid.st_uid, setgid.st_gid), (USER, OTHER), "{name} {kind}");
            }
            // Directories pass the bit on.
            assert_eq!(mode(m.path(&format!("setgid/{name}-dir"))), 0o2755);
            assert_eq!(mode(m.path(&format!("plain/{name}-dir"))), 0o755);
        }
        // An executable with the set-group-id bit needs membership of the group it would give.
        as_user(USER, &[], || {
            create(m.path("setgid/outsider"), OFlags::WRONLY, 0o2775).unwrap();
        });
        as_user(USER, &[OTHER], || {
            create(m.path("setgid/insider"), OFlags::WRONLY, 0o2775).unwrap();
        });
        assert_eq!(mode(m.path("setgid/outsider")), 0o775);
        assert_eq!(mode(m.path("setgid/insider")), 0o2775);
    });
}

#[test]
fn who_may_change_mode_and_owner() {
    each(|m, _| {
        let file = m.path("file");
        touch(&file);
        chown(&file, USER, USER);
        as_user(OTHER, &[], || {
            fails!(PERM, try_chmod(&file, 0o777));
            fails!(PERM, try_chown(&file, Some(OTHER), None));
        });
        as_user(USER, &[OTHER], || {
            chmod(&file, 0o640);
            fails!(PERM, try_chown(&file, Some(OTHER), None));
            fails!(PERM, try_chown(&file, None, Some(0)));
            try_chown(&file, None, Some(OTHER)).unwrap();
            try_chown(&file, Some(USER), None).unwrap();
            // In the group: the bit stays.
            chmod(&file, 0o2750);
        });
        assert_eq!((mode(&file), lstat(&file).unwrap().st_gid), (0o2750, OTHER));
        // Not in the group: the bit is dropped, without an error.
        as_user(USER, &[], || chmod(&file, 0o2755));
        assert_eq!(mode(&file), 0o755);
        chmod(&file, 0o2755);
        assert_eq!(mode(&file), 0o2755, "root may");
        fails!(NOENT, try_chmod(m.path("none"), 0));
    });
}

#[test]
fn set_id_bits_are_cleared() {
    each(|m, options| {
        let file = m.path("file");
        let make = |bits| {
            let _ = unlink(&file);
            std::fs::write(&file, b"#!/bin/true").unwrap();
            chown(&file, USER, USER);
            chmod(&file, bits);
            assert_eq!(mode(&file), bits);
        };
        let write = || pwrite(&open(&file, OFlags::WRONLY).unwrap(), 0, b"x");
        // By a write of a user who is not root, also the owner.
        make(0o6777);
        as_user(USER, &[], write);
        assert_eq!(mode(&file), 0o777, "{options}");
        make(0o6777);
        as_user(OTHER, &[], write);
        assert_eq!(mode(&file), 0o777, "{options}");
        // Not by root's.
        make(0o6755);
        write();
        assert_eq!(mode(&file), 0o6755, "{options}");
        // By truncation, by path, descriptor and open.
        make(0o4777);
        as_user(OTHER, &[], || truncate(&file, 1).unwrap());
        assert_eq!(mode(&file), 0o777, "{options}: truncate");
        make(0o4777);
        as_user(OTHER, &[], || {
            rustix::fs::ftruncate(open(&file, OFlags::WRONLY).unwrap(), 1).unwrap();
        });
        assert_eq!(mode(&file), 0o777, "{options}: ftruncate");
        make(0o4777);
        as_user(OTHER, &[], || drop(open(&file, OFlags::WRONLY | OFlags::TRUNC).unwrap()));
        assert_eq!(mode(&file), 0o777, "{options}: O_TRUNC");
        // By a change of owner, also root's; of directories never.
        make(0o6755);
        chown(&file, OTHER, OTHER);
        assert_eq!(mode(&file), 0o755, "{options}: chown");
        make(0o2745);
        chown(&file, OTHER, OTHER);
        assert_eq!(mode(&file), 0o2745, "{options}: mandatory locking of old");
        mkdir(m.path("dir"), 0o755).unwrap();
        chmod(m.path("dir"), 0o6755);
        chown(m.path("dir"), OTHER, OTHER);
        assert_eq!(mode(m.path("dir")), 0o6755, "{options}: directory");
        rmdir(m.path("dir")).unwrap();
    });
}

#[test]
fn set_id_bits_are_cleared_by_allocation_and_by_nobody_who_may_not_write() {
    each(|m, options| {
        let file = m.path("file");
        std::fs::write(&file, b"#!/bin/true").unwrap();
        chown(&file, USER, USER);
        // The mount sees the same request before an allocation, but anybody may send it.
        chmod(&file, 0o6755);
        let _ = as_user(OTHER, &[], || try_chown(&file, None, None));
        assert_eq!(mode(&file), 0o6755, "{options}: chown by an outsider");
        chmod(&file, 0o6757);
        as_user(OTHER, &[], || {
            let fd = open(&file, OFlags::WRONLY).unwrap();
            rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 100).unwrap();
        });
        assert_eq!(mode(&file), 0o757, "{options}: fallocate");
        chmod(&file, 0o6757);
        as_user(OTHER, &[], || {
            let from = open(&file, OFlags::RDONLY).unwrap();
            let to = open(&file, OFlags::WRONLY).unwrap();
            let (mut start, mut end) = (0, 20);
            rustix::fs::copy_file_range(from, Some(&mut start), to, Some(&mut end), 5).unwrap();
        });
        assert_eq!(mode(&file), 0o757, "{options}: copy_file_range");
    });
}

#[test]
fn a_mount_for_root_only() {
    let Some(m) = mount_only("") else { return };
    chmod(&m.dir, 0o777);
    as_user(USER, &[], || {
        fails!(ACCESS, stat(m.path("x")));
        fails!(ACCESS, open(&m.dir, OFlags::DIRECTORY));
    });
}

#[test]
fn execution() {
    each(|m, _| {
        if !m.is_native() {
            let path = m.path("script");
            copy_program("/bin/true", &path);
            chmod(&path, 0o644);
            let run = || std::process::Command::new(&path).status();
            assert!(run().is_err(), "not executable");
            chmod(&path, 0o711);
            assert!(run().unwrap().success());
        }
    });
}
