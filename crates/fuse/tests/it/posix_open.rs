//! `open`: flags, errors, names.

use crate::common::*;
use rustix::fs::{Mode, OFlags};

#[test]
fn create_and_exclusive() {
    let Some(m) = mount("") else { return };
    let file = m.path("file");
    fails!(NOENT, open(&file, OFlags::RDONLY));
    let fd = create(&file, OFlags::WRONLY | OFlags::EXCL, 0o640).unwrap();
    let facts = rustix::fs::fstat(&fd).unwrap();
    assert_eq!((facts.st_mode & 0o7777, facts.st_size, facts.st_nlink), (0o640, 0, 1));
    fails!(EXIST, create(&file, OFlags::WRONLY | OFlags::EXCL, 0o600));
    // Without O_EXCL the file is opened and its mode left alone.
    create(&file, OFlags::WRONLY, 0o777).unwrap();
    assert_eq!(mode(&file), 0o640);
    fails!(NOENT, create(m.path("no/file"), OFlags::WRONLY, 0o600));
    fails!(NOTDIR, create(m.path("file/x"), OFlags::WRONLY, 0o600));
    // A dangling symlink is followed by O_CREAT and refused by O_EXCL.
    symlink("made", m.path("dangling")).unwrap();
    fails!(EXIST, create(m.path("dangling"), OFlags::WRONLY | OFlags::EXCL, 0o600));
    create(m.path("dangling"), OFlags::WRONLY, 0o600).unwrap();
    assert_eq!(list(&m.dir), ["dangling", "file", "made"]);
}

#[test]
fn truncate_at_open() {
    let Some(m) = mount("") else { return };
    let file = m.path("file");
    std::fs::write(&file, b"contents").unwrap();
    drop(open(&file, OFlags::WRONLY).unwrap());
    assert_eq!(std::fs::read(&file).unwrap(), b"contents");
    drop(open(&file, OFlags::WRONLY | OFlags::TRUNC).unwrap());
    assert_eq!(stat(&file).unwrap().st_size, 0);
    assert_eq!(std::fs::read(&file).unwrap(), b"");
    std::fs::write(&file, b"again").unwrap();
    drop(create(&file, OFlags::RDWR | OFlags::TRUNC, 0o600).unwrap());
    assert_eq!(std::fs::read(&file).unwrap(), b"");
}

/// The same with opens sent to the server, and without.
#[test]
fn truncate_at_open_with_either_way_to_open() {
    for options in ["open", "no_open"] {
        let Some(mut m) = mount_only(options) else { return };
        let file = m.path("file");
        std::fs::write(&file, b"contents").unwrap();
        drop(open(&file, OFlags::WRONLY | OFlags::TRUNC).unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"", "{options}");
        std::fs::write(&file, b"more").unwrap();
        m.remount();
        assert_eq!(std::fs::read(&file).unwrap(), b"more", "{options}");
        drop(open(&file, OFlags::WRONLY | OFlags::TRUNC).unwrap());
        m.remount();
        assert_eq!(stat(&file).unwrap().st_size, 0, "{options}");
    }
}

#[test]
fn directories() {
    let Some(m) = mount("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    touch(m.path("file"));
    fails!(ISDIR, open(m.path("dir"), OFlags::WRONLY));
    fails!(ISDIR, open(m.path("dir"), OFlags::RDWR));
    fails!(ISDIR, create(m.path("dir"), OFlags::RDONLY, 0o600));
    fails!(NOTDIR, open(m.path("file"), OFlags::DIRECTORY));
    fails!(NOTDIR, open(m.path("file/"), OFlags::RDONLY));
    fails!(ISDIR, create(m.path("new/"), OFlags::WRONLY, 0o600));
    let fd = open(m.path("dir"), OFlags::DIRECTORY).unwrap();
    fails!(ISDIR, rustix::io::read(&fd, &mut [0u8; 10]));
}

#[test]
fn symlinks_at_the_end() {
    let Some(m) = mount("") else { return };
    std::fs::write(m.path("file"), b"x").unwrap();
    symlink("file", m.path("link")).unwrap();
    fails!(LOOP, open(m.path("link"), OFlags::NOFOLLOW));
    assert_eq!(pread(&open(m.path("link"), OFlags::RDONLY).unwrap(), 0, 9), b"x");
    let path = open(m.path("link"), OFlags::PATH | OFlags::NOFOLLOW).unwrap();
    assert_eq!(rustix::fs::fstat(&path).unwrap().st_mode & 0o170_000, 0o120_000);
}

#[test]
fn access_mode_of_the_descriptor() {
    let Some(m) = mount("") else { return };
    std::fs::write(m.path("file"), b"data").unwrap();
    let reader = open(m.path("file"), OFlags::RDONLY).unwrap();
    fails!(BADF, rustix::io::write(&reader, b"x"));
    fails!(INVAL, rustix::fs::ftruncate(&reader, 0));
    let writer = open(m.path("file"), OFlags::WRONLY).unwrap();
    fails!(BADF, rustix::io::read(&writer, &mut [0u8; 4]));
    let path = open(m.path("file"), OFlags::PATH).unwrap();
    fails!(BADF, rustix::io::read(&path, &mut [0u8; 4]));
}

#[test]
fn append_goes_to_the_end() {
    let Some(m) = mount("") else { return };
    let file = m.path("log");
    std::fs::write(&file, b"12").unwrap();
    let first = open(&file, OFlags::WRONLY | OFlags::APPEND).unwrap();
    let second = open(&file, OFlags::WRONLY | OFlags::APPEND).unwrap();
    for (at, fd) in [&first, &second, &first, &second].into_iter().enumerate() {
        rustix::io::write(fd, format!("{at}").as_bytes()).unwrap();
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"120123");
    rustix::fs::ftruncate(&first, 1).unwrap();
    rustix::io::write(&second, b"x").unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"1x");
}

/// Appending from many threads loses nothing.
#[test]
fn concurrent_appends() {
    let Some(m) = mount("") else { return };
    let file = m.path("log");
    touch(&file);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let file = &file;
            scope.spawn(move || {
                let fd = open(file, OFlags::WRONLY | OFlags::APPEND).unwrap();
                for _ in 0..200 {
                    assert_eq!(rustix::io::write(&fd, &[b'a' + thread; 10]).unwrap(), 10);
                }
            });
        }
    });
    let data = std::fs::read(&file).unwrap();
    assert_eq!(data.len(), 4 * 200 * 10);
    assert!(data.chunks(10).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
}

#[test]
fn umask_applies_to_all_that_is_made() {
    let Some(m) = mount("") else { return };
    with_umask(0o027, || {
        create(m.path("file"), OFlags::WRONLY, 0o666).unwrap();
        mkdir(m.path("dir"), 0o777).unwrap();
        let mode = Mode::from_raw_mode(0o666);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, m.path("fifo"), fifo, mode, 0).unwrap();
        symlink("x", m.path("link")).unwrap();
    });
    assert_eq!(mode(m.path("file")), 0o640);
    assert_eq!(mode(m.path("dir")), 0o750);
    assert_eq!(mode(m.path("fifo")), 0o640);
    assert_eq!(mode(m.path("link")), 0o777);
}

#[test]
fn names_of_255_and_256_bytes() {
    let Some(m) = mount("") else { return };
    let longest = "n".repeat(255);
    let too_long = "n".repeat(256);
    touch(m.path(&longest));
    assert_eq!(list(&m.dir), [longest.as_str()]);
    fails!(NAMETOOLONG, create(m.path(&too_long), OFlags::WRONLY, 0o600));
    fails!(NAMETOOLONG, mkdir(m.path(&too_long), 0o700));
    fails!(NAMETOOLONG, stat(m.path(&too_long)));
    fails!(NAMETOOLONG, symlink("x", m.path(&too_long)));
    fails!(NAMETOOLONG, link(m.path(&longest), m.path(&too_long)));
    fails!(NAMETOOLONG, rename(m.path(&longest), m.path(&too_long)));
    fails!(NAMETOOLONG, unlink(m.path(&too_long)));
    // 127 letters of two bytes and one of one.
    let letters = "é".repeat(127) + "x";
    mkdir(m.path(&letters), 0o755).unwrap();
    assert_eq!(list(m.path(&letters)).len(), 0);
}

/// Any byte but NUL and the slash is a letter.
#[test]
fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let Some(m) = mount("") else { return };
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        let name = [b'x', byte];
        touch(m.dir.join(std::ffi::OsStr::from_bytes(&name)));
    }
    assert_eq!(std::fs::read_dir(&m.dir).unwrap().count(), 254);
    for entry in std::fs::read_dir(&m.dir).unwrap() {
        unlink(entry.unwrap().path()).unwrap();
    }
    assert!(list(&m.dir).is_empty());
}

#[test]
fn special_files() {
    let Some(m) = mount("") else { return };
    use rustix::fs::FileType::*;
    let cases = [
        ("fifo", Fifo, 0o010_000, 0),
        ("socket", Socket, 0o140_000, 0),
        ("char", CharacterDevice, 0o020_000, rustix::fs::makedev(1, 3)),
        ("block", BlockDevice, 0o060_000, rustix::fs::makedev(259, 70_000)),
        ("regular", RegularFile, 0o100_000, 0),
    ];
    for (name, kind, bits, device) in cases {
        let mode = Mode::from_raw_mode(0o620);
        rustix::fs::mknodat(rustix::fs::CWD, m.path(name), kind, mode, device).unwrap();
        let facts = lstat(m.path(name)).unwrap();
        assert_eq!(facts.st_mode, bits | 0o620, "{name}");
        assert_eq!(facts.st_rdev, device, "{name}");
        assert_eq!(facts.st_size, 0, "{name}");
        fails!(EXIST, rustix::fs::mknodat(rustix::fs::CWD, m.path(name), kind, mode, device));
    }
    let pid = std::process::id();
    assert!(pid > 0);
    fails!(NXIO, open(m.path("fifo"), OFlags::WRONLY | OFlags::NONBLOCK));
    fails!(NXIO, open(m.path("socket"), OFlags::RDONLY));
}
