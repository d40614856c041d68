//! `shoal trim`: the free space of a volume returns to the file system that holds its file.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::{Scratch, noise};

fn allocated(scratch: &Scratch) -> u64 {
    fs::metadata(scratch.path("v")).expect("stat").blocks() * 512
}

/// Fills a volume with noise and removes all but one file.
fn emptied(scratch: &Scratch, options: &str) {
    scratch.shoal(["mount", "v", "m", "-o", options]).ok();
    fs::write(scratch.path("m/keep"), noise(1, 200_000)).expect("write");
    fs::write(scratch.path("m/large"), noise(2, 120 << 20)).expect("write");
    scratch.shoal(["sync", "m"]).ok();
    fs::remove_file(scratch.path("m/large")).expect("remove");
}

#[test]
fn a_mount_and_a_volume_are_trimmed() {
    let Some(scratch) = Scratch::to_mount() else { return };
    emptied(&scratch, "nodiscard");
    assert!(allocated(&scratch) > 120 << 20, "nodiscard keeps it");
    let out = scratch.shoal(["trim", "m"]).ok();
    assert!(out.starts_with("discarded ") && out.contains("MiB"), "{out}");
    assert!(allocated(&scratch) < 64 << 20, "{} bytes", allocated(&scratch));
    let kept = fs::read(scratch.path("m/keep")).expect("read");
    assert!(kept == noise(1, 200_000), "what lives is left alone");
    scratch.shoal(["umount", "m"]).ok();
    let json = scratch.shoal(["trim", "v", "--json"]).ok();
    assert!(json.starts_with(r#"{"bytes":"#), "{json}");
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shoal(["trim", "missing"]).fails(2, &["missing"]);
}

/// Closing a volume discards its free space.
#[test]
fn a_volume_that_is_closed_has_given_its_space_back() {
    let Some(scratch) = Scratch::to_mount() else { return };
    emptied(&scratch, "discard");
    scratch.shoal(["umount", "m"]).ok();
    // The server ends a moment after the mount.
    scratch.shoal(["fsck", "v"]).ok();
    assert!(allocated(&scratch) < 64 << 20, "{} bytes", allocated(&scratch));
}
