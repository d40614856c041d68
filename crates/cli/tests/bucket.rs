//! The command on a volume in a bucket, which here is a directory (`file://`).

mod common;

use common::Scratch;

/// A scratch folder with an empty bucket, and its URL.
fn bucket() -> (Scratch, String) {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("bucket")).expect("a new directory");
    let url = format!("file://{}", scratch.path("bucket").display());
    (scratch, url)
}

#[test]
fn commands_take_a_url_where_they_take_a_file() {
    let (scratch, url) = bucket();
    scratch.shoal(["mkfs", &url]).ok();
    scratch.shoal(["mkfs", &url]).fails(2, &["a volume is there", "--force"]);
    common::rich_tree(&scratch);
    scratch.shoal(["cp", "-a", "t", &format!("{url}:/")]).ok();
    assert!(scratch.shoal(["ls", &url]).ok().contains('t'), "the top without a path");
    scratch.shoal(["cp", "-a", &format!("{url}:/t"), "back"]).ok();
    scratch.shell("diff -r --no-dereference --exclude pipe t back").ok();
    assert!(scratch.shoal(["fsck", &url]).ok().contains("clean"));
    scratch.shoal(["scrub", &url]).ok();
    let info = scratch.shoal(["info", &url]).ok();
    assert!(info.contains("objects ") && info.contains("$ a month"), "{info}");
    scratch.shell(&format!("shoal dump {url} >stream && shoal restore stream v")).ok();
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
    scratch.shoal(["label", &url, "shared"]).ok();
    assert_eq!(scratch.shoal(["label", &url]).ok(), "shared\n");
    let grown = scratch.shoal(["grow", &url, "--size", "9T"]).ok();
    assert!(grown.contains("8.0 TiB before, 9.0 TiB now"), "{grown}");
    scratch.shoal(["shrink", &url, "--size", "1G"]).fails(2, &["is only a limit"]);
    scratch.shoal(["rm", "-r", &format!("{url}:/t")]).ok();
    assert!(scratch.shoal(["fsck", &url]).ok().contains("clean"));
    scratch.shoal(["mkfs", "--force", &url]).ok();
}

#[test]
fn a_sound_volume_has_nothing_to_repair_and_goes_on() {
    let (scratch, url) = bucket();
    scratch.shoal(["mkfs", &url]).ok();
    scratch.write("file", common::noise(1, 100_000));
    scratch.shoal(["cp", "file", &format!("{url}:/file")]).ok();
    scratch.shoal(["fsck", "--repair", "--yes", &url]).ok();
    assert!(scratch.shoal(["fsck", &url]).ok().contains("clean"));
    scratch.shell(&format!("shoal cat {url}:/file | cmp - file")).ok();
}

#[test]
fn what_is_no_volume_is_refused_with_the_reason() {
    let (scratch, url) = bucket();
    scratch.shoal(["ls", &url]).fails(2, &["there is no volume"]);
    scratch.write("bucket/photo.jpg", "x");
    scratch.shoal(["mkfs", &url]).fails(2, &["holds other objects", "photo.jpg"]);
    scratch.shoal(["mkfs", "file:///not/there"]).fails(2, &["create it first"]);
    scratch.shoal(["mkfs", "s3://"]).fails(2, &["must be s3://BUCKET/PREFIX"]);
}

#[test]
fn a_mount_of_a_bucket_is_the_only_one_and_keeps_what_was_synced() {
    let Some(scratch) = Scratch::to_mount() else { return };
    std::fs::create_dir(scratch.path("bucket")).expect("a new directory");
    let url = format!("file://{}", scratch.path("bucket").display());
    scratch.shoal(["mkfs", &url]).ok();
    scratch.shoal(["mount", "-o", "keeper=on", &url, "m"]).fails(2, &["bucket"]);
    let ring = format!("journal_ring={}", scratch.path("ring").display());
    scratch.shoal(["mount", "-o", &ring, &url, "m"]).fails(2, &["has no ring"]);
    scratch.shoal(["mount", &url, "m"]).ok();
    scratch.shell("echo kept >m/kept && shoal sync m").ok();
    scratch.shoal(["touch", &format!("{url}:/other")]).fails(2, &["is in use by", "--force"]);
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(scratch.shoal(["cat", &format!("{url}:/kept")]).ok(), "kept\n");
}
