//! The passes of a repair, in memory. Information that exists twice is restored from the remaining
//! copy. Other losses are accepted and reported by path. The order of the passes is in `passes.rs`,
//! with the functions of a check for each; the steps before and after them are in `fsck.rs`.

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

use crate::check::Inspection;
use crate::directories::Directories;
use crate::intents::Intents;
use crate::paths::Paths;
use crate::state::room;
use crate::text::counted;
use crate::types::Progress;
use crate::xattr::Xattrs;
use shoal_base::{Epoch, Ino, Result};
use shoal_txn::LostObject;
use spread::Spread;
use std::collections::HashMap;

room! {
    /// A salvaged volume that is being repaired.
    pub(crate) struct Mending {
        directories: Directories,
        inspection: Inspection,
        intents: Intents,
        paths: Paths,
        xattrs: Xattrs,
    }
}

/// Information about an inode in use.
struct Node {
    kind: u8,
    generation: u32,
    nlink: u32,
    /// The inode has the flag of a truncate in progress.
    truncating: bool,
    /// Names that are kept.
    names: u32,
    /// For a directory: subdirectories and entries that are kept.
    subdirs: u32,
    entries: u64,
    /// For a directory: the directory of its kept name; initially its parent from the core.
    parent: Ino,
    /// Bytes of its extents.
    bytes: u64,
    /// Values from its core.
    said: Said,
    /// Its extents are in the inode (`near`), or in the tree (`far`).
    near_data: bool,
    far_data: bool,
    /// Its attributes are in the tree; or the flags do not match those in the inode.
    far_attrs: bool,
    wrong_flags: bool,
}

/// Fields of an inode's core that the counts may contradict. If they agree, the inode is not
/// visited again.
struct Said {
    entries: u64,
    bytes: u64,
    parent: Ino,
    tmpfile: bool,
}

const DIRECTORY: u8 = 4;
/// Maximum bytes of a directory's path in messages.
const PATH_MAX: usize = 512;

impl Node {
    fn is_dir(&self) -> bool {
        self.kind == DIRECTORY
    }
}

/// A name of an inode: the inode, the directory, the name.
pub(crate) struct Name {
    child: Ino,
    dir: Ino,
    name: Vec<u8>,
}

/// A repair in progress, in memory.
pub(crate) struct Repair<'r> {
    volume: Mending<'r>,
    epoch: Epoch,
    losses: &'r [LostObject],
    nodes: HashMap<Ino, Node, Spread>,
    /// Entries of directories with other parent pointers: used if no better one is found.
    doubtful: Vec<Name>,
    /// Parent pointers to be written.
    missing: Vec<Name>,
    /// As `missing`, for inodes without space in the inode block; written when space can be
    /// allocated.
    later: Vec<Name>,
    /// Names of directories.
    dir_names: HashMap<Ino, Vec<u8>>,
    /// Parent directory and name of lost directories, from entries.
    lost_names: HashMap<Ino, (Ino, Vec<u8>)>,
    /// Paths of directories for messages, as they were when first needed in this pass.
    paths: HashMap<Ino, String>,
    /// The `lost+found` directory of each subvolume.
    found: HashMap<u16, Ino>,
    actions: Vec<Action>,
    pass: &'static str,
    /// Live bytes by segment, and promised bytes, counted at the end.
    live: (Vec<(u64, u64)>, u64),
    progress: Progress<'r>,
    done: u64,
    total: u64,
}

/// Returns the path of a directory, with a trailing slash. For lost directories on the path, whose
/// parent pointers are unknown, the entries are used.
fn path_of(volume: Mending<'_>, lost: &HashMap<Ino, (Ino, Vec<u8>)>, dir: Ino) -> String {
    let mut path = volume.inspection().path_below(dir, b"");
    for _ in 0..lost.len() {
        let known = path.strip_prefix("inode ").and_then(|rest| {
            let (number, below) = rest.split_once(':')?;
            let (above, name) = lost.get(&Ino(number.parse().ok()?))?;
            Some(volume.inspection().path_below(*above, name) + below)
        });
        match known {
            Some(longer) if longer.len() < 2 * PATH_MAX => path = longer,
            _ => break,
        }
    }
    path
}

/// Results of the passes for the later steps.
pub(crate) struct Passed {
    pub actions: Vec<Action>,
    /// Live bytes by segment, of data and of metadata; and promised bytes.
    pub live: (Vec<(u64, u64)>, u64),
    /// Parent pointers for which space must be allocated.
    pub later: Vec<Name>,
}

impl<'r> Repair<'r> {
    /// Begins the repair of a salvaged volume with these losses.
    pub(crate) fn new(
        volume: Mending<'r>,
        losses: &'r [LostObject],
        progress: Progress<'r>,
    ) -> Repair<'r> {
        let expected = volume.inodes_at_most().min(memory::INODES_AT_ONCE);
        Repair {
            volume,
            epoch: volume.0.store.epoch(),
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
            total: volume.0.store.roots().inodes().saturating_mul(3),
        }
    }

    pub(crate) fn finish(self) -> Passed {
        Passed { actions: self.actions, live: self.live, later: self.later }
    }

    /// Counts live and promised bytes again.
    pub(crate) fn space(&mut self) -> Result<()> {
        self.live = self.volume.live_bytes_by_segment()?;
        Ok(())
    }
}

impl Repair<'_> {
    fn did(&mut self, message: String) {
        self.actions.push(Action { pass: self.pass, message, loses: false });
    }

    /// Records a change that gives something up, or guesses: nothing else records what was there.
    fn lost(&mut self, message: String) {
        self.actions.push(Action { pass: self.pass, message, loses: true });
    }

    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(4096) {
            (self.progress)("repairing", self.done, self.total.max(self.done));
        }
    }

    /// Returns the inodes that `wanted` selects, by number.
    fn sorted(&self, wanted: impl Fn(&Node) -> bool) -> Vec<Ino> {
        let wanted = self.nodes.iter().filter(|(_, node)| wanted(node));
        let mut inodes: Vec<Ino> = wanted.map(|(ino, _)| *ino).collect();
        inodes.sort_unstable();
        inodes
    }

    /// Returns the path of a name, for messages.
    fn path(&mut self, dir: Ino, name: &[u8]) -> String {
        let (volume, lost) = (self.volume, &self.lost_names);
        let above = self.paths.entry(dir).or_insert_with(|| match path_of(volume, lost, dir) {
            path if path.len() < PATH_MAX => path,
            path => format!("...{}", &path[path.len() - PATH_MAX..]),
        });
        format!("{above}{}", name.escape_ascii())
    }

    /// Begins a pass.
    pub(crate) fn begin(&mut self, pass: &'static str) {
        self.pass = pass;
        self.paths.clear();
    }

    /// Completes open intents, as in any recovery.
    pub(crate) fn intents(&mut self) -> Result<()> {
        match self.volume.intents().complete_intents()? {
            0 => {}
            n => self.did(format!("{} interrupted by a crash completed", counted(n, "change"))),
        }
        Ok(())
    }
}
