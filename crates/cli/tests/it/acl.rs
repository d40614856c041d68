//! `shoal getfacl` and `setfacl`, beside the usual tools on a copy of the same tree.

use crate::common::{Scratch, has_gnu};

const PLANT: &str = "
    umask 022; mkdir -p t/d/e && printf 1 > t/f && printf 2 > t/d/g && printf 3 > t/d/e/h &&
    ln -s ../f t/d/link && chmod 755 t/d/g && chmod 640 t/f && chmod 3770 t/d/e";

/// Makes the tree, and a volume with a copy. `None` where lists cannot be compared.
fn planted() -> Option<Scratch> {
    if !has_gnu(&["find"]) {
        return None;
    }
    let scratch = Scratch::with_volume();
    scratch.shell(PLANT).ok();
    let probe = scratch.shell("setfacl -m u:5:rwx t/f && setfacl -b t/f && getfacl t/f");
    if probe.status() != Some(0) {
        eprintln!("SKIPPED: no setfacl, or a file system without lists (apt-get install acl)");
        return None;
    }
    scratch.shell("shoal cp -r t v:/").ok();
    Some(scratch)
}

/// Files in any order. One without a default list is not told at all by getfacl -d, but for an
/// empty line.
const ORDER: &str = "tr '\\n' '|' | sed 's/||/|\\n/g' | grep -v '^|*$' | sort";

/// Changes both, and compares the lists of everything. `ours`: the tree that Shoal changes.
#[track_caller]
fn same(scratch: &Scratch, ours: &str, args: &str) {
    let theirs = scratch.shell(&format!("setfacl {}", args.replace('%', "t")));
    let top = ours;
    let ours = scratch.shell(&format!("shoal setfacl {}", args.replace('%', top)));
    assert_eq!(ours.status() == Some(0), theirs.status() == Some(0), "{ours}\n{theirs}");
    for options in ["-R", "-Rne", "-RcE", "-Ra", "-Rcd"] {
        let theirs = scratch.shell(&format!("getfacl {options} t | {ORDER}")).ok();
        let ours = scratch.shell(&format!("shoal getfacl {options} {top} | {ORDER}")).ok();
        assert_eq!(ours.replace(top, "t"), theirs, "getfacl {options} after setfacl {args}");
    }
}

#[test]
fn lists_change_as_by_the_system() {
    let Some(scratch) = planted() else { return };
    CHANGES.iter().for_each(|args| same(&scratch, "v:/t", args));
}

/// The same through a mount, whose kernel has known all old lists.
#[test]
fn lists_of_a_mounted_tree_change_as_by_the_system() {
    let Some(scratch) = planted() else { return };
    if !shoal_skip::can_mount() {
        return;
    }
    scratch.shell("mkdir m && shoal mount v m -o allow_other && chmod 755 m").ok();
    for args in CHANGES {
        same(&scratch, "m/t", args);
        let theirs = scratch.shell(&format!("getfacl -R t | {ORDER}")).ok();
        let shown = scratch.shell(&format!("getfacl -R m/t | {ORDER}")).ok();
        assert_eq!(shown.replace("m/t", "t"), theirs, "what the kernel shows after {args}");
    }
    // The rules of files are those of the mount.
    let user = "setpriv --reuid 1234 --clear-groups";
    let refused = scratch.shell(&format!("{user} shoal setfacl -R -m u:5:r m/t/d"));
    assert_eq!(refused.status(), Some(1), "{refused}");
    assert!(refused.stderr().contains("m/t/d/g: operation not permitted"), "{refused}");
    scratch.shell(&format!("{user} shoal setfacl -m u:5:r m/t/f")).fails(1, &["not permitted"]);
    scratch.shell("chown 1234 m/t/f").ok();
    scratch.shell(&format!("{user} shoal setfacl -m u:5:r m/t/f")).ok();
    assert!(scratch.shell("getfacl -n m/t/f").ok().contains("user:5:r--"));
    scratch.umount("m");
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

const CHANGES: &[&str] = &[
    "-m u:1234:rwx %/f",
    "-m g:7:rX,m::rx %/f %/d/g",
    "-x u:1234 %/f",
    "-n -m u:8:rwx %/f",
    "-d -m u:5:rwx %/d",
    "-m d:g:7:rX,u:9:x %/d/e",
    "-R -m u:1000:rwX,d:u:1000:rwX %",
    "-R -x u:1000 -n %/d",
    "-R --set u::rwX,g::rX,o::-,u:6:7 %/d",
    "-m u:6:r %/d/link",
    "-k %/d",
    "-x m %/f",
    "-x g:7,u:8,u:1000,m %/f",
    "-d -m u:5:r %/f",
    "-R -d -m u:5:r,g:bin:x %/d",
    "-b -m u:7:rw %/d",
    "-R -b %",
];

#[test]
fn bad_arguments_and_long_lists() {
    let scratch = Scratch::with_volume();
    scratch.shell("mkdir t && printf 1 > t/f && shoal cp -r t v:/").ok();
    for (args, says) in [
        ("-m u:5 v:/t", "'u:5' is no entry"),
        ("-m u:no-such-user:r v:/t", "is no entry"),
        ("-x u:5:r v:/t", "write u:1000 or m"),
    ] {
        scratch.shell(&format!("shoal setfacl {args}")).fails(2, &[says]);
    }
    assert_eq!(scratch.shell("shoal setfacl v:/t").status(), Some(2));
    scratch.shell("shoal setfacl -m d:u:5:r v:/t/f").fails(1, &["only directories"]);
    // More than one call can note: file by file.
    let long: Vec<String> = (100..140).map(|id| format!("u:{id}:rX")).collect();
    scratch.shell(&format!("shoal setfacl -R -m {} v:/t", long.join(","))).ok();
    let lists = scratch.shell("shoal getfacl -Rn v:/t | grep -c '^user:1[0-9][0-9]:r'").ok();
    assert_eq!(lists.trim(), "80");
}
