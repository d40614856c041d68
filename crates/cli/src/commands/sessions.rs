//! `shoal serve`: a volume for other processes, without a mount.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use shoal::raw::is_bucket;
use shoal::{ServeOptions, Volume};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{LogFormat, ServeArgs};
use crate::direct::{self, Direct};
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::logging::{self, Destination};
use crate::rings;
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
    // Before the volume is opened: from then on it is closed in any case.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
    let path = tags::resolve(&args.volume)?;
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
