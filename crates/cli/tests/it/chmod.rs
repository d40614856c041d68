//! `shoal chmod`, `chown` and `touch`, beside the usual tools on a copy of the same tree.

use crate::common::{Scratch, has_gnu};
use shoal_skip::tick;

const PLANT: &str = "
    umask 022; mkdir -p t/d/e t/open && printf 1 > t/f && printf 2 > t/d/g && printf 3 > t/d/e/h &&
    ln -s ../f t/d/link && ln -s nowhere t/broken && ln -s d t/dirlink && ln t/f t/hard &&
    chmod 755 t/d/g && chmod 6711 t/open && chmod 4755 t/d/e/h && chmod 3770 t/d/e";

/// Makes the tree, and a volume with it under its own path.
fn planted() -> Option<Scratch> {
    if !has_gnu(&["chmod", "chown", "touch", "find", "sort"]) {
        return None;
    }
    let scratch = Scratch::with_volume();
    scratch.shell(PLANT).ok();
    scratch.shell("shoal mkdir -p v:$PWD && shoal cp -r t v:$PWD/").ok();
    Some(scratch)
}

/// Runs a command with both, `%` being the tree, and compares what it says and what is there then.
#[track_caller]
fn same(scratch: &Scratch, line: &str, format: &str) {
    let theirs = scratch.shell(&format!("umask 022; TZ=UTC {}", line.replace('%', "$PWD/t")));
    let ours = scratch.shell(&format!("umask 022; shoal {}", line.replace('%', "v:$PWD/t")));
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(|line| line.replace("'v:", "'")).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(ours.ok()), sorted(theirs.ok()), "{line}");
    let theirs = scratch.shell(&format!("find $PWD/t -printf '{format}' | sort")).ok();
    let ours = scratch.shell(&format!("shoal find v:$PWD/t -printf '{format}' | sort")).ok();
    assert_eq!(ours, theirs, "after {line}");
}

#[test]
fn chmod_is_that_of_the_system() {
    let Some(scratch) = planted() else { return };
    // Of two links, the one that comes first in the directory is said to be changed.
    scratch.shell("rm t/hard && shoal rm v:$PWD/t/hard").ok();
    let lines = [
        "chmod 600 %/f",
        "chmod -v u+x %/f %/d/g",
        "chmod -c u+x,g+w %/f %/d/g",
        "chmod +w %/d/g",
        "chmod =rX %/d/g",
        "chmod a=rw,u+s %/d/link",
        "chmod 750 %/open",
        "chmod u=rwx,g=u,o= %/open",
        "chmod -v 00750 %/open",
        "chmod -Rv go-rwx,a+X %",
        "chmod -R u=rwX,go=rX %/d",
        "chmod -R g+s,+t %/dirlink",
        "chmod -Rc 755 %",
        "chmod -R o-x,u-s %",
    ];
    for line in lines {
        same(&scratch, line, "%m %p %l\\n");
    }
    assert_eq!(scratch.shoal(["chmod", "u+y", "v:/"]).status(), Some(2));
    scratch.shoal(["chmod", "600", "v:/none", "v:/"]).fails(1, &["v:/none", "no such file"]);
    assert_eq!(scratch.shoal(["find", "v", "-maxdepth", "0", "-printf", "%m"]).ok(), "600");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn chown_is_that_of_the_system() {
    let Some(scratch) = planted() else { return };
    if !shoal_skip::is_root() {
        shoal_skip::skipped("only root may give files away, to compare with");
        return;
    }
    let lines = [
        "chown 12:34 %/f",
        "chown 13 %/d/link",
        "chown -h 14:15 %/d/link %/broken",
        "chown :16 %/d %/dirlink",
        "chown root:root %/open",
        "chown -R 17:18 %/dirlink",
        "chown -R 19:20 %",
        "chown 21 %/d/e/h",
    ];
    for line in lines {
        same(&scratch, line, "%U %G %m %p\\n");
    }
    for bad in ["nobody-here", "1:nobody-here", "1:", "-1"] {
        let refused = scratch.shell(&format!("shoal chown -- {bad} v:/"));
        refused.fails(2, &[bad]);
    }
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn touch_is_that_of_the_system() {
    let Some(scratch) = planted() else { return };
    // Times that neither this machine's clock nor a reader changes.
    scratch.shell("touch -d '2001-02-03 UTC' old").ok();
    let lines = [
        "touch -d @1000000000 %/f %/d %/d/e %/open % %/d/g %/d/e/h",
        "touch -h -d @1000000001 %/d/link %/broken %/dirlink",
        "touch -d '2011-12-13 14:15:16' %/new %/d %",
        "touch -m -d '2012-12-13 14:15' %/f",
        "touch -d 2013-12-13 %/dirlink %/d/link",
        "touch -c -d @5 %/none",
        "touch -r old %/hard",
        "touch -d @7 %",
    ];
    scratch.shoal(["touch", "-cr", "v:/", "v:/"]).ok();
    for (done, line) in lines.iter().enumerate() {
        // The first two give all files the same times.
        let format = if done < 2 { "%p %m\\n" } else { "%T@ %m %p\\n" };
        same(&scratch, line, format);
    }
    let times =
        |format: &str| scratch.shell(&format!("shoal find v:$PWD/t/f -printf '{format}'")).ok();
    same(&scratch, "touch -d @50 %/f %/d/e", "%p\\n");
    scratch.shell("shoal touch -a -d @60 v:$PWD/t/f && shoal touch -m -d @70 v:$PWD/t/f").ok();
    assert_eq!(times("%A@ %T@"), "60.0000000000 70.0000000000");
    scratch.write("now", "");
    tick();
    scratch.shell("shoal touch -a v:$PWD/t/f").ok();
    let newer = scratch.shell("shoal find v:$PWD/t/f -anewer now ! -newer now -printf x").ok();
    assert_eq!(newer, "x");
    scratch.shoal(["touch", "v:/none/x"]).fails(1, &["v:/none/x", "no such file"]);
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn with_recursion_each_name_counts() {
    let Some(scratch) = planted() else { return };
    // The file with two names is changed twice, by both.
    for line in ["chmod -R u=g,g=o,o=u %", "chmod -R u+rwx,g=u,o=g %", "chmod -R 0700 %/f %/d"] {
        same(&scratch, line, "%m %p %l\\n");
    }
    let line = "shoal touch -R -d @1000000009 v:$PWD/t && shoal find v:$PWD/t -printf '%T@ %p\\n'";
    let times = scratch.shell(line).ok();
    assert_eq!(times.lines().count(), 11);
    assert!(times.lines().all(|line| line.starts_with("1000000009.0")), "{times}");
    let none = scratch.shoal(["info", "v", "--json"]).ok();
    assert!(none.contains("\"tree_changes\":0") || none.contains("\"tree_changes\": 0"), "{none}");
    // More clauses than one call takes: file by file.
    let long = vec!["u+x"; 40].join(",");
    scratch.shell(&format!("shoal chmod -R {long} v:$PWD/t/d")).ok();
    let mode = scratch.shell("shoal find v:$PWD/t/d/e/h -printf %m").ok();
    assert_eq!(mode, "700");
    scratch.shoal(["fsck", "v"]).ok();
}
