//! `shoal share` and what its tokens open, in volumes and on mounts.

use std::fs;

use crate::common::Scratch;

fn token(scratch: &Scratch, arguments: &[&str]) -> String {
    let out = scratch.shoal([&["share"], arguments].concat()).ok();
    let token = out.trim_end().to_owned();
    assert_eq!(token.len(), 88, "{out}");
    token
}

#[test]
fn a_token_of_a_volume_opens_its_file() {
    let scratch = Scratch::with_volume();
    scratch.write("a", "contents of a");
    scratch.shoal(["cp", "a", "v:/"]).ok();
    let read = token(&scratch, &["v:/a"]);
    let write = token(&scratch, &["v:/a", "--rights", "rw", "--for", "2d"]);
    assert_ne!(read, write);
    let json = scratch.shoal(["share", "--json", "v:/a", "--rights", "rw", "--for", "2m"]).ok();
    assert!(json.ends_with("\"rights\":\"rw\",\"lifetime\":120}\n"), "{json}");
    let told: serde_json::Value = serde_json::from_str(&json).expect("an object");
    let told = told["token"].as_str().expect("a token");
    assert_eq!(scratch.shoal(["cat", "--token", told, "v"]).ok(), "contents of a");
    scratch.shoal(["mv", "v:/a", "v:/b"]).ok();
    for token in [&read, &write] {
        assert_eq!(scratch.shoal(["cat", "--token", token, "v"]).ok(), "contents of a");
    }
    let forged = format!("{}{}", &read[..87], if read.ends_with('A') { 'B' } else { 'A' });
    scratch.shoal(["cat", "--token", &forged, "v"]).fails(1, &["--token", "forged"]);
    scratch.shoal(["cat", "--token", "short", "v"]).fails(1, &["--token"]);
    scratch.shoal(["cat", "--token", &read, "v", "v"]).fails(2, &["one volume"]);
    scratch.shoal(["cat", "--token", &read, "v:/b"]).fails(2, &["v:/b", "no volume"]);
    scratch.shoal(["share", "v:/missing"]).fails(1, &["v:/missing"]);
    scratch.shoal(["share", "v:/"]).fails(1, &["v:/", "directory"]);
    scratch.shoal(["share", "a"]).fails(2, &["a", "VOLUME:/path"]);
    scratch.shoal(["share", "--revoke", "v:/b"]).fails(2, &["v:/b"]);
    assert_eq!(scratch.shoal(["share", "--revoke", "v"]).ok(), "");
    scratch.shoal(["cat", "--token", &read, "v"]).fails(1, &["revoked"]);
    let new = token(&scratch, &["v:/b"]);
    scratch.shoal(["rm", "v:/b"]).ok();
    scratch.shoal(["cat", "--token", &new, "v"]).fails(1, &["--token"]);
}

#[test]
fn a_token_of_a_mount_is_a_name_in_it() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "open"]).ok();
    fs::write(scratch.path("m/a"), "contents of a").expect("write");
    let read = token(&scratch, &["m/a"]);
    let write = token(&scratch, &["m/a", "--rights", "rw", "--for", "90"]);
    let directory = scratch.path("m/.shoal-open");
    assert_eq!(fs::read(directory.join(&read)).expect("read"), b"contents of a");
    assert!(fs::write(directory.join(&read), "x").is_err());
    fs::write(directory.join(&write), "new").expect("write");
    assert_eq!(fs::read(scratch.path("m/a")).expect("read"), b"new");
    let walked = scratch.shell("ls -a m; find m; du -a m").ok();
    assert!(walked.contains("m/a") && !walked.contains(".shoal-open"), "{walked}");
    // The same tokens are good without the mount, and the reverse.
    let from_volume = |scratch: &Scratch| {
        scratch.shoal(["umount", "m"]).ok();
        assert_eq!(scratch.shoal(["cat", "--token", &read, "v"]).ok(), "new");
        let token = token(scratch, &["v:/a"]);
        scratch.shoal(["mount", "v", "m", "-o", "open"]).ok();
        token
    };
    let made = from_volume(&scratch);
    assert_eq!(fs::read(directory.join(&made)).expect("read"), b"new");
    scratch.shoal(["share", "--revoke", "m"]).ok();
    for token in [&read, &write, &made] {
        let error = fs::read(directory.join(token)).expect_err("revoked");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn a_mount_that_opens_no_tokens_says_so() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "no_open"]).ok();
    fs::write(scratch.path("m/a"), "contents of a").expect("write");
    let ran = scratch.shoal(["share", "m/a"]);
    assert!(ran.stderr().contains("-o open"), "{ran}");
    assert_eq!(ran.stdout().trim_end().len(), 88, "{ran}");
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(
        scratch.shoal(["cat", "--token", ran.stdout().trim_end(), "v"]).ok(),
        "contents of a"
    );
}
