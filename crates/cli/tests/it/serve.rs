//! `shoal serve`. Sessions of a mount whose server is replaced: `keeper/deaths.rs`.

use crate::common::Scratch;
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
    scratch.shoal(["ls", "v:/"]).fails(2, &["in use"]);
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
