//! The helpers that mount(8), umount(8), fsck(8) and mkfs(8) run, with fstab and remounts.
//!
//! They need root and `/dev/fuse`; without, each test is skipped.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use crate::common::{Scratch, is_mount};
use shoal_skip::skipped;

/// Names under which the command is a helper.
const NAMES: [&str; 5] =
    ["mount.shoal", "mount.fuse.shoal", "umount.fuse.shoal", "fsck.shoal", "mkfs.shoal"];

/// Runs a script with the helpers installed over `/sbin`, in a mount namespace of its own, so that
/// nothing is changed. The script stops at the first command that fails. Returns its output.
fn installed(scratch: &Scratch, script: &str) -> Option<String> {
    let sbin = fs::canonicalize("/sbin").expect("a /sbin");
    let script = format!(
        "mount -t tmpfs none n && mkdir n/up n/work || exit 77
         mount -t overlay -o lowerdir={sbin},upperdir=n/up,workdir=n/work none {sbin} || exit 77
         for name in {names}; do ln -sf {binary} {sbin}/$name || exit 77; done
         flags() {{ findmnt -no OPTIONS m; }}
         no() {{ # PATTERN COMMAND...: it fails, and says so.
           local pattern=$1; shift
           if \"$@\" 2>error; then echo \"not refused: $*\"; exit 1; fi
           grep -q \"$pattern\" error || {{ cat error; exit 1; }}
         }}
         set -eu
         {script}",
        sbin = sbin.display(),
        names = NAMES.join(" "),
        binary = env!("CARGO_BIN_EXE_shoal"),
    );
    scratch.write("script", script);
    let ran = scratch.shell("unshare -m --propagation private bash script");
    if ran.status() == Some(77) {
        skipped("no namespaces or no overlay here");
        return None;
    }
    assert_eq!(ran.status(), Some(0), "{ran}");
    Some(ran.stdout())
}

#[test]
fn the_helper_does_what_mount_asks_for() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let binary = env!("CARGO_BIN_EXE_shoal");
    symlink(binary, scratch.path("mount.shoal")).expect("symlink");
    scratch.shell("./mount.shoal v m -f -o rw,nofail").ok();
    assert!(!is_mount(&scratch.path("m")));
    scratch.shell("./mount.shoal v m -n -o ro,user,x-systemd.automount").ok();
    assert!(is_mount(&scratch.path("m")));
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(scratch.shell("./mount.shoal v m -o frobnicate").status(), Some(1));
    scratch.shell("./mount.shoal v m -s -o frobnicate").ok();
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(scratch.shell("./mount.shoal missing m").status(), Some(32));
    assert_eq!(scratch.shell("./mount.shoal v nodir").status(), Some(32));
    assert_eq!(scratch.shell("./mount.shoal").status(), Some(1));
    assert_eq!(scratch.shell("./mount.shoal v m -o remount,ro").status(), Some(32));
}

#[test]
fn mount_t_shoal_works() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let script = "mount -t shoal \"$PWD/v\" m -o cache=64M && echo hello > m/file
        umount m && shoal cat v:/file";
    let Some(out) = installed(&scratch, script) else { return };
    // umount(8) returns when the volume is released.
    assert_eq!(out, "hello\n");
    assert_eq!(scratch.shoal(["cat", "v:/file"]).ok(), "hello\n");
}

/// mount(8) does not pass on its own defaults, so that what a mount without options allows was
/// forbidden, and could not be asked for.
#[test]
fn set_id_bits_and_devices_as_mount_has_them() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let script = "
        check() { mount -t shoal \"$PWD/v\" m -o $1; echo \"$1: $(flags)\"; umount m; }
        check rw; check suid,dev; check nosuid,noexec; check user; check users,exec
        check allow_other,no_default_permissions";
    let Some(out) = installed(&scratch, script) else { return };
    let flags: Vec<&str> = out.lines().collect();
    let has = |at: usize, flag: &str| flags[at].contains(flag);
    assert!(
        (0..2).all(|at| !has(at, "nosuid") && !has(at, "nodev") && !has(at, "noexec")),
        "{out}"
    );
    assert!(has(2, ",nosuid") && has(2, ",noexec") && !has(2, "nodev"), "{out}");
    assert!(has(3, ",nosuid") && has(3, ",nodev") && has(3, ",noexec"), "{out}");
    assert!(has(4, ",nosuid") && has(4, ",nodev") && !has(4, "noexec"), "{out}");
    // Where the kernel does not check permissions, devices would be open to everybody.
    assert!(!has(5, "nosuid") && has(5, ",nodev"), "{out}");
    // The command itself stays on the safe side.
    scratch.shoal(["mount", "v", "m"]).ok();
    let plain = scratch.shell("findmnt -no OPTIONS m").ok();
    assert!(plain.contains("nosuid") && plain.contains("nodev"), "{plain}");
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn lines_of_fstab() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let script = "
        line() { echo \"$PWD/v $PWD/m shoal $1 0 2\" > fstab; }
        try() { mount -T fstab \"$PWD/m\"; findmnt -no SOURCE,FSTYPE,OPTIONS m; umount m; }
        line x-systemd.automount,x-systemd.device-timeout=5s,noauto,nofail,_netdev,comment=a; try
        line user,owner,group,users,X-mount.mkdir=755,ro; try
        line defaults,noatime,allow_other,cache=64M; try
        mount -T fstab -a && mount -T fstab -a && findmnt -no TARGET \"$PWD/m\" && umount m
        line noauto; mount -T fstab -a; if findmnt m; then exit 1; fi
        # The boot script's check of what is to be mounted.
        line defaults; export FSTAB_FILE=fstab; fsck -T -a \"$PWD/v\"; fsck -T -A -a";
    let Some(out) = installed(&scratch, script) else { return };
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].contains("fuse.shoal rw,relatime"), "{out}");
    assert!(lines[1].contains("fuse.shoal ro,nosuid,nodev,noexec"), "{out}");
    assert!(lines[2].contains("noatime") && lines[2].contains("allow_other"), "{out}");
    assert_eq!(lines[3], scratch.path("m").to_str().expect("text"), "mounted once: {out}");
    assert!(lines[4..].iter().all(|line| line.contains("v: clean, was closed")), "{out}");
    assert_eq!(lines.len(), 6, "{out}");
}

#[test]
fn mkfs_by_type() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let script = "truncate -s 256M w && mkfs -t shoal \"$PWD/w\" && mount -t shoal \"$PWD/w\" m
        touch m/file && umount m && shoal ls w";
    let Some(out) = installed(&scratch, script) else { return };
    assert!(out.ends_with("file\n"), "{out}");
}

/// It ended in "mount.fuse: not found" once.
#[test]
fn a_remount_makes_it_read_only_and_writable_again() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let script = "
        mount -t shoal \"$PWD/v\" m -o allow_other,cache=64M,noexec
        mkdir m/d && echo text > m/d/file && sleep 0.02
        mount -o remount,ro m && flags
        no Read-only touch m/new
        # Requests that the kernel does not interpret.
        no read-only shoal rm -r m/d
        no read-only shoal chown -R 1:1 m/d
        no read-only shoal quota set m/d --bytes 1M
        no read-only shoal subvolume create m sub
        # Nothing has to be replayed, although nobody has closed the volume.
        cp v copy && shoal fsck --force copy >checked
        cat m/d/file; stat -c %x m/d/file >atime1; cat m/d/file >n/out; stat -c %x m/d/file >atime2
        cmp atime1 atime2
        mount -o remount,rw,noatime m && flags && touch m/new && shoal rm -r m/d
        umount m && shoal ls v && grep closed checked";
    let Some(out) = installed(&scratch, script) else { return };
    let lines: Vec<&str> = out.lines().collect();
    for (at, parts) in [
        (0, &["ro,", "noexec", "relatime", "allow_other"][..]),
        (1, &["text"]),
        (2, &["rw,", "noexec", "noatime", "allow_other"]),
        (3, &["new"]),
    ] {
        assert!(parts.iter().all(|part| lines[at].contains(part)), "{at}: {out}");
    }
    let closed = lines.last().expect("lines");
    assert!(closed.contains("the 0 records of its journal"), "{out}");
}

#[test]
fn what_a_remount_cannot_do_is_said() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let script = "
        refused() { if mount -o remount,$1 m 2>error; then echo \"$1: done\"; else
            echo \"$1: $? $(cat error)\"; fi; }
        mount -t shoal \"$PWD/v\" m
        refused ro,cache=64M; refused no_xattr; refused subvolume=x; refused frobnicate
        exec 5>m/open; refused ro; exec 5>&-; flags
        umount m; mount -t shoal \"$PWD/v\" m -o ro
        refused rw; flags; refused ro,noatime; umount m";
    let Some(out) = installed(&scratch, script) else { return };
    for part in [
        "cache=64M: 32 shoal: cannot remount",
        "option \"cache=64M\" cannot change while the volume is mounted: unmount it",
        "option \"no_xattr\" cannot",
        "option \"subvolume=x\" cannot",
        "unknown mount option \"frobnicate\"",
        "ro: 32 shoal: cannot remount",
        "m: files are open for writing",
        "for writing: its server has opened the volume read-only",
        "ro,noatime: done",
    ] {
        assert!(out.contains(part), "{part} is missing in\n{out}");
    }
    let flags: Vec<_> = out.lines().filter(|line| line.contains("user_id=0")).collect();
    assert!(flags[0].starts_with("rw,") && flags[1].starts_with("ro,"), "{out}");
}

#[test]
fn umount_waits_and_knows_the_options_of_umount() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let script = "
        mount -t shoal \"$PWD/v\" m -o nosuid && exec 5<m
        no 'in use' umount m
        umount -r m && flags
        exec 5<&- && umount -v m 2>&1 && shoal info v | grep closed
        mount -t shoal \"$PWD/v\" m && exec 5<m && umount -l m && exec 5<&-
        for n in $(seq 3000); do shoal info v >/dev/null 2>&1 && break; sleep 0.1; done
        mount -t shoal \"$PWD/v\" m && umount -f m";
    let Some(out) = installed(&scratch, script) else { return };
    assert!(out.starts_with("ro,nosuid,relatime"), "{out}");
    assert!(out.contains("m: unmounting") && out.contains("closed          yes"), "{out}");
}

/// The server refuses as well as the kernel, and a remount of a mount that is gone is an error.
#[test]
fn the_command_alone_can_be_asked() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "noatime", "--log", "l"]).ok();
    let top = File::open(scratch.path("m")).expect("open");
    let facts = || {
        let top = top.try_clone().expect("a descriptor");
        shoal_fuse::facts_of(top.into()).expect("facts")
    };
    let before = facts();
    assert_eq!(before["read_only"], "no");
    let log = scratch.path("l");
    assert_eq!(before["options"], format!("noatime,log={}", log.display()));
    shoal_fuse::remount(&scratch.path("m"), &["ro".into()]).expect("remount");
    assert_eq!(facts()["read_only"], "yes");
    drop(top);
    scratch.shoal(["umount", "m"]).ok();
    let error = shoal_fuse::remount(&scratch.path("m"), &["ro".into()]).expect_err("no mount");
    assert!(error.to_string().contains("no Shoal volume is mounted there"), "{error}");
    assert!(fs::read_to_string(log).expect("a log").contains("remounted read_only=true"));
}
