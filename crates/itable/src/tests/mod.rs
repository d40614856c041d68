//! Models of concurrent use, run under the scheduler of `shuttle`, which selects the next thread at
//! every lock and atomic (`sync.rs`). The same seed gives the same runs.
//!
//! Other or longer runs: `SHOAL_MODEL_SEED=7 SHOAL_MODEL_RUNS=5000 cargo test -p shoal-itable`. A
//! failure prints its schedule: `SHOAL_MODEL_SCHEDULE=… cargo test -p shoal-itable NAME` replays
//! it.
//!
//! Properties checked:
//!
//! 1. A checkpoint's image, read by a table of its own, is the state at the end of its epoch.
//! 2. A read returns what was written last, wherever the block has been meanwhile.
//! 3. No number is allocated twice, and numbers of mostly free blocks can be allocated again.
//! 4. When an epoch ends, marks, flags and counts match; its checkpoint leaves none of its own.
//! 5. A scan of all blocks sees every inode that stays as it is, once.
//! 6. In the end, every clean and unused block can be evicted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod noted;
mod numbers;
mod world;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::{Config, Runner};
use world::{Plan, claim_and_fill, run, run_end_of_checkpoint};

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Runs a model once, whatever the environment: it has one thread, or threads that do not interact.
fn once(model: impl Fn() + Clone + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new_from_seed(1, 1), config).run(model);
}

/// Runs a model, half of the time with a scheduler that switches threads at few places only.
fn check(runs: u64, model: impl Fn() + Clone + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    if let Ok(schedule) = std::env::var("SHOAL_MODEL_SCHEDULE") {
        let scheduler = ReplayScheduler::new_from_encoded(&schedule);
        Runner::new(scheduler, config).run(model);
        return;
    }
    let runs = from_env("SHOAL_MODEL_RUNS", runs) as usize / 2;
    let seed = from_env("SHOAL_MODEL_SEED", 1);
    let scheduler = RandomScheduler::new_from_seed(seed, runs);
    Runner::new(scheduler, config.clone()).run(model.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 4, runs), config).run(model);
}

const PLAN: Plan = Plan {
    blocks: 3,
    used: 3,
    limit: 0,
    threads: 2,
    steps: 15,
    creates: 2,
    frees: 2,
    checkpoints: 0,
    failures: 0,
    visits: 0,
    cleans: 0,
    aheads: 0,
    scans: 0,
    searches: 0,
};

#[test]
fn numbers_are_given_out_once() {
    // Few are left, so that pool and cursors run dry, and new blocks are begun.
    let plan = Plan { blocks: 2, used: 31, creates: 6, threads: 3, steps: 25, limit: 4, ..PLAN };
    check(600, move || run(plan));
}

#[test]
fn numbers_are_used_again_once() {
    // Blocks become sparse enough, are listed, taken, filled and released, all at once.
    let plan = Plan { blocks: 4, used: 9, creates: 4, frees: 5, threads: 3, steps: 30, ..PLAN };
    check(600, move || run(Plan { limit: 2, ..plan }));
    check(300, move || run(Plan { limit: 20, ..plan }));
}

#[test]
fn replay_leaves_no_number_behind() {
    once(move || claim_and_fill(Plan { blocks: 1, used: 3, ..PLAN }));
}

#[test]
fn numbers_of_evicted_blocks_are_given_out_once() {
    let plan = Plan { blocks: 2, used: 31, creates: 6, frees: 4, visits: 5, ..PLAN };
    check(600, move || run(plan));
}

#[test]
fn new_blocks_are_begun_once() {
    // The threads start together when no number is left.
    let plan = Plan { blocks: 1, used: 32, creates: 10, frees: 0, threads: 3, steps: 2, ..PLAN };
    check(4000, move || run(plan));
}

#[test]
fn new_blocks_are_begun_while_written() {
    let plan = Plan { blocks: 0, used: 0, creates: 10, frees: 0, steps: 40, ..PLAN };
    check(400, move || run(Plan { threads: 3, checkpoints: 1, ..plan }));
}

#[test]
fn evicted_blocks_come_back_as_they_were() {
    check(600, || run(Plan { visits: 10, threads: 3, limit: 1, ..PLAN }));
}

#[test]
fn a_checkpoint_writes_its_epoch() {
    check(600, || run(Plan { checkpoints: 3, limit: 9, ..PLAN }));
}

#[test]
fn a_checkpoint_writes_its_epoch_of_one_inode() {
    // One inode for all: each change of it meets changes of other epochs.
    let plan = Plan { blocks: 1, used: 2, creates: 0, frees: 0, limit: 9, ..PLAN };
    check(600, move || run(Plan { checkpoints: 4, steps: 25, ..plan }));
}

#[test]
fn what_becomes_clean_while_room_is_made_can_leave() {
    let plan = Plan { blocks: 1, used: 3, threads: 0, ..PLAN };
    check(2000, move || run_end_of_checkpoint(plan));
}

#[test]
fn what_becomes_clean_is_changed_while_room_is_made() {
    let plan = Plan { blocks: 1, used: 3, threads: 1, ..PLAN };
    check(2000, move || run_end_of_checkpoint(plan));
}

#[test]
fn what_a_failed_checkpoint_wrote_stays() {
    check(600, || run(Plan { failures: 1, visits: 15, ..PLAN }));
}

#[test]
fn evicting_and_writing() {
    check(600, || run(Plan { checkpoints: 3, visits: 10, ..PLAN }));
}

#[test]
fn a_scan_misses_no_inode() {
    let plan = Plan { blocks: 1, used: 32, creates: 10, frees: 0, steps: 4, ..PLAN };
    check(600, move || run(Plan { scans: 3, visits: 6, checkpoints: 2, ..plan }));
    check(600, || run(Plan { scans: 3, visits: 5, checkpoints: 2, cleans: 3, limit: 1, ..PLAN }));
}

#[test]
fn a_search_misses_no_changed_block() {
    let plan = Plan { blocks: 3, used: 20, creates: 3, frees: 1, steps: 12, ..PLAN };
    check(800, move || run(Plan { searches: 5, visits: 6, checkpoints: 4, limit: 1, ..plan }));
    check(300, move || run(Plan { searches: 5, visits: 3, checkpoints: 3, cleans: 3, ..plan }));
}

#[test]
fn evicting_moving_and_writing() {
    check(600, || run(Plan { checkpoints: 3, visits: 5, cleans: 5, limit: 1, ..PLAN }));
}

#[test]
fn reading_ahead_what_is_changed_written_and_evicted() {
    let plan = Plan { blocks: 2, threads: 1, creates: 0, frees: 1, ..PLAN };
    check(1500, move || run(Plan { checkpoints: 3, visits: 5, aheads: 3, ..plan }));
}

#[test]
fn moving_what_nobody_changes() {
    // Only lookups and the cleaner: blocks are written with nothing changed in them.
    let plan = Plan { blocks: 4, threads: 1, creates: 0, frees: 0, steps: 2, ..PLAN };
    check(600, move || run(Plan { checkpoints: 3, visits: 15, cleans: 8, ..plan }));
}
