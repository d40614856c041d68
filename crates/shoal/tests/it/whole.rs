//! Needs of importers, backups and the like: attributes of symlinks, copies, walks, messages.

use shoal::{Batch, Credentials, Dir, Error, File, FileKind, FileOptions, Filter, Handle, Volume};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::iter::FusedIterator;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn volume() -> (Volume, Dir) {
    let volume = crate::place::volume(Volume::options().size(64 << 20));
    let root = volume.root(Credentials::root());
    (volume, root)
}

#[test]
fn a_batch_takes_text_and_bytes_and_errors_of_system_calls() {
    let (_volume, root) = volume();
    let (text, six) = (String::from("of a string"), vec![6; 3]);
    root.batch(|b| {
        b.write("1", "text")?;
        b.write("2", format!("made {}", 2))?;
        b.write("3", &text)?;
        b.write("4", b"bytes")?;
        b.write("5", vec![5; 3])?;
        b.write("6", &six)?;
        b.write("7", [7; 3])?;
        b.set_xattr("7", "user.a", "value")
    })
    .unwrap();
    assert_eq!(root.read_to_string("2").unwrap(), "made 2");
    assert_eq!(root.read("6").unwrap(), [6; 3]);
    assert_eq!(root.xattr_of("7", "user.a").unwrap().unwrap(), b"value");

    let missing = root.batch(|b| {
        b.write("8", "never")?;
        b.write("9", std::fs::read("/proc/self/no-such-file")?)
    });
    assert_eq!(missing.unwrap_err().errno(), 2);
    assert!(!root.exists("8").unwrap());

    // The batch is one's own: it can be filled by functions with errors of their own, and made
    // in several places.
    let mut batch = Batch::new();
    batch.write("x", "x").unwrap();
    let below = root.create_dir("below").unwrap();
    root.commit(&batch).unwrap();
    below.commit(&batch).unwrap();
    assert!(root.exists("x").unwrap() && root.exists("below/x").unwrap());
}

#[test]
fn importers_set_what_an_archive_has() {
    let (_volume, root) = volume();
    root.write("file", "1").unwrap();
    root.symlink("file", "link").unwrap();
    let (then, file_time) = (UNIX_EPOCH + Duration::from_secs(1_000_000), SystemTime::now());
    root.set_times("file", file_time, file_time).unwrap();
    root.set_symlink_owner("link", Some(7), Some(8)).unwrap();
    root.set_symlink_times("link", then, then).unwrap();
    let link = root.symlink_metadata("link").unwrap();
    assert_eq!((link.uid(), link.gid(), link.modified()), (7, 8, then));
    let file = root.metadata("file").unwrap();
    assert_eq!((file.uid(), file.modified() > then), (0, true));

    let pipe = root.make_node("pipe", FileKind::Fifo, 0o666, 0).unwrap();
    assert_eq!((pipe.kind(), pipe.permissions()), (FileKind::Fifo, 0o644));
    let disk = root.make_node("disk", FileKind::BlockDevice, 0o600, 0x803).unwrap();
    assert_eq!((disk.kind(), disk.rdev()), (FileKind::BlockDevice, 0x803));
    for kind in [FileKind::Directory, FileKind::Symlink] {
        let refused = root.make_node("x", kind, 0o666, 0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(root.open("pipe").unwrap_err().errno(), 6, "ENXIO");

    root.set_xattr_of("link", "user.of", b"file").unwrap();
    assert_eq!(root.xattr_of("file", "user.of").unwrap().as_deref(), Some(&b"file"[..]));
    assert_eq!(root.xattrs_of("file").unwrap(), [b"user.of"]);
    root.remove_xattr_of("file", "user.of").unwrap();
    assert_eq!(root.xattr_of("file", "user.of").unwrap(), None);
    assert_eq!(root.xattr_of("no", "user.of").unwrap_err().kind(), ErrorKind::NotFound);

    let open = root.open("file").unwrap();
    open.set_permissions(0o640).unwrap();
    open.set_owner(Some(3), None).unwrap();
    open.set_times(then, then).unwrap();
    let now = open.metadata().unwrap();
    assert_eq!((now.permissions(), now.uid(), now.modified()), (0o640, 3, then));
}

#[test]
fn copies_keep_holes_and_permissions() {
    let (_volume, root) = volume();
    let file = root.create("from").unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(&[9; 5000], 3 << 20).unwrap();
    file.set_len(8 << 20).unwrap();
    file.set_permissions(0o751).unwrap();
    root.write("to", vec![1; 100_000]).unwrap();
    let to = root.metadata("to").unwrap().ino();
    for target in ["to", "new"] {
        assert_eq!(root.copy("from", target).unwrap(), 8 << 20);
        assert_eq!(root.read(target).unwrap(), root.read("from").unwrap());
        let found = root.metadata(target).unwrap();
        assert_eq!(found.permissions(), 0o751);
        assert!(found.blocks() < 1000, "{} blocks", found.blocks());
    }
    assert_eq!(root.metadata("to").unwrap().ino(), to, "in place");
    root.hard_link("from", "same").unwrap();
    assert_eq!(root.copy("from", "same").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(root.metadata("from").unwrap().len(), 8 << 20);

    let (_other, elsewhere) = volume();
    assert_eq!(root.copy_into("from", &elsewhere, "it").unwrap(), 8 << 20);
    assert_eq!(elsewhere.read("it").unwrap(), root.read("from").unwrap());
    let crossed = |result: Result<(), Error>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::CrossesDevices);
    };
    crossed(root.rename_into("from", &elsewhere, "x"));
    crossed(root.hard_link_into("from", &elsewhere, "x"));
    let (a, b) = (root.create_dir("a").unwrap(), root.create_dir("b").unwrap());
    a.write("file", "1").unwrap();
    a.hard_link_into("file", &b, "linked").unwrap();
    a.rename_into("file", &b, "moved").unwrap();
    assert_eq!(b.entries().unwrap().count(), 2);
    assert_eq!(a.entries().unwrap().count(), 0);
}

#[test]
fn files_are_read_exactly_or_not() {
    let (_volume, root) = volume();
    root.write("text", "hello").unwrap();
    let file = root.open("text").unwrap();
    let mut buf = [0; 4];
    file.read_exact_at(&mut buf, 1).unwrap();
    assert_eq!(&buf, b"ello");
    let short = file.read_exact_at(&mut buf, 2).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(short.path(), Some(&b"text"[..]));
    assert_eq!(file.seek_data(0).unwrap(), Some(0));
    assert_eq!(file.seek_hole(0).unwrap(), Some(5));
    assert_eq!(file.seek_data(5).unwrap(), None);
    assert_eq!(file.seek_hole(5).unwrap(), None);
    root.write("bytes", [0xff, 0xfe]).unwrap();
    let bytes = root.read_to_string("bytes").unwrap_err();
    assert_eq!(bytes.kind(), ErrorKind::InvalidData);
    assert!(bytes.to_string().starts_with("read \"bytes\": "), "{bytes}");
    // The largest offset is one beyond every file, not the end of this one.
    let file = root.create("write").unwrap();
    assert_eq!(file.write_at(b"x", u64::MAX).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn clones_of_a_file_share_its_position_and_keep_it_open() {
    let (volume, root) = volume();
    let mut file = root.create_new("a").unwrap();
    file.write_all(b"one ").unwrap();
    let mut clone = file.try_clone().unwrap();
    clone.write_all(b"two ").unwrap();
    file.write_all(b"three").unwrap();
    assert_eq!(root.read("a").unwrap(), b"one two three");
    clone.seek(SeekFrom::Start(4)).unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two three");

    let inodes = volume.usage().unwrap().inodes;
    root.remove_file("a").unwrap();
    let third = clone.try_clone().unwrap();
    drop((file, clone));
    let mut buf = [0; 3];
    third.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"one");
    assert_eq!(volume.usage().unwrap().inodes, inodes, "it is there");
    drop(third);
    assert_eq!(volume.usage().unwrap().inodes, inodes - 1, "the last one closes it");
}

#[test]
fn writes_by_clones_on_threads_follow_each_other() {
    let (_volume, root) = volume();
    let file = Arc::new(root.create_new("log").unwrap());
    std::thread::scope(|scope| {
        for letter in b'a'..b'e' {
            let file = file.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    // The first one makes the position shared while others use it.
                    let mut clone = file.try_clone().unwrap();
                    clone.write_all(&[letter; 10]).unwrap();
                    (&*file).write_all(&[letter; 10]).unwrap();
                }
            });
        }
    });
    let bytes = root.read("log").unwrap();
    assert_eq!(bytes.len(), 4 * 50 * 20);
    let whole = bytes.chunks(10).all(|piece| piece.iter().all(|byte| *byte == piece[0]));
    assert!(whole, "no write is lost or torn");
}

#[test]
fn handles_are_text_and_open_directories() {
    let (volume, root) = volume();
    let dir = root.create_dir_all("a/b").unwrap();
    dir.write("file", "1").unwrap();
    let text = dir.handle().unwrap().to_string();
    let handle: Handle = text.parse().unwrap();
    assert_eq!(handle, dir.handle().unwrap());
    root.rename("a", "moved").unwrap();
    assert_eq!(root.open_dir_by_handle(handle).unwrap().read("file").unwrap(), b"1");
    for wrong in ["", "1", "1.", ".1", "1.2.3", "-1.2", "1.4294967296"] {
        assert_eq!(wrong.parse::<Handle>().unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
    }
    let file = root.open("moved/b/file").unwrap().handle();
    assert_eq!(root.open_dir_by_handle(file).unwrap_err().kind(), ErrorKind::NotADirectory);
    root.set_permissions("moved/b", 0o700).unwrap();
    let ada = volume.root(Credentials::user(1000, 1000));
    assert_eq!(ada.open_dir_by_handle(handle).unwrap_err().kind(), ErrorKind::PermissionDenied);
    drop(dir);
    root.remove_file("moved/b/file").unwrap();
    root.remove_dir("moved/b").unwrap();
    assert_eq!(root.open_dir_by_handle(handle).unwrap_err().errno(), 116, "ESTALE");
}

#[test]
fn paths_of_an_inode_lead_to_it() {
    let (volume, root) = volume();
    let ino = root.create_dir_all("a/b").unwrap().create("c").unwrap().ino();
    root.hard_link("a/b/c", "d").unwrap();
    let paths = volume.paths_of(ino).unwrap();
    assert_eq!(paths.len(), 2);
    for path in paths {
        assert_eq!(root.metadata(&path).unwrap().ino(), ino, "{path:?}");
    }
    let top = volume.paths_of(root.metadata("").unwrap().ino()).unwrap();
    assert_eq!(top, [std::path::PathBuf::new()]);
    assert_eq!(root.metadata(&top[0]).unwrap().ino(), root.metadata("").unwrap().ino());
}

#[test]
fn a_busy_volume_is_given_back() {
    let (volume, root) = volume();
    root.write("a", "1").unwrap();
    let id = volume.uuid().unwrap();
    let busy = volume.close().unwrap_err();
    assert_eq!(busy.error().kind(), ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("drop its directories"), "{busy}");
    let volume = busy.into_volume().unwrap();
    assert_eq!(volume.uuid().unwrap(), id);
    assert_eq!(root.read("a").unwrap(), b"1");
    drop(root);
    fn with_question_mark(volume: Volume) -> io::Result<()> {
        Ok(volume.close()?)
    }
    with_question_mark(volume).unwrap();
}

#[test]
fn walks_leave_out_and_do_not_enter() {
    let (_volume, root) = volume();
    for dir in ["src/deep", "target/deep", "docs"] {
        let dir = root.create_dir_all(dir).unwrap();
        dir.write("a.rs", vec![0; 10]).unwrap();
        dir.write("b.txt", vec![0; 1000]).unwrap();
    }
    let found = |walk: shoal::Walk| -> BTreeSet<String> {
        let name = |entry: shoal::Result<shoal::WalkEntry>| {
            let entry = entry.unwrap();
            assert_eq!(entry.path().file_name(), Some(entry.file_name()));
            entry.path().into_os_string().into_string().unwrap()
        };
        walk.into_iter().map(name).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rust = || root.walk().filter(Filter::new().name(b"*.rs"));
    let all: BTreeSet<String> = set(&["src/deep/a.rs", "target/deep/a.rs", "docs/a.rs"]);
    assert_eq!(found(rust()), all);
    let pruned: BTreeSet<String> = set(&["src/deep/a.rs", "docs/a.rs"]);
    assert_eq!(found(rust().enter_if(|dir| dir.file_name() != "target")), pruned);
    // A directory that is not entered is there itself, and files are not asked about.
    let shallow = root.walk().threads(1).enter_if(|dir| {
        assert!(dir.metadata().is_dir());
        dir.depth() > 1
    });
    assert_eq!(found(shallow), set(&["src", "target", "docs"]));
    let large = root.walk().filter(Filter::new().size(1000..)).depth(2);
    assert_eq!(found(large), set(&["docs/b.txt"]));
}

fn ends_for_good<I: FusedIterator>(mut iterator: I) {
    assert!(iterator.by_ref().count() > 0);
    assert!(iterator.next().is_none() && iterator.next().is_none());
}

#[test]
fn iterators_end_for_good() {
    let (_volume, root) = volume();
    root.write("a", "1").unwrap();
    ends_for_good(root.entries().unwrap());
    ends_for_good(root.walk().into_iter());
    ends_for_good(shoal::Changes::since(&root, None).unwrap());
    let names: Vec<_> =
        root.entries().unwrap().map(|it| it.unwrap().file_name().to_owned()).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn errors_name_the_path_by_which_it_was_opened() {
    let (volume, root) = volume();
    let dir = root.create_dir("mail").unwrap().create_dir_all("in/box").unwrap();
    dir.write("letter", "1").unwrap();
    let text = |error: Error| error.to_string();
    let written = |file: &File| text(file.write_at(b"x", 0).unwrap_err());
    let letter = dir.open("letter").unwrap();
    assert!(written(&letter).starts_with("write file \"letter\": "), "{}", written(&letter));
    let error = root.open("mail/in/box/letter").unwrap().set_len(0).unwrap_err();
    assert_eq!(error.path(), Some(&b"mail/in/box/letter"[..]));
    // A long path is cut.
    let long = "x".repeat(40);
    dir.write(&long, "1").unwrap();
    let error = root.open(format!("mail/in/box/{long}")).unwrap().set_len(0).unwrap_err();
    assert_eq!(error.path(), Some(&b".../xxxxxxxxxxxxxxxxxxxxxxxx"[..]));
    // By a handle, there is none.
    let by_handle = FileOptions::new().read(true).open_by_handle(&root, letter.handle()).unwrap();
    assert!(written(&by_handle).starts_with("write file: "), "{}", written(&by_handle));

    root.set_permissions("mail/in/box", 0o700).unwrap();
    root.set_permissions("mail/in", 0o755).unwrap();
    let ada = volume.root(Credentials::user(1000, 1000));
    let denied = ada.open_dir("mail/in").unwrap().open_dir("box").unwrap().entries().unwrap_err();
    assert!(text(denied).starts_with("list directory \"mail/in/box\": "));

    // A full volume says which file did not fit.
    let file = root.create("large").unwrap();
    let piece = vec![7; 1 << 20];
    let full = (0..100).find_map(|n| file.write_all_at(&piece, n << 20).err()).unwrap();
    assert_eq!((full.kind(), full.path()), (ErrorKind::StorageFull, Some(&b"large"[..])));
}
