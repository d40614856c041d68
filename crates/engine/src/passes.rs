//! The passes of check, scrub and repair, in one table: the objects of each pass, the passes that
//! must precede it, and its function in each of the three.
//!
//! | | runs on | how |
//! | --- | --- | --- |
//! | check (`shoal fsck`) | a volume without concurrent changes, mounted or not | every row, changes nothing |
//! | scrub (`shoal scrub`) | a volume in use | row by row in small steps, from the device |
//! | repair (`shoal fsck --repair`) | a salvaged volume, in memory | every row; before and after: `fsck.rs` |
//!
//! An empty field means that there is nothing to do. A scrub skips the passes that need a volume
//! without changes. Structures that exist once per volume are salvaged before the repair begins
//! (`shoal_txn::salvage`).

use crate::check::scrub::Entry;
use crate::check::{Check, Inspection, ScrubAt, ScrubReport};
use crate::repair::{Mending, Passed, Repair, RepairReport};
use crate::state::{State, Unread};
use crate::types::{CheckReport, Progress};
use shoal_base::Result;
use shoal_base::planted::{self, Defect};
use shoal_format::node::{Key, TreeId};
use shoal_txn::{Image, LostObject};

/// Maximum number of subvolume trees in one step of a scrub.
const ROOTS_OF_A_STEP: usize = 1024;

/// A row of the table.
struct Pass {
    name: &'static str,
    /// Passes that must have run before; they must be above this row.
    needs: &'static [&'static str],
    check: Option<fn(&mut Check<'_>) -> Result<()>>,
    scrub: Scrub,
    repair: Option<fn(&mut Repair<'_>) -> Result<()>>,
}

/// Function of a scrub in a row.
enum Scrub {
    Nothing,
    /// Everything in one step: [`Inspection::tables`].
    Tables,
    /// Reads a tree of each subvolume, and calls the function for each entry.
    Tree(TreeId, Entry),
}

/// The passes in their order.
const PASSES: &[Pass] = &[
    // Superblock copies, checkpoint, usage table, root pages, orphan lists and blocks, open
    // intents, journal.
    Pass {
        name: "volume",
        needs: &[],
        check: Some(|c| c.volume()),
        scrub: Scrub::Tables,
        repair: None,
    },
    // Completes changes that a crash interrupted; for a check, opening the volume does this. First,
    // because while an intent is open, a name and its parent pointer may legitimately disagree.
    Pass {
        name: "intents",
        needs: &["volume"],
        check: None,
        scrub: Scrub::Nothing,
        repair: Some(|r| r.intents()),
    },
    // Every inode block and inode: readable, with valid forks; the inodes of orphan slots. For a
    // scrub also the data and values to which inodes point directly.
    Pass {
        name: "inodes",
        needs: &["intents"],
        check: Some(|c| c.inodes()),
        scrub: Scrub::Tree(TreeId::Imap, |i, root, key, value, report| {
            i.scrub_inodes(root, key, value, report)
        }),
        repair: Some(|r| r.inodes()),
    },
    // The use of quotas. A repair leaves it to the next open, which counts it and sets the numbers
    // in inodes right.
    Pass {
        name: "quotas",
        needs: &["inodes"],
        check: Some(|c| c.quotas()),
        scrub: Scrub::Nothing,
        repair: None,
    },
    // Restores directories whose inodes are lost.
    Pass {
        name: "directories",
        needs: &["inodes"],
        check: None,
        scrub: Scrub::Nothing,
        repair: Some(|r| r.lost_directories()),
    },
    // Extents: records are valid and in order, objects have the right owner, checksums match.
    Pass {
        name: "extents",
        needs: &["inodes"],
        check: Some(|c| c.extents()),
        scrub: Scrub::Tree(TreeId::Extents, |i, root, key, value, report| {
            i.scrub_extent(root, key, value, report)
        }),
        repair: Some(|r| r.extents()),
    },
    // Attributes in the tree, the flags that indicate them, values in data objects.
    Pass {
        name: "attributes",
        needs: &["inodes"],
        check: Some(|c| c.attributes()),
        scrub: Scrub::Tree(TreeId::Attrs, |i, root, key, value, report| {
            i.scrub_attr(root, key, value, report)
        }),
        repair: Some(|r| r.attributes()),
    },
    // Every entry names an inode of its type with a parent pointer to it.
    Pass {
        name: "names",
        needs: &["directories", "attributes"],
        check: Some(|c| c.names()),
        scrub: Scrub::Tree(TreeId::Dirents, |i, root, key, value, report| {
            i.scrub_name(root, key, value, report)
        }),
        repair: Some(|r| r.entries()),
    },
    // Every parent pointer has an entry that names the inode, and there are as many as links.
    Pass {
        name: "pointers",
        needs: &["names"],
        check: Some(|c| c.pointers()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.pointers()),
    },
    // No directory is below itself.
    Pass {
        name: "loops",
        needs: &["pointers"],
        check: Some(|c| c.loops()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.loops()),
    },
    // Inodes without a name: subvolumes, orphans, and all others, which move to `lost+found`.
    Pass {
        name: "reattach",
        needs: &["loops"],
        check: Some(|c| c.root_tops()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.reattach()),
    },
    // Counts in inodes: links, entries, bytes.
    Pass {
        name: "counts",
        needs: &["extents", "reattach"],
        check: Some(|c| c.counts()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.counts()),
    },
    // Missing parent pointers are written once the counts are right.
    Pass {
        name: "missing pointers",
        needs: &["counts"],
        check: None,
        scrub: Scrub::Nothing,
        repair: Some(|r| r.missing_pointers()),
    },
    // No two extents overlap; live bytes of every segment are the sum of all objects in it.
    Pass {
        name: "space",
        needs: &["missing pointers"],
        check: Some(|c| c.space()),
        scrub: Scrub::Nothing,
        repair: Some(|r| r.space()),
    },
];

/// Returns the rows. Each must be after those that it needs.
fn passes() -> impl Iterator<Item = &'static Pass> {
    PASSES.iter().enumerate().map(|(i, pass)| {
        let above = |need: &&str| PASSES[..i].iter().any(|earlier| earlier.name == *need);
        debug_assert!(pass.needs.iter().all(above), "{} comes too early", pass.name);
        pass
    })
}

/// Checks the whole volume. Calls that change it wait meanwhile. `progress` gets the name of the
/// pass, after `what`, the work done and the total.
pub(crate) fn check(volume: &State, what: &str, progress: Progress<'_>) -> Result<CheckReport> {
    let superblock = volume.store.checkpoints().superblock();
    volume.store.checkpoints().quiesced(|image| {
        let mut check = Check::new(Inspection(volume), superblock, image, progress);
        for pass in passes() {
            if let Some(run) = pass.check {
                check.begin(format!("{what} {}", pass.name));
                run(&mut check)?;
            }
        }
        Ok(check.finish())
    })
}

/// Performs a step of a scrub, as [`Maintenance::scrub_step`](crate::Maintenance::scrub_step)
/// describes.
pub(crate) fn scrub_step(
    volume: &State,
    at: ScrubAt,
    bytes: u64,
    report: &mut ScrubReport,
) -> Result<Option<ScrubAt>> {
    let trees: Vec<(TreeId, Entry)> = passes().filter_map(tree_of).collect();
    let inspection = Inspection(volume);
    volume.store.checkpoints().with_newest(|image| {
        let enough = report.bytes.saturating_add(bytes.max(1));
        if at.stage == 0 {
            *volume.unread.lock() = Unread::default();
            inspection.tables(&volume.store.checkpoints().superblock(), image, report)?;
            return Ok(Some(ScrubAt { stage: 1, key: (0, 0) }));
        }
        let (mut next, problems) = (Some(at), report.problems.len());
        // Subvolumes with little or no contents: many in one step.
        for _ in 0..ROOTS_OF_A_STEP {
            let more = report.bytes < enough && report.problems.len() == problems;
            let Some(at) = next.filter(|_| more) else { break };
            next = scrub_root_step(inspection, image, &trees, at, enough, report)?;
        }
        Ok(next)
    })
}

/// Performs a step in one tree of one subvolume.
fn scrub_root_step(
    volume: Inspection<'_>,
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
    let Some(record) = volume.scrub_root(image, number as usize, report)? else {
        return Ok(Some(ScrubAt { stage: (number + 1) * count + 1, key: (0, 0) }));
    };
    let from = Key::new(at.key.0, at.key.1);
    let next = volume.scrub_tree(&record, trees[tree], from, enough, report)?;
    Ok(Some(match next {
        Some(key) => ScrubAt { key: (key.hi, key.lo), ..at },
        None => ScrubAt { stage: at.stage + 1, key: (0, 0) },
    }))
}

fn tree_of(pass: &Pass) -> Option<(TreeId, Entry)> {
    match pass.scrub {
        Scrub::Tree(tree, entry) => Some((tree, entry)),
        Scrub::Nothing | Scrub::Tables => None,
    }
}

/// Runs the passes of a repair, and adds the actions to the report.
pub(crate) fn mend(
    volume: &State,
    losses: &[LostObject],
    report: &mut RepairReport,
    progress: Progress<'_>,
) -> Result<Passed> {
    let mut repair = Repair::new(Mending(volume), losses, progress);
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
    report.lost(Mending(volume), losses);
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
