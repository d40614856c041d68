//! `shoal remount --takeover`, and whatever else needs another server of a mount: asks its keeper
//! for one (`keeper.rs`).

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use crate::args::RemountArgs;
use crate::commands::serve;
use crate::failure::{Failure, OK, Reason, Result};
use crate::keeping::{self, VERSION};
use crate::mounted;
use crate::mounts;
use crate::session::{Access, Session};
use crate::tags;

/// Name of the socket on which a keeper takes requests.
pub(crate) fn name(keeper: u32) -> String {
    format!("shoal-keeper-{keeper}")
}

/// Serves a mount by this program, in place of the one that does.
pub(crate) fn run(args: &RemountArgs) -> Result<u8> {
    if args.promote {
        return serve::promote(&args.directory, args.force);
    }
    let place = tags::resolve(&args.directory)?;
    let place = match place.is_dir() {
        true => place,
        false => mounts::of_volume(&place).unwrap_or(place),
    };
    hand_over(&place, None)?;
    Ok(OK)
}

/// Has this program's executable serve a mount, and, if asked so, its volume grow.
pub(crate) fn hand_over(directory: &Path, grow: Option<u64>) -> Result<()> {
    let Some(keeper) = keeper_of(directory)? else {
        let why = "is not a mount of Shoal that is served, nor a served volume";
        return Err(Failure::failed(directory.display(), why));
    };
    let directory = directory.display();
    match take_over(keeper, grow) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(Failure::failed(directory, format!("not taken over: {why}"))),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            let why = "has no keeper: unmount it, and mount it again with this program";
            Err(Failure::failed(directory, why))
        }
        Err(error) => {
            let why = format!("its keeper cannot be asked: {}", Reason::System(error));
            Err(Failure::failed(directory, why))
        }
    }
}

/// Returns the process to ask about a mount, or about a volume that is served without one.
fn keeper_of(place: &Path) -> Result<Option<u32>> {
    if place.is_dir() {
        return Ok(shoal_fuse::server_pid(place));
    }
    if !place.exists() && !shoal::raw::is_bucket(place) {
        return Ok(None);
    }
    let session = Session::open(place, Access::Read)?;
    if session.direct().is_some() {
        return Err(Failure::failed(place.display(), "is neither mounted nor served"));
    }
    let facts = session
        .calls()
        .all_facts(&session.who)
        .map_err(|error| mounted::failed(&session, &error))?;
    let of = |name: &str| facts.get(name)?.parse().ok();
    Ok(of("keeper").or_else(|| of("server")))
}

/// Has this program's executable take over the mount of a keeper. Returns why it has not.
fn take_over(keeper: u32, grow: Option<u64>) -> std::io::Result<Option<String>> {
    let program = File::open("/proc/self/exe")?;
    let text = match grow {
        Some(size) => format!("{VERSION} {size}"),
        None => VERSION.to_string(),
    };
    match keeping::ask(&name(keeper), keeper, (b'T', &text), &[program.as_fd()])? {
        Some(answer) => Ok(Some(answer.text).filter(|text| !text.is_empty())),
        None => Ok(Some("the keeper has ended".to_owned())),
    }
}
