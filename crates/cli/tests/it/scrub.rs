//! `scrub`: reads everything, of a volume and of a mount, and names damaged files.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::common::{Scratch, noise};
use shoal_skip::{can_mount, skipped};

/// A volume with some files, and nothing mounted on `m`.
fn sample(files: u64, size: usize) -> Scratch {
    let scratch = Scratch::with_volume();
    for number in 0..files {
        scratch.write(format!("tree/{}/{number}", number % 7), noise(number, size));
    }
    fs::create_dir(scratch.path("m")).expect("mkdir");
    scratch.shoal(["cp", "-r", "tree", "v:/"]).ok();
    scratch
}

/// Flips a bit in the contents of these files.
fn damage(scratch: &Scratch, numbers: impl Iterator<Item = u64>, size: usize) {
    let volume = fs::read(scratch.path("v")).expect("read");
    // By their beginnings, in one pass.
    let mut wanted: std::collections::HashSet<Vec<u8>> =
        numbers.map(|number| noise(number, size)[..32].to_vec()).collect();
    let file = OpenOptions::new().write(true).open(scratch.path("v")).expect("open");
    for at in (0..volume.len() - 32).step_by(8) {
        if volume[at] | volume[at + 1] != 0 && wanted.remove(&volume[at..at + 32]) {
            file.write_all_at(&[volume[at + 7] ^ 4], at as u64 + 7).expect("write");
        }
    }
    assert!(wanted.is_empty(), "{} are not there", wanted.len());
}

/// Returns the percentage of the used space that was read, by the summary.
fn share(out: &str) -> u32 {
    let (_, rest) = out.split_once(" in use (").expect(out);
    rest.split_once(" %)").expect(out).0.parse().expect(out)
}

/// Returns the number of data objects read, by the summary: of 20,000 bytes one for each file, and
/// one more where the end of a segment splits one in two.
fn objects(out: &str) -> u32 {
    let (before, _) = out.split_once(" data objects").expect(out);
    before.rsplit(' ').next().expect(out).parse().expect(out)
}

#[test]
fn a_clean_volume() {
    let scratch = sample(100, 20_000);
    let before = fs::read(scratch.path("v")).expect("read");
    let out = scratch.shoal(["scrub", "v"]).ok();
    assert!(out.starts_with("v: clean; read ") && out.contains(" MB/s"), "{out}");
    assert!(share(&out) >= 95, "{out}");
    assert_eq!(scratch.shoal(["scrub", "v", "--quiet"]).ok(), "");
    let json = scratch.shoal(["scrub", "v", "--json"]).ok();
    let part = r#""volume":"v","clean":true,"problems":[],"left_out":0"#;
    assert!(json.contains(part), "{json}");
    assert!((100..=105).contains(&objects(&out)), "{out}");
    assert!(!json.contains("stopped"), "{json}");
    assert!(before == fs::read(scratch.path("v")).expect("read"), "the volume was changed");

    // The rate itself is tested beside its code.
    scratch.shoal(["scrub", "v", "--rate", "4M"]).ok();
}

#[test]
fn damaged_contents_are_named() {
    let scratch = sample(20, 20_000);
    damage(&scratch, 5..6, 20_000);
    let found = scratch.shoal(["scrub", "v"]);
    assert_eq!(found.status(), Some(4), "{found}");
    let out = found.stdout();
    assert!(out.starts_with("data-checksum: ") && out.contains("/tree/5/5"), "{found}");
    assert!(out.contains("v: 1 problem; read "), "{found}");
    let quiet = scratch.shoal(["scrub", "-q", "v"]);
    assert_eq!((quiet.status(), quiet.stdout().lines().count()), (Some(4), 1), "{quiet}");
    let json = scratch.shoal(["scrub", "v", "--json"]);
    assert_eq!(json.status(), Some(4), "{json}");
    assert!(json.stdout().contains(r#""clean":false,"problems":[{"rule":"data-checksum","#));
}

#[test]
fn damaged_metadata_is_found() {
    let scratch = sample(900, 100);
    let volume = fs::read(scratch.path("v")).expect("read");
    let file = OpenOptions::new().write(true).open(scratch.path("v")).expect("open");
    // Leaves of directory entries: magic, tree, level.
    let leaves = (0..volume.len() - 64).step_by(8);
    let leaves = leaves.filter(|at| volume[*at..].starts_with(b"SND2\x01\0"));
    let mut found = Vec::new();
    for leaf in leaves {
        file.write_all_at(&[volume[leaf + 99] ^ 1], leaf as u64 + 99).expect("write");
        let ran = scratch.shoal(["scrub", "v"]);
        file.write_all_at(&[volume[leaf + 99]], leaf as u64 + 99).expect("write");
        // Older ones are not in use any more.
        if ran.status() != Some(0) {
            assert_eq!(ran.status(), Some(4), "{ran}");
            found.push(ran.stdout());
        }
    }
    assert!(found.iter().any(|out| out.starts_with("dirents: corrupt dirents node")), "{found:?}");

    // Nothing can be read without the roots of the trees.
    file.write_all_at(&vec![0x77; volume.len() - (1 << 20)], 1 << 20).expect("write");
    let ran = scratch.shoal(["scrub", "v"]);
    assert_eq!(ran.status(), Some(4), "{ran}");
    assert!(ran.stdout().starts_with("volume-unreadable: "), "{ran}");
    assert!(ran.stdout().contains("shoal fsck"), "{ran}");
}

/// More problems than one step can return.
#[test]
fn every_damaged_file_is_named() {
    let scratch = sample(600, 1000);
    damage(&scratch, 0..600, 1000);
    let named_by = |place: &str| {
        let found = scratch.shoal(["scrub", place]);
        assert_eq!(found.status(), Some(4), "{found}");
        let out = found.stdout();
        assert!(out.contains(": 600 problems; read "), "{found}");
        (0..600).all(|number| out.contains(&format!("(/tree/{}/{number})", number % 7)))
    };
    assert!(named_by("v"), "of a volume");
    if can_mount() {
        scratch.shoal(["mount", "v", "m"]).ok();
        assert!(named_by("m"), "of a mount");
        scratch.shoal(["umount", "m"]).ok();
    }
}

#[test]
fn of_a_mount() {
    if !can_mount() {
        return;
    }
    let scratch = sample(100, 20_000);
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    scratch.shell("cp -r m/tree m/copy && shoal sync m").ok();
    let out = scratch.shoal(["scrub", "m"]).ok();
    assert!(out.starts_with("m: clean; read "), "{out}");
    // Data synced just now is read, although no checkpoint had it before.
    assert!(share(&out) >= 95 && (200..=210).contains(&objects(&out)), "{out}");
    let below = scratch.shoal(["scrub", "--json", "m/tree"]).ok();
    assert!(below.contains(r#""volume":"m/tree","clean":true"#), "{below}");
    assert!(scratch.shoal(["scrub", "v"]).ok().starts_with("v: clean; read "), "by its server");
    scratch.shoal(["scrub", "v", "--direct"]).fails(8, &["v", "in use"]);
    damage(&scratch, 7..8, 20_000);
    let found = scratch.shoal(["scrub", "m", "--rate", "1G"]);
    assert_eq!(found.status(), Some(4), "{found}");
    assert!(found.stdout().contains("/tree/0/7"), "{found}");
    // Not by this process, whose children would have the copy open for writing (ETXTBSY).
    scratch.shell("cp $(command -v shoal) command").ok();
    let who = "setpriv --reuid 61001 --regid 61001 --clear-groups ./command";
    if scratch.shell(&format!("{who} --version")).status() == Some(0) {
        scratch.shell(&format!("{who} scrub m")).fails(8, &["m", "ask as root"]);
    } else {
        skipped("in part: no setpriv, or no way for others to here");
    }
    scratch.shoal(["umount", "m"]).ok();
}

/// Reads failed by their checksums, a scrub found problems, and all that a monitor sees said "ok".
#[test]
fn damage_is_shown_to_monitors() {
    if !can_mount() {
        return;
    }
    let scratch = sample(20, 20_000);
    damage(&scratch, [5, 12].into_iter(), 20_000);
    scratch.shoal(["mount", "v", "m", "--log", "log"]).ok();
    let health = || -> serde_json::Value {
        let text = scratch.shell("cat m/.shoal/health").ok();
        serde_json::from_str(&text).expect("JSON")
    };
    let metric = |name: &str| {
        let metrics = scratch.shell("cat m/.shoal/metrics").ok();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    assert_eq!(health()["status"], "ok");
    for _ in 0..3 {
        assert_ne!(scratch.shell("cat m/tree/5/5").status(), Some(0));
    }
    let found = health();
    assert_eq!(found["status"], "damaged", "{found}");
    let files = &found["damage"]["files"];
    assert_eq!((files.as_array().map(Vec::len), &files[0]["kind"]), (Some(1), &"data".into()));
    assert_eq!(files[0]["path"], "/tree/5/5");
    assert!(metric("shoal_damaged_reads_total{kind=\"data\"}") >= 3);
    assert_eq!(metric("shoal_health{state=\"damaged\"}"), 1);
    assert_eq!(metric("shoal_scrub_problems"), 0);
    let log = fs::read_to_string(scratch.path("log")).expect("a log");
    assert_eq!(log.matches("path=\"/tree/5/5\"").count(), 1, "{log}");
    assert_eq!(scratch.shoal(["scrub", "m"]).status(), Some(4));
    let scrub = &health()["damage"]["scrub"];
    assert_eq!(scrub["problems"], 2, "{scrub}");
    assert!(scrub["first"].to_string().contains("(/tree/5/12)"), "{scrub}");
    assert_eq!(metric("shoal_scrub_problems"), 2);
    scratch.shell("rm m/tree/5/5 m/tree/5/12 && shoal sync m").ok();
    scratch.shoal(["scrub", "m"]).ok();
    let found = health();
    assert_eq!(
        (&found["status"], &found["damage"]["scrub"]["problems"]),
        (&"ok".into(), &0.into())
    );
    assert!(metric("shoal_damaged_reads_total{kind=\"data\"}") >= 3, "it only grows");
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn what_cannot_be_done() {
    let scratch = Scratch::with_volume();
    scratch.write("file", "no volume");
    scratch.write("d/file", "no mount");
    scratch.shoal(["scrub", "missing"]).fails(8, &["missing"]);
    scratch.shoal(["scrub", "d"]).fails(8, &["d", "not in a mounted Shoal volume"]);
    for line in ["scrub", "scrub v --rate 0", "scrub v --frobnicate"] {
        assert_eq!(scratch.shoal(line.split(' ')).status(), Some(16), "{line}");
    }
    let json = scratch.shoal(["scrub", "missing", "--json"]);
    assert_eq!(json.status(), Some(8), "{json}");
    assert!(json.stdout().contains(r#""clean":false"#), "{json}");
    assert!(json.stdout().contains(r#""stopped":"missing does not exist"#), "{json}");
}
