//! Rounds of: a process hammers a volume file from several threads, is killed without warning, the
//! volume is recovered, checked, and compared with what the process had been told.
//!
//! The process is this test binary itself, started with an environment variable. It logs each
//! operation before and after to a file; what it wrote before it died stays there. The operations
//! themselves need no log: they follow from the seed and the logged results.
//!
//! `SHOAL_KILL9_ROUNDS` says how many rounds (default 10; a full run has 100).

use shoal::{Caller, Generation, Ino, MkfsOptions, OpenOptions, Volume, mkfs};
use shoal_sim::checks;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::exec::{Answer, Lockstep, Step};
use shoal_sim::model::{Model, NodeState, State};
use shoal_sim::op::Op;
use shoal_sim::rng::Rng;
use shoal_sim::threads::{Span, Synced, Track, draw, judge, sync};
use shoal_sim::walk::walk;
use shoal_sim::workload::Workload;
use std::fs::{File, OpenOptions as FileOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const THREADS: usize = 3;
const CHILD: &str = "SHOAL_KILL9_CHILD";
const ROOT: fn() -> Caller = Caller::root;

fn workload(seed: u64, thread: usize) -> Workload {
    Workload::new(seed * 1000 + thread as u64).without_crashes()
}

fn open(dir: &Path) -> shoal::Result<Volume> {
    let options = OpenOptions {
        cache_bytes: 32 << 20,
        commit_interval_ms: 50,
        checkpoint_bytes: 1 << 20,
        noatime: true,
        ..OpenOptions::default()
    };
    Volume::open(&dir.join("volume"), &options)
}

// ---- the process that is killed

/// The log: whole lines, appended, so that the order of lines is an order of events.
fn log(dir: &Path) -> File {
    FileOptions::new().append(true).create(true).open(dir.join("log")).expect("log")
}

fn say(log: &File, line: String) {
    let mut log = log;
    log.write_all(line.as_bytes()).expect("log");
}

#[test]
fn kill9_child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let dir = PathBuf::from(dir);
    let seed = from_environment("SHOAL_KILL9_SEED", 0);
    let volume = open(&dir).expect("open");
    let log = log(&dir);
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let (volume, log) = (&volume, &log);
            scope.spawn(move || {
                if let Err(wrong) = hammer(volume, log, seed, t) {
                    say(log, format!("wrong {t} {}\n", wrong.replace('\n', " ")));
                    std::process::abort();
                }
            });
        }
    });
}

fn hammer(volume: &Volume, log: &File, seed: u64, t: usize) -> Result<(), String> {
    let name = format!("t{t}");
    let dir = volume.lookup(&ROOT(), Ino::ROOT, name.as_bytes()).map_err(|e| e.to_string())?;
    let mut run = Lockstep::new(volume, dir.ino)?;
    let mut workload = workload(seed, t);
    // Until killed.
    loop {
        let op = draw(&mut workload, &run);
        say(log, format!("begin {t}\n"));
        let (step, answer) = run.step_with_answer(volume, &op)?;
        let synced = sync(volume, &run, &op).map_err(|e| format!("{op}: {e}"))?;
        let refused = match step {
            Step::Refused(error) if error.code() != shoal::Code::NoSpace => {
                return Err(format!("{op}: {error}"));
            }
            Step::Refused(_) => 1,
            _ => 0,
        };
        let (kind, number, generation) = match answer {
            Some(Answer::Node(ino)) => {
                let generation = run.model.node(ino).map_or(0, |n| n.generation.0);
                ('n', ino.0, generation)
            }
            Some(Answer::Number(n)) => ('c', n, 0),
            _ => ('u', 0, 0),
        };
        let durable = u8::from(synced != Synced::No);
        say(log, format!("end {t} {refused} {kind} {number} {generation} {durable}\n"));
    }
}

// ---- the process that kills

/// A thread's life, read back from the log.
struct Life {
    run: Lockstep,
    workload: Workload,
    track: Track,
    /// The operation under way when the process died.
    last: Option<(u64, Op)>,
}

impl Life {
    fn new(seed: u64, t: usize, dir: Ino, generation: Generation) -> Life {
        let mut model = Model::new(dir, 0o777, 0, 0);
        let mut top = model.state().nodes[&dir].clone();
        top.generation = generation;
        model.adopt_seen(&top);
        let run = Lockstep::of(model);
        let track = Track::new(&run);
        Life { run, workload: workload(seed, t), track, last: None }
    }

    fn begin(&mut self, tick: u64) {
        assert!(self.last.is_none());
        self.last = Some((tick, draw(&mut self.workload, &self.run)));
    }

    fn end(&mut self, tick: u64, words: &[&str]) {
        let (begin, op) = self.last.take().expect("begun");
        let number: u64 = words[2].parse().expect("number");
        let answer = match words[1] {
            "n" => Some(Answer::Node(Ino(number))),
            "c" => Some(Answer::Number(number)),
            _ => None,
        };
        if words[0] == "0" {
            self.run.replay(&op, answer.as_ref());
            if let Some(Answer::Node(ino)) = answer
                && let Some(node) = self.run.model.node(ino)
            {
                let generation = Generation(words[3].parse().expect("generation"));
                let seen = NodeState { generation, ..node.state(ino) };
                self.run.model.adopt_seen(&seen);
            }
        } else {
            self.run.model.begin();
        }
        let span = Span { begin, end: tick };
        self.track.ended(span, &op, &self.run);
        if words[4] == "1" {
            match &op {
                Op::Fsync { file, .. } => {
                    let ino = self.run.resolve(file).expect("it was synced");
                    self.track.ack_inode(span, ino);
                }
                _ => self.track.ack_all(span),
            }
        }
    }

    /// The operation under way may have been done: if the volume looks like it, it was.
    fn guess_last(&mut self, found: &State) {
        let Some((begin, op)) = self.last.take() else { return };
        let after = self.run.after(&op, &found.below(self.track.dir));
        self.run.model.begin();
        let run = after.as_ref().unwrap_or(&self.run);
        self.track.ended(Span { begin, end: u64::MAX }, &op, run);
    }
}

/// Reads the log; the tick of an event is the number of its line.
fn read_log(text: &str, lives: &mut [Life]) -> Result<u64, String> {
    let mut tick = 0;
    // What follows the last newline was cut off by the kill.
    for line in text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines() {
        tick += 1;
        let words: Vec<&str> = line.split(' ').collect();
        let life = &mut lives[words[1].parse::<usize>().expect("thread")];
        match words[0] {
            "begin" => life.begin(tick),
            "end" => life.end(tick, &words[2..]),
            _ => return Err(line.to_string()),
        }
    }
    Ok(tick)
}

fn round(seed: u64) -> u64 {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kill9-{seed}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("directory");
    let options = MkfsOptions { size: 256 << 20, ..MkfsOptions::default() };
    mkfs(&dir.join("volume"), &options).expect("mkfs");
    let volume = open(&dir).expect("open");
    let mut lives: Vec<Life> = (0..THREADS)
        .map(|t| {
            let made = volume.mkdir(&ROOT(), Ino::ROOT, format!("t{t}").as_bytes(), 0o777);
            let made = made.expect("mkdir");
            Life::new(seed, t, made.ino, made.generation)
        })
        .collect();
    volume.close().expect("close");

    let mut child = Command::new(std::env::current_exe().expect("own name"))
        .args(["kill9_child", "--exact", "--nocapture"])
        .env(CHILD, &dir)
        .env("SHOAL_KILL9_SEED", seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    std::thread::sleep(Duration::from_millis(Rng::new(seed).range(50, 1_500)));
    child.kill().expect("kill");
    child.wait().expect("wait");

    let text = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    let ticks = read_log(&text, &mut lives).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let volume = open(&dir).unwrap_or_else(|e| panic!("seed {seed}: does not open: {e}"));
    assert!(volume.read_only_reason().is_none());
    checks::wait_for_reaping(&volume).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let found = walk(&volume, Ino::ROOT, false).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    checks::all(&volume, &found).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    lives.iter_mut().for_each(|life| life.guess_last(&found.state));
    let tracks: Vec<Track> = lives.into_iter().map(|life| life.track).collect();
    judge(&tracks, &found.state, ticks, ticks + 1).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    volume.close().expect("close");
    std::fs::remove_dir_all(&dir).expect("clean up");
    tracks.iter().map(|track| track.spans.len() as u64).sum()
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let mut operations = 0;
    for seed in 1..=from_environment("SHOAL_KILL9_ROUNDS", 10) {
        operations += within(300, &format!("round {seed}"), move || round(seed));
    }
    assert!(operations > 0, "the process was killed before it did anything, every time");
}
