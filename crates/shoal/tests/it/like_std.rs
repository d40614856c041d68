//! The calls of [`Dir`], [`File`] and [`Batch`](shoal::Batch) do what `std::fs` does: each is made
//! on every kind of object, in a directory of the host and in one of a volume, which begin alike.
//! Result and effect must be the same, but for the differences that the methods document.

use shoal::{Credentials, Dir, Error, FileOptions, Volume};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const EBADF: i32 = 9;
const ENXIO: i32 = 6;
const EINVAL: i32 = 22;
const EISDIR: i32 = 21;

/// The objects of each tree, by name.
const OBJECTS: &[(&str, Object)] = &[
    ("file", Object::File("file's")),
    ("other", Object::File("")),
    ("empty", Object::Dir),
    ("full", Object::Dir),
    ("full/file", Object::File("inner")),
    ("full/dir", Object::Dir),
    ("to_file", Object::Link("file")),
    ("to_empty", Object::Link("empty")),
    ("to_full", Object::Link("full")),
    ("to_link", Object::Link("to_file")),
    ("dangling", Object::Link("missing")),
    ("dangling_far", Object::Link("full/new")),
    ("dangling_twice", Object::Link("dangling_far")),
    ("dangling_slash", Object::Link("missing/")),
    ("dangling_deep", Object::Link("missing/file")),
    ("loop", Object::Link("loop")),
    ("through", Object::Link("file/inner")),
    ("fifo", Object::Fifo),
];

#[derive(Clone, Copy)]
enum Object {
    File(&'static str),
    Dir,
    Link(&'static str),
    Fifo,
}

/// Paths of the calls.
const PATHS: &[&str] = &[
    "file",
    "file/",
    "file/.",
    "file/inner",
    "other",
    "empty",
    "empty/",
    "empty/.",
    "empty/new",
    "full",
    "full/",
    "full//file",
    "full/dir",
    "full/dir/..",
    "full/./dir/../file",
    "to_file",
    "to_file/",
    "to_file/inner",
    "to_empty",
    "to_empty/",
    "to_empty/new",
    "to_full",
    "to_full/",
    "to_full/file",
    "to_link",
    "dangling",
    "dangling/",
    "dangling/new",
    "dangling_far",
    "dangling_twice",
    "dangling_slash",
    "dangling_deep",
    "loop",
    "loop/new",
    "through",
    "fifo",
    "fifo/",
    "missing",
    "missing/",
    "missing/new",
    ".",
];

/// Paths of the calls with two.
const PAIRS: &[&str] = &[
    "file",
    "file/",
    "file/.",
    "file/inner",
    "empty",
    "empty/",
    "full",
    "full/",
    "full/dir",
    "full/dir/..",
    "to_file",
    "to_file/",
    "to_empty/",
    "dangling",
    "dangling/",
    "loop",
    "fifo",
    "missing",
    "missing/",
    "missing/new",
];

/// Two trees that are alike: one of the host, one of a volume.
struct Both {
    host: PathBuf,
    top: Dir,
    next: AtomicU32,
}

impl Both {
    fn new() -> Both {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = std::env::temp_dir().join(format!("shoal-std-{}-{number}", std::process::id()));
        fs::create_dir_all(&host).unwrap();
        let volume = crate::place::volume(Volume::options().size(256 << 20));
        let top = volume.root(Credentials::current());
        Both { host, top, next: AtomicU32::new(0) }
    }

    /// Makes the objects afresh in both.
    fn pair(&self) -> (PathBuf, Dir) {
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let (host, dir) = (self.host.join(&name), self.top.create_dir(&name).unwrap());
        fs::create_dir(&host).unwrap();
        for (name, object) in OBJECTS {
            let path = host.join(name);
            match object {
                Object::File(text) => {
                    fs::write(path, text).unwrap();
                    dir.write(name, text).unwrap();
                }
                Object::Dir => {
                    fs::create_dir(path).unwrap();
                    dir.create_dir(name).unwrap();
                }
                Object::Link(target) => {
                    symlink(target, path).unwrap();
                    dir.symlink(target, name).unwrap();
                }
                Object::Fifo => {
                    use rustix::fs::{FileType, Mode, mknodat};
                    let mode = Mode::from_raw_mode(0o644);
                    mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
                    dir.make_node(name, shoal::FileKind::Fifo, 0o644, 0).unwrap();
                }
            }
        }
        (host, dir)
    }

    /// Makes a call in both, and compares what it returns and what it leaves. `known` gets the
    /// errno of the host, and returns that of a volume where it is documented to be another one.
    #[track_caller]
    fn compare<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        on_host: impl FnOnce(&Path) -> io::Result<T>,
        on_volume: impl FnOnce(&Dir) -> Result<T, Error>,
        known: impl FnOnce(&Result<T, i32>) -> Option<i32>,
    ) -> Option<String> {
        let (host, dir) = self.pair();
        let expected = on_host(&host).map_err(|error| error.raw_os_error().unwrap_or(EINVAL));
        let found = on_volume(&dir).map_err(|error| error.errno());
        if let Some(errno) = known(&expected) {
            let unchanged = of_volume(&self.pair().1, "");
            let same = found.as_ref().err() == Some(&errno) && of_volume(&dir, "") == unchanged;
            return (!same).then(|| format!("{what}: documented is errno {errno}, not {found:?}"));
        }
        if expected != found {
            return Some(format!("{what}: std {expected:?}, here {found:?}"));
        }
        let (left, own) = (of_host(&host, ""), of_volume(&dir, ""));
        (left != own).then(|| format!("{what}: std leaves\n{left:#?}\nhere\n{own:#?}"))
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.host);
    }
}

/// A tree as text: kind, mode, links, contents of each path.
type Tree = BTreeMap<String, String>;

fn of_host(top: &Path, path: &str) -> Tree {
    let mut tree = Tree::new();
    for entry in fs::read_dir(top.join(path)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let full = top.join(&path);
        let meta = fs::symlink_metadata(&full).unwrap();
        let (mode, nlink) = (meta.mode() & 0o7777, meta.nlink());
        let text = if meta.is_file() {
            format!("file {mode:o} {nlink} {:?}", fs::read(&full).unwrap())
        } else if meta.is_dir() {
            tree.append(&mut of_host(top, &path));
            format!("dir {mode:o}")
        } else if meta.is_symlink() {
            format!("link {nlink} {:?}", fs::read_link(&full).unwrap())
        } else {
            assert!(meta.file_type().is_fifo());
            format!("fifo {mode:o} {nlink}")
        };
        tree.insert(path, text);
    }
    tree
}

fn of_volume(top: &Dir, path: &str) -> Tree {
    let mut tree = Tree::new();
    for entry in top.open_dir(path).unwrap().entries().unwrap() {
        let name = String::from_utf8(entry.unwrap().name().to_vec()).unwrap();
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let meta = top.symlink_metadata(&path).unwrap();
        let (mode, nlink) = (meta.permissions(), meta.nlink());
        let text = if meta.is_file() {
            format!("file {mode:o} {nlink} {:?}", top.read(&path).unwrap())
        } else if meta.is_dir() {
            tree.append(&mut of_volume(top, &path));
            format!("dir {mode:o}")
        } else if meta.is_symlink() {
            format!("link {nlink} {:?}", top.read_link(&path).unwrap())
        } else {
            assert_eq!(meta.kind(), shoal::FileKind::Fifo);
            format!("fifo {mode:o} {nlink}")
        };
        tree.insert(path, text);
    }
    tree
}

#[track_caller]
fn none(differences: Vec<String>) {
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

fn never<T>(_: &Result<T, i32>) -> Option<i32> {
    None
}

fn leads_to_fifo(path: &str) -> bool {
    path == "fifo"
}

#[test]
fn calls_on_names() {
    let both = Both::new();
    let mut differ = Vec::new();
    for path in PATHS {
        let at = |what: &str| format!("{what}({path:?})");
        differ.extend(both.compare(
            &at("create_dir"),
            |top| fs::create_dir(top.join(path)),
            |dir| dir.create_dir(path).map(drop),
            never,
        ));
        differ.extend(both.compare(
            &at("create_dir_all"),
            |top| fs::create_dir_all(top.join(path)),
            |dir| dir.create_dir_all(path).map(drop),
            never,
        ));
        differ.extend(both.compare(
            &at("remove_file"),
            |top| fs::remove_file(top.join(path)),
            |dir| dir.remove_file(path),
            never,
        ));
        differ.extend(both.compare(
            &at("remove_dir"),
            |top| fs::remove_dir(top.join(path)),
            |dir| dir.remove_dir(path),
            never,
        ));
        differ.extend(both.compare(
            &at("symlink"),
            |top| symlink("target", top.join(path)),
            |dir| dir.symlink("target", path),
            never,
        ));
        differ.extend(both.compare(
            &at("read_link"),
            |top| fs::read_link(top.join(path)),
            |dir| dir.read_link(path),
            never,
        ));
    }
    none(differ);
}

#[test]
fn calls_on_attributes() {
    let both = Both::new();
    let mut differ = Vec::new();
    for path in PATHS {
        let at = |what: &str| format!("{what}({path:?})");
        differ.extend(both.compare(
            &at("exists"),
            |top| fs::exists(top.join(path)),
            |dir| dir.exists(path),
            never,
        ));
        differ.extend(both.compare(
            &at("set_permissions"),
            |top| fs::set_permissions(top.join(path), fs::Permissions::from_mode(0o700)),
            |dir| dir.set_permissions(path, 0o700),
            never,
        ));
        differ.extend(both.compare(
            &at("set_owner"),
            |top| std::os::unix::fs::chown(top.join(path), None, None),
            |dir| dir.set_owner(path, None, None),
            never,
        ));
        differ.extend(both.compare(
            &at("metadata"),
            |top| fs::metadata(top.join(path)).map(|meta| (meta.is_file(), meta.is_dir())),
            |dir| dir.metadata(path).map(|meta| (meta.is_file(), meta.is_dir())),
            never,
        ));
        differ.extend(both.compare(
            &at("symlink_metadata"),
            |top| {
                fs::symlink_metadata(top.join(path)).map(|meta| (meta.is_symlink(), meta.is_dir()))
            },
            |dir| dir.symlink_metadata(path).map(|meta| (meta.is_symlink(), meta.is_dir())),
            never,
        ));
        differ.extend(both.compare(
            &at("open_dir and entries"),
            |top| Ok(fs::read_dir(top.join(path))?.count()),
            |dir| Ok(dir.open_dir(path)?.entries()?.count()),
            never,
        ));
    }
    none(differ);
}

/// Of a symlink with a slash behind it, and of a path that ends in dots, `std::fs::remove_dir_all`
/// removes everything inside, whether it fails afterwards or not. Here nothing is removed.
#[test]
fn trees_are_removed() {
    let both = Both::new();
    let mut differ = Vec::new();
    let refused = ["to_full/", "full/dir/..", "empty/.", "."];
    for path in PATHS.iter().filter(|path| !refused.contains(path)) {
        differ.extend(both.compare(
            &format!("remove_dir_all({path:?})"),
            |top| fs::remove_dir_all(top.join(path)),
            |dir| dir.remove_dir_all(path),
            never,
        ));
    }
    let (_, dir) = both.pair();
    let before = of_volume(&dir, "");
    for path in refused {
        let kind = dir.remove_dir_all(path).unwrap_err().kind();
        let expected = match path {
            "to_full/" => io::ErrorKind::NotADirectory,
            _ => io::ErrorKind::InvalidInput,
        };
        assert_eq!((kind, of_volume(&dir, "") == before), (expected, true), "{path}");
    }
    none(differ);
}

#[test]
fn calls_on_two_names() {
    let both = Both::new();
    let mut differ = Vec::new();
    for from in PAIRS {
        for to in PAIRS {
            differ.extend(both.compare(
                &format!("rename({from:?}, {to:?})"),
                |top| fs::rename(top.join(from), top.join(to)),
                |dir| dir.rename(from, to),
                never,
            ));
            differ.extend(both.compare(
                &format!("hard_link({from:?}, {to:?})"),
                |top| fs::hard_link(top.join(from), top.join(to)),
                |dir| dir.hard_link(from, to),
                never,
            ));
        }
    }
    none(differ);
}

/// Reading a directory as a file fails at the open, and special files cannot be opened.
#[test]
fn files_are_opened_read_and_written() {
    let both = Both::new();
    let mut differ = Vec::new();
    for path in PATHS {
        let at = |what: &str| format!("{what}({path:?})");
        let fifo = leads_to_fifo(path);
        differ.extend(both.compare(
            &at("read"),
            |top| if fifo { Err(errno(ENXIO)) } else { fs::read(top.join(path)) },
            |dir| dir.read(path),
            never,
        ));
        differ.extend(both.compare(
            &at("write"),
            |top| if fifo { Err(errno(ENXIO)) } else { fs::write(top.join(path), "new") },
            |dir| dir.write(path, "new"),
            never,
        ));
        differ.extend(both.compare(
            &at("create_new"),
            |top| fs::File::create_new(top.join(path)).map(drop),
            |dir| dir.create_new(path).map(drop),
            never,
        ));
        // Each combination of the options that std accepts or refuses.
        for bits in 0..64_u32 {
            let is = |bit: u32| bits & (1 << bit) != 0;
            let mut std = fs::OpenOptions::new();
            std.read(is(0))
                .write(is(1))
                .append(is(2))
                .truncate(is(3))
                .create(is(4))
                .create_new(is(5));
            let own = FileOptions::new();
            let own = own.read(is(0)).write(is(1)).append(is(2)).truncate(is(3));
            let own = own.create(is(4)).create_new(is(5));
            if *path != "file" && !std_accepts(&std) {
                continue;
            }
            let opens = both.compare(
                &at(&format!("{own:?}")),
                |top| match fifo && !is(5) {
                    true => Err(errno(ENXIO)),
                    false => std.open(top.join(path)).map(drop),
                },
                |dir| own.open(dir, path).map(drop),
                |expected| {
                    let only_reads = expected.is_ok() && !is(1) && !is(2);
                    (only_reads && DIRS.contains(path)).then_some(EISDIR)
                },
            );
            differ.extend(opens);
        }
    }
    none(differ);
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Returns whether std opens with these options at all.
fn std_accepts(options: &fs::OpenOptions) -> bool {
    options.open("/dev/null").map_or_else(|e| e.kind() != io::ErrorKind::InvalidInput, |_| true)
}

/// Paths that lead to directories.
const DIRS: &[&str] = &[
    "empty",
    "empty/",
    "empty/.",
    "full",
    "full/",
    "full/dir",
    "full/dir/..",
    "to_empty",
    "to_empty/",
    "to_full",
    "to_full/",
    ".",
];

/// A file that is not open for a call refuses it with `EBADF`, also where Linux has `EINVAL`.
#[test]
fn open_files_read_write_seek_and_change_their_size() {
    let both = Both::new();
    let mut differ = Vec::new();
    for mode in ["r", "w", "rw", "a", "ra"] {
        let (reads, appends) = (mode.contains('r'), mode.contains('a'));
        let writes = mode.contains('w');
        let mut std = fs::OpenOptions::new();
        std.read(reads).write(writes).append(appends);
        let own = FileOptions::new().read(reads).write(writes).append(appends);
        type Steps = (Vec<Result<u64, i32>>, Vec<u8>);
        fn steps<F: Read + Write + Seek>(
            file: &mut F,
            set_len: impl Fn(&F, u64) -> Result<(), i32>,
        ) -> Steps {
            let code = |error: io::Error| {
                let own = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
                error.raw_os_error().or(own.map(Error::errno)).unwrap_or(EINVAL)
            };
            let (mut done, mut buf) = (Vec::new(), [0; 4]);
            done.push(file.read(&mut buf).map(|n| n as u64).map_err(code));
            done.push(file.write(b"XY").map(|n| n as u64).map_err(code));
            done.push(file.stream_position().map_err(code));
            done.push(file.seek(SeekFrom::End(2)).map_err(code));
            done.push(file.write(b"Z").map(|n| n as u64).map_err(code));
            done.push(file.seek(SeekFrom::Current(-100)).map_err(code));
            done.push(file.seek(SeekFrom::Start(1)).map_err(code));
            done.push(file.read(&mut buf).map(|n| n as u64).map_err(code));
            done.push(set_len(file, 3).map(|()| 0));
            done.push(file.stream_position().map_err(code));
            done.push(file.write(b"").map(|n| n as u64).map_err(code));
            (done, buf.to_vec())
        }
        differ.extend(both.compare(
            &format!("steps of a file opened {mode:?}"),
            |top| {
                let mut file = std.open(top.join("file"))?;
                Ok(steps(&mut file, |file, len| {
                    let refused = |e: io::Error| match e.raw_os_error() {
                        Some(EINVAL) => EBADF,
                        other => other.unwrap_or(0),
                    };
                    file.set_len(len).map_err(refused)
                }))
            },
            |dir| {
                let mut file = own.open(dir, "file")?;
                Ok(steps(&mut file, |file, len| file.set_len(len).map_err(|e| e.errno())))
            },
            never,
        ));
    }
    none(differ);
}

/// A batch of one change does what the call does, but that it replaces what it writes, as a rename
/// does, and follows no symlink for that.
#[test]
fn batches_of_one_change() {
    let both = Both::new();
    let mut differ = Vec::new();
    for path in PATHS {
        let at = |what: &str| format!("batch {what}({path:?})");
        let host_write = |top: &Path| {
            // A new file is created elsewhere and renamed; std has nothing that does it all.
            let full = top.join(path);
            let kept = fs::symlink_metadata(&full).ok().filter(|meta| meta.is_file());
            if fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_dir()) && !path.ends_with('/') {
                return Err(errno(EISDIR));
            }
            let new = both.host.join("new");
            fs::write(&new, "new")?;
            if let Some(kept) = kept {
                fs::set_permissions(&new, kept.permissions())?;
            }
            fs::rename(&new, full)
        };
        if *path != "." {
            differ.extend(both.compare(
                &at("write"),
                host_write,
                |dir| dir.batch(|b| b.write(path, b"new")),
                |expected| match expected {
                    // Of a name that ends in a slash.
                    Err(_) if path.ends_with('/') => Some(20),
                    _ => None,
                },
            ));
        }
        differ.extend(both.compare(
            &at("create_dir"),
            |top| fs::create_dir(top.join(path)),
            |dir| dir.batch(|b| b.create_dir(path)),
            never,
        ));
        differ.extend(both.compare(
            &at("remove_dir"),
            |top| fs::remove_dir(top.join(path)),
            |dir| dir.batch(|b| b.remove_dir(path)),
            never,
        ));
        differ.extend(both.compare(
            &at("set_permissions"),
            |top| fs::set_permissions(top.join(path), fs::Permissions::from_mode(0o700)),
            |dir| dir.batch(|b| b.set_permissions(path, 0o700)),
            never,
        ));
    }
    none(differ);
}
