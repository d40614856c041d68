//! The passes of a repair, in memory: what is recorded in two places is restored from the one that
//! is left; what nothing else knows of is given up, and said by path. Their order, beside what a
//! check does for each, stands in `passes.rs`; what comes before and after them in `fsck.rs`.

mod attrs;
mod counts;
mod dirs;
mod entries;
mod extents;
mod inodes;
pub(crate) mod memory;
mod names;
mod reattach;
mod report;
mod space;
mod spread;

pub use report::{Action, RepairReport};

use crate::types::Progress;
use crate::volume::Inner;
use shoal_base::{Epoch, Ino, Result};
use shoal_txn::Loss;
use spread::Spread;
use std::collections::HashMap;

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
/// Bytes of a directory's path that messages show.
const PATH_MAX: usize = 512;

impl Node {
    fn is_dir(&self) -> bool {
        self.kind == DIRECTORY
    }
}

/// A name: of whom, where, which.
pub(crate) struct Name {
    child: Ino,
    dir: Ino,
    name: Vec<u8>,
}

/// A repair under way, in memory.
pub(crate) struct Repair<'r> {
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
    /// Live bytes by segment, and bytes promised, counted when all else is done.
    live: (Vec<(u64, u64)>, u64),
    progress: Progress<'r>,
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

/// What the passes leave for the time after.
pub(crate) struct Passed {
    pub actions: Vec<Action>,
    /// Live bytes by segment, of data and of metadata; and bytes promised.
    pub live: (Vec<(u64, u64)>, u64),
    /// Parent pointers for which space has to be taken.
    pub later: Vec<Name>,
}

impl<'r> Repair<'r> {
    /// Of a salvaged volume, of which `losses` are lost.
    pub(crate) fn new(volume: &'r Inner, losses: &'r [Loss], progress: Progress<'r>) -> Repair<'r> {
        let expected = volume.inodes_at_most().min(memory::INODES_AT_ONCE);
        Repair {
            volume,
            epoch: volume.store.epoch(),
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
            live: (Vec::new(), 0),
            progress,
            done: 0,
            total: volume.store.inodes().saturating_mul(3),
        }
    }

    pub(crate) fn finish(self) -> Passed {
        Passed { actions: self.actions, live: self.live, later: self.later }
    }

    /// Space, counted anew.
    pub(crate) fn space(&mut self) -> Result<()> {
        self.live = self.volume.live_bytes_by_segment()?;
        Ok(())
    }
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

    /// A pass begins.
    pub(crate) fn begin(&mut self, pass: &'static str) {
        self.pass = pass;
        self.paths.clear();
    }

    /// What calls had promised, like any recovery does.
    pub(crate) fn intents(&mut self) -> Result<()> {
        match self.volume.complete_intents()? {
            0 => {}
            n => self.did(format!("{n} changes that a crash had cut off completed")),
        }
        Ok(())
    }
}
