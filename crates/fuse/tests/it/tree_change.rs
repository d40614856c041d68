//! Owners, permissions and times of a whole tree, changed by one question to its control file, and
//! the kernel's view of them afterwards.

use crate::common::control::*;
use crate::common::*;
use rustix::io::Errno;
use shoal::raw::{SetTime, Time, TreeChange, TreeChanged};
use shoal_fuse::protocol::question::{Kind, PIECE, Question};
use shoal_fuse::{ControlFile, TreeTold};
use shoal_skip::wait_until;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Much longer than any operation takes: other tests may have the processors.
const PATIENCE: Duration = Duration::from_secs(90);

fn owner(uid: Option<u32>, gid: Option<u32>) -> TreeChange {
    TreeChange { uid, gid, ..TreeChange::default() }
}

/// Paths that could not be changed, each with its first error.
type Failures = BTreeMap<String, Errno>;

fn change(dir: &Path, change: &TreeChange, mode: &str) -> Res<(TreeChanged, Failures)> {
    change_by(&mut control(dir)?, change, mode)
}

fn change_by(
    control: &mut ControlFile,
    change: &TreeChange,
    mode: &str,
) -> Res<(TreeChanged, Failures)> {
    let mut failures = Failures::new();
    let watch = &mut |told: TreeTold<'_>| {
        if let TreeTold::Failed(path, error) = told {
            let path = String::from_utf8(path.to_vec()).unwrap();
            // A directory that can be neither changed nor listed has two.
            failures.entry(path).or_insert(errno(error));
        }
        ControlFlow::Continue(())
    };
    let done = control.change_tree(change, (mode, 0o022), watch).map_err(errno)?;
    Ok((done, failures))
}

fn owners(path: impl AsRef<Path>) -> (u32, u32) {
    let found = lstat(path).unwrap();
    (found.st_uid, found.st_gid)
}

/// A tree whose attributes the kernel knows.
fn plant(m: &TestMount) -> Vec<PathBuf> {
    let mut all = vec![m.path("t")];
    mkdir(m.path("t"), 0o755).unwrap();
    for d in 0..5 {
        let dir = m.path(&format!("t/d{d}"));
        mkdir(&dir, 0o755).unwrap();
        for f in 0..100 {
            let file = dir.join(format!("f{f}"));
            touch(&file);
            all.push(file);
        }
        let link = dir.join("link");
        symlink("f1", &link).unwrap();
        all.extend([dir, link]);
    }
    for path in &all {
        assert_eq!(owners(path), (0, 0));
    }
    all
}

#[test]
fn the_kernel_shows_the_new_attributes_at_once() {
    each(&ALL, |m| {
        let all = plant(m);
        touch(m.path("beside"));
        for round in 1..4 {
            let (done, failures) =
                change(&m.path("t"), &owner(Some(round), Some(round + 10)), "").unwrap();
            assert_eq!(done, TreeChanged { inodes: 511, failures: 0, cancelled: false });
            assert!(failures.is_empty());
            for path in &all {
                assert_eq!(owners(path), (round, round + 10), "{path:?}");
            }
        }
        assert_eq!(owners(m.path("beside")), (0, 0));
        assert_eq!(owners(&m.dir), (0, 0));
        // The top of a mount has a number of its own.
        let (done, _) = change(&m.dir, &owner(Some(7), None), "").unwrap();
        assert_eq!((done.inodes, owners(&m.dir)), (513, (7, 0)));
        let (done, _) = change(&m.path("t"), &TreeChange::default(), "u=rwX,go=").unwrap();
        // Symlinks have no mode.
        assert_eq!(done.inodes, 506);
        assert_eq!((mode(m.path("t/d1")), mode(m.path("t/d1/f1"))), (0o700, 0o600));
        // The umask is for what names no users.
        change(&m.path("t"), &TreeChange::default(), "=rw").unwrap();
        assert_eq!(mode(m.path("t/d1/f1")), 0o644);
        let time = |sec| Some(SetTime::To(Time { sec, nsec: 5 }));
        let times = TreeChange { atime: time(1000), mtime: time(2000), ..TreeChange::default() };
        change(&m.path("t"), &times, "").unwrap();
        for path in &all {
            let found = lstat(path).unwrap();
            assert_eq!((found.st_atime, found.st_mtime, found.st_mtime_nsec), (1000, 2000, 5));
        }
        m.remount();
        assert_eq!(owners(m.path("t/d4/link")), (7, 13));
    });
}

#[test]
fn the_top_of_a_subvolume_that_is_mounted() {
    let Some(mut m) = mount_only("allow_other") else { return };
    m.stop();
    let volume =
        shoal::raw::Volume::open(&m.volume(), &shoal::raw::OpenOptions::default()).unwrap();
    volume.subvolumes().create(&shoal::raw::Caller::root(), b"sub", 0o755).unwrap();
    volume.close().unwrap();
    m.start(0);
    m.remount_with("allow_other,subvolume=sub");
    touch(m.path("file"));
    assert_eq!((owners(&m.dir), owners(m.path("file"))), ((0, 0), (0, 0)));
    assert_eq!(change(&m.dir, &owner(Some(9), Some(8)), "").unwrap().0.inodes, 2);
    assert_eq!((owners(&m.dir), owners(m.path("file"))), ((9, 8), (9, 8)));
}

/// A user may change in bulk what it may change one by one, with the same errors.
#[test]
fn permission_is_that_of_the_user() {
    each(&ALL[..3], |m| {
        mkdir(m.path("t"), 0o755).unwrap();
        for (dir, uid, mode) in [
            ("mine", USER, 0o755),
            ("mine/deep", USER, 0o700),
            ("theirs", OTHER, 0o755),
            ("closed", OTHER, 0o700),
            ("listed", OTHER, 0o744),
        ] {
            let path = m.path(&format!("t/{dir}"));
            mkdir(&path, 0o755).unwrap();
            for (file, owner) in [("my", USER), ("their", OTHER)] {
                touch(path.join(file));
                chown(path.join(file), owner, 4242);
            }
            chown(&path, uid, 4242);
            chmod(&path, mode);
        }
        let files = ["mine/my", "mine/their", "mine/deep/my", "theirs/my", "theirs/their"];
        let mut root = control(&m.path("t")).unwrap();
        as_user(USER, &[4242], || {
            for control in [&mut control(&m.path("t")).unwrap(), &mut root] {
                let (done, failures) = change_by(control, &TreeChange::default(), "o=r").unwrap();
                let not_own = ["", "mine/their", "mine/deep/their", "theirs", "theirs/their"];
                let paths = not_own.iter().chain(&["closed", "listed"]);
                let wanted: Failures =
                    paths.map(|path| ((*path).to_owned(), Errno::PERM)).collect();
                assert_eq!(failures, wanted);
                assert_eq!(done.inodes, 5);
            }
            // One by one it is refused the same.
            for file in files {
                let path = m.path(&format!("t/{file}"));
                let alone = try_chmod(&path, 0o640);
                let (_, failures) = change(&m.path("t"), &TreeChange::default(), "g=r").unwrap();
                assert_eq!(alone.err(), failures.get(file).copied(), "{file}");
                let alone = try_chown(&path, Some(OTHER), None);
                let (_, failures) = change(&m.path("t"), &owner(Some(OTHER), None), "").unwrap();
                assert_eq!(alone.err(), failures.get(file).copied(), "{file}");
            }
            fails!(ACCESS, change(&m.path("t/closed"), &owner(None, Some(USER)), ""));
            fails!(ACCESS, change(&m.path("t/listed"), &owner(None, Some(USER)), ""));
        });
        assert_eq!(owners(m.path("t/closed/my")), (USER, 4242));
        // Its own group, and one that it is in.
        as_user(USER, &[4242], || {
            let (_, failures) =
                change(&m.path("t/mine/deep"), &owner(None, Some(USER)), "").unwrap();
            assert_eq!(failures, Failures::from([("their".to_owned(), Errno::PERM)]));
            assert_eq!(owners(m.path("t/mine/deep/my")), (USER, USER));
            change(&m.path("t/mine/deep"), &owner(None, Some(4242)), "").unwrap();
            assert_eq!(owners(m.path("t/mine/deep/my")), (USER, 4242));
        });
        as_user(USER, &[], || {
            let (_, failures) = change(&m.path("t/mine"), &owner(None, Some(99)), "").unwrap();
            assert_eq!(failures.get("my"), Some(&Errno::PERM));
        });
    });
}

#[test]
fn changes_that_are_refused_change_nothing() {
    each(&["allow_other", "allow_other,writeback"], |m| {
        let all = plant(m);
        let clauses = vec!["u=rw"; 25].join(",");
        fails!(TOOBIG, change(&m.path("t"), &TreeChange::default(), &clauses));
        let long = vec!["u=rw"; 900].join(",");
        fails!(NAMETOOLONG, change(&m.path("t"), &TreeChange::default(), &long));
        fails!(INVAL, change(&m.path("t"), &TreeChange::default(), "u=q"));
        fails!(INVAL, change(&m.path("t"), &TreeChange::default(), ""));
        let wrong = SetTime::To(Time { sec: 1, nsec: 1_000_000_000 });
        let wrong = TreeChange { mtime: Some(wrong), ..TreeChange::default() };
        assert!(change(&m.path("t"), &wrong, "").is_err());
        let now = TreeChange { mtime: Some(SetTime::Now), ..TreeChange::default() };
        let changed = change(&m.path("t"), &now, "");
        assert!(changed.is_ok() || changed.err() == Some(Errno::OPNOTSUPP));
        // As a user in too many groups.
        let groups: Vec<u32> = (1..=130).collect();
        as_user(USER, &groups, || {
            fails!(TOOBIG, change(&m.path("t"), &owner(None, Some(5)), ""));
        });
        for path in &all {
            assert_eq!((owners(path), mode(path) & 0o022), ((0, 0), mode(path) & 0o022));
        }
        let mut control = control(&m.path("t/d1")).unwrap();
        std::fs::remove_dir_all(m.path("t/d1")).unwrap();
        fails!(NOENT, change_by(&mut control, &owner(Some(5), None), ""));
    });
}

fn read(control: &OwnedFd) -> Res<usize> {
    rustix::io::pread(control, &mut vec![0; PIECE], 0)
}

/// Many files in few directories.
fn large(m: &TestMount, files: usize) {
    mkdir(m.path("large"), 0o777).unwrap();
    for n in 0..files {
        touch(m.path(&format!("large/{n}")));
    }
}

/// Whoever asks and reads no more has a change that is made to its end.
#[test]
fn a_program_that_stops_reading() {
    each(&["allow_other", "allow_other,open"], |m| {
        large(m, 3000);
        let file = raw_control(&m.path("large"));
        let question = Question::change(&owner(Some(5), Some(6)), "", 0);
        ask(&file, &question).unwrap();
        // Only the first read begins it.
        assert_eq!(owners(m.path("large/7")), (0, 0));
        read(&file).unwrap();
        wait_until("the rest is changed", || {
            (0..3000).all(|n| owners(m.path(&format!("large/{n}"))) == (5, 6))
        });
        drop(file);
        // Failures that nobody reads cost no memory without end: `changing.rs` tests the bound.
        as_user(USER, &[], || {
            let file = raw_control(&m.path("large"));
            ask(&file, &question).unwrap();
            read(&file).unwrap();
        });
        m.remount();
    });
}

/// Changes are limited for a user, and others are not kept out.
#[test]
fn many_changes_at_once() {
    each(&["allow_other"], |m| {
        large(m, 500);
        std::thread::scope(|scope| {
            for n in 0..12 {
                let m = &*m;
                scope.spawn(move || {
                    let user = [USER, OTHER, 0][n % 3];
                    as_user(user, &[], || {
                        for _ in 0..3 {
                            let (done, failures) =
                                change(&m.path("large"), &owner(None, Some(user)), "").unwrap();
                            assert_eq!(failures.len() as u64, done.failures);
                            let changed = if user == 0 { 501 } else { 0 };
                            assert_eq!((done.inodes, done.failures), (changed, 501 - changed));
                        }
                    });
                });
            }
        });
        assert_eq!(owners(m.path("large/7")).1, 0);
    });
}

/// A question of its own cancels a change, of its own user.
#[test]
fn a_change_is_cancelled_by_its_user() {
    each(&["allow_other"], |m| {
        large(m, 2000);
        let file = raw_control(&m.path("large"));
        let cancel = Question::new(Kind::Cancel, 0, b"");
        fails!(INVAL, ask(&file, &cancel));
        let question = Question::change(&owner(Some(5), None), "", 0);
        ask(&file, &question).unwrap();
        fails!(INVAL, ask(&file, &cancel));
        read(&file).unwrap();
        as_user(USER, &[], || fails!(PERM, ask(&file, &cancel)));
        // Whether it was still going on or not, it has an end.
        ask(&file, &cancel).unwrap();
        while read(&file).is_ok() {}
        // The first step is always made.
        let mut control = control(&m.path("large")).unwrap();
        let mut steps = 0;
        let watch = &mut |_: TreeTold<'_>| {
            steps += 1;
            ControlFlow::Break(())
        };
        let done = control.change_tree(&owner(Some(6), None), ("", 0), watch).unwrap();
        assert!(steps > 0 && done.inodes > 0 && done.failures == 0);
        let changed = (0..2000).filter(|n| owners(m.path(&format!("large/{n}"))).0 == 6);
        let top = u64::from(owners(m.path("large")).0 == 6);
        assert_eq!(changed.count() as u64 + top, done.inodes);
    });
}

/// Not a test, but the program that the next one kills.
#[test]
fn change_helper() {
    let Some(dir) = std::env::var_os("SHOAL_TEST_CHANGE") else { return };
    let mut control = control(&PathBuf::from(dir)).unwrap();
    let watch = &mut |told: TreeTold<'_>| {
        if matches!(told, TreeTold::Changed(some) if some > 0) {
            println!("CHANGING");
            std::thread::sleep(PATIENCE);
        }
        ControlFlow::Continue(())
    };
    control.change_tree(&owner(Some(5), Some(6)), ("", 0), watch).unwrap();
}

/// Starts a change and kills its program after the first answer.
fn begin_and_kill(dir: &Path) {
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tree_change::change_helper", "--nocapture", "--test-threads=1"])
        .env("SHOAL_TEST_CHANGE", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("CHANGING")));
    helper.kill().unwrap();
    helper.wait().unwrap();
}

#[test]
fn a_program_that_is_killed_midway() {
    each(&["allow_other", "allow_other,open"], |m| {
        large(m, 3000);
        begin_and_kill(&m.path("large"));
        wait_until("the rest is changed", || {
            (0..3000).all(|n| owners(m.path(&format!("large/{n}"))) == (5, 6))
        });
        m.remount();
    });
}

/// A mount that ends, or whose server is killed, leaves the rest to the next one.
#[test]
fn a_mount_that_ends_midway() {
    each(&["allow_other"], |m| {
        large(m, 3000);
        // In the journal, so that a crash does not take the files back.
        shoal_fuse::sync(&m.dir).unwrap();
        let done = |m: &TestMount, uid: u32| {
            wait_until("the rest is changed", || {
                (0..3000).all(|n| owners(m.path(&format!("large/{n}"))).0 == uid)
            });
        };
        begin_and_kill(&m.path("large"));
        m.remount();
        done(m, 5);
        let file = raw_control(&m.path("large"));
        ask(&file, &Question::change(&owner(Some(9), None), "", 0)).unwrap();
        read(&file).unwrap();
        wait_until("it has begun", || owners(m.path("large")).0 == 9);
        // The first step, and with it that there is a change, is on the disk.
        shoal_fuse::sync(&m.dir).unwrap();
        m.kill();
        drop(file);
        let _ = shoal_fuse::unmount_lazy(&m.dir);
        m.start(0);
        done(m, 9);
    });
}
