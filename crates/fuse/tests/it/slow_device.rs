//! A device that hangs: who needs it waits, and nobody else does; who is killed leaves.

use crate::common::{TestMount, mount_failing};
use shoal_skip::{wait_for, wait_until};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread::Builder;

/// Readers that wait: more than threads read requests, and than rings had slots once.
const READERS: usize = 300;

/// Makes files, and mounts them so that their contents, and half of their inodes, are in nobody's
/// memory. Those in `warm` are in the server's, inodes with small contents: the kernel drops what
/// it has when another program on the machine wants it to.
fn prepare() -> Option<TestMount> {
    let mut mount = mount_failing("threads=2")?;
    for dir in ["known", "unknown", "warm"] {
        fs::create_dir(mount.path(dir)).unwrap();
        for n in 0..READERS / 2 {
            let large = dir != "warm";
            let contents = if large { contents(n) } else { small(n) };
            fs::write(mount.path(&format!("{dir}/{n}")), contents).unwrap();
        }
    }
    mount.remount();
    for n in 0..READERS / 2 {
        fs::metadata(mount.path(&format!("known/{n}"))).unwrap();
        assert_eq!(fs::read(mount.path(&format!("warm/{n}"))).unwrap(), small(n));
    }
    fs::metadata(mount.path("unknown")).unwrap();
    Some(mount)
}

/// Too large for an inode.
fn contents(n: usize) -> Vec<u8> {
    vec![n as u8; 9000]
}

/// In the inode.
fn small(n: usize) -> Vec<u8> {
    vec![n as u8; 90]
}

/// Calls that need nothing of the device.
fn use_what_is_there(mount: &TestMount, round: usize) {
    let names = fs::read_dir(mount.path("warm")).unwrap().count();
    assert!(names >= READERS / 2);
    assert_eq!(fs::read(mount.path("warm/7")).unwrap(), small(7));
    assert_eq!(fs::metadata(mount.path("known/1")).unwrap().len(), 9000);
    let new = mount.path(&format!("warm/new {round}"));
    fs::write(&new, b"small").unwrap();
    fs::rename(&new, mount.path("warm/newer")).unwrap();
    fs::remove_file(mount.path("warm/newer")).unwrap();
}

#[test]
fn readers_that_wait_stop_nobody() {
    let Some(mount) = prepare() else { return };
    use_what_is_there(&mount, 0);
    mount.hang_reads();
    let readers: Vec<_> = (0..READERS)
        .map(|n| {
            let dir = if n % 2 == 0 { "known" } else { "unknown" };
            let path = mount.path(&format!("{dir}/{}", n / 2));
            let read = move || fs::read(path).unwrap();
            Builder::new().stack_size(128 << 10).spawn(read).unwrap()
        })
        .collect();
    for round in 1..20 {
        use_what_is_there(&mount, round);
    }
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    mount.let_reads_go();
    for (n, reader) in readers.into_iter().enumerate() {
        assert_eq!(reader.join().unwrap(), contents(n / 2));
    }
    use_what_is_there(&mount, 20);
}

#[test]
fn writers_that_wait_stop_nobody() {
    let Some(mut mount) = prepare() else { return };
    use_what_is_there(&mount, 0);
    mount.hang_writes();
    // Half of them go on with one file, each behind the other.
    let shared = mount.path("warm/shared");
    let writers: Vec<_> = (0..READERS / 3)
        .map(|n| {
            let (own, shared) = (mount.path(&format!("unknown/written {n}")), shared.clone());
            let write = move || match n % 2 {
                0 => fs::write(own, contents(n)).unwrap(),
                _ => {
                    let file = fs::OpenOptions::new().create(true).append(true).open(shared);
                    std::io::Write::write_all(&mut file.unwrap(), &contents(n)).unwrap();
                }
            };
            Builder::new().stack_size(128 << 10).spawn(write).unwrap()
        })
        .collect();
    for round in 1..20 {
        use_what_is_there(&mount, round);
    }
    assert!(writers.iter().all(|writer| !writer.is_finished()));
    mount.let_writes_go();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    mount.remount();
    let mut appended = fs::read(&shared).unwrap();
    assert_eq!(appended.len(), READERS / 6 * 9000);
    appended.dedup();
    appended.sort();
    let odd: Vec<u8> = (0..READERS / 3).filter(|n| n % 2 == 1).map(|n| n as u8).collect();
    assert_eq!(appended, odd, "one after the other, each whole");
    for n in (0..READERS / 3).step_by(2) {
        assert_eq!(fs::read(mount.path(&format!("unknown/written {n}"))).unwrap(), contents(n));
    }
}

#[test]
fn whoever_is_killed_leaves_and_whoever_is_only_interrupted_waits() {
    let Some(mount) = prepare() else { return };
    mount.hang_reads();
    let read = |name: &str| {
        let mut command = Command::new("cat");
        command.arg(mount.path(name)).stdout(Stdio::piped()).spawn().unwrap()
    };
    let waits = |pid: u32| {
        let path = format!("/proc/{pid}/syscall");
        let now = fs::read_to_string(path).unwrap_or_default();
        let open = [libc::SYS_openat, libc::SYS_read, libc::SYS_newfstatat];
        let inside = open.iter().any(|call| now.starts_with(&format!("{call} ")));
        let maps = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        inside && maps.trim() == "cat"
    };
    for name in ["known/0", "unknown/0"] {
        let mut victim = read(name);
        wait_until("it waits", || waits(victim.id()));
        victim.kill().unwrap();
        let status = wait_for("it leaves", || victim.try_wait().unwrap());
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{name}");
    }
    // Ends it, too, but does not ask: a signal without a handler.
    let mut victim = read("known/1");
    wait_until("it waits", || waits(victim.id()));
    let term = rustix::process::Pid::from_child(&victim);
    rustix::process::kill_process(term, rustix::process::Signal::TERM).unwrap();
    let status = wait_for("it leaves", || victim.try_wait().unwrap());
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    // A signal that is ignored ends nothing; the same caller can be killed later.
    let mut patient = read("known/2");
    wait_until("it waits", || waits(patient.id()));
    let pid = rustix::process::Pid::from_child(&patient);
    rustix::process::kill_process(pid, rustix::process::Signal::WINCH).unwrap();
    use_what_is_there(&mount, 0);
    assert!(patient.try_wait().unwrap().is_none());
    mount.let_reads_go();
    let output = patient.wait_with_output().unwrap();
    assert_eq!((output.status.success(), output.stdout), (true, contents(2)));
    // What was given up is as it was.
    assert_eq!(fs::read(mount.path("known/0")).unwrap(), contents(0));
}
