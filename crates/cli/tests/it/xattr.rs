//! Extended attributes, names of files, and the contents of the journal, by the command.

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{Scratch, noise};
use shoal::raw::{Caller, Ino, Lab, OpenOptions, Volume};
use shoal_skip::{can_mount, is_root, skipped};

/// A volume `v` with `/d/f`, which is also `/g`, and the symlink `/l` to it.
fn with_files() -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.write("f", "text");
    scratch.shoal(["mkdir", "v:/d"]).ok();
    scratch.shoal(["cp", "f", "v:/d/"]).ok();
    scratch.shoal(["ln", "v:/d/f", "v:/g"]).ok();
    scratch.shoal(["ln", "-s", "d/f", "v:/l"]).ok();
    scratch
}

/// The number in a field of a line of JSON.
fn number(json: &str, field: &str) -> u64 {
    let start = json.find(&format!("\"{field}\":")).expect("the field") + field.len() + 3;
    let digits = json[start..].split(|c: char| !c.is_ascii_digit()).next().expect("a number");
    digits.parse().expect("a number")
}

fn ino(scratch: &Scratch, place: &str) -> String {
    number(&scratch.shoal(["stat", "--json", place]).ok(), "ino").to_string()
}

/// Sets an attribute of a local file; `false`: it cannot be done here, and the skip is recorded.
fn set_local(path: &Path, name: &str, value: &[u8]) -> bool {
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::lsetxattr(path, name, value, flags);
    if let Err(error) = set {
        skipped(&format!("no {name} in the temporary directory ({error})"));
    }
    set.is_ok()
}

fn get_local(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 65_536];
    let len = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).ok()?;
    value.truncate(len);
    Some(value)
}

#[test]
fn attributes_are_set_shown_and_removed() {
    let scratch = with_files();
    let xattr = |line: &str| scratch.shoal(["xattr"].into_iter().chain(line.split(' ')));
    assert_eq!(xattr("ls v:/g").ok(), "");
    xattr("set v:/d/f user.a value").ok();
    xattr("set v:/l user.b --hex 00ff41").ok();
    assert_eq!(xattr("get v:/g user.a").ok(), "value");
    assert_eq!(xattr("get v:/g user.b").bytes(), b"\0\xffA");
    assert_eq!(xattr("get v:/g user.b --hex").ok(), "00ff41\n");
    let json = r#"{"path":"/g","name":"user.b","size":3,"value":"\u0000\\xffA","#;
    assert_eq!(
        xattr("get v:/g user.b --json").ok(),
        format!("{json}\"value_bytes\":\"00ff41\"}}\n")
    );
    assert_eq!(xattr("ls v:/g").ok(), "user.a\nuser.b\n");
    assert_eq!(xattr("ls -l v:/g").ok(), "     5 user.a\n     3 user.b\n");
    assert_eq!(xattr("ls --json v:/g").ok().lines().next(), Some(r#"{"name":"user.a","size":5}"#));
    // A symlink itself, and a directory.
    xattr("set -P v:/l trusted.s 1").ok();
    assert_eq!(xattr("ls -P v:/l").ok(), "trusted.s\n");
    xattr("set v:/ user.top yes").ok();
    assert_eq!(xattr("get v:/ user.top").ok(), "yes");
    let stat = scratch.shoal(["stat", "v:/g"]).ok();
    assert!(stat.contains("\nXAttrs: 2\n"), "{stat}");
    let stat = scratch.shoal(["stat", "--json", "v:/g"]).ok();
    assert!(stat.contains(r#""attributes":["user.a","user.b"]}"#), "{stat}");
    xattr("rm v:/g user.a user.b").ok();
    assert_eq!(xattr("ls v:/g").ok(), "");
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

#[test]
fn values_come_from_standard_input_too() {
    let scratch = with_files();
    let value = noise(1, 65_536);
    scratch.write("value", &value);
    scratch.shell("shoal xattr set v:/g user.large < value").ok();
    assert_eq!(scratch.shoal(["xattr", "get", "v:/g", "user.large"]).bytes(), value);
    scratch.shell("shoal xattr get v:/g user.large --hex > hex").ok();
    scratch.shell("shoal xattr set v:/d user.large --hex < hex").ok();
    assert_eq!(scratch.shoal(["xattr", "get", "v:/d", "user.large"]).bytes(), value);
    scratch.write("value", noise(1, 65_537));
    let ran = scratch.shell("shoal xattr set v:/g user.large < value");
    ran.fails(1, &["user.large of v:/g", "more than 65536 bytes"]);
    assert_eq!(scratch.shoal(["xattr", "get", "v:/g", "user.large"]).bytes(), value, "as before");
}

#[test]
fn what_cannot_be_set_is_said_in_a_line() {
    let scratch = with_files();
    let set = |name: &str, more: &[&str]| {
        let line = ["xattr", "set", "v:/g", name, "x"];
        scratch.shoal(line.iter().chain(more))
    };
    set("user.a", &["--replace"]).fails(1, &["user.a of v:/g", "no such attribute"]);
    set("user.a", &[]).ok();
    set("user.a", &["--create"]).fails(1, &["user.a of v:/g", "exists"]);
    for name in ["parent.f", "nothing.x", "system.other"] {
        set(name, &[]).fails(1, &[name, "cannot be kept"]);
    }
    set("user.", &[]).fails(1, &["user."]);
    set(&format!("user.{}", "x".repeat(251)), &[]).fails(1, &["more than 255"]);
    set("system.posix_acl_access", &[]).fails(1, &["not a value"]);
    set("user.a", &["--hex"]).fails(2, &["x: is not hexadecimal"]);
    let xattr = |line: &str| scratch.shoal(["xattr"].into_iter().chain(line.split(' ')));
    xattr("set -P v:/l user.x y").fails(1, &["no user attributes"]);
    xattr("get v:/g user.none").fails(1, &["user.none of v:/g", "no such attribute"]);
    xattr("get v:/none user.a").fails(1, &["v:/none", "no such file"]);
    xattr("rm v:/g user.none").fails(1, &["user.none of v:/g", "no such attribute"]);
    xattr("ls w:/").fails(2, &["w"]);
    assert_eq!(xattr("set v:/g").status(), Some(2));
    assert_eq!(xattr("frobnicate").status(), Some(2));
    assert_eq!(xattr("ls v:/g").ok(), "user.a\n");
}

#[test]
fn copies_keep_attributes_both_ways() {
    let scratch = Scratch::with_volume();
    fs::create_dir_all(scratch.path("t/d")).expect("mkdir");
    let file = scratch.write("t/f", "text");
    // A mode without write permission must not be an obstacle.
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o444)).expect("chmod");
    std::os::unix::fs::symlink("f", scratch.path("t/l")).expect("symlink");
    fs::hard_link(&file, scratch.path("t/d/again")).expect("link");
    let large = noise(5, 3000);
    if !set_local(&file, "user.a", &large) || !set_local(&scratch.path("t/d"), "user.dir", b"") {
        return;
    }
    let trusted = is_root() && set_local(&scratch.path("t/l"), "trusted.l", b"2");
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    assert_eq!(scratch.shoal(["xattr", "get", "v:/t/f", "user.a"]).bytes(), large);
    assert_eq!(scratch.shoal(["xattr", "ls", "v:/t/d"]).ok(), "user.dir\n");
    // Within a volume, out of it, and a single file.
    scratch.shoal(["cp", "-r", "v:/t", "v:/u"]).ok();
    scratch.shoal(["cp", "-r", "v:/u", "out"]).ok();
    scratch.shoal(["cp", "v:/u/f", "single"]).ok();
    for copy in ["out/f", "out/d/again", "single"] {
        assert_eq!(get_local(&scratch.path(copy), "user.a").as_deref(), Some(&large[..]), "{copy}");
        let mode = fs::metadata(scratch.path(copy)).expect("stat").mode() & 0o7777;
        assert_eq!(mode, 0o444, "{copy}");
    }
    assert_eq!(get_local(&scratch.path("out/d"), "user.dir").as_deref(), Some(&b""[..]));
    if trusted {
        assert_eq!(get_local(&scratch.path("out/l"), "trusted.l").as_deref(), Some(&b"2"[..]));
    }
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

/// An access control list: owner rw, user 1234 as given, group r, mask as given, others none.
fn acl(user: u16, mask: u16) -> Vec<u8> {
    let mut raw = 2u32.to_le_bytes().to_vec();
    let entries = [(1, 6, u32::MAX), (2, user, 1234), (4, 4, u32::MAX), (16, mask, u32::MAX)];
    for (tag, perm, id) in entries.into_iter().chain([(32, 0, u32::MAX)]) {
        raw.extend_from_slice(&u16::to_le_bytes(tag));
        raw.extend_from_slice(&u16::to_le_bytes(perm));
        raw.extend_from_slice(&u32::to_le_bytes(id));
    }
    raw
}

#[test]
fn copies_keep_access_control_lists_and_inherit_none() {
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    let scratch = Scratch::with_volume();
    fs::create_dir(scratch.path("t")).expect("mkdir");
    scratch.write("t/plain", "1");
    scratch.write("t/listed", "2");
    if !set_local(&scratch.path("t/listed"), access, &acl(6, 4)) {
        return;
    }
    // New files in the target directory inherit a list.
    scratch.shoal(["mkdir", "v:/to"]).ok();
    let list = acl(7, 7).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    scratch.shoal(["xattr", "set", "v:/to", default, "--hex", &list]).ok();
    scratch.shoal(["cp", "-r", "t", "v:/to"]).ok();
    assert_eq!(scratch.shoal(["xattr", "ls", "v:/to/t/plain"]).ok(), "");
    assert_eq!(scratch.shoal(["xattr", "ls", "v:/to/t"]).ok(), "");
    assert_eq!(scratch.shoal(["xattr", "get", "v:/to/t/listed", access]).bytes(), acl(6, 4));
    fs::create_dir(scratch.path("out")).expect("mkdir");
    assert!(set_local(&scratch.path("out"), default, &acl(7, 7)));
    scratch.shoal(["cp", "-r", "v:/to/t", "out"]).ok();
    assert_eq!(get_local(&scratch.path("out/t/plain"), access), None);
    assert_eq!(get_local(&scratch.path("out/t"), default), None);
    assert_eq!(get_local(&scratch.path("out/t/listed"), access), Some(acl(6, 4)));
    for name in ["plain", "listed"] {
        let mode = |tree: &str| fs::metadata(scratch.path(tree).join(name)).expect("stat").mode();
        assert_eq!(mode("out/t"), mode("t"), "{name}");
    }
}

#[test]
fn refused_attributes_are_told_once_and_are_no_failure() {
    let scratch = Scratch::with_volume();
    for name in ["a", "b", "c"] {
        scratch.write(format!("t/{name}"), name);
    }
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    for name in ["a", "b", "c"] {
        scratch.shoal(["xattr", "set", &format!("v:/t/{name}"), "user.x", "1"]).ok();
    }
    // A filesystem without user attributes.
    if !is_root() {
        return skipped("needs root");
    }
    let copy = "cd m && shoal cp -r ../v:/t . && cat t/?";
    let mount = format!("mount -t ramfs none m || exit 77; {copy}");
    let ran =
        scratch.shell(&format!("mkdir m; unshare -m true || exit 77; unshare -m sh -c '{mount}'"));
    if ran.status() == Some(77) {
        return skipped("no namespaces or no ramfs here");
    }
    assert_eq!((ran.status(), &*ran.stdout()), (Some(0), "abc"), "{ran}");
    let error = ran.stderr();
    assert!(error.lines().count() == 1 && error.contains("user.x is not kept"), "{ran}");
}

#[test]
fn inodes_have_paths_and_files_parents() {
    let scratch = with_files();
    let (file, dir) = (ino(&scratch, "v:/g"), ino(&scratch, "v:/d"));
    let paths = |line: &[&str]| {
        let ran = scratch.shoal(["path", "v"].iter().chain(line));
        let mut lines: Vec<String> = ran.ok().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(paths(&[&file]), ["/d/f", "/g"]);
    assert_eq!(paths(&["1"]), ["/"]);
    let both = [format!("{file}\t/d/f"), format!("{file}\t/g"), format!("{dir}\t/d")];
    let mut both = both.to_vec();
    both.sort();
    assert_eq!(paths(&[&dir, &file]), both);
    assert_eq!(
        scratch.shoal(["path", "v", &dir, "--json"]).ok(),
        format!("{{\"ino\":{dir},\"generation\":1,\"paths\":[\"/d\"]}}\n")
    );
    assert_eq!(scratch.shoal(["path", "-0", "v", &dir]).ok(), "/d\0");
    let parents = scratch.shoal(["parents", "v:/d/f"]).ok();
    let mut lines: Vec<&str> = parents.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1\t1\tg\t/g".to_owned(), format!("{dir}\t1\tf\t/d/f")]);
    let json = scratch.shoal(["parents", "--json", "v:/l"]).ok();
    assert!(json.contains(r#""parent":1,"parent_generation":1,"name":"l","path":"/l"}"#), "{json}");
    assert_eq!(scratch.shoal(["parents", "v:/"]).ok(), "", "the top has none");
    let missing = scratch.shoal(["path", "v", "999"]);
    missing.fails(1, &["inode 999 of v", "no such inode"]);
    scratch.shoal(["path", "v", "0"]).fails(1, &["no such inode"]);
    scratch.shoal(["path", "v", "18446744073709551615"]).fails(1, &["no such inode"]);
    scratch.shoal(["path", "w", "1"]).fails(2, &["w"]);
    scratch.shoal(["path", ".", "1"]).fails(2, &["not in a mounted Shoal volume"]);
    scratch.shoal(["parents", "f"]).fails(2, &["f", "not in a mounted Shoal volume", "VOLUME:/"]);
    scratch.shoal(["parents", "v:/no"]).fails(1, &["v:/no", "no such file"]);
}

#[test]
fn paths_lead_through_roots() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["subvolume", "create", "v", "ci"]).ok();
    scratch.shoal(["mkdir", "-p", "v:/ci/a/b"]).ok();
    let (top, below) = (ino(&scratch, "v:/ci"), ino(&scratch, "v:/ci/a/b"));
    assert_eq!(scratch.shoal(["path", "v", &below]).ok(), "/ci/a/b\n");
    assert_eq!(scratch.shoal(["path", "v", &top]).ok(), "/ci\n");
    if !can_mount() {
        return;
    }
    fs::create_dir(scratch.path("m")).expect("mkdir");
    scratch.shoal(["mount", "v", "m", "-o", "subvolume=ci"]).ok();
    // Paths start at the mount's top; names outside it are not there.
    assert_eq!(scratch.shoal(["path", "m", &below]).ok(), "/a/b\n");
    assert_eq!(scratch.shoal(["path", "m", &top]).ok(), "/\n");
    scratch.shoal(["path", "m", "1"]).fails(1, &["inode 1 of m", "no such inode"]);
    assert_eq!(scratch.shoal(["parents", "m/a"]).ok(), format!("{top}\t1\ta\t/a\n"));
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn a_volume_without_parent_pointers_says_so() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", common::SIZE, "--parent", "off"]).ok();
    assert!(!scratch.shoal(["info", "v"]).ok().contains("parent-pointers"));
    scratch.shoal(["mkdir", "v:/d"]).ok();
    let dir = ino(&scratch, "v:/d");
    scratch.shoal(["path", "v", &dir]).fails(2, &["v", "no parent pointers", "mkfs --parent off"]);
    scratch.shoal(["parents", "v:/d"]).fails(2, &["v", "no parent pointers"]);
    assert_eq!(scratch.shoal(["path", "v", "1"]).ok(), "/\n", "the top needs none");
}

/// Mounts in the foreground, so that the server can be killed.
fn serve(scratch: &Scratch) -> Child {
    let line = ["mount", "v", "m", "--foreground", "--report-ready", "-o", "keeper=off"];
    let mut server = scratch.command(line).stdout(Stdio::piped()).spawn().expect("start");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    server
}

#[test]
fn a_mounted_volume_is_asked_through_its_mount() {
    if !can_mount() {
        return;
    }
    let scratch = with_files();
    fs::create_dir(scratch.path("m")).expect("mkdir");
    scratch.shoal(["xattr", "set", "v:/d/f", "user.a", "1"]).ok();
    let (file, dir) = (ino(&scratch, "v:/g"), ino(&scratch, "v:/d"));
    let mut server = serve(&scratch);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(scratch.shoal(["path", "m", &file]).ok()), ["/d/f", "/g"]);
    // Through any directory of it.
    assert_eq!(sorted(scratch.shoal(["path", "m/d", "1"]).ok()), ["/"]);
    for place in ["m/g", "m/d/f"] {
        let parents = sorted(scratch.shoal(["parents", place]).ok());
        assert_eq!(parents, ["1\t1\tg\t/g".to_owned(), format!("{dir}\t1\tf\t/d/f")], "{place}");
    }
    assert_eq!(scratch.shell("cd m && shoal parents l d").ok(), "1\t1\tl\t/l\n1\t1\td\t/d\n");
    assert_eq!(scratch.shoal(["parents", "m"]).ok(), "");
    scratch.shoal(["path", "m", "999"]).fails(1, &["inode 999 of m", "no such inode"]);
    assert_eq!(sorted(scratch.shoal(["path", "v", &file]).ok()), ["/d/f", "/g"]);
    scratch.shoal(["path", "v", &file, "--direct"]).fails(2, &["v", "in use"]);
    scratch.shoal(["logdump", "v"]).fails(2, &["v", "in use"]);
    // A server that dies leaves a journal, which can be dumped any number of times.
    scratch.write("m/new", "");
    scratch.shoal(["sync", "m"]).ok();
    server.kill().expect("kill");
    server.wait().expect("wait");
    scratch.shell("umount m").ok();
    let before = fs::read(scratch.path("v")).expect("read");
    let dump = scratch.shoal(["logdump", "v"]).ok();
    assert!(dump.contains("not closed") && dump.contains("\"new\""), "{dump}");
    assert_eq!(scratch.shoal(["logdump", "v"]).ok(), dump);
    assert!(fs::read(scratch.path("v")).expect("read") == before, "nothing was written");
}

/// Opens the volume with the library, works, and stops as in a crash.
fn crash(scratch: &Scratch, options: OpenOptions, work: impl FnOnce(&Volume)) {
    let options = OpenOptions { background: false, ..options };
    let volume = Volume::open(&scratch.path("v"), &options).expect("open");
    work(&volume);
    volume.sync().expect("sync");
}

#[test]
fn a_create_is_one_record_without_an_intent() {
    let scratch = Scratch::with_volume();
    let who = Caller::root();
    let clean = scratch.shoal(["logdump", "v"]).ok();
    assert!(clean.contains("closed: there is nothing to replay"), "{clean}");
    assert!(clean.ends_with(": 0 records (0 B), 0 items; 0 intents logged, 0 done, 0 open\n"));
    crash(&scratch, OpenOptions::default(), |volume| {
        volume.namespace().create(&who, Ino::ROOT, b"one", 0o644).expect("create");
    });
    let dump = scratch.shoal(["logdump", "v"]).ok();
    assert_eq!(dump.lines().filter(|line| line.starts_with("LSN ")).count(), 1, "{dump}");
    assert!(dump.contains("named in 1/1") && dump.contains("\"one\""), "{dump}");
    assert!(dump.contains(": 1 record (") && dump.contains("; 0 intents logged"), "{dump}");
    let json = scratch.shoal(["logdump", "v", "--json"]).ok();
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines.len(), 3, "{json}");
    assert!(lines[0].starts_with("{\"checkpoint\":") && lines[0].contains("\"clean\":false"));
    assert!(lines[1].starts_with("{\"record\":") && lines[1].contains(r#"{"kind":"named","#));
    assert!(lines[2].contains(r#""records":1,"#) && lines[2].contains(r#""intents_logged":0,"#));
    crash(&scratch, OpenOptions::default(), |volume| {
        volume.namespace().unlink(&who, Ino::ROOT, b"one").expect("unlink");
    });
    let dump = scratch.shoal(["logdump", "v"]).ok();
    assert!(dump.contains("unnamed in 1/1") && dump.contains("\"one\""), "{dump}");
    scratch.shoal(["logdump", "none"]).fails(2, &["none"]);
    scratch.write("text", noise(9, 1 << 20));
    scratch.shoal(["logdump", "text"]).fails(2, &["not a Shoal volume"]);
}

#[test]
fn intents_and_their_states_are_shown() {
    let scratch = Scratch::with_volume();
    let who = Caller::root();
    let through_intents = {
        let lab = Lab { attr_intents: true, ..Lab::default() };
        OpenOptions { lab, ..OpenOptions::default() }
    };
    crash(&scratch, through_intents, |volume| {
        let file = volume.namespace().create(&who, Ino::ROOT, b"one", 0o644).expect("create");
        volume
            .namespace()
            .rename(&who, Ino::ROOT, b"one", Ino::ROOT, b"two", Default::default())
            .expect("mv");
        volume
            .attributes()
            .setxattr(&who, file.ino, b"user.a", b"1", Default::default())
            .expect("set");
    });
    let dump = scratch.shoal(["logdump", "v"]).ok();
    assert!(dump.contains("log: attr replace inode") && dump.contains("[logged]"), "{dump}");
    assert!(dump.contains("[done]") && dump.contains(" 0 open\n"), "{dump}");
    let json = scratch.shoal(["logdump", "v", "--json"]).ok();
    let end = json.lines().last().expect("a line");
    let (logged, done) = (number(end, "intents_logged"), number(end, "intents_done"));
    assert!(logged >= 2 && logged == done, "{end}");
    assert!(json.contains(r#""state":"logged"}"#) && json.contains(r#""state":"done"}"#));
    let info = scratch.shoal(["info", "v", "--json"]).ok();
    for field in ["attr_shortcuts", "attr_intents", "intents"] {
        number(&info, field);
    }
}
