//! The process that serves a mount, from opening the volume to closing it.
//!
//! How it ends:
//!
//! - unmounted by anybody: the server's threads end, the volume is closed;
//! - SIGTERM or SIGINT: unmount, lazily if files are in use, then the same; a second signal makes
//!   everything durable and exits without waiting for the last user;
//! - a panic in any thread: memory cannot be trusted any more, so nothing of it is written. The
//!   mount is detached and the process exits, as after a crash: callers get an error instead of
//!   waiting for ever, and the next mount recovers the durable state.

mod follow;
pub(crate) mod kept;

pub(crate) use follow::{
    Follower, NO_SECONDS, Owned, Role, check as check_role, promote, run as run_following,
};
pub(crate) use kept::run as run_kept;

use std::fs::File;
use std::io::Write;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::stdio;
use shoal::raw::{HoldLife, OpenOptions, RingMemory, Volume, is_bucket};
use shoal_fuse::{Mount, MountOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{LogFormat, LogLevel};
use crate::commands::end::Teller;
use crate::direct::{self, Direct};
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::logging::{self, Destination};
use crate::progress::eprint_line;

/// Configuration of a mount, from the command line and `-o` together.
pub(crate) struct Plan {
    /// The volume, as an absolute path.
    pub volume: PathBuf,
    /// The mount point, as an absolute path.
    pub directory: PathBuf,
    /// Options of the mount and of opening the volume.
    pub options: MountOptions,
    /// Accepted options of `-o`, as they were written.
    pub accepted: Vec<String>,
    /// Open the volume although another process has a claim on it.
    pub force: bool,
    /// Destination of the log; `None` for the default.
    pub log: Option<PathBuf>,
    /// Least severity that is logged.
    pub log_level: LogLevel,
    /// Form of the log's lines.
    pub log_format: LogFormat,
    /// The wish that programs on the mount outlive its server.
    pub keeper: KeeperWish,
    /// Of a volume that another process owns.
    pub role: Option<Role>,
}

/// The wish that programs on a mount outlive its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeeperWish {
    /// Fulfilled where it costs nothing that was asked for.
    Auto,
    /// The mount fails without.
    On,
    /// No.
    Off,
}

impl KeeperWish {
    /// Reads the value of the mount option.
    pub(crate) fn parse(value: &str) -> Result<KeeperWish> {
        match value {
            "auto" => Ok(KeeperWish::Auto),
            "on" | "yes" => Ok(KeeperWish::On),
            "off" | "no" => Ok(KeeperWish::Off),
            _ => {
                let object = format!("mount option \"keeper={value}\"");
                Err(Failure::usage(object, "needs auto, on or off"))
            }
        }
    }
}

impl Plan {
    /// Returns whether the mount has a keeper. Fails if it cannot have the one that it must.
    pub(crate) fn has_keeper(&self) -> Result<bool> {
        let rings = self.options.needs_rings();
        let object = "mount option \"keeper=on\"";
        if is_bucket(&self.volume) {
            // The ring holds what is not written yet; what is written and not flushed is in the
            // memory of the server, not in a file that outlives it.
            let why = "cannot be with a volume in a bucket";
            return match self.keeper {
                KeeperWish::On => Err(Failure::usage(object, why)),
                KeeperWish::Auto | KeeperWish::Off => Ok(false),
            };
        }
        match self.keeper {
            KeeperWish::Off => Ok(false),
            KeeperWish::Auto => Ok(!rings && shoal_fuse::can_be_kept()),
            KeeperWish::On if rings => {
                let why = "cannot be with io_uring=on: a ring's requests die with its server";
                Err(Failure::usage(object, why))
            }
            KeeperWish::On if !shoal_fuse::can_be_kept() => {
                Err(Failure::usage(object, "needs Linux 6.9 or newer"))
            }
            KeeperWish::On => Ok(true),
        }
    }
}

/// Line on the server's standard output when the mount is usable.
pub(crate) const READY: &str = "ready";

/// Longest wait for the other threads to release the volume after the mount has ended.
const LET_GO: Duration = Duration::from_secs(5);
/// Longest wait for the mount to be detached after a panic, before the process exits anyway.
const DETACH: Duration = Duration::from_secs(2);

/// Serves a mount until it is unmounted. `report`: standard output is a pipe to the process that
/// waits for the mount to be usable.
pub(crate) fn run(plan: &Plan, report: bool) -> Result<u8> {
    begin(plan, report)?;
    if !plan.options.read_only {
        Direct::take_ring(&plan.volume)?;
    }
    let volume = open(plan, report, Before::default())?;
    let source = plan.volume.display().to_string();
    let mounted = Mount::new(Arc::clone(&volume), &plan.directory, &source, &plan.options);
    let mount = match mounted {
        Ok(mount) => mount,
        Err(error) => {
            close(volume, &plan.volume)?;
            return Err(Failure::volume(plan.directory.display(), &error).with_status(SOME_FAILED));
        }
    };
    let directory = mount.dir().to_owned();
    end_on_panic(Some(&directory));
    let last = Arc::downgrade(&volume);
    end_on_signal(&directory, move || last.upgrade().map(|volume| volume.sync()))?;
    let teller = Teller::listen();
    tracing::info!(volume = %source, directory = %directory.display(), "mounted");
    if report && !detach_from_starter() {
        // The mount was interrupted while it was being made.
        tracing::warn!("the mount was given up by the process that asked for it");
        drop(mount);
    } else {
        mount.wait();
    }
    finish(plan, &directory, Some(volume), teller)
}

/// Ends a mount whose requests have ended: closes the volume, if it can be changed here, and tells
/// those who unmount.
fn finish(
    plan: &Plan,
    directory: &Path,
    volume: Option<Arc<Volume>>,
    teller: Teller,
) -> Result<u8> {
    if shoal_fuse::server_pid(directory) == Some(std::process::id()) {
        // The threads have ended but the mount has not.
        leave(directory);
    }
    let closed = volume.map_or(Ok(()), |volume| close(volume, &plan.volume));
    teller.tell(closed.as_ref().err().and_then(Failure::line));
    closed?;
    let volume = plan.volume.display();
    tracing::info!(%volume, directory = %directory.display(), "unmounted");
    Ok(OK)
}

/// Begins a process that serves, or keeps, a mount.
fn begin(plan: &Plan, report: bool) -> Result<()> {
    if report {
        // A session of its own: the terminal's signals are not for it. It fails only if this has
        // been done already.
        let _ = rustix::process::setsid();
    }
    logging::start(destination(plan, report)?, plan.log_level, plan.log_format);
    Ok(())
}

/// Prepares this process to be a keeper.
pub(crate) fn prepare_keeper(plan: &Plan, report: bool) -> Result<()> {
    begin(plan, report)?;
    // `ps` then tells the two processes apart.
    let _ = rustix::thread::set_name(c"shoal-keeper");
    Ok(())
}

/// Returns the destination of the log. In the background standard error is shared with the starter
/// only until the mount is usable, and may be a pipe that nobody reads after that.
fn destination(plan: &Plan, background: bool) -> Result<Destination> {
    match &plan.log {
        Some(path) => {
            let file = File::options().create(true).append(true).open(path);
            let file = file.map_err(|error| Failure::usage(path.display(), Reason::from(error)))?;
            Ok(Destination::File(file))
        }
        None if background => Ok(Destination::system_log()),
        None => Ok(Destination::StandardError),
    }
}

/// Opens the volume, which recovers it if need be. `report`: standard error is the starter's, and
/// the log goes elsewhere.
fn open(plan: &Plan, report: bool, before: Before) -> Result<Arc<Volume>> {
    let default = plan.options.open_options();
    let Before { holds, files, ring, grow } = before;
    let ring = match (ring, &plan.options.journal_ring) {
        (None, Some(path)) => Some(RingMemory::open(path).map(Arc::new)),
        (ring, _) => ring.map(Ok),
    };
    let ring = ring.transpose();
    let ring = ring.map_err(|error| Failure::volume(plan.volume.display(), &error))?;
    let notice = if report { tell_starter } else { default.notice };
    let options = OpenOptions { force: plan.force, notice, ring, holds, files, grow, ..default };
    let volume = Volume::open(&plan.volume, &options)
        .map_err(|error| Failure::volume(plan.volume.display(), &error))?;
    direct::warn_if_readable(&plan.volume, notice);
    let recovery = volume.info().recovery;
    if recovery.needed {
        tracing::info!(
            volume = %plan.volume.display(),
            records = recovery.records,
            kept = recovery.kept,
            bytes = recovery.bytes,
            orphans = recovery.orphans,
            seconds = recovery.seconds,
            torn = recovery.torn.as_deref().unwrap_or("no"),
            "the volume had not been closed; recovered"
        );
    }
    Ok(Arc::new(volume))
}

/// Things that an open volume has from before, or shares with the process that comes after.
#[derive(Default)]
struct Before {
    /// Life of the references of the mount's kernel.
    holds: HoldLife,
    /// Files with the locks of the volume; none: they are taken.
    files: Vec<Arc<File>>,
    /// Memory of the journal's ring.
    ring: Option<Arc<RingMemory>>,
    /// Size that the volume gets.
    grow: Option<u64>,
}

fn tell_starter(notice: &str) {
    tracing::warn!("{notice}");
    eprint_line(notice);
}

/// Closes the volume once all other threads have released it.
pub(crate) fn close(mut volume: Arc<Volume>, path: &Path) -> Result<()> {
    let started = Instant::now();
    let result = loop {
        match Arc::try_unwrap(volume) {
            Ok(volume) => break volume.close(),
            Err(shared) if started.elapsed() < LET_GO => {
                volume = shared;
                thread::sleep(Duration::from_millis(1));
            }
            // Still durable, only not marked as closed.
            Err(shared) => break shared.sync(),
        }
    };
    result.map_err(|error| {
        tracing::error!(volume = %path.display(), %error, "closing failed");
        Failure::volume(path.display(), &error)
    })
}

/// Closes everything shared with the starter and reports that the mount is usable. `false` if the
/// starter is gone.
fn detach_from_starter() -> bool {
    let null = File::options().read(true).write(true).open("/dev/null");
    // A pipe kept open would make its reader wait for the end of the mount.
    if let Ok(null) = &null {
        let _ = stdio::dup2_stderr(null);
    }
    // The directory it was started in must not stay busy.
    let _ = std::env::set_current_dir("/");
    let mut output = std::io::stdout();
    let told = writeln!(output, "{READY}").and_then(|()| output.flush());
    if let Ok(null) = &null {
        let _ = stdio::dup2_stdout(null);
    }
    told.is_ok()
}

/// Detaches the mount, in use or not.
fn leave(directory: &Path) {
    let left = shoal_fuse::unmount(directory).or_else(|_| shoal_fuse::unmount_lazy(directory));
    if let Err(error) = left {
        tracing::error!(%error, "not unmounted");
    }
}

/// Ends the mount when the process is told to terminate. `sync` makes durable what it has changed.
fn end_on_signal(
    directory: &Path,
    sync: impl Fn() -> Option<shoal::raw::Result<()>> + Send + 'static,
) -> Result<()> {
    let cannot =
        |error| Failure::failed("signals", format!("cannot be caught: {}", Reason::System(error)));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
    let directory = directory.to_owned();
    let wait = move || {
        let mut signals = signals.forever();
        if let Some(signal) = signals.next() {
            tracing::info!(signal, "unmounting");
            leave(&directory);
        }
        if let Some(signal) = signals.next() {
            tracing::warn!(signal, "ending before the last user has left");
            if let Some(Err(error)) = sync() {
                tracing::error!(%error, "not everything is on disk");
            }
            std::process::exit(SOME_FAILED.into());
        }
    };
    spawn("shoal-signals", wait).map_err(cannot)
}

/// Ends the process when any of its threads panics. `directory`: of a mount that ends with it.
pub(crate) fn end_on_panic(directory: Option<&Path>) {
    let (panicked, panics): (Sender<()>, _) = mpsc::channel();
    let directory = directory.map(Path::to_owned);
    // The thread that panics may hold any lock, so another one does the work.
    let wait = move || {
        if panics.recv().is_ok() {
            let (done, detached) = mpsc::channel();
            let detach = move || {
                if let Some(directory) = directory {
                    let _ = shoal_fuse::unmount_lazy(&directory);
                }
                let _ = done.send(());
            };
            if spawn("shoal-detach", detach).is_ok() {
                let _ = detached.recv_timeout(DETACH);
            }
            std::process::exit(SOME_FAILED.into());
        }
    };
    if let Err(error) = spawn("shoal-panics", wait) {
        tracing::warn!(%error, "a panic will not end the mount");
        return;
    }
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // Before anything else, which may be interrupted.
        shoal::raw::call_panicked();
        let thread = thread::current();
        tracing::error!(
            thread = thread.name().unwrap_or("unnamed"),
            "internal error, ending the mount; synced changes are safe: {info}"
        );
        report(info);
        let _ = panicked.send(());
    }));
}

pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}
