//! The server of a mount with a keeper (`keeping.rs` has their messages).
//!
//! The socket is used as standard input, without a copy: when that is closed, no thread of this
//! process is in a system call any more, but for some that only talk to the kernel (`apart.rs` of
//! the mount's transport).
//!
//! The text of what it leaves to the next one has four lines: the number of the volume's files, the
//! name of the ring's file, whether that is removed at the end, and the parameters of the
//! connection. The descriptors are those of the ring, of the volume's files and of the connection.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rustix::process::getppid;
use shoal::raw::{HoldLife, RingMemory, Volume};
use shoal_fuse::{Handed, Keeper, Mount};

use super::{Before, Plan, begin, close, detach_from_starter, end_on_panic, end_on_signal, leave};
use super::{open, spawn};
use crate::args::MountArgs;
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::keeping::{self, Message};
use crate::rings;

/// The things that outlive a server, as it gets or leaves them.
pub(crate) struct Estate {
    /// The ring.
    pub ring: Ring,
    /// The volume's files, with its locks.
    pub files: Vec<OwnedFd>,
    /// The connection to the kernel; of a volume that is only served, the memory of its sessions.
    pub mount: Handed,
}

/// The ring's file.
pub(crate) struct Ring {
    /// The open file.
    pub file: OwnedFd,
    /// Its path; "": it has none.
    pub path: String,
    /// It is this command's own, and is removed with the mount.
    pub is_own: bool,
}

/// Serves a mount for the keeper that has started this process.
pub(crate) fn run(plan: &Plan, args: &MountArgs, oom_score: &str) -> Result<u8> {
    begin(plan, args.report_ready)?;
    let keeper = || getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned());
    under_keeper(&plan.directory, oom_score, |left| match left {
        None => first(plan, args.report_ready, keeper()),
        Some(message) => {
            let estate = Estate::read(message).ok_or_else(|| {
                let why = "the keeper's message is of another version of shoal: mount again";
                Failure::failed(plan.directory.display(), why)
            })?;
            resume(plan, keeper(), estate, args.grow)
        }
    })
}

/// Begins as a server that a keeper has started, of what is at a place: calls `serve` with what a
/// server before this one has left, if there was one.
pub(crate) fn under_keeper(
    place: &Path,
    oom_score: &str,
    serve: impl FnOnce(Option<Message>) -> Result<u8>,
) -> Result<u8> {
    let _ = rustix::thread::set_name(c"shoal");
    // The keeper's own standing is not for a process with much memory.
    let score = if oom_score.is_empty() { "0" } else { oom_score };
    let _ = std::fs::write("/proc/self/oom_score_adj", score);
    let start = keeping::receive(std::io::stdin()).map_err(|os| no_keeper(place, os.into()))?;
    match start {
        Some(Message { letter: b'N', .. }) => serve(None),
        Some(message @ Message { letter: b'R', .. }) => {
            serve(Some(message)).inspect_err(|failed| {
                // The keeper tells it if it gives up.
                let why = failed.line().unwrap_or_default();
                let _ = keeping::send(std::io::stdin(), b'F', why, &[]);
            })
        }
        // It was killed meanwhile.
        _ => Err(no_keeper(place, std::io::ErrorKind::UnexpectedEof.into())),
    }
}

/// The failure of a server that has no keeper, or cannot give it what is to outlive the server.
pub(crate) fn no_keeper(place: &Path, error: std::io::Error) -> Failure {
    Failure::failed(place.display(), format!("no word of the keeper: {}", Reason::System(error)))
}

/// Mounts, and serves.
fn first(plan: &Plan, report: bool, keeper: u32) -> Result<u8> {
    let failed = |error| Failure::volume(plan.volume.display(), &error);
    let (memory, path, is_own) = find_ring(plan)?;
    let before =
        Before { holds: HoldLife::Lasting, ring: Some(memory.clone()), ..Before::default() };
    let volume = open(plan, report, before)?;
    let source = plan.volume.display().to_string();
    let outliving = Keeper { pid: keeper, ring: memory.clone() };
    let mounted = Mount::kept(volume.clone(), &plan.directory, &source, &plan.options, &outliving);
    let mount = match mounted {
        Ok(mount) => mount,
        Err(error) => {
            close(volume, &plan.volume)?;
            return Err(Failure::volume(plan.directory.display(), &error).with_status(SOME_FAILED));
        }
    };
    let ring = memory.file().try_clone().map_err(|error| no_keeper(&plan.directory, error))?;
    let estate = Estate {
        ring: Ring { file: ring.into(), path, is_own },
        files: owned(shoal::raw::lock_files(&volume).map_err(failed)?),
        mount: mount
            .handed()
            .map_err(failed)?
            .ok_or_else(|| no_keeper(&plan.directory, std::io::ErrorKind::Unsupported.into()))?,
    };
    catch_signals(&mount, &volume)?;
    if let Err(os) = estate.leave(std::io::stdin()) {
        leave(&plan.directory);
        return Err(no_keeper(&plan.directory, os.into()));
    }
    tracing::info!(volume = %source, directory = %mount.dir().display(), "mounted");
    let gone = report && !detach_from_starter();
    serve(plan, volume, mount, (estate, &memory), gone)
}

/// Goes on with a mount; `grow`: of a volume that becomes larger.
fn resume(plan: &Plan, keeper: u32, estate: Estate, grow: Option<u64>) -> Result<u8> {
    let failed = |error| Failure::volume(plan.volume.display(), &error);
    let copy = |file: &OwnedFd| file.try_clone().map_err(|error| no_keeper(&plan.directory, error));
    let memory = RingMemory::of(copy(&estate.ring.file)?.into(), estate.ring.path.clone());
    let memory = Arc::new(memory.map_err(failed)?);
    let files: Vec<OwnedFd> = estate.files.iter().map(copy).collect::<Result<_>>()?;
    let files = files.into_iter().map(|file| Arc::new(File::from(file))).collect();
    let before = Before { holds: HoldLife::Inherited, files, ring: Some(memory.clone()), grow };
    let volume = open(plan, false, before)?;
    let handed = Handed {
        state: estate.mount.state.clone(),
        descriptors: estate.mount.descriptors.iter().map(copy).collect::<Result<_>>()?,
    };
    let outliving = Keeper { pid: keeper, ring: memory.clone() };
    let mount = Mount::resume(volume.clone(), &plan.directory, &plan.options, &outliving, handed);
    let mount = mount.map_err(failed)?;
    catch_signals(&mount, &volume)?;
    estate.leave(std::io::stdin()).map_err(|os| no_keeper(&plan.directory, os.into()))?;
    tracing::info!(directory = %mount.dir().display(), "serving again");
    serve(plan, volume, mount, (estate, &memory), false)
}

/// Has panics and signals end this server. Must be called before the keeper, or who has asked for
/// the mount, is told that it serves: after that they send signals.
fn catch_signals(mount: &Mount, volume: &Arc<Volume>) -> Result<()> {
    end_on_panic(None);
    let last = Arc::downgrade(volume);
    end_on_signal(mount.dir(), move || last.upgrade().map(|volume| volume.sync()))
}

/// Serves until the mount has ended. `gone`: nobody wants it.
fn serve(
    plan: &Plan,
    volume: Arc<Volume>,
    mount: Mount,
    (estate, memory): (Estate, &RingMemory),
    gone: bool,
) -> Result<u8> {
    let directory = mount.dir().to_owned();
    let mount = Arc::new(mount);
    let (served, shown) = (Arc::downgrade(&mount), directory.display().to_string());
    let taken = move || {
        let mount = served.upgrade()?;
        Some(move || {
            if !mount.pause() {
                tracing::warn!("a request takes long: it will be answered by the next server");
            }
        })
    };
    let alone = move || {
        tracing::warn!(directory = %shown, "the keeper is gone: if this process is killed too, \
            callers get an error; the next mount finds all completed calls");
    };
    attend(&volume, taken, alone)
        .map_err(|error| Failure::failed(directory.display(), Reason::System(error)))?;
    if gone {
        tracing::warn!("the mount was given up by the process that asked for it");
        leave(&directory);
    }
    mount.wait_for_end();
    if mount.is_paused() {
        // The other thread ends the process.
        loop {
            thread::park();
        }
    }
    drop(mount);
    let closed = close(volume, &plan.volume);
    let failure = closed.as_ref().err().and_then(Failure::line);
    // A volume that was only read still needs what a killed mount has left in it.
    let is_needed = plan.options.read_only && memory.holds_records();
    let is_spent = failure.is_none() && !is_needed;
    if is_spent && estate.ring.is_own && !estate.ring.path.is_empty() {
        // While it is locked: nobody else has opened it.
        rings::remove(Path::new(&estate.ring.path));
    }
    if let Err(error) = keeping::send(std::io::stdin(), b'E', failure.unwrap_or_default(), &[]) {
        tracing::warn!(%error, "the keeper is gone");
    }
    closed?;
    tracing::info!(directory = %directory.display(), "unmounted");
    Ok(OK)
}

/// Starts the thread that hears the keeper. For another server, `taken` takes what this one serves,
/// and returns what stops that; `None`: it has ended. `alone` says what is lost without a keeper.
pub(crate) fn attend<S: FnOnce()>(
    volume: &Arc<Volume>,
    taken: impl Fn() -> Option<S> + Send + 'static,
    alone: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    let volume = Arc::downgrade(volume);
    spawn("shoal-keeping", move || {
        while let Ok(Some(Message { letter, .. })) = keeping::receive(std::io::stdin()) {
            match letter {
                b'Y' => {
                    let Some(volume) = volume.upgrade() else { return };
                    let Some(stop) = taken() else { return };
                    yield_to_next(&volume, stop);
                }
                letter => tracing::warn!(letter, "unknown message of the keeper"),
            }
        }
        alone();
    })
}

/// Stops for another server, and ends the process.
fn yield_to_next(volume: &Volume, stop: impl FnOnce()) {
    tracing::info!("stopping: another program takes over");
    // While calls go on, so that little is left for the checkpoint in the pause.
    let written = volume.maintenance().checkpoint();
    // After a failure too: what is not left to the next server would be given back.
    stop();
    if let Err(error) = written.and_then(|()| shoal::raw::hand_over(volume)) {
        // The next one recovers, as after a crash.
        tracing::error!(%error, "no checkpoint before the take-over");
    }
    let _ = keeping::send(std::io::stdin(), b'Y', "", &[]);
    // Its memory takes long to be given back, which nobody waits for.
    std::process::exit(OK.into());
}

impl Estate {
    /// Reads what the keeper has handed on.
    pub(crate) fn read(message: Message) -> Option<Estate> {
        let mut lines = message.text.splitn(4, '\n');
        let files: usize = lines.next()?.parse().ok()?;
        let (path, is_own) = (lines.next()?.to_owned(), lines.next()? == "own");
        let state = lines.next()?.to_owned();
        let mut descriptors = message.descriptors.into_iter();
        let file = descriptors.next()?;
        let files: Vec<OwnedFd> = descriptors.by_ref().take(files).collect();
        let mount = Handed { state, descriptors: descriptors.collect() };
        let whole = !files.is_empty() && !mount.descriptors.is_empty();
        whole.then_some(Estate { ring: Ring { file, path, is_own }, files, mount })
    }

    /// Leaves everything to the keeper.
    pub(crate) fn leave(&self, socket: impl AsFd) -> Result<(), rustix::io::Errno> {
        let Ring { file, path, is_own } = &self.ring;
        let own = if *is_own { "own" } else { "given" };
        let text = format!("{}\n{path}\n{own}\n{}", self.files.len(), self.mount.state);
        let all = std::iter::once(file).chain(&self.files).chain(&self.mount.descriptors);
        keeping::send(socket, b'K', &text, &all.map(AsFd::as_fd).collect::<Vec<_>>())
    }
}

fn owned(files: Vec<File>) -> Vec<OwnedFd> {
    files.into_iter().map(OwnedFd::from).collect()
}

/// Opens the memory of the journal's ring. Returns its path, "" if it has none, and whether it is
/// this command's own.
fn find_ring(plan: &Plan) -> Result<(Arc<RingMemory>, String, bool)> {
    let failed = |error| Failure::volume(plan.volume.display(), &error);
    if let Some(path) = &plan.options.journal_ring {
        let name = path.display().to_string();
        return Ok((Arc::new(RingMemory::open(path).map_err(failed)?), name, false));
    }
    let (memory, path) = match rings::make(&plan.volume) {
        Some((memory, path)) => (memory, path.display().to_string()),
        None => (RingMemory::without_name().map_err(failed)?, String::new()),
    };
    Ok((Arc::new(memory), path, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> OwnedFd {
        File::open("/dev/null").expect("/dev/null").into()
    }

    #[test]
    fn an_estate_is_read_as_it_was_left() {
        let (ours, theirs) = keeping::pair().expect("sockets");
        let mount = Handed { state: "1 2 3".to_owned(), descriptors: vec![null(), null()] };
        let ring = Ring { file: null(), path: "/run/r".to_owned(), is_own: true };
        let estate = Estate { ring, files: vec![null()], mount };
        estate.leave(&ours).expect("left");
        let message = keeping::receive(&theirs).expect("received").expect("a message");
        let read = Estate::read(message).expect("understood");
        assert_eq!((&*read.ring.path, read.ring.is_own), ("/run/r", true));
        assert_eq!((read.files.len(), read.mount.descriptors.len()), (1, 2));
        assert_eq!(read.mount.state, "1 2 3");
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        for (text, count) in
            [("", 5), ("x\n\nown\ns", 5), ("1\n/r\nown\ns", 2), ("0\n/r\nown\ns", 3), ("1\n/r", 5)]
        {
            let descriptors = (0..count).map(|_| null()).collect();
            let message = Message { letter: b'R', text: text.to_owned(), descriptors };
            assert!(Estate::read(message).is_none(), "{text:?}");
        }
    }
}
