//! The tree that every sequence starts from: two directories with a few files, in every shape that
//! the engine stores differently, so that few operations fail and each shape is changed by some.
//!
//! | path | what |
//! | --- | --- |
//! | `/A/foo` | 9000 bytes, one extent; a small attribute |
//! | `/A/bar` | 30 bytes in the inode; a small, a large and a remote attribute |
//! | `/A/dir` | empty directory |
//! | `/B/bar` | two extents with a hole between; held open as `open#0` |
//! | `/B/dir` | empty directory |
//! | `/B/ln` | symlink |
//! | `/B/foo` | does not exist: the name to make |

use super::actions::{Make, SLOT_HELD, dir, file};
use crate::device::FaultyDevice;
use crate::exec::{Lockstep, Step};
use crate::image::Image;
use crate::op::Op;
use crate::runner::Settings;
use shoal::raw::{Ino, Volume, mkfs_on};
use shoal_device::Device;
use std::sync::Arc;

/// The start of all sequences.
pub struct Start {
    /// How volumes are opened, and what the device does.
    pub settings: Settings,
    /// The device after a clean close.
    pub image: Image,
    /// The model in the same state, nothing open.
    pub run: Lockstep,
}

/// The smallest volume that there is: an image is then a few pages.
const CAPACITY: u64 = 16 << 20;

/// Ways to open and make the volume, in which the same operations take other paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// As by default.
    Plain,
    /// Every change of an attribute or parent pointer by an intent, and the journal written after
    /// each of its transactions: crashes come in the middle of operations.
    Intents,
    /// Inodes of 256 bytes: attributes and contents leave the inode early.
    Small,
    /// A checkpoint as soon as there is anything to write one for.
    Eager,
}

impl Mode {
    /// Each with its name.
    pub const EACH: [(Mode, &str); 4] = [
        (Mode::Plain, "plain"),
        (Mode::Intents, "intents"),
        (Mode::Small, "small"),
        (Mode::Eager, "eager"),
    ];

    /// As in the command line.
    pub fn name(self) -> &'static str {
        Mode::EACH.iter().find(|(mode, _)| *mode == self).map_or("?", |(_, name)| name)
    }

    /// Settings for short sequences.
    pub fn settings(self) -> Settings {
        let mut settings = Settings::small(CAPACITY);
        settings.open.cache_bytes = 4 << 20;
        settings.open.lab.attr_intents = self == Mode::Intents;
        settings.open.lab.attr_intents_flushed = self == Mode::Intents;
        if self == Mode::Small {
            settings.mkfs.inode_size = 256;
        }
        if self == Mode::Eager {
            settings.open.checkpoint_bytes = 1;
        }
        settings
    }
}

/// The operations that make the tree.
fn making() -> Vec<Op> {
    let mut make = Make::default();
    vec![
        make.mkdir("", "A"),
        make.mkdir("", "B"),
        make.create("A", "foo"),
        make.write("A/foo", 0, 9000),
        make.set("A/foo", "user.small", 16),
        make.create("A", "bar"),
        make.write("A/bar", 0, 30),
        make.set("A/bar", "user.small", 16),
        make.set("A/bar", "user.tree", 600),
        make.set("A/bar", "user.remote", 3000),
        make.mkdir("A", "dir"),
        make.create("B", "bar"),
        make.write("B/bar", 0, 5000),
        make.write("B/bar", 131_072, 5000),
        make.mkdir("B", "dir"),
        make.symlink("B", "ln", 8),
    ]
}

/// Returns the first operation of every sequence: it holds a file open.
pub fn opening() -> Op {
    Op::Open { file: file("B/bar"), slot: SLOT_HELD }
}

/// Returns the operations after every recovery.
pub fn going_on() -> Vec<Op> {
    let mut make = Make::default();
    vec![
        make.mkdir("", "after"),
        make.create("after", "file"),
        make.write("after/file", 0, 5000),
        make.set("after/file", "user.after", 600),
    ]
}

impl Start {
    /// Makes the volume and the tree.
    pub fn new(settings: Settings) -> Result<Start, String> {
        let device = Arc::new(FaultyDevice::new(settings.capacity));
        mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs)
            .map_err(|e| format!("mkfs: {e}"))?;
        let volume = open(&device, &settings)?;
        let mut run = Lockstep::new(&volume, Ino::ROOT)?;
        for op in making() {
            match run.step_with_answer(&volume, &op)? {
                (Step::Done, Some(_)) => {}
                other => return Err(format!("{op}: {other:?}")),
            }
        }
        volume.close().map_err(|e| format!("close: {e}"))?;
        let image = device.image();
        assert!(run.resolve(&dir("B")).is_some());
        Ok(Start { settings, image, run })
    }

    /// A device with the tree on it.
    pub fn device(&self) -> Arc<FaultyDevice> {
        let device = FaultyDevice::from_image(self.image.clone());
        Arc::new(if self.settings.lying { device.lying() } else { device })
    }
}

/// Opens the volume of a device.
pub fn open(device: &Arc<FaultyDevice>, settings: &Settings) -> Result<Volume, String> {
    Volume::open_on(Arc::clone(device) as Arc<dyn Device>, &settings.open)
        .map_err(|e| format!("open: {e}"))
}
