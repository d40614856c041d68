//! `shoal serve`. Sessions of a mount whose server is replaced: `keeper/deaths.rs`.

use crate::common::Scratch;
use crate::keeper::kill_server_of;
use rustix::process::{Pid, Signal, kill_process};
use shoal::{Credentials, FileOptions, Volume};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A process that serves a volume, or the keeper of one.
pub(crate) struct Serving {
    child: Child,
    pub socket: PathBuf,
}

impl Serving {
    pub(crate) fn start(scratch: &Scratch, arguments: &[&str]) -> Serving {
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

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
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
    scratch.shoal(["ls", "v:/"]).fails(2, &["in use"]);
    scratch.shoal(["serve", "v"]).fails(2, &["in use"]);
    assert_eq!(serving.end(Signal::TERM), Some(0));
    assert!(root.read("d/file").is_err(), "its server has ended");
    assert_eq!(scratch.shoal(["cat", "v:/d/file"]).ok(), "by a session");
    let info = scratch.shoal(["info", "v"]).ok();
    assert!(info.contains("closed          yes"), "{info}");
    scratch.shoal(["serve", "missing"]).fails(2, &["missing"]);
    scratch.shoal(["serve", "v", "--socket", "no/such/place"]).fails(1, &["no/such/place"]);
    let refused = scratch.shoal(["serve", "v", "--read-only", "--keeper", "on"]);
    refused.fails(2, &["--keeper on", "--read-only"]);
}

/// Calls that had returned are there, synced or not.
#[test]
fn a_killed_server_loses_nothing() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &["--keeper", "off"]);
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

/// Open files stay open when the server dies, and are freed when their client has closed them.
#[test]
fn open_files_of_a_served_volume_stay_open() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &[]);
    let root = |serving: &Serving| {
        let volume = Volume::connect(&serving.socket).expect("connected");
        volume.root(Credentials::current())
    };
    let (top, other) = (root(&serving), root(&serving));
    let options = FileOptions::new().read(true).write(true).create_new(true);
    let file = options.open(&top, "gone").expect("made");
    let forgotten = options.open(&other, "forgotten").expect("made");
    forgotten.write_all_at(&[7; 3_000_000], 0).expect("written");
    let free = || {
        let connect = || Volume::connect(&serving.socket).ok();
        let volume = shoal_skip::wait_for("a server", connect);
        volume.usage().expect("usage").bytes_available
    };
    for name in ["gone", "forgotten"] {
        top.remove_file(name).expect("removed");
    }
    let before = free();
    for round in 0..3u64 {
        kill_server_of(serving.pid());
        file.write_all_at(b"text", round * 4).expect("written");
        let mut read = vec![0; 4 * (round as usize + 1)];
        file.read_exact_at(&mut read, 0).expect("read");
        assert_eq!(read, b"text".repeat(round as usize + 1));
        assert!(free() < before + 2_000_000, "the other file is open");
    }
    kill_server_of(serving.pid());
    drop((forgotten, other));
    // Its client has not come to the next server, and has the session no more.
    shoal_skip::wait_until("the space of the other file", || free() >= before + 2_000_000);
    drop((file, top));
    assert_eq!(serving.end(Signal::TERM), Some(0));
    scratch.shoal(["fsck", "v"]).ok();
    assert!(scratch.shoal(["orphans", "v"]).ok().is_empty());
}
