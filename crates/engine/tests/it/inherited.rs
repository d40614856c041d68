//! References that outlive the process: after a kill the next one keeps each unlinked inode until
//! somebody has asked whether it is in use.

use shoal_engine::*;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

fn options(ring: &Arc<RingMemory>, holds: HoldLife) -> OpenOptions {
    OpenOptions {
        background: false,
        cache_bytes: 64 << 20,
        ring: Some(ring.clone()),
        holds,
        ..OpenOptions::default()
    }
}

fn device() -> (Arc<MemDevice>, Arc<RingMemory>) {
    let device = Arc::new(MemDevice::new(192 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    (device, Arc::new(RingMemory::without_name().unwrap()))
}

/// Collects the inodes that are to be asked about; `used` are in use.
fn asked(volume: &Volume, used: HashSet<Ino>) -> Arc<Mutex<Vec<Ino>>> {
    let asked = Arc::<Mutex<Vec<Ino>>>::default();
    volume.references().watch_unconfirmed(Arc::new(Kernel { asked: asked.clone(), used }));
    asked
}

struct Kernel {
    asked: Arc<Mutex<Vec<Ino>>>,
    used: HashSet<Ino>,
}

impl Outside for Kernel {
    fn ask(&self, ino: Ino) {
        self.asked.lock().unwrap().push(ino);
    }
    fn knows(&self, ino: Ino) -> bool {
        self.used.contains(&ino)
    }
}

fn take(asked: &Mutex<Vec<Ino>>) -> HashSet<Ino> {
    std::mem::take(&mut *asked.lock().unwrap()).into_iter().collect()
}

fn check(volume: &Volume) {
    assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
}

#[test]
fn an_unlinked_file_lives_as_long_as_somebody_outside_uses_it() {
    let (device, ring) = device();
    let volume = Volume::open_on(device.clone(), &options(&ring, HoldLife::Lasting)).unwrap();
    let who = Caller::root();
    let make = |name: &[u8], bytes: usize| {
        let file = volume.namespace().create(&who, Ino::ROOT, name, 0o644).unwrap().ino;
        volume.files().write(file, 0, &vec![7; bytes], false).unwrap();
        volume.references().hold(file, 2).unwrap();
        file
    };
    let (small, large, named) = (make(b"small", 30), make(b"large", 300_000), make(b"named", 5));
    let unnamed = volume.namespace().tmpfile(&who, Ino::ROOT, 0o600).unwrap().ino;
    for name in [&b"small"[..], b"large"] {
        volume.namespace().unlink(&who, Ino::ROOT, name).unwrap();
    }
    // As by a kill.
    drop(volume);
    let volume = Volume::open_on(device.clone(), &options(&ring, HoldLife::Inherited)).unwrap();
    let recent = volume.info().recovery.recent;
    assert!([small, large, named, Ino::ROOT].iter().all(|ino| recent.contains(ino)), "{recent:?}");
    let queue = asked(&volume, HashSet::new());
    assert_eq!(take(&queue), HashSet::from([small, large, unnamed]));
    let (mut bytes, references) = (vec![0; 300_000], volume.references());
    for (ino, len) in [(small, 30), (large, 300_000)] {
        assert_eq!(volume.files().read(ino, 0, &mut bytes).unwrap(), len);
        assert!(bytes[..len].iter().all(|byte| *byte == 7));
        assert_eq!(volume.attributes().getattr(ino).unwrap().nlink, 0);
    }
    // Nobody uses these two; the third one is asked about again when it is dropped.
    references.unknown(unnamed);
    references.unknown(large);
    for ino in [unnamed, large] {
        assert!(volume.attributes().getattr(ino).unwrap_err().is(Code::Stale));
    }
    references.release(small, 5);
    assert_eq!(take(&queue), HashSet::from([small]));
    assert_eq!(volume.files().read(small, 0, &mut bytes).unwrap(), 30, "until it is known");
    references.unknown(small);
    assert!(volume.attributes().getattr(small).unwrap_err().is(Code::Stale));
    // A name goes that the earlier process had given out; nobody has counted that here.
    volume.namespace().unlink(&Caller::root(), Ino::ROOT, b"named").unwrap();
    assert_eq!(take(&queue), HashSet::from([named]));
    assert_eq!(volume.files().read(named, 0, &mut bytes).unwrap(), 5);
    assert_eq!(volume.references().orphan_list().len(), 1);
    check(&volume);
    volume.close().unwrap();
    let volume = Volume::open_on(device, &options(&ring, HoldLife::Process)).unwrap();
    assert_eq!(volume.references().orphan_list().len(), 0, "closing ends all references");
    assert_eq!(volume.info().inodes, 1);
    check(&volume);
}

#[test]
fn a_removed_tree_is_freed_except_for_what_is_in_use() {
    let (device, ring) = device();
    let volume = Volume::open_on(device.clone(), &options(&ring, HoldLife::Lasting)).unwrap();
    let who = Caller::root();
    let top = volume.namespace().mkdir(&who, Ino::ROOT, b"tree", 0o755).unwrap().ino;
    let sub = volume.namespace().mkdir(&who, top, b"sub", 0o755).unwrap().ino;
    let mut files = Vec::new();
    for n in 0..100 {
        let dir = if n % 2 == 0 { top } else { sub };
        let name = format!("{n:0>20}");
        files.push(volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap().ino);
    }
    drop(volume);
    let volume = Volume::open_on(device, &options(&ring, HoldLife::Inherited)).unwrap();
    let used = HashSet::from([files[3], sub]);
    let queue = asked(&volume, used.clone());
    assert_eq!(take(&queue), HashSet::new());
    volume.namespace().remove_tree(&who, Ino::ROOT, b"tree", TreeCheck::Tree).unwrap();
    // The top is asked about when it is empty; of the others only those in use were kept.
    let due = take(&queue);
    assert!(due.is_subset(&HashSet::from([files[3], sub, top])), "{due:?}");
    due.difference(&used).for_each(|ino| volume.references().unknown(*ino));
    assert_eq!(take(&queue), HashSet::new());
    let left: HashSet<Ino> = volume.references().orphan_list().iter().map(|it| it.ino).collect();
    assert_eq!(left, used);
    check(&volume);
    used.iter().for_each(|ino| volume.references().unknown(*ino));
    assert_eq!(volume.references().orphan_list().len(), 0);
    assert_eq!(volume.info().inodes, 1);
    check(&volume);
    volume.close().unwrap();
}

/// Nothing of an unlinked inode is in memory only, however small it is.
#[test]
fn lasting_references_need_orphan_slots() {
    let (device, ring) = device();
    for (life, slots) in [(HoldLife::Process, 0), (HoldLife::Lasting, 1)] {
        let volume = Volume::open_on(device.clone(), &options(&ring, life)).unwrap();
        let who = Caller::root();
        let file = volume.namespace().create(&who, Ino::ROOT, b"f", 0o644).unwrap().ino;
        volume.references().hold(file, 1).unwrap();
        volume.namespace().unlink(&who, Ino::ROOT, b"f").unwrap();
        let orphans = volume.references().orphan_list();
        assert_eq!(orphans.iter().filter(|orphan| orphan.slot).count(), slots, "{life:?}");
        volume.references().release(file, 1);
        assert_eq!(volume.references().orphan_list().len(), 0);
        volume.close().unwrap();
    }
}
