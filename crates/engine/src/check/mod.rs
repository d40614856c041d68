//! The check behind `shoal fsck`: every invariant of the design that exists so far, over the whole
//! volume, changing nothing.
//!
//! | pass | file | rules |
//! | --- | --- | --- |
//! | inodes | `inodes.rs` | every inode block and inode can be read; fork forms are possible; orphans |
//! | names | `names.rs` | every entry names an inode of its type; link counts, entry counts, parents; no loops |
//! | attributes | `attrs.rs` | forks, the tree, values; a parent pointer for each entry and the reverse |
//! | extents | `extents.rs` | records are valid and in order; objects say whose they are; checksums; sums |
//! | space | `space.rs` | no two extents overlap; live bytes of every segment are the sum of what points into it |

mod attrs;
mod extents;
mod inodes;
mod names;
mod paths;
mod scrub;
mod space;

pub use scrub::{ScrubAt, ScrubReport};

use crate::types::{CheckReport, Problem};
use crate::volume::{Inner, Volume};
use shoal_base::{Error, Ino, Result};
use shoal_format::Ptr;
use shoal_format::checkpoint::Checkpoint;
use shoal_format::extent::Extent;
use shoal_format::node::Key;
use std::collections::HashMap;

/// Problems after which a check stops counting details.
const PROBLEMS_MAX: usize = 10_000;

/// What one pass leaves for the next, of each inode in use: about 48 bytes.
struct Seen {
    kind: u8,
    nlink: u32,
    /// Its tail is being removed, says the inode.
    cut: bool,
    /// Names found; all ones: none is wanted, it is an orphan.
    names: u32,
    /// Directory: entries it says it has.
    size: u64,
    /// Directory: its parent; otherwise bytes that the core says its extents have.
    parent_or_bytes: u64,
    /// Directory: subdirectories found; otherwise bytes of extents found.
    found: u64,
    /// Directory: entries found.
    entries: u64,
}

/// A check under way.
struct Check<'v> {
    volume: &'v Inner,
    report: CheckReport,
    seen: HashMap<Ino, Seen>,
    /// Values of attributes that lie in data objects.
    values: Vec<(Ino, Extent)>,
    /// What points to the device: data extents, then metadata, for the space pass.
    data: Vec<(u64, u32)>,
    meta: Vec<Ptr>,
    prealloc: u64,
    /// Where the next entry of the same hash has to be, if the last one says that there is one.
    chained: Option<Key>,
    progress: &'v mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

/// What is looked at in one pass, and which passes must have been run before.
struct Pass {
    name: &'static str,
    needs: &'static [&'static str],
    run: fn(&mut Check<'_>, &Checkpoint, Ptr) -> Result<()>,
}

/// The passes in their order, of a volume that stands still, mounted or not.
const PASSES: &[Pass] = &[
    Pass { name: "inodes", needs: &[], run: |check, _, _| check.inodes() },
    Pass { name: "names", needs: &["inodes"], run: |check, _, _| check.names() },
    Pass { name: "attributes", needs: &["inodes"], run: |check, _, _| check.attributes() },
    Pass { name: "extents", needs: &["inodes"], run: |check, _, _| check.extents() },
    Pass {
        name: "space",
        needs: &["attributes", "extents"],
        run: |check, checkpoint, at| check.space(checkpoint, at),
    },
];

impl Volume {
    /// Checks the whole volume; no other call may change it meanwhile (they wait). `progress` gets
    /// the work done and in all, in inodes and entries, about.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.store.quiesced(|checkpoint, at| {
            let total = self.store.inodes().saturating_mul(4);
            let mut check = Check {
                volume: &self.inner,
                report: CheckReport::default(),
                seen: HashMap::new(),
                values: Vec::new(),
                data: Vec::new(),
                meta: Vec::new(),
                prealloc: 0,
                chained: None,
                progress,
                done: 0,
                total,
            };
            for (i, pass) in PASSES.iter().enumerate() {
                let before = |need: &&str| PASSES[..i].iter().any(|earlier| earlier.name == *need);
                debug_assert!(pass.needs.iter().all(before), "{} comes too early", pass.name);
                (pass.run)(&mut check, checkpoint, at)?;
            }
            Ok(check.report)
        })
    }
}

impl Check<'_> {
    fn problem(&mut self, rule: &'static str, message: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(Problem { rule, message });
        }
    }

    /// A step that may find damage: that is a problem, not the end of the check. Failures of the
    /// device end it.
    fn damage<T>(&mut self, rule: &'static str, step: Result<T>) -> Result<Option<T>> {
        match step {
            Ok(value) => Ok(Some(value)),
            Err(e @ Error::Corrupt(_)) => {
                self.problem(rule, e.to_string());
                Ok(None)
            }
            Err(e @ Error::Code(_)) => {
                self.problem(rule, e.to_string());
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// The same, of an inode's data or attributes: says of which files.
    fn damage_of<T>(&mut self, ino: Ino, rule: &'static str, step: Result<T>) -> Result<Option<T>> {
        match step {
            Err(e @ (Error::Corrupt(_) | Error::Code(_))) => {
                let message = format!("{e}: {}", self.who(ino));
                self.problem(rule, message);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// An inode and its paths.
    fn who(&self, ino: Ino) -> String {
        format!("inode {ino}{}", self.volume.path_hint(ino))
    }

    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(1024) {
            (self.progress)(self.done, self.total.max(self.done));
        }
    }
}
