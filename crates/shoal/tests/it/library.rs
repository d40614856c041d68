//! The library as a program uses it.

use shoal::{Credentials, Dir, Error, File, FileOptions, Volume};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

fn volume() -> (Volume, Dir) {
    let volume = crate::place::volume(Volume::options().size(64 << 20));
    let root = volume.root(Credentials::root());
    (volume, root)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn names(dir: &Dir) -> BTreeSet<String> {
    let name = |entry: shoal::Result<shoal::Entry>| {
        String::from_utf8(entry.unwrap().name().to_vec()).unwrap()
    };
    dir.entries().unwrap().map(name).collect()
}

#[test]
fn files_read_write_and_seek_like_files() {
    let (_volume, root) = volume();
    let mut file = root.create_new("a").unwrap();
    file.write_all(b"hello world").unwrap();
    file.seek(SeekFrom::Start(6)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "world");
    file.seek(SeekFrom::End(-5)).unwrap();
    (&file).write_all(b"there").unwrap();
    assert_eq!(root.read("a").unwrap(), b"hello there");
    file.set_len(5).unwrap();
    file.punch_hole(0, 2).unwrap();
    assert_eq!(root.read("a").unwrap(), b"\0\0llo");
    assert!(file.seek(SeekFrom::Current(-100)).is_err());
    assert_eq!(file.metadata().unwrap().len(), 5);

    let readable = root.open("a").unwrap();
    assert_eq!(readable.write_at(b"x", 0).unwrap_err().errno(), 9, "EBADF");
    assert!(readable.set_len(0).is_err());
    let mut log = FileOptions::new().append(true).create(true).open(&root, "log").unwrap();
    let mut other = FileOptions::new().append(true).open(&root, "log").unwrap();
    log.write_all(b"one ").unwrap();
    other.write_all(b"two ").unwrap();
    log.write_all(b"three").unwrap();
    assert_eq!(root.read("log").unwrap(), b"one two three");
    assert_eq!(kind(log.read_at(&mut [0; 4], 0)), kind(readable.write_at(b"", 0)));
    assert_eq!(kind(FileOptions::new().open(&root, "a")), ErrorKind::InvalidInput);
    assert_eq!(
        kind(FileOptions::new().read(true).truncate(true).open(&root, "a")),
        ErrorKind::InvalidInput
    );
}

/// The times of many changes are equal; their versions are not.
#[test]
fn each_change_of_a_file_gives_it_a_larger_version() {
    let (_volume, root) = volume();
    root.write("a", "0").unwrap();
    let file = FileOptions::new().read(true).write(true).open(&root, "a").unwrap();
    let version = |name: &str| root.metadata(name).unwrap().version();
    let (mut last, mut last_of_dir) = (version("a"), version("."));
    let mut grows = |what: &str| {
        let now = version("a");
        assert!(now > last, "{what}: {now} after {last}");
        assert_eq!(version("a"), now, "nothing has changed");
        assert_eq!(file.metadata().unwrap().version(), now);
        last = now;
    };
    for n in 0..500 {
        root.write("a", n.to_string()).unwrap();
        grows("rewritten");
    }
    file.write_all_at(b"text", 1).unwrap();
    grows("written");
    file.write_all_at(b"text", 1).unwrap();
    grows("written with the same text");
    file.set_len(100_000).unwrap();
    grows("size");
    file.punch_hole(0, 4096).unwrap();
    grows("hole");
    root.set_permissions("a", 0o600).unwrap();
    grows("permissions");
    root.set_times("a", UNIX_EPOCH, UNIX_EPOCH).unwrap();
    grows("times");
    root.set_xattr_of("a", "user.x", b"value").unwrap();
    grows("attribute");
    root.hard_link("a", "b").unwrap();
    grows("link");
    root.remove_file("b").unwrap();
    grows("unlink");
    let before = version("a");
    root.rename("a", "c").unwrap();
    assert!(version("c") > before, "renamed");
    root.rename("c", "a").unwrap();
    grows("renamed back");
    assert_eq!(root.xattr_of("a", "shoal.version").unwrap(), Some(last.to_string().into_bytes()));
    assert!(!root.xattrs_of("a").unwrap().iter().any(|name| name.starts_with(b"shoal")));
    assert!(root.set_xattr_of("a", "shoal.version", b"1").is_err());
    for change in ["new", "a"] {
        root.write(change, "").unwrap();
        let now = version(".");
        assert_eq!(now > last_of_dir, change == "new", "the directory has one more name");
        last_of_dir = now;
    }
}

#[test]
fn an_open_file_outlives_its_name_and_no_longer() {
    let (volume, root) = volume();
    let before = volume.usage().unwrap().inodes;
    let file = root.create_new("gone").unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    root.remove_file("gone").unwrap();
    assert_eq!(kind(root.open("gone")), ErrorKind::NotFound);
    let mut text = [0; 10];
    assert_eq!(file.read_at(&mut text, 0).unwrap(), 10);
    assert_eq!(&text, b"still here");
    let ino = file.ino();
    assert!(volume.paths_of(ino).unwrap().is_empty());
    drop(file);
    assert_eq!(volume.usage().unwrap().inodes, before);
    assert!(volume.paths_of(ino).is_err());
}

#[test]
fn paths_never_lead_out_of_a_directory() {
    let (_volume, root) = volume();
    let jail = root.create_dir_all("a/jail").unwrap();
    root.write("secret", b"x").unwrap();
    root.write("a/jail/own", b"y").unwrap();
    for path in ["/secret", "../../secret", "..", "own/../../../secret", "./../jail/own"] {
        let code = kind(jail.read(path));
        assert!([ErrorKind::CrossesDevices, ErrorKind::NotADirectory].contains(&code), "{path}");
        assert!(jail.metadata(path).is_err() && jail.write(path, b"z").is_err(), "{path}");
        assert!(jail.create_dir(path).is_err() && jail.remove_file(path).is_err(), "{path}");
        assert!(jail.batch(|b| b.write(path, b"z")).is_err(), "{path}");
    }
    jail.symlink("/secret", "absolute").unwrap();
    jail.symlink("../../secret", "up").unwrap();
    jail.symlink("deep/../own", "fine").unwrap();
    jail.create_dir("deep").unwrap();
    assert_eq!(kind(jail.read("absolute")), ErrorKind::CrossesDevices);
    assert_eq!(kind(jail.read("up")), ErrorKind::CrossesDevices);
    assert_eq!(jail.read("fine").unwrap(), b"y");
    assert_eq!(jail.read("deep/../own").unwrap(), b"y");
    assert_eq!(jail.read_link("up").unwrap().to_str(), Some("../../secret"));
    assert_eq!(jail.metadata("").unwrap().ino(), jail.metadata(".").unwrap().ino());
    // A rename out of the way while somebody walks through `..` does not help either: the walk goes
    // back to where it came from.
    jail.symlink("loop", "loop").unwrap();
    assert_eq!(jail.read("loop").unwrap_err().errno(), 40, "ELOOP");
}

#[test]
fn credentials_are_checked_below_a_directory() {
    let (volume, root) = volume();
    root.create_dir("public").unwrap();
    root.set_permissions("public", 0o777).unwrap();
    root.create_dir("private").unwrap();
    root.set_permissions("private", 0o700).unwrap();
    root.write("private/a", b"a").unwrap();
    root.write("readable", b"a").unwrap();
    let ada = volume.root(Credentials::user(1000, 1000).umask(0o027));
    ada.write("public/hers", b"b").unwrap();
    let metadata = root.metadata("public/hers").unwrap();
    assert_eq!((metadata.uid(), metadata.permissions()), (1000, 0o640));
    assert_eq!(kind(ada.read("private/a")), ErrorKind::PermissionDenied);
    assert_eq!(kind(ada.write("readable", b"c")), ErrorKind::PermissionDenied);
    assert_eq!(kind(ada.create_dir("new")), ErrorKind::PermissionDenied);
    assert_eq!(kind(ada.open_dir("private").unwrap().entries()), ErrorKind::PermissionDenied);
    assert_eq!(kind(ada.set_owner("public/hers", Some(0), None)), ErrorKind::PermissionDenied);
    assert_eq!(
        kind(ada.batch(|b| {
            b.write("public/x", b"x")?;
            b.write("y", b"y")
        })),
        ErrorKind::PermissionDenied
    );
    assert!(!ada.exists("public/x").unwrap(), "all or nothing");
    assert!(ada.walk().into_iter().any(|found| found.is_err()), "the walk says what it cannot see");
}

#[test]
fn a_batch_is_all_or_nothing() {
    let (_volume, root) = volume();
    root.write("b", b"old").unwrap();
    root.write("d", b"old").unwrap();
    let data = vec![7; 300_000];
    root.batch(|b| {
        b.create_dir("new")?;
        b.write("new/a", &data)?;
        b.rename("b", "new/c")?;
        b.symlink("a", "new/link")?;
        b.hard_link("new/a", "a2")?;
        b.set_permissions("new/c", 0o600)?;
        b.remove("d")
    })
    .unwrap();
    assert_eq!(names(&root), BTreeSet::from(["a2".into(), "new".into()]));
    assert_eq!(root.read("new/link").unwrap(), data);
    assert_eq!(root.metadata("a2").unwrap().nlink(), 2);
    assert_eq!(root.metadata("new/c").unwrap().permissions(), 0o600);

    let failed = root.batch(|b| {
        b.write("one", b"1".to_vec())?;
        b.remove("new/a")?;
        b.remove("missing")
    });
    let message = failed.clone().unwrap_err().to_string();
    assert_eq!(kind(failed), ErrorKind::NotFound);
    assert!(message.contains("change 3 of 3") && message.contains("missing"), "{message}");
    assert!(root.exists("new/a").unwrap() && !root.exists("one").unwrap());

    let (accessed, modified) = (UNIX_EPOCH, UNIX_EPOCH + Duration::from_millis(1500));
    root.batch(|b| {
        b.create_new("new/f", b"contents".as_slice())?;
        b.set_xattr("new/f", "user.origin", b"here".as_slice())?;
        b.set_xattr("new/f", "user.long", vec![1; 5000])?;
        b.set_times("new/f", accessed, modified)?;
        b.rename("new/f", "new/g")
    })
    .unwrap();
    let file = root.open("new/g").unwrap();
    let times = |file: &File| file.metadata().map(|m| (m.accessed(), m.modified())).unwrap();
    assert_eq!(times(&file), (accessed, modified));
    assert_eq!(file.xattr("user.origin").unwrap().as_deref(), Some(&b"here"[..]));
    assert_eq!(file.xattr("user.long").unwrap(), Some(vec![1; 5000]));
    let failed = root.batch(|b| {
        b.remove_xattr("new/g", "user.origin")?;
        b.set_times("new/g", modified, accessed)?;
        b.remove_xattr("new/g", "user.missing")
    });
    let message = failed.unwrap_err().to_string();
    assert!(message.contains("change 3 of 3") && message.contains("user.missing"), "{message}");
    assert_eq!((times(&file), file.xattrs().unwrap().len()), ((accessed, modified), 2));
    let acl = root.batch(|b| b.set_xattr("new/g", "system.posix_acl_access", Vec::new()));
    assert_eq!(kind(acl), ErrorKind::Unsupported);
    root.remove_file("new/g").unwrap();

    let too_large =
        root.batch(|b| (0..5000).try_for_each(|n| b.write(format!("file-{n}"), vec![0; 200])));
    let message = too_large.unwrap_err().to_string();
    assert!(message.contains("of at most") && message.contains("split it"), "{message}");
    assert_eq!(names(&root).len(), 2);
    root.batch(|_| Ok(())).unwrap();
}

/// A directory's files change together, from one generation to the next, while others look.
#[test]
fn readers_never_see_half_a_batch() {
    let (_volume, root) = volume();
    let dirs = [root.create_dir("x").unwrap(), root.create_dir("y").unwrap()];
    let set = |generation: usize| {
        root.batch(|b| {
            for dir in ["x", "y"] {
                for n in 0..8 {
                    if generation > 0 {
                        b.remove(format!("{dir}/{n}-{}", generation - 1))?;
                    }
                    b.write(format!("{dir}/{n}-{generation}"), b"contents".as_slice())?;
                }
            }
            Ok(())
        })
    };
    set(0).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let generation = |names: &BTreeSet<String>| {
        let all: BTreeSet<&str> = names.iter().map(|n| n.split_once('-').unwrap().1).collect();
        assert_eq!((names.len(), all.len()), (8, 1), "{names:?}");
        all.first().unwrap().parse::<usize>().unwrap()
    };
    let looks = Arc::new(AtomicU32::new(0));
    let reader = |seen: Arc<AtomicBool>| {
        let (dirs, looks) = (dirs.clone(), looks.clone());
        std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let [first, second] = [&dirs[0], &dirs[1]].map(|dir| generation(&names(dir)));
                // The second is looked at later.
                assert!(first <= second, "{first} in x, then {second} in y");
                looks.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let readers = [reader(stop.clone()), reader(stop.clone())];
    let mut generations = 1..;
    let mut next = || set(generations.next().unwrap()).unwrap();
    (0..300).for_each(|_| next());
    shoal_skip::wait_until("a look of the readers", || {
        next();
        looks.load(Ordering::Relaxed) > 0
    });
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Calls by path failed with `ESTALE` when the file was replaced after it was found.
#[test]
fn calls_on_a_file_that_is_replaced_find_one_or_the_other() {
    let (_volume, root) = volume();
    root.write("file", b"x").unwrap();
    root.symlink("target", "link").unwrap();
    type Call = fn(&Dir, &str) -> shoal::Result<()>;
    let calls: [Call; 8] = [
        |dir, _| dir.metadata("file").map(|found| assert!(found.is_file())),
        |dir, _| dir.exists("file").map(|exists| assert!(exists)),
        |dir, _| dir.open("file").map(drop),
        |dir, _| dir.write("file", b"y"),
        |dir, _| dir.set_permissions("file", 0o600),
        |dir, _| dir.set_times("file", UNIX_EPOCH, UNIX_EPOCH),
        |dir, name| dir.hard_link("file", name).and_then(|()| dir.remove_file(name)),
        |dir, _| dir.read_link("link").map(|to| assert_eq!(to.to_str(), Some("target"))),
    ];
    for call in calls {
        let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for name in ["one", "two"] {
                let (root, stop, done) = (&root, &stop, &done);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        call(root, name).unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            replace_while((&stop, &done), |version| {
                root.batch(|b| {
                    b.write("file", vec![version; 600])?;
                    b.symlink("target", "new")?;
                    b.rename("new", "link")
                })
            });
        });
    }
}

/// Puts version after version in place of the last, until others have done enough at the same time.
/// Then they stop; after a failure, too, which is shown only when they have ended.
fn replace_while(
    (stop, done): (&AtomicBool, &AtomicU32),
    replace: impl Fn(u8) -> shoal::Result<()>,
) {
    struct Stops<'s>(&'s AtomicBool);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let _stops = Stops(stop);
    let mut versions = (0..=u8::MAX).cycle();
    let mut next = || replace(versions.next().unwrap()).unwrap();
    (0..1500).for_each(|_| next());
    shoal_skip::wait_until("calls of the other threads", || {
        next();
        done.load(Ordering::Relaxed) > 100
    });
}

/// `Dir::read` gave `ESTALE` when the file was replaced between its look-up and the read.
#[test]
fn readers_of_a_file_that_is_replaced_see_one_version() {
    let (_volume, root) = volume();
    let write = |version: u8| root.batch(|b| b.write("file", vec![version; 50_000]));
    write(0).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (root, stop, done) = (&root, &stop, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let bytes = root.read("file").unwrap();
                    assert_eq!(bytes.len(), 50_000);
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        replace_while((&stop, &done), write);
    });
}

/// Batches that want each other's directories, in any order, and single calls among them.
#[test]
fn batches_of_several_threads_end() {
    let (volume, root) = volume();
    for dir in ["a", "b", "c"] {
        root.create_dir(dir).unwrap();
    }
    let threads: Vec<_> = (0..4)
        .map(|me| {
            let root = root.clone();
            std::thread::spawn(move || {
                for n in 0..200 {
                    let order = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]][(me + n) % 3];
                    let name = format!("{me}-{n}");
                    root.batch(|b| {
                        b.create_dir(format!("{}/{name}", order[0]))?;
                        b.write(format!("{}/{name}/file", order[0]), b"x".as_slice())?;
                        b.rename(format!("{}/{name}", order[0]), format!("{}/{name}", order[1]))?;
                        b.hard_link(
                            format!("{}/{name}/file", order[1]),
                            format!("{}/{name}", order[2]),
                        )
                    })
                    .unwrap();
                    root.rename(format!("{}/{name}", order[2]), format!("{}/{name}", order[0]))
                        .unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let found = root.walk().into_iter().map(Result::unwrap).filter(|e| e.depth() == 2).count();
    assert_eq!(found, 2 * 800);
    let check = |raw: &shoal::raw::Volume| raw.check(&mut |_, _| {}).unwrap();
    let report = crate::place::look_at(&volume, check);
    assert!(report.problems.is_empty(), "{:?}", report.problems.first());
}

#[test]
fn a_walk_finds_everything_once() {
    let (volume, root) = volume();
    let mut wanted = BTreeSet::new();
    for a in 0..20 {
        let dir = root.create_dir_all(format!("{a}/b/c")).unwrap();
        wanted.extend([format!("{a}"), format!("{a}/b"), format!("{a}/b/c")]);
        for n in 0..a * 40 {
            dir.write(format!("f{n}"), b"").unwrap();
            wanted.insert(format!("{a}/b/c/f{n}"));
        }
    }
    let paths = |walk: shoal::Walk| -> Vec<String> {
        let path = |found: shoal::Result<shoal::WalkEntry>| {
            found.unwrap().path().into_os_string().into_string().unwrap()
        };
        walk.into_iter().map(path).collect()
    };
    for threads in [1, 2, 7] {
        let found = paths(root.walk().threads(threads));
        assert_eq!(found.len(), wanted.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted);
    }
    assert_eq!(paths(root.walk().depth(1)).len(), 20);
    assert_eq!(paths(root.walk().depth(0)).len(), 0);
    let first = paths(root.walk().threads(1));
    let place = |path: &str| first.iter().position(|other| other == path).unwrap();
    assert!(place("3") < place("3/b") && place("3/b") < place("3/b/c"));
    // Taken no further.
    let some = root.walk().into_iter().take(3).count();
    assert_eq!(some, 3);

    let sub = volume.subvolumes().create("sub").unwrap();
    sub.write("inside", b"").unwrap();
    let all = paths(root.walk());
    assert!(all.contains(&"sub/inside".to_owned()));
    let here = paths(root.walk().follow_roots(false));
    assert!(here.contains(&"sub".to_owned()) && !here.contains(&"sub/inside".to_owned()));
    assert_eq!(volume.subvolumes().list().unwrap().len(), 1);
    drop(sub);
    volume.subvolumes().delete("sub").unwrap();
    assert!(volume.subvolumes().open("sub", Credentials::root()).is_err());
}

#[test]
fn handles_times_attributes() {
    let (_volume, root) = volume();
    let file = root.create_new("a").unwrap();
    file.set_xattr("user.origin", b"imap").unwrap();
    root.set_xattr("user.kind", b"inbox").unwrap();
    assert_eq!(file.xattr("user.origin").unwrap().as_deref(), Some(&b"imap"[..]));
    assert_eq!(file.xattr("user.other").unwrap(), None);
    assert_eq!(file.xattrs().unwrap(), [b"user.origin".to_vec()]);
    file.remove_xattr("user.origin").unwrap();
    assert!(file.remove_xattr("user.origin").is_err());
    assert_eq!(kind(file.set_xattr("wrong", b"")), ErrorKind::Unsupported);

    let handle = shoal::Handle::from_bytes(file.handle().to_bytes());
    root.rename("a", "b").unwrap();
    let options = FileOptions::new().read(true).write(true);
    options.open_by_handle(&root, handle).unwrap().write_all_at(b"by handle", 0).unwrap();
    assert_eq!(root.read("b").unwrap(), b"by handle");
    let time = UNIX_EPOCH - Duration::from_millis(1500);
    root.set_times("b", time, time).unwrap();
    assert_eq!(root.metadata("b").unwrap().modified(), time);
    root.remove_file("b").unwrap();
    drop(file);
    assert_eq!(options.open_by_handle(&root, handle).unwrap_err().errno(), 116, "ESTALE");
    root.create_dir_all("t/u/v").unwrap();
    assert_eq!(kind(root.remove_dir("t")), ErrorKind::DirectoryNotEmpty);
    root.remove_dir_all("t").unwrap();
    assert!(names(&root).is_empty());
}

#[test]
fn a_volume_is_closed_when_nobody_uses_it() {
    let dir = tempdir();
    let path = dir.join("volume");
    assert_eq!(kind(Volume::open(&path)), ErrorKind::NotFound);
    let volume = Volume::options().create(true).size(64 << 20).open(&path).unwrap();
    let root = volume.root(Credentials::current());
    root.write("a", b"kept").unwrap();
    let held = root.open("a").unwrap();
    assert_eq!(kind(volume.clone().close().map_err(Error::from)), ErrorKind::ResourceBusy);
    assert_eq!(kind(Volume::open(&path)), ErrorKind::ResourceBusy, "it is open already");
    drop((volume, root));
    drop(held);
    let volume = Volume::open(&path).unwrap();
    assert!(!volume.raw().unwrap().info().recovery.needed, "it was closed");
    assert_eq!(volume.root(Credentials::current()).read("a").unwrap(), b"kept");
    volume.close().unwrap();
    let volume = Volume::options().read_only(true).open(&path).unwrap();
    let root = volume.root(Credentials::current());
    assert_eq!(kind(root.write("b", b"")), ErrorKind::ReadOnlyFilesystem);
    drop((root, volume));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn tempdir() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("shoal-library-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn a_sparse_file_larger_than_memory_is_refused_when_read_whole() {
    let (_volume, root) = volume();
    root.create_new("huge").unwrap().set_len(1 << 60).unwrap();
    assert_eq!(kind(root.read("huge")), ErrorKind::OutOfMemory);
}

/// It said that a file of that name does not exist.
#[cfg(not(feature = "bucket"))]
#[test]
fn a_bucket_is_refused_by_a_build_without_buckets() {
    for url in ["s3://bucket/prefix", "file:///tmp"] {
        for create in [false, true] {
            let error = Volume::options().create(create).open(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("built without support for buckets"), "{error}");
        }
    }
}
