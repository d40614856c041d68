//! Break it on purpose: every defect of `shoal_base::planted` is planted in turn, and something
//! here must notice. The same detectors find nothing when nothing is planted.
//!
//! `SHOAL_PLANTED=name` plants one alone and says what each detector says.

use shoal::raw::{Caller, Code, Error, Ino, SetAttr, SetTime, Volume, XattrFlags, mkfs_on};
use shoal_base::planted::{Defect, plant};
use shoal_sim::damage::{Sample, Verdict};
use shoal_sim::device::FaultyDevice;
use shoal_sim::op::{Change, Data, Op, at as time, make};
use shoal_sim::rng::Rng;
use shoal_sim::runner::{Settings, run, run_list, run_profile, run_short_of_memory};
use shoal_sim::silent::run::run as silent_run;
use shoal_sim::silent::{Effect, Silent};
use shoal_sim::text::panic_text;
use shoal_sim::workload::profile_named;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A way to notice: `Err` says what is wrong.
type Detector = fn() -> Result<(), String>;

/// Cheapest first.
const DETECTORS: [(&str, Detector); 7] = [
    ("simulation", simulation),
    ("batches", batches),
    ("node", node),
    ("memory", memory),
    ("full", full),
    ("silent", silent),
    ("damage", damage),
];

/// The detector of defects that others do not notice, to be asked first: the others take seconds to
/// find nothing.
const NOTICED_BY: [(&str, &str); 6] = [
    ("node-checksum", "node"),
    ("inode-checksum", "damage"),
    ("data-checksum", "silent"),
    ("intents-too-late", "silent"),
    ("memory-too-late", "memory"),
    ("batch-time-lost", "batches"),
];

/// Seeded runs against the model, with crashes.
fn simulation() -> Result<(), String> {
    for seed in 1..=60 {
        run(seed, 600).map_err(|failure| format!("seed {seed}: {}", failure.message))?;
    }
    Ok(())
}

/// The same with batches most of all; and one batch that must set a directory's two times to
/// different values, which few of them do.
fn batches() -> Result<(), String> {
    let data = Data { seed: 3, len: 20 };
    let mtime = Some(SetTime::To(time(1_000_000, 5)));
    let changes = vec![
        Change::File { path: b"d/x".to_vec(), mode: 0o644, data, replace: false },
        Change::SetAttr { path: b"d".to_vec(), set: SetAttr { mtime, ..SetAttr::default() } },
    ];
    let list = [make::mkdir("", "d"), make::batch("", changes), Op::Sync, Op::Crash { seed: 1 }];
    run_list(&Settings::small(32 << 20), &list).map_err(|failure| failure.message)?;
    let profile = profile_named("batches").ok_or("no such profile")?;
    for seed in 1..=12 {
        let run = run_profile(seed, &profile, 400);
        run.map_err(|failure| format!("seed {seed}: {}", failure.message))?;
    }
    Ok(())
}

/// The same with allocations refused.
fn memory() -> Result<(), String> {
    for seed in 1..=6 {
        let run = run_short_of_memory(seed, 400);
        run.map_err(|failure| format!("seed {seed}: {}", failure.message))?;
    }
    Ok(())
}

/// A write goes wrong without a word.
fn silent() -> Result<(), String> {
    for seed in 130..=140 {
        for effect in Effect::OF_WRITES {
            let wrong = Silent { effect, nth: 17, seed };
            let run = silent_run(&Settings::of_seed(seed), seed, 120, wrong);
            run.map_err(|e| format!("seed {seed}, {wrong:?}: {e}"))?;
        }
    }
    Ok(())
}

/// A volume filled to the last byte is told so in time, and everything can be removed from it.
fn full() -> Result<(), String> {
    let settings = Settings::small(32 << 20);
    let device = Arc::new(FaultyDevice::new(settings.capacity).forgetful());
    let text = |what: &str, e: Error| format!("{what}: {e}");
    mkfs_on(device.clone(), &settings.mkfs).map_err(|e| text("mkfs", e))?;
    let volume = Volume::open_on(device, &settings.open).map_err(|e| text("open", e))?;
    let who = Caller::root();
    // Of data, then of names alone.
    for size in [3000, 0] {
        let (mut made, name) = (0, |n: u64| format!("{n:0200}"));
        let made = loop {
            let file = volume.namespace().create(&who, Ino::ROOT, name(made).as_bytes(), 0o644);
            match file.and_then(|file| volume.files().write(file.ino, 0, &vec![7; size], false)) {
                Ok(_) => made += 1,
                Err(e) if e.is(Code::NoSpace) => break made,
                Err(e) => return Err(text("filling it", e)),
            }
        };
        for i in 0..=made {
            let removed = volume.namespace().unlink(&who, Ino::ROOT, name(i).as_bytes());
            let none = |e: &Error| i == made && e.is(Code::NotFound);
            match removed {
                Err(e) if !none(&e) => return Err(text("removing from a full volume", e)),
                _ => {}
            }
        }
    }
    volume.close().map_err(|e| text("closing it", e))
}

/// A bit flipped in an attribute that lies in a tree's node: the node is refused, or the value is
/// what was set.
fn node() -> Result<(), String> {
    let settings = Settings::small(32 << 20);
    let device = Arc::new(FaultyDevice::new(settings.capacity));
    let text = |what: &str, e: Error| format!("{what}: {e}");
    mkfs_on(device.clone(), &settings.mkfs).map_err(|e| text("mkfs", e))?;
    let volume = Volume::open_on(device.clone(), &settings.open).map_err(|e| text("open", e))?;
    let (who, value) = (Caller::root(), [0x5a; 900]);
    let file =
        volume.namespace().create(&who, Ino::ROOT, b"f", 0o644).map_err(|e| text("create", e))?.ino;
    let set = volume.attributes().setxattr(&who, file, b"user.v", &value, XattrFlags::default());
    set.and_then(|()| volume.close()).map_err(|e| text("setting it up", e))?;
    let mut image = device.image();
    let places = image.find(&value[..100]);
    for place in places {
        image.flip_bit(place + 50, 3);
    }
    let device = Arc::new(FaultyDevice::from_image(image));
    let volume = Volume::open_on(device, &settings.open).map_err(|e| text("open", e))?;
    match volume.attributes().getxattr(&who, file, b"user.v") {
        Ok(found) if found != value => Err("an attribute that was never set".into()),
        _ => Ok(()),
    }
}

/// A bit flipped in each of many places: whatever shows must be what was there, or an error.
fn damage() -> Result<(), String> {
    for clean in [true, false] {
        let sample = Sample::new(clean);
        let mut rng = Rng::new(31);
        let kinds = ["SND2", "SIB2", "SDX1", "SJB2"].map(|kind| sample.image.find(kind.as_bytes()));
        for round in 0..400 {
            let places = &kinds[round % kinds.len()];
            let newest = places.len() - 1 - rng.below(places.len().min(12) as u64) as usize;
            let place = places[newest];
            let mut damaged = sample.image.clone();
            // Nodes are 16 KiB; of the others, the first bytes are there in any case.
            let span = if round % kinds.len() == 0 { 16_000 } else { 400 };
            damaged.flip_bit(place + 40 + rng.below(span), rng.next() as u8);
            let what = format!("byte {place}, clean {clean}");
            let seen = catch_unwind(AssertUnwindSafe(|| sample.examine(damaged, &what)));
            let verdict = seen.map_err(|panic| format!("{what}: {}", panic_text(&*panic)))?;
            // What lies in the journal may be its end, as may the data of its last records;
            // anything else is not older.
            let end = round % kinds.len() == 3 || (round % kinds.len() == 2 && !clean);
            if verdict == Verdict::Older && !end {
                return Err(format!("{what}: shown as it never was"));
            }
        }
    }
    Ok(())
}

/// The detectors, in the order in which a defect is to be shown to them.
fn detectors_for(defect: Defect) -> [(&'static str, Detector); 7] {
    let first = NOTICED_BY.iter().find(|(name, _)| *name == defect.name());
    let mut detectors = DETECTORS;
    detectors.sort_by_key(|(name, _)| first.is_none_or(|(_, first)| first != name));
    detectors
}

/// Returns the detector that noticed a defect, and how.
fn notice(defect: Option<Defect>, detectors: &[(&'static str, Detector)]) -> Option<String> {
    plant(defect);
    let found = detectors.iter().find_map(|(name, detector)| {
        let said = catch_unwind(detector).unwrap_or_else(|panic| Err(panic_text(&*panic)));
        let first =
            |text: String| text.lines().next().unwrap_or_default().chars().take(160).collect();
        said.err().map(first).map(|text: String| format!("{name}: {text}"))
    });
    plant(None);
    found
}

#[test]
fn every_planted_defect_is_caught() {
    let _alone = super::alone();
    // Panics are expected, thousands of lines of them are not wanted.
    std::panic::set_hook(Box::new(|_| {}));
    if let Ok(wanted) = std::env::var("SHOAL_PLANTED") {
        let defect = Defect::ALL.iter().copied().find(|defect| defect.name() == wanted);
        let defect = defect.expect("SHOAL_PLANTED names no defect");
        for detector in DETECTORS {
            println!("{wanted} ({}): {:?}", defect.what(), notice(Some(defect), &[detector]));
        }
        return;
    }
    assert_eq!(notice(None, &DETECTORS), None, "nothing is planted");
    let mut missed = Vec::new();
    for defect in Defect::ALL.iter().filter(|defect| !defect.needs_threads()) {
        match notice(Some(*defect), &detectors_for(*defect)) {
            Some(found) => println!("{}: caught by {found}", defect.name()),
            None => missed.push(format!("{}: {}", defect.name(), defect.what())),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "of {} defects nobody noticed {missed:#?}", Defect::ALL.len());
}
