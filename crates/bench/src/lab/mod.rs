//! Studies of how Shoal is made, for the program `shoal-lab`: structures compared, decisions
//! measured by switching them off. A user of a release has no use for them.
//!
//! | module | study |
//! | --- | --- |
//! | `cold` | `cold`, which needs no target: a device that takes its time |
//! | `costs` | `costs`, which needs no target: calls against others that do less |
//! | `index` | `inode-index`, which needs no target: structures in memory |
//! | `parents` | the cost of parent pointers |
//! | `whole` | `memory`, `checkpoint`: workloads about a volume as a whole |

mod cold;
mod costs;
mod index;
mod parents;
mod whole;

use crate::args::{Args, Target, Workload};
use crate::error::{BenchError, Result};
use crate::library::open_options;
use crate::orphans;
use crate::report::Report;
use shoal::raw::{Lab, OpenOptions, TruncateTracking};
use std::io::Write;

/// Tracking of files that are truncated.
const TRACKING: [(&str, TruncateTracking); 3] = [
    ("needed", TruncateTracking::AsNeeded),
    ("table", TruncateTracking::Table),
    ("list", TruncateTracking::List),
];

/// Runs the workload if it is a study; returns whether it is.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<bool> {
    match args.workload {
        Workload::InodeIndex => return index::run(args, out).map(|()| true),
        Workload::Costs => return costs::run(out).map(|()| true),
        Workload::Cold => {
            let failed = |e| BenchError::failed("measure", "a slow device", e);
            return cold::run(out).map_err(failed).map(|()| true);
        }
        _ => {}
    }
    let Some(Target::Volume(path)) = &args.target else { return Ok(false) };
    let report = &mut Report::new(args, out);
    match args.workload {
        Workload::Memory => whole::memory(args, path, report)?,
        Workload::Checkpoint => whole::checkpoint(args, path, report)?,
        Workload::Parents => parents::run(args, path, report)?,
        Workload::TruncateTracking => {
            let settings = TRACKING.map(|(name, truncate_tracking)| {
                let options = open_options(args);
                let lab = Lab { truncate_tracking, ..options.lab };
                (name, OpenOptions { lab, ..options })
            });
            orphans::truncate_volumes(args, path, &settings, report)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
