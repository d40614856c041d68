//! Full volumes: `statfs` reports the space that can be written, refused calls are cheap, and freed
//! space is usable at once. For a full disk of the host see `host.rs`.

use shoal_engine::*;
use std::sync::Arc;

fn fresh(size: u64) -> Volume {
    let device = Arc::new(MemDevice::new(size));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions { background: false, cache_bytes: 64 << 20, ..Default::default() };
    Volume::open_on(device, &options).unwrap()
}

fn create(volume: &Volume, name: &str) -> Result<Ino> {
    volume
        .namespace()
        .create(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o644)
        .map(|entry| entry.ino)
}

fn checkpoints(volume: &Volume) -> u64 {
    let info = volume.info();
    info.counters.iter().find(|(name, _)| *name == "checkpoints").unwrap().1
}

/// Writes files of `size` bytes until there is no space. Returns them and their total bytes.
fn fill(volume: &Volume, prefix: &str, size: usize) -> (Vec<Ino>, u64) {
    let (mut files, mut bytes) = (Vec::new(), 0);
    let data = vec![7; size];
    loop {
        let file = match create(volume, &format!("{prefix}{}", files.len())) {
            Ok(file) => file,
            Err(e) if e.is(Code::NoSpace) => return (files, bytes),
            Err(e) => panic!("{e}"),
        };
        files.push(file);
        let mut written = 0;
        let mut piece = size;
        // Data that does not fit as a whole may fit in parts, as for a program that continues to
        // write.
        while written < size && piece >= 4096.min(size) {
            let part = &data[written..size.min(written + piece)];
            match volume.files().write(file, written as u64, part, false) {
                Ok(n) => written += n,
                Err(e) if e.is(Code::NoSpace) => piece /= 2,
                Err(e) => panic!("{e}"),
            }
        }
        bytes += written as u64;
        if written < size {
            return (files, bytes);
        }
    }
}

/// The available space of `statfs` can be written: in large pieces to within 2 %. Small files also
/// need space for names and inodes, and all of the available space is used.
#[test]
fn statfs_says_what_can_be_written() {
    for size in [64 << 20, 256 << 20, 1 << 30] {
        for piece in [1 << 20, 100_000, 16 << 10] {
            let volume = fresh(size);
            let said = volume.statfs().bytes_available;
            let (_, written) = fill(&volume, "f", piece);
            let left = volume.statfs().bytes_available;
            let share = written as f64 / said as f64;
            let text = format!(
                "{} MiB, {piece} at a time: said {said}, written {written} ({share:.4}), {left}",
                size >> 20
            );
            println!("{text}");
            let metadata = if piece < 100_000 { 0.04 } else { 0.0 };
            assert!(share < 1.02 && share > 0.98 - metadata, "{text}");
            assert!(left as f64 <= 0.02 * said as f64 + 3.0 * piece as f64, "{text}");
        }
    }
}

/// The same after writing and overwriting, with half of it removed again: dead space counts as
/// available, and is usable.
#[test]
fn dead_space_that_statfs_promises_can_be_had() {
    let volume = fresh(128 << 20);
    let (files, _) = fill(&volume, "f", 50_000);
    for n in (0..files.len()).step_by(2) {
        volume.namespace().unlink(&Caller::root(), Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    let said = volume.statfs().bytes_available;
    assert!(said > 40 << 20, "{said}");
    let (_, written) = fill(&volume, "g", 200_000);
    let share = written as f64 / said as f64;
    println!("said {said}, written {written} ({share:.4})");
    assert!(share > 0.97 && share < 1.03, "said {said}, written {written}");
}

/// The first refused call may have to search for space. Later ones know that nothing has been
/// freed.
#[test]
fn a_refused_call_is_cheap() {
    let volume = fresh(128 << 20);
    let (files, _) = fill(&volume, "f", 100_000);
    for n in (0..files.len()).step_by(50) {
        volume.namespace().unlink(&Caller::root(), Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    fill(&volume, "g", 30_000);
    let data = vec![8; 64 << 10];
    let refused =
        |file| volume.files().write(file, 0, &data, false).is_err_and(|e| e.is(Code::NoSpace));
    let some = files[files.len() - 2];
    (0..).find(|n| create(&volume, &format!("more{n}")).is_err());
    while !refused(some) {}
    assert!(create(&volume, "new").is_err());
    let before = checkpoints(&volume);
    let count = 2000;
    for n in 0..count {
        assert!(refused(files[1 + n % 7]), "{n}");
        assert!(create(&volume, "new").is_err());
    }
    assert_eq!(checkpoints(&volume) - before, 0);
    // As soon as something is freed, there is space for data of the same size.
    for n in 1..8 {
        volume.namespace().unlink(&Caller::root(), Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    let (fs, wrote) = (volume.statfs(), volume.files().write(some, 0, &data, false));
    assert!(wrote.is_ok(), "{wrote:?}: {fs:?}, then {:?}", volume.statfs());
    assert!(create(&volume, "new").is_ok());
}

/// Fills a volume until neither data nor a name can be added.
fn stuffed(volume: &Volume) -> usize {
    let (files, _) = fill(volume, "f", 100_000);
    let (small, _) = fill(volume, "g", 3000);
    let (names, _) = fill(volume, "h", 0);
    assert!(create(volume, "one more").is_err_and(|e| e.is(Code::NoSpace)));
    println!("{} files, {} small ones, {} names", files.len(), small.len(), names.len());
    files.len()
}

/// A full volume offers only what can be had: after a call was refused, nothing is offered.
#[test]
fn a_full_volume_offers_nothing() {
    for size in [16 << 20, 32 << 20, 128 << 20] {
        let volume = fresh(size);
        let offered = volume.statfs();
        assert!(offered.bytes_available > 1 << 20 && offered.inodes_free > 1000, "{offered:?}");
        stuffed(&volume);
        let shown = volume.statfs();
        assert!(shown.bytes_available < 4096 && shown.inodes_free == 0, "{size}: {shown:?}");
        // What is removed is offered again.
        for n in 0..10 {
            let name = format!("f{n}");
            volume.namespace().unlink(&Caller::root(), Ino::ROOT, name.as_bytes()).unwrap();
        }
        let shown = volume.statfs();
        assert!(shown.bytes_available > 500_000 && shown.inodes_free > 500, "{size}: {shown:?}");
        assert!(create(&volume, "one more").is_ok());
    }
}

/// A rename that makes no name longer needs no space, as in other filesystems: it frees some if it
/// replaces a file. However many there are, removals still find the reserve.
#[test]
fn names_can_be_changed_in_a_full_volume() {
    let volume = fresh(32 << 20);
    let files = stuffed(&volume);
    let rename = |from: &str, to: &str| {
        let (who, flags) = (Caller::root(), RenameFlags::default());
        let (from, to) = (from.as_bytes(), to.as_bytes());
        volume.namespace().rename(&who, Ino::ROOT, from, Ino::ROOT, to, flags)
    };
    rename("h0", "i0").unwrap();
    rename("i0", "h0").unwrap();
    assert!(rename("h0", "a longer name").is_err_and(|e| e.is(Code::NoSpace)));
    let mut refused = 0;
    for round in 0..20_000_u32 {
        let (from, to) = match round % 2 {
            0 => ("h0".to_owned(), format!("{:02}", round / 2 % 100)),
            _ => (format!("{:02}", round / 2 % 100), "h0".to_owned()),
        };
        match rename(&from, &to) {
            Ok(()) => {}
            Err(e) if e.is(Code::NoSpace) => refused += 1,
            Err(e) => panic!("{round}: {e}"),
        }
        // The next round begins with the first name.
        if refused > 0 {
            break;
        }
    }
    assert_eq!(refused, 0, "the same few names were moved");
    // A small file replaces large ones.
    for n in 0..files - 1 {
        rename("h0", &format!("f{n}")).unwrap();
        rename(&format!("f{n}"), "h0").unwrap();
    }
    assert!(volume.statfs().bytes_available > 1 << 20, "{:?}", volume.statfs());
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

/// A small request must not be refused because a large one was.
#[test]
fn requests_of_different_sizes_are_refused_each_for_itself() {
    let volume = fresh(64 << 20);
    let (files, _) = fill(&volume, "f", 1 << 20);
    let file = files[0];
    while volume.files().write(file, 0, &vec![1; 1 << 20], false).is_ok() {}
    let last = create(&volume, "small");
    let wrote = last.and_then(|file| volume.files().write(file, 0, &[1; 20_000], false));
    let left = volume.statfs().bytes_available;
    assert!(wrote.is_ok() || left < 64 << 10, "{wrote:?}, {left} left");
}

/// Overwrites random blocks of a nearly full volume: every call for which `statfs` has space must
/// succeed.
fn overwrites(size: u64, file_bytes: usize, keep: u64) {
    let volume = fresh(size);
    let mut files = Vec::new();
    let all = volume.statfs().bytes_available;
    while volume.statfs().bytes_available > all / keep {
        let file = create(&volume, &format!("f{}", files.len())).unwrap();
        volume.files().write(file, 0, &vec![3; file_bytes], false).unwrap();
        files.push(file);
        if files.len() % 64 == 0 {
            volume.maintenance().checkpoint().unwrap();
        }
    }
    let (before, mut state) = (checkpoints(&volume), 1_u64);
    let blocks = file_bytes >> 14;
    let count = 2 * files.len() * blocks;
    for n in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let chosen = (state >> 33) as usize;
        let (file, block) = (files[chosen % files.len()], chosen / files.len() % blocks);
        let wrote =
            volume.files().write(file, (block << 14) as u64, &vec![n as u8; 16 << 10], false);
        let (fs, info) = (volume.statfs(), volume.info());
        assert!(wrote.is_ok(), "{n}: {wrote:?}, {fs:?}, {info:?}");
    }
    let made = checkpoints(&volume) - before;
    println!("{count} overwrites, {made} checkpoints");
    assert!(made < count as u64 / 8, "{made} checkpoints for {count} overwrites");
}

#[test]
fn overwrites_of_a_nearly_full_volume_succeed() {
    overwrites(96 << 20, 16 << 10, 12);
}

#[test]
fn overwrites_of_large_files_on_a_nearly_full_volume_succeed() {
    overwrites(96 << 20, 1 << 20, 8);
}

/// An object that is used in thousands of pieces is moved in bounded transactions.
#[test]
fn the_cleaner_moves_an_object_of_many_pieces() {
    let volume = fresh(64 << 20);
    let file = create(&volume, "pieces").unwrap();
    let data: Vec<u8> = (0..128 << 10).map(|n| (n % 251) as u8).collect();
    volume.files().write(file, 0, &data, false).unwrap();
    for at in (0..data.len() as u64).step_by(64) {
        volume.files().fallocate(file, Fallocate::PunchHole, at, 32).unwrap();
    }
    // Its segment is filled, and then everything else in it is removed.
    let fills: Vec<Ino> = (0..24).map(|n| create(&volume, &format!("{n}")).unwrap()).collect();
    for f in fills {
        volume.files().write(f, 0, &vec![1; 256 << 10], false).unwrap();
    }
    (0..24).for_each(|n| {
        volume.namespace().unlink(&Caller::root(), Ino::ROOT, format!("{n}").as_bytes()).unwrap();
    });
    for _ in 0..3 {
        volume.maintenance().clean().unwrap();
    }
    assert!(volume.read_only_reason().is_none(), "{:?}", volume.read_only_reason());
    let mut back = vec![9; data.len()];
    volume.files().read(file, 0, &mut back).unwrap();
    let right = back.iter().enumerate().all(|(n, b)| *b == if n % 64 < 32 { 0 } else { data[n] });
    assert!(right, "the pieces are where they were");
    let moved = volume.info().counters.iter().find(|(name, _)| *name == "bytes_moved").unwrap().1;
    assert!(moved > 0);
}

/// A volume full of metadata: names and inodes can be removed one by one, whatever the checkpoints
/// need.
#[test]
fn tiny_files_that_fill_a_volume_can_be_removed() {
    let volume = fresh(32 << 20);
    let (files, _) = fill(&volume, "a", 100);
    for n in 0..files.len() {
        let gone =
            volume.namespace().unlink(&Caller::root(), Ino::ROOT, format!("a{n}").as_bytes());
        let reason = volume.read_only_reason();
        assert!(gone.is_ok(), "{n}: {gone:?}, {reason:?}, {:?}", volume.info());
    }
    let (again, _) = fill(&volume, "b", 100);
    assert!(again.len() * 10 >= files.len() * 9, "{} files, then {}", files.len(), again.len());
}
