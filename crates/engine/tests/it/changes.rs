//! The change feed: what is told of each kind of change, marks that are refused, the window of
//! removed names, users without rights.

use crate::common;

use crate::common::{copy, flip, open, options, repair};
use shoal_engine::*;
use shoal_skip::tick;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const PLAIN: RenameFlags = RenameFlags { noreplace: false, exchange: false, whiteout: false };

fn device() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    device
}

/// A volume that keeps removed names.
fn keeping() -> (Arc<MemDevice>, Volume) {
    let device = device();
    let volume = open(&device);
    volume.changes().keep_removed(&Caller::root(), true).unwrap();
    (device, volume)
}

fn mkdir(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().mkdir(&Caller::root(), dir, name.as_bytes(), 0o755).unwrap().ino
}

fn create(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().create(&Caller::root(), dir, name.as_bytes(), 0o644).unwrap().ino
}

fn unlink(volume: &Volume, dir: Ino, name: &str) {
    volume.namespace().unlink(&Caller::root(), dir, name.as_bytes()).unwrap();
}

fn rename(volume: &Volume, (dir, name): (Ino, &str), (to, new): (Ino, &str)) {
    let (name, new, who) = (name.as_bytes(), new.as_bytes(), Caller::root());
    volume.namespace().rename(&who, dir, name, to, new, PLAIN).unwrap();
}

/// Everything that is told, and whether all removed names are.
fn read(volume: &Volume, who: &Caller, dir: Ino, mark: &ChangeMark) -> (Vec<Change>, bool) {
    let feed = volume.changes();
    let mut reader = feed.since(who, dir, Some(mark)).unwrap();
    let mut all = Vec::new();
    loop {
        let batch = feed.next(&mut reader, 3).unwrap();
        if batch.is_empty() {
            return (all, reader.has_all_removed());
        }
        all.extend(batch);
    }
}

fn text(name: &ChangedName) -> String {
    String::from_utf8(name.path()).unwrap()
}

/// Changes as lines: a letter, and paths.
fn lines(changes: &[Change]) -> Vec<String> {
    let line = |change: &Change| {
        let mut names: Vec<String> = change.names.iter().map(text).collect();
        // Links are in the order of hashes, which are those of the volume.
        names.sort();
        let from = change.from.as_ref().map(text).unwrap_or_default();
        let names = names.join(" ");
        match change.kind {
            ChangeKind::Created => format!("A {names}"),
            ChangeKind::Changed => format!("M {names}"),
            ChangeKind::Renamed => format!("R {from} > {names}"),
            ChangeKind::Removed => format!("D {names}"),
        }
    };
    changes.iter().map(line).collect()
}

/// As [`lines`], of everything in the volume, all of whose removed names must be told.
fn told(volume: &Volume, mark: &ChangeMark) -> Vec<String> {
    let (changes, all) = read(volume, &Caller::root(), ROOT, mark);
    assert!(all, "removed names are missing");
    lines(&changes)
}

fn mark(volume: &Volume) -> ChangeMark {
    // What is made before and after it is so by the clock too.
    tick();
    let mark = volume.changes().mark(ROOT).unwrap();
    tick();
    mark
}

#[test]
fn each_kind_of_change_is_told_as_that() {
    let (_device, volume) = keeping();
    let (top, other) = (mkdir(&volume, ROOT, "top"), mkdir(&volume, ROOT, "other"));
    let (a, b) = (create(&volume, top, "a"), create(&volume, top, "b"));
    create(&volume, top, "gone");
    create(&volume, other, "stays");
    let begin = mark(&volume);
    assert_eq!(told(&volume, &begin), Vec::<String>::new());

    volume.files().write(a, 0, b"contents", false).unwrap();
    assert_eq!(told(&volume, &begin), ["M top/a"]);
    unlink(&volume, top, "gone");
    create(&volume, top, "new");
    rename(&volume, (top, "b"), (other, "c"));
    let all = ["R top/b > other/c", "D top/gone", "M top", "M other", "M top/a", "A top/new"];
    assert_eq!(told(&volume, &begin), all);
    volume.maintenance().checkpoint().unwrap();
    assert_eq!(told(&volume, &begin), all);
    // Only below a directory: what has left it is gone from there, what has come is new there.
    let below = |dir| lines(&read(&volume, &Caller::root(), dir, &begin).0);
    assert_eq!(below(top), ["D gone", "D b", "M .", "M a", "A new"]);
    assert_eq!(below(other), ["R  > c", "M ."]);
    // A later mark tells what comes later, and nothing else.
    let later = mark(&volume);
    assert_eq!(told(&volume, &later), Vec::<String>::new());
    volume.namespace().link(&Caller::root(), b, top, b"d").unwrap();
    assert_eq!(told(&volume, &later), ["M top", "M other/c top/d"]);
}

#[test]
fn a_renamed_directory_is_told_once_and_a_removed_tree_by_its_top() {
    let (_device, volume) = keeping();
    let top = mkdir(&volume, ROOT, "top");
    for n in 0..50 {
        let dir = mkdir(&volume, top, &format!("d{n}"));
        create(&volume, dir, "file");
    }
    let begin = mark(&volume);
    rename(&volume, (ROOT, "top"), (ROOT, "up"));
    assert_eq!(told(&volume, &begin), ["R top > up", "M ."]);
    let later = mark(&volume);
    let who = Caller::root();
    volume.namespace().remove_tree(&who, ROOT, b"up", TreeCheck::Top).unwrap();
    assert_eq!(told(&volume, &later), ["D up", "M ."]);
    assert_eq!(told(&volume, &begin), ["D top", "D up", "M ."]);
}

#[test]
fn names_that_change_hands() {
    let (_device, volume) = keeping();
    create(&volume, ROOT, "a");
    create(&volume, ROOT, "b");
    create(&volume, ROOT, "x");
    let begin = mark(&volume);
    let who = Caller::root();
    let exchange = RenameFlags { exchange: true, ..PLAIN };
    volume.namespace().rename(&who, ROOT, b"a", ROOT, b"b", exchange).unwrap();
    assert_eq!(told(&volume, &begin), ["R a > b", "R b > a", "M ."]);
    let later = mark(&volume);
    // Replaced by a rename, and by a new file with the same inode number.
    rename(&volume, (ROOT, "a"), (ROOT, "b"));
    unlink(&volume, ROOT, "x");
    create(&volume, ROOT, "x");
    assert_eq!(told(&volume, &later), ["R a > b", "D b", "D x", "M .", "A x"]);
    // There and back again, and made and removed.
    let later = mark(&volume);
    rename(&volume, (ROOT, "x"), (ROOT, "y"));
    rename(&volume, (ROOT, "y"), (ROOT, "x"));
    create(&volume, ROOT, "z");
    unlink(&volume, ROOT, "z");
    assert_eq!(told(&volume, &later), ["D y", "D z", "M .", "M x"]);
}

#[test]
fn files_with_very_many_links_are_told_in_pieces() {
    let (_device, volume) = keeping();
    let file = create(&volume, ROOT, "first");
    let begin = mark(&volume);
    let dirs: Vec<Ino> =
        (0..4).map(|n| mkdir(&volume, ROOT, &format!("{n}{}", "d".repeat(250)))).collect();
    for n in 0..4000 {
        let name = format!("{n:0>250}");
        volume.namespace().link(&Caller::root(), file, dirs[n % 4], name.as_bytes()).unwrap();
    }
    let (changes, _) = read(&volume, &Caller::root(), ROOT, &begin);
    let of: Vec<&Change> = changes.iter().filter(|change| change.ino == file).collect();
    assert!(of.len() > 1, "{} pieces", of.len());
    let (last, before) = of.split_last().unwrap();
    assert!(!last.more && before.iter().all(|change| change.more));
    let mut names: Vec<String> = of.iter().flat_map(|change| &change.names).map(text).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 4001);
}

#[test]
fn marks_that_cannot_be_continued_are_refused() {
    let (device, volume) = keeping();
    let who = Caller::root();
    let refused = |volume: &Volume, dir, mark: &ChangeMark| {
        let error = volume.changes().since(&who, dir, Some(mark)).err().expect("refused");
        let text = error.to_string();
        assert!(text.contains("without a mark"), "{text}");
        (error.errno(), text)
    };
    let old = mark(&volume);
    volume.sync().unwrap();
    let older = copy(&device);
    // Of another volume, of another subvolume, of an earlier one with the same number.
    let other = open(&self::device());
    assert_eq!(refused(&other, ROOT, &old).0, 18);
    let sub = volume.subvolumes().create(&who, b"sub", 0o755).unwrap().ino;
    assert_eq!(refused(&volume, sub, &old).0, 18);
    let of_sub = volume.changes().mark(sub).unwrap();
    assert!(volume.changes().since(&who, sub, Some(&of_sub)).is_ok());
    assert_eq!(refused(&volume, ROOT, &of_sub).0, 18);
    volume.subvolumes().delete(&who, b"sub").unwrap();
    volume.maintenance().reap_roots(&mut |_| {}).unwrap();
    volume.maintenance().checkpoint().unwrap();
    let again = volume.subvolumes().create(&who, b"again", 0o755).unwrap().ino;
    assert_eq!(again, sub);
    assert_eq!(refused(&volume, again, &of_sub).0, 18);
    // From the future of an older copy.
    create(&volume, ROOT, "new");
    let future = volume.changes().mark(ROOT).unwrap();
    let older = open(&older);
    let (errno, text) = refused(&older, ROOT, &future);
    assert!(errno == 116 && text.contains("older copy"), "{text}");
    assert!(volume.changes().since(&who, ROOT, Some(&old)).is_ok());
    // Not a directory, or none any more.
    let file = create(&volume, ROOT, "file");
    assert_eq!(volume.changes().since(&who, file, None).err().unwrap().errno(), 20);
}

#[test]
fn a_repair_ends_all_marks() {
    let (device, volume) = keeping();
    (0..2000).for_each(|n| _ = create(&volume, ROOT, &format!("file-{n}")));
    let old = volume.changes().mark(ROOT).unwrap();
    volume.close().unwrap();
    // Some metadata is damaged.
    let image = common::image(&*device);
    let tree = common::roots(&device)[0].trees[1];
    drop(image);
    flip(&device, tree.addr.0 + 100);
    let report = repair(&device);
    assert!(report.written, "{report:?}");
    let volume = open(&device);
    let error = volume.changes().since(&Caller::root(), ROOT, Some(&old)).err().unwrap();
    assert!(error.to_string().contains("repaired"), "{error}");
    assert!(volume.changes().keeps_removed());
    let new = volume.changes().mark(ROOT).unwrap();
    assert!(volume.changes().since(&Caller::root(), ROOT, Some(&new)).is_ok());
}

#[test]
fn removed_names_survive_closing_and_those_since_the_checkpoint_a_crash() {
    let (device, volume) = keeping();
    let begin = mark(&volume);
    for n in 0..3000 {
        create(&volume, ROOT, &format!("{n:0>100}"));
        unlink(&volume, ROOT, &format!("{n:0>100}"));
    }
    let gone = |volume: &Volume, mark: &ChangeMark| {
        let (changes, all) = read(volume, &Caller::root(), ROOT, mark);
        (changes.iter().filter(|change| change.kind == ChangeKind::Removed).count(), all)
    };
    volume.close().unwrap();
    for _ in 0..3 {
        // Also by who only reads, and by who changes nothing.
        let options = OpenOptions { read_only: true, ..options() };
        let volume = Volume::open_on(device.clone(), &options).unwrap();
        assert_eq!(gone(&volume, &begin), (3000, true));
        drop(volume);
        open(&device).close().unwrap();
    }
    // A crash, before another checkpoint and after one.
    let volume = open(&device);
    create(&volume, ROOT, "x");
    unlink(&volume, ROOT, "x");
    volume.sync().unwrap();
    let crashed = copy(&device);
    let later = mark(&volume);
    volume.maintenance().checkpoint().unwrap();
    create(&volume, ROOT, "y");
    unlink(&volume, ROOT, "y");
    volume.sync().unwrap();
    let crashed_later = copy(&device);
    assert_eq!(gone(&volume, &begin), (3002, true));
    let volume = open(&crashed);
    assert_eq!(gone(&volume, &begin), (3001, true));
    let volume = open(&crashed_later);
    assert_eq!(gone(&volume, &begin), (1, false));
    assert_eq!(gone(&volume, &later), (1, true));
}

#[test]
fn a_crash_while_the_window_is_stored_loses_no_name_silently() {
    let (device, volume) = keeping();
    let begin = mark(&volume);
    (0..400).for_each(|n| _ = create(&volume, ROOT, &format!("{n:0>200}")));
    (0..400).for_each(|n| unlink(&volume, ROOT, &format!("{n:0>200}")));
    volume.close().unwrap();
    let volume = open(&device);
    (0..9).for_each(|n| _ = create(&volume, ROOT, &format!("{n}")));
    (0..9).for_each(|n| unlink(&volume, ROOT, &format!("{n}")));
    volume.sync().unwrap();
    // Crashes at each write of the close: what is durable by then is a prefix of its writes.
    for writes in 0.. {
        let device = Arc::new(Cut::new(copy(&device), writes));
        let volume = Volume::open_on(device.clone(), &options()).unwrap();
        device.begin();
        unlink_some(&volume);
        let closed = volume.close().is_ok() && !device.is_cut();
        let volume = open(&device.inner);
        let (changes, all) = read(&volume, &Caller::root(), ROOT, &begin);
        let gone = changes.iter().filter(|c| c.kind == ChangeKind::Removed).count();
        assert!(!all || gone == 409 || gone == 411, "{gone} names, cut after {writes} writes");
        if closed {
            assert!(all && gone == 411, "{gone} names");
            break;
        }
    }
}

fn unlink_some(volume: &Volume) {
    let who = Caller::root();
    for name in [b"one", b"two"] {
        let made = volume.namespace().create(&who, ROOT, name, 0o644);
        let _ = made.and_then(|_| volume.namespace().unlink(&who, ROOT, name));
    }
}

/// A device whose writes after the first few are lost.
struct Cut {
    inner: Arc<MemDevice>,
    left: std::sync::atomic::AtomicU64,
    begun: std::sync::atomic::AtomicBool,
}

impl Cut {
    fn new(inner: Arc<MemDevice>, writes: u64) -> Cut {
        Cut { inner, left: writes.into(), begun: false.into() }
    }
    fn begin(&self) {
        self.begun.store(true, std::sync::atomic::Ordering::SeqCst);
    }
    fn is_cut(&self) -> bool {
        self.left.load(std::sync::atomic::Ordering::SeqCst) == 0
    }
}

impl Device for Cut {
    fn describe(&self) -> String {
        "cut".into()
    }
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let counts = self.begun.load(SeqCst);
        if counts && self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
            return Ok(());
        }
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_window_says_from_when_on_it_is_complete() {
    let (_device, volume) = keeping();
    let begin = mark(&volume);
    create(&volume, ROOT, "first");
    unlink(&volume, ROOT, "first");
    let later = mark(&volume);
    for n in 0..13_000 {
        let name = format!("{n:0>250}");
        create(&volume, ROOT, &name);
        unlink(&volume, ROOT, &name);
    }
    let (changes, all) = read(&volume, &Caller::root(), ROOT, &begin);
    let gone = changes.iter().filter(|c| c.kind == ChangeKind::Removed).count();
    assert!(!all && gone > 10_000 && gone < 13_000, "{gone} names");
    // The directory is told in any case.
    assert!(changes.iter().any(|c| c.ino == ROOT && c.kind != ChangeKind::Removed));
    assert!(!read(&volume, &Caller::root(), ROOT, &later).1);
    let now = mark(&volume);
    assert!(read(&volume, &Caller::root(), ROOT, &now).1);
    // Switched off, nothing is known; on again, what comes from then on.
    let who = Caller::root();
    assert_eq!(volume.changes().keep_removed(&Caller::user(5, 5), false).unwrap_err().errno(), 1);
    volume.changes().keep_removed(&who, false).unwrap();
    assert!(!read(&volume, &who, ROOT, &now).1);
    volume.changes().keep_removed(&who, true).unwrap();
    let now = mark(&volume);
    assert!(read(&volume, &who, ROOT, &now).1 && !read(&volume, &who, ROOT, &begin).1);
}

/// Whoever makes deep directories must not make others hold many long paths at once.
#[test]
fn a_batch_of_long_paths_is_bounded_in_bytes() {
    let (_device, volume) = keeping();
    let mut deep = ROOT;
    for _ in 0..600 {
        deep = mkdir(&volume, deep, &"d".repeat(250));
    }
    let pair = [mkdir(&volume, deep, "x"), mkdir(&volume, deep, "y")];
    // In turn, so that no two names in sequence share their path.
    let files = || (0..40).flat_map(|n| pair.map(|dir| (dir, format!("f{n}"))));
    for (dir, name) in files() {
        create(&volume, dir, &name);
        create(&volume, dir, &format!("old-{name}"));
    }
    let begin = mark(&volume);
    for (dir, name) in files() {
        unlink(&volume, dir, &name);
        rename(&volume, (dir, &format!("old-{name}")), (dir, &format!("new-{name}")));
    }
    let feed = volume.changes();
    let mut reader = feed.since(&Caller::root(), ROOT, Some(&begin)).unwrap();
    let (mut gone, mut moved) = (0, 0);
    loop {
        let batch = feed.next(&mut reader, 1000).unwrap();
        if batch.is_empty() {
            break;
        }
        let names = batch.iter().flat_map(|change| change.names.iter().chain(&change.from));
        let bytes: usize = names.map(|name| name.path().len()).sum();
        // What is over the bound is one change of two paths.
        assert!(bytes < (1 << 20) + 2 * 602 * 251, "{bytes} bytes in a batch");
        gone += batch.iter().filter(|change| change.kind == ChangeKind::Removed).count();
        moved += batch.iter().filter(|change| change.kind == ChangeKind::Renamed).count();
    }
    assert_eq!((gone, moved), (80, 80));
}

#[test]
fn a_user_is_told_what_the_user_could_list() {
    let (_device, volume) = keeping();
    let (who, user) = (Caller::root(), Caller::user(1000, 1000));
    let (open, closed) = (mkdir(&volume, ROOT, "open"), mkdir(&volume, ROOT, "closed"));
    let inside = mkdir(&volume, closed, "inside");
    create(&volume, inside, "gone");
    let begin = mark(&volume);
    let mode = |dir, mode| {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        volume.attributes().setattr(&who, dir, &set).unwrap();
    };
    mode(closed, 0o711);
    create(&volume, open, "file");
    create(&volume, inside, "file");
    unlink(&volume, inside, "gone");
    let seen = |dir| {
        let (changes, _) = read(&volume, &user, dir, &begin);
        changes.iter().flat_map(|c| &c.names).map(text).collect::<Vec<_>>()
    };
    assert_eq!(seen(ROOT), ["open", "closed", "open/file"]);
    // From inside the user sees what is there.
    assert_eq!(seen(inside), ["gone", ".", "file"]);
    mode(closed, 0o755);
    assert!(seen(ROOT).contains(&"closed/inside/gone".to_owned()));
    mode(inside, 0o700);
    let error = volume.changes().since(&user, inside, Some(&begin)).err().unwrap();
    assert_eq!(error.errno(), 13);
}

#[test]
fn volumes_without_parent_pointers_have_no_feed() {
    let device = Arc::new(MemDevice::new(64 << 20));
    let options = MkfsOptions { parents: false, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &options).unwrap();
    let error = open(&device).changes().mark(ROOT).unwrap_err();
    assert_eq!(error.errno(), 95);
}

#[test]
fn a_replay_knows_what_was_removed_since_the_switch() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = open(&device);
    let who = Caller::root();
    create(&volume, ROOT, "before");
    unlink(&volume, ROOT, "before");
    volume.changes().keep_removed(&who, true).unwrap();
    let begin = mark(&volume);
    create(&volume, ROOT, "after");
    unlink(&volume, ROOT, "after");
    volume.sync().unwrap();
    let crashed = open(&copy(&device));
    let (changes, all) = read(&crashed, &who, ROOT, &begin);
    let gone = changes.iter().filter(|c| c.kind == ChangeKind::Removed);
    assert_eq!(
        (gone.flat_map(|c| &c.names).map(text).collect(), all),
        (vec!["after".to_owned()], true)
    );
    // Switched off in what is replayed: nothing is kept.
    volume.changes().keep_removed(&who, false).unwrap();
    assert!(!open(&copy(&device)).changes().keeps_removed());
}

#[test]
fn what_was_told_is_durable() {
    let (device, volume) = keeping();
    let begin = mark(&volume);
    create(&volume, ROOT, "new");
    assert_eq!(told(&volume, &begin), ["M .", "A new"]);
    // A crash right now.
    let crashed = open(&copy(&device));
    assert!(crashed.namespace().lookup(&Caller::root(), ROOT, b"new").is_ok());
    create(&volume, ROOT, "newer");
    let now = volume.changes().mark(ROOT).unwrap();
    let crashed = open(&copy(&device));
    assert!(crashed.changes().since(&Caller::root(), ROOT, Some(&now)).is_ok());
    assert!(crashed.namespace().lookup(&Caller::root(), ROOT, b"newer").is_ok());
}

/// The steps of a reader, one at a time, tell the same; and a mark says without reading that there
/// is something new.
#[test]
fn steps_tell_what_batches_tell() {
    let (_device, volume) = keeping();
    let feed = volume.changes();
    let mark = feed.mark(ROOT).unwrap();
    assert!(!feed.is_newer(&mark));
    let dir = mkdir(&volume, ROOT, "dir");
    assert!(feed.is_newer(&mark));
    for n in 0..50 {
        create(&volume, dir, &n.to_string());
    }
    (0..20).for_each(|n| unlink(&volume, dir, &n.to_string()));
    rename(&volume, (dir, "30"), (ROOT, "new"));
    let (batches, _) = read(&volume, &Caller::root(), ROOT, &mark);
    let mut reader = feed.since(&Caller::root(), ROOT, Some(&mark)).unwrap();
    let mut steps = Vec::new();
    while !reader.is_done() {
        steps.extend(feed.next_of_step(&mut reader, 3).unwrap());
        reader.forget_paths();
    }
    assert_eq!(lines(&steps), lines(&batches));
    assert!(steps.len() > 30 && !feed.is_newer(&reader.mark()));
}
