//! Making, checking and describing volumes; and files that are no volume, or a bad one.

use crate::common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Stdio;

use crate::common::{SIZE, Scratch, noise};
use shoal_skip::can_mount;

#[test]
fn mkfs_makes_a_sparse_file_that_is_clean() {
    let scratch = Scratch::new();
    let said = scratch.shoal(["mkfs", "v", "--size", "1G"]).ok();
    assert!(said.starts_with("v: made a volume of 1.0 GiB") && said.contains(" id "), "{said}");
    let made = fs::metadata(scratch.path("v")).expect("made");
    assert!(made.blocks() * 512 < 64 << 20, "takes {} blocks", made.blocks());
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "");
}

#[test]
fn mkfs_takes_its_options() {
    let scratch = Scratch::new();
    let line = "mkfs v --size 512M --inode-size 1024 --segment-size 8M --json";
    let made = scratch.shoal(line.split(' ')).ok();
    for part in [r#""inode_size":1024"#, r#""segment_size":8388608"#, r#""segments":64"#] {
        assert!(made.contains(part), "{part}: {made}");
    }
    let info = scratch.shoal(["info", "v", "--json"]).ok();
    assert!(info.contains(r#""inode_size":1024"#), "{info}");
}

#[test]
fn a_compressed_volume_says_so_and_takes_less() {
    let scratch = Scratch::new();
    let text: String = (0..20_000).map(|n| format!("line {n} of a text\n")).collect();
    fs::write(scratch.path("text"), &text).expect("write");
    let mut live = Vec::new();
    for codec in ["none", "lz4", "zstd", "zstd:9"] {
        scratch.shoal(["mkfs", "v", "--size", "256M", "--compress", codec, "--force"]).ok();
        scratch.shoal(["cp", "text", "v:/text"]).ok();
        assert!(scratch.shoal(["cat", "v:/text"]).ok() == text, "{codec}");
        assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
        let info = scratch.shoal(["info", "v"]).ok();
        let named = if codec == "zstd" { "zstd:3" } else { codec };
        assert!(info.contains(&format!("compression     {named}\n")), "{info}");
        let json = scratch.shoal(["info", "v", "--json"]).ok();
        assert!(json.contains(&format!(r#""compression":"{named}""#)), "{json}");
        let json: serde_json::Value = serde_json::from_str(&json).expect("json");
        live.push(json["live_bytes"].as_u64().expect("a number"));
    }
    assert!(live[1] < live[0] / 2 && live[2] < live[1], "{live:?}");
    for codec in ["gzip", "zstd:20", "lz4:3", ""] {
        let ran = scratch.shoal(["mkfs", "w", "--compress", codec]);
        assert_eq!(ran.status(), Some(2), "{ran}");
        assert!(ran.stderr().contains("zstd:LEVEL from 1 to 19"), "{ran}");
    }
}

#[test]
fn mkfs_keeps_the_size_of_an_existing_file() {
    let scratch = Scratch::new();
    let file = File::create(scratch.path("v")).expect("a file");
    file.set_len(256 << 20).expect("set the length");
    file.set_permissions(fs::Permissions::from_mode(0o600)).expect("chmod");
    let said = scratch.shoal(["mkfs", "v"]).ok();
    assert!(said.contains("256 MiB"), "{said}");
}

/// A volume must not be readable to everybody, as it has all users' files in it.
#[test]
fn a_volume_is_its_owners_alone() {
    let scratch = Scratch::new();
    scratch.shell("umask 0 && shoal mkfs v --size 256M").ok();
    let mode = || fs::metadata(scratch.path("v")).expect("made").mode() & 0o7777;
    assert_eq!(mode(), 0o600);
    // A mode that is open to others is kept and reported.
    scratch.shell("chmod 644 v").ok();
    let ran = scratch.shoal(["mkfs", "v", "--size", "256M", "--force"]);
    assert!(
        ran.status() == Some(0) && ran.stderr().contains("v: its mode 644 lets others"),
        "{ran}"
    );
    assert_eq!(mode(), 0o644);
    if can_mount() {
        fs::create_dir(scratch.path("m")).expect("mkdir");
        let ran = scratch.shoal(["mount", "v", "m"]);
        assert!(ran.status() == Some(0) && ran.stderr().contains("chmod 600"), "{ran}");
        scratch.shoal(["umount", "m"]).ok();
    }
}

#[test]
fn mkfs_leaves_other_filesystems_alone() {
    let scratch = Scratch::new();
    let image = |offset: u64, magic: &[u8]| {
        let file = File::create(scratch.path("v")).expect("create");
        file.set_permissions(fs::Permissions::from_mode(0o600)).expect("chmod");
        file.set_len(256 << 20).expect("set the length");
        file.write_all_at(magic, offset).expect("write the magic");
    };
    let images: &[(u64, &[u8], &str)] =
        &[(1080, &[0x53, 0xef], "ext"), (0, b"XFSB", "XFS"), (0x10040, b"_BHRfS_M", "btrfs")];
    for (offset, magic, name) in images {
        image(*offset, magic);
        let error = scratch.shoal(["mkfs", "v"]).fails(2, &["v", "--force"]);
        assert!(error.to_lowercase().contains(&name.to_lowercase()), "{error}");
        let mut kept = vec![0; magic.len()];
        let file = File::open(scratch.path("v")).expect("open");
        file.read_exact_at(&mut kept, *offset).expect("read");
        assert_eq!(kept, *magic, "the file was changed");
    }
    scratch.shoal(["mkfs", "v", "--force"]).ok();
    scratch.shoal(["mkfs", "v"]).fails(2, &["v", "--force"]);
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

#[test]
fn mkfs_leaves_a_file_with_contents_alone() {
    let scratch = Scratch::new();
    scratch.write("notes", "my only copy\n");
    scratch.shoal(["mkfs", "notes", "--size", SIZE]).fails(2, &["notes", "--force"]);
    assert_eq!(fs::read(scratch.path("notes")).expect("read"), b"my only copy\n");
}

#[test]
fn mkfs_refuses_what_cannot_be() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", "1M"]).fails(2, &["v"]);
    assert!(!scratch.path("v").exists(), "a refused mkfs must leave no file");
    scratch.shoal(["mkfs", "v", "--size", "0"]).fails(2, &["--size"]);
    scratch.shoal(["mkfs", "v", "--size", SIZE, "--segment-size", "3M"]).fails(2, &["segment"]);
    scratch.shoal(["mkfs", "no/such/dir/v", "--size", SIZE]).fails(2, &["no/such/dir/v"]);
    scratch.shoal(["mkfs", ".", "--size", SIZE]).fails(2, &["."]);
    let bad = scratch.shoal(["mkfs", "v", "--size", "8X"]);
    assert_eq!(bad.status(), Some(2), "{bad}");
    assert!(bad.stderr().contains("'8X' is not a size"), "{bad}");
}

#[test]
fn info_describes_a_volume() {
    let scratch = Scratch::with_volume();
    scratch.write("file", noise(1, 300_000));
    scratch.shoal(["cp", "file", "v:/"]).ok();
    let text = scratch.shoal(["info", "v"]).ok();
    for part in ["volume          v\n", "256 MiB", "inode", "512 bytes", "closed          yes"] {
        assert!(text.contains(part), "'{part}' is missing in\n{text}");
    }
    assert!(!text.contains("read-only"), "that is our doing: {text}");
    let json = scratch.shoal(["info", "v", "--json"]).ok();
    assert_eq!(json.lines().count(), 1, "{json}");
    for part in [r#""volume":"v""#, r#""size":268435456"#, r#""inode_size":512"#, "counters"] {
        assert!(json.contains(part), "'{part}' is missing in\n{json}");
    }
}

#[test]
fn what_is_no_volume_is_refused() {
    let scratch = Scratch::new();
    scratch.write("text", "no volume at all\n");
    scratch.write("empty", "");
    scratch.write("noise", noise(7, 1 << 20));
    let cases = [("missing", 8), ("text", 8), ("empty", 8), ("noise", 8), (".", 8)];
    for (name, fsck) in cases {
        scratch.shoal(["ls", name]).fails(2, &[name]);
        scratch.shoal(["info", name]).fails(2, &[name]);
        scratch.shoal(["cp", "text", &format!("{name}:/")]).fails(2, &[name]);
        scratch.shoal(["fsck", name]).fails(fsck, &[name]);
    }
    assert_eq!(scratch.shoal(["fsck"]).status(), Some(16));
    assert_eq!(scratch.shoal(["fsck", "--frobnicate", "v"]).status(), Some(16));
}

#[test]
fn a_truncated_volume_is_refused_or_reported() {
    let scratch = Scratch::with_volume();
    scratch.write("file", noise(2, 8 << 20));
    scratch.shoal(["cp", "file", "v:/"]).ok();
    let volume = scratch.path("v");
    let length = fs::metadata(&volume).expect("a volume").len();
    for keep in [length / 2, 1 << 20, 5000, 1] {
        let file = OpenOptions::new().write(true).open(&volume).expect("open");
        file.set_len(keep).expect("truncate");
        let fsck = scratch.shoal(["fsck", "v"]);
        assert!(matches!(fsck.status(), Some(4 | 8)), "{keep} bytes left: {fsck}");
        assert!(!fsck.stderr().contains("panicked"), "{fsck}");
        let list = scratch.shoal(["ls", "v"]);
        assert!(!list.stderr().contains("panicked"), "{list}");
    }
}

#[test]
fn flipped_bytes_never_panic_and_damage_is_found() {
    let scratch = Scratch::with_volume();
    for number in 0..50 {
        scratch.write(format!("tree/{number}"), noise(number, 5000));
    }
    scratch.shoal(["cp", "-r", "tree", "v:/"]).ok();
    let volume = scratch.path("v");
    let whole = used_bytes(&volume);
    let mut found = 0;
    for (offset, byte) in whole.iter().step_by((whole.len() / 60).max(1)) {
        let file = OpenOptions::new().write(true).open(&volume).expect("open");
        file.write_all_at(&[byte ^ 0x41], *offset).expect("flip");
        let fsck = scratch.shoal(["fsck", "v"]);
        assert!(matches!(fsck.status(), Some(0 | 4 | 8)), "at {offset}: {fsck}");
        assert!(!fsck.stderr().contains("panicked"), "at {offset}: {fsck}");
        found += i32::from(fsck.status() != Some(0));
        let list = scratch.shoal(["ls", "-lR", "v"]);
        assert!(matches!(list.status(), Some(0..=2)), "at {offset}: {list}");
        file.write_all_at(&[*byte], *offset).expect("restore");
    }
    // Damage to unreferenced bytes is harmless.
    assert!(found > 0, "no damage was found at all");
    scratch.shoal(["fsck", "v"]).ok();
}

/// Returns offsets and values of the bytes that are not zero.
fn used_bytes(volume: &std::path::Path) -> Vec<(u64, u8)> {
    let mut file = File::open(volume).expect("open");
    let mut piece = vec![0; 1 << 20];
    let mut used = Vec::new();
    let mut at = 0;
    loop {
        file.seek(SeekFrom::Start(at)).expect("seek");
        let read = file.read(&mut piece).expect("read");
        if read == 0 {
            return used;
        }
        let bytes = piece[..read].iter().enumerate().filter(|(_, byte)| **byte != 0);
        used.extend(bytes.map(|(offset, byte)| (at + offset as u64, *byte)));
        at += read as u64;
    }
}

#[test]
fn a_volume_in_use_is_refused_by_name_of_its_user() {
    let scratch = Scratch::with_volume();
    // More than a pipe holds, so that cat waits with the volume open.
    scratch.write("file", noise(3, 4 << 20));
    scratch.shoal(["cp", "file", "v:/"]).ok();
    let mut command = scratch.command(["cat", "v:/file"]);
    let mut holder = command.stdout(Stdio::piped()).spawn().expect("start cat");
    let mut output = holder.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 1]).expect("cat has begun");
    let pid = holder.id().to_string();
    scratch.shoal(["rm", "v:/file"]).fails(2, &["v", "in use", &pid]);
    // Reading it does no harm, and is the same for several.
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shoal(["mkfs", "v", "--force"]).fails(2, &["v", "in use", &pid]);
    drop(output);
    // Its reader has gone away: that is no failure.
    assert_eq!(holder.wait().expect("wait").code(), Some(0));
    scratch.shoal(["rm", "v:/file"]).ok();
}

#[test]
fn a_full_volume_says_so_and_stays_sound() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", "64M", "--segment-size", "1M"]).ok();
    let mut file = File::create(scratch.path("big")).expect("create");
    for piece in 0..128 {
        file.write_all(&noise(piece, 1 << 20)).expect("write");
    }
    scratch.shoal(["cp", "big", "v:/"]).fails(1, &["v:/big", "no space", "incomplete"]);
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "", "nothing incomplete stays");
    scratch.write("small", "small\n");
    scratch.shoal(["cp", "small", "v:/"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn a_volume_grows_with_everything_in_it() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", "64M", "--segment-size", "1M"]).ok();
    scratch.write("file", noise(5, 30 << 20));
    scratch.shoal(["cp", "file", "v:/"]).ok();
    scratch.shoal(["cp", "file", "v:/second"]).fails(1, &["no space"]);
    assert_eq!(
        scratch.shoal(["grow", "v", "--size", "200M"]).ok(),
        "v: 64.0 MiB before, 200 MiB now\n"
    );
    scratch.shoal(["cp", "file", "v:/second"]).ok();
    scratch.shoal(["cp", "file", "v:/third"]).ok();
    assert!(scratch.shell("shoal cat v:/second | cmp - file").ok().is_empty());
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
    scratch.shoal(["grow", "v"]).fails(2, &["v has 209715200 bytes", "would not make it larger"]);
    scratch.shoal(["grow", "v", "--size", "1M"]).fails(2, &["would not make it larger"]);
    // A file that is longer already: without a size, all of it.
    let file = OpenOptions::new().write(true).open(scratch.path("v")).expect("opens");
    file.set_len(300 << 20).expect("longer");
    assert_eq!(scratch.shoal(["grow", "v"]).ok(), "v: 200 MiB before, 300 MiB now\n");
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
    scratch.shoal(["grow", "none"]).fails(2, &["none does not exist"]);
    scratch.shoal(["grow", "."]).fails(2, &["is not in a mounted Shoal volume"]);
}

#[test]
fn a_volume_becomes_smaller_with_everything_in_it() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", "200M", "--segment-size", "1M"]).ok();
    common::rich_tree(&scratch);
    scratch.write("file", noise(5, 30 << 20));
    scratch.shoal(["cp", "file", "v:/first"]).ok();
    scratch.shoal(["cp", "file", "v:/second"]).ok();
    scratch.shoal(["cp", "-a", "t", "v:/"]).ok();
    scratch.shoal(["rm", "v:/first"]).ok();
    let shown = || {
        let line = ["find", "v:/", "-printf", "%P %i %s %m %U %T@ %n\n"];
        scratch.shoal(line).ok() + &scratch.shell("shoal tar -cf - -C v:/ . | sha256sum").ok()
    };
    let before = shown();
    let length = || std::fs::metadata(scratch.path("v")).expect("there").len() >> 20;
    let plan = scratch.shoal(["shrink", "v", "--min", "--dry-run"]).ok();
    assert!(plan.starts_with("v: 200 MiB now, ") && plan.contains("the least is about"), "{plan}");
    scratch.shoal(["shrink", "v", "--size", "20M"]).fails(2, &["v cannot have 20971520 bytes"]);
    scratch.shoal(["shrink", "v", "--size", "20M", "-n"]).fails(2, &["need at least"]);
    scratch.shoal(["shrink", "v", "--size", "201M"]).fails(2, &["would not make it smaller"]);
    scratch.shoal(["shrink", "v", "--size", "3M"]).fails(2, &["give at least 16777216"]);
    let refused = |arguments: &[&str], part: &str| {
        let ran = scratch.shoal(arguments);
        assert!(ran.status() == Some(2) && ran.stderr().contains(part), "{}", ran.stderr());
    };
    refused(&["shrink", "v"], "--size");
    refused(&["shrink", "v", "--size", "60M", "--min"], "cannot be used with");
    scratch.shoal(["shrink", "none", "--min"]).fails(2, &["none does not exist"]);
    scratch.shoal(["shrink", ".", "--min"]).fails(2, &["is a directory: unmount the volume"]);
    assert_eq!((length(), shown() == before), (200, true));
    assert_eq!(
        scratch.shoal(["shrink", "v", "--size", "60M"]).ok(),
        "v: 200 MiB before, 60.0 MiB now\n"
    );
    assert_eq!((length(), shown() == before), (60, true));
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
    scratch.shoal(["scrub", "v"]).ok();
    assert!(scratch.shoal(["info", "v"]).ok().contains("60 of 1.0 MiB"));
    // The tail of a file that was not cut off.
    let file = OpenOptions::new().write(true).open(scratch.path("v")).expect("opens");
    file.set_len(200 << 20).expect("longer");
    scratch.shoal(["shrink", "v", "--size", "60M"]).ok();
    assert_eq!((length(), shown() == before), (60, true));
    scratch.shoal(["grow", "v", "--size", "300M"]).ok();
    scratch.shoal(["cp", "file", "v:/third"]).ok();
    scratch.shoal(["rm", "v:/third"]).ok();
    // The time of the top directory is another one.
    let before = shown();
    scratch.shoal(["shrink", "v", "--min"]).ok();
    assert!(length() < 60, "{}", length());
    assert!(shown() == before && scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
}

/// A loop device, detached at the end.
struct Loop(String);

impl Loop {
    fn on(file: &std::path::Path) -> Option<Loop> {
        let made = std::process::Command::new("losetup").args(["-f", "--show"]).arg(file).output();
        let made = made.ok().filter(|made| made.status.success())?;
        Some(Loop(String::from_utf8(made.stdout).ok()?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_device_keeps_its_size_under_a_smaller_volume() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", "120M", "--segment-size", "1M"]).ok();
    let Some(device) = Loop::on(&scratch.path("v")) else {
        return shoal_skip::skipped("no loop device");
    };
    let on = |path: &str| format!("{}:{path}", device.0);
    scratch.write("file", noise(6, 20 << 20));
    for name in ["/first", "/second", "/third"] {
        scratch.shoal(["cp", "file", &on(name)]).ok();
    }
    scratch.shoal(["rm", &on("/first"), &on("/second")]).ok();
    let said = scratch.shoal(["shrink", &device.0, "--size", "40M"]).ok();
    assert_eq!(said, format!("{}: 120 MiB before, 40.0 MiB now\n", device.0));
    let same = format!("shoal cat {} | cmp - file && stat -c %s v", on("/third"));
    assert_eq!(scratch.shell(&same).ok(), format!("{}\n", 120 << 20));
    scratch.shoal(["fsck", &device.0]).ok();
    assert!(scratch.shoal(["info", &device.0]).ok().contains("40 of 1.0 MiB"));
    scratch.shoal(["grow", &device.0]).ok();
    scratch.shoal(["fsck", &device.0]).ok();
    scratch.shell(&same).ok();
}

#[test]
fn a_volume_is_dumped_and_restored_as_it_was() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", "64M", "--segment-size", "1M", "--label", "x"]).ok();
    common::rich_tree(&scratch);
    scratch.shoal(["cp", "-a", "t", "v:/"]).ok();
    scratch.shoal(["subvolume", "create", "v", "sub"]).ok();
    let shown = |volume: &str| {
        let all = format!("{volume}:/");
        let line = ["find", &all, "-printf", "%P %i %s %m %U %T@ %n\n"];
        let files = scratch.shoal(line).ok();
        (files, scratch.shoal(["subvolume", "list", volume]).ok())
    };
    let before = shown("v");
    let said = scratch.shoal(["dump", "v", "-o", "d"]).ok();
    assert!(said.starts_with("v: ") && said.ends_with(" MiB in d\n"), "{said}");
    let dump = fs::metadata(scratch.path("d")).expect("a dump");
    assert_eq!(dump.permissions().mode() & 0o777, 0o600, "it has everybody's files");
    let length = dump.len();
    assert!(length < 20 << 20, "{length} bytes: only what is used");
    scratch.shoal(["restore", "d", "w"]).ok();
    assert!(scratch.shoal(["fsck", "w"]).ok().contains("w: clean"));
    assert_eq!(shown("w"), before);
    assert_eq!(scratch.shoal(["label", "w"]).ok(), "x\n");
    // By a pipe, over what was there; and again after changes.
    scratch.shell("shoal rm -r w:/t && shoal dump v | shoal restore - w --force").ok();
    assert_eq!(shown("w"), before);
    scratch.shoal(["mkdir", "w:/more"]).ok();
    assert!(scratch.shoal(["fsck", "w"]).ok().contains("w: clean"));
    scratch.shoal(["restore", "d", "w"]).fails(2, &["w holds", "--force"]);
    scratch.shoal(["dump", "none", "-o", "e"]).fails(2, &["none does not exist"]);
    // Cut off, or with a bit that is another: no volume, and the one that is there stays.
    let whole = fs::read(scratch.path("d")).expect("a dump");
    for cut in [0, 50, 64, 80, whole.len() / 2, whole.len() - 1] {
        scratch.write("bad", &whole[..cut]);
        scratch.shoal(["restore", "bad", "n"]).fails(1, &["bad ends too early"]);
        assert!(!scratch.path("n").exists(), "after {cut} bytes");
        scratch.shoal(["restore", "bad", "w", "--force"]).fails(1, &["bad ends too early"]);
    }
    assert!(scratch.shoal(["fsck", "w"]).ok().contains("w: clean"));
    scratch.shoal(["stat", "w:/more"]).ok();
    for at in [3, 20, 70, 85, 100, whole.len() / 2, whole.len() - 5] {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        scratch.write("bad", bad);
        scratch.shoal(["restore", "bad", "n"]).fails(1, &["bad is"]);
        assert!(!scratch.path("n").exists(), "with byte {at}");
    }
    scratch.shoal(["restore", "v", "n"]).fails(1, &["is no dump of a volume"]);
}
