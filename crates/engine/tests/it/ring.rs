//! A ring that outlives its process: a volume that is dropped, as by `kill -9`, and opened with the
//! same memory has every call that had returned. The recovery may be interrupted at any write.

use crate::common::{Dying, copy, shown};
use shoal_engine::*;
use std::sync::{Arc, Mutex};

fn options(ring: Option<&Arc<RingMemory>>, cache_bytes: u64) -> OpenOptions {
    OpenOptions {
        background: false,
        cache_bytes,
        checkpoint_bytes: u64::MAX,
        noatime: true,
        ring: ring.cloned(),
        ..OpenOptions::default()
    }
}

fn device() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(192 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    device
}

/// Makes, changes and removes files of all kinds: names, contents in inodes and in objects,
/// attributes, renames. Everything `synced_every` calls is made durable; 0: never.
fn work(volume: &Volume, calls: usize, synced_every: usize) {
    let who = Caller::root();
    let (names, files) = (volume.namespace(), volume.files());
    let dirs = [b"a", b"b", b"c"].map(|n| names.mkdir(&who, Ino::ROOT, n, 0o755).unwrap().ino);
    let name = |i: usize| format!("{i:0>30}").into_bytes();
    for i in 0..calls {
        let file = names.create(&who, dirs[i % 3], &name(i), 0o644).unwrap().ino;
        match i % 8 {
            0 => drop(files.write(file, 0, &vec![i as u8; 6000], false).unwrap()),
            1 => drop(files.write(file, 0, &[i as u8; 60], false).unwrap()),
            2 => volume
                .attributes()
                .setxattr(&who, file, b"user.large", &vec![i as u8; 3000], XattrFlags::default())
                .unwrap(),
            4 => names.unlink(&who, dirs[(i - 4) % 3], &name(i - 4)).unwrap(),
            6 => {
                let to = dirs[(i + 1) % 3];
                let plain = RenameFlags::default();
                names.rename(&who, dirs[i % 3], &name(i), to, &name(i), plain).unwrap();
            }
            _ => {}
        }
        if synced_every > 0 && i % synced_every == 0 {
            volume.sync().unwrap();
        }
    }
}

#[test]
fn what_was_never_synced_is_there_after_a_kill_and_not_without_the_ring() {
    let (device, ring) = (device(), Arc::new(RingMemory::without_name().unwrap()));
    let volume = Volume::open_on(device.clone(), &options(Some(&ring), 64 << 20)).unwrap();
    work(&volume, 500, 0);
    let expected = shown(&volume);
    drop(volume);
    let without = Volume::open_on(copy(&device), &options(None, 64 << 20)).unwrap();
    assert!(shown(&without).len() < expected.len() / 2, "the journal has hardly any of it");
    drop(without);
    let volume = Volume::open_on(device.clone(), &options(Some(&ring), 64 << 20)).unwrap();
    assert!(shown(&volume) == expected);
    let recovery = volume.info().recovery;
    assert!(recovery.kept > 500 && recovery.kept <= recovery.records, "{recovery:?}");
    assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
    // And again, from the new incarnation.
    volume.namespace().mkdir(&Caller::root(), Ino::ROOT, b"later", 0o755).unwrap();
    let expected = shown(&volume);
    drop(volume);
    let volume = Volume::open_on(device, &options(Some(&ring), 64 << 20)).unwrap();
    assert!(shown(&volume) == expected);
    assert!((1..10).contains(&volume.info().recovery.kept), "only what came later");
}

/// Part of the journal is on the device and larger than the cache, the rest is in the ring alone.
/// Each recovery is interrupted after a number of writes, and begun again twice.
#[test]
fn a_recovery_that_is_cut_off_finds_the_ring_again() {
    let (device, ring) = (device(), Arc::new(RingMemory::without_name().unwrap()));
    let volume = Volume::open_on(device.clone(), &options(Some(&ring), 256 << 20)).unwrap();
    work(&volume, 6000, 2000);
    let expected = shown(&volume);
    drop(volume);
    let whole = copy(&device);
    let (mut cuts, mut kept) = (0, 0);
    for writes in (0..).step_by(3) {
        // The ring is that of the killed process each time: a recovery stages nothing in it.
        let cut = copy(&whole);
        let small = options(Some(&ring), 4 << 20);
        let done = Volume::open_on(Arc::new(Dying::after(&cut, writes)), &small).is_ok();
        drop(Volume::open_on(Arc::new(Dying::after(&cut, writes % 23)), &small));
        let volume = Volume::open_on(cut, &small).unwrap();
        kept = kept.max(volume.info().recovery.kept);
        assert!(shown(&volume) == expected, "after {writes} writes");
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![], "{writes} writes");
        cuts += 1;
        if done {
            break;
        }
    }
    println!("{cuts} cuts, {kept} records in the ring");
    assert!(cuts > 3 && kept > 100);
}

/// A device whose writes are lost before a flush, and which keeps their order.
struct Ordered {
    now: Arc<MemDevice>,
    durable: Mutex<Arc<MemDevice>>,
}

impl Device for Ordered {
    fn capacity(&self) -> u64 {
        self.now.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.now.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.now.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        *self.durable.lock().unwrap() = copy(&self.now);
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn keeps_order(&self) -> bool {
        true
    }
    fn describe(&self) -> String {
        "ordered".into()
    }
}

/// The ring is used again after a recovery, so what only it had must be durable by then, although
/// such a device needs no flush for anything else.
#[test]
fn what_only_the_ring_had_is_durable_after_the_recovery() {
    let (device, ring) = (device(), Arc::new(RingMemory::without_name().unwrap()));
    let volume = Volume::open_on(device.clone(), &options(Some(&ring), 64 << 20)).unwrap();
    work(&volume, 100, 0);
    let expected = shown(&volume);
    drop(volume);
    let durable = Mutex::new(copy(&device));
    let ordered = Arc::new(Ordered { now: device, durable });
    drop(Volume::open_on(ordered.clone(), &options(Some(&ring), 64 << 20)).unwrap());
    let left = ordered.durable.lock().unwrap().clone();
    let volume = Volume::open_on(left, &options(None, 64 << 20)).unwrap();
    assert!(shown(&volume) == expected, "the machine has stopped, and the ring is lost");
}

#[test]
fn a_ring_belongs_to_one_volume_until_that_is_closed() {
    let ring = Arc::new(RingMemory::without_name().unwrap());
    let first = device();
    let volume = Volume::open_on(first.clone(), &options(Some(&ring), 64 << 20)).unwrap();
    work(&volume, 10, 0);
    drop(volume);
    let other = device();
    let error = match Volume::open_on(other.clone(), &options(Some(&ring), 64 << 20)) {
        Err(error) => error,
        Ok(_) => panic!("it would overwrite the first one's records"),
    };
    assert!(error.code() == Code::Busy && error.to_string().contains("another volume"), "{error}");
    Volume::open_on(first, &options(Some(&ring), 64 << 20)).unwrap().close().unwrap();
    let volume = Volume::open_on(other, &options(Some(&ring), 64 << 20)).unwrap();
    assert!(!volume.info().recovery.needed || volume.info().recovery.kept == 0);
    volume.close().unwrap();
}
