//! Commands and options that people type out of habit: df, readlink, truncate, standard input,
//! help, and flags of cp, mv and stat.

use crate::common;

use std::fs;

use crate::common::{SIZE, Scratch, has_gnu, noise, rich_tree};

#[test]
fn df_of_volumes_places_and_mounts() {
    let scratch = Scratch::with_volume();
    scratch.write("large", noise(1, 3 << 20));
    scratch.shoal(["cp", "large", "v:/"]).ok();
    let table = scratch.shoal(["df", "v"]).ok();
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..5], ["Volume", "1K-blocks", "Used", "Available", "Use%"], "{table}");
    assert_eq!((rows[1][0], rows[1][5]), ("v", "-"), "{table}");
    let number = |at: usize| rows[1][at].parse::<u64>().expect("a number");
    assert!(number(1) > 200_000 && number(2) >= 3072 && number(3) + number(2) <= number(1));
    assert!(scratch.shoal(["df", "-h", "v:/large"]).ok().contains("M"));
    let json = scratch.shoal(["df", "--json", "v"]).ok();
    assert!(json.starts_with(r#"{"volume":"v","size":"#) && !json.contains("mount"), "{json}");
    scratch.shoal(["df", "v:/none"]).fails(1, &["v:/none", "no such file"]);
    // A directory with a quota shows that.
    scratch.shoal(["mkdir", "v:/d"]).ok();
    scratch.shoal(["quota", "set", "v:/d", "--bytes", "10M"]).ok();
    let limited = scratch.shoal(["df", "v:/d"]).ok();
    assert!(limited.lines().nth(1).expect("a row").contains(" 10240 "), "{limited}");

    if !shoal_skip::can_mount() {
        return;
    }
    for dir in ["m", "n"] {
        fs::create_dir(scratch.path(dir)).expect("mkdir");
    }
    scratch.shoal(["mount", "v", "m"]).ok();
    let (m, v) = (scratch.path("m"), scratch.path("v"));
    // All mounts of this machine would include those of other tests, which may not answer.
    let mounts = shoal_fuse::mounts().expect("the list of mounts");
    assert!(mounts.iter().any(|(dir, source)| *dir == m && *source == v), "{mounts:?}");
    for line in ["shoal df m", "shoal df m/large"] {
        let table = scratch.shell(line).ok();
        let row = table.lines().find(|line| line.ends_with(&m.display().to_string()));
        assert!(row.expect("a row").starts_with(&v.display().to_string()), "{line}: {table}");
    }
    // The same figures as df(1), which rounds them as we do.
    let ours = scratch.shell("shoal df m | tail -1 | awk '{print $2, $3, $4, $5}'").ok();
    let theirs = scratch.shell("df -k m | tail -1 | awk '{print $2, $3, $4, $5}'").ok();
    assert_eq!(ours, theirs);
    let ours = scratch.shell("shoal df -i m | tail -1 | awk '{print $2, $3, $4, $5}'").ok();
    let theirs = scratch.shell("df -i m | tail -1 | awk '{print $2, $3, $4, $5}'").ok();
    assert_eq!(ours, theirs);
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["df", "n"]).fails(2, &["n", "not in a mounted"]);
}

#[test]
fn readlink_prints_targets() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["ln", "-s", "to/a", "v:/a"]).ok();
    scratch.shoal(["ln", "-s", "to b\n", "v:/b"]).ok();
    assert_eq!(scratch.shoal(["readlink", "v:/a"]).ok(), "to/a\n");
    assert_eq!(scratch.shoal(["readlink", "-n", "v:/a"]).ok(), "to/a");
    assert_eq!(scratch.shoal(["readlink", "-z", "v:/a", "v:/b"]).ok(), "to/a\0to b\n\0");
    scratch.shoal(["touch", "v:/file"]).ok();
    let ran = scratch.shoal(["readlink", "v:/file", "v:/none", "v:/a"]);
    assert_eq!((ran.status(), ran.stdout()), (Some(1), "to/a\n".into()), "{ran}");
    assert!(ran.stderr().contains("v:/file: is not a symlink"), "{ran}");
    if !shoal_skip::can_mount() {
        return;
    }
    fs::create_dir(scratch.path("m")).expect("mkdir");
    scratch.shoal(["mount", "v", "m"]).ok();
    assert_eq!(scratch.shoal(["readlink", "m/a"]).ok(), "to/a\n");
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn truncate_changes_sizes() {
    let scratch = Scratch::with_volume();
    let size = |place: &str| {
        let text = scratch.shoal(["stat", "-c", "%s", place]).ok();
        text.trim().parse::<u64>().expect("a size")
    };
    scratch.shoal(["truncate", "-s", "1M", "v:/a"]).ok();
    assert_eq!(size("v:/a"), 1 << 20);
    for (by, now) in [("+1K", 1_049_600), ("-1M", 1024), ("<10", 10), (">20", 20), ("0", 0)] {
        scratch.shoal(["truncate", "-s", by, "v:/a"]).ok();
        assert_eq!(size("v:/a"), now, "{by}");
    }
    scratch.shoal(["truncate", "-c", "-s", "5", "v:/none"]).ok();
    scratch.shoal(["stat", "v:/none"]).fails(1, &["no such file"]);
    scratch.shoal(["mkdir", "v:/d"]).ok();
    scratch.shoal(["truncate", "-s", "5", "v:/d"]).fails(1, &["v:/d", "is a directory"]);
    scratch.shoal(["truncate", "-s", "5", "v:/no/file"]).fails(1, &["no such file"]);
    // What is cut off is gone, and comes back as zeros.
    scratch.write("text", "0123456789");
    scratch.shoal(["cp", "text", "v:/text"]).ok();
    scratch.shoal(["truncate", "-s", "4", "v:/text"]).ok();
    scratch.shoal(["truncate", "-s", "6", "v:/text"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/text"]).bytes(), b"0123\0\0");
    scratch.shoal(["fsck", "v"]).ok();
    if !shoal_skip::can_mount() {
        return;
    }
    fs::create_dir(scratch.path("m")).expect("mkdir");
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shoal(["truncate", "-s", "+3", "m/text", "m/new"]).ok();
    assert_eq!((size("m/text"), size("m/new")), (9, 3));
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn standard_input_becomes_a_file() {
    let scratch = Scratch::with_volume();
    let bytes = noise(4, 3_000_001);
    scratch.write("bytes", &bytes);
    scratch.shell("cat bytes | shoal cp - v:/copy").ok();
    assert!(scratch.shoal(["cat", "v:/copy"]).bytes() == bytes);
    // It is overwritten, and shorter.
    scratch.shell("printf short | shoal cp - v:/copy").ok();
    assert_eq!(scratch.shoal(["cat", "v:/copy"]).ok(), "short");
    scratch.shell("shoal cp - v:/empty </dev/null").ok();
    assert_eq!(scratch.shoal(["stat", "-c", "%s", "v:/empty"]).ok(), "0\n");
    scratch.shoal(["cp", "-", "v:/"]).fails(1, &["v:/", "is a directory", "give one"]);
    scratch.shoal(["cp", "-", "local"]).fails(2, &["local", "VOLUME:/path"]);
    scratch.shoal(["cp", "-", "v:/no/copy"]).fails(1, &["no such file"]);
    // More than fits: what was written is there, and it is said.
    scratch.shoal(["mkfs", "small", "--size", "16M"]).ok();
    let full = scratch.shell("head -c 64M /dev/urandom | shoal cp - small:/copy");
    full.fails(1, &["small:/copy", "no space"]);
    scratch.shoal(["fsck", "small"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn help_is_a_command_too() {
    let scratch = Scratch::new();
    assert_eq!(scratch.shoal(["help"]).ok(), scratch.shoal(["--help"]).ok());
    assert_eq!(scratch.shoal(["help", "ls"]).ok(), scratch.shoal(["ls", "--help"]).ok());
    let set = scratch.shoal(["help", "quota", "set"]).ok();
    assert_eq!(set, scratch.shoal(["quota", "set", "--help"]).ok());
    assert_eq!(scratch.shoal(["help", "frobnicate"]).status(), Some(2));
}

#[test]
fn cp_leaves_alone_what_it_is_told() {
    let scratch = Scratch::with_volume();
    scratch.write("a/one", "new");
    scratch.write("a/two", "new");
    scratch.write("b/one", "old");
    scratch.shoal(["cp", "-r", "b/.", "v:/t"]).ok();
    let said = scratch.shoal(["cp", "-rnv", "a/.", "v:/t"]).ok();
    assert!(said.contains("two") && !said.contains("one"), "{said}");
    let read = |name: &str| scratch.shoal(["cat", &format!("v:/t/{name}")]).ok();
    assert_eq!((read("one"), read("two")), ("old".into(), "new".into()));
    // -u: only what is newer.
    scratch.shell("touch -d 2001-01-01 a/one && touch -d 2030-01-01 a/two && echo x >> a/two").ok();
    scratch.shell("touch -d 2030-01-01 a/two").ok();
    scratch.shoal(["cp", "-ru", "a/.", "v:/t"]).ok();
    assert_eq!((read("one"), read("two")), ("old".into(), "newx\n".into()));
    scratch.shoal(["cp", "-Rpf", "a/.", "v:/t"]).ok();
    assert_eq!(read("one"), "new");
    // Out of a volume as well.
    scratch.write("b/one", "mine");
    scratch.shoal(["cp", "-n", "v:/t/one", "b/one"]).ok();
    assert_eq!(fs::read_to_string(scratch.path("b/one")).expect("read"), "mine");
    assert_eq!(scratch.shoal(["cp", "-nu", "v:/t/one", "b"]).status(), Some(2));
}

#[test]
fn mv_tells_and_replaces() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["touch", "v:/a", "v:/b"]).ok();
    assert_eq!(scratch.shoal(["mv", "-fv", "v:/a", "v:/b"]).ok(), "v:/a -> v:/b\n");
    scratch.shoal(["touch", "v:/a"]).ok();
    scratch.shoal(["mv", "-n", "v:/a", "v:/b"]).fails(1, &["v:/a", "exists"]);
    scratch.shoal(["mv", "-nf", "v:/a", "v:/b"]).ok();
}

/// Byte for byte stat(1), of everything that a directory can hold.
#[test]
fn stat_prints_as_it_is_told() {
    let Some(scratch) = Scratch::to_mount() else { return };
    if !has_gnu(&["stat"]) {
        return;
    }
    rich_tree(&scratch);
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shell("cp -a t m/").ok();
    let formats = [
        "%n|%N|%F|%a|%A|%f|%s|%b|%B|%o|%h|%i|%u|%g|%U|%G|%t|%T",
        "%x|%y|%z|%w|%X|%Y|%Z|%W|%.3X|%.9Y|%.0Z",
        "[%10s][%-10s][%010s]%%",
    ];
    let all = "find m/t -print0 | sort -z | xargs -0";
    for format in formats {
        let ours = scratch.shell(&format!("{all} shoal stat --format '{format}'")).ok();
        let theirs = scratch.shell(&format!("{all} env TZ=UTC stat --format '{format}'")).ok();
        for (our, their) in ours.lines().zip(theirs.lines()) {
            assert_eq!(our, their, "{format}");
        }
        assert_eq!(ours.lines().count(), theirs.lines().count());
    }
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(scratch.shoal(["stat", "-c", "%F %s", "v:/t/small"]).ok(), "regular file 6\n");
    scratch.shoal(["stat", "-c", "%q", "v:/t"]).fails(2, &["--format", "no field %q"]);
}

#[test]
fn subvolumes_of_a_mounted_volume() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    // The kernel knows that there is no such name.
    assert!(!scratch.path("m/ci").exists());
    scratch.shoal(["subvolume", "create", "m", "ci", "--mode", "2770"]).ok();
    assert!(scratch.path("m/ci").is_dir());
    assert_eq!(scratch.shell("stat -c %a m/ci").ok(), "2770\n");
    scratch.shoal(["subvolume", "create", "m", "ci"]).fails(1, &["m:/ci", "exists"]);
    scratch.shoal(["subvolume", "create", "m", "a/b"]).fails(2, &["cannot be the name"]);
    for n in 0..300 {
        scratch.write(format!("m/ci/d{}/{n}", n % 7), "contents");
    }
    let list = scratch.shoal(["subvolume", "list", "m"]).ok();
    assert!(list.contains(" ci\n"), "{list}");
    scratch.shell("chmod 777 m").ok();
    common::run_as_user(&scratch, "shoal subvolume create m mine").fails(1, &["not permitted"]);
    scratch.shoal(["mkdir", "v:/ci/by_a_session", "--direct"]).fails(2, &["use"]);
    scratch.shoal(["mkdir", "v:/ci/by_a_session"]).ok();
    assert!(scratch.path("m/ci/by_a_session").is_dir());
    scratch.shell("mkdir m/plain && ls -R m >n/all").ok();
    scratch.shoal(["subvolume", "delete", "m", "plain"]).fails(1, &["is not a subvolume"]);
    scratch.shoal(["subvolume", "delete", "m", "none"]).fails(1, &["no such subvolume"]);
    scratch.shoal(["subvolume", "list", "m/plain"]).ok();
    scratch.shoal(["subvolume", "create", "m/plain", "y"]).fails(2, &["below a mount"]);
    // Somebody is in it, with a file open.
    let open = fs::File::open(scratch.path("m/ci/d1/1")).expect("open");
    let said = scratch.shoal(["subvolume", "delete", "m", "ci"]).ok();
    assert!(said.contains("m:/ci: deleted; its space is being freed"), "{said}");
    assert!(!scratch.path("m/ci").exists() && !scratch.path("m/ci/d1/1").exists());
    drop(open);
    scratch.shoal(["subvolume", "create", "m", "two"]).ok();
    scratch.write("m/two/file", "x");
    let said = scratch.shoal(["subvolume", "delete", "m", "two", "--wait"]).ok();
    assert!(said.contains("deleted, and its space is free"), "{said}");
    assert_eq!(scratch.shoal(["subvolume", "list", "m"]).ok(), "");
    scratch.shoal(["subvolume", "create", "m", "ci"]).ok();
    assert_eq!(scratch.shell("ls m/ci").ok(), "");
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["mount", "v", "m", "-o", "subvolume=ci"]).ok();
    scratch.shoal(["subvolume", "list", "m"]).fails(1, &["not permitted"]);
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn info_of_a_mount_tells_what_is_served() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["label", "v", "of info"]).ok();
    scratch.shoal(["mount", "v", "m", "-o", "allow_other,noatime,cache=64M"]).ok();
    let keeper = shoal_fuse::server_pid(&scratch.path("m")).expect("a keeper");
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let pid = children.expect("its children").trim().to_owned();
    let info = words(&scratch.shoal(["info", "m"]).ok());
    for part in [
        &format!("\nvolume {}", scratch.path("v").display())[..],
        "\nlabel of info\n",
        "\nfeatures parent-pointers",
        "\noptions allow_other,noatime,cache=67108864\n",
        "\nwritable yes\n",
        &format!("\nserver process {pid}, shoal "),
        &format!("\nkeeper process {keeper}\n"),
        "\nscrub none since",
        "\nsize 256 MiB",
        "\njournal_replay_bytes ",
    ] {
        assert!(info.contains(part), "{part} is missing in\n{info}");
    }
    scratch.shoal(["scrub", "m"]).ok();
    // That writes a checkpoint.
    scratch.shoal(["label", "m", "of info"]).ok();
    let info = scratch.shoal(["info", "m"]).ok();
    for name in ["\nscrub ", "\ncheckpoint "] {
        let row = info.split(name).nth(1).and_then(|rest| rest.lines().next()).expect("a row");
        assert!(row.ends_with(" s ago"), "{info}");
    }
    let json = scratch.shoal(["info", "--json", "m"]).ok();
    let processes = format!(r#""keeper":{keeper},"#);
    let server = format!(r#""server":{pid},"#);
    for part in [
        r#""label":"of info""#,
        r#""writable":true"#,
        r#""features":["parent-pointers","verified-tail"]"#,
        &processes,
        &server,
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    scratch.shell("chmod 755 m").ok();
    // Others are told what concerns them.
    let theirs = common::as_user(&scratch, "shoal info m");
    assert!(theirs.contains("available") && !theirs.contains("options"), "{theirs}");
    scratch.shoal(["umount", "m"]).ok();
    let closed = words(&scratch.shoal(["info", "v"]).ok());
    assert!(closed.contains("\nlabel of info\nmade 20"), "{closed}");
    scratch.shoal(["mkfs", "w", "--size", SIZE]).ok();
    scratch.shoal(["mount", "v", "m", "-o", "keeper=off"]).ok();
    let alone = words(&scratch.shoal(["info", "m"]).ok());
    assert!(alone.contains("\nkeeper none: the mount ends with its server\n"), "{alone}");
    assert!(scratch.shoal(["info", "--json", "m"]).ok().contains(r#""keeper":null"#));
    scratch.shoal(["umount", "m"]).ok();
}

/// Lines with one blank between words, a line end before each: columns are as wide as needed.
fn words(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(|text| format!("\n{}", line(text))).chain(["\n".to_owned()]).collect()
}

#[test]
fn a_mounted_volume_is_known_by_its_path() {
    let Some(scratch) = Scratch::to_mount() else { return };
    std::os::unix::fs::symlink("v", scratch.path("link")).expect("symlink");
    for options in ["allow_other", "fsname=other"] {
        scratch.shoal(["mount", "v", "m", "-o", options]).ok();
        let dir = scratch.path("m").display().to_string();
        for volume in ["v", "link"] {
            let info = words(&scratch.shoal(["info", volume]).ok());
            assert!(info.contains("\nsize 256 MiB"), "{options}");
            let line = format!("df --json {volume}");
            let df = scratch.shoal(line.split(' ')).ok();
            assert!(df.contains(&format!(r#""volume":"{volume}","mount":"{dir}""#)), "{df}");
            assert!(scratch.shoal(["stats", volume]).ok().contains("\nrequests:\n"));
            let at = format!("mounted at {dir}: unmount it there");
            scratch.shoal(["ls", volume]).ok();
            let (ls, make) = (["--direct", "ls", volume], ["--direct", "mkdir", "v:/d"]);
            for line in [&ls[..], &["dump", volume, "-o", "x"], &make] {
                let error = scratch.shoal(line).fails(2, &["is in use by process", &at]);
                assert!(!error.contains("--foreground"), "{error}");
            }
        }
        scratch.shoal(["grow", "link", "--size", "256M"]).fails(1, &["already"]);
        scratch.shoal(["umount", "m"]).ok();
    }
    scratch.shoal(["mount", "v", "m"]).ok();
    let grown = scratch.shoal(["grow", "v", "--size", "0.3G"]).ok();
    assert!(grown.contains("v: 256 MiB before, 307 MiB now"), "{grown}");
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
}
