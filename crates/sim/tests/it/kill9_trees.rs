//! A process with thousands of open files without names, tails half cut and a tree half removed is
//! killed, again and again: what is left is freed by the next one, and every file with a name stays
//! whole.
//!
//! `SHOAL_KILL9_TREES_ROUNDS` says how often it is killed (default 10).

use shoal::raw::{Caller, Code, FileKind, Ino, Lab, OpenOptions, SetAttr, TreeCheck, Volume};
use shoal_sim::checks;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::killed::{Notes, Scene};
use shoal_sim::rng::Rng;
use shoal_sim::walk::walk;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

const CHILD: &str = "kill9_trees::kill9_trees_child";
/// Files with names, acknowledged; files without, and trees; files that are cut.
const DIRS: [&str; 3] = ["kept", "scratch", "cut"];
/// Files of a tree: directories, files in each.
const TREE: (u64, u64) = (20, 60);
/// Bytes that a truncated file never loses.
const HEAD: usize = 5_000;

/// Steps of a size that the round chooses, so that some are always under way.
fn open(scene: &Scene, round: u64, background: bool, flushed: bool) -> shoal::raw::Result<Volume> {
    let options = OpenOptions {
        cache_bytes: [16, 64][round as usize % 2] << 20,
        commit_interval_ms: 5,
        checkpoint_bytes: 1 << 20,
        lab: Lab {
            step_records: [1, 4, 32, 2048][round as usize % 4],
            // The process that is killed, now and then, so that it is killed in the middle.
            attr_intents_flushed: flushed,
            ..Lab::default()
        },
        noatime: true,
        background,
        ..OpenOptions::default()
    };
    Volume::open(&scene.volume(), &options)
}

fn contents(name: &str) -> Vec<u8> {
    let mut rng = Rng::new(shoal_base::checksum(name.as_bytes()));
    let len = *rng.pick(&[0, 20, 900, 20_000]);
    (0..len).map(|_| rng.next() as u8).collect()
}

fn dir_of(volume: &Volume, name: &str) -> Ino {
    volume.namespace().lookup(&Caller::root(), Ino::ROOT, name.as_bytes()).expect("a directory").ino
}

// ---- the process that is killed

struct Child<'c> {
    volume: &'c Volume,
    round: u64,
    notes: &'c Notes,
}

impl Child<'_> {
    fn create(&self, dir: Ino, name: &str) -> Ino {
        self.volume
            .namespace()
            .create(&Caller::root(), dir, name.as_bytes(), 0o644)
            .expect("create")
            .ino
    }

    /// Files that are written and stay.
    fn keep(&self) {
        let dir = dir_of(self.volume, "kept");
        for n in 0_u64.. {
            let name = format!("file-{}-{n}", self.round);
            let file = self.create(dir, &name);
            self.volume.files().write(file, 0, &contents(&name), false).expect("write");
            if n % 8 == 0 {
                self.volume.files().fsync(file, false).expect("fsync");
                self.notes.say(&format!("kept {} {n}", self.round));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Thousands of open files without names, small and large, that change until they are closed.
    fn unlink(&self) {
        let (volume, dir) = (self.volume, dir_of(self.volume, "scratch"));
        let (mut rng, mut held) = (Rng::new(self.round), VecDeque::new());
        for n in 0_u64.. {
            let name = format!("open-{}-{n}", self.round);
            let file = self.create(dir, &name);
            let len = *rng.pick(&[0, 60, 3_000, 30_000]);
            volume.files().write(file, 0, &vec![n as u8; len], false).expect("write");
            for piece in 1..rng.below(3) * 8 {
                volume.files().write(file, piece << 20, &[1; 500], false).expect("write");
            }
            volume.references().hold(file, 1).expect("hold");
            volume.namespace().unlink(&Caller::root(), dir, name.as_bytes()).expect("unlink");
            held.push_back(file);
            if rng.chance(20) {
                let file = held[rng.below(held.len() as u64) as usize];
                volume.files().write(file, rng.below(1 << 20), &[2; 700], false).expect("write");
            }
            if held.len() > 4_000 || rng.chance(30) {
                volume.references().release(held.pop_front().expect("not empty"), 1);
            }
        }
    }

    /// Files that are cut in many transactions, never below their heads.
    fn cut(&self) {
        let (volume, dir, mut rng) =
            (self.volume, dir_of(self.volume, "cut"), Rng::new(self.round));
        for n in 0_u64.. {
            let name = format!("cut-{}", n % 5);
            let file = match volume.namespace().lookup(&Caller::root(), dir, name.as_bytes()) {
                Ok(entry) => entry.ino,
                Err(_) => {
                    let file = self.create(dir, &name);
                    volume.files().write(file, 0, &[7; HEAD], false).expect("write");
                    file
                }
            };
            for piece in 1..rng.range(50, 300) {
                volume.files().write(file, piece << 18, &[8; 500], false).expect("write");
            }
            let size = Some((HEAD as u64).max(rng.below(20 << 18)));
            let set = SetAttr { size, ..SetAttr::default() };
            volume.attributes().setattr(&Caller::root(), file, &set).expect("truncate");
        }
    }

    /// Trees, made and removed; of each some files get a second name that stays.
    fn trees(&self) {
        let (volume, who) = (self.volume, Caller::root());
        let (scratch, kept) = (dir_of(volume, "scratch"), dir_of(volume, "kept"));
        for n in 0_u64.. {
            let tree = format!("tree-{}-{n}", self.round);
            let top =
                volume.namespace().mkdir(&who, scratch, tree.as_bytes(), 0o755).expect("mkdir").ino;
            let mut dir = top;
            for d in 0..TREE.0 {
                // Some side by side, some below each other.
                let above = if d % 3 == 0 { top } else { dir };
                let name = format!("d{d}");
                dir = volume
                    .namespace()
                    .mkdir(&who, above, name.as_bytes(), 0o755)
                    .expect("mkdir")
                    .ino;
                for f in 0..TREE.1 {
                    let name = format!("link-{}-{n}-{d}-{f}", self.round);
                    let file = self.create(dir, &name);
                    if f % 20 == 0 {
                        volume.files().write(file, 0, &contents(&name), false).expect("write");
                        volume.namespace().link(&who, file, kept, name.as_bytes()).expect("link");
                    }
                }
            }
            volume.sync().expect("sync");
            self.notes.say(&format!("linked {} {n}", self.round));
            let all = TreeCheck::Tree;
            volume.namespace().remove_tree(&who, scratch, tree.as_bytes(), all).expect("remove");
            if n % 2 == 0 {
                volume.sync().expect("sync");
                self.notes.say(&format!("removed {} {n}", self.round));
            }
        }
    }
}

#[test]
fn kill9_trees_child() {
    let Some((scene, round)) = Scene::entered(CHILD) else { return };
    let volume = open(&scene, round, true, round.is_multiple_of(3)).expect("open");
    let child = Child { volume: &volume, round, notes: &scene.notes() };
    // Until killed.
    std::thread::scope(|scope| {
        scope.spawn(|| child.keep());
        scope.spawn(|| child.unlink());
        scope.spawn(|| child.cut());
        scope.spawn(|| child.trees());
    });
}

// ---- the process that kills

/// Acknowledgements of the dead processes: by round, the newest.
#[derive(Default)]
struct Told {
    kept: BTreeMap<u64, u64>,
    linked: BTreeMap<u64, u64>,
    removed: Vec<(u64, u64)>,
}

fn told(scene: &Scene) -> Told {
    let mut told = Told::default();
    for words in scene.told() {
        let number = |at: usize| words[at].parse::<u64>().expect("number");
        match words[0].as_str() {
            "kept" => _ = told.kept.insert(number(1), number(2)),
            "linked" => _ = told.linked.insert(number(1), number(2)),
            "removed" => told.removed.push((number(1), number(2))),
            _ => panic!("{words:?}"),
        }
    }
    told
}

/// Files with names are whole: those that were acknowledged are there, and no file by half.
fn kept_is_whole(volume: &Volume, told: &Told) {
    let (who, dir) = (Caller::root(), dir_of(volume, "kept"));
    let mut found = BTreeMap::new();
    volume
        .directories()
        .readdir(dir, 2, &mut |entry| {
            found.insert(String::from_utf8(entry.name.to_vec()).expect("a name"), entry.ino);
            true
        })
        .expect("readdir");
    let links = |file| volume.attributes().getattr(file).expect("attributes").nlink;
    let expected = |(round, newest): (&u64, &u64)| {
        let round = *round;
        (0..=*newest).map(move |n| (round, n))
    };
    for (round, n) in told.kept.iter().flat_map(expected) {
        let name = format!("file-{round}-{n}");
        let file = *found.get(&name).unwrap_or_else(|| panic!("{name} was acknowledged"));
        assert_eq!(read(volume, file), contents(&name), "{name}");
    }
    for (round, n) in told.linked.iter().flat_map(expected) {
        for (d, f) in (0..TREE.0).flat_map(|d| (0..TREE.1).step_by(20).map(move |f| (d, f))) {
            let name = format!("link-{round}-{n}-{d}-{f}");
            let file = *found.get(&name).unwrap_or_else(|| panic!("{name} was acknowledged"));
            assert_eq!(read(volume, file), contents(&name), "{name}");
            let (paths, nlink) =
                (volume.paths().paths_of(file).expect("paths").len() as u32, links(file));
            // In a tree that is being removed it has links that lead nowhere.
            assert!(
                paths == nlink || paths < nlink && volume.maintenance().is_reaping(),
                "{name}: {paths} paths"
            );
        }
    }
    for (round, n) in &told.removed {
        let name = format!("tree-{round}-{n}");
        let gone = volume.namespace().lookup(&who, dir_of(volume, "scratch"), name.as_bytes());
        assert!(gone.is_err_and(|e| e.is(Code::NotFound)), "{name} was acknowledged to be gone");
    }
    let cut = dir_of(volume, "cut");
    for n in 0..5 {
        let Ok(entry) = volume.namespace().lookup(&who, cut, format!("cut-{n}").as_bytes()) else {
            continue;
        };
        let mut head = vec![0; HEAD];
        let len = volume.files().read(entry.ino, 0, &mut head).expect("read");
        assert!((len == 0 || len == HEAD) && head[..len].iter().all(|b| *b == 7), "cut-{n}");
    }
}

fn read(volume: &Volume, file: Ino) -> Vec<u8> {
    let mut found = vec![0; volume.attributes().getattr(file).expect("attributes").size as usize];
    let len = volume.files().read(file, 0, &mut found).expect("read");
    assert_eq!(len, found.len());
    found
}

/// Looks at the volume as a new process would; returns how many orphans it found.
fn look(scene: &Scene, round: u64, told: &Told) -> u64 {
    let volume = open(scene, round, round % 2 == 1, false).expect("open");
    let orphans = volume.info().recovery.orphans;
    // While they are being freed, and after.
    kept_is_whole(&volume, told);
    while volume.maintenance().reap_some().expect("reap") {}
    checks::nothing_waits_to_be_freed(&volume).unwrap_or_else(|e| panic!("round {round}: {e}"));
    let found = walk(&volume, Ino::ROOT, false).unwrap_or_else(|e| panic!("round {round}: {e}"));
    checks::all(&volume, &found).unwrap_or_else(|e| panic!("round {round}: {e}"));
    kept_is_whole(&volume, told);
    if round.is_multiple_of(3) {
        volume.close().expect("close");
    }
    orphans
}

#[test]
fn orphans_go_and_files_stay_through_kill_9() {
    let rounds = from_environment("SHOAL_KILL9_TREES_ROUNDS", 10);
    within(3_600, "kill -9", move || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kill9-trees");
        let scene = Scene::new(folder, 4 << 30);
        let volume = open(&scene, 0, true, false).expect("open");
        let empty = volume.info().live_bytes;
        for name in DIRS {
            volume
                .namespace()
                .mkdir(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o755)
                .expect("mkdir");
        }
        volume.close().expect("close");
        let (mut orphans, mut most) = (0, 0);
        for round in 0..rounds {
            // Every fifth one as soon as it works, or before.
            let more = Rng::new(round).below(200).saturating_sub(40) as usize;
            scene.kill(CHILD, round, || scene.wait_for_notes(more));
            let now = look(&scene, round, &told(&scene));
            eprintln!("round {round}: {now} orphans found");
            (orphans, most) = (orphans + now, most.max(now));
        }
        eprintln!("{rounds} rounds: {orphans} orphans found, at most {most} in one");
        assert!(orphans > rounds, "the kills came when nothing was under way");
        finish(&scene, empty);
        scene.clean_up();
    });
}

/// All of it goes; then everything is as if nothing had ever been.
fn finish(scene: &Scene, empty: u64) {
    let volume = open(scene, 3, true, false).expect("open");
    let all = walk(&volume, Ino::ROOT, false).unwrap_or_else(|e| panic!("{e}"));
    let numbers = all.state.nodes.keys().map(|ino| ino.0).max().unwrap_or(0);
    for name in DIRS {
        let all = TreeCheck::Tree;
        volume
            .namespace()
            .remove_tree(&Caller::root(), Ino::ROOT, name.as_bytes(), all)
            .expect("remove");
    }
    while volume.maintenance().reap_some().expect("reap") {}
    let found = walk(&volume, Ino::ROOT, false).unwrap_or_else(|e| panic!("{e}"));
    checks::all(&volume, &found).unwrap_or_else(|e| panic!("{e}"));
    assert!(
        found
            .state
            .nodes
            .values()
            .all(|node| { FileKind::from_mode(node.mode) == Some(FileKind::Directory) })
    );
    volume.maintenance().checkpoint().expect("checkpoint");
    volume.maintenance().checkpoint().expect("checkpoint");
    let info = volume.info();
    eprintln!(
        "live bytes: {empty} of an empty volume, {} at the end, numbers up to {numbers}",
        info.live_bytes
    );
    assert_eq!((volume.statfs().inodes_used, info.pinned_bytes), (1, 0));
    // The few nodes that trees which were large keep, and the generations of free inodes.
    let most = empty + (512 << 10) + 12 * numbers;
    assert!(info.live_bytes < most, "{empty} bytes before, {} at the end", info.live_bytes);
    volume.close().expect("close");
}
