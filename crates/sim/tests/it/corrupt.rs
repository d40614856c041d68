//! Damaged volumes: bits flipped, ranges zeroed or overwritten, the end cut off, everywhere and in
//! every kind of structure. Each must be refused, or open and show either what was there or an
//! error: never a panic, a hang, or other bytes than were written.

use shoal::raw::{Ino, OpenOptions, Volume, mkfs_on};
use shoal_device::Device;
use shoal_sim::damage::{OF_CONTENTS, Sample, Verdict, no_invention, open, use_it};
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::device::FaultyDevice;
use shoal_sim::image::Image;
use shoal_sim::model::State;
use shoal_sim::rng::Rng;
use shoal_sim::runner::Settings;
use shoal_sim::walk::walk;
use std::collections::BTreeMap;
use std::sync::Arc;

fn count(factor: u64) -> u64 {
    from_environment("SHOAL_SIM_SEEDS", 24) * factor
}

#[test]
fn an_undamaged_volume_is_whole() {
    for clean in [true, false] {
        let sample = Sample::new(clean);
        let verdict = sample.examine(sample.image.clone(), "undamaged");
        assert_eq!(verdict, Verdict::Whole, "clean: {clean}");
    }
}

#[test]
fn flipped_bits_anywhere() {
    for clean in [true, false] {
        let sample = Sample::new(clean);
        let mut rng = Rng::new(11);
        let mut verdicts = BTreeMap::new();
        for round in 0..count(8) {
            let range = rng.pick(&sample.writes).clone();
            let mut damaged = sample.image.clone();
            for _ in 0..rng.range(1, 3) {
                damaged.flip_bit(rng.range(range.start, range.end - 1), rng.next() as u8);
            }
            let verdict = sample.examine(damaged, &format!("round {round}, clean {clean}"));
            *verdicts.entry(verdict).or_insert(0) += 1;
        }
        println!("flipped bits, clean {clean}: {verdicts:?}");
        assert!(verdicts.contains_key(&Verdict::Reported), "{verdicts:?}");
    }
}

/// Each kind of structure, found by its magic: some copies are stale, but one in use is hit too.
#[test]
fn every_kind_of_structure() {
    let sample = Sample::new(false);
    let mut rng = Rng::new(16);
    let kinds = ["SHOALFS1", "SCP3", "SRP2", "SND2", "SIB2", "SDX1", "SJB2"];
    for kind in kinds {
        let places = sample.image.find(kind.as_bytes());
        assert!(!places.is_empty(), "nothing is marked {kind}");
        let mut verdicts = BTreeMap::new();
        for round in 0..count(2) {
            // The newest are more often in use, so take those as often as all others.
            let place = match round % 2 {
                0 => places[places.len() - 1 - rng.below(places.len().min(4) as u64) as usize],
                _ => *rng.pick(&places),
            };
            let mut damaged = sample.image.clone();
            damaged.flip_bit(place + rng.below(200), rng.next() as u8);
            let verdict = sample.examine(damaged, &format!("{kind}, round {round}"));
            *verdicts.entry(verdict).or_insert(0) += 1;
        }
        println!("{kind} at {} places: {verdicts:?}", places.len());
    }
}

/// A damaged batch that others follow is not the journal's end: opening as if it were would lose
/// what was acknowledged after it, silently.
#[test]
fn no_batch_but_the_last_may_be_damaged_unnoticed() {
    let sample = Sample::new(false);
    let batches = sample.image.find(b"SJB2");
    assert!(batches.len() > 10, "{} batches", batches.len());
    let mut rng = Rng::new(17);
    let last = batches.iter().max().expect("some");
    let mut verdicts = BTreeMap::new();
    for round in 0..count(4) {
        let place = *rng.pick(&batches);
        let mut damaged = sample.image.clone();
        damaged.flip_bit(place + rng.below(100), rng.next() as u8);
        let verdict = sample.examine(damaged, &format!("batch at {place}, round {round}"));
        assert!(verdict != Verdict::Older || place == *last, "batch at {place} of {batches:?}");
        *verdicts.entry(verdict).or_insert(0) += 1;
    }
    println!("{} batches: {verdicts:?}", batches.len());
}

/// One superblock of the two must do, and lose nothing.
#[test]
fn one_superblock_of_two_must_do() {
    for clean in [true, false] {
        let sample = Sample::new(clean);
        let places = sample.image.find(b"SHOALFS1");
        let mut rng = Rng::new(18);
        for round in 0..count(2) {
            let mut damaged = sample.image.clone();
            let place = places[round as usize % places.len()];
            damaged.flip_bit(place + rng.below(100), rng.next() as u8);
            let verdict = sample.examine(damaged, &format!("clean {clean}, byte {place}"));
            assert_ne!(verdict, Verdict::Older, "clean {clean}, superblock at {place}");
        }
    }
}

/// The same before the first checkpoint since opening: the older copy says "closed properly", which
/// was true of it, but more was acknowledged since.
#[test]
fn the_older_superblock_does_not_hide_the_journal() {
    let settings = Settings::small(32 << 20);
    let device = Arc::new(FaultyDevice::new(settings.capacity));
    mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs).expect("mkfs");
    let volume = open(&device, &settings.open).expect("open");
    volume
        .namespace()
        .create(&shoal::raw::Caller::root(), Ino::ROOT, b"precious", 0o644)
        .expect("create");
    volume.sync().expect("sync");
    let state = walk(&volume, Ino::ROOT, true).expect("walk").state;
    let (image, writes) = (device.image(), device.writes());
    drop(volume);
    let sample = Sample { settings, image, state, writes, clean: false };
    for place in sample.image.find(b"SHOALFS1") {
        let mut damaged = sample.image.clone();
        damaged.flip_bit(place + 20, 3);
        let verdict = sample.examine(damaged, &format!("superblock at {place}"));
        assert_ne!(verdict, Verdict::Older, "superblock at {place}: what was synced is gone");
    }
}

/// Both superblocks, bit by bit as far as the count goes.
#[test]
fn both_superblocks() {
    let sample = Sample::new(true);
    let places = sample.image.find(b"SHOALFS1");
    assert!(places.len() >= 2, "two copies: {places:?}");
    let mut rng = Rng::new(12);
    for round in 0..count(2) {
        let mut damaged = sample.image.clone();
        for place in &places {
            damaged.flip_bit(place + rng.below(64), rng.next() as u8);
        }
        sample.examine(damaged, &format!("both superblocks, round {round}"));
    }
    let mut damaged = sample.image.clone();
    for place in &places {
        damaged.zero(*place, 4096);
    }
    assert_eq!(sample.examine(damaged, "no superblock"), Verdict::Refused);
}

#[test]
fn pages_zeroed_or_filled_with_old_bytes() {
    let sample = Sample::new(false);
    let mut rng = Rng::new(13);
    for round in 0..count(4) {
        let range = rng.pick(&sample.writes).clone();
        let at = rng.range(range.start, range.end - 1) / 4096 * 4096;
        let mut damaged = sample.image.clone();
        if rng.chance(50) {
            damaged.zero(at, 4096);
        } else {
            // A misplaced write: good bytes in the wrong place.
            let from = rng.pick(&sample.writes).start / 4096 * 4096;
            let mut bytes = vec![0; 4096];
            sample.image.read(&mut bytes, from);
            damaged.write(&bytes, at);
        }
        sample.examine(damaged, &format!("round {round}"));
    }
}

#[test]
fn devices_cut_short() {
    let sample = Sample::new(true);
    for keep in [0, 1, 511, 4096, 65_536, 1 << 20, 5 << 20, (128 << 20) - 1] {
        let mut damaged = sample.image.clone();
        damaged.truncate(keep);
        let verdict = sample.examine(damaged, &format!("{keep} bytes left"));
        assert_eq!(verdict, Verdict::Refused, "{keep} bytes left");
    }
}

#[test]
fn what_is_not_a_volume_is_refused() {
    let settings = Settings::small(32 << 20);
    let mut rng = Rng::new(14);
    for round in 0..8 {
        let mut image = Image::new(settings.capacity);
        for at in (0..1 << 20).step_by(8) {
            let word = if round % 2 == 0 { rng.next() } else { 0 };
            image.write(&word.to_le_bytes(), at);
        }
        let device = Arc::new(FaultyDevice::from_image(image));
        assert!(open(&device, &settings.open).is_err());
        assert_eq!(device.counts().writes, 0, "what is not ours is not written to");
    }
}

/// A repair of whatever is damaged ends, invents nothing, and leaves nothing for a second one.
#[test]
fn repaired_or_refused() {
    for clean in [true, false] {
        let sample = Sample::new(clean);
        let mut rng = Rng::new(19);
        let (mut repaired, mut refused) = (0, 0);
        for round in 0..count(4) {
            let mut damaged = sample.image.clone();
            for _ in 0..rng.range(1, 12) {
                let range = rng.pick(&sample.writes).clone();
                let at = rng.range(range.start, range.end - 1);
                match rng.below(4) {
                    0 => damaged.zero(at / 4096 * 4096, 4096),
                    _ => damaged.flip_bit(at, rng.next() as u8),
                }
            }
            let (settings, state) = (sample.settings.clone(), sample.state.clone());
            let done = within(60, &format!("round {round}, clean {clean}"), move || {
                let device = Arc::new(FaultyDevice::from_image(damaged));
                repair(&device, &settings.open, &state)
            });
            *if done { &mut repaired } else { &mut refused } += 1;
        }
        println!("clean {clean}: {repaired} repaired, {refused} refused");
        assert!(repaired > refused);
    }
}

fn repair(device: &Arc<FaultyDevice>, options: &OpenOptions, expected: &State) -> bool {
    let again = || {
        let device = Arc::clone(device) as Arc<dyn Device>;
        Volume::repair_on(device, options, &mut |_, _, _| {}, &mut |_| true)
    };
    let Ok(first) = again() else { return false };
    if !first.found.is_empty() && !first.written {
        // Contents alone are damaged, or too much is.
        return first.left == first.found;
    }
    let left = |p: &&shoal::raw::Problem| !OF_CONTENTS.contains(&p.rule);
    let rest: Vec<_> = first.left.iter().filter(left).collect();
    assert!(rest.is_empty(), "left: {rest:?}\nof {:#?}\nafter {:#?}", first.found, first.actions);
    let second = again().expect("a repaired volume can be read");
    let rest: Vec<_> = second.found.iter().filter(left).collect();
    assert!(rest.is_empty(), "second: {rest:?}\nafter {:#?}", first.actions);
    let volume = open(device, options).expect("a repaired volume opens");
    // What the journal held last is lost, and said to be: an older state.
    let older = first.found.iter().any(|p| ["lost-journal", "lost-checkpoint"].contains(&p.rule));
    if let Ok(mut walked) = walk(&volume, Ino::ROOT, true)
        && !older
    {
        // Files with holes where it is not known any more where their bytes are: said by name.
        let said = |ino: &Ino| {
            let who = [format!("inode {ino}:"), format!("inode {ino} ")];
            let mut said = first.actions.iter().filter(|a| a.pass == "extents");
            said.any(|a| who.iter().any(|who| a.message.starts_with(who)))
        };
        walked.state.nodes.retain(|ino, _| !said(ino));
        no_invention(&walked.state, expected);
    }
    use_it(&volume);
    true
}
