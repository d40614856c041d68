//! Many subvolumes with long names: on a full volume, through crashes and reopening; the cost of a
//! checkpoint; lost root pages.

use crate::common::*;
use shoal_base::RootId;
use shoal_base::counters::Counter;
use shoal_engine::*;
use shoal_format::root::ROOTS;
use std::sync::Arc;
use std::time::Instant;

const SEGMENT: u64 = 1 << 20;

fn mkfs(device: Arc<dyn Device>) {
    mkfs_on(device, &MkfsOptions { segment_size: SEGMENT, ..MkfsOptions::default() }).unwrap();
}

fn fresh(bytes: u64) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(bytes));
    mkfs(device.clone());
    device
}

fn long_name(n: usize) -> Vec<u8> {
    format!("{n:0>255}").into_bytes()
}

fn make(volume: &Volume, n: usize) -> Result<Entry> {
    volume.subvolumes().create(&Caller::root(), &long_name(n), 0o755)
}

fn problems(volume: &Volume) -> Vec<String> {
    let report = volume.check(&mut |_, _| {}).unwrap();
    report.problems.iter().take(5).map(|p| format!("{}: {}", p.rule, p.message)).collect()
}

fn assert_clean(volume: &Volume) {
    assert_eq!(problems(volume), [""; 0]);
}

/// Creates subvolumes until there is no more space.
fn fill(volume: &Volume) -> usize {
    for n in 0.. {
        match make(volume, n) {
            Ok(_) => {}
            Err(e) if e.code() == Code::NoSpace => return n,
            Err(e) => panic!("root {n}: {e}"),
        }
    }
    unreachable!("numbers end")
}

/// Fills the volume, reopens, empties and reopens it.
fn fill_and_empty(device: &dyn Fn() -> Arc<dyn Device>, at_least: usize, full: &dyn Fn()) {
    mkfs(device());
    let reopen = || Volume::open_on(device(), &options()).unwrap();
    let volume = reopen();
    let start = Instant::now();
    let made = fill(&volume);
    let (took, live) = (start.elapsed(), volume.info().live_bytes);
    println!("{made} roots in {took:?}, {live} bytes live, {} MiB resident", resident());
    assert!(made >= at_least, "{made}");
    volume.sync().unwrap();
    // First as after a crash, then closed, then opened read-only.
    drop(volume);
    for _ in 0..2 {
        let start = Instant::now();
        let volume = reopen();
        let (took, needed) = (start.elapsed(), volume.info().recovery.needed);
        println!("opened in {took:?}, recovery {needed}");
        assert_eq!(volume.subvolumes().list().len(), made);
        volume.close().unwrap();
    }
    full();
    let volume = reopen();
    let start = Instant::now();
    assert_clean(&volume);
    println!("checked in {:?}, {} MiB resident", start.elapsed(), resident());
    let last = volume.subvolumes().top(&long_name(made - 1)).unwrap();
    // The volume may have no space even for a file; existing files can be read and removed.
    match volume.namespace().create(&Caller::root(), last, b"file", 0o644) {
        Ok(_) | Err(Error::Code(Code::NoSpace)) => {}
        Err(e) => panic!("a file in the last root: {e}"),
    }
    let start = Instant::now();
    for n in 0..made {
        volume
            .subvolumes()
            .delete(&Caller::root(), &long_name(n))
            .unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    volume.maintenance().reap_roots(&mut |_| {}).unwrap();
    volume.maintenance().checkpoint().unwrap();
    println!("deleted in {:?}", start.elapsed());
    assert_eq!(volume.subvolumes().list(), []);
    volume.close().unwrap();
    assert!(image(&*device()).checkpoint.pages.len() == 1, "pages without roots are gone");
    let volume = reopen();
    assert_clean(&volume);
    assert!(make(&volume, 7).unwrap().ino.root() <= RootId(made.min(65_535) as u16));
    assert_clean(&volume);
}

#[test]
fn a_volume_full_of_roots_opens_and_can_be_emptied() {
    let device = Arc::new(MemDevice::new(100 << 20));
    fill_and_empty(&|| device.clone(), 2000, &|| ());
}

/// Resident memory of this process in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// All possible numbers. Needs a file of 3 GiB in the directory for temporary files, and minutes:
/// `cargo test -p shoal-engine --test it -- many_roots:: --ignored --nocapture`.
#[test]
#[ignore = "nightly: takes 3 GiB and minutes"]
fn all_numbers_with_the_longest_names() {
    let path = std::env::temp_dir().join(format!("shoal-all-roots-{}", std::process::id()));
    std::fs::File::create_new(&path).unwrap().set_len(3 << 30).unwrap();
    let device =
        || -> Arc<dyn Device> { Arc::new(FileDevice::open(&path, OpenMode::ReadWrite).unwrap()) };
    // In a new process.
    let look = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "many_roots::what_an_open_volume_takes", "--nocapture"]);
        assert!(command.env("SHOAL_FULL_OF_ROOTS", &path).status().unwrap().success());
    };
    fill_and_empty(&device, 65_535, &look);
    std::fs::remove_file(&path).unwrap();
}

/// Helper of the test above, which names a volume; otherwise uses a small one.
#[test]
fn what_an_open_volume_takes() {
    let device: Arc<dyn Device> = match std::env::var_os("SHOAL_FULL_OF_ROOTS") {
        Some(path) => Arc::new(FileDevice::open(path.as_ref(), OpenMode::ReadOnly).unwrap()),
        None => fresh(32 << 20),
    };
    let (before, start) = (resident(), Instant::now());
    let read_only = OpenOptions { read_only: true, ..options() };
    let volume = Volume::open_on(device, &read_only).unwrap();
    let (took, taken) = (start.elapsed(), resident() - before);
    let roots = volume.subvolumes().list().len();
    println!("{roots} roots: opened in {took:?}, {taken} MiB more resident");
    assert!(taken < 200, "{taken} MiB for an open volume of {roots} roots");
}

/// Returns the bytes that the next checkpoint writes after a change in one subvolume.
fn checkpoint_bytes(roots: usize) -> u64 {
    let device = fresh(200 << 20);
    let volume = open(&device);
    (0..roots).for_each(|n| assert!(make(&volume, n).is_ok()));
    volume.close().unwrap();
    let store = store(&device);
    let change = || {
        let kind = shoal_txn::RecordKind::new(0, "touch", 1 << 10);
        let txn = store.begin(shoal_txn::Need::Release, kind).unwrap();
        let root = store.roots().get(RootId(1)).unwrap();
        let place = root.table.get(root.top()).unwrap();
        let mut locked = place.write();
        locked.edit(&root.table, txn.epoch()).core.ctime.nsec += 1;
        drop(locked);
        txn.commit().unwrap();
        store.checkpoints().write().unwrap();
    };
    change();
    let before = store.counters().get(Counter::CheckpointBytes);
    change();
    store.counters().get(Counter::CheckpointBytes) - before
}

#[test]
fn a_checkpoint_writes_the_page_of_the_root_that_changed() {
    let (few, many) = (checkpoint_bytes(ROOTS - 1), checkpoint_bytes(2000));
    println!("{few} bytes with {} roots, {many} with 2000", ROOTS - 1);
    // The names of all subvolumes alone have 510,000 bytes.
    assert!(many < few + 10_000, "{few} bytes with few roots, {many} with many");
}

/// Makes subvolumes in two root pages, with some files.
fn two_pages() -> (Arc<MemDevice>, Shown) {
    let device = fresh(64 << 20);
    let (volume, who) = (open(&device), Caller::root());
    for n in 0..70 {
        let top = make(&volume, n).unwrap().ino;
        let dir = volume.namespace().mkdir(&who, top, b"dir", 0o755).unwrap().ino;
        for f in 0..3u8 {
            let file = volume
                .namespace()
                .create(&who, dir, format!("file-{f}").as_bytes(), 0o644)
                .unwrap();
            volume.files().write(file.ino, 0, &[f + 1; 100], false).unwrap();
        }
    }
    volume.subvolumes().delete(&who, &long_name(66)).unwrap();
    volume.subvolumes().delete(&who, &long_name(5)).unwrap();
    volume.maintenance().reap_roots(&mut |_| {}).unwrap();
    volume.maintenance().checkpoint().unwrap();
    let before = shown(&volume);
    volume.close().unwrap();
    (device, before)
}

#[test]
fn a_copy_of_a_page_stands_in_for_the_other() {
    let (device, before) = two_pages();
    for page in image(&*device).checkpoint.pages {
        for ptr in [page.first, page.copy()] {
            let damaged = copy(&device);
            flip(&damaged, ptr.addr.0 + 50);
            let read_only = OpenOptions { read_only: true, ..options() };
            let volume = Volume::open_on(damaged.clone(), &read_only).unwrap();
            let found = problems(&volume);
            assert!(found.len() == 1 && found[0].starts_with("root-page"), "{found:?}");
            drop(volume);
            let repaired = copy(&damaged);
            let report = repair(&repaired);
            assert!(report.left.is_empty() && report.written, "{report:?}");
            assert!(shown(&open(&repaired)) == before);
            // A mount reads the other copy.
            assert!(shown(&open(&damaged)) == before);
        }
    }
}

#[test]
fn a_lost_page_is_put_together_from_what_else_knows_of_its_roots() {
    let (device, before) = two_pages();
    let pages = image(&*device).checkpoint.pages;
    for lost in [&[1][..], &[0], &[0, 1]] {
        let damaged = copy(&device);
        for page in lost.iter().map(|number| pages[*number]) {
            flip(&damaged, page.first.addr.0 + 50);
            flip(&damaged, page.copy().addr.0 + 50);
        }
        let error = Volume::open_on(damaged.clone(), &options()).map(drop).unwrap_err();
        assert!(error.to_string().contains("root page"), "{error}");
        let report = repair(&damaged);
        let named = |rule: &str| report.found.iter().any(|problem| problem.rule == rule);
        assert!(named("lost-root-page"), "{lost:?}: {:?}", report.found);
        assert_eq!(report.left, vec![], "{lost:?}: {:#?}", report.actions);
        let volume = open(&damaged);
        assert_clean(&volume);
        let after = shown(&volume);
        let gone: Vec<_> = before.keys().filter(|path| !after.contains_key(*path)).collect();
        let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
        assert!(after == before, "{lost:?}: gone {gone:?}, new {new:?}");
    }
}

/// The device also has the version of the page from mkfs, with subvolume 0 only.
#[test]
fn roots_younger_than_the_page_that_was_found_are_not_lost() {
    let (device, who) = (fresh(64 << 20), Caller::root());
    let volume = open(&device);
    for n in 0..3 {
        let top = make(&volume, n).unwrap().ino;
        let file = volume.namespace().create(&who, top, b"file", 0o644).unwrap();
        volume.files().write(file.ino, 0, &[1; 100], false).unwrap();
    }
    let before = shown(&volume);
    volume.close().unwrap();
    let page = image(&*device).checkpoint.pages[0];
    flip(&device, page.first.addr.0 + 50);
    flip(&device, page.copy().addr.0 + 50);
    let report = repair(&device);
    assert_eq!(report.left, vec![], "{:#?}", report.actions);
    let volume = open(&device);
    assert_clean(&volume);
    let after = shown(&volume);
    assert!(after == before, "{} of {}", after.len(), before.len());
}
