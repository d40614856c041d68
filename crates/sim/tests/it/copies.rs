//! A volume that is copied while it changes from copy to copy: see `runner/copies.rs`.
//! `SHOAL_COPIES_SEEDS=FROM-TO` runs other seeds.

use shoal::raw::{
    Caller, Copied, CopyKind, Error, Ino, OpenOptions, Volume, copy_volume_on, mkfs_on,
};
use shoal_device::Device;
use shoal_sim::device::{EIO, Fault, FaultyDevice, Kind};
use shoal_sim::recovery::recover;
use shoal_sim::runner::Settings;
use shoal_sim::runner::copies::{Copies, run_with_copies};
use shoal_sim::seeds::of_test;
use std::sync::Arc;

#[test]
fn a_destination_is_the_volume_of_one_copy_or_none_and_the_next_copy_completes_it() {
    let mut all = Copies::default();
    for seed in of_test("SHOAL_COPIES_SEEDS", 1..=20) {
        all += run_with_copies(seed, 300).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    println!("{all:?}");
    let each = [all.whole, all.increments, all.continued, all.failed, all.volumes];
    assert!(each.iter().all(|count| *count > 0), "{all:?}");
    // Only the moment between the mark and the superblock, at the begin and at the end.
    assert!(all.forced * 3 < all.images, "{all:?}");
}

fn sample(options: &OpenOptions, device: &Arc<dyn Device>, names: std::ops::Range<u32>) {
    let (volume, who) =
        (Volume::open_on(Arc::clone(device), options).expect("opens"), Caller::root());
    for n in names {
        let name = format!("file {n}");
        let file = volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o600);
        let file = file.expect("a file").ino;
        volume.files().write(file, 0, &vec![n as u8; 9000], false).expect("written");
    }
    volume.close().expect("closed");
}

/// A source of 200 files on a device, and a device for its copy.
fn two_devices() -> (OpenOptions, Arc<FaultyDevice>, Arc<FaultyDevice>) {
    let Settings { mkfs, open: options, capacity, .. } = Settings::small(32 << 20);
    let source = Arc::new(FaultyDevice::new(capacity));
    mkfs_on(dynamic(&source), &mkfs).expect("a fresh volume");
    sample(&options, &dynamic(&source), 0..200);
    (options, source, Arc::new(FaultyDevice::new(capacity).unchecked()))
}

fn dynamic(device: &Arc<FaultyDevice>) -> Arc<dyn Device> {
    Arc::clone(device) as Arc<dyn Device>
}

fn copied(
    source: &Arc<FaultyDevice>,
    to: &Arc<FaultyDevice>,
    options: &OpenOptions,
) -> Result<Copied, Error> {
    copy_volume_on(&dynamic(source), &dynamic(to), false, options, &mut |_, _| {})
}

#[test]
fn an_unfinished_copy_says_so_and_is_repaired_by_force_alone() {
    let (options, source, to) = two_devices();
    to.inject(Fault { on: Kind::Write, nth: 5, errno: EIO, sticky: true });
    copied(&source, &to, &options).expect_err("it fails");
    to.heal();
    let refused = Volume::open_on(dynamic(&to), &options).map(|_| ()).expect_err("no volume");
    assert!(refused.to_string().contains("unfinished copy"), "{refused}");
    let inspect =
        |options: &OpenOptions| Volume::inspect_on(&dynamic(&to), options, &mut |_, _, _| {});
    let refused = inspect(&options).map(|_| ()).expect_err("no repair");
    assert!(refused.to_string().contains("shoal copy"), "{refused}");
    // A checkpoint with its backup superblock is among what was copied.
    inspect(&OpenOptions { force: true, ..options.clone() }).expect("what is there is looked at");
    assert_eq!(copied(&source, &to, &options).expect("on").kind, CopyKind::Continued);
}

#[test]
fn a_source_with_damage_in_its_metadata_does_not_cost_the_copy_that_there_is() {
    let (options, source, to) = two_devices();
    copied(&source, &to, &options).expect("a copy");
    let shown = |image| recover(image, &options).map(|found| found.walk.digest());
    let before = shown(to.image()).expect("a volume");
    let first = source.writes().len();
    sample(&options, &dynamic(&source), 200..400);
    // The stamp, so that nothing is written to the source later.
    let spare = Arc::new(FaultyDevice::new(32 << 20).unchecked());
    copied(&source, &spare, &options).expect("another copy");
    let (mut damaged, mut unseen) = (0, 0);
    let places = source.writes().split_off(first).into_iter();
    for at in places.flat_map(|range| range.step_by(8192)) {
        let mut image = source.image();
        image.flip_bit(at + 64, 3);
        let source = Arc::new(FaultyDevice::from_image(image));
        let target = Arc::new(FaultyDevice::from_image(to.image()).unchecked());
        match copied(&source, &target, &options) {
            Ok(_) => unseen += 1,
            Err(error) => {
                damaged += 1;
                assert_eq!(shown(target.image()), Ok(before), "{error}");
            }
        }
    }
    // Contents, the journal, and what later writes have replaced are not read by an increment.
    println!("{damaged} kinds of damage seen, {unseen} not");
    assert!(damaged > 3 && unseen > 0);
}
