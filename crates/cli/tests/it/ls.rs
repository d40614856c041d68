//! `shoal ls`, beside ls(1) on a mount of the same volume, byte for byte.

use crate::common::{Scratch, has_gnu};

/// Makes a tree `t` with all types and modes, sizes of many digits, and names that need quotes.
const PLANT: &str = "
    umask 022; mkdir -p t/sub/deeper t/tmp t/open t/sticky &&
    printf 1 > t/one && head -c 123456 /dev/zero > t/zeros.tar && truncate -s 5G t/sparse &&
    printf x > t/.hidden && printf x > t/prog.sh && printf x > t/setuid && printf x > t/setgid &&
    printf x > 't/a b' && printf x > 't/q\"b\\s' && printf x > \"t/n$(printf '\\nl\\tt\\033e')\" &&
    printf x > t/ärger && printf x > \"t/$(printf 'b\\377c')\" && printf x > t/UPPER.TAR &&
    ln t/one t/two && ln -s one t/link && ln -s sub t/dirlink && ln -s none t/broken &&
    ln -s loop t/loop && ln -s prog.sh t/proglink && mkfifo t/pipe && mknod t/null c 1 3 &&
    mknod t/block b 259 65537 && chmod 755 t/prog.sh && chmod 4755 t/setuid &&
    chmod 2755 t/setgid && chmod 1777 t/tmp && chmod 777 t/open && chmod 1755 t/sticky &&
    chown 12345:678 t/one && chown 7 t/tmp && head -c 2000 /dev/zero > t/sub/inner &&
    touch -d '2001-02-03 04:05:06.789 UTC' t/one && touch -d '2030-01-01 UTC' t/prog.sh &&
    touch -d '1969-12-31 23:59 UTC' t/setuid && touch -h -d '2011-11-11 11:11:11 UTC' t/link";

#[rustfmt::skip]
const OPTIONS: &[&str] = &[
    "", "-1", "-a", "-A", "-r", "-t", "-S", "-X", "-U", "-Xr", "-tr", "-i", "-s", "-is", "-sh",
    "-F", "-p", "-Q", "-QF", "-R", "-aR", "-n", "-na", "-nA", "-nR", "-nr", "-nt", "-nS", "-nX",
    "-nU", "-nh", "-nhs", "-nis", "-nish", "-nF", "-np", "-nQ", "-g", "-o", "-go", "-ngh",
    "--full-time", "-n --full-time", "-n --time-style=full-iso", "-n --time-style=long-iso", "-atr",
    "-n --time-style=iso", "-n --time-style=locale", "-n --time-style=+%Y.%m.%d/%H:%M:%S.%N/%s",
    "-n '--time-style=+old %y
new %j'", "--color=always", "-n --color=always", "-nF --color=always", "--color=auto",
    "-aRF --color=always", "-Q --color=always", "--color=never", "-St", "-tS", "-SU", "-US", "-pF",
];

/// Options with which ls(1) shows names of owners unless -n is there, too.
const LONG: &[&str] = &["-g", "-o", "--full-time"];

/// Colors of the variable, besides none.
const COLORS: &[&str] = &[
    "",
    "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33:so=01;35:or=40;31;01:mi=00:ex=01;32:*.tar=01;31:*.sh=5",
    "ln=target:or=31:mi=05;37;41:fi=7:mh=44;37:tw=00:ow=00:st=00:su=00:ex=0",
];

#[test]
fn listings_are_those_of_a_mount() {
    let Some(scratch) = Scratch::to_mount() else { return };
    if !has_gnu(&["ls", "truncate", "touch"]) {
        return;
    }
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shell(&format!("cd m && {PLANT}")).ok();
    scratch.shoal(["sync", "m"]).ok();
    let mut rows = Vec::new();
    for options in OPTIONS {
        let colored = options.contains("color=always");
        for colors in &COLORS[..if colored { COLORS.len() } else { 1 }] {
            // Owners are always numbers here, and the times of one style unless told.
            let is_long = LONG.iter().any(|word| options.starts_with(word));
            let numbers = if is_long { "-n" } else { "" };
            let set = format!("LC_ALL=C.UTF-8 TZ=UTC LS_COLORS='{colors}'");
            let line = format!("cd m && {set} ls {numbers} --time-style=long-iso {options} t");
            let theirs = scratch.shell(&line).ok();
            // On the mount itself it is the same without a change.
            let line = format!("cd m && LS_COLORS='{colors}' shoal ls {options} t");
            assert_eq!(scratch.shell(&line).ok(), theirs, "{options} {colors}");
            rows.push((options, colors, theirs));
        }
    }
    scratch.umount("m");
    for (options, colors, theirs) in rows {
        let ours = scratch.shell(&format!("LS_COLORS='{colors}' shoal ls {options} v:/t")).ok();
        let ours = ours.replace("v:/t", "t");
        assert_eq!(ours, theirs, "{options} {colors}");
    }
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn long_listings_alone_have_no_total() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["mkdir", "v:/a", "v:/b"]).ok();
    let long = scratch.shoal(["ls", "-l", "v"]).ok();
    let numeric = scratch.shoal(["ls", "-n", "v"]).ok();
    assert_eq!(numeric, format!("total 0\n{long}"));
    assert_eq!(scratch.shoal(["ls", "-ld", "v:/a"]).ok().lines().count(), 1);
    assert_eq!(scratch.shoal(["ls", "-nd", "v:/a"]).ok().lines().count(), 1);
    // Aliases repeat options; places may stand among them.
    let repeated =
        scratch.shoal(["ls", "v:/a", "-d", "-1", "-d", "--color=auto", "--color", "v:/b"]);
    assert_eq!(repeated.ok(), "\x1b[0m\x1b[01;34mv:/a\x1b[0m\n\x1b[01;34mv:/b\x1b[0m\n");
    let json = scratch.shoal(["ls", "-n", "--json", "v"]).ok();
    assert!(json.lines().all(|line| line.starts_with('{')), "{json}");
    scratch.shoal(["ls", "-l", "--time-style=short", "v"]).fails(2, &["--time-style", "short"]);
    assert!(scratch.shoal(["ls", "--help"]).ok().contains("--time-style"));
}
