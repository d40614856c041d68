//! Problems of a mount that somebody should act on.

use crate::session::Session;
use serde::Serialize;

/// Share of the volume's bytes below which it is nearly full.
const FULL: f64 = 0.05;

/// State of a mount.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Nothing to do.
    Ok,
    /// It works, and somebody should look.
    Warning,
    /// It does not take changes any more.
    Failed,
}

/// A problem.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// Name that stays the same, for programs.
    pub name: &'static str,
    /// Description, with the remedy.
    pub what: String,
}

/// Health of a mount.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Health {
    /// The worst of all.
    pub status: Status,
    /// Problems.
    pub problems: Vec<Problem>,
}

/// Returns the health of a mount.
pub(crate) fn of(session: &Session) -> Health {
    let (volume, mut problems) = (&session.views.get(), Vec::new());
    let mut add = |name, what: String| problems.push(Problem { name, what });
    let failed = volume.read_only_reason();
    if let Some(reason) = &failed {
        let what = format!("the volume takes no changes: {reason}; unmount it and run shoal fsck");
        add("read_only", what);
    }
    let space = volume.statfs();
    if (space.bytes_available as f64) < space.bytes_total as f64 * FULL {
        let (left, total) = (space.bytes_available >> 20, space.bytes_total >> 20);
        let what =
            format!("{left} MiB of {total} MiB are available: remove files, or grow the volume");
        add("space", what);
    }
    let info = volume.info();
    for damage in &info.recovery.damage {
        let what = format!(
            "damage was found when the volume was opened: {damage}; run shoal fsck --repair"
        );
        add("damage", what);
    }
    let status = match (failed.is_some(), problems.is_empty()) {
        (true, _) => Status::Failed,
        (_, false) => Status::Warning,
        _ => Status::Ok,
    };
    Health { status, problems }
}
