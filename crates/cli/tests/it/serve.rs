//! `shoal serve`, and sessions of a mount whose server is replaced.

use crate::common::Scratch;
use crate::keeper::{kill_server, mounted};
use rustix::process::{Pid, Signal, kill_process};
use shoal::{Credentials, Volume};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A process that serves a volume.
struct Serving {
    child: Child,
    socket: PathBuf,
}

impl Serving {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Serving {
        let socket = scratch.path("socket");
        let mut command = scratch.command(["serve", "v", "--socket"]);
        command.arg(&socket).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), socket.to_str().expect("a name"));
        Serving { child, socket }
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("signalled");
        self.child.wait().expect("waited").code()
    }
}

#[test]
fn a_served_volume_is_used_by_other_processes_and_closed_at_the_end() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &[]);
    let volume = Volume::connect(&serving.socket).expect("connected");
    let root = volume.root(Credentials::current());
    root.create_dir("d").expect("made").write("file", "by a session").expect("written");
    scratch.shoal(["ls", "v:/", "--direct"]).fails(2, &["in use"]);
    scratch.shoal(["serve", "v"]).fails(2, &["in use"]);
    assert_eq!(serving.end(Signal::TERM), Some(0));
    assert!(root.read("d/file").is_err(), "its server has ended");
    assert_eq!(scratch.shoal(["cat", "v:/d/file"]).ok(), "by a session");
    let info = scratch.shoal(["info", "v"]).ok();
    assert!(info.contains("closed          yes"), "{info}");
    scratch.shoal(["serve", "missing"]).fails(2, &["missing"]);
    scratch.shoal(["serve", "v", "--socket", "no/such/place"]).fails(1, &["no/such/place"]);
}

/// Calls that had returned are there, synced or not.
#[test]
fn a_killed_server_loses_nothing() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &[]);
    let volume = Volume::connect(&serving.socket).expect("connected");
    let root = volume.root(Credentials::current());
    for n in 0..100 {
        root.write(format!("{n}"), format!("{n}")).expect("written");
    }
    assert_eq!(serving.end(Signal::KILL), None);
    let serving = Serving::start(&scratch, &["--read-only"]);
    let volume = Volume::connect(&serving.socket).expect("connected");
    let root = volume.root(Credentials::current());
    for n in 0..100 {
        assert_eq!(root.read(format!("{n}")).expect("kept"), format!("{n}").as_bytes());
    }
    assert!(root.write("new", "").is_err(), "read-only");
    assert_eq!(serving.end(Signal::INT), Some(0));
    scratch.shoal(["fsck", "v"]).ok();
}

/// The mount goes on after its server was killed, and takes sessions again; what sessions had been
/// told is there.
#[test]
fn sessions_of_a_mount_begin_anew_with_the_next_server() {
    let Some(scratch) = mounted("keeper=on") else { return };
    let mount = scratch.path("m");
    for round in 0..3 {
        let volume = Volume::connect(&mount).expect("connected");
        let root = volume.root(Credentials::current());
        for n in 0..50 {
            root.write(format!("{round}-{n}"), format!("{n}")).expect("written");
        }
        kill_server(&mount);
        // The kernel waits for the next server, and so do we: then there is a new socket.
        assert_eq!(std::fs::read(mount.join(format!("{round}-7"))).expect("read"), b"7");
        assert!(root.exists("x").is_err(), "the old session is over");
        let again =
            shoal_skip::wait_for("a session with the next server", || Volume::connect(&mount).ok());
        let root = again.root(Credentials::current());
        for n in 0..50 {
            let found = root.read(format!("{round}-{n}")).expect("kept");
            assert_eq!(found, format!("{n}").as_bytes());
        }
    }
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}
