//! A volume becomes smaller on a device that loses, tears and reorders writes when the power goes:
//! crashes after every device operation.

use shoal::raw::{Caller, Ino, OpenOptions, ShrinkPlan, Volume, mkfs_on, shrink_on};
use shoal_device::Device;
use shoal_sim::deadline::within;
use shoal_sim::device::FaultyDevice;
use shoal_sim::image::Image;
use shoal_sim::recovery::recover;
use shoal_sim::rng::Rng;
use shoal_sim::runner::Settings;
use shoal_sim::walk::walk;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const LARGE: u64 = 36;
const SMALL: u64 = 20;

/// A volume with small files, and large ones of which most are removed again. Closed.
fn sample(options: &OpenOptions, mkfs: &shoal::raw::MkfsOptions, seed: u64) -> (Image, u64) {
    let (mut rng, who) = (Rng::new(seed), Caller::root());
    let device = Arc::new(FaultyDevice::new(LARGE * MIB));
    mkfs_on(Arc::clone(&device) as Arc<dyn Device>, mkfs).expect("a fresh volume");
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options).expect("opens");
    let names = volume.namespace();
    let dir = names.mkdir(&who, Ino::ROOT, b"d", 0o755).expect("a directory").ino;
    for n in 0..40_u64 {
        let name = format!("file {n}");
        let file = names.create(&who, dir, name.as_bytes(), 0o600).expect("a file").ino;
        let len = if n < 20 { MIB } else { rng.below(9000) };
        let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        volume.files().write(file, 0, &bytes, false).expect("written");
    }
    for n in (0..20).filter(|n| n % 7 != 5) {
        names.unlink(&who, dir, format!("file {n}").as_bytes()).expect("removed");
    }
    let shown = walk(&volume, Ino::ROOT, true).expect("a walk").digest();
    volume.close().expect("closed");
    (device.image(), shown)
}

fn segments(volume: &Volume) -> u64 {
    u64::from(volume.info().segments)
}

#[test]
fn one_of_the_two_sizes_and_everything_after_any_crash() {
    within(900, "shrink", || {
        for seed in 0..2 {
            let Settings { mkfs, open: options, .. } = Settings::small(LARGE * MIB);
            let (image, shown) = sample(&options, &mkfs, seed);
            let device = Arc::new(FaultyDevice::from_image(image));
            let first = device.position();
            let dynamic = Arc::clone(&device) as Arc<dyn Device>;
            let plan =
                Volume::open_on(dynamic, &OpenOptions { read_only: true, ..options.clone() })
                    .and_then(|volume| ShrinkPlan::of(&volume, SMALL * MIB));
            assert!(plan.expect("it can").moved > MIB, "seed {seed}");
            let dynamic = Arc::clone(&device) as Arc<dyn Device>;
            let shrunk = shrink_on(&dynamic, SMALL * MIB, &options, &mut |_, _| true);
            assert_eq!(shrunk.expect("it becomes smaller").now, SMALL * MIB);
            let mut cursor = device.crashes(seed);
            let last = cursor.last();
            let (mut sizes, mut images) = ((false, false), 0);
            for position in first..=last {
                for draw in 0..2 {
                    let image = cursor.image_at(position, seed * 2 + draw);
                    images += 1;
                    let recovered = recover(image, &options)
                        .unwrap_or_else(|e| panic!("seed {seed}, operation {position}: {e}"));
                    assert_eq!(recovered.walk.digest(), shown, "seed {seed}, {position}");
                    match segments(&recovered.volume) {
                        LARGE => sizes.0 = true,
                        SMALL => sizes.1 = true,
                        other => panic!("seed {seed}, operation {position}: {other} segments"),
                    }
                    recovered.volume.close().expect("closed");
                    if position % 16 == 0 && recovered_large(&recovered.device, &options) {
                        let again = Arc::clone(&recovered.device) as Arc<dyn Device>;
                        shrink_on(&again, SMALL * MIB, &options, &mut |_, _| true).expect("again");
                        let mut image = recovered.device.image();
                        image.truncate(SMALL * MIB);
                        let again = recover(image, &options).expect("after it");
                        assert_eq!(again.walk.digest(), shown, "seed {seed}, {position}, again");
                    }
                }
            }
            println!("seed {seed}: {} operations, {images} images", last - first);
            assert_eq!(sizes, (true, true));
            let mut cut = device.image();
            cut.truncate(SMALL * MIB);
            assert_eq!(recover(cut, &options).expect("cut off").walk.digest(), shown);
        }
    });
}

fn recovered_large(device: &Arc<FaultyDevice>, options: &OpenOptions) -> bool {
    let device = Arc::clone(device) as Arc<dyn Device>;
    let options = OpenOptions { read_only: true, ..options.clone() };
    Volume::open_on(device, &options).is_ok_and(|volume| segments(&volume) == LARGE)
}
