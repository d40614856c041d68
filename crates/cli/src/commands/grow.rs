//! `shoal grow`: makes a volume larger, in use or not.

use std::path::Path;

use shoal::raw::{Grown, OpenOptions, is_bucket, is_served};

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
    let grown = match size_in_use(volume)? {
        Some(before) => in_use(volume, before, wanted)?,
        None => {
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

/// Has the next server of a mount, or of a served volume, open it at its new size.
fn in_use(place: &Path, before: u64, wanted: u64) -> Result<Grown> {
    if wanted != 0 && wanted <= before {
        let why = format!(
            "has {before} bytes already ('shoal shrink' makes one smaller that is not in use)"
        );
        return Err(Failure::failed(place.display(), why).with_status(SOME_FAILED));
    }
    remount::hand_over(place, Some(wanted))?;
    match size_in_use(place)? {
        Some(now) if now > before => Ok(Grown { before, now }),
        _ => {
            let why = "has not grown: the reason is in the log of its server";
            Err(Failure::failed(place.display(), why).with_status(SOME_FAILED))
        }
    }
}

/// Returns the size of a mounted or served volume; `None` if it is neither. One in a bucket counts
/// as neither: it has no keeper.
fn size_in_use(place: &Path) -> Result<Option<u64>> {
    let facts = match place.is_dir() {
        true => Some(mounted::ask(place, |mount| mount.calls().all_facts(&mount.who))?),
        false if !is_bucket(place) && is_served(place) => remount::facts_of_served(place)?,
        false => None,
    };
    let Some(facts) = facts else { return Ok(None) };
    facts.get("size").and_then(|size| size.parse().ok()).map(Some).ok_or_else(|| {
        let why = "the server is of a version that cannot grow: shoal remount --takeover";
        Failure::failed(place.display(), why)
    })
}
