//! Orphan blocks that say what is not so, sealed as if the volume had written them: slots naming
//! what is free, linked, impossible, or another slot's; blocks that cannot be read, or are not
//! where they are said to be. Recovery goes on, and never frees a file that has a name; a check of
//! the volume as it was found says what is wrong.

use shoal::raw::{Caller, Ino, MkfsOptions, OpenOptions, SetAttr, Volume, mkfs_on};
use shoal_base::sync::set_shard;
use shoal_base::{Addr, checksum};
use shoal_device::Device;
use shoal_format::checkpoint::Checkpoint;
use shoal_format::root::RootPage;
use shoal_format::superblock::{COPIES, Superblock, backup_copy_of, backup_superblock_at};
use shoal_format::{Ptr, orphan};
use shoal_sim::device::FaultyDevice;
use shoal_sim::image::Image;
use shoal_sim::model::State;
use shoal_sim::runner::Settings;
use shoal_sim::walk::walk;
use shoal_sim::{checks, crash::Loss, rng::Rng};
use std::sync::Arc;

fn open(image: Image, options: &OpenOptions) -> (Arc<FaultyDevice>, Volume) {
    let device = Arc::new(FaultyDevice::from_image(image));
    let opened = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options);
    (device, opened.unwrap_or_else(|e| panic!("it does not open: {e}")))
}

fn read(image: &Image, ptr: Ptr) -> Vec<u8> {
    let mut raw = vec![0; ptr.len as usize];
    image.read(&mut raw, ptr.addr.0);
    raw
}

/// A volume that stopped with two files in the orphan table, in a block each, one file half cut,
/// and files with names.
struct Sample {
    options: OpenOptions,
    image: Image,
    /// Visible state after recovery.
    state: State,
    /// In the first block, and in the second.
    orphans: [Ino; 2],
    cut: Ino,
    file: Ino,
    dir: Ino,
}

impl Sample {
    fn new() -> Sample {
        let mut settings = Settings::small(32 << 20);
        settings.open.lab.step_records = 3;
        settings.open.lab.attr_intents_flushed = true;
        let device = Arc::new(FaultyDevice::new(settings.capacity));
        let mkfs = MkfsOptions { root_mode: 0o755, ..settings.mkfs.clone() };
        mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &mkfs).expect("mkfs");
        let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, &settings.open);
        let volume = volume.expect("open");
        let who = Caller::root();
        let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"dir", 0o755).expect("mkdir").ino;
        let file = large(&volume, dir, "file");
        let cut = large(&volume, dir, "cut");
        // A thread of another shard has another block. Shards are set: those that threads get by
        // themselves depend on how many threads the process has had.
        set_shard(0);
        let other = std::thread::scope(|scope| {
            let other = || {
                set_shard(1);
                unlinked(&volume, "b")
            };
            scope.spawn(other).join().expect("no panic")
        });
        let orphans = [unlinked(&volume, "a"), other];
        volume.maintenance().checkpoint().expect("checkpoint");
        let first = device.position();
        let set = SetAttr { size: Some(100), ..SetAttr::default() };
        volume.attributes().setattr(&who, cut, &set).expect("truncate");
        let image = half_cut(&device, first, &settings.open);
        drop(volume);
        let state = walk(&open(image.clone(), &settings.open).1, Ino::ROOT, false).expect("walk");
        let sample =
            Sample { options: settings.open, image, state: state.state, orphans, cut, file, dir };
        assert_eq!(sample.blocks().len(), 2, "two blocks");
        sample
    }

    /// The newest superblock, its place, and the checkpoint that it names.
    fn checkpoint(&self) -> (Checkpoint, (Superblock, u64)) {
        let decode = |addr: &u64| {
            let mut raw = vec![0; 4096];
            self.image.read(&mut raw, *addr);
            Some((Superblock::decode(&raw, *addr).ok()??, *addr))
        };
        let newest = COPIES.iter().filter_map(decode).max_by_key(|(sb, _)| sb.sequence);
        let newest = newest.expect("a superblock");
        let raw = read(&self.image, newest.0.checkpoint);
        let at = newest.0.checkpoint.addr;
        (Checkpoint::decode(&raw, at, newest.0.volume()).expect("a checkpoint"), newest)
    }

    /// The orphan blocks, which one list names.
    fn blocks(&self) -> Vec<Ptr> {
        let (checkpoint, (sb, _)) = self.checkpoint();
        let [list] = checkpoint.orphan_lists[..] else { panic!("not one list: {checkpoint:?}") };
        let raw = read(&self.image, list);
        orphan::decode_list(&raw, list.addr, sb.volume()).expect("a good list")
    }

    /// The first page of the root table.
    fn root_page(&self) -> RootPage {
        let (checkpoint, (sb, _)) = self.checkpoint();
        let at = checkpoint.pages[0].first;
        RootPage::decode(&read(&self.image, at), at.addr, sb.volume()).expect("a good page")
    }

    /// The image with other pointers to orphan blocks, as many.
    fn with_pointers(&self, mut image: Image, change: impl FnOnce(&mut [Ptr])) -> Image {
        let (mut checkpoint, (mut sb, addr)) = self.checkpoint();
        let mut blocks = self.blocks();
        change(&mut blocks);
        let list = &mut checkpoint.orphan_lists[0];
        let raw = orphan::encode_list(sb.volume(), &blocks);
        assert_eq!(raw.len(), list.len as usize);
        image.write(&raw, list.addr.0);
        list.checksum = checksum(&raw);
        let raw = checkpoint.encode();
        assert_eq!(raw.len(), sb.checkpoint.len as usize);
        image.write(&raw, sb.checkpoint.addr.0);
        sb.checkpoint.checksum = checksum(&raw);
        image.write(&sb.encode(), addr);
        image.write(&sb.encode(), backup_superblock_at(sb.checkpoint));
        image.write(&raw, backup_copy_of(sb.checkpoint).expect("a short record").addr.0);
        image
    }

    /// The image with other bytes in a block, sealed.
    fn with_bytes(&self, block: usize, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Image {
        let mut image = self.image.clone();
        let at = self.blocks()[block];
        let raw = change(read(&image, at));
        image.write(&raw, at.addr.0);
        self.with_pointers(image, |ptrs| ptrs[block].checksum = checksum(&raw))
    }

    /// The image with these slots added to a block.
    fn with_slots(&self, block: usize, more: &[Ino]) -> Image {
        let (volume, at) = (self.checkpoint().1.0.volume(), self.blocks()[block]);
        self.with_bytes(block, |raw| {
            let (shard, mut inodes) = orphan::decode(&raw, at.addr, volume).expect("a good block");
            inodes.extend(more);
            orphan::encode(volume, shard, &inodes)
        })
    }

    /// A check of what is found names `rules`, all of them and no others; recovery gets over it,
    /// and leaves `lost` alone.
    fn gets_over(&self, what: &str, image: Image, rules: &[&str], lost: &[&str]) {
        let look = OpenOptions { read_only: true, ..self.options.clone() };
        let (_device, volume) = open(image.clone(), &look);
        assert_eq!(problems(&volume), rules, "{what}: as it was found");
        drop(volume);
        for background in [false, true] {
            let options = OpenOptions { background, ..self.options.clone() };
            let (device, volume) = open(image.clone(), &options);
            while volume.maintenance().reap_some().expect("reaping") {}
            assert_eq!(problems(&volume), lost, "{what}: recovered");
            assert_eq!(volume.info().orphans, 0, "{what}");
            let found = walk(&volume, Ino::ROOT, false).unwrap_or_else(|e| panic!("{what}: {e}"));
            let lines = shoal_sim::model::diff(&self.state, &found.state, 12);
            assert!(lines.is_empty(), "{what}: {lines:?}");
            // It can be used, closed, and opened again.
            volume.namespace().create(&Caller::root(), Ino::ROOT, b"new", 0o644).expect("create");
            let again = unlinked(&volume, "again");
            volume.references().release(again, 1);
            volume.close().unwrap_or_else(|e| panic!("{what}: close: {e}"));
            let (_device, volume) = open(device.image(), &self.options);
            let lost: Vec<&str> = lost.iter().filter(|r| **r != "orphan-block").copied().collect();
            assert_eq!(problems(&volume), lost, "{what}: opened again");
        }
    }
}

/// A crash after the record that begins a cut and before the one that ends it: three orphans, one
/// of them in the journal alone.
fn half_cut(device: &FaultyDevice, first: u64, options: &OpenOptions) -> Image {
    let mut crashes = device.crashes(1);
    let look = OpenOptions { read_only: true, ..options.clone() };
    for position in first..=crashes.last() {
        let image = crashes.image_with(position, Loss::Nothing, &mut Rng::new(1));
        let (_device, volume) = open(image.clone(), &look);
        if volume.info().orphans == 3 {
            return image;
        }
    }
    panic!("no crash comes into the cut");
}

fn large(volume: &Volume, dir: Ino, name: &str) -> Ino {
    let file = volume
        .namespace()
        .create(&Caller::root(), dir, name.as_bytes(), 0o644)
        .expect("create")
        .ino;
    for i in 0..20 {
        volume.files().write(file, i << 20, &[i as u8; 900], false).expect("write");
    }
    file
}

/// A large file without a name, open.
fn unlinked(volume: &Volume, name: &str) -> Ino {
    let file = large(volume, Ino::ROOT, name);
    volume.references().hold(file, 1).expect("hold");
    volume.namespace().unlink(&Caller::root(), Ino::ROOT, name.as_bytes()).expect("unlink");
    file
}

/// The rules that a check says are broken, each once.
fn problems(volume: &Volume) -> Vec<&'static str> {
    let report = volume.check(&mut |_, _| {}).expect("check");
    let mut rules: Vec<_> = report.problems.iter().map(|problem| problem.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

#[test]
fn the_sample_is_good() {
    let sample = Sample::new();
    sample.gets_over("nothing", sample.image.clone(), &[], &[]);
    let (_device, volume) = open(sample.image.clone(), &sample.options);
    let found = walk(&volume, Ino::ROOT, true).expect("walk");
    checks::all(&volume, &found).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(volume.attributes().getattr(sample.cut).expect("it has a name").size, 100);
    assert_eq!(volume.info().recovery.orphans, 3);
}

#[test]
fn slots_that_name_what_needs_none() {
    let sample = Sample::new();
    let last = Ino(volume_end(&sample));
    for (what, ino, rule) in [
        ("a file with a name", sample.file, Some("orphan-linked")),
        ("a directory with entries", sample.dir, Some("orphan-linked")),
        ("the top", Ino::ROOT, Some("orphan-linked")),
        ("a number never used", last, Some("orphan-free")),
        ("a number far away", Ino(1 << 40), Some("orphan-free")),
        // A crash leaves the like: a file that was held when its root, the last one, was deleted.
        ("a root that is not there", Ino(77 << 48 | 5), None),
        ("the largest number", Ino(u64::MAX), None),
        ("the first number of all roots", Ino(1 << 48), None),
    ] {
        for block in 0..2 {
            let rules: Vec<&str> = rule.into_iter().collect();
            sample.gets_over(what, sample.with_slots(block, &[ino]), &rules, &[]);
        }
    }
    let all = [sample.file, sample.dir, last, Ino(u64::MAX)];
    let rules = ["orphan-free", "orphan-linked"];
    sample.gets_over("all of them", sample.with_slots(0, &all), &rules, &[]);
    let full = vec![sample.file; 500];
    let rules = ["orphan-linked", "orphan-twice"];
    sample.gets_over("a block full", sample.with_slots(1, &full), &rules, &[]);
}

/// Returns the first inode number beyond those in use.
fn volume_end(sample: &Sample) -> u64 {
    sample.root_page().roots[0].next_block * 32 + 5
}

#[test]
fn slots_that_name_the_same() {
    let sample = Sample::new();
    let [a, b] = sample.orphans;
    for (block, ino) in [(0, a), (1, b), (0, b), (1, a)] {
        sample.gets_over("an orphan", sample.with_slots(block, &[ino]), &["orphan-twice"], &[]);
    }
    let cut = sample.with_slots(1, &[sample.cut, sample.cut]);
    // Twice in the checkpoint, and once in the journal, which knows numbers alone.
    sample.gets_over("a file that is being cut", cut, &["orphan-twice"], &[]);
}

#[test]
fn blocks_that_cannot_be_read() {
    let sample = Sample::new();
    let pointers = |change: &dyn Fn(&mut Ptr)| {
        sample.with_pointers(sample.image.clone(), |ptrs| change(&mut ptrs[0]))
    };
    let volume = sample.checkpoint().1.0.volume();
    let mut flipped = sample.image.clone();
    flipped.flip_bit(sample.blocks()[0].addr.0 + 40, 3);
    let empty = |volume, shard| orphan::encode(volume, shard, &[]);
    let end = sample.image.capacity();
    let images = [
        ("a flipped bit", flipped),
        ("zeros", sample.with_bytes(0, |raw| vec![0; raw.len()])),
        ("another volume's", sample.with_bytes(0, |_| empty(volume + 1, 0))),
        ("an inner checksum", sample.with_bytes(0, |raw| [&raw[..4088], &[0; 8]].concat())),
        ("beyond the end", pointers(&|ptr| ptr.addr = Addr(end))),
        ("over the end", pointers(&|ptr| ptr.addr = Addr(end - 512))),
        ("far beyond", pointers(&|ptr| ptr.addr = Addr(u64::MAX - 4095))),
        ("in the superblock", pointers(&|ptr| ptr.addr = Addr(0))),
        ("nothing", pointers(&|ptr| *ptr = Ptr::NULL)),
        ("too long", pointers(&|ptr| ptr.len = 8192)),
        ("far too long", pointers(&|ptr| ptr.len = u32::MAX)),
        ("one byte", pointers(&|ptr| ptr.len = 1)),
    ];
    // Where a pointer cannot be right, what it should have pointed to stays counted.
    let rules = ["orphan-block", "orphan-missing", "segment-live"];
    for (i, (what, image)) in images.into_iter().enumerate() {
        let rules = &rules[..if i < 4 { 2 } else { 3 }];
        sample.gets_over(what, image, rules, rules);
    }
    // A good block in which something is missing.
    let forgotten = sample.with_bytes(0, |_| empty(volume, 0));
    sample.gets_over("an empty block", forgotten, &["orphan-missing"], &["orphan-missing"]);
    // The shard is a hint.
    let [a, _] = sample.orphans;
    for shard in [1, 200, u32::MAX] {
        let moved = sample.with_bytes(0, |_| orphan::encode(volume, shard, &[a]));
        sample.gets_over("another shard", moved, &[], &[]);
    }
    // One block under two pointers: what is in it stands there twice, and the other is lost.
    let first = sample.blocks()[0];
    let twice = sample.with_pointers(sample.image.clone(), |ptrs| ptrs[1] = first);
    let (_device, volume) = open(twice, &OpenOptions { read_only: true, ..sample.options.clone() });
    let found = problems(&volume);
    let rules = ["orphan-missing", "orphan-twice"];
    assert!(rules.iter().all(|rule| found.contains(rule)), "{found:?}");
}
