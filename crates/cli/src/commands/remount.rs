//! `shoal remount`: asks a standby to be the owner (`serve/follow.rs`), or the keeper of a mount
//! for another server (`keeper.rs`), as whatever else needs another server does.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use shoal::raw::Code;

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
    let place = tags::resolve(&args.directory)?;
    let place = match place.is_dir() {
        true => place,
        false => mounts::of_volume(&place).unwrap_or(place),
    };
    if args.promote {
        let server = keeper_of(&place)?.ok_or_else(|| not_served(&place))?;
        return serve::promote(&place, server, args.force);
    }
    hand_over(&place, None)?;
    Ok(OK)
}

fn not_served(place: &Path) -> Failure {
    let why = "is not a mount of Shoal that is served, nor a served volume";
    Failure::failed(place.display(), why)
}

/// Has this program's executable serve a mount, or a served volume, and, if asked so, the volume
/// grow.
pub(crate) fn hand_over(directory: &Path, grow: Option<u64>) -> Result<()> {
    let keeper = keeper_of(directory)?.ok_or_else(|| not_served(directory))?;
    let shown = directory.display();
    match take_over(keeper, grow) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(Failure::failed(shown, format!("not taken over: {why}"))),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            let again = match (directory.is_dir(), grow) {
                (true, None) => "unmount it, and mount it again with this program",
                (false, None) => "end its server, and serve it again with this program",
                (true, Some(_)) => "unmount it, make it larger, and mount it again",
                (false, Some(_)) => "end its server, make it larger, and serve it again",
            };
            Err(Failure::failed(shown, format!("has no keeper: {again}")))
        }
        Err(error) => {
            let why = format!("its keeper cannot be asked: {}", Reason::System(error));
            Err(Failure::failed(shown, why))
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
    let facts = facts_of_served(place)?
        .ok_or_else(|| Failure::failed(place.display(), "is neither mounted nor served"))?;
    let of = |name: &str| facts.get(name)?.parse().ok();
    Ok(of("keeper").or_else(|| of("server")))
}

/// Returns the facts of the process that serves a volume without a mount; `None` without one.
pub(crate) fn facts_of_served(volume: &Path) -> Result<Option<BTreeMap<String, String>>> {
    let session = match Session::connect(volume, Access::Read) {
        Ok(session) => session,
        Err(error) if error.code() == Code::NotFound => return Ok(None),
        Err(error) => return Err(Failure::usage(volume.display(), error)),
    };
    let facts = session.calls().all_facts(&session.who);
    facts.map(Some).map_err(|error| mounted::failed(&session, &error))
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
