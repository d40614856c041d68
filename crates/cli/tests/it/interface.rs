//! The command line itself: help, usage, exit statuses, generated files, closed pipes.

use crate::common::{Scratch, noise};

#[test]
fn help_and_version_are_on_standard_output() {
    let scratch = Scratch::new();
    let help = scratch.shoal(["--help"]).ok();
    for part in ["mkfs", "generate", "EXIT STATUS:", "VOLUME:/path"] {
        assert!(help.contains(part), "{part} is missing in\n{help}");
    }
    assert!(scratch.shoal(["--version"]).ok().starts_with("shoal "));
    let mount = scratch.shoal(["mount", "--help"]).ok();
    for part in ["sync(2)", "mount.shoal", "SIGTERM", "--foreground"] {
        assert!(mount.contains(part), "{part} is missing in\n{mount}");
    }
    assert!(scratch.shoal(["fsck", "--help"]).ok().contains("16  Wrong usage."));
}

/// Commands in the file of a close relative.
const IN_FILE_OF: &[(&str, &str)] = &[
    ("umount", "mount"),
    ("restore", "dump"),
    ("watch", "changes"),
    ("chown", "chmod"),
    ("touch", "chmod"),
    ("getfacl", "acl"),
    ("setfacl", "acl"),
    ("path", "parents"),
];

#[test]
fn each_command_has_a_file_of_its_name() {
    let help = Scratch::new().shoal(["-h"]).ok();
    let list = help.split("Commands:\n").nth(1).expect("a list of the commands");
    let commands = list.lines().take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"cp") && names.contains(&"copy"), "{names:?}");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands");
    for name in &names {
        let relative = IN_FILE_OF.iter().find(|(command, _)| command == name);
        let file = folder.join(relative.map_or(*name, |(_, file)| file)).with_extension("rs");
        assert!(file.exists(), "{name} is not in {}", file.display());
    }
    let is_command = |name: &str| names.contains(&name);
    assert!(IN_FILE_OF.iter().all(|(command, _)| is_command(command)));
}

#[test]
fn wrong_usage_is_2() {
    let scratch = Scratch::new();
    for line in ["", "frobnicate", "ls", "cp a", "mkfs", "mount v", "ls --frobnicate v"] {
        let ran = scratch.shoal(line.split_whitespace());
        assert_eq!(ran.status(), Some(2), "{ran}");
        assert!(ran.stdout().is_empty() && !ran.stderr().is_empty(), "{ran}");
    }
}

#[test]
fn generated_files_are_written() {
    let scratch = Scratch::new();
    scratch.shoal(["generate", "man", "man"]).ok();
    scratch.shoal(["generate", "completions", "completions"]).ok();
    let page = std::fs::read_to_string(scratch.path("man/shoal-mount.1")).expect("a page");
    for part in [".SH NAME", "shoal\\-mount", ".SH \"EXIT STATUS\"", "sync(2)", "fstab"] {
        assert!(page.contains(part), "{part} is missing in\n{page}");
    }
    assert!(scratch.path("man/mount.shoal.8").exists());
    assert!(scratch.path("completions/_shoal").exists());
    scratch.write("file", "");
    scratch.shoal(["generate", "man", "file"]).fails(1, &["file"]);
}

#[test]
fn a_closed_pipe_is_success() {
    let scratch = Scratch::with_volume();
    for number in 0..2000 {
        scratch.write(format!("d/{}", format!("{number:05}").repeat(20)), "");
    }
    scratch.write("large", noise(1, 4 << 20));
    scratch.shoal(["cp", "-r", "d", "large", "v:/"]).ok();
    for command in ["ls v:/d", "ls -l --json v:/d", "find v:/", "cat v:/large"] {
        let line = format!("{{ shoal {command}; echo $? >&2; }} | head -c 1 >/dev/null");
        let ran = scratch.shell(&line);
        assert_eq!(ran.stderr(), "0\n", "{command}: {ran}");
    }
}

#[test]
fn a_full_disk_under_the_output_is_a_failure() {
    let scratch = Scratch::with_volume();
    if !std::path::Path::new("/dev/full").exists() {
        shoal_skip::skipped("no /dev/full");
        return;
    }
    let ran = scratch.shell("shoal info v > /dev/full");
    ran.fails(1, &["standard output", "no space"]);
}
