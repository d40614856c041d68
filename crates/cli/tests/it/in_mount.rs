//! The commands that read trees, on a mounted path: beside the usual tools there, by root and by an
//! ordinary user, and where it is no mount.

use crate::common::{Ran, Scratch, USER, as_user, has_gnu, run_as_user, unmount};

/// Mounts a volume on `m` for all users.
fn mounted() -> Option<Scratch> {
    let scratch = Scratch::to_mount()?;
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    scratch.shell("chmod 755 . m").ok();
    Some(scratch)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Makes directories that an ordinary user may and may not list or search.
const CLOSED: &str = "
    cd m && mkdir -p t/open/deep t/none/in t/search/in t/read/in t/mine t/group &&
    for d in t t/open t/open/deep t/none t/none/in t/search t/search/in t/read t/read/in; do
        echo $d > $d/file && ln -s file $d/link
    done && chmod 700 t/none && chmod 711 t/search && chmod 744 t/read && chmod 700 t/mine &&
    chown 61001:61001 t/mine && echo x > t/mine/x && chmod 750 t/group && chgrp 4242 t/group";

/// Returns the names of the files in messages: those of find(1) and ours differ in their words.
fn refused(ran: &Ran) -> Vec<String> {
    let errors = ran.stderr();
    let denied = errors.lines().map(|line| {
        assert!(line.to_lowercase().ends_with(": permission denied"), "{line}");
        line.split(": ").nth(1).expect("a name").trim_matches(['\'', '"']).to_owned()
    });
    let mut names: Vec<String> = denied.collect();
    names.sort_unstable();
    names
}

#[test]
fn a_user_finds_what_find_finds() {
    let Some(scratch) = mounted() else { return };
    if !has_gnu(&["find"]) {
        return;
    }
    scratch.shell(CLOSED).ok();
    for (place, expression) in [
        ("t", ""),
        ("t", "-name file"),
        ("t/open t/none t/search", "-type d"),
        ("t", "-depth"),
        ("t/none t/open", ""),
        ("t/none/in", "-maxdepth 0"),
        ("t/read", ""),
        ("./t/../t/open", "-newer t/file"),
        ("t/search/file t/search/link t/search/in", ""),
        ("t/open t/mine t/search", "-size +0 -printf '%p %s %i %n %U %l\\n'"),
    ] {
        let line = |tool: &str| format!("cd m && LC_ALL=C {tool} {place} {expression}");
        let theirs = run_as_user(&scratch, &line("find"));
        let ours = run_as_user(&scratch, &line("shoal find"));
        assert_eq!(sorted(&ours.stdout()), sorted(&theirs.stdout()), "{place} {expression}");
        assert_eq!(refused(&ours), refused(&theirs), "{place} {expression}");
        assert_eq!(ours.status(), theirs.status(), "{place} {expression}");
    }
    // Attributes of what is in `t/read` are refused one by one there, and here all at once.
    let ours = run_as_user(&scratch, "cd m && shoal find t/read t/open -size +0 | sort");
    let names = ["", "/deep", "/deep/file", "/deep/link", "/file", "/link"];
    let names: String = names.iter().map(|name| format!("t/open{name}\n")).collect();
    assert_eq!(ours.stdout(), names + "t/read\n");
    assert_eq!(refused(&ours), ["t/read"]);
    // Groups count.
    let by_group = |groups: &str| {
        let set = format!("setpriv --reuid {USER} --regid {USER} {groups}");
        scratch.shell(&format!("cd m && {set} $(command -v shoal) find t/group"))
    };
    assert_eq!(by_group("--groups 4242").ok(), "t/group\n");
    by_group("--clear-groups").fails(1, &["t/group", "permission denied"]);
    unmount(&scratch);
}

#[test]
fn a_user_lists_and_counts_what_the_usual_tools_do() {
    let Some(scratch) = mounted() else { return };
    if !has_gnu(&["ls", "du", "stat"]) {
        return;
    }
    scratch.shell(CLOSED).ok();
    let set = "cd m && LC_ALL=C.UTF-8 TZ=UTC";
    for places in [
        "t",
        "t/open",
        "t/file t/link t/search/file",
        "t/mine t/open",
        "-R t/mine t/open",
        "-d t/none",
    ] {
        let theirs = run_as_user(&scratch, &format!("{set} ls -n --time-style=long-iso {places}"));
        let ours = run_as_user(&scratch, &format!("{set} shoal ls -n {places}"));
        assert_eq!(ours.ok(), theirs.ok(), "{places}");
    }
    let theirs = run_as_user(
        &scratch,
        &format!("{set} ls -nR --time-style=long-iso t/mine t/none t/search"),
    );
    let ours = run_as_user(&scratch, &format!("{set} shoal ls -nR t/mine t/none t/search"));
    assert_eq!(ours.stdout(), theirs.stdout());
    assert_eq!((ours.status(), ours.stderr().lines().count()), (Some(1), 2));
    for options in ["t", "-s t", "-a t", "-d 1 t", "-s t/open t/none"] {
        let theirs = run_as_user(&scratch, &format!("{set} du {options}"));
        let ours = run_as_user(&scratch, &format!("{set} shoal du {options}"));
        assert_eq!(ours.stdout(), theirs.stdout(), "{options}");
        assert_eq!(ours.status(), theirs.status(), "{options}");
    }
    let stat = as_user(&scratch, "cd m && shoal stat t/mine/x");
    let gnu = as_user(&scratch, "stat -c '%i %s %a %u' m/t/mine/x");
    let words: Vec<&str> = gnu.split_whitespace().collect();
    for (label, value) in [("Inode: ", words[0]), ("Size: ", words[1]), ("Uid: ", words[3])] {
        assert!(stat.contains(&format!("{label}{value} ")), "{label}{value}: {stat}");
    }
    run_as_user(&scratch, "cd m && shoal stat t/none/file").fails(1, &["t/none/file", "denied"]);
    unmount(&scratch);
}

#[test]
fn stat_is_that_of_the_volume() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("cd m && mkdir d && echo x > d/f && ln -s d/f l && mknod n b 259 65537").ok();
    scratch.shell("cd m && shoal sync . && touch -d '2001-02-03 UTC' d/f").ok();
    let places = ["d", "d/f", "l", "n", "."];
    let of = |options: &str, place: &str| {
        scratch.shell(&format!("cd m && shoal stat {options} {place}")).ok()
    };
    let mut seen = Vec::new();
    for options in ["", "-L", "--json"] {
        seen.extend(places.map(|place| (options, place, of(options, place))));
    }
    unmount(&scratch);
    for (options, place, theirs) in seen {
        let ours = scratch.shell(&format!("shoal stat {options} v:/{place}")).ok();
        let ours = ours.replace("File: v:/", "File: ").replace(r#""path":"/"#, r#""path":""#);
        assert_eq!(ours, theirs, "{options} {place}");
    }
}

#[test]
fn deletion_on_a_mount_is_that_of_find() {
    let Some(scratch) = mounted() else { return };
    if !has_gnu(&["find"]) {
        return;
    }
    let plant = "mkdir -p t/a/b/c t/d/e t/.git t/keep && echo x > t/a/one.rs &&
        echo y > t/a/b/two.rs && ln t/a/one.rs t/d/hard && ln -s ../a t/d/dir && echo z > t/.git/o";
    scratch.shell(&format!("cd m && mkdir x y && for p in x y; do (cd $p && {plant}); done")).ok();
    for expression in [
        "-type f -links 2 -delete",
        "-name '*.rs' -size +0 -print -delete",
        "-type l -delete",
        "-type d -empty -delete",
        "-name .git -prune -o -depth -name nothing -delete",
        "-mindepth 1 -delete",
        "",
        "-delete",
        "",
    ] {
        let theirs =
            scratch.shell(&format!("cd m/x && find t {expression} 2>/dev/null; find . | sort"));
        let ours = scratch
            .shell(&format!("cd m/y && shoal find t {expression} 2>/dev/null; find . | sort"));
        assert_eq!(ours.stdout(), theirs.stdout(), "{expression}");
    }
    // The place itself as `.` stays, and a user cannot remove what is not his.
    scratch.shell("mkdir m/z && echo x > m/z/f").ok();
    let refused = run_as_user(&scratch, "cd m && shoal find z -name f -delete");
    refused.fails(1, &["z/f", "permission denied"]);
    assert_eq!(
        scratch.shell("cd m/z && shoal find . -delete && cd .. && ls -d z z/*").stdout(),
        "z\n"
    );
    scratch.shell("echo x > m/z/one && shoal find m/z/one -delete && ls m/z").ok();
    unmount(&scratch);
}

/// Removal follows no symlink, also if one takes the place of a directory.
#[test]
fn deletion_stays_below_its_place() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("cd m && mkdir -p out t/d && echo x > out/f && echo x > t/d/f").ok();
    scratch.shell("cd m && ln -s ../out t/link && ln -s d t/again").ok();
    scratch.shoal(["find", "m/t", "-name", "f", "-delete"]).ok();
    assert_eq!(scratch.shell("ls m/out m/t/d").ok(), "m/out:\nf\n\nm/t/d:\n");
    unmount(&scratch);
}

#[test]
fn subvolumes_on_a_mount() {
    let scratch = Scratch::to_mount();
    let Some(scratch) = scratch else { return };
    scratch.shoal(["subvolume", "create", "v", "s"]).ok();
    scratch.shoal(["mkdir", "v:/s/in", "v:/out"]).ok();
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shoal(["mount", "v", "n", "-o", "subvol=s"]).status();
    let find = |words: &str| scratch.shell(&format!("shoal find {words} | sort")).ok();
    assert_eq!(find("m"), "m\nm/out\nm/s\nm/s/in\n");
    assert_eq!(find("m -xdev"), "m\nm/out\nm/s\n");
    assert_eq!(find("m/s"), "m/s\nm/s/in\n");
    assert_eq!(find("m/s/in"), "m/s/in\n");
    assert_eq!(scratch.shoal(["du", "--inodes", "-s", "m"]).ok(), "4\tm\n");
    assert_eq!(scratch.shoal(["du", "--inodes", "-sx", "m"]).ok(), "2\tm\n");
    assert_eq!(scratch.shoal(["du", "--inodes", "m/s"]).ok(), "1\tm/s/in\n2\tm/s\n");
    unmount(&scratch);
}

#[test]
fn places_that_are_in_no_mount() {
    let scratch = Scratch::with_volume();
    scratch.shell("mkdir d && echo x > d/f").ok();
    for command in ["ls", "find", "du", "stat"] {
        scratch.shoal([command, "d"]).fails(2, &["d", "is not in a mounted Shoal volume"]);
        // A file may be a volume.
        scratch.shoal([command, "d/f"]).fails(2, &["d/f"]);
        scratch.shoal([command, "d/none"]).fails(2, &["d/none", "does not exist"]);
    }
    assert_eq!(scratch.shoal(["find", "v"]).ok(), "/\n", "a volume by its name");
}

#[test]
fn missing_places_in_a_mount() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("echo x > m/f && ln -s loop m/loop && ln -s none m/dangling").ok();
    for command in ["ls", "find", "du", "stat"] {
        scratch.shoal([command, "m/none"]).fails(1, &["m/none", "no such file"]);
        scratch.shoal([command, "m/none/x/y"]).fails(1, &["m/none/x/y", "no such file"]);
        scratch.shoal([command, "m/f/x"]).fails(1, &["m/f/x", "not a directory"]);
        scratch.shoal([command, "m/f/"]).fails(1, &["m/f/", "not a directory"]);
    }
    scratch.shoal(["stat", "-L", "m/dangling"]).fails(1, &["m/dangling", "no such file"]);
    scratch.shoal(["stat", "-L", "m/loop"]).fails(1, &["m/loop"]);
    scratch.shoal(["stat", "m/loop"]).ok();
    assert_eq!(scratch.shoal(["find", "m/f", "m/loop"]).ok(), "m/f\nm/loop\n");
    assert_eq!(scratch.shoal(["find", "m", "-samefile", "m/f"]).ok(), "m/f\n");
    unmount(&scratch);
}

/// Answers, in the order of the questions, which GNU's find asks in the same words.
#[test]
fn find_asks_as_find_does() {
    let Some(scratch) = mounted() else { return };
    if !has_gnu(&["find"]) {
        return;
    }
    scratch.shell("mkdir -p m/t/open").ok();
    scratch.shell("touch m/t/open/c m/t/open/d").ok();
    let [theirs, ours] = ["find", "shoal find"].map(|tool| {
        let places = "t/open/c t/open/d t/open t/open/c -maxdepth 0";
        let command = "-ok sh -c 'echo $1' sh {} ';' -print";
        let dirs = "-o -okdir echo {} ';'";
        let answers = "y\\nno\\nn\\nYes\\nY\\n";
        let line = format!("cd m && printf '{answers}' | {tool} {places} {command} {dirs}");
        let ran = scratch.shell(&line);
        (ran.status(), ran.stdout(), ran.stderr())
    });
    assert_eq!(ours, theirs);
    // The answers are not for the command.
    let cat = "cd m && printf 'y\\nn\\n' | shoal find t/open/c t/open/d -ok cat ';'";
    assert_eq!(scratch.shell(cat).stdout(), "");
    assert!(ours.2.contains("< sh ... t/open/c > ? "), "{}", ours.2);
    unmount(&scratch);
}

#[test]
fn commands_of_find_run_as_those_of_find() {
    let Some(scratch) = mounted() else { return };
    if !has_gnu(&["find", "grep"]) {
        return;
    }
    scratch.shell(CLOSED).ok();
    scratch
        .shell("cd m/t && echo y > 'open/a b' && ln -s none dangling && ln -s open dirlink")
        .ok();
    for expression in [
        "-exec echo {} ';'",
        "-exec echo '{}{}' x{}y end ';'",
        "-name file -exec grep -q open {} ';' -print",
        "-type f -exec grep -l t {} +",
        "-exec false {} ';' -o -print",
        "-type d -exec echo {} + -o -name file -exec echo files {} +",
        "-execdir pwd ';'",
        "-execdir echo {} ';'",
        "-type f -execdir sh -c 'pwd; echo \"$#\"; cat \"$@\"' sh {} +",
        "-maxdepth 0 -execdir echo {} ';'",
        "-name a\\ b -exec sh -c 'rm \"$1\"' sh {} ';' -print",
        "-print -quit -exec echo {} +",
        "-xtype l",
        "-xtype f,d -type l",
        "-xtype d",
    ] {
        let [theirs, ours] = ["find", "shoal find"].map(|tool| {
            // Each removes a file of its own.
            scratch.shell("echo y > 'm/t/open/a b'").ok();
            let ran = scratch.shell(&format!("cd m && {tool} t {expression}"));
            assert!(ran.stderr().is_empty(), "{ran}");
            (ran.status(), ran.stdout())
        });
        let [sorted_theirs, sorted_ours] = [&theirs.1, &ours.1].map(|text| {
            // The files of one command come in the order of the directory.
            let mut words: Vec<&str> = text.split_whitespace().collect();
            words.sort_unstable();
            words
        });
        assert_eq!(sorted_ours, sorted_theirs, "{expression}");
        assert_eq!(ours.0, theirs.0, "{expression}");
    }
    let find = |words: &str| scratch.shell(&format!("cd m && shoal find t/open {words}"));
    find("-exec sh -c 'exit 3' sh {} +").fails(1, &["-exec", "exit status: 3"]);
    find("-maxdepth 0 -exec no-such-command {} ';'").fails(1, &["no-such-command", "no such file"]);
    assert_eq!(find("-exec false ';'").ok(), "");
    let relative = "PATH=$PATH:. ; shoal find m -execdir echo ';'";
    scratch.shell(relative).fails(2, &["-execdir", "PATH"]);
    scratch.shoal(["find", "v:/", "-exec", "ls", "{}", ";"]).fails(2, &["-exec", "-print0"]);
    // More than one command line holds.
    scratch.shell("mkdir m/many && cd m/many && seq -f %0200g 2000 | xargs touch").ok();
    let counts = scratch.shell("shoal find m/many -type f -exec sh -c 'echo $#' sh {} +").ok();
    let counts: Vec<usize> = counts.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(counts.len() > 1, "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 2000);
    unmount(&scratch);
}

/// Files that a command changes are seen as they are then.
#[test]
fn commands_see_each_file_as_it_is() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("cd m && mkdir d && echo x > d/a && for n in 1 2 3 4; do ln d/a d/$n; done").ok();
    let removed =
        scratch.shell("cd m && shoal find d -links +1 -type f -exec rm {} ';' -print | wc -l");
    assert_eq!(removed.ok().trim(), "4", "the last one has one link by then");
    unmount(&scratch);
}

#[test]
fn days_count_from_midnight_with_daystart() {
    let Some(scratch) = mounted() else { return };
    if !has_gnu(&["find", "touch"]) {
        return;
    }
    let set = "export TZ=UTC; mkdir -p m/d && cd m/d";
    let plant =
        "for h in $(seq 1 5 120); do touch -d \"$h hours ago\" $h; done; touch -d tomorrow 0";
    scratch.shell(&format!("{set} && {plant}")).ok();
    let expressions =
        ["-mtime 0", "-mtime -1", "-mtime 1", "-mtime +1", "-mtime -3", "-mmin -60", "-mmin +600"];
    for expression in expressions {
        // At midnight the two may see different days.
        let same = (0..3).any(|_| {
            let [theirs, ours] = ["find", "shoal find"].map(|tool| {
                scratch.shell(&format!("{set} && {tool} . -daystart {expression} | sort")).ok()
            });
            ours == theirs
        });
        assert!(same, "{expression}");
    }
    unmount(&scratch);
}

#[test]
fn single_files_are_changed_where_they_are_mounted() {
    let Some(scratch) = mounted() else { return };
    scratch.write("m/empty", "");
    scratch.write("m/a", "a\n");
    assert_eq!(scratch.shoal(["cat", "m/empty", "m/a"]).ok(), "a\n");
    scratch.shoal(["cat", "m"]).fails(1, &["m: is a directory"]);
    scratch.shoal(["cat", "m/none"]).fails(1, &["m/none: no such file"]);
    scratch.shoal(["cat", "m", "--token", "x"]).fails(2, &[".shoal-open/TOKEN"]);
    let line = "umask 077 && shoal mkdir m/d && shoal mkdir -m 1757 m/d/e && umask 0777 &&
                shoal mkdir -p m/d/x/y/z m/d && stat -c '%a' m/d m/d/e m/d/x m/d/x/y/z";
    assert_eq!(scratch.shell(line).ok(), "700\n1757\n300\n0\n");
    scratch.shoal(["mkdir", "m/d"]).fails(1, &["m/d: file exists"]);
    scratch.shoal(["mkdir", "-p", "m/a/b"]).fails(1, &["m/a/b: not a directory"]);

    scratch.shoal(["ln", "m/a", "m/b"]).ok();
    scratch.shoal(["ln", "-s", "../a", "m/d"]).ok();
    scratch.shoal(["ln", "m/a", "m/empty"]).fails(1, &["m/empty: file exists"]);
    scratch.shoal(["ln", "-f", "m/a", "m/empty"]).ok();
    scratch.shoal(["ln", "m/d", "m/e"]).fails(1, &["second name"]);
    assert_eq!(scratch.shell("stat -c %h m/a && readlink m/d/a").ok(), "3\n../a\n");

    assert_eq!(scratch.shoal(["mv", "-v", "m/b", "m/d"]).ok(), "m/b -> m/d/b\n");
    scratch.shoal(["mv", "m/a", "m/empty"]).fails(1, &["is the same file"]);
    scratch.shoal(["mv", "-n", "m/a", "m/d/a"]).fails(1, &["m/a: file exists"]);
    scratch.shoal(["mv", "m/d", "m/d/in"]).fails(1, &["into itself"]);
    scratch.shoal(["mv", "v:/a", "m/x"]).fails(2, &["is not in the destination's volume"]);
    scratch.shoal(["mv", "--exchange", "m/d/a", "m/a"]).ok();
    assert_eq!(scratch.shell("readlink m/a && cat m/d/a").ok(), "../a\na\n");

    scratch.shoal(["xattr", "set", "m/d/a", "user.note", "see b"]).ok();
    scratch.shoal(["xattr", "set", "--create", "m/d/a", "user.note", "c"]).fails(1, &["exists"]);
    assert_eq!(scratch.shoal(["xattr", "get", "m/d/a", "user.note"]).ok(), "see b");
    assert_eq!(scratch.shoal(["xattr", "ls", "-l", "m/d/a"]).ok(), "     5 user.note\n");
    scratch.shoal(["xattr", "rm", "m/d/a", "user.note"]).ok();
    scratch.shoal(["xattr", "get", "m/d/a", "user.note"]).fails(1, &["no such attribute"]);
    unmount(&scratch);
}

#[test]
fn a_file_of_a_user_is_called_neither_a_volume_nor_empty() {
    let scratch = Scratch::new();
    scratch.write("notes", "");
    scratch.write("text", "text");
    for name in ["notes", "text", "none", "."] {
        for line in [
            &["cat", name][..],
            &["ls", name],
            &["mkdir", name],
            &["mv", "x", name],
            &["ln", "x", name],
            &["xattr", "ls", name],
        ] {
            if (line[0], name) == ("ls", "none") {
                continue;
            }
            let error = scratch.shoal(line).fails(2, &[name, "is not in a mounted Shoal volume"]);
            assert!(!error.contains("mkfs"), "{error}");
        }
    }
}

/// Commands do by system calls what these can, if there is no way to the server's socket.
#[test]
fn without_a_session_commands_work_by_system_calls() {
    let Some(scratch) = Scratch::to_mount() else { return };
    if !has_gnu(&["find"]) {
        return;
    }
    scratch.shoal(["mount", "v", "m", "-o", "allow_other,session=off"]).ok();
    scratch.shell("chmod 755 . m").ok();
    scratch.shell(CLOSED).ok();
    // More than are listed at a time.
    scratch.shell("mkdir m/t/many && cd m/t/many && seq 3000 | xargs touch").ok();
    for expression in ["t", "t -size +0 -printf '%p %s %i %n %U %l\\n'"] {
        let line = |tool: &str| format!("cd m && LC_ALL=C {tool} {expression}");
        let (ours, theirs) = (scratch.shell(&line("shoal find")), scratch.shell(&line("find")));
        assert_eq!(sorted(&ours.stdout()), sorted(&theirs.stdout()), "{expression}");
        let said = ours.stderr();
        assert!(said.contains("t: works by system calls") && said.lines().count() == 1, "{said}");
        let theirs = run_as_user(&scratch, &line("find"));
        let ours = run_as_user(&scratch, &line("shoal find"));
        assert_eq!(sorted(&ours.stdout()), sorted(&theirs.stdout()), "{expression}, by a user");
        assert_eq!(ours.status(), theirs.status());
    }
    let ran = scratch.shoal(["chown", "-R", "61001:4242", "m/t"]);
    assert_eq!(ran.status(), Some(0), "{}", ran.stderr());
    assert_eq!(scratch.shell("find m/t -not -user 61001").ok(), "");
    let sums = |tool: &str| scratch.shell(&format!("{tool} -s --inodes m/t 2>/dev/null")).ok();
    assert_eq!(sums("shoal du"), sums("du"));
    scratch.shoal(["changes", "m"]).fails(1, &["m", "no socket here", "session=..."]);
    scratch.shoal(["ls", "v:/"]).fails(2, &["in use", "unmount it there"]);
    unmount(&scratch);
}

/// A session refuses what the kernel refuses on a view of a mount.
#[test]
fn a_read_only_view_is_not_changed() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("mkdir -p m/t/d n && echo 1 >m/t/d/f").ok();
    scratch.shell("mount --bind m/t n && mount -o remount,bind,ro n").ok();
    assert_eq!(scratch.shoal(["find", "n"]).ok(), "n\nn/d\nn/d/f\n");
    for line in ["chown -R 5 n", "touch -R -d @5 n", "chmod -R 700 n", "rm -r n/d"] {
        assert_eq!(scratch.shoal(line.split(' ')).status(), Some(1), "{line}");
    }
    assert_eq!(scratch.shell("find m/t -user 5").ok(), "");
    scratch.shell("mount -o remount,bind,rw n").ok();
    scratch.shoal(["chown", "-R", "5", "n"]).ok();
    assert_eq!(scratch.shell("find m/t -user 5").ok().lines().count(), 3);
    // Below the view, its own path is no path of the mount.
    scratch.shell("mkdir m/other && mount -t tmpfs none m/other && touch m/other/file").ok();
    scratch.shoal(["find", "m/other"]).fails(2, &["not in a mounted"]);
    scratch.shell("umount m/other n").ok();
    unmount(&scratch);
}

/// The paths of a volume are not those of a subvolume that is mounted alone.
#[test]
fn a_volume_of_which_a_part_is_served_is_in_use() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["subvolume", "create", "v", "part"]).ok();
    scratch.shell("echo whole >f && shoal cp f v:/f && echo part >f && shoal cp f v:/part/f").ok();
    scratch.shoal(["mount", "v", "m", "-o", "subvolume=part"]).ok();
    assert_eq!(scratch.shell("cat m/f").ok(), "part\n");
    scratch.shoal(["cat", "v:/f"]).fails(2, &["in use"]);
    scratch.shoal(["rm", "v:/f"]).fails(2, &["in use"]);
    assert_eq!(scratch.shoal(["find", "m", "-type", "f"]).ok(), "m/f\n");
    unmount(&scratch);
    assert_eq!(scratch.shoal(["cat", "v:/f"]).ok(), "whole\n");
}
