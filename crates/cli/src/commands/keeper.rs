//! The keeper: a process that holds what must outlive the server of a mount, or of a volume that is
//! served without one, and starts another one when it dies.
//!
//! It holds the connection to the kernel, the locks of the volume and the memory of the journal's
//! ring, which the server has sent it (`keeping.rs`), and knows nothing of their use. So it has
//! little to go wrong.
//!
//! | event | action |
//! | --- | --- |
//! | the server dies | another one gets everything, and goes on; callers wait |
//! | it dies before it serves, [`ATTEMPTS`] times in a row | the mount is given up: the reason is in the log and in `shoal info`, and the ring is left for the next mount |
//! | the server says that the mount has ended | the keeper ends with its exit status |
//! | another program asks for a take-over (`shoal remount --takeover`, `shoal grow`) | the server stops, and that program's executable goes on, with a larger volume if it asked so |
//! | SIGTERM, SIGINT | the server gets it, and so does each that goes on for it: the wish outlives a server |
//! | the server dies after a second one | the mount ends: nobody waits for its last user |
//! | the keeper is killed | the server serves on, without protection; it says so in the log |
//!
//! Clients take the keeper for the server: its number is that of the mount's process, and it
//! reports the mount's end.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use shoal_fuse::Peer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::clock;
use crate::commands::end::Teller;
use crate::commands::remount;
use crate::failure::{Failure, Reason, Result, SOME_FAILED};
use crate::keeping::{self, Message, VERSION};
use crate::rings::GivenUp;

/// Servers in a row that may die before they serve.
const ATTEMPTS: u32 = 3;
/// Pause before the second attempt in a row; doubled up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest wait for a client's request.
const CLIENT_MAX: Duration = Duration::from_secs(2);
/// Longest wait for the exit of a server whose socket is closed.
const EXIT_MAX: Duration = Duration::from_millis(50);
/// The same if it has never served: none of its threads can wait in the kernel.
const EXIT_UNSERVED_MAX: Duration = Duration::from_secs(10);
/// Signals that have a meaning: to end the mount, and not to wait for its last user.
const SIGNALS: usize = 2;
/// Longest wait for the threads that read requests, of a server that has stopped for another one.
const READ_MAX: Duration = Duration::from_secs(1);
/// A server that has served for so long was not ended by what it went on with.
const HEALTHY: Duration = Duration::from_millis(200);

/// A server in work.
struct Server {
    child: Child,
    pidfd: OwnedFd,
    socket: OwnedFd,
    since: Instant,
    serves: bool,
    /// Signals that were passed on to it.
    signalled: usize,
    /// Why it cannot go on with the mount, if it has sent that.
    reason: Option<String>,
}

/// A server that is to take over.
struct Successor {
    program: OwnedFd,
    /// The size that the volume gets.
    grow: Option<u64>,
    /// Connection to the program that asks for it.
    client: UnixStream,
}

/// The things that a keeper keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeps {
    /// A mount, at this directory.
    Mount,
    /// A volume that is served without one, at this place.
    Volume,
}

/// The keeper of one mount.
struct Keeper {
    /// The kind of what it keeps.
    keeps: Keeps,
    directory: PathBuf,
    arguments: Vec<OsString>,
    /// The executable of the servers; the last one that has served.
    program: OwnedFd,
    /// One that is to take over.
    next: Option<Successor>,
    /// Servers that have stopped for another one, and may not have exited.
    stopped: Vec<Child>,
    /// The estate that another server needs, from the last one that has served.
    kept: Option<Message>,
    /// The server's report of the mount's end; the failure, if it has one.
    ended: Option<Option<String>>,
    /// How the last server ended, with its own reason if it sent one.
    last: String,
    /// File for the reason, if the mount is given up.
    given_up: Option<GivenUp>,
    /// Servers in a row that have died soon, for the pause before the next one.
    failed: u32,
    /// Servers in a row that have died before they served.
    unserved: u32,
    teller: Teller,
    /// The socket for programs that ask to take over. They are heard once a server has served.
    listener: Option<UnixListener>,
    /// Readable after a signal: which one is read from it.
    signals: [(Signal, UnixStream); 2],
    /// The signals that have come, [`SIGNALS`] at most.
    signalled: Vec<Signal>,
    /// This process's standing with the kernel's killer, for the servers.
    oom_score: String,
}

/// Keeps the mount of a server that is started with these arguments, until it has ended.
pub(crate) fn run(
    (keeps, directory): (Keeps, PathBuf),
    arguments: Vec<OsString>,
    background: bool,
    given_up: Option<GivenUp>,
) -> Result<u8> {
    let cannot = |error| {
        Failure::failed(directory.display(), format!("no keeper: {}", Reason::System(error)))
    };
    let signal = |signal, number| {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        pipe::register(number, theirs)?;
        std::io::Result::Ok((signal, ours))
    };
    let signals = [
        signal(Signal::TERM, SIGTERM).map_err(cannot)?,
        signal(Signal::INT, SIGINT).map_err(cannot)?,
    ];
    let program = File::open("/proc/self/exe").map_err(cannot)?.into();
    let oom_score = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    let keeper = Keeper {
        keeps,
        directory,
        arguments,
        program,
        next: None,
        stopped: Vec::new(),
        kept: None,
        ended: None,
        last: String::new(),
        given_up,
        failed: 0,
        unserved: 0,
        // Before any server can report that the mount is usable: the next command may ask at once.
        teller: Teller::listen(),
        listener: listen()
            .inspect_err(|error| {
                tracing::warn!(%error, "no other program can take this mount over");
            })
            .ok(),
        signals,
        signalled: Vec::new(),
        oom_score: oom_score.trim().to_owned(),
    };
    let first = keeper.start(None)?;
    if background {
        leave_starter();
    }
    // The killer of processes must leave this one, which holds nothing, and takes every program on
    // the mount along. Only root may say so.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    keeper.serve(first)
}

/// Gives up what is shared with the starter: the server reports to it.
fn leave_starter() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let _ = std::env::set_current_dir("/");
}

impl Keeper {
    /// Starts a server, that of a take-over if there is one.
    fn start(&self, takeover: Option<&Successor>) -> Result<Server> {
        let cannot = |error| {
            let why = format!("no server: {}", Reason::System(error));
            Failure::failed(self.directory.display(), why)
        };
        let (ours, theirs) = keeping::pair().map_err(|os| cannot(os.into()))?;
        let program = takeover.map_or(&self.program, |next| &next.program);
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        let operands = self.arguments.iter().position(|argument| argument == "--");
        let (options, operands) = self.arguments.split_at(operands.unwrap_or(1));
        command
            .arg0("shoal")
            .args(options)
            .arg(format!("--kept={}", self.oom_score))
            .args(takeover.and_then(|next| next.grow).map(|size| format!("--grow={size}")))
            .args(operands);
        command.stdin(Stdio::from(theirs));
        let child = command.spawn().map_err(cannot)?;
        // It has no other parent that could have waited for it.
        let pidfd = Pid::from_child(&child);
        let pidfd = pidfd_open(pidfd, PidfdFlags::empty()).map_err(|os| cannot(os.into()))?;
        let told = match &self.kept {
            None => keeping::send(&ours, b'N', "", &[]),
            Some(kept) => {
                let descriptors: Vec<_> = kept.descriptors.iter().map(AsFd::as_fd).collect();
                keeping::send(&ours, b'R', &kept.text, &descriptors)
            }
        };
        if let Err(error) = told {
            // It has ended already, which is found out soon.
            tracing::debug!(%error, "the server takes no message");
        }
        Ok(Server {
            child,
            pidfd,
            socket: ours,
            since: Instant::now(),
            serves: false,
            signalled: 0,
            reason: None,
        })
    }

    /// Keeps the mount from its first server to its end. Returns the exit status.
    fn serve(mut self, first: Server) -> Result<u8> {
        let mut server = first;
        loop {
            let end = self.attend(&mut server);
            let was_never_made = self.kept.is_none() && self.next.is_none();
            if self.ended.is_some() || was_never_made || self.signalled.len() >= SIGNALS {
                return Ok(self.finish(server.child.wait().ok()));
            }
            let next = match self.replace(&server, end) {
                Some(next) => next,
                None => return Ok(self.give_up()),
            };
            let before = std::mem::replace(&mut server, next);
            self.stopped.push(before.child);
            // Those that have exited since need not stay in the table of processes.
            self.stopped.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        }
    }

    /// Attends to a server until it has ended, or may be replaced.
    fn attend(&mut self, server: &mut Server) -> End {
        loop {
            let ready = self.wait(server);
            self.read_signals();
            self.pass_on(server);
            // Before its death: what it has sent counts.
            if ready.message || ready.death {
                match keeping::receive(&server.socket) {
                    Ok(Some(message)) => {
                        if self.hear(message, server) {
                            wait_for_readers(server);
                            return End::Stopped;
                        }
                        continue;
                    }
                    Ok(None) | Err(_) => return End::Died(wait_for_exit(server)),
                }
            }
            if ready.client {
                self.admit(server);
            }
        }
    }

    fn wait(&self, server: &Server) -> Ready {
        let [first, second] = &self.signals;
        let mut polled = vec![
            PollFd::new(&server.socket, PollFlags::IN),
            PollFd::new(&server.pidfd, PollFlags::IN),
            PollFd::new(&first.1, PollFlags::IN),
            PollFd::new(&second.1, PollFlags::IN),
        ];
        if let Some(listener) = self.listener.as_ref().filter(|_| self.kept.is_some()) {
            polled.push(PollFd::new(listener, PollFlags::IN));
        }
        let _ = poll(&mut polled, None);
        let is = |at: usize, flag| polled.get(at).is_some_and(|it| it.revents().contains(flag));
        Ready {
            message: is(0, PollFlags::IN),
            death: is(1, PollFlags::IN),
            client: is(4, PollFlags::IN),
        }
    }

    fn read_signals(&mut self) {
        for (signal, stream) in &self.signals {
            let mut bytes = [0; 16];
            while let Ok(count @ 1..) = rustix::io::read(stream, &mut bytes) {
                let room = SIGNALS - self.signalled.len();
                self.signalled.extend(std::iter::repeat_n(*signal, count.min(room)));
            }
        }
    }

    /// Sends the server the signals that it has not got. One that goes on with a mount gets them
    /// when it serves: before that it would die of them.
    fn pass_on(&self, server: &mut Server) {
        if server.serves || self.kept.is_none() {
            for signal in &self.signalled[server.signalled..] {
                let _ = pidfd_send_signal(&server.pidfd, *signal);
            }
            server.signalled = self.signalled.len();
        }
    }

    /// Takes a message of the server. Returns whether it can be replaced now.
    fn hear(&mut self, message: Message, server: &mut Server) -> bool {
        match message.letter {
            b'K' => {
                self.kept = Some(message);
                server.serves = true;
                self.is_served();
                self.pass_on(server);
                false
            }
            b'F' => {
                server.reason = Some(message.text);
                false
            }
            b'E' => {
                self.ended = Some(Some(message.text).filter(|text| !text.is_empty()));
                false
            }
            b'Y' => self.next.is_some(),
            letter => {
                tracing::warn!(letter, "unknown message of the server");
                false
            }
        }
    }

    /// A server has begun to serve.
    fn is_served(&mut self) {
        self.given_up.iter().for_each(GivenUp::remove);
        if let Some(Successor { program, client, .. }) = self.next.take() {
            self.program = program;
            reply(&client, "");
            tracing::info!(directory = %self.directory.display(), "another program has taken over");
        }
    }

    /// Starts another server after the end of one. `None`: there is no point.
    fn replace(&mut self, before: &Server, end: End) -> Option<Server> {
        let directory = self.directory.display().to_string();
        let is_takeover = matches!(end, End::Stopped);
        if let End::Died(status) = end {
            if let Some(next) = self.next.take() {
                reply(
                    &next.client,
                    "the server has ended before another one could take over; the \
                    former program goes on",
                );
            }
            let served = before.serves && before.since.elapsed() >= HEALTHY;
            self.failed = if served { 0 } else { self.failed + 1 };
            self.unserved = if before.serves { 0 } else { self.unserved + 1 };
            let how = how(status);
            tracing::error!(%directory, how, "the server has died; starting another");
            self.last = match &before.reason {
                Some(why) => format!("{how}: {why}"),
                None => how,
            };
        }
        loop {
            if self.unserved >= ATTEMPTS {
                return None;
            }
            if self.failed > 1 {
                thread::sleep((PAUSE * 2u32.pow((self.failed - 2).min(8))).min(PAUSE_MAX));
            }
            let takeover = self.next.as_ref().filter(|_| is_takeover);
            match self.start(takeover) {
                Ok(server) => return Some(server),
                Err(failure) => {
                    self.failed += 1;
                    self.last = failure.line().unwrap_or_default().to_owned();
                    tracing::error!(%directory, failure = self.last, "no server");
                    if self.failed >= ATTEMPTS * 20 {
                        return None;
                    }
                }
            }
        }
    }

    /// The mount has ended, or was never made.
    fn finish(self, status: Option<ExitStatus>) -> u8 {
        if let Some(failure) = self.ended {
            self.teller.tell(failure.as_deref());
        }
        let code = status.and_then(|status| status.code());
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(SOME_FAILED)
    }

    /// Ends a mount that cannot be served.
    fn give_up(self) -> u8 {
        let directory = self.directory;
        let why = "given up: its servers die before they serve; calls that had returned and were \
            not synced are in the journal's ring, where the next mount finds them";
        tracing::error!(directory = %directory.display(), last = self.last, "{why}");
        if let Some(file) = self.given_up {
            let (now, name) = (clock::minutes(clock::now()), directory.display());
            file.write(&format!("{now}, on {name}: servers died; the last by {}", self.last));
        }
        // The connection ends with its last descriptor; the directory is free at once.
        if self.keeps == Keeps::Mount
            && let Err(error) = shoal_fuse::unmount_lazy(&directory)
        {
            tracing::error!(%error, "not unmounted");
        }
        self.teller.tell(Some(why));
        SOME_FAILED
    }

    /// Takes the request of a client.
    fn admit(&mut self, server: &Server) {
        let Some(Ok((client, _))) = self.listener.as_ref().map(UnixListener::accept) else {
            return;
        };
        if !shoal_fuse::peer_of(&client).is_ok_and(Peer::is_trusted) {
            return reply(&client, "permission denied: only root, and the user who mounted, may");
        }
        let _ = client.set_read_timeout(Some(CLIENT_MAX));
        let request = match keeping::receive(&client) {
            Ok(Some(request)) if request.letter == b'T' => request,
            _ => return reply(&client, "not understood"),
        };
        // The version, and the size of a volume that shall grow.
        let (version, grow) = match request.text.split_once(' ') {
            Some((version, size)) => (version, size.parse().map(Some)),
            None => (&*request.text, Ok(None)),
        };
        let Ok(grow) = grow else { return reply(&client, "not understood") };
        let version = version.parse();
        let program = request.descriptors.into_iter().next();
        match (version, program) {
            (Ok(VERSION), Some(program)) if self.next.is_none() && server.serves => {
                match keeping::send(&server.socket, b'Y', "", &[]) {
                    Ok(()) => self.next = Some(Successor { program, grow, client }),
                    Err(error) => reply(&client, &format!("the server does not hear: {error}")),
                }
            }
            (Ok(VERSION), Some(_)) => {
                reply(&client, "another take-over, or a restart, is under way")
            }
            (Ok(VERSION), None) => reply(&client, "no program was given"),
            _ => reply(
                &client,
                "this mount has the keeper of another version of Shoal: unmount and mount it",
            ),
        }
    }
}

/// End of a server.
enum End {
    /// It has stopped for another one.
    Stopped,
    /// It has died; its exit status, if it is there already.
    Died(Option<ExitStatus>),
}

/// The socket of a server is closed: it has ended, or is about to exit, but for threads that only
/// wait in the kernel, perhaps for the next server. Returns the status, if it is there soon.
fn wait_for_exit(server: &mut Server) -> Option<ExitStatus> {
    let end = Instant::now() + if server.serves { EXIT_MAX } else { EXIT_UNSERVED_MAX };
    loop {
        match server.child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
            _ => return None,
        }
    }
}

/// A server has stopped, and exits. What its threads read from now on is lost, unless the next one
/// comes after them.
fn wait_for_readers(server: &Server) {
    let end = Instant::now() + READ_MAX;
    while shoal_fuse::may_read(server.child.id()) {
        if Instant::now() > end {
            // It waits in the kernel, and does not read.
            tracing::warn!("a thread of the server before does not end");
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Things to attend to.
struct Ready {
    message: bool,
    death: bool,
    client: bool,
}

/// Describes the end of a process.
fn how(status: Option<ExitStatus>) -> String {
    let Some(status) = status else { return "a thread is still in the kernel".to_owned() };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "unknown".to_owned(),
    }
}

fn listen() -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(remount::name(
        std::process::id(),
    ))?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers a client; "": done.
fn reply(client: &UnixStream, text: &str) {
    let _ = client.set_nonblocking(true);
    match keeping::send(client, b'A', text, &[]) {
        Ok(()) | Err(Errno::PIPE) => {}
        Err(error) => tracing::debug!(%error, "a client takes no answer"),
    }
}
