//! Mounts, and servers of sessions, of a volume in a bucket that another process owns: replicas,
//! which show what the owner has made durable, and standbys, which do that too, and become the
//! owner when that one ends.
//!
//! One thread looks at the bucket, and takes the volume over; another one opens newer views. How
//! often the first one looks bounds how far a replica is behind; each look of an idle volume costs
//! two small requests. While the owner makes changes it looks often, and otherwise as the option
//! says: beats of an idle owner are no changes.
//!
//! A standby takes over when the owner has closed the volume, when it has been silent for longer
//! than it promised, and when somebody asks for it (`shoal remount --promote`), on a socket with an
//! abstract name that contains the number of this process.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use shoal::raw::{BucketOwner, Code, Following, OpenOptions, Volume};
use shoal_fuse::{Mount, Peer, Served};

use super::{LET_GO, Plan, begin, detach_from_starter, end_on_panic, end_on_signal, finish, leave};
use crate::commands::end::Teller;
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::keeping;

/// Pause between two looks while the owner writes.
const BUSY: Duration = Duration::from_millis(100);
/// Default of the longest pause.
const IDLE: Duration = Duration::from_millis(500);
/// Time after the last change for which the owner counts as writing.
const ACTIVE: Duration = Duration::from_secs(5);
/// Pause after a view that could not be opened. The next change of an idle owner may be far.
const AGAIN: Duration = Duration::from_secs(5);
/// A view is opened when so many times the time has passed that opening the one before took.
const REST: u32 = 2;
/// Letter of the request to take over, and of its answer, which says why not. Text of one to do it
/// whatever the owner does.
const PROMOTE: u8 = b'P';
const FORCE: &str = "force";

/// Reason to refuse the time of a role.
pub(crate) const NO_SECONDS: &str = "needs seconds, from 0.1 to 3600";

fn time(seconds: &str) -> Option<Duration> {
    let seconds = seconds.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64)
}

/// Role of a process that shows a volume which another one owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It shows the volume, and looks at least so often.
    Replica(Duration),
    /// It waits to become the owner: after the owner has been silent for so long at least.
    Standby(Duration),
}

impl Role {
    /// Reads a mount option; `None`: it is another one.
    pub(crate) fn parse(option: &str) -> Result<Option<Role>> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let role = match name {
            "follow" => Role::replica(value),
            "standby" => Role::standby(value),
            _ => return Ok(None),
        };
        let object = || format!("mount option \"{option}\"");
        role.map(Some).ok_or_else(|| Failure::usage(object(), NO_SECONDS))
    }

    /// Returns a replica that looks at least once in `seconds` (0.5 by default); `None` if that is
    /// not from 0.1 to 3600.
    pub(crate) fn replica(seconds: Option<&str>) -> Option<Role> {
        seconds.map_or(Some(IDLE), time).map(Role::Replica)
    }

    /// Returns a standby that waits for `seconds` of silence at least (0 by default); `None` as
    /// above.
    pub(crate) fn standby(seconds: Option<&str>) -> Option<Role> {
        seconds.map_or(Some(Duration::ZERO), time).map(Role::Standby)
    }

    /// Longest pause between two looks.
    fn pause(self) -> Duration {
        match self {
            Role::Replica(pause) => pause,
            Role::Standby(_) => IDLE,
        }
    }
}

/// Serves a mount of a volume that another process owns.
pub(crate) fn run(plan: &Plan, role: Role, report: bool) -> Result<u8> {
    begin(plan, report)?;
    let source = plan.volume.display().to_string();
    let default = plan.options.open_options();
    let notice = if report { super::tell_starter } else { default.notice };
    let following = Following::open(&plan.volume, &OpenOptions { notice, ..default });
    let following = following.map_err(|error| Failure::volume(&source, &error))?;
    let view = following.view().map_err(|error| Failure::volume(&source, &error))?;
    let mounted = Mount::new(Arc::new(view), &plan.directory, &source, &plan.options);
    let mount = Arc::new(mounted.map_err(|error| {
        Failure::volume(plan.directory.display(), &error).with_status(SOME_FAILED)
    })?);
    let directory = mount.dir().to_owned();
    let owned = Owned::default();
    end_on_panic(Some(&directory));
    let last = owned.clone();
    end_on_signal(&directory, move || last.get().map(|volume| volume.sync()))?;
    let follower = Follower::start(following, mount.clone(), role, owned);
    let follower = follower.map_err(|error| {
        Failure::failed(directory.display(), format!("cannot start a thread: {error}"))
    })?;
    let teller = Teller::listen();
    tracing::info!(volume = %source, directory = %directory.display(), ?role, "mounted");
    if report && !detach_from_starter() {
        tracing::warn!("the mount was given up by the process that asked for it");
        leave(&directory);
    }
    mount.wait_for_end();
    let owned = follower.end();
    if let Ok(mount) = Arc::try_unwrap(mount) {
        mount.wait();
    }
    finish(plan, &directory, owned.take(), teller)
}

/// A mount or a server of sessions, which shows views of a volume.
pub(crate) trait Shows: Send + Sync {
    /// Shows a newer one.
    fn show_view(&self, volume: Arc<Volume>) -> shoal::raw::Result<()>;
    /// Shows the volume itself, which this process owns from now on.
    fn own(&self, volume: Arc<Volume>) -> shoal::raw::Result<()>;
}

impl Shows for Mount {
    fn show_view(&self, volume: Arc<Volume>) -> shoal::raw::Result<()> {
        self.show_view(volume)
    }

    fn own(&self, volume: Arc<Volume>) -> shoal::raw::Result<()> {
        self.own(volume)
    }
}

impl Shows for Served {
    fn show_view(&self, volume: Arc<Volume>) -> shoal::raw::Result<()> {
        self.show_view(volume);
        Ok(())
    }

    fn own(&self, volume: Arc<Volume>) -> shoal::raw::Result<()> {
        let owned = self.own(volume);
        if owned.is_err() {
            // No client can reach the volume: it is closed, so that another process can have it.
            let _ = kill_process(rustix::process::getpid(), Signal::TERM);
        }
        owned
    }
}

/// The volume of a standby that has taken it over.
#[derive(Clone, Default)]
pub(crate) struct Owned(Arc<Mutex<Option<Arc<Volume>>>>);

impl Owned {
    fn place(&self) -> MutexGuard<'_, Option<Arc<Volume>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> Option<Arc<Volume>> {
        self.place().clone()
    }

    /// Removes the volume, to close it.
    pub(crate) fn take(&self) -> Option<Arc<Volume>> {
        self.place().take()
    }
}

/// The threads that follow a volume.
pub(crate) struct Follower {
    worker: JoinHandle<()>,
    messages: Sender<Message>,
    owned: Owned,
}

impl Follower {
    /// Starts the threads. A standby takes requests to be the owner from now on.
    pub(crate) fn start(
        following: Following,
        shows: Arc<dyn Shows>,
        role: Role,
        owned: Owned,
    ) -> std::io::Result<Follower> {
        let (messages, inbox) = mpsc::channel();
        if matches!(role, Role::Standby(_)) {
            listen(messages.clone());
        }
        let follow = Arc::new(Follow { following, shows, role, owned: owned.clone() });
        let worker = thread::Builder::new().name("shoal-follow".into());
        let worker = worker.spawn(move || follow.run(&inbox))?;
        Ok(Follower { worker, messages, owned })
    }

    /// Stops the threads. Returns the place of the volume, filled if this process owns it.
    pub(crate) fn end(self) -> Owned {
        // The thread may have ended: it is the owner's no more.
        let _ = self.messages.send(Message::End);
        // A look at a store that is away takes minutes, and nobody waits for its result any more.
        let begun = Instant::now();
        while !self.worker.is_finished() && begun.elapsed() < LET_GO {
            thread::sleep(Duration::from_millis(2));
        }
        self.owned
    }
}

/// Message to the thread.
enum Message {
    /// Take over, at any price or only if the owner has ended. Answered with the reason why not.
    Promote(bool, Sender<Option<String>>),
    /// Stop following.
    End,
}

/// State of the threads.
struct Follow {
    following: Following,
    shows: Arc<dyn Shows>,
    role: Role,
    owned: Owned,
}

/// Outcome of a look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    Nothing,
    Changes,
    /// This process is the owner.
    Ours,
}

/// The pause before the next look. `quiet`: time since the last change.
fn next_pause(pause: Duration, quiet: Duration, longest: Duration) -> Duration {
    match quiet < ACTIVE {
        true => BUSY,
        false => (pause * 2).min(longest),
    }
}

/// Shows a newer view after each message, until the channel is closed. In a thread of its own: the
/// one that looks learns meanwhile whether the owner works.
fn show(follow: &Follow, changes: &Receiver<()>) {
    let mut failed = false;
    loop {
        let change = match failed {
            true => changes.recv_timeout(AGAIN),
            false => changes.recv().map_err(RecvTimeoutError::from),
        };
        if change == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // One view for all of them.
        while changes.try_recv().is_ok() {}
        let begun = Instant::now();
        let shown = follow.following.view().and_then(|view| follow.shows.show_view(Arc::new(view)));
        let took = begun.elapsed();
        failed = shown.is_err();
        match shown {
            Ok(()) => tracing::debug!(seconds = took.as_secs_f64(), "shows a newer view"),
            Err(error) => tracing::warn!(%error, "the newest view cannot be shown"),
        }
        thread::sleep(took * REST);
    }
}

impl Follow {
    /// Follows until it is told to end, or this process is the owner.
    fn run(self: &Arc<Follow>, inbox: &Receiver<Message>) {
        let (changed, changes) = mpsc::channel();
        let follow = Arc::clone(self);
        let viewer = thread::Builder::new().name("shoal-view".into());
        let viewer = match viewer.spawn(move || show(&follow, &changes)) {
            Ok(viewer) => viewer,
            Err(error) => return tracing::error!(%error, "no thread: the view stays as it is"),
        };
        let is_ours = self.watch(inbox, &changed);
        drop(changed);
        // A panic ends the process.
        let _ = viewer.join();
        if is_ours {
            refuse(inbox);
        }
    }

    /// Looks until it is told to end (`false`), or this process is the owner (`true`).
    fn watch(&self, inbox: &Receiver<Message>, changed: &Sender<()>) -> bool {
        let (mut pause, mut failing, mut busy) = (BUSY, false, Instant::now());
        loop {
            let message = match inbox.recv_timeout(pause) {
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return false,
                Ok(Message::Promote(force, answer)) => Some((force, answer)),
                Err(RecvTimeoutError::Timeout) => None,
            };
            let look = self.look(message.as_ref().map(|(force, _)| *force));
            match &look {
                Ok(_) => failing = false,
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "the volume cannot be followed; trying again");
                }
                Err(_) => {}
            }
            if let Some((_, answer)) = message {
                let why = match &look {
                    Ok(News::Ours) => None,
                    Ok(_) => Some(self.refusal()),
                    Err(error) => Some(error.to_string()),
                };
                // Whoever asked may be gone.
                let _ = answer.send(why);
            }
            match look {
                Ok(News::Ours) => return true,
                Ok(News::Changes) => {
                    busy = Instant::now();
                    // It ends only if it panics, and the process with it.
                    let _ = changed.send(());
                }
                Ok(News::Nothing) | Err(_) => {}
            }
            pause = next_pause(pause, busy.elapsed(), self.role.pause());
        }
    }

    /// Looks at the bucket once. `wish`: somebody wants this process to be the owner, at any price
    /// or only if there is none.
    fn look(&self, wish: Option<bool>) -> shoal::raw::Result<News> {
        let changed = self.following.advance()?;
        let ended = match self.role {
            Role::Replica(_) => false,
            Role::Standby(_) if wish == Some(true) => true,
            Role::Standby(patience) => self.following.owner(patience)? != BucketOwner::Works,
        };
        if ended && self.take_over()? {
            return Ok(News::Ours);
        }
        Ok(if changed { News::Changes } else { News::Nothing })
    }

    /// Returns whether this process owns the volume now.
    fn take_over(&self) -> shoal::raw::Result<bool> {
        let begun = Instant::now();
        let from = self.following.owner_name().unwrap_or_default();
        let volume = match self.following.take_over() {
            Ok(volume) => Arc::new(volume),
            // Another standby was faster.
            Err(error) if error.is(Code::Busy) => return Ok(false),
            Err(error) => return Err(error),
        };
        *self.owned.place() = Some(Arc::clone(&volume));
        self.shows.own(volume)?;
        let seconds = begun.elapsed().as_secs_f64();
        tracing::warn!(seconds, "took the volume over from {from}: it can be changed here now");
        Ok(true)
    }

    fn refusal(&self) -> String {
        let owner = self.following.owner_name().unwrap_or_else(|_| "its owner".to_owned());
        format!(
            "{owner} uses the volume; unmount it there, or take it over with --force, which makes \
             that process read-only"
        )
    }
}

/// Answers requests for what has been done.
fn refuse(inbox: &Receiver<Message>) {
    while let Ok(Message::Promote(_, answer)) = inbox.recv() {
        let _ = answer.send(None);
    }
}

fn name(pid: u32) -> String {
    format!("shoal-standby-{pid}")
}

/// Takes requests of users who may end this process: root, and its own.
fn listen(messages: Sender<Message>) {
    let bind =
        || UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(std::process::id()))?);
    let started = bind().and_then(|listener| {
        let serve = move || {
            for stream in listener.incoming().flatten() {
                let allowed = shoal_fuse::peer_of(&stream).is_ok_and(Peer::is_trusted);
                if allowed && serve_one(&stream, &messages).is_none() {
                    tracing::debug!("a request to take over ended early");
                }
            }
        };
        thread::Builder::new().name("shoal-standby".into()).spawn(serve)
    });
    if let Err(error) = started {
        tracing::warn!(%error, "this standby cannot be asked to take over");
    }
}

/// Longest wait for a client.
const CLIENT: Duration = Duration::from_secs(5);

fn serve_one(stream: &UnixStream, messages: &Sender<Message>) -> Option<()> {
    stream.set_read_timeout(Some(CLIENT)).ok()?;
    let request = keeping::receive(stream).ok()??;
    let force = match (request.letter, &*request.text) {
        (PROMOTE, "") => false,
        (PROMOTE, FORCE) => true,
        _ => return None,
    };
    let (answer, answered) = mpsc::channel();
    messages.send(Message::Promote(force, answer)).ok()?;
    let why = answered.recv().ok()?;
    keeping::send(stream, PROMOTE, &why.unwrap_or_default(), &[]).ok()
}

/// Asks the server of a mount or of a volume to be the volume's owner.
pub(crate) fn promote(place: &Path, server: u32, force: bool) -> Result<u8> {
    let request = (PROMOTE, if force { FORCE } else { "" });
    let why = match keeping::ask(&name(server), server, request, &[]) {
        Ok(Some(answer)) if answer.text.is_empty() => return Ok(OK),
        Ok(Some(answer)) => answer.text,
        Ok(None) => "its server refuses you, or has ended".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "is not a standby: mount or serve it with --standby".to_owned()
        }
        Err(error) => format!("its server cannot be asked: {}", Reason::System(error)),
    };
    Err(Failure::failed(place.display(), format!("not taken over: {why}")))
}

/// Refuses a role that a plan cannot have.
pub(crate) fn check(plan: &Plan, role: Role) -> Result<()> {
    let object = match role {
        Role::Replica(_) => "mount option \"follow\"",
        Role::Standby(_) => "mount option \"standby\"",
    };
    if !shoal::raw::is_bucket(&plan.volume) {
        return Err(Failure::usage(object, "needs a volume in a bucket"));
    }
    if plan.force {
        return Err(Failure::usage(object, "cannot be with force, which takes over at once"));
    }
    if matches!(role, Role::Standby(_)) && plan.options.read_only {
        return Err(Failure::usage(object, "cannot be with ro; a replica is ro,follow"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_owner_is_looked_at_as_often_as_the_option_says() {
        let longest = Duration::from_secs(10);
        let (mut pause, mut quiet, mut looks) = (BUSY, Duration::ZERO, 0);
        while quiet < Duration::from_secs(3600) {
            quiet += pause;
            looks += 1;
            pause = next_pause(pause, quiet, longest);
        }
        assert_eq!(pause, longest);
        // Those after the last change, and 360.
        assert!((360..=420).contains(&looks), "{looks}");
        assert_eq!(next_pause(longest, Duration::ZERO, longest), BUSY);
    }

    #[test]
    fn roles_are_read() {
        let role = |option| Role::parse(option).expect(option);
        assert_eq!(role("follow"), Some(Role::Replica(IDLE)));
        assert_eq!(role("follow=2"), Some(Role::Replica(Duration::from_secs(2))));
        assert_eq!(role("standby"), Some(Role::Standby(Duration::ZERO)));
        assert_eq!(role("standby=0.5"), Some(Role::Standby(Duration::from_millis(500))));
        assert_eq!(role("ro"), None);
        for bad in ["follow=", "standby=x", "standby=0", "follow=1e9", "standby=NaN"] {
            assert!(Role::parse(bad).is_err(), "{bad}");
        }
    }
}
