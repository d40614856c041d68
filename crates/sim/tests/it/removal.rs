//! Operations that take many transactions: removing trees, truncating, freeing large files. Crashes
//! after every device operation, with steps of every size, with and without the journal written
//! after each: to the namespace it is done from its first record on, and recovery does the rest.

use crate::common::crash_at_every_point;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::op::make::{
    at, create, link, mkdir, open, path, remove_tree, setxattr, truncate, unlink, write,
};
use shoal_sim::op::{Op, Target, Who};
use shoal_sim::runner::{Settings, Sim, run_from};
use shoal_sim::workload::Workload;

const ROOT: Who = Who::Root;

/// Writes that leave a file with this many extents, far apart.
fn sparse(file: &Target, extents: u64) -> impl Iterator<Item = Op> {
    let file = file.clone();
    (0..extents).map(move |i| write(file.clone(), i << 20, 700))
}

fn settings(step_records: usize, flushed: bool) -> Settings {
    let mut settings = Settings { explain: true, ..Settings::small(32 << 20) };
    settings.open.lab.step_records = step_records;
    settings.open.lab.attr_intents_flushed = flushed;
    settings
}

/// Runs `ops` with steps of every size, and crashes at every point of each run.
fn crash_everywhere(name: &'static str, ops: &[Op]) {
    for (step, flushed) in [(1, true), (2, true), (3, false), (5, true), (64, true)] {
        crash_at_every_point(name, step, settings(step, flushed), ops);
    }
}

/// Names of one hash chain, hard links out of the tree and within, files and directories that are
/// open, attributes outside the inode, an empty directory, a deep one.
#[test]
fn a_tree_goes_whole_through_any_crash() {
    let mut ops = vec![mkdir("", "t"), mkdir("t", "a"), mkdir("t/a", "b"), mkdir("t", "empty")];
    ops.extend([mkdir("", "keep"), create("keep", "f"), write(path("keep/f"), 0, 40_000)]);
    for i in 0..7 {
        ops.push(create("t", &format!("f{i}")));
        ops.push(create("t/a/b", &format!("f{i}")));
    }
    ops.extend(sparse(&path("t/f1"), 30));
    ops.extend(sparse(&path("t/a/b/f2"), 30));
    ops.extend([
        link("keep/f", "t/a", "other"),
        link("keep/f", "t/a/b", &"l".repeat(200)),
        link("t/f3", "t/a", "twice"),
        setxattr("t/a", "user.large", 3_000),
        setxattr("t/a/b", "user.a", 900),
        setxattr("t/a/b", "user.b", 900),
        setxattr("t/f4", "user.value", 60_000),
        write(path("t/f5"), 0, 5_000),
        open("t/a/b/f2", 0),
        open("t/f5", 1),
        open("t/a/b", 2),
        open("t/a", 3),
        Op::Sync,
        remove_tree("", "t"),
        create("keep", "after"),
        write(Target::Slot(0), 100, 10),
        write(Target::Slot(1), 100, 10),
        Op::Sync,
        Op::Close { slot: 0 },
        Op::Close { slot: 2 },
        Op::Checkpoint,
        Op::Close { slot: 1 },
        Op::Close { slot: 3 },
        Op::Paths { file: path("keep/f") },
        Op::Sync,
    ]);
    crash_everywhere("tree", &ops);
}

#[test]
fn a_tail_goes_in_steps() {
    let mut ops = vec![create("", "f")];
    ops.extend(sparse(&path("f"), 40));
    ops.extend([
        Op::Sync,
        truncate(path("f"), (20 << 20) + 300),
        write(path("f"), 25 << 20, 500),
        Op::Sync,
        Op::Checkpoint,
        truncate(path("f"), 100),
        truncate(path("f"), 1 << 30),
        Op::Sync,
    ]);
    ops.extend(sparse(&path("f"), 20));
    ops.extend([Op::Sync, truncate(path("f"), 0), write(path("f"), 0, 10), Op::Sync]);
    crash_everywhere("tail", &ops);
}

/// A file with a slot for being unlinked is cut as well: one slot, not two.
#[test]
fn an_unlinked_file_is_cut_and_freed() {
    let mut ops = vec![mkdir("", "d"), create("d", "f")];
    ops.extend(sparse(&path("d/f"), 30));
    ops.extend([open("d/f", 0), unlink("d", "f"), Op::Sync]);
    ops.extend([truncate(Target::Slot(0), 3 << 20), write(Target::Slot(0), 9 << 20, 10), Op::Sync]);
    ops.extend([truncate(Target::Slot(0), 0), write(Target::Slot(0), 0, 10), Op::Sync]);
    ops.push(Op::Tmpfile { who: ROOT, dir: path("d"), mode: 0o644, slot: 1 });
    ops.extend(sparse(&Target::Slot(1), 10));
    ops.extend([truncate(Target::Slot(1), 2 << 20), Op::Sync]);
    ops.push(Op::Link { who: ROOT, from: Target::Slot(1), at: at("", "linked") });
    ops.extend([truncate(path("linked"), 100), Op::Sync]);
    ops.extend([Op::Close { slot: 0 }, Op::Sync, Op::Close { slot: 1 }, Op::Sync]);
    crash_everywhere("unlinked", &ops);
}

/// Detached files that are changed within themselves, and that outgrow themselves.
#[test]
fn detached_files_leave_nothing() {
    let mut ops = vec![mkdir("", "d")];
    for (slot, name) in ["empty", "inline", "extent", "value", "grows"].iter().enumerate() {
        ops.extend([create("d", name), open(&format!("d/{name}"), slot)]);
    }
    ops.extend([
        write(path("d/inline"), 0, 100),
        write(path("d/extent"), 0, 9_000),
        setxattr("d/value", "user.v", 5_000),
        Op::Sync,
    ]);
    ops.extend(["empty", "inline", "extent", "value", "grows"].map(|name| unlink("d", name)));
    ops.push(Op::Sync);
    for slot in 0..5 {
        let chmod = Op::Chmod { who: ROOT, file: Target::Slot(slot), mode: 0o600 };
        ops.extend([write(Target::Slot(slot), 0, 50), chmod, Op::Sync]);
        ops.push(truncate(Target::Slot(slot), 20));
    }
    ops.extend(sparse(&Target::Slot(4), 12));
    ops.extend([Op::Sync, write(Target::Slot(0), 0, 5_000), Op::Checkpoint]);
    ops.extend((0..5).map(|slot| Op::Close { slot }));
    ops.extend([create("d", "new"), write(path("d/new"), 0, 9_000), Op::Sync]);
    crash_everywhere("detached", &ops);
}

#[test]
fn random_runs_about_trees() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24) {
        within(300, &format!("seed {seed}"), move || {
            let workload = Workload::with_profile(seed, "trees");
            let mut settings = Settings { explain: true, ..Settings::of_seed(seed) };
            settings.open.lab.attr_intents_flushed = seed % 4 != 3;
            if let Err(failure) = run_from(&settings, workload, 400) {
                panic!("seed {seed}: {failure}");
            }
        });
    }
}

/// A crash at every write of runs mostly of trees.
#[test]
fn random_short_runs_about_trees() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24) / 4 {
        within(600, &format!("short, seed {seed}"), move || {
            let mut settings = Settings { explain: true, ..Settings::of_seed(seed) };
            settings.open.lab.attr_intents_flushed = true;
            settings.open.checkpoint_bytes = 64 << 10;
            let mut workload = Workload::with_profile(seed, "trees").without_crashes();
            let mut sim = Sim::new(&settings).expect("a fresh volume");
            for i in 0..150 {
                let op = workload.next(&sim.run);
                sim.step(&op).unwrap_or_else(|e| panic!("seed {seed}, step {i}: {op}: {e}"));
            }
            let images = sim.crash_everywhere(1, seed);
            let images = images.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            println!("seed {seed}: {images} images");
        });
    }
}
