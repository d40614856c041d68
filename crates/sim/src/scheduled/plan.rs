//! Plan of a seed: operations, background work, options, crashes.

use crate::linear::program::{DIRS, Flavour};
use crate::op::Op;
use crate::rng::Rng;
use shoal::raw::{Lab, OpenOptions};
use std::fmt;

/// Next step of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// An operation whose answer must have its place in the order.
    Call(Op),
    /// Everything before is durable when it returns.
    Sync,
    /// The same, asked for through a handle.
    Fsync(usize),
}

/// Work behind the calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// A checkpoint.
    Checkpoint,
    /// Everything is made durable.
    Sync,
    /// A step of what waits to be freed.
    Reap,
    /// A round of the cleaner.
    Clean,
}

/// Plan of a seed: operations, background work, options, crashes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kind of history.
    pub flavour: Flavour,
    /// By thread.
    pub threads: Vec<Vec<Step>>,
    /// More threads, that do what nobody sees.
    pub behind: Vec<Vec<Behind>>,
    /// How the volume is opened.
    pub options: OpenOptions,
    /// Images of crashes that are looked at.
    pub images: u64,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Plan {
        let mut rng = Rng::new(seed).fork(0x9_1A4);
        let drawn = Flavour::draw(&mut rng, true);
        // The fewer names, the more often threads meet.
        let drawn = match drawn.trees || drawn.replacing || rng.chance(50) {
            true => drawn,
            false => Flavour { dirs: rng.range(1, 2) as u8, names: 2, ..drawn },
        };
        let flavour = Flavour { data: !drawn.replacing && rng.chance(40), ..drawn };
        let flavour = flavour.with_batches(seed);
        let count = rng.range(2, 4);
        let most = if count == 4 { 6 } else { 8 };
        let syncs = *rng.pick(&[0, 0, 12, 12, 40]);
        let step = |rng: &mut Rng| match rng.chance(syncs) {
            true if rng.chance(50) => Step::Sync,
            true => Step::Fsync(*rng.pick(&[0, 1, DIRS, DIRS + 1])),
            false => Step::Call(flavour.op(rng)),
        };
        let thread = |rng: &mut Rng| (0..rng.range(3, most)).map(|_| step(rng)).collect();
        let threads = (0..count).map(|_| thread(&mut rng)).collect();
        let options = Plan::options(&mut rng);
        let behind = match rng.below(3) {
            0 => Vec::new(),
            threads => (0..threads).map(|_| Plan::work(&mut rng)).collect(),
        };
        let images = if rng.chance(60) { rng.range(1, 4) } else { 0 };
        Plan { flavour, threads, behind, options, images }
    }

    fn work(rng: &mut Rng) -> Vec<Behind> {
        // Some do nothing else: between any two calls the journal may have been written.
        let syncs = *rng.pick(&[0, 30, 100]);
        let one = |rng: &mut Rng| match rng.below(10) {
            _ if rng.chance(syncs) => Behind::Sync,
            0..5 => Behind::Checkpoint,
            5..8 => Behind::Reap,
            _ => Behind::Clean,
        };
        (0..rng.range(1, 6)).map(|_| one(rng)).collect()
    }

    fn options(rng: &mut Rng) -> OpenOptions {
        let background = rng.chance(30);
        OpenOptions {
            cache_bytes: 8 << 20,
            // On the clock of the run, of which a step takes a microsecond.
            commit_interval_ms: *rng.pick(&[1, 5, 1 << 30]),
            background,
            noatime: true,
            lab: Lab {
                checkpoint_always: background && rng.chance(40),
                attr_intents: rng.chance(10),
                attr_intents_flushed: rng.chance(20),
                step_records: *rng.pick(&[1, 2, 2048]),
                ..Lab::default()
            },
            ..OpenOptions::default()
        }
    }
}

/// Prints the parts that a history does not show.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, behind) in self.behind.iter().enumerate() {
            writeln!(f, "thread {} behind the calls: {behind:?}", self.threads.len() + number)?;
        }
        let OpenOptions { background, commit_interval_ms, lab, .. } = self.options;
        writeln!(
            f,
            "threads of the volume: {background}, journal every {commit_interval_ms} ms; {lab:?}"
        )
    }
}
