//! Cache lines that move between two processors when two threads create, unlink, stat and look up.
//!
//! Every access of two threads that take turns is traced (`trace.rs`), and simulated with two
//! caches. A line *moves* if a thread uses it after the other one has written it, or writes it
//! after the other one has read it. Lines are identified by the source file that writes them. A
//! file with a line that moves in at least a quarter of all calls must be in the list for the kind
//! of call, and every file in the list must be seen. The total of all moves, including those of
//! infrequent events (a new inode block, a split of a leaf), has a limit.
//!
//! `cargo test -p shoal-engine --test shared_lines -- --nocapture` prints every line that moves,
//! with the code that writes it.

use crate::trace::{self, Access, Arena, in_turn, traced};
use shoal_engine::*;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Arena = Arena;

/// Files in each directory: together more leaves than fit under one inner node.
const FILES: u32 = 14_000;
/// Traced calls of each kind, per thread.
pub(crate) const CALLS: u32 = 24;
/// Distance between the file numbers of successive calls.
const STRIDE: u32 = 97;

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Call {
    Stat,
    Lookup,
    Create,
    Unlink,
    /// The same in one directory for both threads, on different files.
    StatBeside,
    LookupBeside,
    CreateBeside,
    UnlinkBeside,
}

/// Lines that a kind of call may share.
struct Expected {
    call: Call,
    /// Files of Shoal with lines that move in nearly every call.
    shared: &'static [&'static str],
    /// Files with lines that may move: which names share a leaf is random.
    may: &'static [&'static str],
    /// Maximum moves of lines per call in total, including infrequent ones for a new inode block or
    /// a split of a leaf.
    moves_max: f64,
}

const JOURNAL: &str = "journal/ring.rs";
const INODE: &str = "itable/block.rs";
const DIRECTORY: &str = "engine/namei";
const LEAF: &str = "format/node.rs";
const TREE: &str = "tree/tree.rs";

/// In different directories two threads share only the end of the journal; in one directory also
/// its inode, and leaves.
const EXPECTED: [Expected; 8] = [
    alone(Call::Stat, &[], 0.25),
    alone(Call::Lookup, &[], 0.5),
    alone(Call::Create, &[JOURNAL], 6.0),
    alone(Call::Unlink, &[JOURNAL], 4.5),
    alone(Call::StatBeside, &[], 0.25),
    Expected { may: &[LEAF, TREE], ..alone(Call::LookupBeside, &[INODE], 4.0) },
    Expected {
        may: &[LEAF, TREE],
        ..alone(Call::CreateBeside, &[JOURNAL, INODE, DIRECTORY], 13.0)
    },
    Expected {
        may: &[LEAF, TREE],
        ..alone(Call::UnlinkBeside, &[JOURNAL, INODE, DIRECTORY], 13.0)
    },
];

/// Maximum moves of the journal's lines per call: the tail once, and in about half of the calls the
/// line in which a record of one thread ends and one of the other begins.
const JOURNAL_MAX: f64 = 1.75;

const fn alone(call: Call, shared: &'static [&'static str], moves_max: f64) -> Expected {
    Expected { call, shared, may: &[], moves_max }
}

/// Fraction of calls from which on a line that moves counts as shared.
const SHARED: f64 = 0.25;

fn name(n: u32) -> String {
    format!("{n:06}-{}", "n".repeat(200))
}

/// The objects that a thread works on.
struct Worker {
    volume: Arc<Volume>,
    caller: Caller,
    dir: Ino,
    inodes: Vec<Ino>,
    /// A directory common to both threads, and the inode before its files.
    common: Ino,
    first: Ino,
}

impl Worker {
    /// Returns directory, name and inode of a call. In the common directory those of both threads
    /// are neighbours in one inode block and in one directory.
    fn what(&self, me: usize, call: Call, n: u32) -> (Ino, String, Ino) {
        let n = n * STRIDE % FILES;
        let beside = call >= Call::StatBeside;
        let (dir, n) = if beside { (self.common, n / 2 * 2 + me as u32) } else { (self.dir, n) };
        let ino = match beside {
            true => Ino(self.first.0 + u64::from(n)),
            false => self.inodes[n as usize],
        };
        let new =
            !matches!(call, Call::Stat | Call::StatBeside | Call::Lookup | Call::LookupBeside);
        (dir, if new { format!("{}new", name(n)) } else { name(n) }, ino)
    }

    fn call(&self, call: Call, dir: Ino, name: &[u8], ino: Ino) {
        let (v, c) = (&self.volume, &self.caller);
        match call {
            Call::Stat | Call::StatBeside => v.attributes().getattr(ino).map(drop).unwrap(),
            Call::Lookup | Call::LookupBeside => {
                v.namespace().lookup(c, dir, name).map(drop).unwrap()
            }
            Call::Create | Call::CreateBeside => {
                v.namespace().create(c, dir, name, 0o644).map(drop).unwrap()
            }
            Call::Unlink | Call::UnlinkBeside => v.namespace().unlink(c, dir, name).unwrap(),
        }
    }
}

impl Worker {
    /// Creates the files, then makes all calls of each kind in turn with the other thread. Returns
    /// the accesses of each call.
    fn work(mut self, me: usize) -> Vec<Vec<Vec<Access>>> {
        in_turn(me, 2, || {
            for n in 0..FILES {
                let name = name(n);
                let made =
                    self.volume.namespace().create(&self.caller, self.dir, name.as_bytes(), 0o644);
                self.inodes.push(made.unwrap().ino);
            }
        });
        let mut logs: Vec<Vec<Vec<Access>>> = Vec::new();
        for Expected { call, .. } in EXPECTED {
            in_turn(me, 2, || logs.push(Vec::new()));
            for n in 0..CALLS {
                in_turn(me, 2, || {
                    let (dir, name, ino) = self.what(me, call, n);
                    let ((), log) = traced(|| self.call(call, dir, name.as_bytes(), ino));
                    logs.last_mut().unwrap().push(log);
                });
            }
        }
        // Waits until the other thread is done too.
        in_turn(me, 2, || {});
        logs
    }
}

/// Moves of a line from the other thread's cache.
#[derive(Default)]
pub(crate) struct Line {
    pub moves: u32,
    /// Calls in which it moved.
    calls: BTreeSet<usize>,
    /// Descriptions of its writes, with their number.
    by: BTreeMap<String, u32>,
}

/// Simulates the accesses of two processors with separate caches, in turn for each call. A line
/// moves if one uses it after the other has written it, or writes it after the other has read it.
pub(crate) fn moves(logs: &[Vec<Vec<Access>>; 2]) -> BTreeMap<usize, Line> {
    let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
    // The processors that have a line.
    let mut have: BTreeMap<usize, u8> = BTreeMap::new();
    for n in 0..CALLS as usize {
        for (me, log) in logs.iter().enumerate() {
            let (mine, others) = (1u8 << me, 2u8 >> me);
            for access in &log[n] {
                let has = have.entry(access.line).or_default();
                let moved = match access.write {
                    true => *has & others != 0,
                    false => *has == others,
                };
                *has = if access.write { mine } else { *has | mine };
                if moved {
                    let line = lines.entry(access.line).or_default();
                    line.moves += 1;
                    line.calls.insert(2 * n + me);
                }
            }
        }
    }
    for access in logs.iter().flatten().flatten().filter(|access| access.write) {
        if let Some(line) = lines.get_mut(&access.line) {
            *line.by.entry(describe(access)).or_default() += 1;
        }
    }
    // Lines without writes may be shared for reading.
    lines.retain(|_, line| !line.by.is_empty());
    lines
}

/// Returns the innermost functions of Shoal that lead to a write, with their files.
fn describe(access: &Access) -> String {
    let stack = trace::stack(access);
    let short = |f: &trace::Frame| {
        let at = f.place.find("crates/").map_or(0, |at| at + 7);
        let name = f.name.rsplit("::").next().unwrap_or("");
        format!("{} {name}", &f.place[at..].replace("/src", ""))
    };
    let ours: Vec<String> = stack
        .iter()
        .filter(|f| f.place.contains("crates/") && !f.place.contains(".cargo"))
        .take(3)
        .map(short)
        .collect();
    let inner = stack.first().map_or("", |s| s.name.as_str());
    format!("{} [{inner}]", ours.join(" < "))
}

/// Returns the file that writes a line, from its description. Functions of `namei` are inlined into
/// their callers, and their frames are lost.
fn file_of(description: &str) -> String {
    let file = description.split(':').next().unwrap_or("");
    match file {
        "base/cold.rs" => DIRECTORY.to_string(),
        file if file.starts_with(DIRECTORY) => DIRECTORY.to_string(),
        file => file.to_string(),
    }
}

/// Prints the lines that moved, and compares them with the expectation. Returns the differences.
fn judge(expected: &Expected, logs: &[Vec<Vec<Access>>; 2]) -> Vec<String> {
    let Expected { call, shared, may, moves_max } = expected;
    let accesses: usize = logs.iter().flatten().map(Vec::len).sum();
    println!("== {call:?}: {} accesses a call", accesses / (2 * CALLS as usize));
    let per_call = |count: u32| f64::from(count) / f64::from(2 * CALLS);
    let mut names: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut files: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let (mut all, mut journal) = (0, 0);
    for line in moves(logs).into_values() {
        let most = line.by.iter().max_by_key(|(_, times)| **times).unwrap().0;
        let sum = names.entry(most.clone()).or_default();
        *sum = (sum.0 + line.moves, sum.1 + 1);
        let file = file_of(most);
        journal += if file == JOURNAL { line.moves } else { 0 };
        files.entry(file).or_default().extend(&line.calls);
        all += line.moves;
    }
    let mut sorted: Vec<_> = names.into_iter().map(|(name, sum)| (sum, name)).collect();
    sorted.sort_by(|a, b| b.cmp(a));
    for ((moves, lines), name) in sorted {
        println!("{:7.3} a call, {lines} lines, {name}", per_call(moves));
    }
    println!("== {call:?}: {:.3} moves a call", per_call(all));
    println!(
        "{{\"workload\":\"shared-lines\",\"call\":\"{call:?}\",\"tracking\":\"needed\",\
         \"ops\":{},\"moves\":{:.3}}}",
        2 * CALLS,
        per_call(all)
    );
    let share = |file: &str| per_call(files.get(file).map_or(0, |calls| calls.len() as u32));
    let mut wrong = Vec::new();
    for file in files.keys().map(String::as_str) {
        if share(file) >= SHARED && !shared.contains(&file) && !may.contains(&file) {
            wrong.push(format!("{call:?} shares lines of {file}: {:.3} of calls", share(file)));
        }
    }
    for file in shared.iter().filter(|file| share(file) < SHARED) {
        wrong.push(format!("{call:?} shares no line of {file}: is it traced?"));
    }
    if per_call(journal) > JOURNAL_MAX {
        wrong.push(format!("{call:?}: {:.3} moves of the journal's lines", per_call(journal)));
    }
    if per_call(all) > *moves_max {
        wrong.push(format!("{call:?}: {:.3} moves a call", per_call(all)));
    }
    wrong
}

/// Number of the volume that is traced. Splits of leaves depend on the volume's id, by which names
/// are hashed. A split among so few calls would look like a property of each call, as it does on
/// three volumes of four: on this one there is none. Lines that calls really share move on all
/// volumes.
const VOLUME: u64 = 1;
/// Variable of the environment: the last volume to try, from 0 on, each by a process of its own.
const SEARCH: &str = "SHARED_LINES_SEARCH";
/// Variable of the environment: the volume that this process tries.
const TRIED: &str = "SHARED_LINES_TRIED";

/// Traces all calls, prints the moves, and panics if they are not as expected.
pub(crate) fn run() {
    trace::prepare();
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let last: Option<u64> = number(SEARCH);
    let volume = match last {
        Some(_) => number(TRIED).unwrap_or(0),
        None => VOLUME,
    };
    let wrong = wrong_on_a_volume(volume);
    if wrong.is_empty() {
        println!("nothing is wrong on volume {volume}");
        return;
    }
    println!("on volume {volume}: {wrong:#?}");
    let Some(last) = last else {
        panic!(
            "on volume {volume}. If only where leaves split has changed, there are other volumes \
             on which nothing is wrong. To find the one to write here: \
             {SEARCH}=48 cargo test -p shoal-engine --test shared_lines"
        );
    };
    assert!(volume < last, "on each of the volumes: {wrong:#?}");
    // Memory is never freed here, and tracing takes the longer the more there is: begin anew.
    let this = std::env::current_exe().unwrap();
    let mut again = Command::new(this);
    let failed =
        again.args(std::env::args_os().skip(1)).env(TRIED, (volume + 1).to_string()).exec();
    panic!("running this program again: {failed}");
}

/// Options of the volume of a number: its id decides how names are hashed.
pub(crate) fn mkfs_options(number: u64) -> MkfsOptions {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    MkfsOptions { id: Some(id), ..MkfsOptions::default() }
}

/// Returns what is not as expected on the volume of a number.
fn wrong_on_a_volume(number: u64) -> Vec<String> {
    let device = Arc::new(MemDevice::new(1 << 30));
    mkfs_on(device.clone(), &mkfs_options(number)).unwrap();
    let options = OpenOptions { background: false, cache_bytes: 1 << 30, ..OpenOptions::default() };
    let volume = Arc::new(Volume::open_on(device, &options).unwrap());
    let root = Caller::root();
    let common = volume.namespace().mkdir(&root, Ino::ROOT, b"common", 0o755).unwrap().ino;
    let mut inodes = Vec::new();
    for n in 0..FILES {
        let entry = volume.namespace().create(&root, common, name(n).as_bytes(), 0o644).unwrap();
        inodes.push(entry.ino);
    }
    let first = inodes[0];
    let workers = ["a", "b"].map(|dir| {
        let dir = volume.namespace().mkdir(&root, Ino::ROOT, dir.as_bytes(), 0o755).unwrap().ino;
        Worker {
            volume: volume.clone(),
            caller: Caller::root(),
            dir,
            inodes: Vec::new(),
            common,
            first,
        }
    });
    let [a, b] = std::thread::scope(|scope| {
        let mut me = 0;
        let threads = workers.map(|worker| {
            me += 1;
            let me = me - 1;
            scope.spawn(move || worker.work(me))
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let logs = a.into_iter().zip(b);
    EXPECTED.iter().zip(logs).flat_map(|(call, (a, b))| judge(call, &[a, b])).collect()
}
