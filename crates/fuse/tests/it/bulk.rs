//! Control files: directories of a mount listed in bulk, by any user, with the user's permissions.

use crate::common;
use crate::common::control::*;
use crate::common::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use shoal::raw::{Attr, FileKind, Generation, Ino};
use shoal_fuse::protocol::question::{PIECE, Question};
use shoal_fuse::protocol::wire::QuestionDir;
use shoal_fuse::{Asked, ControlFile, Listed};
use shoal_skip::wait_until;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn asked(attr: &Attr) -> Asked {
    Asked { ino: attr.ino, generation: attr.generation, cookie: 0 }
}

/// Entries of a directory: names, attributes, targets.
type Entries = BTreeMap<Vec<u8>, (Ino, FileKind, Option<Attr>)>;

/// Lists a directory to its end.
fn list(control: &mut ControlFile, names_only: bool, dir: Asked) -> Res<Entries> {
    let (mut entries, mut dir) = (Entries::new(), dir);
    loop {
        let mut next = None;
        control
            .list(names_only, &[dir], &mut |listed| match listed {
                Listed::Entry(0, it) => {
                    let before = entries.insert(it.name.to_vec(), (it.ino, it.kind, it.attr));
                    assert!(before.is_none(), "listed twice");
                }
                Listed::End(0, end) => next = Some(end.map_err(errno)),
                other => panic!("{other:?}"),
            })
            .map_err(errno)?;
        match next.unwrap()? {
            Some(cookie) => dir.cookie = cookie,
            None => return Ok(entries),
        }
    }
}

/// Asserts that the attributes are those that the kernel shows.
fn assert_same(attr: &Attr, path: &Path) {
    let seen = path.symlink_metadata().unwrap();
    let time = |sec, nsec| (sec, nsec as u32);
    assert_eq!(attr.ino.0, seen.ino(), "{path:?}");
    assert_eq!((attr.mode, attr.nlink), (seen.mode(), seen.nlink() as u32), "{path:?}");
    assert_eq!((attr.uid, attr.gid), (seen.uid(), seen.gid()));
    assert_eq!((attr.size, attr.blocks), (seen.size(), seen.blocks()), "{path:?}");
    assert_eq!((attr.mtime.sec, attr.mtime.nsec), time(seen.mtime(), seen.mtime_nsec()));
    assert_eq!((attr.ctime.sec, attr.ctime.nsec), time(seen.ctime(), seen.ctime_nsec()));
    assert_eq!(attr.kind == FileKind::Directory, seen.is_dir());
    assert_eq!(attr.kind == FileKind::Fifo, seen.file_type().is_fifo());
}

/// Flips a byte of the block that holds an inode, in the volume's file: of the copy in use, and of
/// older ones, which nobody reads.
fn damage_inode(volume: &Path, inode: u64) {
    let bytes = std::fs::read(volume).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(volume).unwrap();
    let number = (inode / 32).to_le_bytes();
    let mut blocks = 0;
    for at in (0..bytes.len() - 128).step_by(8) {
        // Magic, and number at byte 16.
        if bytes[at..].starts_with(b"SIB2") && bytes[at + 16..at + 24] == number {
            file.write_all_at(&[bytes[at + 99] ^ 1], at as u64 + 99).unwrap();
            blocks += 1;
        }
    }
    assert!(blocks > 0);
}

/// A block of 32 inodes cannot be read: their names are listed with their types, by the kernel and
/// in bulk, and nothing else is missing.
#[test]
fn a_damaged_inode_block_hides_no_name() {
    let Some(mut m) = mount_only("") else { return };
    mkdir(m.path("d"), 0o755).unwrap();
    let names: Vec<String> = (0..300).map(|n| format!("d/f{n}")).collect();
    names.iter().for_each(|name| std::fs::write(m.path(name), "x").unwrap());
    let inode = |m: &TestMount, name: &String| m.path(name).symlink_metadata().unwrap().ino();
    let inodes: Vec<u64> = names.iter().map(|name| inode(&m, name)).collect();
    m.stop();
    damage_inode(&m.volume(), inodes[150]);
    m.start(0);
    let is_lost = |at: usize| inodes[at] / 32 == inodes[150] / 32;
    let lost = (0..names.len()).filter(|at| is_lost(*at)).count();
    assert!((20..=32).contains(&lost), "{lost}");
    for _ in 0..2 {
        let entries: Vec<_> =
            std::fs::read_dir(m.path("d")).unwrap().map(|it| it.unwrap()).collect();
        assert_eq!(entries.len(), names.len());
        assert!(entries.iter().all(|it| it.file_type().unwrap().is_file()));
    }
    let mut control = control(&m.path("d")).unwrap();
    let dir = asked(&control.entry(b".").unwrap());
    for names_only in [true, false] {
        let listed = list(&mut control, names_only, dir).unwrap();
        assert_eq!(listed.len(), names.len());
        assert!(listed.values().all(|(_, kind, _)| *kind == FileKind::Regular));
        let without = listed.values().filter(|(.., attr)| attr.is_none()).count();
        assert_eq!(without, if names_only { names.len() } else { lost });
    }
    for (at, name) in names.iter().enumerate() {
        match is_lost(at) {
            true => {
                fails!(IO, lstat(m.path(name)));
                fails!(IO, unlink(m.path(name)));
            }
            false => unlink(m.path(name)).unwrap(),
        }
    }
    assert_eq!(std::fs::read_dir(m.path("d")).unwrap().count(), lost);
    drop(control);
    m.stop();
    // It is not sound.
    std::fs::remove_file(m.volume()).unwrap();
}

#[test]
fn a_listing_is_what_the_kernel_shows() {
    each(&ALL, |m| {
        for n in 0..3000 {
            std::fs::write(m.path(&format!("file {n}")), vec![b'x'; n % 50]).unwrap();
        }
        mkdir(m.path("dir"), 0o750).unwrap();
        std::os::unix::fs::symlink("target", m.path("link")).unwrap();
        let mut control = control(&m.dir).unwrap();
        let top = control.entry(b".").unwrap();
        assert_same(&top, &m.dir);
        let all = list(&mut control, false, asked(&top)).unwrap();
        assert_eq!(all.len(), 3002);
        for (name, (_, _, attr)) in &all {
            let name = std::str::from_utf8(name).unwrap();
            assert_same(&attr.unwrap(), &m.path(name));
        }
        let names = list(&mut control, true, asked(&top)).unwrap();
        assert_eq!(names.len(), all.len());
        for (name, (ino, kind, attr)) in names {
            assert!(attr.is_none());
            assert_eq!((ino, kind), (all[&name].0, all[&name].1));
        }
    });
}

#[test]
fn directories_are_listed_many_at_a_time() {
    each(&["allow_other"], |m| {
        for n in 0..100 {
            mkdir(m.path(&format!("d{n}")), 0o755).unwrap();
            for f in 0..n * 3 {
                touch(m.path(&format!("d{n}/{f}")));
            }
        }
        let mut control = control(&m.dir).unwrap();
        let top = control.entry(b".").unwrap();
        let dirs = list(&mut control, true, asked(&top)).unwrap();
        let wanted: Vec<Asked> =
            dirs.keys().map(|name| asked(&control.entry(name).unwrap())).collect();
        let mut counts = vec![0; wanted.len()];
        control
            .list(false, &wanted, &mut |listed| match listed {
                Listed::Entry(at, _) => counts[at] += 1,
                Listed::End(_, end) => assert_eq!(end.unwrap(), None),
            })
            .unwrap();
        for (name, count) in dirs.keys().zip(counts) {
            let number: usize = std::str::from_utf8(&name[1..]).unwrap().parse().unwrap();
            assert_eq!(count, 3 * number);
        }
        let too_many = vec![wanted[0]; ControlFile::DIRS_MAX + 1];
        for dirs in [&[][..], &too_many] {
            let refused = control.list(true, dirs, &mut |_| ()).unwrap_err();
            assert_eq!(errno(refused), Errno::INVAL);
        }
        let most = vec![wanted[99]; ControlFile::DIRS_MAX];
        let mut ends = 0;
        let each = &mut |listed: Listed<'_>| ends += usize::from(matches!(listed, Listed::End(..)));
        control.list(true, &most, each).unwrap();
        assert_eq!(ends, ControlFile::DIRS_MAX);
    });
}

/// A user is refused in bulk what the kernel refuses step by step.
#[test]
fn permission_is_that_of_the_user_on_the_whole_way() {
    each(&ALL[..3], |m| {
        for dir in ["open", "open/a", "open/a/b", "closed", "closed/in", "listed", "listed/in"] {
            mkdir(m.path(dir), 0o755).unwrap();
            touch(m.path(&format!("{dir}/file")));
        }
        mkdir(m.path("mine"), 0o700).unwrap();
        chown(m.path("mine"), USER, USER);
        mkdir(m.path("group"), 0o750).unwrap();
        chown(m.path("group"), 0, 4242);
        chmod(m.path("closed"), 0o700);
        chmod(m.path("listed"), 0o744);
        chmod(m.path("open/a"), 0o711);
        let mut root = control(&m.dir).unwrap();
        let mut id = |path: &str| {
            let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
            asked(&control(&m.path(dir)).unwrap().entry(name.as_bytes()).unwrap())
        };
        let paths = [
            "open",
            "open/a",
            "open/a/b",
            "closed",
            "closed/in",
            "listed",
            "listed/in",
            "mine",
            "group",
        ];
        let ids = paths.map(&mut id);
        for dir in ids {
            list(&mut root, false, dir).unwrap();
        }
        as_user(USER, &[], || {
            // Also through a file that root has opened: who asks counts.
            for control in [&mut control(&m.dir).unwrap(), &mut root] {
                let mut sees = |names_only| ids.map(|dir| list(control, names_only, dir).is_ok());
                let (all, names) = (sees(false), sees(true));
                assert_eq!(all, [true, false, true, false, false, false, false, true, false]);
                // As with readdir, names need no right to search.
                assert_eq!(names, [true, false, true, false, false, true, false, true, false]);
                fails!(ACCESS, list(control, true, ids[1]));
                fails!(ACCESS, list(control, true, ids[4]));
                fails!(ACCESS, list(control, true, ids[6]));
            }
            fails!(ACCESS, control(&m.path("closed")));
            fails!(ACCESS, control(&m.path("listed")));
            assert!(control(&m.path("open/a")).is_ok());
            fails!(NOENT, control(&m.dir).unwrap().entry(b"no").map_err(errno));
            fails!(PERM, control(&m.dir).unwrap().totals(true).map_err(errno));
        });
        as_user(OTHER, &[4242], || {
            let mut control = control(&m.dir).unwrap();
            assert!(list(&mut control, false, ids[8]).is_ok(), "by a supplementary group");
            fails!(ACCESS, list(&mut control, false, ids[7]));
        });
    });
}

/// A program that has been given one directory cannot look beyond it, not even as root.
#[test]
fn nothing_outside_of_the_directory_is_listed() {
    each(&ALL[..3], |m| {
        for dir in ["in", "in/below", "out", "out/below"] {
            mkdir(m.path(dir), 0o777).unwrap();
        }
        let id = |path: &str| asked(&control(&m.path(path)).unwrap().entry(b".").unwrap());
        let (top, inside, below) = (id("."), id("in"), id("in/below"));
        let (out, out_below) = (id("out"), id("out/below"));
        let mut given = control(&m.path("in")).unwrap();
        for user in [0, USER] {
            as_user(user, &[], || {
                assert!(list(&mut given, false, inside).is_ok());
                assert!(list(&mut given, false, below).is_ok());
                for dir in [top, out, out_below] {
                    fails!(NOENT, list(&mut given, false, dir));
                }
                // Nor by a name.
                fails!(INVAL, given.entry(b"..").map_err(errno));
                fails!(INVAL, given.entry(b"below/..").map_err(errno));
                fails!(INVAL, given.entry(b"").map_err(errno));
            });
        }
        // Another file of that number.
        let other = Asked { generation: Generation(below.generation.0 ^ 1), ..below };
        fails!(NOENT, list(&mut given, false, other));
        fails!(NOENT, list(&mut given, false, Asked { ino: Ino(1 << 40), ..below }));
        touch(m.path("in/file"));
        let file = asked(&given.entry(b"file").unwrap());
        fails!(NOTDIR, list(&mut given, false, file));
    });
}

#[test]
fn a_directory_that_moves_or_goes_midway() {
    each(&["allow_other", "allow_other,open"], |m| {
        for dir in ["in", "in/a", "in/b", "out"] {
            mkdir(m.path(dir), 0o755).unwrap();
        }
        for n in 0..1500 {
            touch(m.path(&format!("in/a/{n}")));
        }
        let mut control = control(&m.path("in")).unwrap();
        let dir = asked(&control.entry(b"a").unwrap());
        let mut next = None;
        let mut names = Vec::new();
        let first = &mut |listed: Listed<'_>| match listed {
            Listed::Entry(_, entry) => names.push(entry.name.to_vec()),
            Listed::End(_, end) => next = end.unwrap(),
        };
        control.list(false, &[dir], first).unwrap();
        assert_eq!(names.len(), 1024);
        // Renamed below the directory of the control file: the listing goes on.
        rename(m.path("in/a"), m.path("in/b/c")).unwrap();
        let rest = Asked { cookie: next.unwrap(), ..dir };
        assert_eq!(list(&mut control, false, rest).unwrap().len(), 476);
        rename(m.path("in/b/c"), m.path("out/c")).unwrap();
        fails!(NOENT, list(&mut control, false, rest));
        rename(m.path("out/c"), m.path("in/a")).unwrap();
        assert_eq!(list(&mut control, false, rest).unwrap().len(), 476);
        std::fs::remove_dir_all(m.path("in/a")).unwrap();
        fails!(NOENT, list(&mut control, false, rest));
        std::fs::remove_dir_all(m.path("in")).unwrap();
        fails!(NOENT, list(&mut control, false, rest));
        fails!(NOENT, control.entry(b".").map_err(errno));
        fails!(NOENT, control.totals(true).map_err(errno));
    });
}

#[test]
fn totals_are_those_of_a_walk() {
    each(&["", "allow_other,open"], |m| {
        mkdir(m.path("d"), 0o755).unwrap();
        mkdir(m.path("d/e"), 0o755).unwrap();
        std::fs::write(m.path("d/e/f"), vec![1; 5000]).unwrap();
        link(m.path("d/e/f"), m.path("d/g")).unwrap();
        std::fs::write(m.path("h"), "other").unwrap();
        let totals = control(&m.path("d")).unwrap().totals(true).unwrap();
        assert_eq!((totals.files, totals.dirs, totals.others, totals.linked), (1, 2, 0, 1));
        assert_eq!(totals.bytes, 5000);
    });
}

/// A control file is a file of nobody, under a name that no file can be given.
#[test]
fn the_control_file_itself() {
    each(&ALL[..3], |m| {
        mkdir(m.path("d"), 0o777).unwrap();
        touch(m.path("file"));
        chmod(m.path("file"), 0o666);
        chmod(&m.dir, 0o777);
        let name = m.path("d/.shoal-control");
        let found = lstat(&name).unwrap();
        assert_eq!((found.st_mode, found.st_uid, found.st_nlink), (0o100_444, 0, 1));
        assert!(common::list(m.path("d")).is_empty(), "not listed");
        for user in [0, USER] {
            as_user(user, &[], || {
                fails!(EXIST, mkdir(&name, 0o755));
                fails!(EXIST, symlink("x", &name));
                fails!(EXIST, link(m.path("file"), &name));
                fails!(PERM, rename(m.path("file"), &name));
                fails!(PERM, rename(&name, m.path("d/name")));
                fails!(EXIST, create(&name, OFlags::EXCL, 0o600));
                fails!(PERM, try_chown(&name, Some(USER), None));
                let error = unlink(&name).unwrap_err();
                assert!([Errno::PERM, Errno::ACCESS, Errno::NOENT].contains(&error), "{error}");
                let written = open(&name, OFlags::RDWR);
                assert!(written.is_err() || rustix::io::write(written.unwrap(), b"x").is_err());
                let opened = open(&name, OFlags::RDONLY | OFlags::DIRECT).unwrap();
                fails!(INVAL, rustix::io::pread(&opened, &mut vec![0; 16 << 10], 0));
                assert!(rmdir(m.path("d")).is_ok() || user != 0);
                let _ = mkdir(m.path("d"), 0o777);
            });
        }
        fails!(PERM, try_chmod(&name, 0o777));
    });
}

#[test]
fn other_file_systems_have_no_control_files() {
    let refused = control(Path::new("/proc")).unwrap_err();
    assert_eq!(refused, Errno::NOTTY);
    assert_eq!(control(&std::env::temp_dir()).unwrap_err(), Errno::NOTTY);
}

/// Asks for a directory of 1,500 entries and reads less than there is, by system calls.
fn ask_and_read(control: &OwnedFd, dir: Asked, len: usize) -> Res<usize> {
    let Asked { ino, generation, cookie } = dir;
    let one = QuestionDir { ino: ino.0, cookie, generation: generation.0, padding: 0 };
    ask(control, &Question::list(0, vec![one]))?;
    if len == 0 { Ok(0) } else { rustix::io::pread(control, &mut vec![0; len], 0) }
}

fn large_directory(m: &TestMount) -> Asked {
    mkdir(m.path("large"), 0o755).unwrap();
    (0..1500).for_each(|n| touch(m.path(&format!("large/{n}"))));
    asked(&control(&m.dir).unwrap().entry(b"large").unwrap())
}

/// Programs that ask and do not read on cost nothing to others, are limited, and leave nothing.
#[test]
fn programs_that_stop_reading() {
    each(&["allow_other", "allow_other,open"], |m| {
        let dir = large_directory(m);
        let stopped: Vec<OwnedFd> = (0..1000).map(|_| raw_control(&m.dir)).collect();
        as_user(USER, &[], || {
            let asks = |at: usize| ask_and_read(&stopped[at], dir, if at < 128 { 8192 } else { 0 });
            for at in 0..256 {
                asks(at).unwrap();
            }
            fails!(AGAIN, asks(300));
            // Another question in place of one that waits.
            asks(7).unwrap();
            // A file that is read to its end makes room for another.
            while rustix::io::pread(&stopped[0], &mut vec![0; PIECE], 0).is_ok() {}
            asks(301).unwrap();
            fails!(AGAIN, asks(302));
        });
        for user in [0, OTHER] {
            as_user(user, &[], || {
                let mut control = control(&m.dir).unwrap();
                assert_eq!(list(&mut control, false, dir).unwrap().len(), 1500);
            });
        }
        drop(stopped);
        as_user(USER, &[], || {
            let again: Vec<OwnedFd> = (0..256).map(|_| raw_control(&m.dir)).collect();
            // The kernel tells of closed files a moment later.
            for file in &again {
                wait_until("closed files no longer count", || {
                    ask_and_read(file, dir, 0) != Err(Errno::AGAIN)
                });
            }
        });
    });
}

/// Not a test, but the program that the next one kills.
#[test]
fn ask_helper() {
    let Some(dir) = std::env::var_os("SHOAL_TEST_ASK") else { return };
    let dir = PathBuf::from(dir);
    let mut files = Vec::new();
    loop {
        let mut control = control(&dir).unwrap();
        let large = asked(&control.entry(b"large").unwrap());
        let file = raw_control(&dir);
        ask_and_read(&file, large, 8192).unwrap();
        if files.is_empty() {
            println!("ASKING");
        }
        files.truncate(20);
        files.push(file);
        list(&mut control, false, large).unwrap();
    }
}

#[test]
fn programs_that_are_killed() {
    each(&["allow_other", "allow_other,open"], |m| {
        large_directory(m);
        let helpers: Vec<Child> = (0..4)
            .map(|_| {
                let mut helper = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "bulk::ask_helper", "--nocapture", "--test-threads=1"])
                    .env("SHOAL_TEST_ASK", &m.dir)
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines();
                assert!(lines.any(|line| line.unwrap().contains("ASKING")));
                helper
            })
            .collect();
        for mut helper in helpers {
            helper.kill().unwrap();
            helper.wait().unwrap();
        }
        // Unmounts, ends the server and checks the volume.
        m.remount();
    });
}

/// An open control file keeps the mount busy as any open file does, and no longer.
#[test]
fn unmounting_with_open_control_files() {
    each(&["allow_other", "allow_other,open"], |m| {
        let dir = large_directory(m);
        let file = raw_control(&m.dir);
        ask_and_read(&file, dir, 8192).unwrap();
        let refused = shoal_fuse::unmount(&m.dir).unwrap_err();
        assert_eq!(refused.code(), shoal::raw::Code::Busy);
        shoal_fuse::unmount_lazy(&m.dir).unwrap();
        assert!(ask_and_read(&file, dir, 8192).is_ok(), "still served");
        drop(file);
        assert!(m.wait_for_server().success());
        m.start(0);
    });
}

/// Many threads list at once, more than are served at a time, beside other callers.
#[test]
fn many_readers_at_once() {
    each(&["allow_other"], |m| {
        let dir = large_directory(m);
        std::thread::scope(|scope| {
            for n in 0..40 {
                let m = &*m;
                scope.spawn(move || {
                    let user = if n % 2 == 0 { USER } else { OTHER };
                    as_user(user, &[], || {
                        let mut control = control(&m.dir).unwrap();
                        for _ in 0..5 {
                            assert_eq!(list(&mut control, false, dir).unwrap().len(), 1500);
                        }
                    });
                });
            }
            for n in 0..100 {
                touch(m.path(&format!("beside{n}")));
            }
        });
    });
}
