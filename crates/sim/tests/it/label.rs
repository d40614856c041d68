//! The label of a volume: a crash at any device operation while it changes leaves the old one or
//! the new one, and the new one when the call has returned.

use shoal::raw::{Caller, Device, Ino, Label, MkfsOptions, OpenOptions, Volume, mkfs_on};
use shoal_sim::device::FaultyDevice;
use std::sync::Arc;

const SIZE: u64 = 16 << 20;
/// Images of a crash at each place.
const SEEDS: u64 = 4;

fn options() -> OpenOptions {
    OpenOptions {
        cache_bytes: 16 << 20,
        commit_interval_ms: 1 << 40,
        checkpoint_bytes: 1 << 40,
        background: false,
        ..OpenOptions::default()
    }
}

fn label(text: &str) -> Label {
    Label::new(text).expect("a label")
}

#[test]
fn a_crash_leaves_the_old_label_or_the_new_one() {
    let device = Arc::new(FaultyDevice::new(SIZE));
    let wish = MkfsOptions {
        size: SIZE,
        segment_size: 1 << 20,
        id: Some([9; 16]),
        label: label("first"),
        ..MkfsOptions::default()
    };
    mkfs_on(device.clone() as Arc<dyn Device>, &wish).unwrap();
    let volume = Volume::open_on(device.clone() as Arc<dyn Device>, &options()).unwrap();
    assert_eq!(volume.info().label, "first");
    volume.namespace().create(&Caller::root(), Ino::ROOT, b"file", 0o644).unwrap();
    volume.sync().unwrap();
    let mut spans = Vec::new();
    for (old, new) in [("first", "second"), ("second", ""), ("", "a third one")] {
        let begin = device.position();
        volume.maintenance().set_label(label(new)).unwrap();
        spans.push((begin, device.position(), old, new));
        assert_eq!(volume.info().label, new);
    }
    drop(volume);
    let (mut olds, mut news) = (0, 0);
    for seed in 0..SEEDS {
        let mut crashes = device.crashes(seed);
        for (begin, end, old, new) in &spans {
            for at in *begin..=*end {
                let image = FaultyDevice::from_image(crashes.image_at(at, seed));
                let volume = Volume::open_on(Arc::new(image), &options()).unwrap();
                let found = volume.info().label;
                let is_old = found == *old && at < *end;
                assert!(is_old || found == *new, "seed {seed}, operation {at}: {found:?}");
                (olds, news) = (olds + u32::from(is_old), news + u32::from(!is_old));
                // A recovery writes superblocks, and keeps it.
                volume.namespace().lookup(&Caller::root(), Ino::ROOT, b"file").unwrap();
                let report = volume.check(&mut |_, _| {}).unwrap();
                assert!(report.problems.is_empty(), "{:?}", report.problems);
            }
        }
    }
    assert!(olds > 10 && news > 10, "{olds}, {news}: the crashes are not where they should be");
}
