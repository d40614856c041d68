//! A measured program ends with the run that measures it, and so do those that it started.

use shoal_skip::wait_until;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

fn guarded(script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laboratory"));
    command.args(["guard", "--", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Returns whether a process runs; one that has ended and was not waited for does not.
fn runs(id: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
}

#[test]
fn a_program_and_its_children_end_with_the_run() {
    let mut guard = guarded("sleep 600 & echo $! $$; wait").spawn().expect("started");
    let mut line = String::new();
    let mut said = BufReader::new(guard.stdout.take().expect("a pipe"));
    said.read_line(&mut line).expect("two numbers");
    let ids: Vec<&str> = line.split_whitespace().collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| runs(id)), "{line}");
    // As the kernel does when the run is killed.
    drop(guard.stdin.take());
    assert_eq!(guard.wait().expect("ended").code(), Some(128 + 9));
    wait_until("all have ended", || !ids.iter().any(|id| runs(id)));
}

#[test]
fn a_guard_says_what_its_program_says() {
    let mut guard = guarded("echo out; exit 7").spawn().expect("started");
    // The run holds its pipe.
    let pipe = guard.stdin.take();
    let mut said = String::new();
    guard.stdout.take().expect("a pipe").read_to_string(&mut said).expect("read");
    assert_eq!((guard.wait().expect("ended").code(), &*said), (Some(7), "out\n"));
    drop(pipe);
    let none = Command::new(env!("CARGO_BIN_EXE_laboratory"))
        .args(["guard", "/no/such/program"])
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(2) && said.contains("starting program: No such"), "{said}");
}
