//! An interrupted repair must leave a volume that can be repaired without further losses.

use crate::common::*;
use shoal_engine::*;
use shoal_format::inode::Form;
use std::sync::Arc;

fn sample() -> (Arc<MemDevice>, Shown) {
    let device = Arc::new(MemDevice::new(32 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    for d in 0..10 {
        let dir = volume
            .namespace()
            .mkdir(&who, Ino::ROOT, format!("d{d}").as_bytes(), 0o755)
            .unwrap()
            .ino;
        for f in 0..100 {
            let name = format!("file {f} in {d}");
            let file = volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap().ino;
            volume.files().write(file, 0, name.repeat(f + 1).as_bytes(), false).unwrap();
        }
    }
    let before = shown(&volume);
    volume.close().unwrap();
    (device, before)
}

/// Interrupts the repair after each number of writes until it succeeds. After each interruption a
/// second one repairs the rest.
fn cut_off_everywhere(device: &Arc<MemDevice>, before: &Shown) {
    for writes in 0.. {
        let damaged = copy(device);
        let dying = Arc::new(Dying::after(&damaged, writes));
        let first = Volume::repair_on(dying, &options(), &mut |_, _, _| {}, &mut |_| true);
        let again = repair(&damaged);
        assert_eq!(again.left, vec![], "after {writes} writes");
        assert!(!repair(&damaged).written, "after {writes} writes");
        let volume = open(&damaged);
        assert!(shown(&volume) == *before, "after {writes} writes");
        volume.close().unwrap();
        if first.is_ok() {
            println!("{writes} writes in all");
            assert!(writes > 5);
            break;
        }
    }
}

#[test]
fn at_any_write() {
    let (device, before) = sample();
    let blocks = blocks(&device);
    for kind in ["dirents leaf", "dirents inner", "imap leaf"] {
        blocks[kind].iter().for_each(|ptr| flip(&device, ptr.addr.0 + 99));
    }
    flip(&device, blocks["usage page"][0].addr.0 + 99);
    cut_off_everywhere(&device, &before);
}

/// Both superblocks and the checkpoint record itself are lost.
#[test]
fn at_any_write_without_a_superblock() {
    let (device, before) = sample();
    let blocks = blocks(&device);
    flip(&device, blocks["checkpoint"][0].addr.0 + 9);
    flip(&device, blocks["dirents leaf"][0].addr.0 + 99);
    for at in shoal_format::superblock::COPIES {
        device.write_at(&[0; 4096], at).unwrap();
    }
    cut_off_everywhere(&device, &before);
}

/// Writes of a repair after its checkpoint: a parent pointer for which contents must move out.
#[test]
fn at_any_write_behind_the_checkpoint() {
    let (device, mut before) = sample();
    let volume = open(&device);
    let file = volume.namespace().lookup(&Caller::root(), Ino::ROOT, b"d3").unwrap();
    let file = volume.namespace().lookup(&Caller::root(), file.ino, b"file 7 in 3").unwrap().ino;
    volume.close().unwrap();
    let store = store(&device);
    let table = &store.root(file).unwrap().table;
    let place = table.get(file).unwrap();
    let mut locked = place.write();
    let inode = locked.edit(table, store.epoch());
    (inode.attr, inode.core.attr_form) = (Box::default(), Form::Empty);
    inode.data = vec![9; 396].into();
    (inode.core.data_form, inode.core.size) = (Form::Inline, 396);
    drop(locked);
    store.checkpoints().write_clean().unwrap();
    store.journal().unwrap().shutdown();
    drop(place);
    before.get_mut("/d3/file 7 in 3").unwrap().2 = vec![9; 396];
    cut_off_everywhere(&device, &before);
}
