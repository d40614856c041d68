//! Life of a mount: attach to a directory, shake hands with the kernel, serve until unmounted.

mod door;
mod handshake;
mod helper;
pub(crate) mod kept;
pub(crate) mod kernel;
mod monitor;
pub(crate) mod options;
mod remount;
mod rings;
pub(crate) mod served;
mod views;
mod watch;

use crate::dispatch::Worker;
use crate::notices::{Notice, Notices};
use crate::protocol::init::{HAS_EXPIRE_ONLY, Wish};
use crate::protocol::probe::PROBE_NAME;
use crate::service::Serve;
use crate::session::{Rules, Session};
use crate::table;
use crate::transport::Threads;
use crate::transport::device::{self, Task};
use crate::transport::uring::{self, Shape};
use handshake::Offer;
use monitor::Monitor;
use options::MountOptions;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Os;
use shoal::raw::{Code, Error, Ino, Result, Teller, Volume};
use shoal_session::Server;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest write of the ordinary transport in bytes: the kernel's own limit for a request.
const MAX_WRITE: u32 = 1 << 20;
/// The same through rings, where each slot has memory for it.
const MAX_WRITE_RINGS: u32 = 128 << 10;
/// Readahead of a mount in KiB; the kernel's default of 128 makes many small requests of a scan.
const READ_AHEAD_KIB: u32 = 1024;

/// A volume served at a directory.
///
/// Dropping it unmounts the directory as soon as nobody uses it. [`Mount::wait`] ends it in an
/// orderly way.
#[must_use = "dropping a mount unmounts it"]
pub struct Mount {
    dir: PathBuf,
    threads: Threads,
    ended: bool,
    /// Of a mount that outlives its server.
    connection: Option<kept::Connection>,
    /// Shows what it does, and ends with it.
    monitor: Option<Monitor>,
    /// Of a mount that follows a volume of another process.
    follower: Option<views::Follower>,
    /// Serves sessions.
    door: Mutex<Option<Server>>,
}

impl Mount {
    /// Mounts `volume` on `dir`, shown as `source_name` in the list of mounts unless the options
    /// say otherwise. On return requests are being served.
    ///
    /// The server shares ownership of the volume until [`Mount::wait`] has returned. A program
    /// must not touch its own mount while it holds a lock that the server's threads may need.
    pub fn new(
        volume: Arc<Volume>,
        dir: &Path,
        source_name: &str,
        options: &MountOptions,
    ) -> Result<Mount> {
        let top = top(&volume, options)?;
        let notices = Arc::<Notices>::default();
        forget_links(&volume, top, &notices);
        let monitor = monitor::bind(options)?;
        let session = Arc::new(Session::new(volume, rules(options), top, notices));
        if options.follows {
            session.views.follow();
        }
        session.about.begin(options.facts(source_name));
        let mut mount = Mount::serving::<Worker>(session.clone(), dir, source_name, options)?;
        match options.follows {
            true => mount.follow(&session, options),
            false => mount.look_after(&session, options),
        }
        mount.show(&session, options, monitor)?;
        mount.open_door(&session, options, None)?;
        Ok(mount)
    }

    /// Mounts a server `S` of any kind instead of a volume, for measurements and tests of the
    /// transport.
    pub fn serving<S: Serve>(
        shared: Arc<S::Shared>,
        dir: &Path,
        source_name: &str,
        options: &MountOptions,
    ) -> Result<Mount> {
        options.check()?;
        let dir = check_dir(dir)?;
        let source = options.fsname.as_deref().unwrap_or(source_name);
        rings::switch_on(options.io_uring)?;
        let device = attach(&dir, source, options)?;
        // Of a mount that follows, to ask the kernel what it knows.
        let copy = options.follows.then(|| device.try_clone()).transpose();
        let copy = copy.map_err(|error| refused(Code::Io, "cannot copy a descriptor", &error))?;
        match serve::<S>(shared, device, options, Shape::for_writes(MAX_WRITE_RINGS)) {
            Ok(threads) => {
                raise_readahead(&dir);
                if rules(options).no_open {
                    probe(&dir);
                }
                let mount = Mount {
                    dir,
                    threads,
                    ended: false,
                    connection: None,
                    monitor: None,
                    follower: copy.map(views::Follower::new),
                    door: Mutex::default(),
                };
                Ok(mount)
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = detach(&dir);
                Err(error)
            }
        }
    }

    /// Absolute path of the mount point, without symlinks.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits until the directory is unmounted and the last request has been answered. The server
    /// has released the volume then; closing it is up to the caller.
    pub fn wait(mut self) {
        self.threads.wait();
        self.close_door();
        self.ended = true;
    }

    /// As [`Mount::wait`], for a mount that is shared between threads; also returns when it was
    /// paused.
    pub fn wait_for_end(&self) {
        self.threads.wait();
        self.close_door();
    }

    /// Ends all sessions.
    fn close_door(&self) {
        let door = self.door.lock().take();
        drop(door);
    }

    /// Leaves all sessions to another server.
    fn leave_door(&self) {
        let door = self.door.lock().take();
        door.into_iter().for_each(Server::leave);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // One that outlives its server ends only when it is unmounted.
        if !self.ended
            && self.connection.is_none()
            && let Err(error) = detach(&self.dir)
        {
            tracing::debug!(%error, dir = %self.dir.display(), "not unmounted");
        }
    }
}

/// Shakes hands and starts to serve.
fn serve<S: Serve>(
    shared: Arc<S::Shared>,
    device: OwnedFd,
    options: &MountOptions,
    shape: Shape,
) -> Result<Threads> {
    let failed = |error: io::Error| refused(Code::Io, "cannot start the server's threads", &error);
    let offer = Offer::read(&device)?;
    let threads = Threads::default();
    let prepare = || uring::prepare::<S>(&shared, &device, shape, &threads);
    let prepared = rings::prepare(&offer, options.io_uring, prepare)?;
    let wish = Wish {
        max_write: if prepared.is_some() { MAX_WRITE_RINGS } else { MAX_WRITE },
        writeback: options.writeback,
        no_open: rules(options).no_open,
        kernel_checks: options.kernel_checks(),
        lists: !options.no_xattr,
        no_handles: options.no_handles,
        rings: prepared.is_some(),
        follows: options.follows,
    };
    let agreed = offer.answer(&device, &wish)?;
    let max_write = agreed.max_write;
    if let Some(notices) = S::notices(&shared).filter(|_| agreed.has(HAS_EXPIRE_ONLY)) {
        notices.allow_expiry();
    }
    let rings = prepared.map(|prepared| rings::start(prepared, options.io_uring)).transpose()?;
    // Beside rings the device carries almost nothing.
    let idle = rings.as_ref().is_some_and(|rings| rings.refused() == 0);
    let readers = if idle { 1 } else { thread_count(options) };
    let looks = !options.no_busy_poll && !idle;
    let task: Task<S> =
        Task { shared, device, max_write, threads: readers, rings, idle, kept: None, looks };
    device::start(task, &threads).map_err(failed)?;
    Ok(threads)
}

/// Number of threads that read requests.
fn thread_count(options: &MountOptions) -> usize {
    match options.threads {
        0 => std::thread::available_parallelism().map_or(2, |n| n.get().max(2)),
        threads => threads,
    }
}

/// Makes an error of the operating system one line for people.
#[cold]
pub(crate) fn refused(code: Code, what: &str, error: &io::Error) -> Error {
    // Our texts stand alone; the system's end with "(os error 13)", which nobody needs.
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or_default();
    Error::refused(code, format!("{what}: {reason}"))
}

/// Returns the mount point: a directory on which nothing of the kind is mounted yet.
fn check_dir(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    let path = table::canonical(dir)
        .map_err(|error| refused(Code::NotFound, &format!("mount point {shown}"), &error))?;
    if let Ok(Some(there)) = table::mount_at(&path)
        && there.fs_type.starts_with("fuse")
    {
        let source = there.source.display();
        // Attributes may come from the kernel's cache; these figures do not.
        // (The last: the kernel takes a dead server's rings apart in the background.)
        const DEAD: [Os; 3] = [Os::NOTCONN, Os::CONNABORTED, Os::CANCELED];
        let dead = rustix::fs::statfs(&path).is_err_and(|os| DEAD.contains(&os));
        let state = if dead { " and has lost its server: unmount it first" } else { "" };
        let message = format!("mount point {shown} is busy: {source} is mounted there{state}");
        return Err(Error::refused(Code::Busy, message));
    }
    let facts = std::fs::metadata(&path)
        .map_err(|error| refused(Code::NotFound, &format!("mount point {shown}"), &error))?;
    if !facts.is_dir() {
        let message = format!("mount point {shown} is not a directory");
        return Err(Error::refused(Code::NotDirectory, message));
    }
    Ok(path)
}

/// Attaches a new connection to `dir`.
fn attach(dir: &Path, source: &str, options: &MountOptions) -> Result<OwnedFd> {
    let what = format!("cannot mount on {}", dir.display());
    if rustix::process::geteuid().is_root() {
        let mounted = device::open()
            .and_then(|device| kernel::mount(&device, dir, source, options).map(|()| device));
        match mounted {
            Ok(device) => return Ok(device),
            // Root of a container without the right to mount may still be allowed the helper.
            Err(error) if Os::from_io_error(&error) == Some(Os::PERM) => {}
            Err(error) => return Err(refused(code_of(&error), &what, &error)),
        }
    } else if options.suid || options.dev {
        let message = format!("{what}: only root can use the options suid and dev");
        return Err(Error::refused(Code::NotPermitted, message));
    }
    helper::mount(dir, source, options).map_err(|error| refused(Code::NotPermitted, &what, &error))
}

/// Unmounts a directory that [`attach`] mounted.
fn detach(dir: &Path) -> io::Result<()> {
    match kernel::unmount(dir, true) {
        Err(error) if Os::from_io_error(&error) == Some(Os::PERM) => helper::unmount(dir, true),
        outcome => outcome,
    }
}

/// Unmounts `dir` by system call, or by the helper where that is not allowed.
pub(crate) fn unmount_dir(dir: &Path, lazy: bool) -> io::Result<()> {
    match kernel::unmount(dir, lazy) {
        Err(error) if Os::from_io_error(&error) == Some(Os::PERM) => helper::unmount(dir, lazy),
        outcome => outcome,
    }
}

/// Returns the code that comes closest to an error of the system.
pub(crate) fn code_of(error: &io::Error) -> Code {
    let errno = error.raw_os_error().unwrap_or(0);
    Code::ALL.iter().copied().find(|code| code.errno() == errno).unwrap_or(Code::Io)
}

/// Returns the directory that the mount shows as its top.
fn top(volume: &Volume, options: &MountOptions) -> Result<Ino> {
    let Some(name) = &options.subvolume else { return Ok(Ino::ROOT) };
    volume.subvolumes().top(name.as_bytes()).map_err(|error| match error.is(Code::NotFound) {
        true => {
            let message = format!(
                "the volume has no subvolume named \"{name}\"; 'shoal subvolume list' shows its own"
            );
            Error::refused(Code::NotFound, message)
        }
        false => error,
    })
}

/// Makes the kernel forget the attributes of files that lose names with a removed tree, or that a
/// change of a tree has changed: it has not asked for that.
fn forget_links(volume: &Volume, top: Ino, notices: &Arc<Notices>) {
    let notices = notices.clone();
    volume.references().watch_links(move |inodes, teller| {
        let ours = inodes.iter().filter(|ino| top == Ino::ROOT || ino.root() == top.root());
        // The kernel calls the top 1, whatever it is.
        let node = |ino: Ino| if ino == top { Ino::ROOT.0 } else { ino.0 };
        let nodes = ours.map(|ino| node(*ino));
        match teller {
            Teller::Call => notices.tell_all(nodes),
            Teller::Volume => {
                notices.give(nodes.map(|node| Notice::Attributes { node }));
            }
        }
    });
}

/// Division of permission checks between the kernel and Shoal.
fn rules(options: &MountOptions) -> Rules {
    let kernel_checks = options.kernel_checks();
    // Every caller is root, or was checked by the kernel: nothing to check at open.
    let root_only = !options.allow_other && rustix::process::getuid().is_root();
    let send_open = options.send_open.unwrap_or(options.follows || !kernel_checks && !root_only);
    let ask_names = options.allow_other && !kernel_checks;
    let (no_xattr, no_btime) = (options.no_xattr, options.no_btime);
    let tokens = send_open && !options.writeback;
    let (no_open, writeback) = (!send_open, options.writeback);
    Rules { kernel_checks, no_open, no_xattr, no_btime, ask_names, tokens, writeback }
}

/// Lets the kernel learn that it need not send OPEN.
fn probe(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Err(error) = rustix::fs::open(dir.join(PROBE_NAME), flags, Mode::empty()) {
        // It learns by itself when somebody opens a file.
        tracing::debug!(%error, "nothing opened in the new mount");
    }
}

/// Makes the kernel read ahead in larger steps, where it lets us.
fn raise_readahead(dir: &Path) {
    let Ok(Some(entry)) = table::mount_at(dir) else { return };
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
    if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, path, "readahead not raised");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::put;
    use crate::protocol::wire::{AttrOut, FuseAttr};
    use crate::protocol::{Errno, Opcode, Reply, Request};
    use options::Rings;

    #[test]
    fn bad_mount_points_are_refused_in_one_line() {
        let missing = check_dir(Path::new("/no/such/dir")).unwrap_err();
        assert!(missing.code() == Code::NotFound, "{missing}");
        let file = std::env::current_exe().unwrap();
        let file = check_dir(&file).unwrap_err();
        assert!(file.to_string().ends_with("is not a directory"), "{file}");
    }

    /// A root directory and nothing in it.
    struct Empty;

    impl Serve for Empty {
        type Shared = ();

        fn new(_: Arc<()>) -> Empty {
            Empty
        }

        fn handle(&mut self, request: &mut Request<'_>) -> Reply {
            let attr = FuseAttr { ino: 1, mode: 0o040_755, nlink: 2, ..FuseAttr::default() };
            match request.opcode {
                Some(op) if op.is_silent() => Reply::Silent,
                Some(Opcode::Getattr) => {
                    let out = AttrOut { attr, ..AttrOut::default() };
                    put(request.body(), 0, &out).map_or_else(Reply::Error, Reply::Body)
                }
                _ => Reply::Error(Errno::ENOENT),
            }
        }

        fn undo(&self, _: Option<Opcode>, _: &mut [u8]) {}
    }

    /// Slots too small for the largest write are refused when the connection exists already: the
    /// last moment at which rings can fail.
    #[test]
    fn refused_rings_leave_the_mount_on_the_device() {
        if !shoal_skip::can_mount() {
            return;
        }
        let Ok(before) = std::fs::read_to_string(rings::SWITCH) else {
            return shoal_skip::skipped("no FUSE over io_uring in this kernel");
        };
        if let Err(error) = rings::switch_on(Rings::On) {
            return shoal_skip::skipped(&format!("no FUSE over io_uring: {error}"));
        }
        let dir = std::env::temp_dir().join(format!("shoal-refused-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for wanted in [Rings::Auto, Rings::On] {
            let options = MountOptions { io_uring: wanted, ..MountOptions::default() };
            let device = attach(&dir, "empty", &options).unwrap();
            let shape = Shape { depth: 2, payload: 8192 };
            let served = serve::<Empty>(Arc::new(()), device, &options, shape);
            if wanted == Rings::Auto {
                let names = std::fs::read_dir(&dir);
                assert_eq!(names.unwrap_err().kind(), io::ErrorKind::NotFound, "it answers");
                detach(&dir).unwrap();
                served.unwrap().wait();
            } else {
                let error = served.err().unwrap().to_string();
                assert!(error.contains("the kernel has refused the rings"), "{error}");
                detach(&dir).unwrap();
            }
        }
        std::fs::write(rings::SWITCH, before.trim()).unwrap();
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn who_checks() {
        let rules = |list| super::rules(&MountOptions::parse(list).unwrap());
        let shared = rules("allow_other");
        assert!(shared.kernel_checks && shared.no_open && !shared.ask_names);
        assert!(!rules("").ask_names, "one user only");
        let ours = rules("allow_other,no_default_permissions");
        assert!(!ours.kernel_checks && !ours.no_open && ours.ask_names);
        assert!(!rules("open").no_open && rules("no_open").no_open);
        assert!(rules("open").tokens && !shared.tokens && !rules("open,writeback").tokens);
    }
}
