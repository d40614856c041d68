//! The command on a volume in a bucket, which here is a directory (`file://`).

use crate::common;

use crate::common::Scratch;
use shoal_skip::s3::{Server, Weather};
use shoal_skip::wait_until;

/// A scratch folder with an empty bucket, and its URL.
pub(crate) fn bucket() -> (Scratch, String) {
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
    // For diff, special files are the same only if they were made in the same second.
    let others = "--exclude pipe --exclude null --exclude disk";
    scratch.shell(&format!("diff -r --no-dereference {others} t back")).ok();
    let special = |tree| scratch.shell(&format!("cd {tree} && stat -c '%F %t %T' *")).ok();
    assert_eq!(special("t"), special("back"));
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
fn a_volume_is_copied_to_a_bucket_and_back_by_what_has_changed() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("bucket")).expect("a new directory");
    let url = &format!("file://{}", scratch.path("bucket").display());
    scratch.shoal(["mkfs", "v", "--size", "64M"]).ok();
    scratch.write("large", common::noise(1, 9_000_000));
    scratch.shoal(["cp", "large", "v:/large"]).ok();
    let copied = |from: &str, to: &str, kind: &str| {
        let json = scratch.shoal(["copy", "--json", from, to]).ok();
        assert!(json.contains(&format!("\"kind\":\"{kind}\"")), "{json}");
        let bytes = json.split("\"bytes\":").nth(1).and_then(|rest| rest.split(',').next());
        bytes.and_then(|bytes| bytes.parse::<u64>().ok()).expect("a number")
    };
    assert!(copied("v", url, "whole") > 9_000_000);
    assert_eq!(copied("v", url, "same"), 0);
    scratch.shoal(["fsck", url]).ok();
    scratch.write("small", "new\n");
    scratch.shoal(["cp", "small", "v:/small"]).ok();
    assert!(copied("v", url, "increment") < 1_000_000);
    assert_eq!(scratch.shoal(["cat", &format!("{url}:/small")]).ok(), "new\n");
    // That has opened it for reading only. To another place, and on from there.
    copied(url, "w", "whole");
    scratch.shoal(["mv", "w:/small", "w:/renamed"]).ok();
    assert!(copied("w", url, "increment") < 1_000_000);
    assert!(copied(url, "v", "increment") < 1_000_000);
    scratch.shoal(["fsck", "v"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/renamed"]).ok(), "new\n");
    scratch.shell("shoal cat v:/large | cmp - large").ok();
    // Changed on both sides.
    scratch.shoal(["mkdir", "v:/here"]).ok();
    scratch.shoal(["mkdir", "w:/there"]).ok();
    scratch.shoal(["copy", "v", "w"]).fails(2, &["w: has been changed", "--force"]);
    scratch.shoal(["copy", "--force", "v", "w"]).ok();
    scratch.shoal(["stat", "w:/here"]).ok();
    let json = scratch.shoal(["copy", "--force", "--json", "v", "w"]).ok();
    assert!(json.contains("\"kind\":\"whole\""), "{json}");
    // In the wrong direction, also when the newer one was copied to another place since.
    let newer = ["v: is newer than the volume to be copied", "exchange SOURCE and DEST"];
    scratch.shoal(["mkdir", "v:/later"]).ok();
    scratch.shoal(["copy", "w", "v"]).fails(2, &newer);
    copied("v", "third", "whole");
    scratch.shoal(["copy", "w", "v"]).fails(2, &newer);
    scratch.shoal(["stat", "v:/later"]).ok();
    // The other one has been changed, too.
    scratch.shoal(["mkdir", "w:/too"]).ok();
    scratch.shoal(["copy", "w", "v"]).fails(2, &["v: and its source have both been changed"]);
    scratch.shoal(["copy", "--force", "v", "w"]).ok();
    std::fs::remove_file(scratch.path("third")).expect("removed");
    scratch.shoal(["mkfs", "other", "--size", "64M"]).ok();
    scratch.shoal(["copy", "v", "other"]).fails(2, &["other: holds another volume", "--force"]);
    scratch.shoal(["copy", "v", "./v"]).fails(2, &["the volume to be copied itself"]);
    scratch.shoal(["copy", "v", "large"]).fails(2, &["holds data", "--force"]);
    scratch.shoal(["copy", "missing", "w"]).fails(2, &["missing does not exist"]);
}

#[test]
fn a_cache_on_disk_serves_the_next_mount_and_commands() {
    let Some(scratch) = Scratch::to_mount() else { return };
    std::fs::create_dir(scratch.path("bucket")).expect("a new directory");
    let url = format!("file://{}", scratch.path("bucket").display());
    scratch.shoal(["mkfs", &url]).ok();
    scratch.write("file", common::noise(1, 3_000_000));
    scratch.shoal(["cp", "file", &format!("{url}:/file")]).ok();
    let option =
        |size| format!("disk_cache={},disk_cache_size={size}", scratch.path("c").display());
    scratch.shoal(["mount", "-o", &option("1M"), &url, "m"]).fails(2, &["64M at least"]);
    scratch.shoal(["mount", "-o", &option("1G"), "v", "m"]).fails(2, &["buckets alone"]);
    let mut hits = Vec::new();
    for _ in 0..2 {
        scratch.shoal(["mount", "-o", &option("1G"), &url, "m"]).ok();
        scratch.shell("cmp file m/file").ok();
        let stats = scratch.shoal(["stats", "m"]).ok();
        let line = stats.lines().find(|line| line.starts_with("store_disk_hits")).expect("a line");
        let value = line.split_ascii_whitespace().nth(1).and_then(|value| value.parse().ok());
        hits.push(value.unwrap_or(0));
        // What was read is written behind the call.
        wait_until("3 MB in the cache", || {
            let used = scratch.shell("du -sm c | cut -f1").stdout();
            used.trim().parse().unwrap_or(0) >= 3
        });
        scratch.shoal(["umount", "m"]).ok();
    }
    assert!(hits[0] == 0 && hits[1] >= 10u64, "{hits:?}");
    // Whatever somebody does to the files.
    scratch.shell("for f in c/*/*; do head -c 100000 /dev/urandom > $f; done").ok();
    let read = format!("SHOAL_DISK_CACHE=$PWD/c shoal cat {url}:/file");
    scratch.shell(&format!("{read} | cmp - file")).ok();
    scratch.shell("chmod 777 c").ok();
    scratch.shell(&read).fails(2, &["other users may write in it"]);
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
    let info = scratch.shoal(["info", "m"]).ok();
    for part in ["objects ", "$ a month", "requests ", " that write ("] {
        assert!(info.contains(part), "{part}: {info}");
    }
    let top = scratch.shoal(["top", "--once", "--every", "1", "m"]).ok();
    assert!(top.contains("bucket: ") && top.contains("$ an hour"), "{top}");
    let other = format!("{url}:/other");
    scratch.shoal(["--direct", "touch", &other]).fails(2, &["is in use by", "--force"]);
    scratch.shoal(["touch", &other]).ok();
    assert!(scratch.path("m/other").exists(), "by a session");
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(scratch.shoal(["cat", &format!("{url}:/kept")]).ok(), "kept\n");
}

/// A volume in a directory that is mounted on `m`, by an owner that other tests may stall.
fn mounted() -> Option<(Scratch, String)> {
    let scratch = Scratch::to_mount()?;
    std::fs::create_dir(scratch.path("bucket")).expect("a new directory");
    let url = format!("file://{}", scratch.path("bucket").display());
    scratch.shoal(["mkfs", &url]).ok();
    scratch.shoal(["mount", "-o", "grace=60", &url, "m"]).ok();
    Some((scratch, url))
}

/// A shell function that tries a command until it succeeds, for some minutes.
const SOON: &str = "soon() { for n in $(seq 3000); do if eval \"$1\" 2>/dev/null; \
                    then return 0; fi; sleep 0.05; done; echo \"never: $1\" >&2; return 1; }; ";

#[test]
fn a_replica_shows_what_its_owner_has_made_durable() {
    let Some((scratch, url)) = mounted() else { return };
    scratch.shoal(["mount", "-o", "ro,follow=0.1", &url, "n"]).ok();
    let soon = |line: &str| drop(scratch.shell(&format!("{SOON}{line}")).ok());
    soon("mkdir -p m/a/b && echo one >m/a/b/file && shoal sync m && soon 'grep -q one n/a/b/file'");
    // What the kernel keeps of a file, a name, a listing and the absence of a name is not old.
    soon(
        "exec 3<n/a/b/file; cat <&3 >/dev/null; ! ls n/a/new 2>/dev/null; ls n/a >/dev/null; \
         echo three >m/a/b/file; touch m/a/new; shoal sync m; \
         soon 'grep -q three n/a/b/file' && soon 'test -e n/a/new' && soon 'ls n/a | grep -q new' \
         && soon 'grep -q three /proc/self/fd/3'",
    );
    // By sessions, each call on the newest view.
    soon("shoal changes n | grep -q a/b/file; shoal ls -lR n | grep -q new; shoal du n >/dev/null");
    soon("mv m/a/b m/c && rm m/a/new && shoal sync m && soon 'test -e n/c/file -a ! -e n/a/new'");
    soon("soon 'shoal changes n | grep -q c/file'");
    // The server of a mount that is gone may end when another has the number of its filesystem.
    let late = shoal_fuse::server_pid(&scratch.path("n")).expect("a server");
    scratch.shell(&format!("kill -STOP {late} && umount -l n")).ok();
    scratch.shoal(["mount", "-o", "ro,follow=0.1", &url, "n"]).ok();
    let ends =
        format!("shoal ls n/c; kill -CONT {late}; soon '! test -e /proc/{late}'; shoal ls n/c");
    assert_eq!(scratch.shell(&format!("{SOON}{ends}")).ok(), "file\nfile\n");
    scratch.shoal(["rm", "-r", "n/c"]).fails(1, &["n/c", "read-only"]);
    assert!(scratch.shoal(["info", "n"]).ok().contains("options"));
    assert!(scratch.shell("touch n/x").stderr().contains("Read-only file system"));
    soon("setfattr -n user.k -v v m/c/file && shoal sync m && soon 'getfattr -n user.k n/c/file'");
    scratch.shoal(["umount", "m"]).ok();
    // The next owner is followed too.
    scratch.shoal(["cp", "bucket", &format!("{url}:/more"), "-r"]).ok();
    soon("soon 'test -d n/more'");
    scratch.shoal(["umount", "n"]).ok();
    assert!(scratch.shoal(["fsck", &url]).ok().contains("clean"));
}

#[test]
fn a_standby_takes_over_from_an_owner_that_was_killed() {
    let Some((scratch, url)) = mounted() else { return };
    scratch.shoal(["mount", "--standby", &url, "n"]).ok();
    let owner = shoal_fuse::server_pid(&scratch.path("m")).expect("a server");
    scratch.shell("for n in $(seq 300); do echo $n >m/$n; done; shoal sync m").ok();
    scratch.shell(&format!("{SOON}soon 'grep -q 300 n/300'")).ok();
    assert!(scratch.shell("touch n/x").stderr().contains("Read-only file system"));
    scratch.shoal(["remount", "--promote", "n"]).fails(1, &["uses the volume", "--force"]);
    // Files that programs have open before go on, also one that is removed after.
    scratch
        .shell(&format!(
            "{SOON}exec 3<n/7 4<n; kill -9 {owner}; soon 'touch n/mine' && \
             echo more >>n/7 && grep -q more <&3 && rm n/7 && grep -q more /proc/self/fd/3 && \
             sync n/mine && test $(ls n | wc -l) = 300 && ls /proc/self/fd/4/ | grep -q mine"
        ))
        .ok();
    scratch.shell("shoal changes n | grep -q mine && mkdir n/tree && shoal rm -r n/tree").ok();
    scratch.shell("umount -l m").ok();
    scratch.shoal(["remount", "--promote", "n"]).ok();
    scratch.shoal(["umount", "n"]).ok();
    assert!(scratch.shoal(["fsck", &url]).ok().contains("clean"));
    assert!(scratch.shoal(["ls", &url]).ok().contains("mine"));
}

#[test]
fn a_standby_takes_over_when_the_owner_is_unmounted_or_by_force() {
    let Some((scratch, url)) = mounted() else { return };
    scratch.shoal(["mount", "-o", "standby,grace=60", &url, "n"]).ok();
    scratch.shell("echo one >m/one").ok();
    scratch.shoal(["umount", "m"]).ok();
    scratch.shell(&format!("{SOON}soon 'echo two >n/two' && cat n/one")).ok();
    // The roles change.
    scratch.shoal(["mount", "-o", "standby,grace=60", &url, "m"]).ok();
    scratch.shell("echo three >n/three && shoal sync n").ok();
    scratch.shoal(["remount", "--promote", "--force", "m"]).ok();
    scratch.shell("cat m/three && echo four >m/four && shoal sync m").ok();
    assert_eq!(scratch.shell("echo five >n/five && shoal sync n").status(), Some(1));
    scratch.shoal(["umount", "n"]).fails(1, &["has taken the volume over"]);
    scratch.shoal(["umount", "m"]).ok();
    assert!(scratch.shoal(["fsck", &url]).ok().contains("clean"));
    assert!(scratch.shoal(["ls", &url]).ok().contains("four"));
}

#[test]
fn roles_that_make_no_sense_are_refused() {
    let (scratch, url) = bucket();
    std::fs::create_dir(scratch.path("m")).expect("a new directory");
    let mount = |options: &str, volume: &str| scratch.shoal(["mount", "-o", options, volume, "m"]);
    scratch.shoal(["mkfs", "v", "--size", common::SIZE]).ok();
    mount("ro,follow", "v").fails(2, &["needs a volume in a bucket"]);
    mount("standby", "v").fails(2, &["needs a volume in a bucket"]);
    mount("ro,standby", &url).fails(2, &["a replica is ro,follow"]);
    mount("follow=x", &url).fails(2, &["needs seconds"]);
    mount("follow", &url).fails(2, &["there is no volume"]);
    scratch.shoal(["remount", "--promote", "m"]).fails(1, &["is not a mount"]);
    assert_eq!(scratch.shoal(["remount", "--takeover", "--promote", "m"]).status(), Some(2));
}

/// The beginning of a shell's line that uses a store.
fn variables(server: &Server) -> String {
    let all = server.variables().into_iter();
    all.map(|(name, value)| format!("export {name}={value}; ")).collect()
}

#[test]
fn mistakes_with_a_store_are_one_line() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let with = variables(&server);
    let fails = |line: &str, part: &str| {
        let said = scratch.shell(&format!("{with} {line}")).fails(2, &[part]);
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    fails("AWS_ENDPOINT_URL=localhost:9000 shoal ls s3://b/v", "must begin with https://");
    fails("AWS_ACCESS_KEY_ID=nobody shoal ls s3://b/v", "are the keys right?");
    fails("shoal ls S3://b/v", "there is no volume");
    server.set_weather(|_| Weather::Answer(404, "NoSuchBucket", ""));
    fails("shoal mkfs s3://b/v", "no such bucket");
}

/// The mount of a store in a machine of a test, on `m`, with files that its server has in memory,
/// in `known`, and others.
fn stored(options: &str) -> Option<(Scratch, Server, String)> {
    let (scratch, server) = (Scratch::to_mount()?, Server::start());
    let with = variables(&server);
    scratch.shell(&format!("{with} shoal mkfs --trust-store s3://b/v")).ok();
    let mount = format!("{with} shoal mount -o {options} s3://b/v m; ");
    let make = "mkdir m/known m/other; for n in 1 2 3 4 5 6 7 8; do \
                head -c 3000000 /dev/urandom >m/other/$n; echo $n >m/known/$n; done; \
                cp -r m/other was; shoal umount m; ";
    let learn = "cat m/known/* >/dev/null; ls -l m m/known m/other >/dev/null";
    scratch.shell(&format!("{mount}{make}{mount}{learn}")).ok();
    Some((scratch, server, with))
}

/// Ends a test that would wait for ever.
const LIMIT: &str = "timeout 300 bash -ec ";

#[test]
fn a_store_that_hangs_stops_only_those_who_need_it() {
    for rings in ["io_uring=off,threads=2", "io_uring=auto"] {
        let Some((scratch, server, _)) = stored(rings) else { return };
        let before = server.requests();
        server.set_weather(|request| match request.method.as_str() {
            "GET" => Weather::Hang,
            _ => Weather::Fair,
        });
        let readers: Vec<_> = (0..40)
            .map(|n| {
                let line = format!("exec cat m/other/{}", n % 8 + 1);
                std::process::Command::new("sh")
                    .args(["-c", &line])
                    .current_dir(scratch.path("."))
                    .stdout(std::process::Stdio::piped())
                    .spawn()
                    .expect("a shell")
            })
            .collect();
        wait_until("they ask the store", || server.requests() > before);
        let mut readers = readers;
        let ended = |reader: &mut std::process::Child| reader.try_wait().expect("ours").is_some();
        let use_it = "ls m/known >l; cat m/known/* >l; stat m/known/3 >l; echo x >m/known/new; \
                      mv m/known/new m/known/newer; rm m/known/newer; mkdir m/d; rmdir m/d";
        for _ in 0..10 {
            scratch.shell(&format!("{LIMIT} '{use_it}'")).ok();
        }
        assert!(!readers.iter_mut().any(ended), "they wait");
        let mut killed = readers.split_off(20);
        for victim in &mut killed {
            victim.kill().expect("it is ours");
            let status = victim.wait().expect("it leaves, while the store hangs");
            assert!(!status.success());
        }
        server.set_weather(|_| Weather::Fair);
        for reader in readers {
            let output = reader.wait_with_output().expect("it ends");
            assert!(output.status.success() && output.stdout.len() == 3_000_000);
        }
        scratch.shell("diff -r was m/other && shoal umount m").ok();
    }
}

#[test]
fn refusals_and_a_quota_of_a_store_lose_nothing() {
    let Some((scratch, server, with)) = stored("io_uring=off") else { return };
    // Refused for a while.
    server.set_weather(|request| match request.method.as_str() {
        "PUT" => Weather::Answer(403, "AccessDenied", ""),
        _ => Weather::Fair,
    });
    let before = server.requests();
    let sync = std::thread::scope(|scope| {
        let sync = scope.spawn(|| scratch.shell("echo kept >m/kept; shoal sync m"));
        wait_until("it is repeated", || server.requests() > before + 3);
        scratch.shell(&format!("{LIMIT} 'echo more >m/more; cat m/kept m/known/1 >l'")).ok();
        server.set_weather(|_| Weather::Fair);
        sync.join().expect("a result")
    });
    sync.ok();
    // Full.
    server.set_quota(server.bytes());
    scratch.shell("echo staged >m/staged && shoal sync m").fails(1, &["No space left"]);
    scratch.shell("! cp m/known/1 m/large 2>err && grep -q 'No space left' err").ok();
    scratch.shell(&format!("{LIMIT} 'rm m/other/8; cat m/staged >l; df m >l'")).ok();
    let info = scratch.shoal(["info", "m"]).ok();
    assert!(!info.contains("read-only"), "{info}");
    server.set_quota(u64::MAX);
    let soon = "soon 'echo again >m/again' && shoal sync m && shoal umount m";
    scratch.shell(&format!("{SOON}{soon}")).ok();
    let list = format!("{with} shoal cat s3://b/v:/kept s3://b/v:/more s3://b/v:/staged");
    assert_eq!(scratch.shell(&list).ok(), "kept\nmore\nstaged\n");
    assert!(scratch.shell(&format!("{with} shoal fsck s3://b/v")).ok().contains("clean"));
}

/// Returns the value of a line of `shoal bucket check`.
fn fact<'a>(output: &'a str, name: &str) -> &'a str {
    let mut lines = output.lines().filter(|line| line.get(..16).map(str::trim_end) == Some(name));
    let line = lines.next().unwrap_or_else(|| panic!("no line {name} in\n{output}"));
    &line[16..]
}

const OPERATIONS: [&str; 7] =
    ["list", "get", "range get", "put", "If-None-Match", "overwrite", "delete"];

#[test]
fn a_check_of_a_good_store_says_so_and_leaves_nothing() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let with = variables(&server);
    let check = format!("{with} shoal bucket check s3://b/v");
    let found = scratch.shell(&check).ok();
    for operation in OPERATIONS {
        assert_eq!(fact(&found, operation), "yes", "{found}");
    }
    assert_eq!(fact(&found, "place"), "s3://b/v");
    assert_eq!(
        fact(&found, "endpoint"),
        format!("{} (the bucket is in the path)", server.endpoint())
    );
    assert_eq!(fact(&found, "region"), "nowhere");
    assert_eq!(fact(&found, "identity"), "test-key, from environment variables");
    assert!(fact(&found, "clock").starts_with("agrees "), "{found}");
    assert!(fact(&found, "versioning").starts_with("off: "), "{found}");
    assert!(fact(&found, "PUT").contains("an fsync takes"), "{found}");
    assert!(fact(&found, "GET").contains(" ms (the slowest of "), "{found}");
    assert_eq!(fact(&found, "prefix"), "empty");
    assert_eq!(fact(&found, "result"), "a volume can be made here: shoal mkfs s3://b/v");
    assert!(!found.contains("secret"), "{found}");
    assert!(server.names().is_empty(), "{:?}", server.names());
    // A profile, with a clock that is wrong and versions.
    server.set_versioning("Enabled");
    server.set_clock(-3600);
    scratch.write("keys", "[work]\naws_access_key_id=test-key\naws_secret_access_key=hidden\n");
    let profile = "unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; export AWS_PROFILE=work; \
                   export AWS_SHARED_CREDENTIALS_FILE=$PWD/keys; ";
    let found = scratch.shell(&format!("{with}{profile} shoal bucket check s3://b/v")).ok();
    assert!(fact(&found, "identity").starts_with("test-key, from profile work in /"), "{found}");
    assert!(fact(&found, "versioning").contains("until a lifecycle rule"), "{found}");
    assert!(fact(&found, "clock").contains("ahead of the store's: set it"), "{found}");
    assert!(!found.contains("hidden"), "{found}");
    // Asking takes a right of its own.
    server.set_weather(|request| match request.is_versioning {
        true => Weather::Answer(403, "AccessDenied", ""),
        false => Weather::Fair,
    });
    let found = scratch.shell(&check).ok();
    assert_eq!(fact(&found, "versioning"), "not known: needs s3:GetBucketVersioning");
    let json = scratch.shell(&format!("{with} shoal bucket check --json s3://b/v")).ok();
    for part in [
        "{\"place\":\"s3://b/v\",",
        "\"identity\":{\"id\":\"test-key\",\"source\":\"environment variables\"}",
        "{\"operation\":\"if_none_match\",\"works\":true}",
        "\"versioning\":\"unknown\"",
        "\"put_ns\":{\"count\":",
        "\"prefix\":{\"state\":\"empty\"}",
        "\"readable\":true,\"writable\":true}",
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
}

#[test]
fn a_check_says_which_single_thing_is_wrong() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let with = variables(&server);
    let check = |status: i32, part: &str| {
        let ran = scratch.shell(&format!("{with} shoal bucket check s3://b/v"));
        let said = ran.fails(status, &["shoal: s3://b/v: ", part]);
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        ran.stdout()
    };
    server.set_key("another");
    let found = check(2, "are the keys right?");
    assert_eq!(fact(&found, "identity"), "test-key, from environment variables");
    assert!(!found.contains("result"), "{found}");
    let json = scratch.shell(&format!("{with} shoal bucket check --json s3://b/v"));
    assert!(json.stdout().contains("\"writable\":false,\"error\":\"s3://b/v: "), "{json}");
    server.set_key(shoal_skip::s3::KEY);
    server.set_weather(|_| Weather::Answer(404, "NoSuchBucket", ""));
    check(2, "create it first");
    // A store that ignores the condition.
    server.set_weather(|_| Weather::Unconditional);
    let found = check(1, "If-None-Match does not work: a second PUT");
    assert!(fact(&found, "If-None-Match").ends_with("use another store"), "{found}");
    assert_eq!((fact(&found, "put"), fact(&found, "overwrite")), ("yes", "yes"));
    // One that knows no conditions.
    let mut puts = 0;
    server.set_weather(move |request| {
        puts += u32::from(request.method == "PUT");
        match puts {
            1 => Weather::Answer(501, "NotImplemented", ""),
            _ => Weather::Fair,
        }
    });
    let found = check(1, "If-None-Match does not work: the store answers 501");
    assert_eq!(fact(&found, "put"), "yes");
    server.set_weather(|_| Weather::Fair);
    server.set_quota(100);
    let found = check(1, "put does not work: the store answers 403");
    assert!(fact(&found, "put").ends_with("a quota of the store is used up"), "{found}");
    assert_eq!(fact(&found, "overwrite"), "not tried: put does not work");
    server.set_quota(u64::MAX);
    assert!(server.names().is_empty(), "{:?}", server.names());
    // What cannot be removed is named, and is one object.
    server.set_weather(|request| match &*request.method {
        "DELETE" | "POST" => Weather::Answer(403, "AccessDenied", ""),
        _ => Weather::Fair,
    });
    let found = check(1, "delete does not work: the store answers 403");
    assert!(fact(&found, "delete").ends_with("needs s3:DeleteObject"), "{found}");
    let names = server.names();
    assert!(fact(&found, "left").contains(&names[0]), "{found} {names:?}");
    assert!(names[0].starts_with("v/race/check-"), "{names:?}");
    server.set_weather(|_| Weather::Fair);
    scratch.shell(&format!("{with} shoal mkfs --trust-store s3://b/v")).ok();
    scratch.shell(&format!("{with} shoal bucket check s3://b/v")).ok();
    let found = scratch.shell(&format!("{with} shoal bucket check s3://b/v/log/x"));
    found.fails(1, &["is inside the volume at prefix 'v'", "choose an empty prefix"]);
    assert!(fact(&found.stdout(), "put").starts_with("not tried: "), "{found}");
    let found = scratch.shell(&format!("{with} shoal bucket check s3://b"));
    found.fails(1, &["holds other objects, such as v/", "a volume at v: choose an empty prefix"]);
}

#[test]
fn a_check_with_keys_that_may_only_read_says_what_works() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let with = variables(&server);
    scratch.shell(&format!("{with} shoal mkfs --trust-store s3://b/v")).ok();
    let before = server.names();
    server.set_weather(|request| match &*request.method {
        "GET" => Weather::Fair,
        _ => Weather::Answer(403, "AccessDenied", ""),
    });
    let ran = scratch.shell(&format!("{with} shoal bucket check s3://b/v"));
    ran.fails(1, &["s3://b/v: put does not work", "needs s3:PutObject"]);
    let found = ran.stdout();
    for operation in &OPERATIONS[..3] {
        assert_eq!(fact(&found, operation), "yes", "{found}");
    }
    assert!(fact(&found, "prefix").ends_with("not in use"), "{found}");
    assert!(fact(&found, "result").contains("replica (-o ro,follow)"), "{found}");
    assert!(fact(&found, "GET").contains(" ms "), "{found}");
    assert_eq!(server.names(), before);
    // Without the right to list, a store does not say that an object is missing.
    server.set_weather(|request| match request.is_list {
        true => Weather::Answer(403, "AccessDenied", ""),
        false => Weather::Fair,
    });
    let ran = scratch.shell(&format!("{with} shoal bucket check s3://b/v"));
    ran.fails(1, &["s3://b/v: list does not work", "needs s3:ListBucket"]);
    assert_eq!(fact(&ran.stdout(), "put"), "yes");
    assert_eq!(server.names(), before);
}

#[test]
fn keys_of_one_prefix_are_enough() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let with = variables(&server);
    server.set_weather(|request| match request.is_list && !request.key.starts_with("a/v/") {
        true => Weather::Answer(403, "AccessDenied", ""),
        false => Weather::Fair,
    });
    let found = scratch.shell(&format!("{with} shoal bucket check s3://b/a/v")).ok();
    let unknown = "empty; not known whether it is inside a volume: the store answers 403";
    assert!(fact(&found, "prefix").starts_with(unknown), "{found}");
    let made = scratch.shell(&format!("{with} shoal mkfs --trust-store s3://b/a/v"));
    assert_eq!(made.status(), Some(0), "{made}");
    assert!(made.stderr().contains("may be inside another volume: these keys"), "{made}");
    scratch.shell(&format!("{with} shoal fsck s3://b/a/v && shoal bucket check s3://b/a/v")).ok();
}

#[test]
fn a_check_of_a_store_that_hangs_ends() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let with = variables(&server);
    let check = format!("{with} shoal bucket check s3://b/v");
    server.set_weather(|_| Weather::Hang);
    let ran = scratch.shell(&check);
    ran.fails(2, &["listing its objects failed", "has not answered within", "does it run?"]);
    assert_eq!(fact(&ran.stdout(), "identity"), "test-key, from environment variables");
    // Later.
    server.set_weather(|request| match &*request.method {
        "PUT" => Weather::Hang,
        _ => Weather::Fair,
    });
    let ran = scratch.shell(&check);
    ran.fails(1, &["put does not work: ", "has not answered within"]);
    assert_eq!(fact(&ran.stdout(), "get"), "yes");
}

#[test]
fn a_check_that_is_interrupted_leaves_nothing() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let with = variables(&server);
    let (reads, asked) = std::sync::mpsc::channel();
    server.set_weather(move |request| {
        if request.method == "GET" && !request.is_list {
            let _ = reads.send(());
            return Weather::Hang;
        }
        Weather::Fair
    });
    let line = format!("{with} echo $$ >pid; exec shoal bucket check s3://b/v");
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| scratch.shell(&line));
        asked.recv().expect("it reads what it has written");
        assert_eq!(server.names().len(), 1, "{:?}", server.names());
        scratch.shell("kill -INT $(cat pid)").ok();
        let ran = ran.join().expect("a result");
        ran.fails(130, &["s3://b/v: interrupted: what was written is removed"]);
    });
    assert!(server.names().is_empty(), "{:?}", server.names());
}

#[test]
fn a_check_beside_a_mount_does_not_harm_it() {
    let Some((scratch, server, with)) = stored("io_uring=off") else { return };
    let check = format!("{with} shoal bucket check s3://b/v");
    let uses = "for n in 1 2 3 4 5 6 7 8 9; do head -c 100000 /dev/urandom >m/new-$n; \
                shoal sync m; done";
    std::thread::scope(|scope| {
        let user = scope.spawn(|| scratch.shell(uses));
        for _ in 0..3 {
            let found = scratch.shell(&check).ok();
            assert!(fact(&found, "prefix").contains("in use by process "), "{found}");
            assert!(OPERATIONS.iter().all(|it| fact(&found, it) == "yes"), "{found}");
        }
        user.join().expect("a result").ok();
    });
    assert!(!server.names().iter().any(|name| name.contains("race")), "{:?}", server.names());
    scratch.shell("diff -r was m/other && cp -r m all && shoal umount m").ok();
    assert!(scratch.shell(&format!("{with} shoal fsck s3://b/v")).ok().contains("clean"));
    scratch.shell(&format!("{with} shoal cp -r s3://b/v:/ back && diff -r all back")).ok();
}
