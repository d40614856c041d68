//! Changes of a mounted tree, read through control files by root and by ordinary users.

use crate::common::control::*;
use crate::common::*;
use rustix::fs::OFlags;
use shoal::raw::{ChangeKind, ChangeMark, MkfsOptions, Volume};
use shoal_fuse::protocol::question::{Kind, PIECE, Question, read_piece};
use shoal_fuse::{ChangeFound, ControlFile};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

fn mark(dir: &Path) -> ChangeMark {
    control(dir).unwrap().mark().unwrap()
}

/// Paths that are told as there, and as gone, with the mark for the next call.
type Told = (BTreeSet<String>, BTreeSet<String>, ChangeMark);

fn told(dir: &Path, since: Option<&ChangeMark>) -> Res<Told> {
    told_by(&mut control(dir)?, since)
}

fn told_by(control: &mut ControlFile, since: Option<&ChangeMark>) -> Res<Told> {
    let (mut there, mut gone) = (BTreeSet::new(), BTreeSet::new());
    let each = &mut |change: ChangeFound| {
        let ChangeFound { kind, paths, from, .. } = change;
        let texts = paths.into_iter().map(|path| String::from_utf8(path).unwrap());
        match kind {
            ChangeKind::Removed => gone.extend(texts),
            _ => there.extend(texts),
        }
        gone.extend(from.map(|path| String::from_utf8(path).unwrap()));
        true
    };
    let end = control.changes(since, each).map_err(errno)?.unwrap();
    Ok((there, gone, end.mark))
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Switches on that a volume keeps removed names, which a mount cannot.
fn keep_removed(m: &mut TestMount) {
    m.stop();
    let volume = Volume::open(&m.volume(), &shoal::raw::OpenOptions::default()).unwrap();
    volume.changes().keep_removed(&shoal::raw::Caller::root(), true).unwrap();
    volume.close().unwrap();
    m.start(0);
}

#[test]
fn a_mount_tells_what_has_changed() {
    each(&ALL, |m| {
        keep_removed(m);
        for dir in ["d", "d/e", "out"] {
            mkdir(m.path(dir), 0o755).unwrap();
        }
        for file in ["d/one", "d/two", "d/e/three", "out/four"] {
            touch(m.path(file));
        }
        let before = mark(&m.dir);
        let (there, gone, _) = told(&m.dir, Some(&before)).unwrap();
        assert_eq!((there, gone), (set(&[]), set(&[])), "nothing");
        std::fs::write(m.path("d/one"), "changed").unwrap();
        unlink(m.path("d/two")).unwrap();
        rename(m.path("d/e"), m.path("f")).unwrap();
        touch(m.path("d/five"));
        rename(m.path("out/four"), m.path("d/four")).unwrap();
        let (there, gone, next) = told(&m.dir, Some(&before)).unwrap();
        assert_eq!(there, set(&[".", "d", "d/five", "d/four", "d/one", "f", "out"]));
        assert_eq!(gone, set(&["d/e", "d/two", "out/four"]));
        // The directory of the control file is the limit, and marks are of the subvolume.
        let (there, gone, _) = told(&m.path("d"), Some(&before)).unwrap();
        assert_eq!(there, set(&[".", "five", "four", "one"]));
        assert_eq!(gone, set(&["e", "two"]));
        let (there, gone, _) = told(&m.path("out"), Some(&before)).unwrap();
        assert_eq!((there, gone), (set(&["."]), set(&["four"])));
        let (there, gone, _) = told(&m.dir, Some(&next)).unwrap();
        assert_eq!((there, gone), (set(&[]), set(&[])), "told before");
        // Everything, without a mark.
        let (there, ..) = told(&m.path("d"), None).unwrap();
        assert_eq!(there, set(&[".", "five", "four", "one"]));
        // The same mark, in the volume without a mount, and back.
        touch(m.path("f/six"));
        m.stop();
        let volume = Volume::open(&m.volume(), &shoal::raw::OpenOptions::default()).unwrap();
        let who = shoal::raw::Caller::root();
        let root = shoal::raw::Ino::ROOT;
        let mut reader = volume.changes().since(&who, root, Some(&next)).unwrap();
        let changes = volume.changes().next(&mut reader, 100).unwrap();
        let names = changes.iter().flat_map(|change| &change.names);
        let mut paths: BTreeSet<String> =
            names.map(|name| String::from_utf8(name.path()).unwrap()).collect();
        // The close has stored the removed names in attributes of the top.
        assert!(paths.remove("."));
        assert_eq!(paths, set(&["f", "f/six"]));
        let last = volume.changes().mark(root).unwrap();
        volume.close().unwrap();
        m.start(0);
        let (mut there, gone, _) = told(&m.dir, Some(&last)).unwrap();
        assert!(there.remove(".") && there.is_empty() && gone.is_empty());
    });
}

/// More changes than a piece has room for, and paths longer than a record.
#[test]
fn many_changes_and_long_paths() {
    each(&["allow_other", "allow_other,open"], |m| {
        let long = "n".repeat(250);
        let mut deep = m.dir.clone();
        let mut at = dir(&m.dir);
        for _ in 0..50 {
            rustix::fs::mkdirat(&at, long.as_str(), rustix::fs::Mode::from_raw_mode(0o755))
                .unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, long.as_str(), flags, rustix::fs::Mode::empty()).unwrap();
            deep.push(&long);
        }
        for n in 0..3000 {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            let name = format!("f{n}");
            rustix::fs::openat(&at, name, flags, rustix::fs::Mode::empty()).unwrap();
        }
        let (there, gone, _) = told(&m.dir, None).unwrap();
        assert_eq!((there.len(), gone.len()), (1 + 50 + 3000, 0));
        let prefix = vec![long; 50].join("/");
        for n in 0..3000 {
            assert!(there.contains(&format!("{prefix}/f{n}")), "{n}");
        }
    });
}

/// A user is told what it could list, and nothing of the rest.
#[test]
fn a_user_is_told_what_it_could_find() {
    each(&ALL[..3], |m| {
        keep_removed(m);
        for dir in ["open", "open/in", "closed", "closed/in", "listed", "searched", "group"] {
            mkdir(m.path(dir), 0o755).unwrap();
            for file in ["stays", "goes", "moves"] {
                touch(m.path(&format!("{dir}/{file}")));
            }
        }
        let before = mark(&m.dir);
        chmod(m.path("closed"), 0o700);
        chmod(m.path("listed"), 0o744);
        chmod(m.path("searched"), 0o711);
        chmod(m.path("group"), 0o750);
        chown(m.path("group"), 0, 4242);
        for dir in ["open", "open/in", "closed", "closed/in", "listed", "searched", "group"] {
            std::fs::write(m.path(&format!("{dir}/stays")), "x").unwrap();
            unlink(m.path(&format!("{dir}/goes"))).unwrap();
            rename(m.path(&format!("{dir}/moves")), m.path(&format!("{dir}/moved"))).unwrap();
        }
        let mut root = control(&m.dir).unwrap();
        assert_eq!(told_by(&mut root, Some(&before)).unwrap().1.len(), 14);
        as_user(USER, &[], || {
            // Also through a file that root has opened: who asks counts.
            for control in [&mut control(&m.dir).unwrap(), &mut root] {
                let (there, gone, _) = told_by(control, Some(&before)).unwrap();
                let names = ["open", "open/in", "closed", "listed", "searched", "group"];
                let files = ["open/stays", "open/moved", "open/in/stays", "open/in/moved"];
                assert_eq!(there, set(&[&names[..], &files].concat()));
                let names = ["open/goes", "open/moves", "open/in/goes", "open/in/moves"];
                assert_eq!(gone, set(&names));
            }
            fails!(ACCESS, told(&m.path("closed"), Some(&before)));
            fails!(ACCESS, told(&m.path("listed"), Some(&before)));
            fails!(ACCESS, told(&m.path("searched"), Some(&before)));
            fails!(ACCESS, control(&m.path("searched")).unwrap().mark().map_err(errno));
            assert!(control(&m.path("open")).unwrap().is_newer(&before).unwrap());
        });
        as_user(OTHER, &[4242], || {
            let (there, gone, _) = told(&m.path("group"), Some(&before)).unwrap();
            assert_eq!(there, set(&[".", "stays", "moved"]));
            assert_eq!(gone, set(&["goes", "moves"]));
        });
    });
}

#[test]
fn marks_that_are_refused() {
    each(&["allow_other"], |m| {
        let ours = mark(&m.dir);
        let path = m.base().join("other");
        shoal::raw::mkfs(&path, &MkfsOptions { size: 64 << 20, ..MkfsOptions::default() }).unwrap();
        let other = Volume::open(&path, &shoal::raw::OpenOptions::default()).unwrap();
        let theirs = other.changes().mark(shoal::raw::Ino::ROOT).unwrap();
        other.close().unwrap();
        fails!(XDEV, told(&m.dir, Some(&theirs)));
        // From the future of an older copy of the volume.
        m.stop();
        let copy = m.base().join("copy");
        std::fs::copy(m.volume(), &copy).unwrap();
        m.start(0);
        touch(m.path("file"));
        let future = mark(&m.dir);
        m.stop();
        std::fs::rename(&copy, m.volume()).unwrap();
        m.start(0);
        fails!(STALE, told(&m.dir, Some(&future)));
        let file = raw_control(&m.dir);
        ask(&file, &Question::new(Kind::Changes, 0, b"no mark")).unwrap();
        fails!(INVAL, read(&file));
        ask(&file, &Question::new(Kind::Newer, 0, &[0xff; 76])).unwrap();
        fails!(INVAL, read(&file));
        mkdir(m.path("d"), 0o755).unwrap();
        let mut control = control(&m.path("d")).unwrap();
        rmdir(m.path("d")).unwrap();
        fails!(NOENT, told_by(&mut control, Some(&ours)));
        fails!(NOENT, control.mark().map_err(errno));
    });
}

/// A comparison of two numbers tells that there is something new, and a mark ends it.
#[test]
fn something_newer_than_a_mark() {
    each(&["allow_other", "allow_other,open"], |m| {
        mkdir(m.path("d"), 0o755).unwrap();
        let mut control = control(&m.dir).unwrap();
        let mut mark = control.mark().unwrap();
        for n in 0..20 {
            assert!(!control.is_newer(&mark).unwrap(), "{n}: nothing since");
            touch(m.path(&format!("d/{n}")));
            assert!(control.is_newer(&mark).unwrap(), "{n}");
            let (there, _, next) = told_by(&mut control, Some(&mark)).unwrap();
            assert_eq!(there, set(&["d", &format!("d/{n}")]));
            mark = next;
        }
    });
}

/// Reads a piece; returns whether it is the last one.
fn read(control: &OwnedFd) -> Res<bool> {
    let mut room = vec![0; PIECE];
    let len = rustix::io::pread(control, &mut room[..8192], 0)?;
    let (is_last, records) = read_piece(&room[..len], Kind::Changes).unwrap();
    assert!(records.count() > 0);
    Ok(is_last)
}

/// Programs that begin to read and stop: their answers give way to newer ones, which are whole.
#[test]
fn answers_that_nobody_reads() {
    each(&["allow_other", "allow_other,open"], |m| {
        for n in 0..1500 {
            touch(m.path(&format!("file {n}")));
        }
        let everything = Question::new(Kind::Changes, 0, b"");
        let begun = |file: &OwnedFd| {
            ask(file, &everything).unwrap();
            assert!(!read(file).unwrap());
        };
        let stopped: Vec<OwnedFd> = (0..30).map(|_| raw_control(&m.dir)).collect();
        as_user(USER, &[], || {
            stopped[..20].iter().for_each(begun);
            // The two newest go on.
            for file in &stopped[..18] {
                fails!(CANCELED, read(file));
                fails!(INVAL, read(file));
            }
            for file in &stopped[18..20] {
                while !read(file).unwrap() {}
            }
            stopped[..2].iter().for_each(begun);
        });
        for user in [0, OTHER] {
            as_user(user, &[], || {
                assert_eq!(told(&m.dir, None).unwrap().0.len(), 1501);
            });
        }
        // The user's have not had to give way.
        assert!(read(&stopped[0]).is_ok() && read(&stopped[1]).is_ok());
        stopped[20..28].iter().for_each(begun);
        fails!(CANCELED, read(&stopped[0]));
        fails!(CANCELED, read(&stopped[1]));
        as_user(USER, &[], || {
            ask(&stopped[0], &everything).unwrap();
            fails!(AGAIN, read(&stopped[0]));
        });
        begun(&stopped[28]);
        fails!(CANCELED, read(&stopped[20]));
        for file in &stopped[21..29] {
            while !read(file).unwrap() {}
        }
        // Of a question that had to wait nothing is lost.
        as_user(USER, &[], || while !read(&stopped[0]).unwrap() {});
        drop(stopped);
        m.remount();
    });
}

/// A directory that is renamed while its changes are read.
#[test]
fn a_directory_that_moves_or_goes_midway() {
    each(&["allow_other"], |m| {
        mkdir(m.path("d"), 0o755).unwrap();
        for n in 0..1500 {
            touch(m.path(&format!("d/file {n}")));
        }
        let file = raw_control(&m.path("d"));
        ask(&file, &Question::new(Kind::Changes, 0, b"")).unwrap();
        assert!(!read(&file).unwrap());
        rename(m.path("d"), m.path("e")).unwrap();
        assert!(!read(&file).unwrap());
        std::fs::remove_dir_all(m.path("e")).unwrap();
        fails!(NOENT, read(&file));
    });
}
