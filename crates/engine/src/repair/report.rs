//! What a repair tells.

use crate::types::{CheckReport, Problem, RecoveryReport};
use crate::volume::Inner;
use shoal_base::Ino;
use shoal_format::node::TreeId;
use shoal_txn::{Loss, Lost};

/// Something that was done, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The pass that did it.
    pub pass: &'static str,
    /// What, and to whom.
    pub message: String,
}

/// Result of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// What was wrong: as the check found it, then every block that could not be read.
    pub found: Vec<Problem>,
    /// What was done, or would be, in order.
    pub actions: Vec<Action>,
    /// Why the repair was not tried, if so: it needs too much memory.
    pub unmended: Option<String>,
    /// Whether anything was written.
    pub written: bool,
    /// What is still wrong after it.
    pub left: Vec<Problem>,
    /// What the last check counted.
    pub checked: CheckReport,
    /// What the journal held.
    pub recovery: RecoveryReport,
    /// Inodes in use when it was mended.
    pub inodes: u64,
    /// How long it took to read, mend and write, without the checks before and after.
    pub seconds: f64,
}

impl RepairReport {
    /// Names every loss, and whom it concerns.
    pub(crate) fn lost(&mut self, volume: &Inner, losses: &[Loss]) {
        for loss in losses {
            let rule = match loss.what {
                Lost::Superblock => "superblock-copy",
                Lost::Checkpoint => "lost-checkpoint",
                Lost::Usage => "lost-usage-table",
                Lost::RootPage => "lost-root-page",
                Lost::Orphans => "lost-orphans",
                Lost::Intents => "lost-intents",
                Lost::Journal => "lost-journal",
                Lost::Node(TreeId::Imap) => "lost-imap-node",
                Lost::Node(TreeId::Dirents) => "lost-dirents-node",
                Lost::Node(TreeId::Attrs) => "lost-attrs-node",
                Lost::Node(TreeId::Extents) => "lost-extents-node",
                Lost::InodeBlock => "lost-inode-block",
            };
            let message = format!("{}{}", loss.error, whose(volume, loss));
            self.found.push(Problem { rule, message });
            let root = volume.store.root(Ino::new(loss.root, 0));
            if let (Lost::Node(tree), Ok(root)) = (loss.what, root) {
                volume.affected(root, tree, loss.low, loss.high, &mut |_, rule, message| {
                    let problem = Problem { rule, message };
                    if !self.found.contains(&problem) {
                        self.found.push(problem);
                    }
                });
            }
        }
    }
}

/// The inodes that a lost block answered for.
fn whose(volume: &Inner, loss: &Loss) -> String {
    let tree = match loss.what {
        Lost::Node(tree) => tree,
        Lost::InodeBlock => TreeId::Imap,
        _ => return String::new(),
    };
    volume.whose(loss.root, tree, loss.low, loss.high)
}
