//! A volume with something of everything on it, to be damaged; and what may become of a damaged
//! one: it is refused, or opens and shows either what was there or an error, never other bytes.

use crate::deadline::within;
use crate::device::FaultyDevice;
use crate::exec::Lockstep;
use crate::image::Image;
use crate::model::{State, diff};
use crate::op::Op;
use crate::runner::Settings;
use crate::walk::walk;
use crate::workload::Workload;
use shoal::raw::{Ino, OpenOptions, Volume, mkfs_on};
use shoal_device::Device;
use std::ops::Range;
use std::sync::Arc;

/// A volume with something of everything on it.
pub struct Sample {
    /// How it was made and is opened.
    pub settings: Settings,
    /// The device.
    pub image: Image,
    /// Visible state.
    pub state: State,
    /// Places that were ever written.
    pub writes: Vec<Range<u64>>,
    /// Closed properly; otherwise much of it is only in the journal.
    pub clean: bool,
}

impl Sample {
    /// The same each time.
    pub fn new(clean: bool) -> Sample {
        let mut settings = Settings::small(128 << 20);
        // No checkpoint but those asked for.
        settings.open.checkpoint_bytes = 64 << 20;
        // Small, so that reading means reading from the device.
        settings.open.cache_bytes = 4 << 20;
        let device = Arc::new(FaultyDevice::new(settings.capacity));
        mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs).expect("mkfs");
        let volume = open(&device, &settings.open).expect("open");
        let mut run = Lockstep::new(&volume, Ino::ROOT).expect("fresh");
        for profile in ["many", "general", "large"] {
            let mut workload = Workload::with_profile(5, profile).without_crashes();
            for i in 0..500 {
                let op = workload.next(&run);
                run.step(&volume, &op).unwrap_or_else(|e| panic!("{op}: {e}"));
                // Several batches of the journal, and at least one checkpoint before them.
                if i % 40 == 39 {
                    volume.sync().expect("sync");
                }
            }
            if profile == "many" {
                volume.maintenance().checkpoint().expect("checkpoint");
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
        let (image, writes) = (device.image(), device.writes());
        Sample { settings, image, state, writes, clean }
    }

    /// Opens a damaged image, checks it, reads all of it, changes something.
    /// In a thread with a deadline; panics when the damage shows as something else than itself.
    pub fn examine(&self, image: Image, what: &str) -> Verdict {
        let (settings, expected, clean) = (self.settings.clone(), self.state.clone(), self.clean);
        within(60, what, move || examine(image, &settings, &expected, clean))
    }
}

/// Opens what is on a device.
pub fn open(device: &Arc<FaultyDevice>, options: &OpenOptions) -> shoal::raw::Result<Volume> {
    Volume::open_on(Arc::clone(device) as Arc<dyn Device>, options)
}

/// Outcome for a damaged volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Not opened.
    Refused,
    /// Opened, and everything is there: the damage hit what is not used.
    Whole,
    /// Opened, and reading or checking it says that something is wrong.
    Reported,
    /// Opened in an older state: what was torn off was the journal's tail.
    Older,
}

fn examine(image: Image, settings: &Settings, expected: &State, clean: bool) -> Verdict {
    let device = Arc::new(FaultyDevice::from_image(image));
    let volume = match open(&device, &settings.open) {
        Ok(volume) => volume,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "one line: {error}");
            return Verdict::Refused;
        }
    };
    let complaint = match volume.check(&mut |_, _| {}) {
        Ok(report) => report.problems.first().map(|p| p.message.clone()),
        Err(error) => Some(error.to_string()),
    };
    let walked = walk(&volume, Ino::ROOT, true);
    let torn = volume.info().recovery.torn;
    let lacks_data = torn.as_ref().is_some_and(|torn| torn.contains("did not arrive"));
    use_it(&volume);
    match (walked, complaint) {
        (Ok(walked), None) if walked.state == *expected => Verdict::Whole,
        (Ok(walked), None) => {
            let lines = diff(expected, &walked.state, 5);
            assert!(!clean, "unnoticed on a volume that was closed ({torn:?}): {lines:?}");
            Verdict::Older
        }
        // One of several damaged places was in the data of the last records.
        (Ok(_), Some(_)) if lacks_data && !clean => Verdict::Reported,
        (Ok(walked), Some(_)) => {
            no_invention(&walked.state, expected);
            Verdict::Reported
        }
        (Err(_), _) => Verdict::Reported,
    }
}

/// Problems that a repair cannot solve: lost contents, which are recorded once.
pub const OF_CONTENTS: [&str; 4] =
    ["data-checksum", "data-header", "value-checksum", "value-header"];

/// Whatever still shows is as it was: damage must not turn into other data.
pub fn no_invention(found: &State, expected: &State) {
    for (ino, node) in &found.nodes {
        if let Some(was) = expected.nodes.get(ino)
            && was.times.map(|t| t.mtime) == node.times.map(|t| t.mtime)
            && was.size == node.size
        {
            assert_eq!(was.content, node.content, "inode {ino} shows other bytes");
        }
    }
}

/// Changes of every kind on a volume that may be broken: any result will do, panics will not.
pub fn use_it(volume: &Volume) {
    if let Ok(mut run) = Lockstep::new(volume, Ino::ROOT) {
        let mut workload = Workload::with_profile(77, "general").without_crashes();
        for _ in 0..60 {
            let op = workload.next(&run);
            // The model knows nothing of what is there, so comparisons fail: not the point.
            let _ = run.step(volume, &op);
        }
    }
    let _ = volume.sync();
    let _ = volume.maintenance().checkpoint();
}
