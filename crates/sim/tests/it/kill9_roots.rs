//! A large root is deleted while another is being written, and the process is killed in between,
//! again and again: what was acknowledged stays, what was deleted goes, and nothing else does.
//!
//! `SHOAL_KILL9_FILES` says how many files the deleted root has (default 20,000; a full run has
//! 1,000,000), `SHOAL_KILL9_ROUNDS` how often the process is killed (default 10).

use shoal::raw::{Caller, Ino, OpenOptions, Volume};
use shoal_sim::checks;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::killed::Scene;
use shoal_sim::rng::Rng;
use shoal_sim::walk::walk;
use shoal_skip::wait_until;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const CHILD: &str = "kill9_roots::kill9_roots_child";
const DOOMED: &[u8] = b"doomed";
const KEPT: &[u8] = b"kept";
/// Files of a directory.
const FAN: u64 = 1_000;

fn open(scene: &Scene, background: bool) -> shoal::raw::Result<Volume> {
    let options = OpenOptions {
        cache_bytes: 128 << 20,
        commit_interval_ms: 50,
        checkpoint_bytes: 4 << 20,
        noatime: true,
        background,
        ..OpenOptions::default()
    };
    Volume::open(&scene.volume(), &options)
}

/// Returns the contents of a file in the kept subvolume.
fn contents(name: &str) -> Vec<u8> {
    let mut rng = Rng::new(name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte)));
    let len = *rng.pick(&[0, 20, 900, 20_000]);
    (0..len).map(|_| rng.next() as u8).collect()
}

// ---- the process that is killed

#[test]
fn kill9_roots_child() {
    let Some((scene, round)) = Scene::entered(CHILD) else { return };
    let (volume, notes) = (open(&scene, true).expect("open"), scene.notes());
    let who = Caller::root();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let dir = volume.subvolumes().top(KEPT).expect("the kept root");
            // Until killed.
            for n in 0_u64.. {
                let name = format!("{round}-{n}");
                let file =
                    volume.namespace().create(&who, dir, name.as_bytes(), 0o644).expect("create");
                volume.files().write(file.ino, 0, &contents(&name), false).expect("write");
                if n % 8 == 0 {
                    volume.files().fsync(file.ino, false).expect("fsync");
                    notes.say(&format!("kept {round} {n}"));
                }
            }
        });
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            if volume.subvolumes().top(DOOMED).is_ok() {
                volume.subvolumes().delete(&who, DOOMED).expect("delete");
                volume.sync().expect("sync");
            }
            notes.say(&format!("deleted {round}"));
        });
    });
}

// ---- the process that kills

/// Acknowledgements of the dead process.
#[derive(Default)]
struct Told {
    /// The rounds in which the root was found deleted.
    deleted: Vec<u64>,
    /// For each round the newest file that was synced.
    kept: BTreeMap<u64, u64>,
}

impl Told {
    fn deleted_in(&self, round: u64) -> bool {
        self.deleted.contains(&round)
    }
}

fn told(scene: &Scene) -> Told {
    let mut told = Told::default();
    for words in scene.told() {
        let number = |at: usize| words[at].parse::<u64>().expect("number");
        match words[0].as_str() {
            "deleted" => told.deleted.push(number(1)),
            "kept" => _ = told.kept.insert(number(1), number(2)),
            _ => panic!("{words:?}"),
        }
    }
    told
}

/// Makes the root that is deleted later: empty files, some with contents in the inode, some with
/// extents, some with two names.
fn fill(volume: &Volume, files: u64) {
    let who = Caller::root();
    let top = volume.subvolumes().create(&who, DOOMED, 0o755).expect("a root").ino;
    let mut dir = top;
    for i in 0..files {
        if i % FAN == 0 {
            dir = volume
                .namespace()
                .mkdir(&who, top, format!("d{i}").as_bytes(), 0o755)
                .expect("mkdir")
                .ino;
        }
        let name = format!("file-{i}");
        let file = volume.namespace().create(&who, dir, name.as_bytes(), 0o644).expect("create");
        match i % 50 {
            0 => volume.files().write(file.ino, 0, &[1; 5_000], false).expect("write"),
            1..=5 => volume.files().write(file.ino, 0, &[2; 100], false).expect("write"),
            6 => volume
                .namespace()
                .link(&who, file.ino, top, name.as_bytes())
                .map(|_| 0)
                .expect("link"),
            _ => 0,
        };
    }
}

/// Starts the process and kills it: in every other round soon after the root was deleted, in the
/// others after some files in the other one.
fn kill_once(scene: &Scene, round: u64, files: u64) {
    let mut rng = Rng::new(round);
    scene.kill(CHILD, round, || {
        match round % 2 {
            1 => scene.wait_for_notes(rng.below(100) as usize),
            _ => wait_until("the root is deleted", || told(scene).deleted_in(round)),
        }
        if round.is_multiple_of(2) {
            std::thread::sleep(Duration::from_micros(rng.below(files)));
        }
    });
}

/// Everything acknowledged in the kept root is there, and nothing is there by half.
fn kept_is_whole(volume: &Volume, told: &Told) {
    let who = Caller::root();
    let dir = volume.subvolumes().top(KEPT).expect("the kept root");
    for (round, newest) in &told.kept {
        for n in 0..=*newest {
            let name = format!("{round}-{n}");
            let file = volume.namespace().lookup(&who, dir, name.as_bytes());
            let file = file.unwrap_or_else(|e| panic!("{name} was acknowledged, but: {e}"));
            let mut found = vec![0; file.size as usize];
            let len = volume.files().read(file.ino, 0, &mut found).expect("read");
            assert_eq!((len, &found), (found.len(), &contents(&name)), "{name}");
        }
    }
}

/// One of the roots that are deleted, one after the other.
struct Life {
    /// The first round in which it can have been deleted.
    since: u64,
    /// Inodes that it had.
    inodes: u64,
    /// Inodes that were left when it was looked at last.
    left: u64,
}

impl Life {
    fn begin(scene: &Scene, since: u64, files: u64) -> Life {
        let volume = open(scene, true).expect("open");
        fill(&volume, files);
        let roots = volume.subvolumes().list();
        let inodes = roots.iter().find(|root| root.name == DOOMED).expect("made").inodes;
        volume.close().expect("close");
        Life { since, inodes, left: inodes }
    }
}

/// Looks at the volume as a new process would; returns the inodes left in the deleted root, if it
/// has been deleted.
fn look(scene: &Scene, told: &Told, life: &Life, full: bool) -> Option<u64> {
    let volume = open(scene, false).expect("open");
    kept_is_whole(&volume, told);
    if full {
        checks::own_check_is_clean(&volume).unwrap_or_else(|e| panic!("{e}"));
    }
    let roots = volume.subvolumes().list();
    assert!(roots.len() <= 2 && roots.iter().any(|root| root.name == KEPT), "{roots:?}");
    match roots.iter().find(|root| root.name != KEPT) {
        None => Some(0),
        Some(root) if root.deleted => Some(root.inodes),
        Some(root) => {
            let deleted = told.deleted.iter().any(|round| *round >= life.since);
            assert!(!deleted, "its deletion was acknowledged");
            assert_eq!(root.inodes, life.inodes, "not deleted, so whole");
            None
        }
    }
}

#[test]
fn a_root_goes_and_another_stays_through_kill_9() {
    let files = from_environment("SHOAL_KILL9_FILES", 20_000);
    let rounds = from_environment("SHOAL_KILL9_ROUNDS", 10);
    within(3_600, "kill -9", move || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kill9-roots");
        let scene = Scene::new(folder, (1 << 30) + files * 2_048);
        let volume = open(&scene, true).expect("open");
        volume.subvolumes().create(&Caller::root(), KEPT, 0o755).expect("a root");
        volume.maintenance().checkpoint().expect("checkpoint");
        let empty = volume.info().live_bytes;
        volume.close().expect("close");

        let (mut life, mut cut) = (Life::begin(&scene, 0, files), 0);
        for round in 0..rounds {
            if life.left == 0 {
                life = Life::begin(&scene, round, files);
            }
            kill_once(&scene, round, files);
            let full = files <= 50_000 || round % 4 == 0;
            let left = look(&scene, &told(&scene), &life, full);
            eprintln!("round {round}: {left:?} of {} inodes left in the deleted root", life.inodes);
            let left = left.unwrap_or(life.inodes);
            assert!(left <= life.left, "what is free stays free");
            cut += u64::from(left > 0 && left < life.inodes);
            life.left = left;
        }
        eprintln!("killed {cut} times while a root was being freed");
        finish(&scene, empty, files);
        scene.clean_up();
    });
}

/// Frees what is left; then everything is as if the root had never been.
fn finish(scene: &Scene, empty: u64, files: u64) {
    let volume = open(scene, true).expect("open");
    let mut left = None;
    volume.maintenance().reap_roots(&mut |n| _ = left.get_or_insert(n)).expect("reap");
    eprintln!("the last {} inodes", left.unwrap_or(0));
    assert!(volume.subvolumes().list().iter().all(|root| root.name == KEPT));
    kept_is_whole(&volume, &told(scene));
    let found = walk(&volume, Ino::ROOT, false).unwrap_or_else(|e| panic!("{e}"));
    checks::all(&volume, &found).unwrap_or_else(|e| panic!("{e}"));
    // The kept root goes too, so that what is left can be compared with an empty volume.
    volume.subvolumes().delete(&Caller::root(), KEPT).expect("delete");
    volume.maintenance().reap_roots(&mut |_| {}).expect("reap");
    // One sweeps the vacant roots, the other retires what the first still named.
    volume.maintenance().checkpoint().expect("checkpoint");
    volume.maintenance().checkpoint().expect("checkpoint");
    let live = volume.info().live_bytes;
    eprintln!("live bytes: {empty} with an empty root, {live} at the end");
    // Empty trees of one more root, and the few nodes that trees which were large keep.
    assert!(live <= empty + (256 << 10) + files, "{empty} bytes before, {live} at the end");
    assert_eq!(volume.statfs().inodes_used, 1);
    volume.close().expect("close");
}
