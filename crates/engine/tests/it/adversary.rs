//! Operations of a hostile or unlucky user on single files: strided, sparse and dense ones, and
//! every kind of call with its largest record. Before steps and bounds existed, several of these
//! made the volume read-only.

use shoal_engine::*;
use std::fmt::Write;
use std::sync::Arc;

const WHO: fn() -> Caller = Caller::root;

fn options() -> OpenOptions {
    OpenOptions { background: false, noatime: true, ..OpenOptions::default() }
}

/// Small segments have the smallest journal batches; large inodes have the largest items.
fn device(bytes: u64) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(bytes));
    let options = MkfsOptions { segment_size: 1 << 20, inode_size: 2048, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &options).unwrap();
    device
}

fn open(device: &Arc<MemDevice>) -> Volume {
    Volume::open_on(device.clone(), &options()).unwrap()
}

fn create(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().create(&WHO(), dir, name.as_bytes(), 0o644).unwrap().ino
}

fn write(volume: &Volume, ino: Ino, at: u64, bytes: &[u8]) {
    assert_eq!(volume.files().write(ino, at, bytes, false).unwrap(), bytes.len());
}

fn read(volume: &Volume, ino: Ino, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xA5; len];
    assert_eq!(volume.files().read(ino, at, &mut bytes).unwrap(), len);
    bytes
}

fn assert_fine(volume: &Volume) {
    assert_eq!(volume.read_only_reason(), None);
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
    for size in volume.record_sizes() {
        assert!(size.bytes_largest <= size.bytes_max, "{size:?}");
    }
}

/// Another user's file, which must not be affected.
struct Bystander(Ino);

impl Bystander {
    fn new(volume: &Volume) -> Bystander {
        let ino = create(volume, Ino::ROOT, "bystander");
        write(volume, ino, 0, b"acknowledged");
        volume.sync().unwrap();
        Bystander(ino)
    }
    fn assert_there(&self, volume: &Volume) {
        assert_eq!(read(volume, self.0, 0, 12), b"acknowledged");
        volume.namespace().create(&WHO(), Ino::ROOT, b"more", 0o644).unwrap();
        volume.namespace().unlink(&WHO(), Ino::ROOT, b"more").unwrap();
    }
}

const MODES: [Fallocate; 3] = [
    Fallocate::Allocate { keep_size: false },
    Fallocate::PunchHole,
    Fallocate::ZeroRange { keep_size: false },
];

/// Crashes, reopens and checks.
fn reopened(device: &Arc<MemDevice>, volume: Volume) -> Volume {
    volume.sync().unwrap();
    drop(volume);
    let volume = open(device);
    assert_fine(&volume);
    volume
}

#[test]
fn fallocate_over_12_000_strided_bytes() {
    const STRIDE: u64 = 1024;
    const COUNT: u64 = 12_000;
    for mode in MODES {
        let device = device(256 << 20);
        let volume = open(&device);
        let bystander = Bystander::new(&volume);
        let ino = create(&volume, Ino::ROOT, "strided");
        for i in 0..COUNT {
            write(&volume, ino, i * STRIDE, &[i as u8 | 1]);
        }
        volume.files().fallocate(ino, mode, 0, COUNT * STRIDE).unwrap();
        let volume = reopened(&device, volume);
        bystander.assert_there(&volume);
        let keeps = matches!(mode, Fallocate::Allocate { .. });
        let bytes = read(&volume, ino, 0, ((COUNT - 1) * STRIDE + 1) as usize);
        for (at, byte) in bytes.iter().enumerate() {
            let i = at as u64 / STRIDE;
            let written = (at as u64).is_multiple_of(STRIDE) && keeps;
            assert_eq!(*byte, if written { i as u8 | 1 } else { 0 }, "byte {at} after {mode:?}");
        }
    }
}

/// A hole of any length behind a little data took a transaction for each 2 TiB, and seconds.
#[test]
fn a_hole_of_the_largest_length_is_made_at_once() {
    let device = device(64 << 20);
    let volume = open(&device);
    let ino = create(&volume, Ino::ROOT, "small");
    write(&volume, ino, 0, &[1; 10_000]);
    let transactions = || {
        let name = Counter::Transactions.name();
        volume.info().counters.into_iter().find(|(counter, _)| *counter == name).unwrap().1
    };
    let before = transactions();
    let largest = shoal_engine::limits::FILE_SIZE_MAX - 4096;
    volume.files().fallocate(ino, Fallocate::PunchHole, 4096, largest).unwrap();
    assert!(transactions() - before < 10, "{}", transactions() - before);
    assert_eq!(read(&volume, ino, 0, 10_000)[4090..4100], [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
    assert_fine(&volume);
}

/// A file with a record for each 128 KiB of 4 GiB, and holes between them.
#[test]
fn fallocate_over_a_file_with_more_records_than_one_journal_record_can_name() {
    const STRIDE: u64 = 128 << 10;
    const COUNT: u64 = 30_000;
    for mode in MODES {
        let device = device(8 << 30);
        let volume = open(&device);
        let bystander = Bystander::new(&volume);
        let ino = create(&volume, Ino::ROOT, "sparse");
        for i in 0..COUNT {
            write(&volume, ino, i * STRIDE + 7, &[i as u8 | 1]);
        }
        volume.files().fallocate(ino, mode, 0, COUNT * STRIDE).unwrap();
        let volume = reopened(&device, volume);
        bystander.assert_there(&volume);
        let keeps = matches!(mode, Fallocate::Allocate { .. });
        for i in (0..COUNT).step_by(97) {
            let byte = read(&volume, ino, i * STRIDE + 7, 1)[0];
            assert_eq!(byte, if keeps { i as u8 | 1 } else { 0 }, "{mode:?}, {i}");
        }
        let attr = volume.attributes().getattr(ino).unwrap();
        match mode {
            Fallocate::PunchHole => assert_eq!(attr.blocks, 0),
            _ => {
                assert_eq!(attr.size, COUNT * STRIDE);
                assert_eq!(attr.blocks * 512, COUNT * STRIDE);
            }
        }
        // Everything is freed again, including all promised bytes.
        volume.namespace().unlink(&WHO(), Ino::ROOT, b"sparse").unwrap();
        let volume = reopened(&device, volume);
        assert_eq!(volume.info().inodes, 2);
    }
}

/// A hole of one byte in every other place: more records than a write's record can list singly.
#[test]
fn one_write_over_70_000_pieces() {
    let device = device(256 << 20);
    let volume = open(&device);
    let bystander = Bystander::new(&volume);
    let ino = create(&volume, Ino::ROOT, "holes");
    let dense: Vec<u8> = (0..1u32 << 20).map(|i| i as u8 | 1).collect();
    write(&volume, ino, 0, &dense);
    for i in 0..70_000 {
        volume.files().fallocate(ino, Fallocate::PunchHole, 2 * i + 1, 1).unwrap();
    }
    let holes = read(&volume, ino, 0, 140_000);
    assert!(holes.iter().enumerate().all(|(i, b)| (*b == 0) == (i % 2 == 1)));
    write(&volume, ino, 0, &dense);
    let volume = reopened(&device, volume);
    assert_eq!(read(&volume, ino, 0, dense.len()), dense);
    bystander.assert_there(&volume);
}

/// Small strided writes leave a bounded number of records in each window of a file, so that a write
/// need not read thousands of them.
#[test]
fn strided_writes_leave_few_pieces_in_a_window() {
    const WINDOW: u64 = 128 << 10;
    let device = device(64 << 20);
    let volume = open(&device);
    let ino = create(&volume, Ino::ROOT, "strided");
    for i in 0..WINDOW / 16 {
        write(&volume, ino, i * 16, &[1]);
        if i % 512 == 0 || i == WINDOW / 16 - 1 {
            let (mut pieces, mut at) = (0, 0);
            while let Ok(data) = volume.files().seek(ino, at, Seek::Data) {
                at = volume.files().seek(ino, data, Seek::Hole).unwrap();
                pieces += 1;
            }
            assert!(pieces <= 65, "{pieces} pieces after {i} writes");
        }
    }
    let volume = reopened(&device, volume);
    let bytes = read(&volume, ino, 0, (WINDOW - 15) as usize);
    assert!(bytes.iter().enumerate().all(|(i, b)| *b == u8::from(i % 16 == 0)));
}

/// A preallocation without enough space changes nothing. One whose space is used by concurrent
/// calls ends with ENOSPC, and the volume stays usable.
#[test]
fn an_allocation_without_room_is_refused_at_once() {
    let device = device(64 << 20);
    let volume = open(&device);
    let bystander = Bystander::new(&volume);
    let ino = create(&volume, Ino::ROOT, "f");
    write(&volume, ino, 0, b"x");
    for mode in [MODES[0], MODES[2]] {
        for len in [1 << 30, (i64::MAX as u64) - 1] {
            let refused = volume.files().fallocate(ino, mode, 0, len).unwrap_err();
            assert_eq!(refused.code(), Code::NoSpace, "{mode:?} of {len}");
        }
    }
    assert_eq!(
        (volume.attributes().getattr(ino).unwrap().size, read(&volume, ino, 0, 1)),
        (1, b"x".to_vec())
    );
    // The same range again needs no more space.
    volume.files().fallocate(ino, MODES[0], 0, 24 << 20).unwrap();
    volume.files().fallocate(ino, MODES[0], 0, 24 << 20).unwrap();
    volume.files().fallocate(ino, MODES[2], 0, 24 << 20).unwrap();
    assert_eq!(volume.attributes().getattr(ino).unwrap().blocks * 512, 24 << 20);
    bystander.assert_there(&volume);
    assert_fine(&reopened(&device, volume));
}

/// A removed directory full of hard links whose files have other names, each with as many
/// attributes as fit in an inode: the record of a single step would have 4 MB.
#[test]
fn a_removed_tree_of_files_full_of_attributes() {
    const FILES: usize = 1500;
    let device = device(256 << 20);
    let volume = open(&device);
    let dir = volume.namespace().mkdir(&WHO(), Ino::ROOT, b"tree", 0o755).unwrap().ino;
    let kept = volume.namespace().mkdir(&WHO(), Ino::ROOT, b"kept", 0o755).unwrap().ino;
    for i in 0..FILES {
        let name = format!("{i:0>200}");
        let ino = create(&volume, dir, &name);
        volume.namespace().link(&WHO(), ino, kept, name.as_bytes()).unwrap();
        let flags = XattrFlags::default();
        volume.attributes().setxattr(&WHO(), ino, b"user.a", &[7; 700], flags).unwrap();
        volume.attributes().setxattr(&WHO(), ino, b"user.b", &[8; 600], flags).unwrap();
    }
    volume.namespace().remove_tree(&WHO(), Ino::ROOT, b"tree", TreeCheck::Tree).unwrap();
    let volume = reopened(&device, volume);
    assert_eq!(volume.info().inodes, 2 + FILES as u64);
    let name = format!("{:0>200}", 77);
    let attr = volume.namespace().lookup(&WHO(), kept, name.as_bytes()).unwrap();
    assert_eq!(attr.nlink, 1);
    assert_eq!(volume.attributes().getxattr(&WHO(), attr.ino, b"user.b").unwrap(), [8; 600]);
}

/// Every kind of call, with the largest possible items.
#[test]
fn every_kind_of_call_stays_within_its_bound() {
    let device = device(512 << 20);
    let volume = open(&device);
    let any = XattrFlags::default();
    let long = |i: usize| format!("{i:x>255}").into_bytes();
    // The attributes of an inode have space for a default list and an access list of 127 entries.
    let (names, attributes) = (volume.namespace(), volume.attributes());
    let dir = names.mkdir(&WHO(), Ino::ROOT, b"dir", 0o755).unwrap().ino;
    attributes.setxattr(&WHO(), dir, b"system.posix_acl_default", &list(120), any).unwrap();
    attributes.setxattr(&WHO(), dir, b"system.posix_acl_access", &list(127), any).unwrap();
    let full = |ino: Ino| {
        let name = |i: u32| format!("user.{}", char::from_u32(0x100 + i).unwrap()).into_bytes();
        // Until they move from the inode to the tree: the largest chain of an intent.
        (0..300).for_each(|i| attributes.setxattr(&WHO(), ino, &name(i), b"", any).unwrap());
        (0..300).for_each(|i| attributes.removexattr(&WHO(), ino, &name(i)).unwrap());
    };
    let ino = volume.namespace().create(&WHO(), dir, &long(1), 0o644).unwrap().ino;
    for (dir, len) in [(dir, 4000), (Ino::ROOT, 1600)] {
        names.symlink(&WHO(), dir, &long(2), &vec![b't'; len]).unwrap();
    }
    full(ino);
    volume.attributes().setxattr(&WHO(), ino, b"security.capability", &[1; 20], any).unwrap();
    volume.attributes().setxattr(&WHO(), ino, b"user.long", &[1; 1000], any).unwrap();
    write(&volume, ino, 0, &[1; 500]);
    write(&volume, ino, 0, &vec![1; 1 << 20]);
    for i in 0..60 {
        write(&volume, ino, (100 + i * 2) << 20, &[2]);
    }
    volume.files().fallocate(ino, MODES[0], 0, 300 << 20).unwrap();
    volume.files().fallocate(ino, MODES[1], 0, 30 << 20).unwrap();
    volume.namespace().link(&WHO(), ino, dir, &long(3)).unwrap();
    names.rename(&WHO(), dir, &long(3), Ino::ROOT, &long(4), RenameFlags::default()).unwrap();
    whiteout(&volume, (Ino::ROOT, &long(4)), (dir, &long(3)));
    let who = Caller::root();
    let size = |size| SetAttr { size: Some(size), mode: Some(0o600), ..SetAttr::default() };
    volume.attributes().setattr(&who, ino, &size(1 << 20)).unwrap();
    volume.references().release(names.tmpfile(&WHO(), dir, 0o600).unwrap().ino, 1);
    // A truncate, and an unlinked file, of more records than one transaction removes.
    let many = create(&volume, Ino::ROOT, "many");
    for round in 0..2 {
        for i in 0..5000 {
            write(&volume, many, i << 17, &[3]);
        }
        match round {
            0 => drop(volume.attributes().setattr(&who, many, &size(0)).unwrap()),
            _ => volume.namespace().unlink(&who, Ino::ROOT, b"many").unwrap(),
        }
    }
    volume.namespace().unlink(&who, Ino::ROOT, &long(4)).unwrap();
    let paths: Vec<Vec<u8>> = (1000..1750).map(long).collect();
    let target = [b't'; 100];
    let link = |path| BatchOp::Symlink { path, target: &target };
    let batch: Vec<_> = paths.iter().map(|path| link(path.as_slice())).collect();
    volume.batch(&WHO(), Ino::ROOT, &batch).unwrap();
    let largest = volume.record_sizes().into_iter().find(|size| size.name == "batch").unwrap();
    assert!(largest.bytes_largest > largest.bytes_max / 2, "{largest:?}");
    volume.subvolumes().create(&who, &long(5), 0o755).unwrap();
    let top = volume.subvolumes().top(&long(5)).unwrap();
    volume.namespace().create(&who, top, &long(6), 0o600).unwrap();
    volume.subvolumes().delete(&who, &long(5)).unwrap();
    let change = TreeChange { uid: Some(7), ..TreeChange::default() };
    let none = |_: &TreeStep<'_>| std::ops::ControlFlow::Continue(());
    let changed = volume.tree_changes().change_tree(&who, Ino::ROOT, &change, 1, &none).unwrap();
    assert!(changed.inodes > 700, "{changed:?}");
    volume.namespace().remove_tree(&who, Ino::ROOT, b"dir", TreeCheck::Tree).unwrap();
    free_all(&volume);
    assert_all_kinds(&volume);
    assert_fine(&volume);
    assert_fine(&reopened(&device, volume));
}

/// Moves a name away, leaving a whiteout, and back over it.
fn whiteout(volume: &Volume, from: (Ino, &[u8]), to: (Ino, &[u8])) {
    let (names, plain) = (volume.namespace(), RenameFlags::default());
    let hide = RenameFlags { whiteout: true, ..plain };
    names.rename(&WHO(), from.0, from.1, to.0, to.1, hide).unwrap();
    names.rename(&WHO(), to.0, to.1, from.0, from.1, plain).unwrap();
}

fn free_all(volume: &Volume) {
    while volume.maintenance().reap_some().unwrap() {}
    volume.maintenance().clean().unwrap();
}

/// Checks that every kind of record was made, except those of crashes, repairs, reading and
/// cleaning.
fn assert_all_kinds(volume: &Volume) {
    let sizes = volume.record_sizes();
    let mut table = String::new();
    for size in &sizes {
        let RecordSize { name, bytes_max, bytes_largest, .. } = size;
        writeln!(table, "{name}: {bytes_largest} of {bytes_max}").unwrap();
    }
    println!("{table}");
    let elsewhere = ["recovery", "repair", "atime", "clean"];
    for size in &sizes {
        let made = size.bytes_largest > 0 || elsewhere.contains(&size.name);
        assert!(made, "nothing here makes a record of '{}':\n{table}", size.name);
    }
}

/// Encodes an access control list with this many named users.
fn list(users: u32) -> Vec<u8> {
    let mut raw = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, perm: u16, id: u32| {
        raw.extend(tag.to_le_bytes());
        raw.extend(perm.to_le_bytes());
        raw.extend(id.to_le_bytes());
    };
    entry(1, 7, u32::MAX);
    (0..users).for_each(|user| entry(2, 5, 1000 + user));
    entry(4, 5, u32::MAX);
    entry(16, 7, u32::MAX);
    entry(32, 5, u32::MAX);
    raw
}

/// The table of `docs/design.md` must match the code. `SHOAL_WRITE_DOCS=1` writes it.
#[test]
fn the_design_lists_the_largest_record_of_each_kind() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design.md");
    let (begin, end) = ("<!-- records -->\n", "<!-- end records -->\n");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(begin).unwrap();
    let (now, after) = rest.split_once(end).unwrap();
    let volume = open(&device(64 << 20));
    let mut table =
        "| kind of call | its record | bytes at most |\n| --- | --- | ---: |\n".to_owned();
    for RecordSize { name, text, bytes_max, .. } in volume.record_sizes() {
        writeln!(table, "| {name} | {text} | {bytes_max} |").unwrap();
    }
    if std::env::var_os("SHOAL_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
    } else {
        let how = "SHOAL_WRITE_DOCS=1 cargo test -p shoal-engine --test it the_design";
        assert_eq!(now, table, "docs/design.md is out of date: {how}");
    }
}

/// Found by the simulator: a preallocated extent across the edge of a window was sliced to an empty
/// one.
#[test]
fn a_write_at_the_edge_of_a_window_in_preallocated_space() {
    let device = device(64 << 20);
    let volume = open(&device);
    let ino = create(&volume, Ino::ROOT, "f");
    volume.files().fallocate(ino, MODES[0], 0, 1 << 20).unwrap();
    write(&volume, ino, 128 << 10, &[5; 4096]);
    write(&volume, ino, (256 << 10) - 4096, &[6; 4096]);
    let volume = reopened(&device, volume);
    assert_eq!(read(&volume, ino, 128 << 10, 4096), [5; 4096]);
    assert_eq!(read(&volume, ino, (256 << 10) - 4096, 8192), [[6; 4096], [0; 4096]].concat());
    assert_eq!(volume.attributes().getattr(ino).unwrap().blocks * 512, 1 << 20);
}
