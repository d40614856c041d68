//! `fsck --repair`: reports, asks, repairs, keeps a log.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Scratch, noise};

/// Destroys every node of directory entries in a volume's file, old ones too.
fn destroy_directories(volume: &Path) -> usize {
    let bytes = fs::read(volume).expect("read");
    let file = OpenOptions::new().write(true).open(volume).expect("open");
    let nodes = (0..bytes.len() - 64).step_by(8).filter(|at| {
        // Magic, tree, level.
        bytes[*at..].starts_with(b"SND2\x01")
    });
    nodes.map(|at| file.write_all_at(&[0x77; 4096], at as u64 + 64).expect("write")).count()
}

fn sample() -> Scratch {
    let scratch = Scratch::with_volume();
    for number in 0..300 {
        scratch.write(format!("tree/{}/{number}", number % 7), noise(number, 900));
    }
    scratch.shoal(["cp", "-r", "tree", "v:/"]).ok();
    scratch
}

#[test]
fn names_come_back() {
    let scratch = sample();
    let before = scratch.shoal(["ls", "-R", "v"]).ok();
    assert!(destroy_directories(&scratch.path("v")) > 1);
    let fsck = scratch.shoal(["fsck", "v"]);
    assert_eq!(fsck.status(), Some(4), "{fsck}");
    assert!(fsck.stdout().contains("lost-dirents-node"), "{fsck}");
    assert!(fsck.stdout().contains("fsck --repair would make"), "{fsck}");

    // Nobody can answer here.
    let refused = scratch.shoal(["fsck", "--repair", "v"]);
    assert_eq!(refused.status(), Some(16), "{refused}");
    assert!(refused.stderr().contains("--yes"), "{refused}");
    for line in ["fsck -a -y v", "fsck -n -y v", "fsck --log l v", "fsck -t ext4 v", "fsck -Z v"] {
        assert_eq!(scratch.shoal(line.split(' ')).status(), Some(16), "{line}");
    }

    let repaired = scratch.shoal(["fsck", "--repair", "--yes", "v"]);
    assert_eq!(repaired.status(), Some(1), "{repaired}");
    assert!(repaired.stdout().contains("repaired"), "{repaired}");
    let log = fs::read_to_string(scratch.path("v.fsck.log")).expect("a log");
    assert!(log.contains("/tree/6/6: entry restored") && log.ends_with("written\n"), "{log}");
    assert_eq!(scratch.shoal(["ls", "-R", "v"]).ok(), before);

    let again = scratch.shoal(["fsck", "-y", "v"]).ok();
    assert!(again.contains("v: clean"), "{again}");
    assert_eq!(fs::read_to_string(scratch.path("v.fsck.log")).expect("a log"), log);
}

#[test]
fn in_json_with_a_log_elsewhere() {
    let scratch = sample();
    destroy_directories(&scratch.path("v"));
    let line = "fsck --repair --yes --json --log the.log v";
    let repaired = scratch.shoal(line.split(' '));
    assert_eq!(repaired.status(), Some(1), "{repaired}");
    for part in [r#""written":true"#, r#""left":[]"#, r#""log":"the.log""#, r#""pass":"pointers""#]
    {
        assert!(repaired.stdout().contains(part), "{part}: {repaired}");
    }
    assert!(scratch.path("the.log").exists() && !scratch.path("v.fsck.log").exists());

    destroy_directories(&scratch.path("v"));
    let line = "fsck --repair --yes --log no/such/place v";
    let stopped = scratch.shoal(line.split(' '));
    assert_eq!(stopped.status(), Some(8), "{stopped}");
    assert_eq!(scratch.shoal(["fsck", "v"]).status(), Some(4), "nothing was written");
}

/// Contents have no second copy: damage is reported by path, and left.
#[test]
fn contents_that_are_damaged_are_named_and_left() {
    let scratch = Scratch::with_volume();
    let bytes = noise(3, 100_000);
    scratch.write("tree/here/file", &bytes);
    scratch.shoal(["cp", "-r", "tree", "v:/"]).ok();
    let volume = fs::read(scratch.path("v")).expect("read");
    let at = volume.windows(64).position(|w| *w == bytes[5000..5064]).expect("the contents");
    let file = OpenOptions::new().write(true).open(scratch.path("v")).expect("open");
    file.write_all_at(b"damage", at as u64).expect("write");
    let fsck = scratch.shoal(["fsck", "v"]);
    assert_eq!(fsck.status(), Some(4), "{fsck}");
    assert!(fsck.stdout().contains("/tree/here/file"), "{fsck}");
    let repaired = scratch.shoal(["fsck", "--repair", "--yes", "v"]);
    assert_eq!(repaired.status(), Some(4), "{repaired}");
    assert!(repaired.stdout().contains("data-checksum"), "{repaired}");
    assert!(repaired.stdout().contains("v: nothing to repair; 1 problem with contents"));
    let log = fs::read_to_string(scratch.path("v.fsck.log")).expect("a log");
    assert!(log.contains("\nleft: data-checksum: ") && !log.contains("written"), "{log}");
    assert!(log.contains("(/tree/here/file): bytes 0 to 100000"), "{log}");
    // A second repair says the same; when the file is restored, there is nothing to say.
    let again = scratch.shoal(["fsck", "--repair", "--yes", "v"]);
    assert_eq!((again.status(), again.stdout()), (Some(4), repaired.stdout()));
    scratch.shoal(["cp", "tree/here/file", "v:/tree/here/file"]).ok();
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
}

/// It ended with 130, which fsck(8) does not know.
#[test]
fn an_interrupted_check_has_the_status_of_fsck_for_it() {
    let scratch = sample();
    destroy_directories(&scratch.path("v"));
    let before = scratch.shoal(["fsck", "v"]).stdout();
    assert!(before.contains("left uncorrected"), "{before}");
    // It waits for a reader of its log before it writes.
    scratch.shell("mkfifo log").ok();
    for line in ["fsck --repair --yes --log log v", "scrub v --rate 1"] {
        for (signal, name) in [(2, "INT"), (15, "TERM")] {
            let mut command = scratch.command(line.split(' '));
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
            let child = command.spawn().expect("start");
            let status = format!("/proc/{}/status", child.id());
            let catches = || {
                let text = fs::read_to_string(&status).expect("a process");
                let line = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
                let mask = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
                mask.expect("a mask") >> (signal - 1) & 1 == 1
            };
            while !catches() {
                std::thread::yield_now();
            }
            scratch.shell(&format!("kill -{name} {}", child.id())).ok();
            let ended = child.wait_with_output().expect("wait");
            assert_eq!(ended.status.code(), Some(32), "{line}: {ended:?}");
            let error = String::from_utf8_lossy(&ended.stderr);
            assert!(error.contains("v: interrupted before the end"), "{line}: {error}");
        }
    }
    assert_eq!(scratch.shoal(["fsck", "v"]).stdout(), before, "nothing was written");
}

/// Both superblocks overwritten, as by a tool with the wrong device.
#[test]
fn a_volume_without_a_superblock_is_found_again() {
    let scratch = sample();
    let before = scratch.shoal(["ls", "-R", "v"]).ok();
    let info = scratch.shoal(["info", "v"]).ok();
    let file = OpenOptions::new().write(true).open(scratch.path("v")).expect("open");
    file.write_all_at(&[0; 128 << 10], 0).expect("write");
    for command in ["info", "scrub"] {
        let refused = scratch.shoal([command, "v"]);
        assert_eq!(refused.status(), Some(if command == "scrub" { 8 } else { 2 }), "{refused}");
        assert!(refused.stderr().contains("shoal fsck --repair"), "{refused}");
    }
    let fsck = scratch.shoal(["fsck", "v"]);
    assert_eq!(fsck.status(), Some(4), "{fsck}");
    assert!(fsck.stdout().contains("both copies of the superblock are lost"), "{fsck}");
    // As `info` shows them.
    let shown = |name: &str| {
        let row = info.lines().find_map(|line| line.strip_prefix(name)).expect("a row");
        row.trim().to_owned()
    };
    let found = format!("of volume {}, made {} UTC", shown("id "), shown("made "));
    assert!(fsck.stdout().contains(&found), "{found}: {fsck}");
    assert_eq!(scratch.shoal(["fsck", "--repair", "--yes", "v"]).status(), Some(1));
    assert_eq!(scratch.shoal(["ls", "-R", "v"]).ok(), before);
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));

    // A file that never was a volume is not made one.
    fs::write(scratch.path("other"), noise(1, 1 << 20)).expect("write");
    let other = scratch.shoal(["fsck", "--repair", "--yes", "other"]);
    assert_eq!(other.status(), Some(8), "{other}");
    assert!(other.stderr().contains("not a Shoal volume"), "{other}");
}

/// A repair that may not take as much memory as it needs changes nothing and says so; a check
/// reports its findings all the same.
#[test]
fn memory_that_is_not_there_is_named() {
    let scratch = sample();
    destroy_directories(&scratch.path("v"));
    let refused = scratch.shoal(["fsck", "--repair", "--yes", "--memory", "1M", "v"]);
    assert_eq!(refused.status(), Some(8), "{refused}");
    let text = refused.stderr();
    assert!(text.contains("takes about") && text.contains("may take 1 MiB"), "{refused}");
    assert!(!scratch.path("v.fsck.log").exists());

    let checked = scratch.shoal(["fsck", "--memory", "1M", "--threads", "3", "v"]);
    assert_eq!(checked.status(), Some(4), "{checked}");
    let text = checked.stdout();
    assert!(text.contains("the changes of a repair are not known"), "{checked}");
    assert!(text.contains("dirents") && !text.contains("would make"), "{checked}");

    let one = scratch.shoal(["fsck", "--threads", "1", "v"]);
    let many = scratch.shoal(["fsck", "--threads", "8", "v"]);
    assert_eq!(one.stdout(), many.stdout());
    let repaired = scratch.shoal(["fsck", "--repair", "--yes", "--memory", "1G", "v"]);
    assert_eq!(repaired.status(), Some(1), "{repaired}");
}

/// Leaves a volume as a killed server does: its journal has to be replayed.
fn not_closed(scratch: &Scratch) -> bool {
    if !shoal_skip::can_mount() {
        return false;
    }
    fs::create_dir_all(scratch.path("m")).expect("mkdir");
    scratch.shoal(["mount", "v", "m", "-o", "keeper=off"]).ok();
    scratch.shell("cp -r tree m/again && shoal sync m").ok();
    let pid = shoal_fuse::server_pid(&scratch.path("m")).expect("a server");
    scratch.kill(pid);
    scratch.shell("umount m").ok();
    true
}

/// The options that boot scripts pass; a crash leaves nothing but a journal to replay.
#[test]
fn at_boot() {
    let scratch = sample();
    for line in ["-a", "-p", "-a -t shoal", "-a -C -v"] {
        let ran = scratch.shell(&format!("shoal fsck {line} v")).ok();
        assert!(ran.contains("clean, was closed") && ran.contains("not read"), "{line}: {ran}");
    }
    let full = scratch.shoal(["fsck", "-a", "-f", "v"]).ok();
    assert!(full.contains("v: clean; checked 3"), "{full}");
    assert!(scratch.shoal(["fsck", "-n", "-f", "v"]).ok().contains("v: clean; checked 3"));
    let json = scratch.shoal(["fsck", "-a", "--json", "v"]).ok();
    assert!(json.contains(r#""clean":true,"checked":false"#), "{json}");
    assert_eq!(scratch.shoal(["fsck", "-a", "missing"]).status(), Some(8));
    // Progress for the program that asks for it.
    let lines = scratch.shell("shoal fsck -a -f -C7 v 7>&1 >n && cat n").ok();
    let told: Vec<&str> = lines.lines().take_while(|line| !line.starts_with("v:")).collect();
    assert_eq!(told.last(), Some(&"5 1 1 v"), "{lines}");
    assert!(told.iter().all(|line| line.split(' ').count() == 4), "{lines}");
    if !not_closed(&scratch) {
        return;
    }
    assert!(scratch.shoal(["info", "v"]).ok().contains("closed          no"));
    let replayed = scratch.shoal(["fsck", "-a", "v"]).ok();
    assert!(replayed.contains("was not closed;") && replayed.contains("replayed"), "{replayed}");
    assert!(scratch.shoal(["info", "v"]).ok().contains("closed          yes"));
    assert!(not_closed(&scratch));
    let full = scratch.shoal(["fsck", "-p", "-f", "v"]).ok();
    assert!(full.contains("v: clean; checked"), "{full}");
    assert!(scratch.shoal(["info", "v"]).ok().contains("closed          yes"));
    scratch.shoal(["fsck", "v"]).ok();
}

/// Names are recorded twice, and come back without a question; contents of inodes are not.
#[test]
fn at_boot_nothing_is_given_up() {
    let scratch = sample();
    let before = scratch.shoal(["ls", "-R", "v"]).ok();
    destroy_directories(&scratch.path("v"));
    // Opening reads no directory.
    scratch.shoal(["fsck", "-a", "v"]).ok();
    let repaired = scratch.shoal(["fsck", "-a", "-f", "v"]);
    assert_eq!(repaired.status(), Some(1), "{repaired}");
    assert!(repaired.stdout().contains("/tree/6/6: entry restored"), "{repaired}");
    assert!(!repaired.stdout().contains("and 1 more"), "all changes are printed: {repaired}");
    assert!(!scratch.path("v.fsck.log").exists());
    assert_eq!(scratch.shoal(["ls", "-R", "v"]).ok(), before);
    destroy_directories(&scratch.path("v"));
    assert_eq!(scratch.shoal(["fsck", "-a", "-f", "--log", "l", "v"]).status(), Some(1));
    assert!(fs::read_to_string(scratch.path("l")).expect("a log").ends_with("written\n"));

    // Both superblocks: a volume is found, but is it the one that is meant?
    let file = OpenOptions::new().write(true).open(scratch.path("v")).expect("open");
    file.write_all_at(&[0; 128 << 10], 0).expect("write");
    let bytes = fs::read(scratch.path("v")).expect("read");
    for line in ["fsck -a v", "fsck -a -f v", "fsck -p -f --log other v"] {
        let declined = scratch.shoal(line.split(' '));
        assert_eq!(declined.status(), Some(4), "{line}: {declined}");
        assert!(declined.stdout().contains("v: NOT REPAIRED"), "{line}: {declined}");
        assert!(declined.stdout().contains("'shoal fsck --repair v'"), "{line}: {declined}");
    }
    assert!(!scratch.path("other").exists());
    assert!(bytes == fs::read(scratch.path("v")).expect("read"), "nothing is written");
    assert_eq!(scratch.shoal(["fsck", "-y", "v"]).status(), Some(1));
    assert_eq!(scratch.shoal(["ls", "-R", "v"]).ok(), before);
}
