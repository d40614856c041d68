//! Deaths of servers and of clients: sessions go on with the next server, and nothing of a dead
//! client stays.

use super::{keeper, kill, kill_server, mounted, server_of};
use crate::common::Scratch;
use shoal::{Changes, Credentials, Dir, File, FileOptions, TreeChange, Volume};
use shoal_skip::{wait_for, wait_until};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn root(mount: &Path) -> Dir {
    Volume::connect(mount).expect("connected").root(Credentials::current())
}

fn new_file(dir: &Dir, name: &str) -> File {
    let options = FileOptions::new().read(true).write(true).create_new(true);
    options.open(dir, name).expect("a new file")
}

fn orphans(scratch: &Scratch) -> String {
    scratch.shoal(["orphans", "m"]).ok()
}

/// The whole file.
fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().expect("stat").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

/// Servers die between calls: what is open stays so, without a name too, and closes for good.
#[test]
fn open_files_stay_open() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let mount = scratch.path("m");
    let (top, idle) = (root(&mount), root(&mount));
    let dir = top.create_dir("d").expect("made");
    top.write("read", "only").expect("written");
    let (read, gone, small) = (top.open("read").expect("opened"), new_file(&dir, "a"), "small");
    let forgotten = new_file(&idle, "of an idle client");
    gone.write_all_at(&[7; 300_000], 0).expect("written");
    let tiny = new_file(&dir, "b");
    tiny.write_all_at(small.as_bytes(), 0).expect("written");
    // More nodes than a page of them, some of them closed.
    let many: Vec<_> = (0..500).map(|n| new_file(&dir, &format!("{n}"))).collect();
    let kept: Vec<_> = many.into_iter().enumerate().filter(|(n, _)| n % 3 != 1).collect();
    for name in ["a", "b"] {
        dir.remove_file(name).expect("removed");
    }
    idle.remove_file("of an idle client").expect("removed");
    for round in 0..4u8 {
        kill_server(&mount);
        if round == 1 {
            // And once more, when nobody of ours has come.
            wait_for("the next server", || std::fs::metadata(&mount).ok());
            kill_server(&mount);
        }
        tiny.write_all_at(&[round], 5 + u64::from(round)).expect("written");
        assert!(contents(&gone) == [7; 300_000]);
        assert_eq!(&contents(&tiny)[..6], [small.as_bytes(), &[0]].concat());
        assert_eq!(contents(&read), b"only");
        read.write_all_at(b"x", 0).expect_err("it is open for reading");
        for (n, file) in kept.iter().filter(|(n, _)| n % 50 == usize::from(round)) {
            file.write_all_at(n.to_string().as_bytes(), 0).expect("written");
            assert_eq!(dir.read(format!("{n}")).expect("read"), n.to_string().as_bytes());
        }
        new_file(&dir, &format!("new{round}"));
        assert_eq!(orphans(&scratch).lines().count(), 1 + 3, "{}", orphans(&scratch));
    }
    assert_eq!(forgotten.metadata().expect("stat").nlink(), 0);
    drop((gone, tiny));
    assert_eq!(orphans(&scratch).lines().count(), 1 + 1, "{}", orphans(&scratch));
    // Closed while there is no server.
    kill_server(&mount);
    drop((forgotten, idle));
    wait_until("nothing is open", || orphans(&scratch).is_empty());
    drop((read, kept, dir, top));
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}

/// Calls in progress at a dead server that are not resumed fail with the documented error.
#[test]
fn lists_of_changes_and_changes_of_trees_end_with_their_server() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let mount = scratch.path("m");
    let top = root(&mount);
    let dir = top.create_dir("d").expect("made");
    for n in 0..3000 {
        drop(dir.create_new(format!("{n}")).expect("made"));
    }
    let mut changes = Changes::since(&top, None).expect("begun");
    changes.next().expect("some").expect("read");
    kill_server(&mount);
    let error = changes.find_map(Result::err).expect("the rest was at the dead server");
    assert!(error.to_string().contains("begin anew"), "{error}");
    assert_eq!(Changes::since(&top, None).expect("begun").filter_map(Result::ok).count(), 3002);
    let change = TreeChange::new().mode("a+x").expect("a mode");
    let killed = AtomicBool::new(false);
    let done = change.make_watched(&dir, |_, _| {
        if !killed.swap(true, Ordering::Relaxed) {
            kill_server(&mount);
        }
        ControlFlow::Continue(())
    });
    // It may have ended before the server did.
    if let Err(error) = done {
        assert!(error.to_string().contains("make it again"), "{error}");
    }
    change.make(&dir).expect("made again");
    assert_eq!(dir.metadata("2999").expect("stat").permissions() & 0o111, 0o111);
    drop((changes, dir, top));
    scratch.umount("m");
}

/// Another program takes over, and the volume grows.
#[test]
fn sessions_go_on_over_take_overs() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let top = root(&scratch.path("m"));
    let gone = new_file(&top, "gone");
    top.remove_file("gone").expect("removed");
    for round in 0..3u64 {
        gone.write_all_at(b"text", 4 * round).expect("written");
        scratch.shoal(["remount", "--takeover", "m"]).ok();
        assert_eq!(contents(&gone), b"text".repeat(round as usize + 1));
        top.write(format!("{round}"), "after").expect("written");
    }
    drop((gone, top));
    wait_until("nothing is open", || orphans(&scratch).is_empty());
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}

/// Nobody waits for a server that has ended for good.
#[test]
fn a_session_ends_with_its_mount() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let top = root(&scratch.path("m"));
    scratch.umount("m");
    let error = top.exists("x").expect_err("the mount has ended");
    assert!(error.to_string().contains("connect anew"), "{error}");
    scratch.shoal(["mount", "v", "m", "-o", "keeper=on"]).ok();
    let error = top.exists("x").expect_err("this is another mount");
    assert!(error.to_string().contains("connect anew"), "{error}");
    // Nor for a keeper that is gone: it would take a minute.
    let top = root(&scratch.path("m"));
    let keeper = keeper(&scratch.path("m"));
    let server = server_of(keeper).expect("a server");
    kill(keeper);
    assert!(!top.exists("x").expect("it serves on"));
    kill(server);
    let error = top.exists("x").expect_err("nobody is left");
    assert!(error.to_string().contains("connect anew"), "{error}");
}

/// A client of [`killed_clients_leave_nothing`].
#[test]
fn client() {
    let Some(mount) = std::env::var_os("SHOAL_TEST_CLIENT") else { return };
    let top = root(Path::new(&mount));
    let name = format!("client-{}", std::process::id());
    let dir = top.create_dir(&name).expect("made");
    let files: Vec<_> = (0..30).map(|n| new_file(&dir, &format!("{n}"))).collect();
    for (n, file) in files.iter().enumerate() {
        file.write_all_at(&vec![7; 9000 * n], 0).expect("written");
        dir.remove_file(format!("{n}")).expect("removed");
    }
    top.write(format!("{name}.ready"), "").expect("written");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let dir = &dir;
            scope.spawn(move || {
                for n in 0.. {
                    let file = new_file(dir, &format!("{thread}-{n}"));
                    dir.remove_file(format!("{thread}-{n}")).expect("removed");
                    file.write_all_at(&vec![1; 1 << (n % 18)], 0).expect("written");
                    dir.sync_all().expect("synced");
                }
            });
        }
    });
}

struct Client(Child);

impl Client {
    fn start(mount: &Path) -> Client {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "keeper::deaths::client"]).env("SHOAL_TEST_CLIENT", mount);
        let child = command.stdout(std::process::Stdio::null()).spawn().expect("started");
        let ready = mount.join(format!("client-{}.ready", child.id()));
        wait_until("a client that works", || ready.exists());
        Client(child)
    }

    fn kill(&mut self) {
        kill(self.0.id());
        self.0.wait().expect("waited");
    }
}

#[test]
fn killed_clients_leave_nothing() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let mount = scratch.path("m");
    let top = root(&mount);
    let mine = new_file(&top, "mine");
    top.remove_file("mine").expect("removed");
    for round in 0..6 {
        let mut clients: Vec<_> = (0..2).map(|_| Client::start(&mount)).collect();
        match round % 3 {
            // In the middle of calls.
            0 => clients.iter_mut().for_each(Client::kill),
            // While there is no server that could see it.
            1 => {
                kill_server(&mount);
                clients.iter_mut().for_each(Client::kill);
            }
            _ => {
                clients.iter_mut().for_each(Client::kill);
                kill_server(&mount);
            }
        }
        mine.write_all_at(b"here", 4 * round).expect("written");
        wait_until("the clients' files are freed", || orphans(&scratch).lines().count() == 1 + 1);
        assert_eq!(contents(&mine), b"here".repeat(round as usize + 1));
    }
    drop((mine, top));
    wait_until("nothing is open", || orphans(&scratch).is_empty());
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}

/// A server dies between a change by a session and the notice of it to the kernel: the next one
/// gives the notice, before the call returns.
#[test]
fn the_kernel_is_told_by_the_next_server() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let mount = scratch.path("m");
    let top = root(&mount);
    let keeper = keeper(&mount);
    let (done, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            let (a, b) = (mount.join("a"), mount.join("b"));
            while !done.load(Ordering::Relaxed) {
                let round = rounds.fetch_add(1, Ordering::Relaxed);
                // The kernel keeps names that are missing, names, attributes and pages.
                assert!(!a.exists() && !b.exists());
                top.write("a", round.to_string()).expect("written");
                assert_eq!(std::fs::read(&a).expect("read"), round.to_string().as_bytes());
                top.set_permissions("a", 0o600 + (round & 7)).expect("chmod");
                let mode = std::fs::metadata(&a).expect("stat").permissions().mode();
                assert_eq!(mode & 0o7777, 0o600 + (round & 7));
                top.write("a", "other").expect("written");
                assert_eq!(std::fs::read(&a).expect("read"), b"other");
                top.rename("a", "b").expect("renamed");
                assert!(!a.exists());
                assert_eq!(std::fs::read(&b).expect("read"), b"other");
                top.remove_file("b").expect("removed");
            }
        });
        for kill in 0..super::count(12) {
            std::thread::sleep(Duration::from_millis([210, 230, 5, 250][kill as usize % 4]));
            super::kill_server_of(keeper);
            let before = rounds.load(Ordering::Relaxed);
            wait_until("a program that goes on", || {
                rounds.load(Ordering::Relaxed) > before + 1 || program.is_finished()
            });
            if program.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(top);
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}
