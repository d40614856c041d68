//! The server of `shoal serve` with a keeper: its sessions go on when it is killed.
//!
//! The keeper is that of mounts (`keeper.rs`), and what is left to the next server has the same
//! form (`serve/kept.rs`): in place of a connection to the kernel it has the memory of sessions.
//! Nobody but sessions has references to inodes, so an unlinked inode that no session has open is
//! free.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use shoal::raw::{HoldLife, Ino, Local, OpenOptions, Outside, RingMemory, Volume, lock_files};
use shoal_fuse::{Handed, Outliving, Served};
use shoal_session::kept::FILES;
use shoal_session::{KeptSessions, Restored};
use signal_hook::iterator::Signals;

use super::announce;
use crate::args::ServeArgs;
use crate::commands::serve::kept::{Estate, Ring, attend, no_keeper, under_keeper};
use crate::commands::serve::{close, end_on_panic, spawn};
use crate::failure::{Failure, OK, Result, SOME_FAILED};
use crate::keeping;
use crate::rings;

/// Identifies the memory of sessions in an estate, with its version.
const STATE: &str = "sessions 2";

/// Serves a volume for the keeper that has started this process. `begin_log` begins the log: what
/// fails before that is said in one line.
pub(super) fn run(
    args: &ServeArgs,
    path: &Path,
    oom_score: &str,
    (signals, begin_log): (Signals, impl FnOnce()),
) -> Result<u8> {
    under_keeper(path, oom_score, |left| match left {
        None => first(args, path, (signals, begin_log)),
        Some(message) => {
            begin_log();
            let estate = Estate::read(message).filter(|estate| estate.mount.state == STATE);
            let why = "the keeper's message is of another version of shoal: serve again";
            let estate = estate.ok_or_else(|| Failure::failed(path.display(), why))?;
            resume(args, path, estate, signals)
        }
    })
}

fn failed(path: &Path, error: &shoal::raw::Error) -> Failure {
    Failure::volume(path.display(), error)
}

/// Opens the volume, and begins to serve it.
fn first(
    args: &ServeArgs,
    path: &Path,
    (signals, begin_log): (Signals, impl FnOnce()),
) -> Result<u8> {
    let (memory, name) = match rings::make(path) {
        Some((memory, file)) => (memory, file.display().to_string()),
        None => {
            let memory = RingMemory::without_name();
            (memory.map_err(|error| failed(path, &error))?, String::new())
        }
    };
    let ring = Arc::new(memory);
    let volume = open(args, path, (HoldLife::Lasting, Vec::new(), ring.clone()))?;
    begin_log();
    let kept = KeptSessions::make(ring.clone()).map_err(|error| failed(path, &error));
    let begun = kept.and_then(|kept| {
        let restored = Restored::none(kept.clone());
        Ok((begin(args, (path, &volume), restored, false)?, kept))
    });
    let (server, kept) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            close(volume, path)?;
            return Err(error.with_status(SOME_FAILED));
        }
    };
    let copy = |file: std::io::Result<_>| file.map_err(|error| no_keeper(path, error));
    let files = lock_files(&volume).map_err(|error| failed(path, &error))?;
    let sessions = kept.files().map(|file| file.try_clone_to_owned());
    let estate = Estate {
        ring: Ring { file: copy(ring.file().try_clone())?.into(), path: name, is_own: true },
        files: files.into_iter().map(OwnedFd::from).collect(),
        mount: Handed {
            state: STATE.to_owned(),
            descriptors: sessions
                .into_iter()
                .collect::<std::io::Result<_>>()
                .map_err(|error| no_keeper(path, error))?,
        },
    };
    estate.leave(std::io::stdin()).map_err(|os| no_keeper(path, os.into()))?;
    announce(server.socket())?;
    serve(path, volume, server, estate, signals)
}

/// Goes on with the sessions of a server before this one.
fn resume(args: &ServeArgs, path: &Path, estate: Estate, signals: Signals) -> Result<u8> {
    let copy = |file: &OwnedFd| file.try_clone().map_err(|error| no_keeper(path, error));
    let memory = RingMemory::of(copy(&estate.ring.file)?.into(), estate.ring.path.clone());
    let ring = Arc::new(memory.map_err(|error| failed(path, &error))?);
    let files: Vec<OwnedFd> = estate.files.iter().map(copy).collect::<Result<_>>()?;
    let files = files.into_iter().map(|file| Arc::new(File::from(file))).collect();
    let volume = open(args, path, (HoldLife::Inherited, files, ring.clone()))?;
    let sessions: Vec<OwnedFd> =
        estate.mount.descriptors.iter().map(copy).collect::<Result<_>>()?;
    let sessions: [OwnedFd; FILES] = sessions.try_into().map_err(|_| {
        Failure::failed(path.display(), "the memory of sessions is missing: serve again")
    })?;
    let kept = KeptSessions::of(sessions, ring).map_err(|error| failed(path, &error))?;
    let local = Local::new(volume.clone());
    let hold = |ino, generation| local.hold_again(ino, generation);
    // Before anything that they have open can be freed.
    let restored = Restored::find(kept, &local, &hold);
    drop(local);
    free_unknown(&volume).map_err(|error| no_keeper(path, error))?;
    let server = begin(args, (path, &volume), restored, true)?;
    estate.leave(std::io::stdin()).map_err(|os| no_keeper(path, os.into()))?;
    serve(path, volume, server, estate, signals)
}

/// Opens the volume with what it has from before.
fn open(
    args: &ServeArgs,
    path: &Path,
    (holds, files, ring): (HoldLife, Vec<Arc<File>>, Arc<RingMemory>),
) -> Result<Arc<Volume>> {
    let cache_bytes = args.cache.unwrap_or(0);
    let (ring, grow) = (Some(ring), args.grow);
    let options = OpenOptions { cache_bytes, ring, holds, files, grow, ..OpenOptions::default() };
    Volume::open(path, &options).map(Arc::new).map_err(|error| failed(path, &error))
}

fn begin(
    args: &ServeArgs,
    (path, volume): (&Path, &Arc<Volume>),
    restored: Restored,
    resumes: bool,
) -> Result<Served> {
    let options = super::options(args)?;
    let source = path.display().to_string();
    // It has started this process.
    let keeper = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid().cast_unsigned());
    let outliving = Outliving { restored, resumes, keeper };
    let served = Served::new(volume.clone(), &source, &options, Some(outliving));
    served.map_err(|error| failed(path, &error))
}

/// Serves until it is told to end.
fn serve(
    path: &Path,
    volume: Arc<Volume>,
    server: Served,
    estate: Estate,
    mut signals: Signals,
) -> Result<u8> {
    end_on_panic(None);
    tracing::info!(volume = %path.display(), socket = %server.socket().display(), "served");
    let server = Arc::new(Mutex::new(Some(server)));
    let (other, name) = (server.clone(), path.display().to_string());
    let leave = move || taken(&other).map(|server| move || server.leave());
    let alone = move || {
        tracing::warn!(volume = %name, "the keeper is gone: if this process is killed too, \
            sessions end; the next open of the volume finds all completed calls");
    };
    attend(&volume, leave, alone).map_err(|error| no_keeper(path, error))?;
    let signal = signals.forever().next();
    // Nothing is there if it stops for another one: then the other thread ends the process.
    let Some(server) = taken(&server) else {
        loop {
            std::thread::park();
        }
    };
    tracing::info!(signal, sessions = server.sessions(), "ending");
    drop(server);
    let closed = close(volume, path);
    let failure = closed.as_ref().err().and_then(Failure::line);
    if failure.is_none() && !estate.ring.path.is_empty() {
        // While it is locked: nobody else has opened it.
        rings::remove(Path::new(&estate.ring.path));
    }
    if let Err(error) = keeping::send(std::io::stdin(), b'E', failure.unwrap_or_default(), &[]) {
        tracing::warn!(%error, "the keeper is gone");
    }
    closed.map(|()| OK)
}

fn taken(server: &Mutex<Option<Served>>) -> Option<Served> {
    server.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Nobody beside sessions: what an earlier server had counted for others is not in use.
struct Nobody(Mutex<Sender<Ino>>);

impl Outside for Nobody {
    fn ask(&self, ino: Ino) {
        // It cannot be sent when the volume is being closed.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(ino);
    }

    fn knows(&self, _: Ino) -> bool {
        false
    }
}

/// Starts the thread that frees unlinked inodes which no session has open.
fn free_unknown(volume: &Arc<Volume>) -> std::io::Result<()> {
    let (sender, unlinked) = mpsc::channel();
    let weak: Weak<Volume> = Arc::downgrade(volume);
    spawn("shoal-inherited", move || {
        for ino in unlinked {
            let Some(volume) = weak.upgrade() else { return };
            volume.references().unknown(ino);
        }
    })?;
    volume.references().watch_unconfirmed(Arc::new(Nobody(Mutex::new(sender))));
    Ok(())
}
