//! Damaged volumes: bits flipped, ranges zeroed, the end cut off, everywhere and at chosen places.
//! Each must be refused, or open and show either what was there or an error: never a panic, a hang,
//! or other bytes than were written.

use shoal::{Ino, OpenOptions, Volume, mkfs_on};
use shoal_device::Device;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::device::FaultyDevice;
use shoal_sim::exec::Lockstep;
use shoal_sim::image::Image;
use shoal_sim::model::{State, diff};
use shoal_sim::op::Op;
use shoal_sim::rng::Rng;
use shoal_sim::runner::Settings;
use shoal_sim::walk::walk;
use shoal_sim::workload::Workload;
use std::sync::Arc;

/// A volume with something of everything on it, and what it shows. `clean`: closed properly;
/// otherwise much of it is only in the journal.
fn sample(clean: bool) -> (Settings, Image, State) {
    let mut settings = Settings::small(32 << 20);
    settings.open.checkpoint_bytes = 1 << 20;
    let device = Arc::new(FaultyDevice::new(settings.capacity));
    mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs).expect("mkfs");
    let volume = open(&device, &settings.open).expect("open");
    let mut run = Lockstep::new(&volume, Ino::ROOT).expect("fresh");
    for profile in ["many", "general", "large"] {
        let mut workload = Workload::with_profile(5, profile).without_crashes();
        for _ in 0..250 {
            let op = workload.next(&run);
            run.step(&volume, &op).unwrap_or_else(|e| panic!("{op}: {e}"));
        }
    }
    for slot in 0..run.slots.len() {
        run.step(&volume, &Op::Close { slot }).expect("close");
    }
    let state = walk(&volume, Ino::ROOT, true).expect("walk").state;
    if clean {
        volume.close().expect("close");
    } else {
        volume.sync().expect("sync");
    }
    (settings, device.image(), state)
}

fn open(device: &Arc<FaultyDevice>, options: &OpenOptions) -> shoal::Result<Volume> {
    Volume::open_on(Arc::clone(device) as Arc<dyn Device>, options)
}

/// What became of a damaged volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Not opened.
    Refused,
    /// Opened, and everything is there (the damage hit what is not used).
    Whole,
    /// Opened, and reading or checking it gave an error.
    Reported,
    /// Opened, in an older state; right only for a damaged journal's tail.
    Shorter,
}

/// Opens a damaged image, checks it, reads all of it, changes something.
fn examine(image: Image, settings: &Settings, expected: &State, what: &str) -> Verdict {
    let (settings, expected) = (settings.clone(), expected.clone());
    within(60, what, move || {
        let device = Arc::new(FaultyDevice::from_image(image));
        let volume = match open(&device, &settings.open) {
            Ok(volume) => volume,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "one line: {error}");
                return Verdict::Refused;
            }
        };
        let checked = volume.check(&mut |_, _| {});
        let complaint = match &checked {
            Ok(report) => report.problems.first().map(|p| p.message.clone()),
            Err(error) => Some(error.to_string()),
        };
        let walked = walk(&volume, Ino::ROOT, true);
        use_it(&volume);
        match (walked, complaint) {
            (Ok(walked), None) if walked.state == expected => Verdict::Whole,
            (Ok(walked), None) => {
                let newer = walked.state.nodes.len() > expected.nodes.len();
                assert!(!newer, "more than was there");
                Verdict::Shorter
            }
            // Whatever still shows is as it was: damage must not turn into other data.
            (Ok(walked), Some(_)) => {
                no_invention(&walked.state, &expected);
                Verdict::Reported
            }
            (Err(_), _) => Verdict::Reported,
        }
    })
}

fn no_invention(found: &State, expected: &State) {
    for (ino, node) in &found.nodes {
        if let Some(was) = expected.nodes.get(ino)
            && was.ino == node.ino
            && was.times.map(|t| t.mtime) == node.times.map(|t| t.mtime)
            && was.size == node.size
        {
            assert_eq!(was.content, node.content, "inode {ino} shows other bytes");
        }
    }
}

/// Changes of every kind on a volume that may be broken: any result will do, panics will not.
fn use_it(volume: &Volume) {
    if let Ok(mut run) = Lockstep::new(volume, Ino::ROOT) {
        let mut workload = Workload::with_profile(77, "general").without_crashes();
        for _ in 0..60 {
            let op = workload.next(&run);
            // The model knows nothing of what is there, so most comparisons fail: not the point.
            let _ = run.step(volume, &op);
        }
    }
    let _ = volume.sync();
    let _ = volume.checkpoint();
}

fn count(factor: u64) -> u64 {
    from_environment("SHOAL_SIM_SEEDS", 24) * factor
}

#[test]
fn an_undamaged_volume_is_whole() {
    for clean in [true, false] {
        let (settings, image, state) = sample(clean);
        let verdict = examine(image, &settings, &state, "undamaged");
        assert_eq!(verdict, Verdict::Whole, "clean: {clean}");
    }
}

#[test]
fn flipped_bits_anywhere() {
    for clean in [true, false] {
        let (settings, image, state) = sample(clean);
        let written = image.written();
        let mut rng = Rng::new(11);
        for round in 0..count(4) {
            let range = rng.pick(&written).clone();
            let mut damaged = image.clone();
            for _ in 0..rng.range(1, 3) {
                damaged.flip_bit(rng.range(range.start, range.end - 1), rng.next() as u8);
            }
            examine(damaged, &settings, &state, &format!("round {round}, clean {clean}"));
        }
    }
}

#[test]
fn every_part_of_the_first_segment() {
    let (settings, image, state) = sample(true);
    let mut rng = Rng::new(12);
    let step = (64 << 10) / (count(4).max(1) + 1);
    let mut at = 0;
    while at < 64 << 10 {
        let mut damaged = image.clone();
        damaged.flip_bit(at + rng.below(step.max(1)), rng.next() as u8);
        examine(damaged, &settings, &state, &format!("byte {at}"));
        at += step.max(1);
    }
}

#[test]
fn pages_zeroed_or_filled_with_old_bytes() {
    let (settings, image, state) = sample(false);
    let written = image.written();
    let mut rng = Rng::new(13);
    for round in 0..count(3) {
        let range = rng.pick(&written).clone();
        let at = rng.range(range.start, range.end - 1) / 4096 * 4096;
        let mut damaged = image.clone();
        if rng.chance(50) {
            damaged.zero(at, 4096);
        } else {
            // A misplaced write: good bytes in the wrong place.
            let from = rng.pick(&written).start;
            let mut bytes = vec![0; 4096];
            image.read(&mut bytes, from);
            damaged.write(&bytes, at);
        }
        examine(damaged, &settings, &state, &format!("round {round}"));
    }
}

#[test]
fn devices_cut_short() {
    let (settings, image, state) = sample(true);
    for keep in [0, 1, 511, 4096, 65_536, 1 << 20, 5 << 20, (32 << 20) - 1] {
        let mut damaged = image.clone();
        damaged.truncate(keep);
        let verdict = examine(damaged, &settings, &state, &format!("{keep} bytes left"));
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
        let verdict = examine(image, &settings, &State::default(), "not a volume");
        assert_eq!(verdict, Verdict::Refused);
    }
}

/// The same damage with the rest untouched must be found by the check, if it matters at all: flips
/// in live structures that nothing notices would be silent corruption.
#[test]
fn no_flip_goes_unnoticed_and_changes_something() {
    let (settings, image, state) = sample(true);
    let written = image.written();
    let mut rng = Rng::new(15);
    for round in 0..count(3) {
        let range = rng.pick(&written).clone();
        let mut damaged = image.clone();
        damaged.flip_bit(rng.range(range.start, range.end - 1), rng.next() as u8);
        let device = Arc::new(FaultyDevice::from_image(damaged));
        let Ok(volume) = open(&device, &settings.open) else { continue };
        let Ok(report) = volume.check(&mut |_, _| {}) else { continue };
        if report.problems.is_empty()
            && let Ok(walked) = walk(&volume, Ino::ROOT, true)
        {
            let lines = diff(&state, &walked.state, 5);
            assert!(lines.is_empty(), "round {round}: unnoticed: {lines:?}");
        }
    }
}
