//! Histories on a mounted directory: each thread is a process of its own.
//!
//! The processes are started once and told over pipes what to do: the seed of a history, from which
//! they draw their part; then, when all have opened their handles, the moment of a common clock at
//! which to begin, for which they wait spinning. What they say begins with a mark, because a test
//! program says other things too.

use super::history::{Event, History};
use super::library::Tally;
use super::program::{HANDLES, Program, making, paths};
use super::reply::{Reply, Seen};
use super::search::check;
use crate::exec::Answer;
use crate::op::{Op, Target};
use crate::system::{Entry, Files, is_dir};
use rustix::fs::Stat;
use rustix::time::{ClockId, clock_gettime};
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

/// The processes.
pub struct Crew {
    directory: PathBuf,
    members: Vec<Member>,
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

/// Makes what a history begins with; returns the numbers of the handles.
fn make(top: &Path) -> io::Result<[u64; HANDLES]> {
    std::fs::create_dir(top)?;
    let mut files = Files::below(top);
    for op in making(false) {
        files.call(&op)?;
    }
    let mut inos = [0; HANDLES];
    for (ino, path) in inos.iter_mut().zip(paths(false)) {
        *ino = files.stat(&Target::Path(path.into()))?.st_ino;
    }
    Ok(inos)
}

/// Opens the handles.
fn open(top: &Path) -> io::Result<Files> {
    let mut files = Files::below(top);
    files.open_paths(&paths(false))?;
    Ok(files)
}

/// Makes a call.
fn call(files: &mut Files, op: &Op) -> Reply {
    let seen = |stat: &Stat| Seen { dir: is_dir(stat), ino: stat.st_ino, age: 0 };
    let reply = match op {
        Op::Readdir { dir, .. } => files.list(dir).map(|entries| {
            let seen = |e: Entry| (e.name, Seen { dir: e.dir, ino: e.ino, age: 0 });
            Reply::of_list(entries.into_iter().map(seen))
        }),
        _ => files.call(op).map(|(answer, stat)| match (answer, stat) {
            (Answer::Bytes(bytes), _) => Reply::of_bytes(&bytes),
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

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Crew {
    /// Starts them; `command` makes the command line of a program that calls [`act`].
    ///
    /// # Errors
    /// Says which does not start.
    pub fn start(directory: &Path, command: &dyn Fn() -> Command) -> Result<Crew, String> {
        let start = |thread: usize| {
            let process = command()
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
        Ok(Crew { directory: directory.to_owned(), members })
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
                    check(&history.without_early_attributes()).map_err(|_| wrong.to_string())?
                }
            };
            tally.count(&history, calls, states);
        }
        Ok(tally)
    }

    fn one(&mut self, seed: u64) -> Result<(History, usize), String> {
        let program = Program::draw(seed, false, SPIN);
        let top = self.directory.join(seed.to_string());
        let inos = make(&top).map_err(text)?;
        let mut handles = open(&top).map_err(text)?;
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
                events.push(Event { thread, op: op.clone(), reply, begin, end });
            }
        }
        let calls = events.len();
        for op in program.flavour.epilogue() {
            let begin = now();
            let reply = call(&mut handles, &op);
            events.push(Event { thread: 0, op, reply, begin, end: now() });
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
    let mut orders = std::io::stdin().lines();
    while let Some(order) = orders.next() {
        let order = order.map_err(text)?;
        let seed = order.strip_prefix("seed ").ok_or("no seed")?.parse().map_err(text)?;
        let calls = &Program::draw(seed, false, SPIN).threads[thread];
        let mut handles = open(&directory.join(seed.to_string())).map_err(text)?;
        println!("{MARK}ready");
        let order = orders.next().ok_or("no order")?.map_err(text)?;
        let begin: u64 = order.strip_prefix("begin ").ok_or("order")?.parse().map_err(text)?;
        while now() < begin {
            std::hint::spin_loop();
        }
        let mut answers = Vec::with_capacity(HANDLES);
        for (spin, op) in calls {
            (0..*spin).for_each(|_| std::hint::spin_loop());
            let begin = now();
            let reply = call(&mut handles, op);
            answers.push(format!("{begin};{};{reply}", now()));
        }
        drop(handles);
        println!("{MARK}{}", answers.join(" "));
    }
    Ok(())
}
