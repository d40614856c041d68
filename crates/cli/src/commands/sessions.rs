//! `shoal serve`: a volume for other processes, without a mount.

mod follow;
mod kept;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use shoal::raw::{OpenOptions, Volume, is_bucket};
use shoal_fuse::{MountOptions, Served, Sessions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{LogFormat, ServeArgs, WithKeeper};
use crate::commands::keeper::{self, Keeps};
use crate::commands::serve::close;
use crate::direct::{self, Direct};
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::logging::{self, Destination};
use crate::rings::{self, GivenUp, Kept};
use crate::tags;

/// Serves a volume until it is told to end.
pub(crate) fn serve(args: &ServeArgs) -> Result<u8> {
    let destination = match &args.log {
        None => Destination::StandardError,
        Some(path) => {
            let file = File::options().create(true).append(true).open(path);
            let failed = |error| Failure::usage(path.display(), Reason::from(error));
            Destination::File(file.map_err(failed)?)
        }
    };
    let cannot =
        |error| Failure::failed("signals", format!("cannot be caught: {}", Reason::System(error)));
    let path = tags::resolve(&args.volume)?;
    let options = options(args)?;
    let role = follow::role(args, &path)?;
    if has_keeper(args, &path)? && args.kept.is_none() {
        logging::start(destination, args.log_level, LogFormat::Text);
        let _ = rustix::thread::set_name(c"shoal-keeper");
        let given_up = GivenUp::of(&path);
        return keeper::run((Keeps::Volume, path.clone()), arguments(args, &path), false, given_up);
    }
    // Before the volume is opened: from then on it is closed in any case.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
    if let Some(oom_score) = &args.kept {
        let begin_log = || logging::start(destination, args.log_level, LogFormat::Text);
        return kept::run(args, &path, oom_score, (signals, begin_log));
    }
    if let Some(role) = role {
        let begin_log = || logging::start(destination, args.log_level, LogFormat::Text);
        return follow::run((&path, options), role, args.cache, (signals, begin_log));
    }
    let (volume, ring) = open(args, &path)?;
    // What fails until here is said in one line.
    logging::start(destination, args.log_level, LogFormat::Text);
    let source = path.display().to_string();
    let served = Served::new(volume.clone(), &source, &options, None);
    if let Ok(serving) = &served {
        tracing::info!(volume = %source, socket = %serving.socket().display(), "served");
        announce(serving.socket())?;
        let signal = signals.forever().next();
        tracing::info!(signal, sessions = serving.sessions(), "ending");
    }
    let served = served.map(drop);
    let served = served.map_err(|error| Failure::volume(&source, &error).with_status(SOME_FAILED));
    let closed = close(volume, &path).map_err(|failure| failure.with_status(SOME_FAILED));
    if closed.is_ok()
        && let Some(ring) = ring
    {
        rings::remove(&ring);
    }
    served.and(closed)?;
    Ok(OK)
}

/// Returns the options of serving a volume, as of a mount.
fn options(args: &ServeArgs) -> Result<MountOptions> {
    let mut list = Vec::new();
    list.extend(args.allow_other.then(|| "allow_other".to_owned()));
    list.extend(args.read_only.then(|| "ro".to_owned()));
    list.extend(args.metrics.as_ref().map(|address| format!("metrics={address}")));
    let parsed = MountOptions::parse(&list.join(","));
    let parsed = parsed.map_err(|error| Failure::usage("--metrics", error))?;
    let session = args.socket.clone().map_or(Sessions::Auto, Sessions::At);
    Ok(MountOptions { session, ..parsed })
}

/// Returns whether a keeper is wanted, and can be.
fn has_keeper(args: &ServeArgs, path: &Path) -> Result<bool> {
    let refused = match args.read_only {
        // The ring holds what is not written yet; what is written and not flushed is in the memory
        // of the server, not in a file that outlives it.
        _ if is_bucket(path) => "cannot be with a volume in a bucket",
        true => "cannot be with --read-only",
        false => return Ok(args.keeper != Some(WithKeeper::Off)),
    };
    match args.keeper {
        Some(WithKeeper::On) => Err(Failure::usage("--keeper on", refused)),
        Some(WithKeeper::Auto | WithKeeper::Off) | None => Ok(false),
    }
}

/// Returns the command line of the servers.
fn arguments(args: &ServeArgs, path: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["serve".into()];
    if let Some(socket) = &args.socket {
        arguments.extend(["--socket".into(), socket.into()]);
    }
    if args.allow_other {
        arguments.push("--allow-other".into());
    }
    if let Some(bytes) = args.cache {
        arguments.extend(["--cache".into(), bytes.to_string().into()]);
    }
    if let Some(address) = &args.metrics {
        arguments.extend(["--metrics".into(), address.into()]);
    }
    if let Some(log) = &args.log {
        arguments.extend(["--log".into(), log.into()]);
    }
    let level = args.log_level.to_possible_value();
    arguments.extend(level.map(|level| format!("--log-level={}", level.get_name()).into()));
    arguments.extend(["--".into(), path.into()]);
    arguments
}

/// Opens the volume. What is not synced lies in a ring that outlives this process, where there is a
/// place for one; returns that.
fn open(args: &ServeArgs, path: &Path) -> Result<(Arc<Volume>, Option<PathBuf>)> {
    if !args.read_only {
        Direct::take_ring(path)?;
    }
    let ring = match args.read_only {
        _ if is_bucket(path) => None,
        // What another has left stays for whoever may write it.
        true => Kept::find(path)?.map(|kept| (kept.memory.clone(), None)),
        false => rings::make(path).map(|(memory, file)| (Arc::new(memory), Some(file))),
    };
    let (memory, file) = ring.unzip();
    let options = OpenOptions {
        read_only: args.read_only,
        cache_bytes: args.cache.unwrap_or(0),
        disk_cache: direct::disk_cache(path)?,
        ring: memory,
        ..OpenOptions::default()
    };
    let volume = Volume::open(path, &options);
    let volume = volume.map_err(|error| Failure::volume(path.display(), &error))?;
    Ok((Arc::new(volume), file.flatten()))
}

/// Tells whoever waits for it that the volume can be used, and where.
fn announce(socket: &Path) -> Result<()> {
    let mut output = std::io::stdout();
    let told = writeln!(output, "{}", socket.display()).and_then(|()| output.flush());
    told.map_err(|error| Failure::failed("standard output", Reason::System(error)))
}
