//! `shoal serve`: a volume for other processes, without a mount.

mod kept;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use shoal::raw::is_bucket;
use shoal::{ServeOptions, Volume};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{LogFormat, ServeArgs, WithKeeper};
use crate::commands::keeper::{self, Keeps};
use crate::direct::{self, Direct};
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::logging::{self, Destination};
use crate::rings::{self, GivenUp};
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
    let (volume, ring) = open(args, &path)?;
    // What fails until here is said in one line.
    logging::start(destination, args.log_level, LogFormat::Text);
    let options = ServeOptions::new().allow_other(args.allow_other).read_only(args.read_only);
    let options = match &args.socket {
        Some(socket) => options.socket(socket),
        None => options,
    };
    let served = volume.serve(options);
    if let Ok(serving) = &served {
        tracing::info!(volume = %path.display(), socket = %serving.socket().display(), "served");
        announce(serving.socket())?;
        let signal = signals.forever().next();
        tracing::info!(signal, sessions = serving.sessions(), "ending");
    }
    let served = served.map(drop).map_err(|error| failed(&path, &error).with_status(SOME_FAILED));
    let closed = volume.close();
    let closed = closed.map_err(|refused| failed(&path, &refused.into()).with_status(SOME_FAILED));
    if closed.is_ok()
        && let Some(ring) = ring
    {
        rings::remove(&ring);
    }
    served.and(closed)?;
    Ok(OK)
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
fn open(args: &ServeArgs, path: &Path) -> Result<(Volume, Option<PathBuf>)> {
    if !args.read_only {
        Direct::take_ring(path)?;
    }
    let mut options = Volume::options().read_only(args.read_only);
    if let Some(bytes) = args.cache {
        options = options.cache(bytes);
    }
    if let Some(cache) = direct::disk_cache(path)? {
        options = options.disk_cache(cache.directory, cache.bytes);
    }
    // Its memory is unlocked here, and locked again by the volume.
    let ring = match args.read_only {
        _ if is_bucket(path) => None,
        true => rings::left(path),
        false => rings::make(path).map(|(_memory, ring)| ring),
    };
    if let Some(ring) = &ring {
        options = options.journal_ring(ring);
    }
    let opened = options.open(path);
    let volume = opened.map_err(|error| failed(path, &error))?;
    // What another has left stays for whoever may write it.
    Ok((volume, ring.filter(|_| !args.read_only)))
}

/// Tells whoever waits for it that the volume can be used, and where.
fn announce(socket: &Path) -> Result<()> {
    let mut output = std::io::stdout();
    let told = writeln!(output, "{}", socket.display()).and_then(|()| output.flush());
    told.map_err(|error| Failure::failed("standard output", Reason::System(error)))
}

fn failed(path: &Path, error: &shoal::Error) -> Failure {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    match source {
        Some(error) => Failure::volume(path.display(), error),
        None => Failure::failed(path.display(), error.to_string()),
    }
}
