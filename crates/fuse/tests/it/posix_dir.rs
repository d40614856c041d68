//! Listings, also while the directory changes.

use crate::common::*;
use rustix::fs::{AtFlags, FileType, OFlags};
use std::collections::BTreeSet;

/// Returns names, types and inodes as the kernel lists them.
fn names(path: &std::path::Path) -> Vec<(String, FileType, u64)> {
    let fd = open(path, OFlags::DIRECTORY).unwrap();
    let dir = rustix::fs::Dir::read_from(&fd).unwrap();
    let mut found = Vec::new();
    for entry in dir {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        found.push((name, entry.file_type(), entry.ino()));
    }
    found
}

#[test]
fn dots_types_and_inodes() {
    let Some(m) = mount("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    mkdir(m.path("dir/sub"), 0o755).unwrap();
    touch(m.path("dir/file"));
    symlink("x", m.path("dir/link")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, m.path("dir/fifo"), FileType::Fifo, mode, 0).unwrap();
    let mut found = names(&m.path("dir"));
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let kinds: Vec<_> = found.iter().map(|(name, kind, _)| (name.as_str(), *kind)).collect();
    assert_eq!(
        kinds,
        [
            (".", FileType::Directory),
            ("..", FileType::Directory),
            ("fifo", FileType::Fifo),
            ("file", FileType::RegularFile),
            ("link", FileType::Symlink),
            ("sub", FileType::Directory),
        ]
    );
    for (name, _, ino) in &found {
        let facts = lstat(m.path("dir").join(name)).unwrap();
        assert_eq!(facts.st_ino, *ino, "{name}");
    }
}

#[test]
fn every_entry_once_in_a_large_directory() {
    let Some(mut m) = mount("") else { return };
    const FILES: usize = 5000;
    mkdir(m.path("dir"), 0o755).unwrap();
    for number in 0..FILES {
        touch(m.path(&format!("dir/a-file-with-a-name-{number}")));
    }
    for round in 0..3 {
        let found = names(&m.path("dir"));
        assert_eq!(found.len(), FILES + 2, "round {round}");
        let unique: BTreeSet<_> = found.iter().map(|(name, ..)| name).collect();
        assert_eq!(unique.len(), FILES + 2);
        for number in [0, 1, 2499, 4999] {
            assert!(unique.contains(&format!("a-file-with-a-name-{number}")));
        }
        match round {
            0 => drop_caches(),
            _ => m.remount(),
        }
    }
    std::fs::remove_dir_all(m.path("dir")).unwrap();
    assert!(list(&m.dir).is_empty());
}

/// Entries that stay in the directory are listed exactly once, whatever comes and goes meanwhile.
#[test]
fn reading_while_changing() {
    let Some(m) = mount("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    for number in 0..3000 {
        touch(m.path(&format!("dir/stays{number}")));
        touch(m.path(&format!("dir/goes{number}")));
    }
    let fd = open(m.path("dir"), OFlags::DIRECTORY).unwrap();
    let dir = rustix::fs::Dir::read_from(&fd).unwrap();
    let mut found = Vec::new();
    let mut turn = 0;
    for entry in dir {
        found.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
        if turn < 3000 {
            unlink(m.path(&format!("dir/goes{turn}"))).unwrap();
            touch(m.path(&format!("dir/comes{turn}")));
            turn += 1;
        }
    }
    let stays: Vec<_> = found.iter().filter(|name| name.starts_with("stays")).collect();
    let unique: BTreeSet<_> = stays.iter().collect();
    assert_eq!((stays.len(), unique.len()), (3000, 3000));
    let all: BTreeSet<_> = found.iter().collect();
    assert_eq!(all.len(), found.len(), "nothing twice");
}

/// Old `rm -r` does this: remove while reading, without rewinding.
#[test]
fn removing_while_reading() {
    let Some(m) = mount("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    for number in 0..2000 {
        touch(m.path(&format!("dir/{number}")));
    }
    let fd = open(m.path("dir"), OFlags::DIRECTORY).unwrap();
    let dir = rustix::fs::Dir::read_from(&fd).unwrap();
    for entry in dir {
        let entry = entry.unwrap();
        if entry.file_type() == FileType::RegularFile {
            rustix::fs::unlinkat(&fd, entry.file_name(), AtFlags::empty()).unwrap();
        }
    }
    assert!(list(m.path("dir")).is_empty());
    rmdir(m.path("dir")).unwrap();
}

#[test]
fn rewinding_and_seeking() {
    let Some(m) = mount("") else { return };
    for number in 0..500 {
        touch(m.path(&format!("file{number}")));
    }
    let fd = open(&m.dir, OFlags::DIRECTORY).unwrap();
    let mut dir = rustix::fs::Dir::read_from(&fd).unwrap();
    let mut first = Vec::new();
    let mut offsets = Vec::new();
    for entry in dir.by_ref() {
        let entry = entry.unwrap();
        first.push(entry.file_name().to_owned());
        offsets.push(entry.offset());
    }
    dir.rewind();
    let again: Vec<_> = std::iter::from_fn(|| dir.next())
        .map(|entry| entry.unwrap().file_name().to_owned())
        .collect();
    assert_eq!(first, again);
    // From the middle, with entries removed before and after it.
    let middle = 250;
    dir.seek(offsets[middle]).unwrap();
    for at in [10, 20, 400] {
        unlink(m.dir.join(first[at].to_str().unwrap())).unwrap();
    }
    let rest: Vec<_> = std::iter::from_fn(|| dir.next())
        .map(|entry| entry.unwrap().file_name().to_owned())
        .filter(|name| *name != first[400])
        .collect();
    let wanted: Vec<_> =
        first[middle + 1..].iter().filter(|name| **name != first[400]).cloned().collect();
    assert_eq!(rest, wanted);
}

/// A rewound descriptor that was open all the time lists a new file, and no removed one.
#[test]
fn a_rewound_listing_is_fresh() {
    let Some(m) = mount("") else { return };
    touch(m.path("old"));
    let fd = open(&m.dir, OFlags::DIRECTORY).unwrap();
    let read = |fd| {
        let mut dir = rustix::fs::Dir::read_from(fd).unwrap();
        let mut found: Vec<_> = std::iter::from_fn(|| dir.next())
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        found.sort();
        found
    };
    assert_eq!(read(&fd), ["old"]);
    touch(m.path("new"));
    unlink(m.path("old")).unwrap();
    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(0)).unwrap();
    assert_eq!(read(&fd), ["new"]);
}

/// Each change in a directory must show in the next listing although the kernel caches listings, in
/// both directories of a rename.
#[test]
fn a_kept_listing_follows_every_change() {
    let Some(m) = mount("") else { return };
    let dirs = ["a", "b"].map(|name| m.path(name));
    dirs.iter().for_each(|dir| mkdir(dir, 0o755).unwrap());
    let at = |name: &str| m.path(name);
    let exchange = |from: &str, to: &str| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, at(from), cwd, at(to), flags).unwrap();
    };
    type Step<'a> = (&'a dyn Fn(), [&'a [&'a str]; 2]);
    let steps: [Step<'_>; 10] = [
        (&|| touch(at("a/f")), [&["f"], &[]]),
        (&|| mkdir(at("a/d"), 0o755).unwrap(), [&["d", "f"], &[]]),
        (&|| symlink("x", at("a/s")).unwrap(), [&["d", "f", "s"], &[]]),
        (&|| link(at("a/f"), at("b/l")).unwrap(), [&["d", "f", "s"], &["l"]]),
        (&|| rename(at("a/s"), at("b/t")).unwrap(), [&["d", "f"], &["l", "t"]]),
        (&|| rename(at("a/f"), at("a/g")).unwrap(), [&["d", "g"], &["l", "t"]]),
        (&|| exchange("a/g", "b/t"), [&["d", "g"], &["l", "t"]]),
        (&|| rename(at("a/d"), at("b/d")).unwrap(), [&["g"], &["d", "l", "t"]]),
        (&|| unlink(at("b/l")).unwrap(), [&["g"], &["d", "t"]]),
        (&|| rmdir(at("b/d")).unwrap(), [&["g"], &["t"]]),
    ];
    for (number, (step, expected)) in steps.iter().enumerate() {
        step();
        // Once from the server, once from the cache.
        for _ in 0..2 {
            for (dir, expected) in dirs.iter().zip(expected) {
                assert_eq!(list(dir), *expected, "step {number}");
            }
        }
    }
    let kinds = |dir: &std::path::Path| -> Vec<FileType> {
        names(dir).into_iter().filter(|(name, ..)| !name.starts_with('.')).map(|n| n.1).collect()
    };
    assert_eq!(kinds(&dirs[0]), [FileType::Symlink], "after the exchange");
    assert_eq!(kinds(&dirs[1]), [FileType::RegularFile]);
    drop_caches();
    assert_eq!((list(&dirs[0]), list(&dirs[1])), (vec!["g".into()], vec!["t".into()]));
}

#[test]
fn deep_trees() {
    let Some(mut m) = mount("") else { return };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut fd = open(&m.dir, OFlags::DIRECTORY).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    for depth in 0..300 {
        let name = format!("level{depth}");
        rustix::fs::mkdirat(&fd, &name, mode).unwrap();
        fd = rustix::fs::openat(&fd, &name, flags, mode).unwrap();
    }
    rustix::fs::openat(&fd, "bottom", OFlags::CREATE | OFlags::WRONLY, mode).unwrap();
    drop(fd);
    m.remount();
    let mut fd = open(&m.dir, OFlags::DIRECTORY).unwrap();
    for depth in 0..300 {
        let name = format!("level{depth}");
        fd = rustix::fs::openat(&fd, &name, flags, mode).unwrap();
    }
    rustix::fs::statat(&fd, "bottom", AtFlags::empty()).unwrap();
    std::fs::remove_dir_all(m.path("level0")).unwrap();
}

/// The same names in many threads at once: exactly one wins each.
#[test]
fn racing_creators() {
    let Some(m) = mount("") else { return };
    let wins: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..300)
                        .filter(|number| {
                            let path = m.path(&format!("f{number}"));
                            match create(path, OFlags::WRONLY | OFlags::EXCL, 0o600) {
                                Ok(_) => true,
                                Err(errno) => {
                                    assert_eq!(errno, rustix::io::Errno::EXIST);
                                    false
                                }
                            }
                        })
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(wins.iter().sum::<usize>(), 300);
    assert_eq!(list(&m.dir).len(), 300);
}
