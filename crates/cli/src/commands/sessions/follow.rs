//! `shoal serve --follow` and `--standby`: a volume in a bucket that another process owns, as it is
//! mounted with the options of these names (`serve/follow.rs`).

use std::path::Path;
use std::sync::Arc;

use shoal::raw::{Following, OpenOptions, is_bucket};
use shoal_fuse::{MountOptions, Served};
use signal_hook::iterator::Signals;

use super::announce;
use crate::args::ServeArgs;
use crate::commands::serve::{Follower, NO_SECONDS, Owned, Role, close, end_on_panic};
use crate::direct;
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};

/// Reads the role that the options give; `None`: the owner.
pub(super) fn role(args: &ServeArgs, path: &Path) -> Result<Option<Role>> {
    let (flag, role) = match (&args.follow, &args.standby) {
        (Some(seconds), _) => ("--follow", Role::replica(given(seconds))),
        (None, Some(seconds)) => ("--standby", Role::standby(given(seconds))),
        (None, None) => return Ok(None),
    };
    if !is_bucket(path) {
        return Err(Failure::usage(flag, "needs a volume in a bucket"));
    }
    role.map(Some).ok_or_else(|| Failure::usage(flag, NO_SECONDS))
}

fn given(seconds: &str) -> Option<&str> {
    Some(seconds).filter(|seconds| !seconds.is_empty())
}

/// Serves views of the volume, and the volume itself after a take-over, until a signal. `cache`:
/// bytes of metadata in memory, `None` for the default. `begin_log` starts the log: an error before
/// that is reported in one line.
pub(super) fn run(
    (path, options): (&Path, MountOptions),
    role: Role,
    cache: Option<u64>,
    (mut signals, begin_log): (Signals, impl FnOnce()),
) -> Result<u8> {
    let source = path.display().to_string();
    let failed = |error| Failure::volume(&source, &error);
    let open = OpenOptions {
        cache_bytes: cache.unwrap_or(0),
        disk_cache: direct::disk_cache(path)?,
        ..OpenOptions::default()
    };
    let following = Following::open(path, &open).map_err(failed)?;
    let view = following.view().map_err(failed)?;
    begin_log();
    let (name, read_only) = match role {
        Role::Replica(_) => ("follow", true),
        Role::Standby(_) => ("standby", false),
    };
    let options = MountOptions { follows: true, read_only, also: vec![name.into()], ..options };
    let served = Served::new(Arc::new(view), &source, &options, None);
    let served = Arc::new(served.map_err(|error| failed(error).with_status(SOME_FAILED))?);
    end_on_panic(None);
    let follower = Follower::start(following, served.clone(), role, Owned::default());
    let follower = follower.map_err(|error| Failure::failed("threads", Reason::System(error)))?;
    tracing::info!(volume = %source, socket = %served.socket().display(), ?role, "served");
    announce(served.socket())?;
    let signal = signals.forever().next();
    tracing::info!(signal, sessions = served.sessions(), "ending");
    // No call reaches the volume after this.
    let served_until_now = served.end();
    let owned = follower.end();
    drop(served);
    let closed = owned.take().map_or(Ok(()), |volume| close(volume, path));
    closed.map_err(|failure| failure.with_status(SOME_FAILED))?;
    // Otherwise the log says why.
    Ok(if served_until_now { OK } else { SOME_FAILED })
}
