//! The segment usage table in pages: the pages that a checkpoint writes, and the effect of lost
//! pages, or of wrong ones with correct checksums.

use crate::common::*;
use shoal_base::counters::Counter;
use shoal_base::{Addr, SegNo};
use shoal_engine::*;
use shoal_format::Ptr;
use shoal_format::declare::U48;
use shoal_format::superblock::{COPIES, Superblock};
use shoal_format::usage::{
    Expected, SegKind, UsageEntry, UsageIndex, UsagePage, UsageRoot, page_of,
};
use shoal_space::{Class, Stream};
use shoal_txn::{ObjectKind, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SEGMENT: u64 = 1 << 20;

/// Makes a new volume of this many segments of 1 MiB. It uses memory only where it is written.
fn volume(segments: u64) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(segments * SEGMENT));
    let options = MkfsOptions { segment_size: SEGMENT, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &options).unwrap();
    device
}

/// Returns the objects of the newest checkpoint's usage table.
fn table(device: &MemDevice) -> BTreeMap<String, Ptr> {
    let mut found = BTreeMap::new();
    image(device).for_each_object(&mut |kind, ptr| match kind {
        ObjectKind::Usage => drop(found.insert("root".to_owned(), ptr)),
        ObjectKind::UsageIndex(n) => drop(found.insert(format!("index {n}"), ptr)),
        ObjectKind::UsagePage(n) => drop(found.insert(format!("page {n}"), ptr)),
        _ => {}
    });
    found
}

/// Returns the names of the pages, of either kind, that have moved, and their total bytes.
fn moved(before: &BTreeMap<String, Ptr>, after: &BTreeMap<String, Ptr>) -> (Vec<String>, u64) {
    let moved = after.iter().filter(|(name, ptr)| before.get(*name) != Some(ptr));
    let (names, bytes): (Vec<_>, Vec<_>) =
        moved.map(|(name, ptr)| (name.clone(), u64::from(ptr.len))).unzip();
    (names, bytes.iter().sum())
}

/// Changes an inode, so that its block and the nodes above it are written.
fn touch(store: &Store, ino: Ino) {
    let table = &store.root(ino).unwrap().table;
    let place = table.get(ino).unwrap();
    place.write().edit(table, store.epoch()).core.mtime.sec += 1;
}

/// Allocates free segments up to `end`, as if data were in them.
fn fill(store: &Store, end: u32) {
    loop {
        let addr = store.space().alloc(Stream::Data(0), SEGMENT as u32, Class::Reserved).unwrap();
        store.space().add_live(addr, 100);
        if store.geometry().segment_of(addr).0 + 1 >= end {
            return;
        }
    }
}

/// 300,000 segments, of which the first 5,000 are in use: 293 pages, two index pages. A checkpoint
/// of one change must not write more because of the rest of the volume.
#[test]
fn a_checkpoint_of_one_change_writes_few_pages() {
    let device = volume(300_000);
    let store = store(&device);
    fill(&store, 5000);
    store.checkpoints().write().unwrap();
    let full = table(&device);
    let names: Vec<&str> = full.keys().map(String::as_str).collect();
    // The others, and the second index page, have only free segments.
    assert_eq!(names, ["index 0", "page 0", "page 1", "page 2", "page 3", "page 4", "root"]);
    touch(&store, Ino::ROOT);
    store.checkpoints().write().unwrap();
    // Metadata has left the page in which it was written before.
    let mut before = table(&device);
    let bytes = |store: &Store| store.counters().get(Counter::CheckpointBytes);
    for _ in 0..20 {
        touch(&store, Ino::ROOT);
        let written = bytes(&store);
        store.checkpoints().write().unwrap();
        let after = table(&device);
        let (names, of_table) = moved(&before, &after);
        assert!(names.len() <= 4 && of_table <= 30_000, "{names:?}: {of_table} bytes");
        assert!(bytes(&store) - written < 100_000, "{}", bytes(&store) - written);
        before = after;
    }
    // Nothing else than any checkpoint changes.
    let objects = |store: &Store| -> Vec<(SegNo, SegKind, u64, bool)> {
        let mut rows = store.space().usage();
        rows.retain(|(_, kind, live, _)| kind.holds_objects() && *live > 0);
        rows
    };
    let rows = objects(&store);
    assert!(rows.len() > 4990);
    store.journal().unwrap().shutdown();
    drop(store);
    assert_eq!(objects(&store_as(&device, true)), rows);
}

/// The worst case: between checkpoints, the rest of the page in which metadata is written is used
/// up. So each checkpoint writes to segments of another page, which changes that page, which is in
/// segments of yet another. Then a change in the first page writes all of them, once.
#[test]
fn a_chain_of_pages_ends() {
    let device = volume(12_000);
    let store = store(&device);
    let (mut most, mut moves) = (0, 0);
    let mut before = table(&device);
    for page in 1..10 {
        fill(&store, page * 1024 + 1000);
        // The rest of the open segment is used up as well.
        let rest = store.space().counts().rest_of(Stream::Meta);
        store.space().alloc(Stream::Meta, rest as u32, Class::Reserved).unwrap();
        for _ in 0..2 {
            touch(&store, Ino::ROOT);
            store.checkpoints().write().unwrap();
            let after = table(&device);
            let pages = moved(&before, &after).0.iter().filter(|n| n.starts_with("page")).count();
            (most, moves) = (most.max(pages), moves + pages);
            before = after;
        }
    }
    assert_eq!(table(&device).keys().filter(|n| n.starts_with("page")).count(), 10);
    // Those that data has filled, the one left, the one entered.
    assert!(most <= 5 && moves <= 9 * 6, "{most} at once, {moves} in all");
    let mut change = || {
        let rows = store.space().usage();
        let data = rows.iter().find(|row| row.1 == SegKind::Data && row.2 > 8).unwrap().0;
        assert_eq!(page_of(data.0), 0);
        store.space().sub_live(store.geometry().start_of(data), 8);
        store.checkpoints().write().unwrap();
        let after = table(&device);
        let moved = moved(&std::mem::replace(&mut before, after.clone()), &after).0;
        moved.iter().filter(|name| name.starts_with("page")).count()
    };
    let (first, second, third) = (change(), change(), change());
    assert!((8..=10).contains(&first), "all of the chain: {first}");
    assert!(second <= 3 && third <= 3, "{second}, then {third}");
    store.journal().unwrap().shutdown();
    drop(store);
    store_as(&device, true);
}

/// Freed segments: their pages are removed, and so is their index page if it has no others.
#[test]
fn pages_of_free_segments_are_null() {
    let device = volume(265_000);
    let store = store(&device);
    let taken: Vec<SegNo> =
        (0..263_000).map(|_| store.space().take_journal_segment().unwrap()).collect();
    store.checkpoints().write().unwrap();
    let full = table(&device);
    assert!(full.contains_key("index 1") && full.contains_key("page 256"));
    assert_eq!(full.len(), 1 + 2 + 257);
    store.space().release_journal_segments(&taken);
    store.checkpoints().write().unwrap();
    store.checkpoints().write().unwrap();
    let left = table(&device);
    // That checkpoint itself was written to the segments after the allocated ones.
    assert!(left.len() <= 1 + 2 + 2, "{:?}", left.keys());
    for _ in 0..2 {
        // Now to the lowest.
        let rest = store.space().counts().rest_of(Stream::Meta);
        store.space().alloc(Stream::Meta, rest as u32, Class::Reserved).unwrap();
        store.checkpoints().write().unwrap();
    }
    store.checkpoints().write().unwrap();
    let left: Vec<String> = table(&device).into_keys().collect();
    assert_eq!(left, ["index 0", "page 0", "root"]);
    store.journal().unwrap().shutdown();
}

/// Makes a volume with files, whose metadata is on two pages.
fn two_pages() -> (Arc<MemDevice>, Shown) {
    two_pages_with(300, |n| 8 * n)
}

/// The same, with this many files of the given sizes.
fn two_pages_with(count: usize, size: impl Fn(usize) -> usize) -> (Arc<MemDevice>, Shown) {
    let device = volume(3000);
    let (vol, who) = (open(&device), Caller::root());
    let mut files = Vec::new();
    for n in 0..count {
        let name = format!("file {n}");
        let file = vol.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o644).unwrap().ino;
        vol.files().write(file, 0, &vec![n as u8; size(n)], false).unwrap();
        files.push(file);
    }
    vol.close().unwrap();
    let store = store(&device);
    // Free when it is opened again, and unused until then.
    for _ in 0..1500 {
        store.space().take_journal_segment().unwrap();
    }
    let rest = store.space().counts().rest_of(Stream::Meta);
    store.space().alloc(Stream::Meta, rest as u32, Class::Reserved).unwrap();
    files.iter().for_each(|ino| touch(&store, *ino));
    store.checkpoints().write_clean().unwrap();
    store.journal().unwrap().shutdown();
    drop(store);
    let root = image(&*device).checkpoint.usage;
    assert_eq!(page_of((root.addr.0 / SEGMENT) as u32), 1);
    let seen = Volume::open_on(device.clone(), &OpenOptions { read_only: true, ..options() });
    let shown = shown(&seen.unwrap());
    (device, shown)
}

/// A page that no checkpoint changes must not keep its segment in use: the cleaner moves it.
#[test]
fn the_cleaner_moves_pages() {
    // Inode blocks fill whole segments, which are never worth cleaning.
    let (device, before) = two_pages_with(6000, |_| 250);
    let vol = open(&device);
    vol.maintenance().checkpoint().unwrap();
    // Metadata moves on to other segments, followed by the live rest. At the end only the page is
    // left, because the segments that it covers no longer change.
    let (mut rows, mut places) = (Vec::new(), BTreeSet::new());
    for round in 0.. {
        assert!(round < 300, "it stays at {places:?}");
        for n in 0..20 {
            let name = format!("more {round} {n}");
            vol.namespace().create(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o600).unwrap();
        }
        vol.maintenance().clean().unwrap();
        let now = Table::read(&device);
        if rows != now.page.entries {
            (rows, places) = (now.page.entries, BTreeSet::new());
        }
        places.insert(now.at["page 1"].addr);
        if places.len() > 1 {
            break;
        }
    }
    assert_eq!(vol.check(&mut |_, _| {}).unwrap().problems, vec![]);
    let after = shown(&vol);
    assert!(before.iter().all(|(path, seen)| after.get(path) == Some(seen)));
    vol.close().unwrap();
}

/// Copies the parts of the device that `two_pages` has written.
fn twin(device: &MemDevice) -> Arc<MemDevice> {
    let new = Arc::new(MemDevice::new(device.capacity()));
    let mut raw = vec![0; SEGMENT as usize];
    for seg in (0..64).chain(1500..1600) {
        device.read_at(&mut raw, seg * SEGMENT).unwrap();
        if raw.iter().any(|byte| *byte != 0) {
            new.write_at(&raw, seg * SEGMENT).unwrap();
        }
    }
    new
}

fn refusal(device: &Arc<MemDevice>) -> String {
    let mut said = BTreeSet::new();
    for read_only in [true, false] {
        let options = OpenOptions { read_only, ..options() };
        said.insert(Volume::open_on(device.clone(), &options).err().unwrap().to_string());
    }
    assert_eq!(said.len(), 1, "{said:?}");
    said.pop_first().unwrap()
}

/// Repairs the volume; nothing may be lost.
fn repaired(device: &Arc<MemDevice>, before: &Shown, what: &str) -> RepairReport {
    let report = repair(device);
    assert_eq!(report.left, vec![], "{what}: {:#?}", report.actions);
    assert!(!repair(device).written, "{what}: a second repair");
    let vol = open(device);
    assert!(shown(&vol) == *before, "{what}");
    vol.close().unwrap();
    report
}

/// Every object of the table, damaged at a byte of its header and one after it.
#[test]
fn a_lost_page_is_named_and_counted_anew() {
    let (device, before) = two_pages();
    let all = table(&device);
    assert_eq!(Vec::from_iter(all.keys()), ["index 0", "page 0", "page 1", "root"]);
    let whose = |name: &str| match name {
        "page 0" => "usage page 0 (segments 0 to 1023)",
        "page 1" => "usage page 1 (segments 1024 to 2047)",
        "index 0" => "usage index 0 (pages 0 to 2)",
        _ => "usage root",
    };
    for (name, ptr) in &all {
        for at in [3, ptr.len - 1] {
            let damaged = twin(&device);
            flip(&damaged, ptr.addr.0 + u64::from(at));
            let said = refusal(&damaged);
            assert!(said.contains(whose(name)), "{said}");
            assert!(said.contains("'shoal fsck --repair' counts the segments anew"), "{said}");
            let report = repaired(&damaged, &before, name);
            let lost = report.found.iter().filter(|p| p.rule == "lost-usage-table");
            assert!(lost.clone().all(|p| p.message.contains(whose(name))), "{:?}", report.found);
            assert_eq!(lost.count(), 1);
        }
    }
    // All of it at once.
    all.values().for_each(|ptr| flip(&device, ptr.addr.0 + 40));
    repaired(&device, &before, "all");
}

/// Two checkpoints that write both pages, interrupted at any write: the volume opens, everything is
/// consistent, and files that were not removed are there.
#[test]
fn a_checkpoint_cut_off_at_any_write_leaves_a_whole_table() {
    let (device, before) = two_pages();
    let remove = |vol: &Volume, n: usize| {
        vol.namespace().unlink(&Caller::root(), Ino::ROOT, format!("file {n}").as_bytes())?;
        vol.maintenance().checkpoint()
    };
    for writes in 0.. {
        let image = twin(&device);
        let dying = Dying::after(&image, writes);
        let work = || -> Result<()> {
            let vol = Volume::open_on(Arc::new(dying), &options())?;
            remove(&vol, 40)?;
            remove(&vol, 250)
        };
        let done = work();
        let vol = open(&image);
        assert_eq!(vol.check(&mut |_, _| {}).unwrap().problems, vec![], "after {writes} writes");
        let after = shown(&vol);
        let gone = before.keys().filter(|path| !after.contains_key(*path)).count();
        assert!(gone <= 2 && (done.is_err() || gone == 2), "after {writes} writes");
        assert!(after.iter().all(|(path, seen)| before.get(path) == Some(seen)));
        vol.close().unwrap();
        if done.is_ok() {
            assert!(writes > 8, "{writes} writes in all");
            break;
        }
    }
}

/// A scrub of the open volume reports them too, and writing them again repairs them.
#[test]
fn a_scrub_names_damaged_pages() {
    let (device, _) = two_pages();
    let vol = open(&device);
    let pages = table(&device);
    for (name, ptr) in &pages {
        flip(&device, ptr.addr.0 + 20);
        let report = vol.check(&mut |_, _| {}).unwrap();
        let found: Vec<_> = report.problems.iter().filter(|p| p.rule == "usage-table").collect();
        assert_eq!(found.len(), 1, "{name}: {:?}", report.problems);
        flip(&device, ptr.addr.0 + 20);
    }
    assert_eq!(vol.check(&mut |_, _| {}).unwrap().problems, vec![]);
}

/// The table of a device, to be changed and written back with correct checksums.
struct Table {
    sb: Superblock,
    at: BTreeMap<String, Ptr>,
    root: UsageRoot,
    index: UsageIndex,
    page: UsagePage,
    volume: u64,
}

impl Table {
    fn read(device: &MemDevice) -> Table {
        let sb = shoal_txn::read_superblock(device).unwrap();
        let epoch = image(device).checkpoint.epoch;
        let of = Expected { geometry: &sb.geometry, volume: sb.volume(), epoch };
        let at = table(device);
        let raw = |name: &str| {
            let mut raw = vec![0; at[name].len as usize];
            device.read_at(&mut raw, at[name].addr.0).unwrap();
            raw
        };
        let root = UsageRoot::decode(&raw("root"), Addr(0), &of).unwrap();
        let index = UsageIndex::decode(&raw("index 0"), Addr(0), 0, &of).unwrap();
        let page = UsagePage::decode(&raw("page 1"), Addr(0), 1, &of).unwrap();
        Table { sb, volume: sb.volume(), at, root, index, page }
    }

    fn write(mut self, device: &MemDevice) {
        let put = |ptr: Ptr, raw: Vec<u8>| {
            assert_eq!(raw.len(), ptr.len as usize);
            device.write_at(&raw, ptr.addr.0).unwrap();
            Ptr { checksum: shoal_base::checksum(&raw), ..ptr }
        };
        let page = put(self.at["page 1"], self.page.encode(self.volume));
        // A changed pointer stays changed.
        if self.index.pages[1].addr == page.addr {
            self.index.pages[1] = page;
        }
        self.root.indexes[0] = put(self.at["index 0"], self.index.encode(self.volume));
        let root = put(self.at["root"], self.root.encode(self.volume, self.sb.geometry.segments));
        let mut checkpoint = shoal_txn::read_checkpoint(device, &self.sb).unwrap();
        checkpoint.usage = root;
        let record = put(self.sb.checkpoint, checkpoint.encode());
        let sb = Superblock { checkpoint: record, ..self.sb };
        for copy in COPIES {
            device.write_at(&sb.encode(), copy).unwrap();
        }
    }
}

#[test]
fn lies_behind_right_checksums_are_refused_by_name() {
    type Lie = fn(&mut Table, &MemDevice);
    let lies: [(&str, Lie); 9] = [
        ("usage page 1 (segments 1024 to 2047) at byte", |t, _| t.page.epoch = 1 << 40),
        ("number 7, expected 1", |t, _| t.page.number = 7),
        ("usage index 0 (pages 0 to 2)", |t, _| t.index.epoch = t.root.epoch + 1),
        ("expected", |t, _| t.root.epoch -= 1),
        ("volume 0x", |t, _| t.volume ^= 1),
        ("the totals say", |t, _| {
            let is_meta = |e: &&mut UsageEntry| e.kind == SegKind::Meta;
            let entry = t.page.entries.iter_mut().find(is_meta).unwrap();
            entry.live = U48::new(entry.live.get() - 8);
        }),
        ("the totals say", |t, _| {
            t.root.totals.sub(&UsageEntry::default());
            t.root.totals.add(&UsageEntry { kind: SegKind::Journal, ..UsageEntry::default() });
        }),
        (
            "usage page 2 (segments 2048 to 2999) at byte 3040870400: segment 2900 is none",
            |t, d| {
                let entries = vec![UsageEntry::default(); 952];
                let raw = UsagePage { number: 2, epoch: 1, entries }.encode(t.volume);
                let (addr, checksum) = (Addr(2900 * SEGMENT), shoal_base::checksum(&raw));
                d.write_at(&raw, addr.0).unwrap();
                t.index.pages[2] = Ptr::sealed(addr, 1, raw.len() as u32, checksum);
            },
        ),
        ("goes on in a free segment", |t, _| t.root.positions[4] = Addr(2999 * SEGMENT)),
    ];
    let (device, before) = two_pages();
    for (said, lie) in lies {
        let damaged = twin(&device);
        let mut table = Table::read(&damaged);
        lie(&mut table, &damaged);
        table.write(&damaged);
        let error = refusal(&damaged);
        assert!(error.contains(said), "{error} instead of {said}");
        assert!(error.contains("'shoal fsck --repair'"), "{error}");
        repaired(&damaged, &before, said);
    }
}
