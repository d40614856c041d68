//! The helpers that mount(8), umount(8), fsck(8) and mkfs(8) run: this program under other names.
//!
//! | name | run by | does |
//! | --- | --- | --- |
//! | `mount.shoal`, `mount.fuse.shoal` | `mount -t shoal`, fstab; `mount -o remount` of a mount | mounts, or remounts |
//! | `umount.shoal`, `umount.fuse.shoal` | `umount` of a mount | `shoal umount`: returns when the volume is released |
//! | `fsck.shoal` | `fsck`, at boot | `shoal fsck`, with the options of fsck(8) |
//! | `mkfs.shoal` | `mkfs -t shoal` | `shoal mkfs` |
//!
//! A mount has the type `fuse.shoal` in the kernel's list, whatever fstab calls it; so a remount
//! without a line in fstab, and every unmount, look for the longer names.

use std::ffi::OsString;
use std::path::Path;

use rustix::process::{geteuid, getuid};

use crate::args::{HelperArgs, LogFormat, LogLevel, MountArgs, UmountArgs, UmountHelperArgs};
use crate::commands::mount::{self, background, check_mount_point};
use crate::commands::serve::Plan;
use crate::failure::{Failure, OK, Result};
use crate::progress::eprint_line;

/// Exit status of a helper that failed, by the rules of mount(8).
const FAILED: u8 = 32;
/// Exit status of a helper that was called wrongly.
pub(crate) const USAGE: u8 = 1;

/// A program that this one is under another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Helper {
    /// `mount.shoal`.
    Mount,
    /// `umount.shoal`.
    Umount,
    /// `shoal` with this command: the arguments are its own.
    Command(&'static str),
}

impl Helper {
    /// Returns the helper of a name; `None` for any other name, which is the command.
    pub(crate) fn named(program: &Path) -> Option<Helper> {
        Some(match program.file_name()?.to_str()? {
            "mount.shoal" | "mount.fuse.shoal" => Helper::Mount,
            "umount.shoal" | "umount.fuse.shoal" => Helper::Umount,
            "fsck.shoal" => Helper::Command("fsck"),
            "mkfs.shoal" => Helper::Command("mkfs"),
            _ => return None,
        })
    }
}

/// Returns the command line of `shoal` that a helper stands for.
pub(crate) fn spelt(command: &str, arguments: &[OsString]) -> Vec<OsString> {
    let head = ["shoal".into(), command.into()];
    head.into_iter().chain(arguments.iter().skip(1).cloned()).collect()
}

/// Returns a command line of `shoal` with what clap cannot express in other words: `help COMMAND`,
/// and the `-C` of fsck(8), whose value may follow it or be missing.
pub(crate) fn plain(arguments: &[OsString]) -> Vec<OsString> {
    if let [program, help, commands @ ..] = arguments
        && help == "help"
    {
        let words = std::iter::once(program).chain(commands).cloned();
        return words.chain(["--help".into()]).collect();
    }
    if arguments.get(1).is_none_or(|command| command != "fsck") {
        return arguments.to_vec();
    }
    let mut plain = Vec::with_capacity(arguments.len());
    let mut rest = arguments.iter().peekable();
    let mut are_options = true;
    while let Some(argument) = rest.next() {
        are_options &= argument != "--";
        let value = argument.to_str().and_then(|text| text.strip_prefix("-C"));
        let Some(value) = value.filter(|_| are_options) else {
            plain.push(argument.clone());
            continue;
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let next = rest.next_if(|next| value.is_empty() && next.to_str().is_some_and(is_number));
        let fd = next.and_then(|next| next.to_str()).unwrap_or(value);
        plain.push(format!("--progress-fd={}", if fd.is_empty() { "0" } else { fd }).into());
    }
    plain
}

/// Mounts, or remounts, as mount(8) asks.
pub(crate) fn mount(args: &HelperArgs) -> Result<u8> {
    if args.options.iter().flat_map(|list| list.split(',')).any(|option| option == "remount") {
        return remount(args);
    }
    let wanted = MountArgs {
        volume: args.source.clone(),
        directory: args.directory.clone(),
        standby: false,
        options: with_defaults(&args.options),
        foreground: false,
        cache: None,
        threads: None,
        read_only: false,
        force: false,
        log: None,
        log_level: LogLevel::Info,
        log_format: LogFormat::Text,
        metrics: None,
        report_ready: false,
        grow: None,
        kept: None,
    };
    let plan = Plan::new(&wanted, args.sloppy).map_err(|failure| failure.with_status(USAGE))?;
    if args.verbose {
        eprint_line(&format!("{} on {}", plan.volume.display(), plan.directory.display()));
    }
    if args.fake {
        return Ok(OK);
    }
    match check_mount_point(&plan.directory).and_then(|()| background(&plan, &wanted)) {
        Ok(OK) => Ok(OK),
        Ok(_) => Ok(FAILED),
        Err(failure) => Err(failure.with_status(FAILED)),
    }
}

/// Returns the options with the defaults of mount(8) before them: a helper is not told `suid` and
/// `dev`, so for the superuser they hold unless the list says otherwise. For other users they hold
/// never.
fn with_defaults(lists: &[String]) -> Vec<String> {
    if !geteuid().is_root() || !getuid().is_root() {
        return lists.to_vec();
    }
    let before = |defaults: &str| {
        std::iter::once(defaults.to_owned()).chain(lists.iter().cloned()).collect::<Vec<_>>()
    };
    let all = before("suid,dev");
    let mut options = shoal_fuse::MountOptions::default();
    // Options that are not of the mount alone are refused later, and by name.
    for option in all.iter().flat_map(|list| list.split(',')) {
        let _ = options.add(option);
    }
    if options.check().is_ok() { all } else { before("suid") }
}

fn remount(args: &HelperArgs) -> Result<u8> {
    if args.fake {
        return Ok(OK);
    }
    match shoal_fuse::remount(&args.directory, &args.options) {
        Ok(()) => Ok(OK),
        Err(error) => Err(Failure::volume(args.directory.display(), &error).with_status(FAILED)),
    }
}

/// Unmounts as umount(8) asks.
pub(crate) fn umount(args: &UmountHelperArgs) -> Result<u8> {
    let directory = &args.directory;
    if args.fake {
        return Ok(OK);
    }
    if args.verbose {
        eprint_line(&format!("{}: unmounting", directory.display()));
    }
    let plain = UmountArgs { lazy: args.lazy, force: args.force, directory: directory.clone() };
    match mount::umount(&plain) {
        Err(failure) if args.read_only && shoal_fuse::is_mounted(directory) => {
            eprint_line(failure.line().unwrap_or_default());
            shoal_fuse::remount_read_only(directory).map_err(|error| {
                Failure::volume(directory.display(), &error).with_status(FAILED)
            })?;
            eprint_line(&format!("{}: read-only now", directory.display()));
            Ok(OK)
        }
        Err(failure) => Err(failure.with_status(FAILED)),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_by_name() {
        for (name, helper) in [
            ("/usr/sbin/mount.shoal", Some(Helper::Mount)),
            ("mount.fuse.shoal", Some(Helper::Mount)),
            ("umount.fuse.shoal", Some(Helper::Umount)),
            ("/sbin/fsck.shoal", Some(Helper::Command("fsck"))),
            ("mkfs.shoal", Some(Helper::Command("mkfs"))),
            ("shoal", None),
            ("mount.fuse", None),
            ("", None),
        ] {
            assert_eq!(Helper::named(Path::new(name)), helper, "{name}");
        }
        let arguments = ["fsck.shoal", "-a", "v"].map(OsString::from);
        assert_eq!(spelt("fsck", &arguments), ["shoal", "fsck", "-a", "v"]);
    }

    #[test]
    fn the_progress_option_of_fsck() {
        for (line, expected) in [
            ("shoal fsck -a -C5 v", "shoal fsck -a --progress-fd=5 v"),
            ("shoal fsck -C v", "shoal fsck --progress-fd=0 v"),
            ("shoal fsck -C 7 v", "shoal fsck --progress-fd=7 v"),
            ("shoal fsck -C0 -- -C", "shoal fsck --progress-fd=0 -- -C"),
            ("shoal tar -C v:/ -c", "shoal tar -C v:/ -c"),
            ("shoal", "shoal"),
            ("shoal help", "shoal --help"),
            ("shoal help quota set", "shoal quota set --help"),
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(plain(&arguments), expected, "{line}");
        }
    }

    #[test]
    fn what_mount_does_not_say_holds_for_root() {
        let lists = |list: &str| with_defaults(&[list.to_owned()]);
        if !geteuid().is_root() {
            assert_eq!(lists("ro"), ["ro"]);
            return;
        }
        assert_eq!(lists("ro,cache=1M,log=/l"), ["suid,dev", "ro,cache=1M,log=/l"]);
        let unchecked = "allow_other,no_default_permissions";
        assert_eq!(lists(unchecked), ["suid", unchecked]);
    }
}
