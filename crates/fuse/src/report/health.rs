//! Problems of a mount that somebody should act on.

use crate::observe::damage::{Damage, File, Scrub};
use crate::session::Session;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Share of the volume's bytes below which it is nearly full.
const FULL: f64 = 0.05;

/// The library's reason for a volume opened read-only.
const OUR_CHOICE: &str = "opened read-only";

/// State of a mount.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Nothing to do.
    Ok,
    /// It works, and somebody should look.
    Warning,
    /// Something in the volume cannot be read.
    Damaged,
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
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct Health {
    /// The worst of all.
    pub status: Status,
    /// Problems.
    pub problems: Vec<Problem>,
    /// Damage met since the mount began.
    pub damage: DamageMet,
}

/// Damage met since a mount began.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct DamageMet {
    /// Reads that have failed, by the kind of the damaged object.
    pub reads: BTreeMap<&'static str, u64>,
    /// Files that they met first, since the last scrub without problems. Not for everybody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DamagedFile>,
    /// The last complete scrub.
    pub scrub: Option<ScrubResult>,
}

/// A damaged file.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct DamagedFile {
    /// Kind of the damaged object.
    pub kind: &'static str,
    /// Inode number.
    pub ino: u64,
    /// Path from the top of the mount, if it was found.
    pub path: Option<String>,
}

/// Result of a scrub.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct ScrubResult {
    /// Its end, in seconds since 1970.
    pub time: f64,
    /// Number of problems.
    pub problems: u64,
    /// The first of them, with paths. Not for everybody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<String>,
}

impl DamageMet {
    /// `whose`: with paths.
    fn of(damage: &Damage, whose: bool) -> DamageMet {
        let file = |file: &File| DamagedFile {
            kind: file.kind.name(),
            ino: file.ino.0,
            path: file.path.as_deref().map(|path| String::from_utf8_lossy(path).into_owned()),
        };
        let since = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let result = |scrub: &Scrub| ScrubResult {
            time: since(scrub.at).as_secs_f64(),
            problems: scrub.problems,
            first: scrub.first.iter().map(|(rule, text)| format!("{rule}: {text}")).collect(),
        };
        let mut met = DamageMet {
            reads: damage.counts.iter().map(|(kind, count)| (kind.name(), *count)).collect(),
            files: damage.files.iter().map(file).collect(),
            scrub: damage.scrub.as_ref().map(result),
        };
        if !whose {
            met.files.clear();
            met.scrub.iter_mut().for_each(|scrub| scrub.first.clear());
        }
        met
    }
}

/// Describes damage that was met, with its remedy.
fn describe(damage: &Damage) -> impl Iterator<Item = String> {
    let reads = (damage.since > 0).then(|| {
        let plural = if damage.since == 1 { "read has" } else { "reads have" };
        format!(
            "{} {plural} met damage: run shoal scrub, which names all damaged files, and restore \
             them; shoal fsck --repair, when it is unmounted, removes unreadable metadata",
            damage.since
        )
    });
    let scrub = damage.scrub.as_ref().filter(|scrub| scrub.problems > 0).map(|scrub| {
        let plural = if scrub.problems == 1 { "problem" } else { "problems" };
        format!(
            "the last scrub has found {} {plural}: restore the files that it has named",
            scrub.problems
        )
    });
    reads.into_iter().chain(scrub)
}

/// Returns the health of a mount; `whose`: with the paths of damaged files.
pub(crate) fn of(session: &Session, whose: bool) -> Health {
    let (volume, mut problems) = (&session.views.get(), Vec::new());
    let mut add = |name, what: String| problems.push(Problem { name, what });
    let info = volume.info();
    let source = session.about.facts().map_or("the volume's file", |facts| facts.source.as_str());
    // That it was opened so is no failure.
    let failed = volume.read_only_reason().filter(|why| &**why != OUR_CHOICE);
    if let Some(reason) = &failed {
        let what = format!("the volume takes no changes: {reason}; unmount it and run shoal fsck");
        add("read_only", what);
    }
    if info.unlinked {
        let what = format!(
            "{source} has been removed: everything in the volume is lost when it is unmounted; \
             copy it to another place before"
        );
        add("unlinked", what);
    }
    let space = volume.statfs();
    if (space.bytes_available as f64) < space.bytes_total as f64 * FULL {
        let (left, total) = (space.bytes_available >> 20, space.bytes_total >> 20);
        let (name, what) = match info.limited_by_host {
            true => (
                "host_space",
                format!(
                    "{left} MiB of {total} MiB are available, because the file system of {source} \
                     is nearly full: make space there"
                ),
            ),
            false => (
                "space",
                format!(
                    "{left} MiB of {total} MiB are available: remove files, or grow the volume"
                ),
            ),
        };
        add(name, what);
    }
    for damage in &info.recovery.damage {
        let what = format!(
            "damage was found when the volume was opened: {damage}; run shoal fsck --repair"
        );
        add("damage", what);
    }
    let damage = session.observer.damage.view();
    describe(&damage).for_each(|what| add("damage", what));
    let is_damaged = damage.is_there() || !info.recovery.damage.is_empty();
    let status = match (failed.is_some(), is_damaged, problems.is_empty()) {
        (true, ..) => Status::Failed,
        (_, true, _) => Status::Damaged,
        (.., false) => Status::Warning,
        _ => Status::Ok,
    };
    Health { status, problems, damage: DamageMet::of(&damage, whose) }
}
