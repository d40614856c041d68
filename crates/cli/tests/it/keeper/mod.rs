//! A mount outlives its servers: they are killed while programs work, and no call fails, is made
//! twice or is lost. More rounds: `SHOAL_KEEPER_ROUNDS=1000`, or `cargo xtask kills`.

use crate::common;
mod by_session;
mod deaths;
mod work;

use crate::common::{Scratch, is_mount};
use crate::serve::Serving;
use rustix::process::Signal;
use shoal::{Credentials, Dir, Volume};
use shoal_skip::wait_for;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use work::{PROGRAMS, Shared};

/// The mount's keeper: the process that clients take for its server.
fn keeper(mount: &Path) -> u32 {
    shoal_fuse::server_pid(mount).expect("a mount")
}

/// The server that a keeper has started; the newest, if one is ending.
fn server_of(keeper: u32) -> Option<u32> {
    let path = format!("/proc/{keeper}/task/{keeper}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let last = children.split_whitespace().filter_map(|pid| pid.parse().ok()).next_back();
    last.filter(|pid: &u32| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.contains(") Z ")
    })
}

fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    let _ = rustix::process::kill_process(pid, signal);
}

fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

fn wait_for_end(pid: u32) {
    wait_for("a process ends", || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
}

/// Kills the server of a mount, and not its keeper.
fn kill_server(mount: &Path) {
    kill_server_of(keeper(mount));
}

/// Kills the server of a keeper.
pub(crate) fn kill_server_of(keeper: u32) {
    kill(wait_for("a server", || server_of(keeper)));
}

fn mounted(options: &str) -> Option<Scratch> {
    let scratch = Scratch::to_mount()?;
    if !shoal_fuse::can_be_kept() {
        shoal_skip::skipped("this kernel cannot give requests to another server");
        return None;
    }
    scratch.shoal(["mount", "v", "m", "--log", "log", "-o", options]).ok();
    Some(scratch)
}

/// Median and largest of some numbers.
fn spread(mut numbers: Vec<u64>) -> (u64, u64) {
    numbers.sort_unstable();
    (numbers.get(numbers.len() / 2).copied().unwrap_or(0), numbers.last().copied().unwrap_or(0))
}

/// A program, which runs until it is stopped.
type Program = Box<dyn FnOnce(&Shared) + Send>;

/// The programs that work on a mount.
fn on_mount(scratch: &Scratch) -> Vec<Program> {
    let program = |number| {
        let mount = scratch.path("m");
        Box::new(move |shared: &Shared| work::run(shared, &mount, number)) as Program
    };
    (0..PROGRAMS.len()).map(program).collect()
}

/// The programs that work by sessions: a session for each, and one for all of them. `place`: a
/// directory of the mount, or the socket.
fn by_sessions(place: &Path) -> Vec<Program> {
    let root = || {
        let volume = Volume::connect(place).expect("connected");
        volume.root(Credentials::current())
    };
    let program = |root: Dir, number| {
        Box::new(move |shared: &Shared| by_session::run(shared, &root, number)) as Program
    };
    let (count, shared) = (by_session::PROGRAMS.len(), root());
    let own = (0..count).map(|number| program(root(), number));
    let of_shared = (count..2 * count).map(|number| program(shared.clone(), number));
    own.chain(of_shared).collect()
}

/// Kills the servers of a keeper while programs work.
fn rounds(keeper: u32, programs: Vec<Program>, rounds: u64) {
    let shared = Shared::default();
    let mut pauses = Vec::new();
    thread::scope(|scope| {
        let shared = &shared;
        let programs = programs.into_iter().map(|program| scope.spawn(move || program(shared)));
        let programs: Vec<_> = programs.collect();
        for round in 0..rounds {
            // From long enough for a checkpoint to too short to be served at all.
            thread::sleep(Duration::from_millis(
                [200, 40, 5, 90, 0, 500, 1, 20][round as usize % 8],
            ));
            if programs.iter().any(|program| program.is_finished()) {
                break;
            }
            let server = wait_for("a server", || server_of(keeper));
            // Of the calls since the kill before, however long they took.
            pauses.push(shared.longest_us.swap(0, Ordering::Relaxed));
            kill(server);
            let before = shared.calls.load(Ordering::Relaxed);
            let goes_on = || (shared.calls.load(Ordering::Relaxed) > before + 20).then_some(());
            let ended = || programs.iter().any(|program| program.is_finished()).then_some(());
            wait_for("programs that go on", || goes_on().or_else(ended));
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    pauses.push(shared.longest_us.load(Ordering::Relaxed));
    pauses.remove(0);
    let (calls, (median, longest)) = (shared.calls.load(Ordering::Relaxed), spread(pauses));
    println!(
        "{rounds} kills, {calls} calls; pause: median {} ms, longest {} ms",
        median / 1000,
        longest / 1000
    );
}

/// Kills the servers of a mount while programs work, and checks the volume at the end.
fn rounds_of_mount(scratch: &Scratch, programs: Vec<Program>) {
    rounds(keeper(&scratch.path("m")), programs, count(24));
    // A child that another test has just forked has this process's files until it runs a program.
    wait_for("an unmount", || (scratch.shoal(["umount", "m"]).status() == Some(0)).then_some(()));
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn programs_go_on_over_kills() {
    let Some(scratch) = mounted("keeper=on") else { return };
    rounds_of_mount(&scratch, on_mount(&scratch));
}

/// Number of kills, if another one is not wanted.
fn count(usual: u64) -> u64 {
    let count = std::env::var("SHOAL_KEEPER_ROUNDS").ok().and_then(|n| n.parse().ok());
    count.unwrap_or(usual)
}

/// Sessions of the library go on as the mount does.
#[test]
fn programs_go_on_by_sessions_over_kills() {
    let Some(scratch) = mounted("keeper=on") else { return };
    rounds_of_mount(&scratch, by_sessions(&scratch.path("m")));
}

/// The same where nothing is mounted.
#[test]
fn programs_go_on_by_sessions_of_a_served_volume() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &["--keeper", "on"]);
    rounds(serving.pid(), by_sessions(&serving.socket), count(24));
    assert_eq!(serving.end(Signal::TERM), Some(0));
    scratch.shoal(["fsck", "v"]).ok();
    assert!(scratch.shoal(["orphans", "v"]).ok().is_empty());
}

/// Another program takes over again and again.
#[test]
fn programs_go_on_over_take_overs() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let before = keeper(&scratch.path("m"));
    let mount = scratch.path("m");
    let (shared, mut pauses) = (Shared::default(), Vec::new());
    thread::scope(|scope| {
        for number in 0..PROGRAMS.len() {
            let (shared, mount) = (&shared, &mount);
            scope.spawn(move || work::run(shared, mount, number));
        }
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(100));
            let server = server_of(before);
            shared.longest_us.store(0, Ordering::Relaxed);
            scratch.shoal(["remount", "--takeover", "m"]).ok();
            pauses.push(shared.longest_us.load(Ordering::Relaxed));
            assert_ne!(server_of(before), server, "another process serves");
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    let (median, longest) = spread(pauses);
    println!("take-over; pause: median {} us, longest {} us", median, longest);
    assert_eq!(keeper(&scratch.path("m")), before, "the same keeper");
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
    let log = fs::read_to_string(scratch.path("log")).expect("a log");
    assert!(!log.contains("has died"), "{log}");
}

/// The volume of a mount in use grows again and again, until it is ten times as large.
#[test]
fn a_volume_grows_while_programs_work() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let mount = scratch.path("m");
    let (shared, mut pauses) = (Shared::default(), Vec::new());
    let size = || fs::metadata(scratch.path("v")).expect("the volume").len();
    let first = size();
    let blocks = || rustix::fs::statvfs(&mount).expect("statvfs").f_blocks;
    let before = blocks();
    thread::scope(|scope| {
        for number in 0..PROGRAMS.len() {
            let (shared, mount) = (&shared, &mount);
            scope.spawn(move || work::run(shared, mount, number));
        }
        for times in [2, 3, 5, 10] {
            thread::sleep(Duration::from_millis(200));
            shared.longest_us.store(0, Ordering::Relaxed);
            let wanted = (first * times).to_string();
            let said = scratch.shoal(["grow", "m", "--size", &wanted]).ok();
            assert!(said.starts_with("m: ") && said.ends_with(" now\n"), "{said}");
            assert_eq!(size(), first * times);
            pauses.push(shared.longest_us.load(Ordering::Relaxed));
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    let (median, longest) = spread(pauses);
    println!("growth; pause: median {median} us, longest {longest} us");
    assert!(blocks() > before * 9);
    // What cannot be: the mount goes on as it was.
    let refused = scratch.shoal(["grow", "m", "--size", &first.to_string()]);
    refused.fails(1, &["m", "bytes already"]);
    let refused = scratch.shoal(["grow", "m", "--size", "1000000T"]);
    refused.fails(1, &["m: not taken over", "the former program goes on"]);
    assert_eq!(size(), first * 10);
    scratch.write("m/file", "text");
    // A server that dies later knows of no growth.
    kill(server_of(keeper(&mount)).expect("a server"));
    assert_eq!(scratch.shell("cat m/file").ok(), "text");
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn only_what_can_be_taken_over_is() {
    let Some(scratch) = mounted("keeper=on,allow_other") else { return };
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    scratch.shoal(["mount", "w", "n", "-o", "keeper=off"]).ok();
    scratch.shoal(["remount", "--takeover", "n"]).fails(1, &["n", "no keeper"]);
    scratch.shoal(["remount", "--takeover", "nodir"]).fails(1, &["nodir", "not a mount"]);
    assert_eq!(scratch.shoal(["remount", "m"]).status(), Some(2));
    if shoal_skip::is_root() {
        fs::set_permissions(scratch.path("."), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("chmod");
        let refused = common::run_as_user(&scratch, "shoal remount --takeover m");
        refused.fails(1, &["m: not taken over: permission denied"]);
    }
    // A program that cannot serve: the former one goes on.
    scratch.write("m/file", "text");
    let wrong = scratch.path("wrong");
    fs::copy("/bin/false", &wrong).expect("copy");
    let server = server_of(keeper(&scratch.path("m")));
    scratch.shoal(["umount", "n"]).ok();
    assert_eq!(server_of(keeper(&scratch.path("m"))), server);
    assert_eq!(scratch.shell("cat m/file").ok(), "text");
    scratch.shoal(["umount", "m"]).ok();
}

/// Only the keeper is killed: nobody notices. Then the server too: the next mount has everything.
#[test]
fn nothing_is_lost_when_both_are_killed() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let keeper = keeper(&scratch.path("m"));
    let server = server_of(keeper).expect("a server");
    kill(keeper);
    for n in 0..300 {
        scratch.write(format!("m/{n}"), common::noise(n, (n * 31 % 5000) as usize));
    }
    fs::rename(scratch.path("m/7"), scratch.path("m/moved")).expect("rename");
    let own = wait_for("the server answers for itself", || {
        shoal_fuse::server_pid(&scratch.path("m")).filter(|pid| *pid == server)
    });
    kill(own);
    wait_for("the mount is dead", || fs::metadata(scratch.path("m/8")).err());
    scratch.shell("umount -l m").ok();
    scratch.shoal(["mount", "v", "m", "--log", "log"]).ok();
    for n in (0..300).filter(|n| *n != 7) {
        let kept = fs::read(scratch.path(format!("m/{n}"))).unwrap_or_else(|e| panic!("{n}: {e}"));
        assert!(kept == common::noise(n, (n * 31 % 5000) as usize), "{n}");
    }
    assert!(scratch.path("m/moved").exists() && !scratch.path("m/7").exists());
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
    let log = fs::read_to_string(scratch.path("log")).expect("a log");
    assert!(log.contains("the keeper is gone"), "{log}");
}

/// A mount without a keeper, and commands that write a volume that was not closed, lost what only
/// the ring of the killed mount had.
#[test]
fn whatever_opens_the_volume_next_finds_the_ring() {
    let ways = ["mount v m -o keeper=off", "dump v -o d", "grow v --size 300M", "fsck v --auto"];
    for way in ways {
        let Some(scratch) = mounted("keeper=on") else { return };
        for n in 0..100 {
            scratch.write(format!("m/{n}"), n.to_string());
        }
        let keeper = keeper(&scratch.path("m"));
        let server = server_of(keeper).expect("a server");
        kill(keeper);
        kill(server);
        wait_for("the mount is dead", || fs::metadata(scratch.path("m/8")).err());
        let said = match shoal_skip::is_root() {
            true => "the next open of the volume finds all completed calls",
            false => "changes that were not synced are lost",
        };
        scratch.shoal(["umount", "m"]).fails(1, &["unmounted, but its server had ended", said]);
        scratch.shoal(way.split(' ')).ok();
        if way.starts_with("mount") {
            scratch.shoal(["umount", "m"]).ok();
        }
        assert_eq!(scratch.shell("shoal ls v:/ | wc -l").ok(), "100\n", "{way}");
        let left = ring_of(&scratch).exists();
        assert!(!shoal_skip::is_root() || !left, "{way}: memory that nobody needs");
        scratch.shoal(["fsck", "v"]).ok();
    }
}

/// A server that dies each time before it serves is given up, and nothing that had returned is
/// lost.
#[test]
fn a_mount_that_cannot_be_served_is_given_up() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let keeper = keeper(&scratch.path("m"));
    for n in 0..50 {
        scratch.write(format!("m/{n}"), n.to_string());
    }
    // Each new server finds a volume that it cannot read. The file stays the same one.
    let mut head = vec![0; 128 << 10];
    let volume = fs::File::options().read(true).write(true).open(scratch.path("v")).expect("open");
    volume.read_exact_at(&mut head, 0).expect("read");
    volume.write_all_at(&vec![0; head.len()], 0).expect("write");
    kill(server_of(keeper).expect("a server"));
    wait_for("the mount is gone", || (!is_mount(&scratch.path("m"))).then_some(()));
    wait_for_end(keeper);
    let log = fs::read_to_string(scratch.path("log")).expect("a log");
    assert!(log.contains("given up"), "{log}");
    volume.write_all_at(&head, 0).expect("write");
    let info = scratch.shoal(["info", "v"]).ok();
    let has = |part| !shoal_skip::is_root() || info.contains(part);
    assert!(has("/m: servers died; the last by exit status 2: "), "{info}");
    assert!(has("/v is not a Shoal volume"), "{info}");
    scratch.shoal(["mount", "v", "m"]).ok();
    for n in 0..50 {
        assert_eq!(
            fs::read_to_string(scratch.path(format!("m/{n}"))).expect("read"),
            n.to_string()
        );
    }
    scratch.shoal(["umount", "m"]).ok();
    assert!(!scratch.shoal(["info", "v"]).ok().contains("servers died"));
    scratch.shoal(["fsck", "v"]).ok();
}

/// The server is killed while the mount is being unmounted.
#[test]
fn an_unmount_whose_server_dies_closes_the_volume() {
    let Some(scratch) = mounted("keeper=on") else { return };
    for round in 0..6u64 {
        scratch.write(format!("m/{round}"), common::noise(round, 5000));
        let server = server_of(keeper(&scratch.path("m"))).expect("a server");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_micros(round * 1500));
                kill(server);
            });
            scratch.shoal(["umount", "m"]).ok();
        });
        assert!(!is_mount(&scratch.path("m")));
        assert_eq!(
            scratch.shoal(["cat", &format!("v:/{round}")]).bytes(),
            common::noise(round, 5000)
        );
        scratch.shoal(["fsck", "v"]).ok();
        scratch.shoal(["mount", "v", "m", "--log", "log"]).ok();
    }
    // A signal for the keeper is one for the server.
    let keeper = keeper(&scratch.path("m"));
    signal(keeper, Signal::TERM);
    wait_for("the mount is gone", || (!is_mount(&scratch.path("m"))).then_some(()));
    wait_for("the volume is free", || {
        (scratch.shoal(["ls", "v:/"]).status() == Some(0)).then_some(())
    });
}

/// A server that had been told to end died before it could, and the next one served on.
#[test]
fn a_mount_that_was_told_to_end_ends_although_its_server_dies() {
    let Some(scratch) = mounted("keeper=on") else { return };
    scratch.write("m/file", "kept");
    let keeper = keeper(&scratch.path("m"));
    let server = server_of(keeper).expect("a server");
    // It has the signal, and does nothing about it.
    signal(server, Signal::STOP);
    signal(keeper, Signal::TERM);
    kill(server);
    wait_for("the mount is gone", || (!is_mount(&scratch.path("m"))).then_some(()));
    wait_for_end(keeper);
    assert_eq!(scratch.shoal(["cat", "v:/file"]).ok(), "kept");
    assert!(scratch.shoal(["info", "v"]).ok().contains("closed          yes"));
}

#[test]
fn a_second_signal_does_not_wait_for_the_last_user() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let keeper = keeper(&scratch.path("m"));
    let mut open = fs::File::create(scratch.path("m/file")).expect("create");
    open.write_all(b"kept").expect("write");
    signal(keeper, Signal::TERM);
    wait_for("the mount is gone", || (!is_mount(&scratch.path("m"))).then_some(()));
    open.write_all(b", and more").expect("still served");
    signal(keeper, Signal::TERM);
    wait_for_end(keeper);
    assert!(open.write_all(b"no").is_err(), "nobody serves it");
    drop(open);
    assert_eq!(scratch.shoal(["cat", "v:/file"]).ok(), "kept, and more");
}

#[test]
fn wishes_that_cannot_be_had_are_refused() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let mount = |options| scratch.shoal(["mount", "v", "m", "-o", options]);
    mount("keeper=on,io_uring=on").fails(2, &["keeper=on", "io_uring=on"]);
    mount("keeper=maybe").fails(2, &["keeper=maybe", "auto, on or off"]);
    mount("keeper=on,ro").ok();
    assert_eq!(fs::read_dir(scratch.path("m")).expect("list").count(), 0);
    // Before the kill: while the next server opens the volume, it is in use.
    let ring = ring_of(&scratch);
    let keeper = keeper(&scratch.path("m"));
    kill(server_of(keeper).expect("a server"));
    assert_eq!(fs::read_dir(scratch.path("m")).expect("list").count(), 0);
    assert!(!shoal_skip::is_root() || ring.exists());
    scratch.shoal(["umount", "m"]).ok();
    assert!(!ring.exists(), "memory that nobody needs");
}

/// A test whose mount was killed left 48 MiB of memory until the machine was restarted.
#[test]
fn the_ring_of_a_test_goes_with_its_directory() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let keeper = keeper(&scratch.path("m"));
    let server = server_of(keeper).expect("a server");
    kill(keeper);
    kill(server);
    wait_for("the mount is dead", || fs::metadata(scratch.path("m")).err());
    wait_for("the volume is free", || {
        (scratch.shoal(["info", "v"]).status() == Some(0)).then_some(())
    });
    let ring = ring_of(&scratch);
    assert_eq!(ring.exists(), shoal_skip::is_root(), "left for the next open");
    drop(scratch);
    assert!(!ring.exists(), "memory that nobody needs");
}

/// Rings of volumes that had been removed stayed until the machine was restarted, 48 MiB each.
#[test]
fn the_next_mount_removes_the_rings_of_volumes_that_are_gone() {
    if !shoal_skip::is_root() {
        return shoal_skip::skipped("needs root: another user may have no folder for rings");
    }
    let killed = || {
        let scratch = mounted("keeper=on")?;
        scratch.write("m/last", "not synced");
        let keeper = keeper(&scratch.path("m"));
        let server = server_of(keeper).expect("a server");
        let ring = ring_of_mount(&scratch);
        kill(keeper);
        kill(server);
        wait_for("the mount is dead", || fs::metadata(scratch.path("m/last")).err());
        scratch.shell("umount -l m").ok();
        assert!(ring.exists() && ring.with_extension("volume").exists());
        Some((scratch, ring))
    };
    let (Some((gone, ring_of_gone)), Some((there, ring_of_there))) = (killed(), killed()) else {
        return;
    };
    // A server that was killed holds its locks until all of its threads have ended.
    for scratch in [&gone, &there] {
        wait_for("the volume is free", || {
            (scratch.shoal(["info", "v"]).status() == Some(0)).then_some(())
        });
    }
    fs::rename(there.path("v"), there.path("elsewhere")).expect("rename");
    fs::rename(there.path("elsewhere"), there.path("v")).expect("rename");
    fs::remove_file(gone.path("v")).expect("remove");
    let next = mounted("keeper=on").expect("a mount");
    assert!(!ring_of_gone.exists() && !ring_of_gone.with_extension("volume").exists());
    assert!(ring_of_there.exists(), "its volume is there");
    next.shoal(["umount", "m"]).ok();
    assert_eq!(there.shoal(["cat", "v:/last"]).ok(), "not synced");
}

/// The ring's file of a mounted volume.
fn ring_of_mount(scratch: &Scratch) -> std::path::PathBuf {
    let info: serde_json::Value =
        serde_json::from_str(&scratch.shoal(["info", "m", "--json"]).ok()).expect("JSON");
    common::ring_file(info["id"].as_str().expect("an id"))
}

/// The ring's file of the volume, if the superuser mounts it.
fn ring_of(scratch: &Scratch) -> std::path::PathBuf {
    let info: serde_json::Value =
        serde_json::from_str(&scratch.shoal(["info", "v", "--json"]).ok()).expect("JSON");
    common::ring_file(info["id"].as_str().expect("an id"))
}
