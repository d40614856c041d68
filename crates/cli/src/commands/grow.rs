//! `shoal grow`: makes a volume larger, mounted or not.

use std::path::Path;

use shoal::raw::{Grown, OpenOptions};

use crate::args::GrowArgs;
use crate::commands::remount;
use crate::direct::Direct;
use crate::failure::{Failure, OK, Result, SOME_FAILED};
use crate::mounted;
use crate::mounts;
use crate::output::Out;
use crate::size;
use crate::tags;

/// Makes the volume larger, and says by how much.
pub(crate) fn run(args: &GrowArgs) -> Result<u8> {
    let volume = tags::resolve(&args.volume)?;
    let volume = &mounts::of_volume(&volume).unwrap_or(volume);
    let wanted = args.size.unwrap_or(0);
    let grown = match volume.is_dir() {
        true => mounted(volume, wanted)?,
        false => {
            Direct::take_ring(volume)?;
            shoal::raw::grow(volume, wanted, &OpenOptions::default())
                .map_err(|error| Failure::volume(volume.display(), &error))?
        }
    };
    let mut out = Out::new();
    let (before, now) = (size::human(grown.before), size::human(grown.now));
    out.line(&format!("{}: {before} before, {now} now", args.volume.display()))?;
    out.flush()?;
    Ok(OK)
}

/// Has the next server of a mount open it at its new size.
fn mounted(directory: &Path, wanted: u64) -> Result<Grown> {
    let before = size_of(directory)?;
    if wanted != 0 && wanted <= before {
        let why = format!(
            "has {before} bytes already ('shoal shrink' makes one smaller that is not mounted)"
        );
        return Err(Failure::failed(directory.display(), why).with_status(SOME_FAILED));
    }
    remount::hand_over(directory, Some(wanted))?;
    let now = size_of(directory)?;
    match now > before {
        true => Ok(Grown { before, now }),
        false => {
            let why = "has not grown: the reason is in the log of the mount";
            Err(Failure::failed(directory.display(), why).with_status(SOME_FAILED))
        }
    }
}

fn size_of(directory: &Path) -> Result<u64> {
    let facts = mounted::ask(directory, |mount| mount.calls().all_facts(&mount.who))?;
    facts.get("size").and_then(|size| size.parse().ok()).ok_or_else(|| {
        let why = "the server is of a version that cannot grow: shoal remount --takeover";
        Failure::failed(directory.display(), why)
    })
}
