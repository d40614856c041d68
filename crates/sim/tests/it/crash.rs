//! Crashes after every single device operation of short runs, with every kind of loss: the state
//! found is always one that there was, and never older than what was acknowledged.

use shoal::raw::{Fallocate, RenameFlags};
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::op::make::{
    self, at, create, fsync, link, mkdir, path, rename, rmdir, unlink, whiteout,
};
use shoal_sim::op::{Change, Data, Op, Place, Who};
use shoal_sim::runner::{Settings, Sim};
use shoal_sim::workload::Workload;

fn exchange(from: Place, to: Place) -> Op {
    Op::Rename {
        who: Who::Root,
        from,
        to,
        flags: RenameFlags { exchange: true, ..RenameFlags::default() },
    }
}

fn write(file: &str, offset: u64, len: u32) -> Op {
    make::write(path(file), offset, len)
}

/// Runs `ops`, then crashes at every point of them.
fn crash_everywhere(name: &'static str, settings: Settings, ops: Vec<Op>) -> u64 {
    within(600, name, move || {
        let mut sim = Sim::new(&settings).expect("a fresh volume");
        for op in &ops {
            sim.step(op).unwrap_or_else(|e| panic!("{name}: {op}: {e}"));
        }
        sim.crash_everywhere(3, 7).unwrap_or_else(|e| panic!("{name}: {e}"))
    })
}

fn settings() -> Settings {
    Settings { explain: true, ..Settings::small(32 << 20) }
}

#[test]
fn replacing_a_file_by_rename_is_all_or_nothing() {
    let ops = vec![
        create("", "f"),
        write("f", 0, 3_000),
        fsync("f"),
        create("", "f.new"),
        write("f.new", 0, 200_000),
        fsync("f.new"),
        rename(at("", "f.new"), at("", "f")),
        Op::Sync,
        unlink("", "f"),
        Op::Sync,
    ];
    assert!(crash_everywhere("replace", settings(), ops) > 20);
}

/// A crash never shows the old name without the whiteout, nor the whiteout without the new name.
#[test]
fn a_whiteout_comes_with_its_rename_or_not_at_all() {
    let long = "l".repeat(250);
    let flags = RenameFlags { whiteout: true, ..RenameFlags::default() };
    let in_batch =
        |from: &str, to: &str| Change::Rename { from: from.into(), to: to.into(), flags };
    let ops = vec![
        mkdir("", "up"),
        mkdir("", "work"),
        create("up", "f"),
        mkdir("up", "dir"),
        create("up/dir", &long),
        create("work", "over"),
        Op::Sync,
        whiteout(at("up", "f"), at("up", "g")),
        fsync("up"),
        whiteout(at("up", "g"), at("work", "over")),
        whiteout(at("up", "dir"), at("work", "dir")),
        Op::Sync,
        // The whiteout itself is moved, and replaced.
        rename(at("work", "over"), at("up", "g")),
        whiteout(at("work/dir", &long), at("up", &long)),
        Op::Checkpoint,
        make::batch("", vec![in_batch("up/g", "work/g"), in_batch("up/g", "work/h")]),
        Op::Sync,
        unlink("up", "g"),
        Op::Sync,
    ];
    for inode_size in [256, 512] {
        let mut settings = settings();
        settings.mkfs.inode_size = inode_size;
        assert!(crash_everywhere("whiteouts", settings, ops.clone()) > 20);
    }
}

#[test]
fn directories_move_whole() {
    let ops = vec![
        mkdir("", "a"),
        mkdir("a", "b"),
        create("a/b", "f"),
        mkdir("", "z"),
        Op::Sync,
        rename(at("a", "b"), at("z", "b")),
        fsync("z"),
        exchange(at("", "a"), at("z", "b")),
        Op::Checkpoint,
        link("a/f", "z", "g"),
        unlink("a", "f"),
        rmdir("", "a"),
        Op::Sync,
    ];
    crash_everywhere("directories", settings(), ops);
}

#[test]
fn contents_never_mix() {
    let truncate = |size| make::truncate(path("f"), size);
    let punch = Op::Fallocate {
        file: path("f"),
        mode: Fallocate::PunchHole,
        offset: 100_000,
        len: 150_000,
    };
    let ops = vec![
        create("", "f"),
        write("f", 0, 100),
        write("f", 50, 600_000),
        fsync("f"),
        write("f", 131_000, 300),
        punch,
        fsync("f"),
        truncate(70_001),
        write("f", 900_000, 10),
        Op::Checkpoint,
        truncate(0),
        write("f", 0, 5),
        Op::Sync,
    ];
    crash_everywhere("contents", settings(), ops);
}

#[test]
fn many_small_checkpoints() {
    let mut settings = settings();
    settings.open.checkpoint_bytes = 64 << 10;
    let mut ops = vec![mkdir("", "d")];
    for i in 0..120 {
        ops.push(create("d", &format!("file-{i}")));
        if i % 3 == 0 {
            ops.push(write(&format!("d/file-{i}"), 0, 700));
        }
        if i % 40 == 39 {
            ops.push(Op::Checkpoint);
        }
        if i % 15 == 14 {
            ops.push(fsync("d"));
        }
    }
    crash_everywhere("checkpoints", settings, ops);
}

/// Attributes and parent pointers through every form and back, with the shortcut and without it:
/// a crash between any two transactions of an intent is finished by recovery.
#[test]
fn attributes_change_form() {
    let set = |name: &str, len: u32| Op::SetXattr {
        who: Who::Root,
        file: path("f"),
        name: name.into(),
        data: Data { seed: 77 + u64::from(len), len },
        flags: Default::default(),
    };
    let remove =
        |name: &str| Op::RemoveXattr { who: Who::Root, file: path("f"), name: name.into() };
    let unlink = |name: &str| make::unlink("", name);
    let long = "l".repeat(200);
    let link = make::link("f", "", &long);
    let ops = vec![
        create("", "f"),
        set("user.a", 20),
        Op::Sync,
        set("user.a", 30),
        set("user.b", 900),
        Op::Sync,
        set("user.c", 5_000),
        set("user.b", 60_000),
        fsync("f"),
        link,
        rename(at("", &long), at("", "g")),
        Op::Sync,
        set("user.c", 10),
        remove("user.b"),
        Op::Sync,
        remove("user.a"),
        Op::Checkpoint,
        rename(at("", "g"), at("", "h")),
        unlink("h"),
        remove("user.c"),
        write("f", 0, 380),
        set("trusted.d", 100),
        Op::Sync,
        unlink("f"),
        Op::Sync,
    ];
    for inode_size in [256, 512] {
        for attr_intents in [false, true] {
            let mut settings = settings();
            settings.mkfs.inode_size = inode_size;
            settings.open.lab.attr_intents = attr_intents;
            settings.open.lab.attr_intents_flushed = true;
            assert!(crash_everywhere("attributes", settings, ops.clone()) > 60);
        }
    }
}

#[test]
fn random_short_runs() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24) / 4 {
        within(600, &format!("seed {seed}"), move || {
            let mut settings = Settings::of_seed(seed);
            settings.explain = true;
            let mut workload = Workload::new(seed).without_crashes();
            let mut sim = Sim::new(&settings).expect("a fresh volume");
            for i in 0..60 {
                let op = workload.next(&sim.run);
                sim.step(&op).unwrap_or_else(|e| panic!("seed {seed}, step {i}: {op}: {e}"));
            }
            sim.step(&Op::Checkpoint).expect("checkpoint");
            sim.crash_everywhere(1, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        });
    }
}

/// Runs mostly of attributes, the journal written after each transaction of an intent, and a
/// checkpoint now and then: a crash at every write. 40 runs of 250 operations with
/// `SHOAL_SIM_SEEDS=480`.
#[test]
fn random_attributes() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24) / 12 {
        within(600, &format!("attributes, seed {seed}"), move || {
            let mut settings = Settings::of_seed(seed);
            settings.open.lab.attr_intents = seed % 3 == 2;
            settings.open.lab.attr_intents_flushed = true;
            settings.open.checkpoint_bytes = 64 << 10;
            let mut workload = Workload::with_profile(seed, "attributes").without_crashes();
            let mut sim = Sim::new(&settings).expect("a fresh volume");
            for i in 0..250 {
                let op = workload.next(&sim.run);
                sim.step(&op).unwrap_or_else(|e| panic!("seed {seed}, step {i}: {op}: {e}"));
            }
            sim.step(&Op::Checkpoint).expect("checkpoint");
            let images = sim.crash_everywhere(1, seed);
            let images = images.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            println!("seed {seed}: {images} images");
        });
    }
}
