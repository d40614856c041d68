//! `shoal du`, beside du(1) on a mount of the same volume, byte for byte and in the same order.

use crate::common::{Scratch, as_user, has_gnu};

/// Makes a tree `t` with sizes on both sides of the units, hard links, symlinks and empty parts. It
/// is so large that `du -s` does not walk it.
const PLANT: &str = "
    mkdir -p t/a/b/c t/empty t/many 't/odd name' &&
    head -c 100 /dev/zero > t/small && head -c 4096 /dev/urandom > t/a/page &&
    head -c 5000 /dev/urandom > t/a/b/more && head -c 1300000 /dev/urandom > t/a/b/c/large &&
    ln t/a/b/c/large t/many/linked && ln t/a/page t/a/b/again && ln -s a/page t/soft &&
    mkfifo t/pipe && head -c 70000 /dev/urandom > 't/odd name/x y.o' &&
    truncate -s 20M t/sparse && for n in $(seq 1100); do echo $n > t/many/$n; done";

#[rustfmt::skip]
const OPTIONS: &[&str] = &[
    "t", "-a t", "-s t", "-h t", "-ah t", "-hc t", "-k t", "-m t", "-ma t", "-d 1 t", "-d 0 t",
    "--max-depth=2 -a t", "--inodes t", "--inodes -s t", "--inodes -h t", "-S t", "-Sc t", "-l t",
    "-la t", "-0 t", "-t 1M t", "-a -t -20K t", "-t -1 t", "-s t/a t/many", "-s t/many t/a",
    "-c t/a/b t", "-c t t/a/b", "-a t t/a/b/more", "-ca t/small t/soft", "--exclude=b t",
    "--exclude='*.o' -a t", "--exclude='a/*' t", "--exclude=t t",
    "--exclude='[0-9]*' --exclude=pipe -a t", "-x t", "-ch t/a/../many t/many", "-s t/ t/a/",
    "-sh t", "-sm t", "-sc t", "-sS t", "-sl t", "-sx t", "-s -t 1M t", "-s --exclude=b t",
    "-sc t/empty t/many", "-sc t/a t/many", "-sc t/many t/a/page", "-sc t/empty t/a/page t/soft",
    "-a -d 0 t", "-c -d 0 t/a/b t/empty", "--inodes -sc t/many t/empty", "-B M t", "-BMB -a t",
    "-B 512 -ac t", "-BkB -s t", "--block-size=MiB -sh t", "-h -B 1000 t", "-k -BK -S t",
    "-b -BK t/a/page t/small", "--time t", "-sc --time t/a t/many",
    "--time=status --time-style=+%s -S t", "--time=use t/small",
    "-ac --time=ctime --time-style=full-iso t", "-d 1 --time --time-style=iso -h t",
];

#[test]
fn sizes_are_those_of_a_mount() {
    let Some(scratch) = Scratch::to_mount() else { return };
    if !has_gnu(&["du", "truncate"]) {
        return;
    }
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    scratch.shell(&format!("cd m && {PLANT}")).ok();
    scratch.shoal(["sync", "m"]).ok();
    let theirs: Vec<_> =
        OPTIONS.iter().map(|it| scratch.shell(&format!("cd m && TZ=UTC du {it}")).ok()).collect();
    for (options, theirs) in OPTIONS.iter().zip(&theirs) {
        let ours = scratch.shell(&format!("cd m && shoal du {options}")).ok();
        assert_eq!(ours, *theirs, "on the mount: {options}");
        let ours = as_user(&scratch, &format!("cd m && shoal du {options}"));
        assert_eq!(ours, *theirs, "by a user, who counts by walking: {options}");
    }
    let files = scratch.shell("cd m && find t -type f -exec du -b {} + | sort").ok();
    let ours = scratch.shell("cd m && shoal find t -type f -print0 | xargs -0 shoal du -b | sort");
    assert_eq!(ours.ok(), files);
    scratch.umount("m");
    // A path in the volume begins with a slash; a pattern of the whole path has to, too.
    for (options, theirs) in OPTIONS.iter().zip(theirs) {
        let ours = options.split(' ').map(|word| match word.strip_prefix('t') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("v:/{word}"),
            _ => word.to_owned(),
        });
        let ours = ours.collect::<Vec<_>>().join(" ");
        let ours = scratch.shell(&format!("shoal du {ours}")).ok();
        assert_eq!(ours.replace("\t/", "\t"), theirs, "{options}");
    }
    let ours =
        scratch.shell("shoal find v:/t -type f -printf 'v:%p\\0' | xargs -0 shoal du -b | sort");
    assert_eq!(ours.ok().replace("\t/", "\t"), files);
    let sum = scratch.shell("shoal find v:/t ! -type d -links 1 -printf '%s+' && echo 0").ok();
    let sizes = sum.trim().split('+').map(|size| size.parse::<u64>().expect("a size"));
    // Each of the linked files counts once.
    let expected = sizes.sum::<u64>() + 1_300_000 + 4096;
    assert_eq!(scratch.shoal(["du", "-sb", "v:/t"]).ok(), format!("{expected}\t/t\n"));
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn subvolumes_count_unless_told_otherwise() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["subvolume", "create", "v", "s"]).ok();
    scratch.shoal(["mkdir", "v:/s/in", "v:/out"]).ok();
    let inodes = |options: &[&str]| scratch.shoal([&["du", "--inodes"], options].concat()).ok();
    assert_eq!(inodes(&["-s", "v"]), "4\t/\n");
    assert_eq!(inodes(&["-sx", "v"]), "2\t/\n");
    assert_eq!(inodes(&["v:/s"]), "1\t/s/in\n2\t/s\n");
    // From within another place it is found again, whichever comes first.
    assert_eq!(inodes(&["-s", "v", "v:/s"]), "4\t/\n");
    assert_eq!(inodes(&["-s", "v:/s", "v"]), "2\t/s\n2\t/\n");
}

#[test]
fn a_missing_place_is_reported_and_the_others_counted() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["mkdir", "v:/a"]).ok();
    let ran = scratch.shoal(["du", "--inodes", "v:/none", "v:/a"]);
    ran.fails(1, &["v:/none", "no such file"]);
    assert_eq!(ran.stdout(), "1\t/a\n");
    scratch.shoal(["du", "w:/a"]).fails(2, &["w"]);
}

#[test]
fn json_has_space_and_inodes_of_each_line() {
    let scratch = Scratch::with_volume();
    scratch.write("t/d/a", [b'x'; 100_000]);
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    for (options, bytes) in [("", 100_352), ("--apparent-size", 100_000)] {
        let line = format!("du --json -c {options} v:/t");
        let said = scratch.shoal(line.split_whitespace()).ok();
        let object = |path: &str, inodes: u32| {
            format!("{{\"path\":\"{path}\",\"bytes\":{bytes},\"inodes\":{inodes}}}\n")
        };
        let expected = [("/t/d", 2), ("/t", 3), ("total", 3)];
        assert_eq!(said, expected.map(|(path, n)| object(path, n)).concat());
    }
    let timed = scratch.shoal("du --json -s --time v:/t".split(' ')).ok();
    let timed: serde_json::Value = serde_json::from_str(&timed).expect("an object");
    assert!(timed["newest"]["sec"].as_i64().is_some_and(|sec| sec > 0), "{timed}");
    assert_eq!(scratch.shoal("du --json -s v:/t".split(' ')).ok().lines().count(), 1);
}
