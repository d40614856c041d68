//! Runs that check the change feed: copies of a tree that are kept up to date by the feed alone,
//! over random operations, crashes, reopening, cleaning and checkpoints, are compared with the
//! whole tree at random moments.
//!
//! There are two kinds of copies. The exact one knows inodes by number and directories by theirs.
//! Where removed names may be unknown it lists the directories that the feed tells, as a user must.
//! The plain one knows paths alone, as a tool that copies files does: it deletes what was removed
//! or renamed, then copies what is told, and what was renamed with everything below. Both must be
//! the tree. And only what the operations have touched may be told.

mod copy;

pub use copy::FeedReport;

use crate::device::FaultyDevice;
use crate::exec::{Generator, Lockstep};
use crate::image::Image;
use crate::model::NodeState;
use crate::op::Op;
use crate::rng::Rng;
use crate::runner::{Settings, make_durable};
use crate::text::panic_text;
use crate::walk::walk;
use crate::workload::Workload;
use copy::Copy;
use shoal::raw::{Caller, FileKind, Ino, OpenOptions, Volume, mkfs_on};
use shoal_device::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs `count` operations of a seed.
pub fn run(seed: u64, count: usize) -> Result<FeedReport, String> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run::new(seed)?;
        for _ in 0..count {
            run.step()?;
        }
        run.compare_all()?;
        Ok(run.report)
    }));
    ran.unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic))))
}

struct Run {
    rng: Rng,
    device: Arc<FaultyDevice>,
    volume: Option<Volume>,
    options: OpenOptions,
    workload: Workload,
    lockstep: Lockstep,
    copies: Vec<Copy>,
    report: FeedReport,
}

fn open(device: &Arc<FaultyDevice>, options: &OpenOptions) -> Result<Volume, String> {
    let device = Arc::clone(device) as Arc<dyn Device>;
    Volume::open_on(device, options).map_err(|e| format!("open: {e}"))
}

impl Run {
    fn new(seed: u64) -> Result<Run, String> {
        let mut rng = Rng::new(seed).fork(21);
        let settings = Settings { full: false, ..Settings::of_seed(seed) };
        let device = Arc::new(FaultyDevice::new(settings.capacity).forgetful());
        mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs)
            .map_err(|e| format!("mkfs: {e}"))?;
        let options = settings.open;
        let volume = open(&device, &options)?;
        if rng.chance(70) {
            keep(&volume, true)?;
        }
        let lockstep = Lockstep::new(&volume, Ino::ROOT)?;
        let workload = Workload::new(seed).with_batches(seed).without_crashes();
        let copies = vec![Copy::of(Ino::ROOT), Copy::of(Ino::ROOT)];
        let report = FeedReport::default();
        let volume = Some(volume);
        Ok(Run { rng, device, volume, options, workload, lockstep, copies, report })
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("open between steps")
    }

    fn step(&mut self) -> Result<(), String> {
        self.report.steps += 1;
        match self.rng.below(200) {
            0..=1 => return self.crash(),
            2..=3 => return self.reopen(),
            4 => {
                let on = self.rng.chance(70);
                keep(self.volume(), on)?;
            }
            5 => {
                self.volume().maintenance().checkpoint().map_err(|e| format!("checkpoint: {e}"))?;
            }
            6..=18 => {
                let at = self.rng.below(self.copies.len() as u64) as usize;
                self.bring_up(at)?;
            }
            19..=20 => self.choose_place(),
            _ => {}
        }
        let op = self.workload.draw(&self.lockstep).expect("endless");
        if matches!(op, Op::Crash { .. } | Op::Reopen { .. } | Op::NoMemory(_)) {
            return Ok(());
        }
        let volume = self.volume.as_ref().expect("open");
        self.lockstep.step(volume, &op)?;
        for copy in &mut self.copies {
            copy.touched.extend(self.lockstep.model.touched().map(|(ino, _)| ino));
        }
        make_durable(volume, &self.lockstep, &op).map_err(|e| format!("{op}: {e}"))?;
        Ok(())
    }

    /// Replaces the second copy by one of another directory.
    fn choose_place(&mut self) {
        let state = self.lockstep.model.state();
        let is_dir =
            |node: &&NodeState| FileKind::from_mode(node.mode) == Some(FileKind::Directory);
        let dirs: Vec<Ino> = state.nodes.values().filter(is_dir).map(|node| node.ino).collect();
        self.copies[1] = Copy::of(*self.rng.pick(&dirs));
    }

    fn bring_up(&mut self, at: usize) -> Result<(), String> {
        let volume = self.volume.as_ref().expect("open");
        let copy = &mut self.copies[at];
        // Its number may be another's now.
        let attr = volume.attributes().getattr(copy.place).ok().filter(|attr| attr.nlink > 0);
        let same = attr.is_some_and(|attr| {
            let known = copy.nodes.get(&copy.place).map(|node| node.generation);
            attr.kind == FileKind::Directory && known.is_none_or(|known| known == attr.generation)
        });
        if !same {
            *copy = Copy::of(Ino::ROOT);
        }
        match copy.bring_up(volume, &mut self.rng, &mut self.report) {
            Ok(()) => Ok(()),
            // Its subvolume is gone, and another has its number.
            Err(e) if e.contains("EXDEV") && copy.place.root() != Ino::ROOT.root() => {
                *copy = Copy::of(Ino::ROOT);
                Ok(())
            }
            Err(e) => Err(format!("copy {at} of directory {}: {e}", copy.place)),
        }
    }

    fn compare_all(&mut self) -> Result<(), String> {
        (0..self.copies.len()).try_for_each(|at| self.bring_up(at))
    }

    fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        let (_, image) = self.device.crash_now(self.rng.next());
        drop(self.volume.take());
        self.read_only(&image)?;
        self.device = Arc::new(FaultyDevice::from_image(image).forgetful());
        self.volume = Some(open(&self.device, &self.options)?);
        let walked = walk(self.volume(), Ino::ROOT, true)?;
        self.lockstep = Lockstep::of(walked.model());
        Ok(())
    }

    /// A reader who only looks, before the volume is recovered for writing.
    fn read_only(&mut self, image: &Image) -> Result<(), String> {
        if self.rng.chance(50) {
            return Ok(());
        }
        let options = OpenOptions { read_only: true, ..self.options.clone() };
        let volume = open(&Arc::new(FaultyDevice::from_image(image.clone())), &options)?;
        let mut copy = self.copies[0].clone();
        copy.bring_up(&volume, &mut self.rng, &mut self.report)
            .map_err(|e| format!("opened read-only after a crash: {e}"))?;
        // What it was told stays: it was durable. What that open has only completed in memory is
        // told again when it is written.
        copy.touched = std::mem::take(&mut self.copies[0].touched);
        self.copies[0] = copy;
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.report.reopened += 1;
        let volume = self.volume.take().expect("open between steps");
        let slots = std::mem::take(&mut self.lockstep.slots);
        slots.into_iter().flatten().for_each(|ino| volume.references().release(ino, 1));
        volume.close().map_err(|e| format!("close: {e}"))?;
        self.lockstep.model.drop_holds();
        self.volume = Some(open(&self.device, &self.options)?);
        Ok(())
    }
}

fn keep(volume: &Volume, keep: bool) -> Result<(), String> {
    match volume.changes().keep_removed(&Caller::root(), keep) {
        // A small volume may be full.
        Err(e) if e.errno() == 28 => Ok(()),
        done => done.map_err(|e| format!("keep removed names: {e}")),
    }
}
