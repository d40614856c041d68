//! The report of a repair.

use crate::repair::Mending;
use crate::types::{CheckReport, Problem, RecoveryReport};
use shoal_base::Ino;
use shoal_format::node::TreeId;
use shoal_txn::{LostKind, LostObject};

/// A change that was made, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The pass of the change.
    pub pass: &'static str,
    /// Description of the change and of its object.
    pub message: String,
    /// It gives something up, or guesses; otherwise it restores what a second record says.
    pub loses: bool,
}

/// Result of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// Problems found by the check, then every unreadable block.
    pub found: Vec<Problem>,
    /// Changes that were made, or would be, in order.
    pub actions: Vec<Action>,
    /// Reason why the repair was not attempted: it needs too much memory.
    pub unmended: Option<String>,
    /// Something is lost that has no second record.
    pub gone: bool,
    /// Something was written.
    pub written: bool,
    /// Problems that remain after the repair.
    pub left: Vec<Problem>,
    /// Counts of the last check.
    pub checked: CheckReport,
    /// Report of the recovery.
    pub recovery: RecoveryReport,
    /// Inodes in use after the repair.
    pub inodes: u64,
    /// Seconds for reading, repairing and writing, without the checks before and after.
    pub seconds: f64,
}

impl RepairReport {
    /// Returns whether the repair gives something up, or guesses: somebody should decide. Otherwise
    /// everything is restored from second records.
    pub fn loses(&self) -> bool {
        self.gone || self.actions.iter().any(|action| action.loses)
    }

    /// Adds a problem, unless the check has found it.
    fn add(&mut self, problem: Problem) {
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// Reports every loss, with the affected inodes.
    pub(crate) fn lost(&mut self, volume: Mending<'_>, losses: &[LostObject]) {
        self.gone |= losses.iter().any(is_gone);
        for loss in losses {
            let rule = match loss.kind {
                LostKind::Superblock => "superblock-copy",
                LostKind::Checkpoint => "lost-checkpoint",
                LostKind::Usage => "lost-usage-table",
                LostKind::RootPage => "lost-root-page",
                LostKind::Orphans => "lost-orphans",
                LostKind::Intents => "lost-intents",
                LostKind::Journal => "lost-journal",
                LostKind::Node(TreeId::Imap) => "lost-imap-node",
                LostKind::Node(TreeId::Dirents) => "lost-dirents-node",
                LostKind::Node(TreeId::Attrs) => "lost-attrs-node",
                LostKind::Node(TreeId::Extents) => "lost-extents-node",
                LostKind::InodeBlock => "lost-inode-block",
            };
            let message = format!("{}{}", loss.error, whose(volume, loss));
            self.add(Problem { rule, message });
            let root = volume.0.store.root(Ino::new(loss.root, 0));
            if let (LostKind::Node(tree), Ok(root)) = (loss.kind, root) {
                volume.inspection().affected(
                    root,
                    tree,
                    loss.low,
                    loss.high,
                    &mut |_, rule, message| {
                        self.add(Problem { rule, message });
                    },
                );
            }
        }
    }
}

/// Returns whether nothing else records what was in a lost object.
fn is_gone(loss: &LostObject) -> bool {
    match loss.kind {
        LostKind::Superblock | LostKind::Usage | LostKind::Node(TreeId::Dirents) => false,
        // One of two copies covered nothing.
        LostKind::RootPage => loss.low != loss.high,
        LostKind::Node(TreeId::Imap | TreeId::Attrs | TreeId::Extents) => true,
        LostKind::Checkpoint | LostKind::Orphans | LostKind::Intents | LostKind::Journal => true,
        LostKind::InodeBlock => true,
    }
}

/// Describes the inodes that a lost block covers.
fn whose(volume: Mending<'_>, loss: &LostObject) -> String {
    let tree = match loss.kind {
        LostKind::Node(tree) => tree,
        LostKind::InodeBlock => TreeId::Imap,
        LostKind::Superblock
        | LostKind::Checkpoint
        | LostKind::Usage
        | LostKind::RootPage
        | LostKind::Orphans
        | LostKind::Intents
        | LostKind::Journal => return String::new(),
    };
    volume.inspection().whose(loss.root, tree, loss.low, loss.high)
}
