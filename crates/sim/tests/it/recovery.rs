//! Recovery with a cache that is much smaller than what the journal changes: it writes checkpoints
//! on its way. Crashes at any moment of it, with every loss that a device may have, must lead to
//! the same state, again and again.

use shoal::raw::{Caller, Ino, OpenOptions, RenameFlags, SetAttr, Volume, XattrFlags, mkfs_on};
use shoal_sim::device::FaultyDevice;
use shoal_sim::recovery::recover_hard;
use shoal_sim::rng::Rng;
use std::sync::Arc;

fn options(cache_bytes: u64) -> OpenOptions {
    let checkpoint_bytes = u64::MAX;
    let noatime = true;
    OpenOptions { background: false, cache_bytes, checkpoint_bytes, noatime, ..Default::default() }
}

/// Calls of all kinds, and syncs between them, until the journal changes some 4 MiB of metadata.
fn work(volume: &Volume, rng: &mut Rng) -> shoal::raw::Result<()> {
    let who = Caller::root();
    let top = |i: u64| format!("d{i}").into_bytes();
    let dirs: Vec<Ino> = (0..6)
        .map(|i| volume.namespace().mkdir(&who, Ino::ROOT, &top(i), 0o755).map(|attr| attr.ino))
        .collect::<shoal::raw::Result<_>>()?;
    let mut files: Vec<(usize, Vec<u8>, Ino)> = Vec::new();
    for i in 0..6000 {
        let dir = rng.below(6) as usize;
        let name = format!("{:0>40}", rng.next()).into_bytes();
        let ino = volume.namespace().create(&who, dirs[dir], &name, 0o644)?.ino;
        files.push((dir, name, ino));
        let at = rng.below(files.len() as u64) as usize;
        let (dir, name, ino) = files[at].clone();
        match rng.below(12) {
            0 => drop(volume.files().write(ino, rng.below(200_000), &[7; 9000], false)?),
            1 => drop(volume.files().write(ino, 0, &[8; 90], false)?),
            2 => volume.attributes().setxattr(
                &who,
                ino,
                b"user.a",
                &[9; 2500],
                XattrFlags::default(),
            )?,
            3 => {
                volume.namespace().unlink(&who, dirs[dir], &name)?;
                files.swap_remove(at);
            }
            4 => {
                let to = (dir + 1) % 6;
                let plain = RenameFlags::default();
                volume.namespace().rename(&who, dirs[dir], &name, dirs[to], &name, plain)?;
                files[at].0 = to;
            }
            5 => {
                let cut = SetAttr { size: Some(rng.below(5000)), ..SetAttr::default() };
                volume.attributes().setattr(&who, ino, &cut)?;
            }
            _ => {}
        }
        match i {
            // What comes before has to be read for what comes behind.
            1500 => volume.maintenance().checkpoint()?,
            _ if rng.below(40) == 0 => volume.sync()?,
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn checkpoints_on_the_way_survive_crashes_of_recovery() {
    let mut on_the_way = 0;
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let device = Arc::new(FaultyDevice::new(160 << 20));
        mkfs_on(device.clone(), &shoal::raw::MkfsOptions::default()).expect("mkfs");
        let volume = Volume::open_on(device.clone(), &options(256 << 20)).expect("open");
        work(&volume, &mut rng).expect("no fault");
        let (_, image) = device.crash_now(rng.next());
        drop(volume);
        let recovered = recover_hard(image, &options(4 << 20), &mut rng);
        let recovered = recovered.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let info = recovered.volume.info();
        let checkpoints = info.counters.iter().find(|(name, _)| *name == "checkpoints");
        on_the_way += checkpoints.map_or(0, |(_, count)| count - 1);
    }
    assert!(on_the_way > 12, "{on_the_way} checkpoints on the way");
}
