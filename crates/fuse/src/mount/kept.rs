//! A mount that outlives its server.
//!
//! Problem: the kernel ends a FUSE connection when the last descriptor of it is closed, and every
//! program on the mount fails. Rule: another process, the *keeper*, holds the descriptors too
//! ([`Mount::handed`]). When the server dies, the keeper starts another one with them
//! ([`Mount::resume`]); callers wait meanwhile.
//!
//! | what the dead server had | what the next one does |
//! | --- | --- |
//! | calls that had returned | recovery finds their records in the journal's ring, which outlives the process |
//! | requests read and not answered | the kernel sends them again; those that were carried out are not carried out twice ([`crate::calls`]) |
//! | counts of the kernel's references | it asks the kernel about unlinked inodes ([`crate::inherited`]) |
//! | notices that it owed the kernel | the kernel forgets all that the last records have changed |
//! | files opened by tokens | they are gone: `ESTALE` |
//! | sessions: open nodes, calls not answered | they are in memory of their own, which goes from server to server ([`shoal_session::KeptSessions`]) |
//!
//! Requests come through the device only. Those that a dead server had taken from a ring are lost
//! to the kernel (Linux 6.18): their callers get an error, or wait for ever.
//!
//! The connection's parameters come from the first server's handshake. They go from server to
//! server as a line of text, with the descriptors.

use super::handshake::Offer;
use super::options::{MountOptions, Sessions};
use super::{MAX_WRITE, Mount, forget_links, monitor, refused, rules, thread_count, top, watch};
use super::{attach, check_dir, code_of, detach, probe, raise_readahead};
use crate::calls::Calls;
use crate::dispatch::Worker;
use crate::inherited::{buffer, notice};
use crate::notices::Notices;
use crate::protocol::init::{HAS_EXPIRE_ONLY, HAS_RESEND, Wish};
use crate::protocol::notify::Notification;
use crate::session::Session;
use crate::transport::device::{self, Kept, Task};
use crate::transport::pause::Pause;
use crate::transport::{Threads, apart};
use parking_lot::Mutex;
use rustix::io::Errno as Os;
use shoal::raw::{Code, Error, Ino, Local, Outside, Result, RingMemory, Volume};
use shoal_session::kept::{FILES as SESSION_FILES, FILES_BEFORE};
use shoal_session::{KeptSessions, Restored};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Version of [`Handed::state`] without memory of sessions, with it, and with that of servers from
/// before there were copies of directories, whose sessions end.
const VERSION: &str = "1";
const VERSION_SESSIONS: &str = "3";
const VERSION_SESSIONS_BEFORE: &str = "2";
/// Longest wait for requests in work before a server is replaced.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The things that a server needs to go on with a mount.
#[derive(Debug)]
pub struct Handed {
    /// Parameters of the connection.
    pub state: String,
    /// The memory of sessions, if there is one; the connection, and clones of its descriptor.
    pub descriptors: Vec<OwnedFd>,
}

/// Parameters of a connection, agreed upon by the first server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parameters {
    max_write: u32,
    can_expire: bool,
    /// The first descriptors are of the memory of sessions: so many.
    session_files: usize,
}

/// Process and memory that outlive a server.
#[derive(Clone, Debug)]
pub struct Keeper {
    /// Its process: clients take it for the server.
    pub pid: u32,
    /// Memory of the journal's ring, which notes calls in work.
    pub ring: Arc<RingMemory>,
}

/// Descriptors of a mount that outlives its server.
pub(super) struct Connection {
    parameters: Parameters,
    descriptors: Vec<OwnedFd>,
    pause: Pause,
    session: Option<Arc<Session>>,
    /// Memory of sessions, if they are wanted.
    sessions: Option<Arc<KeptSessions>>,
}

impl Connection {
    fn new(
        parameters: Parameters,
        descriptors: Vec<OwnedFd>,
        sessions: Option<Arc<KeptSessions>>,
    ) -> Connection {
        let (pause, session) = (Pause::default(), None);
        let session_files = if sessions.is_some() { SESSION_FILES } else { 0 };
        let parameters = Parameters { session_files, ..parameters };
        Connection { parameters, descriptors, pause, session, sessions }
    }

    /// Finds what sessions have at a server before this one, and holds it.
    fn restored(&self, session: &Session, inherited: bool) -> Option<Restored> {
        let kept = self.sessions.clone()?;
        if !inherited {
            return Some(Restored::none(kept));
        }
        let local = Local::new(session.views.keep());
        let hold = |ino, generation| local.hold_again(ino, generation);
        Some(Restored::find(kept, &local, &hold))
    }
}

/// Makes memory of sessions, if they are wanted.
fn make_sessions(options: &MountOptions, keeper: &Keeper) -> Option<Arc<KeptSessions>> {
    if matches!(options.session, Sessions::Off) || options.writeback {
        return None;
    }
    let made = KeptSessions::make(keeper.ring.clone());
    made.inspect_err(|error| tracing::warn!(%error, "sessions end with their server")).ok()
}

/// Returns whether the kernel can give requests to another server: Linux 6.9 or newer.
pub fn can_be_kept() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9)
}

impl Mount {
    /// As [`Mount::new`], for a mount that outlives this process. The volume must have been opened
    /// with the keeper's ring, and as one whose references are lasting.
    pub fn kept(
        volume: Arc<Volume>,
        dir: &Path,
        source_name: &str,
        options: &MountOptions,
        keeper: &Keeper,
    ) -> Result<Mount> {
        options.check()?;
        let dir = check_dir(dir)?;
        let source = options.fsname.as_deref().unwrap_or(source_name);
        let top = top(&volume, options)?;
        let device = attach(&dir, source, options)?;
        let begun = shake_hands(&device, options)
            .and_then(|parameters| {
                let descriptors = descriptors(device, thread_count(options))?;
                let calls = Calls::new(keeper.ring.clone());
                let sessions = make_sessions(options, keeper);
                let connection = Connection::new(parameters, descriptors, sessions);
                begin((volume, top), &dir, options, (calls, keeper.pid), connection, false)
            })
            .inspect_err(|_| {
                // The first error is the one to report.
                let _ = detach(&dir);
            })?;
        raise_readahead(&dir);
        if rules(options).no_open {
            probe(&dir);
        }
        Ok(begun)
    }

    /// Goes on with a mount whose server has ended. The volume must have been opened as one with
    /// inherited references, and with the ring of that server.
    ///
    /// # Errors
    /// `EINVAL` for parameters of another version.
    pub fn resume(
        volume: Arc<Volume>,
        dir: &Path,
        options: &MountOptions,
        keeper: &Keeper,
        handed: Handed,
    ) -> Result<Mount> {
        let parameters = Parameters::parse(&handed.state)?;
        let top = top(&volume, options)?;
        let calls = Calls::inherited(keeper.ring.clone());
        let mut descriptors = handed.descriptors;
        if descriptors.len() <= parameters.session_files {
            return Err(Error::refused(Code::Invalid, "descriptors of the mount are missing"));
        }
        let files: Vec<OwnedFd> = descriptors.drain(..parameters.session_files).collect();
        let sessions = match files.try_into() {
            Ok(files) => Some(KeptSessions::of(files, keeper.ring.clone())?),
            // There were none, or those of before, which end.
            Err(_) => make_sessions(options, keeper),
        };
        let connection = Connection::new(parameters, descriptors, sessions);
        begin((volume, top), dir, options, (calls, keeper.pid), connection, true)
    }

    /// Returns what another server needs to go on with this mount; `None` if it does not outlive
    /// its server.
    pub fn handed(&self) -> Result<Option<Handed>> {
        let Some(connection) = &self.connection else { return Ok(None) };
        let sessions = connection.sessions.iter().flat_map(|sessions| sessions.files());
        let copy = sessions.map(|file| file.try_clone_to_owned());
        let copy = copy.chain(connection.descriptors.iter().map(OwnedFd::try_clone));
        let descriptors = copy.collect::<io::Result<_>>();
        let descriptors =
            descriptors.map_err(|error| refused(Code::Io, "cannot copy a descriptor", &error))?;
        Ok(Some(Handed { state: connection.parameters.to_string(), descriptors }))
    }

    /// Stops serving, so that another server can go on: requests in work are answered, later ones
    /// wait for it. There is no way back. Returns `false` if requests take too long.
    pub fn pause(&self) -> bool {
        let Some(connection) = &self.connection else { return true };
        self.leave_door();
        if let Some(session) = &connection.session {
            session.inherited.close();
        }
        let has_stopped = connection.pause.stop(PAUSE_MAX);
        for device in &connection.descriptors {
            // Threads that look have changed it, and an older program reads again and again.
            let _ = rustix::io::ioctl_fionbio(device, false);
        }
        has_stopped
    }
}

impl Mount {
    /// Returns whether serving was stopped ([`Mount::pause`]).
    pub fn is_paused(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.pause.is_stopped())
    }
}

impl std::fmt::Display for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = match self.session_files {
            0 => VERSION,
            FILES_BEFORE => VERSION_SESSIONS_BEFORE,
            _ => VERSION_SESSIONS,
        };
        write!(f, "{version} {} {}", self.max_write, u8::from(self.can_expire))
    }
}

impl Parameters {
    fn parse(line: &str) -> Result<Parameters> {
        let mut words = line.split(' ');
        let parsed = match (words.next(), words.next(), words.next(), words.next()) {
            (
                Some(version @ (VERSION | VERSION_SESSIONS | VERSION_SESSIONS_BEFORE)),
                Some(max_write),
                Some(expire @ ("0" | "1")),
                None,
            ) => {
                let max_write = max_write.parse().ok().filter(|bytes| *bytes <= MAX_WRITE);
                let can_expire = expire == "1";
                let session_files = match version {
                    VERSION_SESSIONS => SESSION_FILES,
                    VERSION_SESSIONS_BEFORE => FILES_BEFORE,
                    _ => 0,
                };
                max_write.map(|max_write| Parameters { max_write, can_expire, session_files })
            }
            _ => None,
        };
        parsed.ok_or_else(|| {
            let message = format!("cannot go on with a mount of another version: \"{line}\"");
            Error::refused(Code::Invalid, message)
        })
    }
}

fn shake_hands(device: &OwnedFd, options: &MountOptions) -> Result<Parameters> {
    let offer = Offer::read(device)?;
    if !offer.has(HAS_RESEND) {
        let why =
            "a mount that outlives its server needs Linux 6.9 or newer: mount with keeper=off";
        return Err(Error::refused(Code::Invalid, why));
    }
    let wish = Wish {
        max_write: MAX_WRITE,
        writeback: options.writeback,
        no_open: rules(options).no_open,
        kernel_checks: options.kernel_checks(),
        lists: !options.no_xattr,
        no_handles: options.no_handles,
        rings: false,
        follows: false,
    };
    let agreed = offer.answer(device, &wish)?;
    let can_expire = agreed.has(HAS_EXPIRE_ONLY);
    Ok(Parameters { max_write: agreed.max_write, can_expire, session_files: 0 })
}

/// Makes all descriptors of a connection, its own first.
fn descriptors(device: OwnedFd, threads: usize) -> Result<Vec<OwnedFd>> {
    use std::os::fd::AsFd;
    let failed = |error: io::Error| refused(code_of(&error), "cannot clone a descriptor", &error);
    let clones: io::Result<Vec<OwnedFd>> =
        (0..threads).map(|_| device::clone(device.as_fd())).collect();
    Ok(std::iter::once(device).chain(clones.map_err(failed)?).collect())
}

/// Begins to serve. `inherited`: another server has served before.
fn begin(
    (volume, top): (Arc<Volume>, Ino),
    dir: &Path,
    options: &MountOptions,
    (calls, keeper): (Calls, u32),
    mut connection: Connection,
    inherited: bool,
) -> Result<Mount> {
    let notices = Arc::<Notices>::default();
    forget_links(&volume, top, &notices);
    if connection.parameters.can_expire {
        notices.allow_expiry();
    }
    let mut session = Session::new(volume, rules(options), top, notices);
    session.keep(calls, keeper, inherited);
    session.about.begin(options.facts_in(dir));
    if session.about.is_read_only() {
        session.views.get().files().set_noatime(true);
    }
    let session = Arc::new(session);
    let threads = Threads::default();
    let failed = |error: io::Error| refused(Code::Io, "cannot start the server's threads", &error);
    let copies: io::Result<Vec<OwnedFd>> =
        connection.descriptors.iter().map(OwnedFd::try_clone).collect();
    let mut clones = copies.map_err(failed)?;
    let device = clones.remove(0);
    // Before anything that they have open can be freed.
    let restored = connection.restored(&session, inherited);
    if inherited {
        forget_recent(&session, &device, &threads).map_err(failed)?;
        find_out(&session, &device, &threads, Some(&connection.pause)).map_err(failed)?;
        resend(&device)?;
    }
    let kept = Kept { clones: Mutex::new(clones), pause: connection.pause.clone() };
    let task: Task<Worker> = Task {
        shared: session.clone(),
        device,
        max_write: connection.parameters.max_write,
        threads: thread_count(options),
        rings: None,
        idle: false,
        kept: Some(kept),
        looks: !options.no_busy_poll,
    };
    device::start(task, &threads).map_err(failed)?;
    connection.session = Some(session.clone());
    let (dir, connection) = (dir.to_owned(), Some(connection));
    let (monitor, follower) = (None, None);
    let door = Mutex::default();
    let mut mount = Mount { dir, threads, ended: false, connection, monitor, follower, door };
    mount.look_after(&session, options);
    match inherited {
        true => mount.show_later(&session, options),
        false => mount.show(&session, options, monitor::bind(options)?)?,
    }
    match mount.open_door(&session, options, restored) {
        Err(error) if inherited => tracing::warn!(%error, "no sessions"),
        opened => opened?,
    }
    Ok(mount)
}

/// The kernel, as whoever has references that an earlier server has counted.
struct Kernel {
    session: Weak<Session>,
}

impl Outside for Kernel {
    fn ask(&self, ino: Ino) {
        if let Some(session) = self.session.upgrade() {
            session.inherited.ask(ino);
        }
    }

    fn knows(&self, ino: Ino) -> bool {
        self.session.upgrade().is_some_and(|session| session.inherited.knows(ino))
    }
}

/// Asks the kernel whether it knows an inode, whose attributes it forgets by that.
fn knows(session: &Session, device: &OwnedFd, ino: Ino) -> bool {
    let mut bytes = buffer();
    let told = rustix::io::write(device, notice(session.id(ino), false, &mut bytes));
    // A node of a token is another one, and its hold may have been dropped with the inode's own.
    told != Err(Os::NOENT) || session.tokens.hold(ino)
}

/// Has the kernel give out again what no server has answered.
fn resend(device: &OwnedFd) -> Result<()> {
    let mut bytes = buffer();
    let len = Notification::Resend.encode(&mut bytes).unwrap_or_default();
    match rustix::io::write(device, &bytes[..len]) {
        // Unmounted meanwhile: the threads will find out.
        Ok(_) | Err(Os::NODEV) => Ok(()),
        Err(os) => Err(refused(Code::Io, "the kernel does not resend requests", &os.into())),
    }
}

/// Starts the threads that ask the kernel which unlinked inodes it knows, and free the others.
/// `pause`: of a server that can be replaced.
pub(super) fn find_out(
    session: &Arc<Session>,
    device: &OwnedFd,
    threads: &Threads,
    pause: Option<&Pause>,
) -> io::Result<()> {
    let device = device.try_clone()?;
    let working = pause.cloned().unwrap_or_default().join();
    let kernel = Kernel { session: Arc::downgrade(session) };
    session
        .inherited
        .begin(|| session.views.get().references().watch_unconfirmed(Arc::new(kernel)));
    let asking = session.clone();
    let ask = move |device| asking.inherited.run(|ino| knows(&asking, &device, ino));
    match pause {
        Some(_) => apart::start(threads, "shoal-asking", device, ask)?,
        None => threads.start("shoal-asking".to_owned(), move || ask(device))?,
    }
    let session = session.clone();
    threads.start("shoal-inherited".to_owned(), move || {
        session.inherited.free_unknown(|ino| {
            if working.begin() {
                session.views.get().references().unknown(ino);
                working.end();
            }
        });
    })
}

/// Has the kernel forget the attributes of everything that was changed last.
fn forget_recent(session: &Arc<Session>, device: &OwnedFd, threads: &Threads) -> io::Result<()> {
    let (device, session, inner) = (device.try_clone()?, session.clone(), threads.clone());
    threads.start("shoal-recent".to_owned(), move || {
        let recent = session.views.get().info().recovery.recent;
        let is_dir = |ino: &Ino| {
            let attr = session.views.get().attributes().getattr(*ino);
            attr.is_ok_and(|attr| attr.kind == shoal::raw::FileKind::Directory)
        };
        let notices: Vec<_> =
            recent.into_iter().map(|ino| (session.id(ino), is_dir(&ino))).collect();
        let tell = move |device: OwnedFd| {
            let mut bytes = buffer();
            for (node, listing) in notices {
                // It need not know the inode.
                let _ = rustix::io::write(&device, notice(node, listing, &mut bytes));
            }
        };
        if let Err(error) = apart::start(&inner, "shoal-recent", device, tell) {
            tracing::warn!(%error, "attributes that the server before has changed may be stale");
        }
    })
}

impl Mount {
    /// Starts what a mount of a volume has besides its transport.
    pub(super) fn look_after(&self, session: &Session, options: &MountOptions) {
        if let Err(error) = session.sweeper.is_mounted_on(&self.dir) {
            tracing::debug!(%error, "names of removed trees are left to notices");
        }
        let (volume, notices) = (session.views.keep(), session.notices.clone());
        if !options.read_only
            && let Err(error) = watch::start(volume, notices, &self.dir, &self.threads)
        {
            tracing::warn!(%error, "a volume that fails will not be shown as read-only");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_they_were_written_and_nothing_else() {
        for session_files in [0, FILES_BEFORE, SESSION_FILES] {
            let parameters = Parameters { max_write: 1 << 20, can_expire: true, session_files };
            assert_eq!(Parameters::parse(&parameters.to_string()).unwrap(), parameters);
        }
        for bad in ["", "4 1048576 1", "1 1048577 1", "1 x 1", "1 4096 2", "1 4096 1 1", "1 4096"] {
            assert!(Parameters::parse(bad).unwrap_err().code() == Code::Invalid, "{bad}");
        }
    }
}
