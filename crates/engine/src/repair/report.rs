//! What a repair tells.

use crate::types::{CheckReport, Problem, RecoveryReport};
use crate::volume::Inner;
use shoal_base::Ino;
use shoal_base::limits::INODES_PER_BLOCK;
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
    pub(super) fn lost(&mut self, volume: &Inner, losses: &[Loss]) {
        for loss in losses {
            let rule = match loss.what {
                Lost::Superblock => "superblock-copy",
                Lost::Checkpoint => "lost-checkpoint",
                Lost::Usage => "lost-usage-table",
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
        }
    }
}

/// The inodes that a lost block answered for.
fn whose(volume: &Inner, loss: &Loss) -> String {
    let span = |first: u64, end: u64| match end.saturating_sub(first) {
        0 | 1 => format!("; of inode {first}{}", volume.path_hint(Ino(first))),
        _ if end == u64::MAX => format!("; of inodes from {first} on"),
        _ => {
            let from = volume.path_hint(Ino(first));
            format!("; of inodes {first}{from} to {}", end - 1)
        }
    };
    match loss.what {
        Lost::Node(TreeId::Imap) | Lost::InodeBlock => {
            let at = |number: u64| {
                let index = number.saturating_mul(INODES_PER_BLOCK as u64).min((1 << 48) - 1);
                Ino::new(loss.root, index).0
            };
            span(at(loss.low.hi), at(loss.high.hi))
        }
        Lost::Node(_) => {
            let end = if loss.high.lo == 0 { loss.high.hi } else { loss.high.hi.saturating_add(1) };
            span(loss.low.hi, end)
        }
        _ => String::new(),
    }
}
