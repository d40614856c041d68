//! Histories on a mounted directory: each thread is a process of its own. On *both doors* of a
//! mount some of them make system calls, and some have a session each.
//!
//! The processes are started once and told over pipes what to do: the seed of a history, from which
//! they draw their part; then, when all have opened their handles, the moment of a common clock at
//! which to begin, for which they wait spinning. What they say begins with a mark, because a test
//! program says other things too.

use super::history::{Event, History};
use super::library::Tally;
use super::program::{DIRS, Flavour, HANDLES, Program, is_by_session, is_held, making, paths};
use super::reply::{Reply, Seen};
use super::search::check;
use crate::exec::Answer;
use crate::op::{Op, Target};
use crate::session::{BySession, of_mount};
use crate::system::{Entry, Files, is_dir};
use rustix::fs::Stat;
use rustix::time::{ClockId, clock_gettime};
use shoal::raw::{Attr, FileKind};
use shoal_session::Session;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Processes at most.
const PROCESSES: usize = 4;
/// Bounds the turns that a process spins before a call: about as long as a call takes.
const SPIN: u64 = 4_000;
/// Nanoseconds from the order to begin until the beginning.
const AHEAD: u64 = 60_000;
const MARK: &str = "@linear ";
/// Environment variable with the directory.
const DIRECTORY: &str = "SHOAL_LINEAR_DIRECTORY";
const THREAD: &str = "SHOAL_LINEAR_THREAD";
/// Set for histories on both doors.
const DOORS: &str = "SHOAL_LINEAR_DOORS";

/// The processes.
pub struct Crew {
    directory: PathBuf,
    members: Vec<Member>,
    /// A session for the questions at the end, of histories on both doors.
    session: Option<BySession<Session>>,
}

struct Member {
    process: Child,
    orders: Option<ChildStdin>,
    words: Lines<BufReader<ChildStdout>>,
}

/// Nanoseconds of a clock that all processes share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Draws the program of a seed.
fn program(seed: u64, doors: bool) -> Program {
    if doors { Program::draw_for_doors(seed, SPIN) } else { Program::draw(seed, false, SPIN) }
}

/// Makes what a history begins with; returns the numbers of the handles.
fn make(top: &Path, trees: bool) -> io::Result<[u64; HANDLES]> {
    std::fs::create_dir(top)?;
    let mut files = Files::below(top);
    for op in making(trees) {
        files.call(&op)?;
    }
    let mut inos = [0; HANDLES];
    for (ino, path) in inos.iter_mut().zip(paths(trees)) {
        *ino = files.stat(&Target::Path(path.into()))?.st_ino;
    }
    Ok(inos)
}

/// The handles that the threads of a history have, with their paths.
fn handles(trees: bool) -> impl Iterator<Item = (usize, &'static str)> {
    paths(trees).into_iter().enumerate().filter(move |(handle, _)| is_held(trees, *handle))
}

/// Opens the handles.
fn open(top: &Path, flavour: Flavour) -> io::Result<Files> {
    let mut files = Files::below(top);
    for (handle, path) in handles(flavour.trees) {
        files.open_path(handle, path, flavour.data && handle >= DIRS)?;
    }
    Ok(files)
}

/// Opens the handles by a session.
fn open_by_session(
    session: &mut BySession<Session>,
    seed: u64,
    flavour: Flavour,
) -> shoal::raw::Result<()> {
    session.enter(seed.to_string().as_bytes())?;
    handles(flavour.trees).try_for_each(|(handle, path)| session.open_path(handle, path))
}

/// Makes a system call.
fn call(files: &mut Files, op: &Op) -> Reply {
    let seen = |stat: &Stat| Seen { dir: is_dir(stat), ino: stat.st_ino, age: 0 };
    let reply = match op {
        Op::Readdir { dir, .. } => files.list(dir).map(|entries| {
            let seen = |e: Entry| (e.name, Seen { dir: e.dir, ino: e.ino, age: 0 });
            Reply::of_list(entries.into_iter().map(seen))
        }),
        Op::Read { file, offset, len } => {
            files.read_at_once(file, *offset, *len as usize).map(|bytes| Reply::of_bytes(&bytes))
        }
        _ => files.call(op).map(|(answer, stat)| match (answer, stat) {
            (Answer::Node(_), Some(stat)) => Reply::Found(seen(&stat)),
            (_, Some(stat)) => {
                let entries = if is_dir(&stat) { stat.st_size as u64 } else { 0 };
                Reply::Attrs { links: stat.st_nlink as u32, entries }
            }
            _ => Reply::Done,
        }),
    };
    reply.unwrap_or_else(|e| Reply::Failed(e.raw_os_error().unwrap_or(0)))
}

/// Makes a call by a session.
fn call_by_session(session: &BySession<Session>, op: &Op) -> Reply {
    let made = || {
        if let Op::Readdir { dir: Target::Slot(handle), .. } = op {
            let entries = session.entries(*handle)?.into_iter();
            let dir = |kind| kind == FileKind::Directory;
            return Ok(Reply::of_list(
                entries
                    .map(|(name, ino, kind)| (name, Seen { dir: dir(kind), ino: ino.0, age: 0 })),
            ));
        }
        let mut told: Option<Attr> = None;
        let answer = session.call(op, &mut told)?.expect("a session has all these calls");
        Ok(Reply::of_answer(op, answer, told))
    };
    made().unwrap_or_else(|e: shoal::raw::Error| Reply::Failed(e.errno()))
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Crew {
    /// Starts them; `command` makes the command line of a program that calls [`act`]. `doors`:
    /// histories on both doors of the mount whose top the directory is.
    ///
    /// # Errors
    /// Says which does not start, or why there is no session.
    pub fn start(
        directory: &Path,
        doors: bool,
        command: &dyn Fn() -> Command,
    ) -> Result<Crew, String> {
        let start = |thread: usize| {
            let mut command = command();
            if doors {
                command.env(DOORS, "1");
            }
            let process = command
                .env(DIRECTORY, directory)
                .env(THREAD, thread.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut process = process.map_err(|e| format!("process {thread}: {e}"))?;
            let orders = process.stdin.take();
            let said = process.stdout.take().ok_or("no pipe")?;
            Ok(Member { process, orders, words: BufReader::new(said).lines() })
        };
        let members = (0..PROCESSES).map(start).collect::<Result<_, String>>()?;
        let session = doors.then(|| of_mount(directory).map(BySession::new)).transpose()?;
        Ok(Crew { directory: directory.to_owned(), members, session })
    }

    /// Runs the histories of these seeds, and checks each.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn run(&mut self, seeds: Range<u64>) -> Result<Tally, String> {
        let mut tally = Tally::default();
        for seed in seeds {
            let (history, calls) = self.one(seed).map_err(|e| format!("seed {seed}: {e}"))?;
            let states = match check(&history) {
                Ok(states) => states,
                Err(wrong) => {
                    tally.early += 1;
                    // What is told is what was wrong first.
                    let mut excused = history.without_early_attributes();
                    if self.session.is_some() {
                        excused = excused.with_halves();
                    }
                    check(&excused).map_err(|_| wrong.to_string())?
                }
            };
            tally.count(&history, calls, states);
        }
        Ok(tally)
    }

    fn one(&mut self, seed: u64) -> Result<(History, usize), String> {
        let program = program(seed, self.session.is_some());
        let top = self.directory.join(seed.to_string());
        let inos = make(&top, program.flavour.trees).map_err(text)?;
        let mut handles = open(&top, program.flavour).map_err(text)?;
        if let Some(session) = &mut self.session {
            open_by_session(session, seed, program.flavour).map_err(text)?;
        }
        let members = &mut self.members[..program.threads.len()];
        members.iter_mut().try_for_each(|member| member.order(&format!("seed {seed}")))?;
        members.iter_mut().try_for_each(|member| member.answer().map(drop))?;
        let order = format!("begin {}", now() + AHEAD);
        members.iter_mut().try_for_each(|member| member.order(&order))?;
        let mut events = Vec::new();
        for (thread, (member, calls)) in members.iter_mut().zip(&program.threads).enumerate() {
            let answer = member.answer()?;
            let answers: Vec<&str> = answer.split_whitespace().collect();
            if answers.len() != calls.len() {
                return Err(format!("process {thread} answers '{answer}'"));
            }
            for ((_, op), answer) in calls.iter().zip(answers) {
                let (begin, end, reply) = parse(answer).ok_or(format!("answer '{answer}'"))?;
                events.push(Event { thread, op: op.clone(), reply, begin, end, may_miss: false });
            }
        }
        let calls = events.len();
        // As if by threads of those kinds.
        let (by_kernel, by_session) = ((seed & 1) as usize, (seed & 1 ^ 1) as usize);
        for op in program.flavour.epilogue() {
            let begin = now();
            let reply = call(&mut handles, &op);
            let end = now();
            events.push(Event {
                thread: by_kernel,
                op: op.clone(),
                reply,
                begin,
                end,
                may_miss: false,
            });
            if let Some(session) = &self.session {
                let begin = now();
                let reply = call_by_session(session, &op);
                let end = now();
                events.push(Event { thread: by_session, op, reply, begin, end, may_miss: false });
            }
        }
        drop(handles);
        std::fs::remove_dir_all(&top).map_err(|e| format!("removing {}: {e}", top.display()))?;
        Ok((History { seed, flavour: program.flavour, inos, events }, calls))
    }
}

impl Member {
    fn order(&mut self, line: &str) -> Result<(), String> {
        let orders = self.orders.as_mut().ok_or("no pipe")?;
        writeln!(orders, "{line}").map_err(text)
    }

    fn answer(&mut self) -> Result<String, String> {
        loop {
            let line = self.words.next().ok_or("a process has ended")?.map_err(text)?;
            // A test program may have begun a line of its own.
            if let Some((_, answer)) = line.split_once(MARK) {
                return Ok(answer.to_owned());
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // The end of its orders is its end.
            drop(member.orders.take());
            let _ = member.process.wait();
        }
    }
}

fn parse(answer: &str) -> Option<(u64, u64, Reply)> {
    let mut parts = answer.splitn(3, ';');
    let (begin, end) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((begin, end, Reply::parse(parts.next()?)?))
}

/// Returns whether this process is one of a crew.
pub fn asked() -> bool {
    std::env::var_os(DIRECTORY).is_some()
}

/// Life of a process of a crew: until it gets no more orders.
///
/// # Errors
/// Says what keeps it from going on.
pub fn act() -> Result<(), String> {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).ok_or("no directory")?);
    let thread: usize = std::env::var(THREAD).map_err(text)?.parse().map_err(text)?;
    let doors = std::env::var_os(DOORS).is_some();
    let mut session = doors.then(|| of_mount(&directory).map(BySession::new)).transpose()?;
    let mut orders = std::io::stdin().lines();
    while let Some(order) = orders.next() {
        let order = order.map_err(text)?;
        let seed = order.strip_prefix("seed ").ok_or("no seed")?.parse().map_err(text)?;
        let Program { flavour, threads } = program(seed, doors);
        let mut handles = None;
        let session = session.as_mut().filter(|_| is_by_session(seed, thread));
        let session = match session {
            Some(session) => {
                open_by_session(session, seed, flavour).map_err(text)?;
                Some(&*session)
            }
            None => {
                let top = directory.join(seed.to_string());
                handles = Some(open(&top, flavour).map_err(text)?);
                None
            }
        };
        println!("{MARK}ready");
        let order = orders.next().ok_or("no order")?.map_err(text)?;
        let begin: u64 = order.strip_prefix("begin ").ok_or("order")?.parse().map_err(text)?;
        while now() < begin {
            std::hint::spin_loop();
        }
        let mut answers = Vec::with_capacity(HANDLES);
        for (spin, op) in &threads[thread] {
            (0..*spin).for_each(|_| std::hint::spin_loop());
            let begin = now();
            let reply = match (session, &mut handles) {
                (Some(session), _) => call_by_session(session, op),
                (None, Some(handles)) => call(handles, op),
                (None, None) => unreachable!("each thread has one of the doors"),
            };
            answers.push(format!("{begin};{};{reply}", now()));
        }
        drop(handles);
        println!("{MARK}{}", answers.join(" "));
    }
    Ok(())
}
