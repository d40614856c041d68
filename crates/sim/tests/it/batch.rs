//! Batches and crashes: after a crash at any device operation, with any loss, the volume is as
//! after some number of whole batches, and no fewer than were synced.

use shoal::raw::{
    BatchOp, Caller, FileKind, Ino, MkfsOptions, OpenOptions, RenameFlags, Volume, mkfs_on,
};
use shoal_sim::crash::Loss;
use shoal_sim::device::{EIO, Fault, FaultyDevice, Kind};
use shoal_sim::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By path: type, links, contents.
type Tree = BTreeMap<String, (FileKind, u32, Vec<u8>)>;

fn tree(volume: &Volume) -> Tree {
    let mut all = Tree::new();
    let mut dirs = vec![(Ino::ROOT, String::new())];
    while let Some((dir, above)) = dirs.pop() {
        let mut each = |entry: shoal::raw::DirEntry<'_>,
                        attr: shoal::raw::Result<&shoal::raw::Attr>| {
            let attr = attr.unwrap();
            let path = format!("{above}{}", String::from_utf8_lossy(entry.name));
            let mut bytes =
                vec![0; if attr.kind == FileKind::Regular { attr.size as usize } else { 0 }];
            volume.files().read(attr.ino, 0, &mut bytes).map_or_else(
                |_| assert_ne!(attr.kind, FileKind::Regular, "{path}"),
                |len| assert_eq!(len, bytes.len(), "{path}"),
            );
            if attr.kind == FileKind::Directory {
                dirs.push((attr.ino, format!("{path}/")));
            }
            all.insert(path, (attr.kind, attr.nlink, bytes));
            true
        };
        volume.directories().readdirplus(dir, 2, &mut each).unwrap();
    }
    all
}

fn open(device: FaultyDevice) -> (Arc<FaultyDevice>, Volume) {
    let device = Arc::new(device);
    let options =
        OpenOptions { background: false, cache_bytes: 16 << 20, ..OpenOptions::default() };
    (device.clone(), Volume::open_on(device, &options).unwrap())
}

/// A change by its kind and paths.
#[derive(Debug)]
enum Change {
    File(String, Vec<u8>),
    Dir(String),
    Rename(String, String),
    Link(String, String),
    Remove(String),
}

impl Change {
    fn op(&self) -> BatchOp<'_> {
        match self {
            Change::File(path, contents) => {
                BatchOp::File { path: path.as_bytes(), mode: 0o644, contents, replace: true }
            }
            Change::Dir(path) => BatchOp::Dir { path: path.as_bytes(), mode: 0o755 },
            Change::Rename(from, to) => BatchOp::Rename {
                from: from.as_bytes(),
                to: to.as_bytes(),
                flags: RenameFlags::default(),
            },
            Change::Link(from, to) => BatchOp::Link { from: from.as_bytes(), to: to.as_bytes() },
            Change::Remove(path) => BatchOp::Remove { path: path.as_bytes() },
        }
    }
}

fn change(rng: &mut Rng) -> Change {
    // Long names and many links leave the inode, and need intents.
    let long = "long".repeat(60);
    let path = |rng: &mut Rng| {
        let dir = *rng.pick(&["", "a/", "b/", "a/c/"]);
        let name = ["x", "y", "z", long.as_str()][rng.below(4) as usize];
        format!("{dir}{name}")
    };
    match rng.below(12) {
        0..=4 => {
            let len = *rng.pick(&[0, 9, 200, 3000, 150_000]);
            Change::File(path(rng), vec![rng.below(200) as u8 + 1; len])
        }
        5 => Change::Dir((*rng.pick(&["a", "b", "a/c"])).to_owned()),
        6 | 7 => Change::Rename(path(rng), path(rng)),
        8 => Change::Rename("a".to_owned(), (*rng.pick(&["b", "b/d"])).to_owned()),
        9 | 10 => Change::Link(path(rng), path(rng)),
        _ => Change::Remove(path(rng)),
    }
}

/// A state, the device's position when the batch that led to it began, and when it was durable.
struct Step {
    tree: Tree,
    began: u64,
    durable: u64,
}

fn run_seed(seed: u64) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let device = FaultyDevice::new(32 << 20);
    let device = Arc::new(device);
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options =
        OpenOptions { background: false, cache_bytes: 16 << 20, ..OpenOptions::default() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    volume.sync().unwrap();
    let start = device.position();
    let mut steps = vec![Step { tree: tree(&volume), began: 0, durable: start }];
    let who = Caller::root();
    // Most are refused, for a path that is not there or a name that is.
    while steps.len() < 30 {
        let began = device.position();
        let changes: Vec<Change> = (0..1 + rng.below(5)).map(|_| change(&mut rng)).collect();
        let ops: Vec<BatchOp<'_>> = changes.iter().map(Change::op).collect();
        match volume.batch(&who, Ino::ROOT, &ops) {
            Ok(()) => steps.push(Step { tree: tree(&volume), began, durable: u64::MAX }),
            Err(_) => assert_eq!(tree(&volume), steps.last().unwrap().tree, "{seed}: {changes:?}"),
        }
        let synced = match rng.below(5) {
            0 => volume.sync().is_ok(),
            1 => volume.maintenance().checkpoint().is_ok(),
            _ => false,
        };
        if synced {
            let open = steps.iter_mut().filter(|step| step.durable == u64::MAX);
            open.for_each(|step| step.durable = device.position());
        }
    }
    let mut cursor = device.crashes(seed);
    let mut images = 0;
    for position in start..=cursor.last() {
        for loss in [*rng.pick(&Loss::EVERY), Loss::Nothing] {
            let image = cursor.image_with(position, loss, &mut rng);
            let (_, volume) = open(FaultyDevice::from_image(image));
            let found = tree(&volume);
            // Positions are read before and after: a batch that began here may be there.
            let known = steps.iter().rposition(|step| step.durable <= position).unwrap();
            let begun = steps.iter().rposition(|step| step.began <= position).unwrap();
            let matches = (known..=begun).any(|at| steps[at].tree == found);
            assert!(matches, "seed {seed}, position {position}, {loss:?}: {:?}", found.keys());
            let report = volume.check(&mut |_, _| {}).unwrap();
            assert!(report.problems.is_empty(), "seed {seed}, {position}: {:?}", report.problems);
            images += 1;
        }
    }
    (steps.len(), images)
}

#[test]
fn after_a_crash_a_batch_is_there_whole_or_not_at_all() {
    let seeds = std::env::var("SHOAL_SIM_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    let (mut steps, mut images) = (0, 0);
    for seed in 1..=seeds {
        let counts = run_seed(seed);
        (steps, images) = (steps + counts.0, images + counts.1);
    }
    println!("{steps} batches, {images} crash images");
    assert!(steps == seeds as usize * 30 && images > seeds as usize * 100, "{steps}, {images}");
}

/// Reads that fail, on a volume of which nothing is in memory: the batch fails and has changed
/// nothing, or it succeeds. The volume stays writable: a read that fails takes nothing back that
/// cannot be taken back.
#[test]
fn a_batch_that_cannot_read_changes_nothing() {
    let device = FaultyDevice::new(64 << 20);
    let (device, volume) = {
        let device = Arc::new(device);
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        (device.clone(), Volume::open_on(device, &options).unwrap())
    };
    let who = Caller::root();
    for dir in ["a", "b", "c"] {
        let dir = volume.namespace().mkdir(&who, Ino::ROOT, dir.as_bytes(), 0o755).unwrap().ino;
        for n in 0..400 {
            volume
                .namespace()
                .create(&who, dir, format!("{n}-{}", "x".repeat(150)).as_bytes(), 0o644)
                .unwrap();
        }
    }
    volume.close().unwrap();
    let base = device.image();
    let name = |dir: &str, n: usize| format!("{dir}/{n}-{}", "x".repeat(150));
    let changes = [
        Change::Rename(name("a", 17), name("b", 1000)),
        Change::Remove(name("c", 200)),
        Change::Link(name("b", 300), name("c", 1001)),
        Change::File(name("a", 350), vec![5; 9000]),
        Change::Dir("b/d".to_owned()),
        Change::Rename(name("c", 399), "b/d/e".to_owned()),
    ];
    let ops: Vec<BatchOp<'_>> = changes.iter().map(Change::op).collect();
    let (mut failed, mut before) = (0, None);
    for nth in 1..200 {
        let (device, volume) = open(FaultyDevice::from_image(base.clone()));
        device.inject(Fault { on: Kind::Read, nth, errno: EIO, sticky: false });
        let result = volume.batch(&who, Ino::ROOT, &ops);
        let met = device.counts().failed > 0;
        device.heal();
        let now = tree(&volume);
        let before = before.get_or_insert_with(|| {
            let (_, volume) = open(FaultyDevice::from_image(base.clone()));
            tree(&volume)
        });
        assert_eq!(now == *before, result.is_err(), "read {nth}: {result:?}");
        assert_eq!(volume.read_only_reason(), None, "read {nth}");
        volume.batch(&who, Ino::ROOT, &[Change::Dir("after".to_owned()).op()]).unwrap();
        let report = volume.check(&mut |_, _| {}).unwrap();
        assert!(report.problems.is_empty(), "read {nth}: {:?}", report.problems);
        failed += usize::from(result.is_err());
        if !met {
            break;
        }
    }
    assert!(failed > 5, "only {failed} batches met a failure");
}
