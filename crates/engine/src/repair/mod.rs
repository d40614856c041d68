//! The repair behind `shoal fsck --repair`: of a volume that nobody uses.
//!
//! 1. *Look*: the check, as of any volume. What is clean is left alone.
//! 2. *Salvage* (`shoal_txn::salvage`): everything that can be read, together in memory.
//! 3. *Mend*: the passes of [`PASSES`], in memory. What is recorded in two places is restored from
//!    the one that is left: entries from parent pointers and the reverse, counts from what is
//!    counted, lost directories from what is in them. What nothing else knows of is given up, and
//!    said by path.
//! 4. *Ask*. Nothing has been written so far.
//! 5. *Publish*: one checkpoint has it all. A crash before it is durable leaves the volume as it
//!    was; after it, mended.
//! 6. *Finish* what needs space, by ordinary transactions; free the orphans; check again.

mod attrs;
mod counts;
mod dirs;
mod entries;
mod extents;
mod inodes;
mod names;
mod reattach;
mod report;
mod space;
mod spread;

pub use report::{Action, RepairReport};

use crate::open::store_options;
use crate::types::{CheckReport, OpenOptions, Problem, RecoveryReport};
use crate::volume::{Inner, Volume};
use parking_lot::Mutex;
use shoal_base::planted::{self, Defect};
use shoal_base::{Epoch, Error, Ino, Result};
use shoal_device::{Device, FileDevice, OpenMode};
use shoal_txn::{Held, Loss, Salvaged};
use spread::Spread;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// What is done in one pass, and which passes must have been run before.
struct Pass {
    name: &'static str,
    needs: &'static [&'static str],
    run: fn(&mut Repair<'_>) -> Result<()>,
}

/// The passes in their order.
const PASSES: &[Pass] = &[
    // First: while one is open, a name and its parent pointer may disagree, and neither is wrong.
    Pass { name: "intents", needs: &[], run: |r| r.intents() },
    Pass { name: "inodes", needs: &["intents"], run: |r| r.inodes() },
    Pass { name: "directories", needs: &["inodes"], run: |r| r.lost_directories() },
    Pass { name: "extents", needs: &["inodes"], run: |r| r.extents() },
    Pass { name: "attributes", needs: &["inodes"], run: |r| r.attributes() },
    Pass { name: "entries", needs: &["directories", "attributes"], run: |r| r.entries() },
    Pass { name: "pointers", needs: &["entries"], run: |r| r.pointers() },
    Pass { name: "loops", needs: &["pointers"], run: |r| r.loops() },
    Pass { name: "reattach", needs: &["loops"], run: |r| r.reattach() },
    Pass { name: "counts", needs: &["extents", "reattach"], run: |r| r.counts() },
    Pass { name: "missing pointers", needs: &["counts"], run: |r| r.missing_pointers() },
];

/// What is known of an inode in use.
struct Node {
    kind: u8,
    generation: u32,
    nlink: u32,
    /// Its tail is being removed, says the inode.
    cut: bool,
    /// Names that it is going to have.
    names: u32,
    /// Directory: subdirectories and entries that it is going to have.
    subdirs: u32,
    entries: u64,
    /// Directory: where its name is going to be, as its core says to begin with.
    parent: Ino,
    /// Bytes of its extents.
    bytes: u64,
    /// What its core says of links, entries and bytes.
    said: Said,
    /// Its extents are in the inode, or in the tree.
    near_data: bool,
    far_data: bool,
    /// Its attributes are in the tree, or those in the inode are not those that its flags say.
    far_attrs: bool,
    wrong_flags: bool,
}

/// What is in an inode's core that counting may contradict: who agrees is not looked at again.
struct Said {
    entries: u64,
    bytes: u64,
    parent: Ino,
    tmpfile: bool,
}

const DIRECTORY: u8 = 4;
/// Rules that contents break: they are recorded once, and nothing brings them back.
const OF_CONTENTS: [&str; 5] =
    ["data-checksum", "data-header", "value-checksum", "value-header", "extents-shared"];
/// Bytes of a directory's path that messages show.
const PATH_MAX: usize = 512;

impl Node {
    fn is_dir(&self) -> bool {
        self.kind == DIRECTORY
    }
}

/// A name: of whom, where, which.
struct Name {
    child: Ino,
    dir: Ino,
    name: Vec<u8>,
}

/// A repair under way, in memory.
struct Repair<'r> {
    volume: &'r Inner,
    epoch: Epoch,
    losses: &'r [Loss],
    nodes: HashMap<Ino, Node, Spread>,
    /// Entries of directories whose parent pointers say otherwise: taken if nothing better comes.
    doubtful: Vec<Name>,
    /// Parent pointers to be written.
    missing: Vec<Name>,
    /// The same, of inodes that have no room before space can be taken.
    later: Vec<Name>,
    /// Names of directories.
    dir_names: HashMap<Ino, Vec<u8>>,
    /// Where entries say that lost directories are.
    lost_names: HashMap<Ino, (Ino, Vec<u8>)>,
    /// Paths of directories, for messages, as they were when first asked for in this pass.
    paths: HashMap<Ino, String>,
    /// Name to give to what has none, of each root: the directory for it.
    found: HashMap<u16, Ino>,
    actions: Vec<Action>,
    pass: &'static str,
    progress: &'r mut dyn FnMut(&'static str, u64, u64),
    done: u64,
    total: u64,
}

/// The path of a directory, with a slash at its end. Those on the way that are lost, and so do not
/// say where they were, are known by their entries.
fn path_of(volume: &Inner, lost: &HashMap<Ino, (Ino, Vec<u8>)>, dir: Ino) -> String {
    let mut path = volume.path_below(dir, b"");
    for _ in 0..lost.len() {
        let known = path.strip_prefix("inode ").and_then(|rest| {
            let (number, below) = rest.split_once(':')?;
            let (above, name) = lost.get(&Ino(number.parse().ok()?))?;
            Some(volume.path_below(*above, name) + below)
        });
        match known {
            Some(longer) if longer.len() < 2 * PATH_MAX => path = longer,
            _ => break,
        }
    }
    path
}

impl Repair<'_> {
    fn did(&mut self, message: String) {
        self.actions.push(Action { pass: self.pass, message });
    }

    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(4096) {
            (self.progress)("repairing", self.done, self.total.max(self.done));
        }
    }

    /// Inodes by number, all that `wanted` says.
    fn sorted(&self, wanted: impl Fn(&Node) -> bool) -> Vec<Ino> {
        let wanted = self.nodes.iter().filter(|(_, node)| wanted(node));
        let mut inodes: Vec<Ino> = wanted.map(|(ino, _)| *ino).collect();
        inodes.sort_unstable();
        inodes
    }

    /// The path of a name, for messages.
    fn path(&mut self, dir: Ino, name: &[u8]) -> String {
        let (volume, lost) = (self.volume, &self.lost_names);
        let above = self.paths.entry(dir).or_insert_with(|| match path_of(volume, lost, dir) {
            path if path.len() < PATH_MAX => path,
            path => format!("...{}", &path[path.len() - PATH_MAX..]),
        });
        format!("{above}{}", name.escape_ascii())
    }

    fn run(&mut self) -> Result<()> {
        for (i, pass) in PASSES.iter().enumerate() {
            let before = |need: &&str| PASSES[..i].iter().any(|earlier| earlier.name == *need);
            debug_assert!(pass.needs.iter().all(before), "{} comes too early", pass.name);
            self.pass = pass.name;
            self.paths.clear();
            if pass.name == "intents" && planted::is(Defect::IntentsTooLate) {
                continue;
            }
            (pass.run)(self)?;
        }
        if planted::is(Defect::IntentsTooLate) { self.intents() } else { Ok(()) }
    }

    /// What calls had promised, like any recovery does.
    fn intents(&mut self) -> Result<()> {
        match self.volume.complete_intents()? {
            0 => {}
            n => self.did(format!("{n} changes that a crash had cut off completed")),
        }
        Ok(())
    }
}

/// Called with what was found and what would be done: whether to go on.
pub type Ask<'a> = &'a mut dyn FnMut(&RepairReport) -> bool;
/// Called with the stage, work done, and work in all.
pub type Progress<'a> = &'a mut dyn FnMut(&'static str, u64, u64);

impl Volume {
    /// Checks the volume in a file or on a block device that nobody uses, and repairs it.
    pub fn repair(
        path: &Path,
        options: &OpenOptions,
        progress: Progress<'_>,
        ask: Ask<'_>,
    ) -> Result<RepairReport> {
        let device = FileDevice::open(path, OpenMode::ReadWrite)?;
        Volume::repair_on(Arc::new(device), options, progress, ask)
    }

    /// The same on a device.
    pub fn repair_on(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        progress: Progress<'_>,
        ask: Ask<'_>,
    ) -> Result<RepairReport> {
        let options = OpenOptions { background: false, read_only: true, ..options.clone() };
        let (mut report, orphans) = look(device.clone(), &options, progress)?;
        let unfinished = report.recovery.needed || orphans > 0 || report.recovery.intents > 0;
        if report.found.is_empty() && !unfinished {
            return Ok(report);
        }
        let start = Instant::now();
        let Some(mended) = attempt(device, &options, &mut report, progress)? else {
            return Ok(report);
        };
        report.seconds = start.elapsed().as_secs_f64();
        let beyond = |p: &Problem| OF_CONTENTS.contains(&p.rule);
        if !unfinished && report.actions.is_empty() && report.found.iter().all(beyond) {
            report.left = report.found.clone();
            return Ok(report);
        }
        if !ask(&report) {
            return Ok(report);
        }
        let start = Instant::now();
        let Mended { mut inner, held, later } = mended;
        publish(&mut inner, &held)?;
        report.written = true;
        let volume = Volume { inner: Arc::new(inner), background: Mutex::new(None) };
        volume.finish_repair(later, &mut report)?;
        report.seconds += start.elapsed().as_secs_f64();
        let after = volume.check(&mut |done, total| progress("checking again", done, total))?;
        report.left = after.problems.clone();
        report.checked = after;
        volume.close()?;
        Ok(report)
    }

    /// Checks the volume in a file or on a block device that nobody uses, and says what a repair
    /// would do. Writes nothing.
    pub fn inspect(
        path: &Path,
        options: &OpenOptions,
        progress: Progress<'_>,
    ) -> Result<RepairReport> {
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(path, OpenMode::ReadOnly)?);
        let options = OpenOptions { background: false, read_only: true, ..options.clone() };
        let (mut report, _) = look(device.clone(), &options, progress)?;
        if !report.found.is_empty() {
            attempt(device, &options, &mut report, progress)?;
        }
        Ok(report)
    }

    /// What needs space or the journal.
    fn finish_repair(&self, later: Vec<Name>, report: &mut RepairReport) -> Result<()> {
        for name in later {
            self.write_pointer(&name, true)?;
        }
        let reaped = self.adopt_orphans()?;
        while self.reap_orphan()? {}
        if reaped > 0 {
            let message = format!("{reaped} files without a name freed");
            report.actions.push(Action { pass: "orphans", message });
        }
        Ok(())
    }
}

/// The check of a volume opened as any reader would, and how many orphans it has. Damage that keeps
/// it from being opened is a problem found.
fn look(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    progress: Progress<'_>,
) -> Result<(RepairReport, u64)> {
    let checked = Volume::open_on(device, options).and_then(|volume| {
        let report = volume.check(&mut |done, total| progress("checking", done, total))?;
        let info = volume.info();
        Ok((report, info.recovery, info.orphans))
    });
    let (checked, recovery, orphans) = match checked {
        Err(error @ Error::Corrupt(_)) => {
            let problem = Problem { rule: "volume-unreadable", message: error.to_string() };
            let report = CheckReport { problems: vec![problem], ..CheckReport::default() };
            (report, RecoveryReport::default(), 0)
        }
        other => other?,
    };
    let found = checked.problems.clone();
    Ok((RepairReport { found, checked, recovery, ..RepairReport::default() }, orphans))
}

/// A volume mended in memory.
struct Mended {
    inner: Inner,
    held: Held,
    later: Vec<Name>,
}

/// Salvages and mends. `None`: too much is lost; the report says what.
fn attempt(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    report: &mut RepairReport,
    progress: Progress<'_>,
) -> Result<Option<Mended>> {
    let mut salvage = || {
        let sb = shoal_txn::read_superblock(&*device)?;
        let salvaged = shoal_txn::salvage(device.clone(), store_options(&sb, options))?;
        let Salvaged { store, recovered, losses, held } = salvaged;
        if recovered.needed {
            let message = format!("{} records of the journal replayed", recovered.records);
            report.actions.push(Action { pass: "journal", message });
        }
        let inner = Inner::new(store, options);
        let later = mend(&inner, &losses, report, progress)?;
        report.inodes = inner.store.inodes();
        Ok(Mended { inner, held, later })
    };
    match salvage() {
        Ok(mended) => Ok(Some(mended)),
        Err(error @ Error::Corrupt(_)) => {
            let message = format!("{error}: restore the volume from a copy");
            report.found.push(Problem { rule: "beyond-repair", message });
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Runs the passes; returns what is left for after the publication.
fn mend(
    inner: &Inner,
    losses: &[Loss],
    report: &mut RepairReport,
    progress: Progress<'_>,
) -> Result<Vec<Name>> {
    let expected = inner.store.inodes().min(1 << 24);
    let mut repair = Repair {
        volume: inner,
        epoch: inner.store.epoch(),
        losses,
        nodes: HashMap::with_capacity_and_hasher(expected as usize, Spread),
        paths: HashMap::new(),
        lost_names: HashMap::new(),
        doubtful: Vec::new(),
        missing: Vec::new(),
        later: Vec::new(),
        dir_names: HashMap::new(),
        found: HashMap::new(),
        actions: Vec::new(),
        pass: "",
        progress,
        done: 0,
        total: inner.store.inodes().saturating_mul(3),
    };
    repair.run()?;
    let (actions, later) = (std::mem::take(&mut repair.actions), repair.later);
    report.actions.extend(actions);
    report.lost(inner, losses);
    Ok(later)
}

/// One checkpoint with everything.
fn publish(inner: &mut Inner, held: &Held) -> Result<()> {
    let (live, prealloc) = inner.live_bytes_by_segment()?;
    inner.store.prealloc.store(prealloc as i64, std::sync::atomic::Ordering::Relaxed);
    inner.options.read_only = false;
    inner.store.publish_salvaged(held, &live)
}
