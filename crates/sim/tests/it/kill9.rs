//! Rounds of: a process hammers a volume file from several threads, is killed without warning, the
//! volume is recovered, checked, and compared with what the process had been told.
//!
//! The process notes each operation before and after. The operations themselves need no notes: they
//! follow from the seed and the noted results.
//!
//! In half of the rounds the volume has a ring that outlives the process: then every call that had
//! returned must be there, synced or not, although the journal is hardly ever written.
//!
//! `SHOAL_KILL9_ROUNDS` says how many rounds (default 10; a full run has 100).

use shoal::raw::{Caller, Generation, Ino, OpenOptions, RingMemory, Volume};
use shoal_sim::checks;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::exec::{Answer, Lockstep, Step};
use shoal_sim::killed::{Notes, Scene};
use shoal_sim::model::{Model, NodeState, State};
use shoal_sim::op::Op;
use shoal_sim::rng::Rng;
use shoal_sim::threads::{Span, Synced, Track, draw, is_full, judge, sync};
use shoal_sim::walk::walk;
use shoal_sim::workload::Workload;
use std::path::Path;
use std::sync::Arc;

const THREADS: usize = 3;
const CHILD: &str = "kill9::kill9_child";
const CHILD_WITH_RING: &str = "kill9::kill9_kept_child";
const ROOT: fn() -> Caller = Caller::root;

fn workload(seed: u64, thread: usize) -> Workload {
    let seed = seed * 1000 + thread as u64;
    Workload::new(seed).without_crashes().with_batches(seed)
}

fn open(scene: &Scene, kept: bool) -> shoal::raw::Result<Volume> {
    let ring = match kept {
        true => Some(Arc::new(RingMemory::open(&scene.ring())?)),
        false => None,
    };
    let options = OpenOptions {
        cache_bytes: 32 << 20,
        commit_interval_ms: if kept { 60_000 } else { 50 },
        ring,
        checkpoint_bytes: 1 << 20,
        noatime: true,
        ..OpenOptions::default()
    };
    Volume::open(&scene.volume(), &options)
}

// ---- the process that is killed

#[test]
fn kill9_child() {
    work_until_killed(CHILD, false);
}

#[test]
fn kill9_kept_child() {
    work_until_killed(CHILD_WITH_RING, true);
}

fn work_until_killed(test: &str, kept: bool) {
    let Some((scene, seed)) = Scene::entered(test) else { return };
    let (volume, notes) = (open(&scene, kept).expect("open"), scene.notes());
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let (volume, notes) = (&volume, &notes);
            scope.spawn(move || {
                if let Err(wrong) = hammer(volume, notes, seed, t) {
                    notes.say(&format!("wrong {t} {}", wrong.replace('\n', " ")));
                    std::process::abort();
                }
            });
        }
    });
}

fn hammer(volume: &Volume, notes: &Notes, seed: u64, t: usize) -> Result<(), String> {
    let name = format!("t{t}");
    let dir = volume
        .namespace()
        .lookup(&ROOT(), Ino::ROOT, name.as_bytes())
        .map_err(|e| e.to_string())?;
    let mut run = Lockstep::new(volume, dir.ino)?;
    let mut workload = workload(seed, t);
    // Until killed.
    loop {
        let op = draw(&mut workload, &run);
        notes.say(&format!("begin {t}"));
        let (step, answer) = run.step_with_answer(volume, &op)?;
        let synced = sync(volume, &run, &op).map_err(|e| format!("{op}: {e}"))?;
        let refused = match step {
            Step::Refused(error) if !is_full(&op, &error) => return Err(format!("{op}: {error}")),
            Step::Refused(_) => 1,
            _ => 0,
        };
        let (kind, number, generation) = match answer {
            Some(Answer::Node(ino)) => {
                let generation = run.model.node(ino).map_or(0, |n| n.generation.0);
                ('n', ino.0, generation)
            }
            Some(Answer::Number(n)) => ('c', n, 0),
            Some(Answer::Made(_)) => ('m', 0, 0),
            _ => ('u', 0, 0),
        };
        let made = match &answer {
            Some(Answer::Made(inos)) => made_words(&run, inos),
            _ => String::new(),
        };
        let durable = u8::from(synced != Synced::No);
        notes.say(&format!("end {t} {refused} {kind} {number} {generation} {durable}{made}"));
    }
}

/// New inodes of a batch with their generations, in words; "-" for one that is gone at its end.
fn made_words(run: &Lockstep, inos: &[Option<Ino>]) -> String {
    let word = |ino: &Option<Ino>| match ino {
        Some(ino) => {
            format!(" {}:{}", ino.0, run.model.node(*ino).map_or(0, |n| n.generation.0))
        }
        None => " -".to_owned(),
    };
    inos.iter().map(word).collect()
}

fn made_of(words: &[String]) -> Vec<Option<(Ino, Generation)>> {
    let one = |word: &String| {
        let (ino, generation) = word.split_once(':')?;
        Some((Ino(ino.parse().expect("number")), Generation(generation.parse().expect("number"))))
    };
    words.iter().map(one).collect()
}

// ---- the process that kills

/// A thread's life, read back from its notes.
struct Life {
    run: Lockstep,
    workload: Workload,
    track: Track,
    /// The operation under way when the process died.
    last: Option<(u64, Op)>,
    /// The ring outlives the process.
    kept: bool,
}

impl Life {
    fn new(seed: u64, t: usize, dir: Ino, generation: Generation, kept: bool) -> Life {
        let mut model = Model::new(dir, 0o777, 0, 0);
        let mut top = model.state().nodes[&dir].clone();
        top.generation = generation;
        model.adopt_seen(&top);
        let run = Lockstep::of(model);
        let track = Track::new(&run);
        Life { run, workload: workload(seed, t), track, last: None, kept }
    }

    fn begin(&mut self, tick: u64) {
        assert!(self.last.is_none());
        self.last = Some((tick, draw(&mut self.workload, &self.run)));
    }

    fn end(&mut self, tick: u64, words: &[String]) {
        let (begin, op) = self.last.take().expect("begun");
        let number: u64 = words[2].parse().expect("number");
        let generation = Generation(words[3].parse().expect("generation"));
        let made = made_of(&words[5..]);
        let (answer, new) = match words[1].as_str() {
            "n" => (Some(Answer::Node(Ino(number))), vec![(Ino(number), generation)]),
            "c" => (Some(Answer::Number(number)), Vec::new()),
            "m" => {
                let inos = made.iter().map(|made| made.map(|(ino, _)| ino)).collect();
                (Some(Answer::Made(inos)), made.into_iter().flatten().collect())
            }
            _ => (None, Vec::new()),
        };
        if words[0] == "0" {
            self.run.replay(&op, answer.as_ref());
            for (ino, generation) in new {
                let Some(node) = self.run.model.node(ino) else { continue };
                let seen = NodeState { generation, ..node.state(ino) };
                self.run.model.adopt_seen(&seen);
            }
        } else {
            self.run.model.begin();
        }
        let span = Span { begin, end: tick };
        self.track.ended(span, &op, &self.run);
        if words[4] == "1" || self.kept {
            match &op {
                Op::Fsync { file, .. } if !self.kept => {
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

/// Reads the notes; the tick of an event is the number of its line.
fn read_notes(told: &[Vec<String>], lives: &mut [Life]) -> Result<u64, String> {
    let mut tick = 0;
    for words in told {
        tick += 1;
        let life = &mut lives[words[1].parse::<usize>().expect("thread")];
        match words[0].as_str() {
            "begin" => life.begin(tick),
            "end" => life.end(tick, &words[2..]),
            _ => return Err(words.join(" ")),
        }
    }
    Ok(tick)
}

fn round(seed: u64, kept: bool) -> u64 {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kill9-{kept}-{seed}"));
    let scene = Scene::new(folder, 256 << 20);
    let volume = open(&scene, kept).expect("open");
    let mut lives: Vec<Life> = (0..THREADS)
        .map(|t| {
            let made =
                volume.namespace().mkdir(&ROOT(), Ino::ROOT, format!("t{t}").as_bytes(), 0o777);
            let made = made.expect("mkdir");
            Life::new(seed, t, made.ino, made.generation, kept)
        })
        .collect();
    volume.close().expect("close");

    let more = Rng::new(seed).range(1, 2_000) as usize;
    let child = if kept { CHILD_WITH_RING } else { CHILD };
    scene.kill(child, seed, || scene.wait_for_notes(more));

    let ticks = read_notes(&scene.told(), &mut lives);
    let ticks = ticks.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let volume = open(&scene, kept).unwrap_or_else(|e| panic!("seed {seed}: does not open: {e}"));
    assert!(volume.read_only_reason().is_none());
    shoal_sim::call::wait_for_reaping(&volume).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let found = walk(&volume, Ino::ROOT, false).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    checks::all(&volume, &found).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    lives.iter_mut().for_each(|life| life.guess_last(&found.state));
    let tracks: Vec<Track> = lives.into_iter().map(|life| life.track).collect();
    judge(&tracks, &found.state, ticks, ticks + 1).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    volume.close().expect("close");
    scene.clean_up();
    tracks.iter().map(|track| track.spans.len() as u64).sum()
}

fn rounds(kept: bool) {
    let mut operations = 0;
    for seed in 1..=from_environment("SHOAL_KILL9_ROUNDS", 10) {
        operations += within(300, &format!("round {seed}"), move || round(seed, kept));
    }
    assert!(operations > 0, "the process was killed before it did anything, every time");
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    rounds(false);
}

#[test]
fn nothing_that_returned_is_lost_by_kill_9_with_a_ring_that_outlives_the_process() {
    rounds(true);
}
