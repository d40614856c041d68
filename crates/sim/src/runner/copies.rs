//! A run whose volume is copied to another device again and again: whole, by what has changed, and
//! on from where a crash or a failing device has interrupted it.
//!
//! At each copy, crashes of the destination at random moments: it is the volume as it was copied
//! before or now, or none, and the next copy makes it the volume of now.

use super::{Settings, Sim};
use crate::counts::counts;
use crate::device::{EIO, Fault, FaultyDevice, Kind};
use crate::exec::Generator;
use crate::image::Image;
use crate::recovery::recover;
use crate::rng::Rng;
use crate::workload::Workload;
use shoal::raw::{Code, Copied, CopyKind, Error, OpenOptions, Volume, copy_volume_on};
use shoal_device::Device;
use std::sync::Arc;

/// Operations between two copies, at most.
const APART: u64 = 60;

counts! {
    /// Counts of a run.
    pub struct Copies {
        /// Copies of everything.
        pub whole: u64,
        /// Copies of what had changed.
        pub increments: u64,
        /// Copies that went on with an unfinished one.
        pub continued: u64,
        /// Copies that failed, because the device did.
        pub failed: u64,
        /// Crash images of destinations examined.
        pub images: u64,
        /// Those that were a volume.
        pub volumes: u64,
        /// Those that could only be overwritten by force.
        pub forced: u64,
    }
}

/// The destination of a run.
struct Target {
    image: Image,
    open: OpenOptions,
    /// Digest of the volume that it is. `None`: it is none.
    digest: Option<u64>,
    rng: Rng,
    counts: Copies,
}

/// Runs `count` operations of a seed, with copies between them.
pub fn run_with_copies(seed: u64, count: usize) -> Result<Copies, String> {
    let settings = Settings::of_seed(seed);
    let mut generator = Workload::new(seed);
    let mut sim = Sim::new(&settings)?;
    let rng = Rng::new(seed).fork(23);
    let (image, open) = (Image::new(settings.capacity), settings.open.clone());
    let mut target = Target { image, open, digest: None, rng, counts: Copies::default() };
    let mut wait = 0;
    for _ in 0..count {
        if wait == 0 {
            let digest = sim.run.model.digest();
            sim.reopen_after(false, Some(&mut |source| target.copy(source, digest)))?;
            wait = target.rng.below(APART);
        }
        wait = wait.saturating_sub(1);
        let Some(op) = generator.draw(&sim.run) else { break };
        sim.step(&op).map_err(|e| format!("{op}: {e}"))?;
    }
    sim.finish()?;
    Ok(target.counts)
}

impl Target {
    fn between(
        &self,
        source: &Arc<FaultyDevice>,
        to: &Arc<FaultyDevice>,
        force: bool,
    ) -> Result<Copied, Error> {
        let source = Arc::clone(source) as Arc<dyn Device>;
        let to = Arc::clone(to) as Arc<dyn Device>;
        copy_volume_on(&source, &to, force, &self.open, &mut |_, _| {})
    }

    /// One copy of a volume that shows `digest`, and what could have become of it.
    fn copy(&mut self, source: &Arc<FaultyDevice>, digest: u64) -> Result<(), String> {
        let to = Arc::new(FaultyDevice::from_image(self.image.clone()).unchecked());
        let first = to.position();
        let is_failing = self.rng.chance(15);
        if is_failing {
            let on = *self.rng.pick(&[Kind::Write, Kind::Write, Kind::Flush]);
            let nth = 1 + self.rng.below(if on == Kind::Write { 60 } else { 6 });
            to.inject(Fault { on, nth, errno: EIO, sticky: self.rng.chance(50) });
        }
        let copied = self.between(source, &to, false);
        to.heal();
        match &copied {
            Ok(Copied { kind, stamped: true, .. }) => self.note(*kind)?,
            Err(Error::Device(_)) if is_failing => self.counts.failed += 1,
            other => return Err(format!("a copy: {other:?}")),
        }
        let mut crashes = to.crashes(self.rng.next());
        let mut moments: Vec<u64> = (0..4).map(|_| self.rng.range(first, crashes.last())).collect();
        moments.sort_unstable();
        let mut interrupted = None;
        for position in moments {
            let image = crashes.image_at(position, self.rng.next());
            let is_volume = self.examine(source, image.clone(), digest)?;
            interrupted = Some(image).filter(|_| !is_volume);
        }
        match interrupted {
            Some(image) if copied.is_err() || self.rng.chance(40) => {
                (self.image, self.digest) = (image, None);
            }
            _ if copied.is_ok() => {
                (self.image, self.digest) = (to.image(), Some(digest));
                self.is_volume(&self.image, digest)?;
            }
            // Before the first superblock went, or after the first one was there.
            _ => (self.image, self.digest) = (to.image(), self.shown(&to.image())?),
        }
        if self.digest.is_none() && self.is_refused(source)? {
            // Interrupted at the one moment when it has neither a mark nor a superblock.
            self.image = Image::new(self.image.capacity());
        }
        Ok(())
    }

    fn is_refused(&self, source: &Arc<FaultyDevice>) -> Result<bool, String> {
        let to = Arc::new(FaultyDevice::from_image(self.image.clone()).unchecked());
        match self.between(source, &to, false) {
            Ok(_) => Ok(false),
            Err(error) if error.code() == Code::Exists => Ok(true),
            Err(error) => Err(format!("a copy after an interruption: {error}")),
        }
    }

    fn note(&mut self, kind: CopyKind) -> Result<(), String> {
        match (kind, self.digest) {
            (CopyKind::Whole, None) => self.counts.whole += 1,
            (CopyKind::Continued, None) => self.counts.continued += 1,
            (CopyKind::Increment | CopyKind::Same, _) => self.counts.increments += 1,
            (kind, digest) => return Err(format!("{kind:?} of a destination with {digest:?}")),
        }
        Ok(())
    }

    /// Returns the digest of what a destination shows, if it is a volume.
    fn shown(&self, image: &Image) -> Result<Option<u64>, String> {
        let device = Arc::new(FaultyDevice::from_image(image.clone())) as Arc<dyn Device>;
        let read_only = OpenOptions { read_only: true, ..self.open.clone() };
        match Volume::open_on(device, &read_only) {
            Err(_) => Ok(None),
            Ok(_) => recover(image.clone(), &self.open).map(|found| Some(found.walk.digest())),
        }
    }

    /// Looks at a destination after a crash. Returns whether it is a volume.
    fn examine(
        &mut self,
        source: &Arc<FaultyDevice>,
        image: Image,
        digest: u64,
    ) -> Result<bool, String> {
        self.counts.images += 1;
        let shown = self.shown(&image)?;
        let is_volume = shown.is_some();
        if let Some(shown) = shown {
            self.counts.volumes += 1;
            if shown != digest && Some(shown) != self.digest {
                return Err(format!("a destination shows {shown:#x}, neither before nor after"));
            }
        }
        let to = Arc::new(FaultyDevice::from_image(image).unchecked());
        match self.between(source, &to, false) {
            Ok(_) => {}
            Err(error) if error.code() == Code::Exists && !is_volume => {
                self.counts.forced += 1;
                self.between(source, &to, true).map_err(|e| format!("by force: {e}"))?;
            }
            Err(error) => return Err(format!("a copy after a crash: {error}")),
        }
        self.is_volume(&to.image(), digest)?;
        Ok(is_volume)
    }

    fn is_volume(&self, image: &Image, digest: u64) -> Result<(), String> {
        let recovered = recover(image.clone(), &self.open).map_err(|e| format!("a copy: {e}"))?;
        if recovered.volume.info().recovery.needed {
            return Err("a copy is not closed".into());
        }
        match recovered.walk.digest() == digest {
            true => Ok(()),
            false => Err("a copy shows something else".into()),
        }
    }
}
