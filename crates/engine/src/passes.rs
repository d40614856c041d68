//! The passes of check, scrub and repair, in one table: what each looks at, what must have been
//! done before it, and what it does in each of the three.
//!
//! | | runs on | how |
//! | --- | --- | --- |
//! | check (`shoal fsck`) | a volume that stands still, mounted or not | every row, changes nothing |
//! | scrub (`shoal scrub`) | a volume in use | row by row in small steps, from the device |
//! | repair (`shoal fsck --repair`) | a salvaged volume, in memory | every row; before and after: `fsck.rs` |
//!
//! An empty place means that there is nothing to do there: a scrub cannot look at what needs the
//! whole volume to stand still, and what a volume has one of is salvaged before the repair begins
//! (`shoal_txn::salvage`).

use crate::check::scrub::{Entry, Unread};
use crate::check::{Check, ScrubAt, ScrubReport};
use crate::repair::{Passed, Repair, RepairReport};
use crate::types::{CheckReport, Progress};
use crate::volume::{Inner, Volume};
use shoal_base::Result;
use shoal_base::planted::{self, Defect};
use shoal_format::node::{Key, TreeId};
use shoal_txn::{Image, Loss};

/// Trees of roots that one step of a scrub goes through, at most.
const ROOTS_OF_A_STEP: usize = 1024;

/// A row.
struct Pass {
    name: &'static str,
    /// Passes that must have been run before: rows above.
    needs: &'static [&'static str],
    check: Option<fn(&mut Check<'_>) -> Result<()>>,
    scrub: Scrub,
    repair: Option<fn(&mut Repair<'_>) -> Result<()>>,
}

/// What a scrub does in a row.
enum Scrub {
    Nothing,
    /// All of it in one step: [`Inner::tables`].
    Tables,
    /// Reads a tree of each root, and looks at each entry.
    Tree(TreeId, Entry),
}

/// The passes in their order.
const PASSES: &[Pass] = &[
    // Superblock copies, checkpoint, usage table, pages of the root table, orphan lists and blocks,
    // open intents, journal.
    Pass {
        name: "volume",
        needs: &[],
        check: Some(|c| c.volume()),
        scrub: Scrub::Tables,
        repair: None,
    },
    // Changes that a crash had cut off, completed; opening a volume does it for a check. First:
    // while one is open, a name and its parent pointer may disagree, and neither is wrong.
    Pass {
        name: "intents",
        needs: &["volume"],
        check: None,
        scrub: Scrub::Nothing,
        repair: Some(|r| r.intents()),
    },
    // Every inode block and inode: it can be read, its forks are possible; what orphan slots name;
    // for a scrub also the data and values that inodes themselves point to.
    Pass {
        name: "inodes",
        needs: &["intents"],
        check: Some(|c| c.inodes()),
        scrub: Scrub::Tree(TreeId::Imap, Inner::scrub_inodes),
        repair: Some(|r| r.inodes()),
    },
    // Directories whose inodes are lost, made again.
    Pass {
        name: "directories",
        needs: &["inodes"],
        check: None,
        scrub: Scrub::Nothing,
        repair: Some(|r| r.lost_directories()),
    },
    // Where file data is: records are valid and in order; objects say whose they are; checksums.
    Pass {
        name: "extents",
        needs: &["inodes"],
        check: Some(|c| c.extents()),
        scrub: Scrub::Tree(TreeId::Extents, Inner::scrub_extent),
        repair: Some(|r| r.extents()),
    },
    // Attributes in the tree, the flags that say which there are, values in data objects.
    Pass {
        name: "attributes",
        needs: &["inodes"],
        check: Some(|c| c.attributes()),
        scrub: Scrub::Tree(TreeId::Attrs, Inner::scrub_attr),
        repair: Some(|r| r.attributes()),
    },
    // Every entry names an inode of its type that points back.
    Pass {
        name: "names",
        needs: &["directories", "attributes"],
        check: Some(|c| c.names()),
        scrub: Scrub::Tree(TreeId::Dirents, Inner::scrub_name),
        repair: Some(|r| r.entries()),
    },
    // Every parent pointer leads to an entry that names the inode, and there are as many as links.
    Pass {
        name: "pointers",
        needs: &["names"],
        check: Some(|c| c.pointers()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.pointers()),
    },
    // No directory lies within itself.
    Pass {
        name: "loops",
        needs: &["pointers"],
        check: Some(|c| c.loops()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.loops()),
    },
    // What has no name: roots, orphans, and the rest, which goes to `lost+found`.
    Pass {
        name: "reattach",
        needs: &["loops"],
        check: Some(|c| c.root_tops()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.reattach()),
    },
    // What inodes say of themselves and others know better: links, entries, bytes.
    Pass {
        name: "counts",
        needs: &["extents", "reattach"],
        check: Some(|c| c.counts()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.counts()),
    },
    // Parent pointers of names that have none, written when counts are right.
    Pass {
        name: "missing pointers",
        needs: &["counts"],
        check: None,
        scrub: Scrub::Nothing,
        repair: Some(|r| r.missing_pointers()),
    },
    // No two extents overlap; live bytes of every segment are the sum of what points into it.
    Pass {
        name: "space",
        needs: &["missing pointers"],
        check: Some(|c| c.space()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.space()),
    },
];

/// The rows, in which each comes behind what it needs.
fn passes() -> impl Iterator<Item = &'static Pass> {
    PASSES.iter().enumerate().map(|(i, pass)| {
        let above = |need: &&str| PASSES[..i].iter().any(|earlier| earlier.name == *need);
        debug_assert!(pass.needs.iter().all(above), "{} comes too early", pass.name);
        pass
    })
}

impl Volume {
    /// Checks the whole volume; no other call may change it meanwhile (they wait). `progress` gets
    /// the work done and in all.
    pub fn check(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<CheckReport> {
        self.check_showing("checking", &mut |_, done, total| progress(done, total))
    }

    /// The same; progress is told the pass, too, behind `what`.
    pub(crate) fn check_showing(&self, what: &str, progress: Progress<'_>) -> Result<CheckReport> {
        let superblock = self.store.superblock();
        self.store.quiesced(|image| {
            let mut check = Check::new(&self.inner, superblock, image, progress);
            for pass in passes() {
                if let Some(run) = pass.check {
                    check.begin(format!("{what} {}", pass.name));
                    run(&mut check)?;
                }
            }
            Ok(check.finish())
        })
    }
}

impl Inner {
    /// Reads about `bytes` more of what the newest checkpoint points to, from `at` on, and adds to
    /// `report`; less if there is much to tell. Returns where to go on; `None`: all has been read.
    ///
    /// # Errors
    /// A device that is gone ends the scrub; damage, or a place that it fails to read, does not.
    pub fn scrub_step(
        &self,
        at: ScrubAt,
        bytes: u64,
        report: &mut ScrubReport,
    ) -> Result<Option<ScrubAt>> {
        let trees: Vec<(TreeId, Entry)> = passes().filter_map(tree_of).collect();
        self.store.with_image(|image| {
            let enough = report.bytes.saturating_add(bytes.max(1));
            if at.stage == 0 {
                *self.unread.lock() = Unread::default();
                self.tables(&self.store.superblock(), image, report)?;
                return Ok(Some(ScrubAt { stage: 1, key: (0, 0) }));
            }
            let (mut next, problems) = (Some(at), report.problems.len());
            // Roots in which there is little, or nothing: many in one step.
            for _ in 0..ROOTS_OF_A_STEP {
                let more = report.bytes < enough && report.problems.len() == problems;
                let Some(at) = next.filter(|_| more) else { break };
                next = self.scrub_root_step(image, &trees, at, enough, report)?;
            }
            Ok(next)
        })
    }

    /// A step in one tree of one root.
    fn scrub_root_step(
        &self,
        image: &Image,
        trees: &[(TreeId, Entry)],
        at: ScrubAt,
        enough: u64,
        report: &mut ScrubReport,
    ) -> Result<Option<ScrubAt>> {
        let count = trees.len() as u64;
        let stage = at.stage - 1;
        let (number, tree) = (stage / count, (stage % count) as usize);
        if number >= image.roots() as u64 {
            return Ok(None);
        }
        let Some(record) = self.scrub_root(image, number as usize, report)? else {
            return Ok(Some(ScrubAt { stage: (number + 1) * count + 1, key: (0, 0) }));
        };
        let from = Key::new(at.key.0, at.key.1);
        let next = self.scrub_tree(&record, trees[tree], from, enough, report)?;
        Ok(Some(match next {
            Some(key) => ScrubAt { key: (key.hi, key.lo), ..at },
            None => ScrubAt { stage: at.stage + 1, key: (0, 0) },
        }))
    }
}

fn tree_of(pass: &Pass) -> Option<(TreeId, Entry)> {
    match pass.scrub {
        Scrub::Tree(tree, entry) => Some((tree, entry)),
        Scrub::Nothing | Scrub::Tables => None,
    }
}

/// Runs the passes of a repair; adds what was done to the report.
pub(crate) fn mend(
    inner: &Inner,
    losses: &[Loss],
    report: &mut RepairReport,
    progress: Progress<'_>,
) -> Result<Passed> {
    let mut repair = Repair::new(inner, losses, progress);
    for pass in passes() {
        let late = pass.name == "intents" && planted::is(Defect::IntentsTooLate);
        if let Some(run) = pass.repair.filter(|_| !late) {
            repair.begin(pass.name);
            run(&mut repair)?;
        }
    }
    if planted::is(Defect::IntentsTooLate) {
        repair.intents()?;
    }
    let mut passed = repair.finish();
    report.actions.append(&mut passed.actions);
    report.lost(inner, losses);
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pass_needs_stands_above_it() {
        for (i, pass) in PASSES.iter().enumerate() {
            let above = |need: &&str| PASSES[..i].iter().any(|earlier| earlier.name == *need);
            assert!(pass.needs.iter().all(above), "{} comes too early", pass.name);
            assert!(!above(&pass.name), "{} twice", pass.name);
            let tables = matches!(pass.scrub, Scrub::Tables);
            let anything = pass.check.is_some() || tables || pass.repair.is_some();
            assert!(anything, "{} does nothing", pass.name);
        }
    }

    #[test]
    fn a_scrub_reads_every_tree_and_names_come_after_inodes() {
        let trees: Vec<TreeId> = PASSES.iter().filter_map(tree_of).map(|(id, _)| id).collect();
        assert!(TreeId::ALL.iter().all(|id| trees.contains(id)) && trees.len() == 4);
        assert!(PASSES.iter().filter(|p| matches!(p.scrub, Scrub::Tables)).count() == 1);
        let place = |tree| trees.iter().position(|id| *id == tree);
        assert!(place(TreeId::Imap) < place(TreeId::Dirents));
    }
}
