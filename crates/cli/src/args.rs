//! The table of the command line: parsing, `--help`, man pages and shell completions come from it.
//!
//! The structs hold the arguments as typed; `commands` interprets them. Text after the options is
//! written as sections (`EXIT STATUS:` at the start of a line), which the man pages turn into
//! sections of their own.

mod acl;
mod attributes;
mod bucket;
mod changes;
mod chmod;
mod copy;
mod dump;
mod files;
mod grow;
mod helper;
mod inspect;
mod label;
mod ls;
mod more;
mod mount;
mod quota;
mod run;
mod share;
mod shrink;
mod subvolume;
mod sync;
mod tar;
mod trees;
mod volume;

pub(crate) use acl::{GetfaclArgs, SetfaclArgs};
pub(crate) use attributes::{
    ParentsArgs, PathArgs, XattrArgs, XattrCommand, XattrGetArgs, XattrLsArgs, XattrPlace,
    XattrRmArgs, XattrSetArgs,
};
pub(crate) use bucket::{BucketArgs, BucketCheckArgs, BucketCommand};
pub(crate) use changes::{ChangesArgs, Keep, WatchArgs};
pub(crate) use chmod::{ChmodArgs, ChownArgs, TouchArgs};
pub(crate) use copy::CopyArgs;
pub(crate) use dump::{DumpArgs, RestoreArgs};
pub(crate) use files::{CatArgs, CpArgs, LnArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
pub(crate) use grow::GrowArgs;
pub(crate) use helper::{HelperArgs, UmountHelperArgs};
pub(crate) use inspect::{OrphansArgs, ScrubArgs, StatsArgs, TopArgs, TraceArgs, TrimArgs};
pub(crate) use label::LabelArgs;
pub(crate) use ls::{LsArgs, When};
pub(crate) use more::{DfArgs, ReadlinkArgs, Resize, TruncateArgs};
pub(crate) use mount::{
    LogFormat, LogLevel, MountArgs, RemountArgs, ServeArgs, UmountArgs, WithKeeper,
};
pub(crate) use quota::{
    Limit, QuotaArgs, QuotaCommand, QuotaListArgs, QuotaRemoveArgs, QuotaSetArgs, QuotaShowArgs,
};
pub(crate) use run::RunArgs;
pub(crate) use share::ShareArgs;
pub(crate) use shrink::ShrinkArgs;
pub(crate) use subvolume::{
    SubvolumeArgs, SubvolumeCommand, SubvolumeCreateArgs, SubvolumeDeleteArgs, SubvolumeListArgs,
};
pub(crate) use sync::SyncArgs;
pub(crate) use tar::TarArgs;
pub(crate) use trees::{DuArgs, FindArgs, Threshold, TimeShown};
pub(crate) use volume::{
    FsckArgs, GenerateArgs, GenerateWhat, InfoArgs, LogdumpArgs, MkfsArgs, Switch,
};

use std::time::Duration;

use clap::{Parser, Subcommand};
use shoal::raw::Time;

const AFTER_HELP: &str = "\
PLACES IN A VOLUME:
  A file in a volume is VOLUME:/path, for example vol.img:/home/ann. VOLUME alone, or VOLUME:,
  means its top directory. Where it is mounted, a file is also its ordinary path: all commands on
  files take both. cp, tar and sync also take paths of other filesystems. A command opens the volume
  or, if a mount or shoal serve has it open, works by a session with that process, as the user who
  runs it; with --direct it insists on opening it. An argument is
  a place in a volume if it contains ':/' or ends with ':'. A local path that contains ':/' is
  written with ./ before it.

FILES THAT ARE WRITTEN:
  An output file (of dump, tar and cp, and the FILE of a mark) is written under another name,
  and gets its own when it is complete and on disk. After a failure or an interruption the former
  file is there, unchanged. A file that is a volume is overwritten only with --force, and never if
  the command reads that volume. Pipes and devices are written directly, and so is a trace.

EXIT STATUS:
  0   Everything was done. A reader that closes the pipe early counts as success.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
  130, 143  Interrupted by SIGINT or SIGTERM while it changed a volume: the changes made are on
      disk, and their number is printed. A second signal ends it at once, as a crash would.
  fsck and scrub have the exit statuses of fsck(8): see shoal fsck --help.

FILES:
  A volume is one file or one block device, or is in a bucket. One process at a time may change it;
  several may look at it while none does, and in a bucket also while one does. That holds whatever
  the path, also from other hosts: a volume that was not closed, by a process that cannot be seen
  from here, is watched for two seconds before it is opened.

EXAMPLES:
  Make a volume and mount it:
    shoal mkfs vol.img --size 8G
    shoal mount vol.img /mnt

  Copy a tree into a volume without mounting it, look at it, and take it out again:
    shoal cp -r /usr/share/doc vol.img:/
    shoal ls -lR vol.img:/doc
    shoal cp -r vol.img:/doc /tmp/copy

  Check a volume:
    shoal fsck vol.img
";

const BENCH_AFTER: &str = "\
TARGETS:
  dir:PATH runs system calls in a fresh subdirectory of any directory, whatever filesystem it is
  on; vol:FILE runs the library on a fresh volume. The workloads are the same code for both, so
  that the filesystems are compared and not the programs.

OUTPUT:
  A table and a histogram of latencies; with --json one object a line, the last being the whole:
  workload, target, threads, ops, seconds, cpu_seconds, ops_per_second and
  latency_ns {mean, p50, p90, p99, max}.

EXIT STATUS:
  0   The workload ran to its end.
  1   It did not.
  2   Wrong usage.

EXAMPLES:
    shoal bench create --target vol:/tmp/bench.img --threads 2 --files 1000000
    shoal bench create --target dir:/mnt --threads 2 --files 100000 --json
";

/// A filesystem for shoals of small files
///
/// Shoal keeps a POSIX filesystem in a volume (a file, a block device or a place in a bucket) and
/// serves hundreds of millions of small files fast. A volume can be mounted for all programs to
/// use, or worked on directly by the commands below.
#[derive(Parser, Debug)]
#[command(name = "shoal", version, propagate_version = true, after_long_help = AFTER_HELP)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// Open volumes, also those that another process serves: they are in use then
    #[arg(long, global = true)]
    pub direct: bool,
    /// Command to run
    #[command(subcommand)]
    pub command: Command,
}

/// The commands. Their descriptions stand at the structs of their arguments: a doc comment here
/// would take the place of the whole text there.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Mkfs(MkfsArgs),
    Mount(MountArgs),
    Remount(RemountArgs),
    Umount(UmountArgs),
    Serve(ServeArgs),
    Sync(SyncArgs),
    Fsck(FsckArgs),
    Scrub(ScrubArgs),
    Info(InfoArgs),
    Label(LabelArgs),
    Grow(GrowArgs),
    Shrink(ShrinkArgs),
    Copy(CopyArgs),
    Dump(DumpArgs),
    Restore(RestoreArgs),
    Stats(StatsArgs),
    Top(TopArgs),
    Trace(TraceArgs),
    Trim(TrimArgs),
    Orphans(OrphansArgs),
    Logdump(LogdumpArgs),
    #[command(alias = "root")]
    Subvolume(SubvolumeArgs),
    Quota(QuotaArgs),
    Bucket(BucketArgs),
    Ls(LsArgs),
    Stat(StatArgs),
    Cat(CatArgs),
    Find(FindArgs),
    Changes(ChangesArgs),
    Watch(WatchArgs),
    Du(DuArgs),
    Df(DfArgs),
    Cp(CpArgs),
    Tar(TarArgs),
    Mv(MvArgs),
    Rm(RmArgs),
    Chmod(ChmodArgs),
    Chown(ChownArgs),
    Touch(TouchArgs),
    Truncate(TruncateArgs),
    Getfacl(GetfaclArgs),
    Setfacl(SetfaclArgs),
    Mkdir(MkdirArgs),
    Ln(LnArgs),
    Readlink(ReadlinkArgs),
    Xattr(XattrArgs),
    Path(PathArgs),
    Parents(ParentsArgs),
    Share(ShareArgs),
    Run(RunArgs),
    /// Measure workloads on any directory, or on a volume by the library
    #[command(after_long_help = BENCH_AFTER)]
    Bench(shoal_bench::Args),
    Generate(GenerateArgs),
}

/// Parses a size argument.
fn size(text: &str) -> Result<u64, String> {
    crate::size::parse(text)
}

/// Parses a size argument that must not be 0.
fn some_size(text: &str) -> Result<u64, String> {
    match size(text) {
        Ok(0) => Err(format!("'{text}' is nothing: write at least 1, or leave it out")),
        size => size,
    }
}

/// Parses a duration that must not be 0; returns seconds.
fn duration(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let number = Some(number).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    let seconds = number.and_then(|it| it.parse::<u64>().ok()?.checked_mul(unit));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| {
        format!("'{text}' is not a time: write seconds, or a number with s, m, h or d, as 90m")
    })
}

/// Parses a duration with its unit.
fn short_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time: write a number with us, ms or s, as 5ms");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number = text[..split].parse::<u64>().map_err(|_| wrong())?;
    match &text[split..] {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(wrong()),
    }
}

/// Parses a time.
fn time(text: &str) -> Result<Time, String> {
    let what = || format!("'{text}' is no time: write 2026-11-20, 2026-11-20 16:47 or @SECONDS");
    crate::clock::parse(text).ok_or_else(what)
}

/// Parses permission bits in octal.
fn octal_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 && !text.starts_with('+') => Ok(mode),
        _ => Err(format!("'{text}' is not a mode: write octal permission bits, as 755 or 1777")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn commands() -> Vec<clap::Command> {
        let mut top = Cli::command();
        top.build();
        let mut all = vec![HelperArgs::command(), UmountHelperArgs::command()];
        let mut left = vec![top];
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            all.push(command);
        }
        all
    }

    #[test]
    fn the_table_is_sound() {
        Cli::command().debug_assert();
        HelperArgs::command().debug_assert();
        UmountHelperArgs::command().debug_assert();
    }

    #[test]
    fn everything_is_described() {
        for command in commands() {
            let name = command.get_name().to_owned();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty(), "{name} has no description");
            assert!(!about.ends_with('.'), "{name}: a title, not a sentence");
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some_and(|help| !help.to_string().is_empty()),
                    "{name}: {} has no help text",
                    argument.get_id()
                );
            }
        }
    }

    #[test]
    fn values_are_named_in_capitals() {
        for command in commands() {
            for argument in command.get_arguments().filter(|it| it.get_action().takes_values()) {
                for value in argument.get_value_names().unwrap_or_default() {
                    let upper = value.to_ascii_uppercase();
                    assert_eq!(value.as_str(), upper, "{}", command.get_name());
                }
            }
        }
    }

    #[test]
    fn volume_commands_explain_their_exit_status() {
        for command in commands() {
            let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("EXIT STATUS:"), "{}", command.get_name());
            for line in after.lines() {
                assert!(line.len() <= 100, "{}: long line: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn more_lines_parse() {
        let good: &[&str] = &[
            "shoal label v",
            "shoal label --remove LABEL=x",
            "shoal mkfs v -L backup",
            "shoal info --udev v",
            "shoal fsck -p -f -t shoal v",
            "shoal df",
            "shoal df -h v:/d d",
            "shoal readlink -z v:/a",
            "shoal truncate -s -1M v:/a",
            "shoal cp - v:/a",
            "shoal cp -nvp v:/a d",
            "shoal mv -nfv v:/a v:/b",
            "shoal stat -c %n v:/a",
        ];
        for line in good {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn typical_lines_parse() {
        let good: &[&str] = &[
            "shoal mkfs v --size 8G --inode-size 1024 --segment-size 4M --force",
            "shoal mount v d -o ro,allow_other --foreground --cache 64M --threads 2 --read-only",
            "shoal umount d",
            "shoal sync d",
            "shoal sync -niac v:/a w:/b --delete --exclude x --exclude y --stats --full",
            "shoal fsck v --json",
            "shoal fsck v --repair --force",
            "shoal mount v d --force -o force",
            "shoal scrub v --json --quiet --rate 20M",
            "shoal info v --json",
            "shoal subvolume create v a --mode 700",
            "shoal subvolume list v --json",
            "shoal subvolume delete v a --wait",
            "shoal ls -laR v:/a v:/b",
            "shoal ls -lhSr --color v:/a --time-style=+%s --color=auto -AQFp1nogis",
            "shoal ls -tXU v:/a --full-time",
            "shoal cp -r a b v:/c",
            "shoal tar -cvf a.tar -C v:/ a b --exclude *.o --xattrs --acls --numeric-owner",
            "shoal tar -xpkf a.tar -C v:/a --strip-components 1 --no-same-owner",
            "shoal tar -tvf a.tar a",
            "shoal tar -c -C v:/ --null -T list -N 2026-11-20 --zstd",
            "shoal tar -cf a.tar -C v:/ --mark-file m",
            "shoal rm -rf v:/a",
            "shoal rm -rv --no-wait --top-only v:/a m/b",
            "shoal stats v --every 2",
            "shoal orphans v --json",
            "shoal mkdir -p -m 1777 v:/a/b",
            "shoal ln -s target v:/a",
            "shoal mv v:/a v:/b",
            "shoal find v:/ --name *.rs --type f",
            "shoal find --json -name *.rs v:/",
            "shoal du -hS v:/a w:/b -t -5M --exclude=*.o --exclude x -d 2 -ck",
            "shoal du -sbxl0 v",
            "shoal chmod -Rv u=rwX,go-w v:/a v:/b",
            "shoal chmod -x v:/a",
            "shoal chmod -R -w,o+r v:/a",
            "shoal chown -hR ann:users v:/a",
            "shoal chown :5 v:/a",
            "shoal touch -cam -d 2026-11-20 v:/a",
            "shoal find -0 v:/ ( -type f -o -help ) ! -print0 --json -- -0",
            "shoal find -type f v:/",
            "shoal find ! -type f -h v:/",
            "shoal xattr get v:/a user.x --hex",
            "shoal xattr set v:/a user.x value",
            "shoal xattr set -P v:/a trusted.x --hex 00 --create",
            "shoal xattr ls -l v:/a",
            "shoal xattr rm v:/a user.x user.y",
            "shoal path v 1 2 --json",
            "shoal parents d/file v:/a",
            "shoal share v:/a --rights rw --for 90m",
            "shoal share d/file --for 7d",
            "shoal share --revoke v",
            "shoal changes v:/a --since abc -0",
            "shoal changes v --mark-file m --files-from",
            "shoal changes v --now",
            "shoal changes v --keep-removed on",
            "shoal cat --token abc v",
            "shoal logdump v --json",
            "shoal mkfs v --parent off",
            "shoal bucket check s3://b/v --json",
            "shoal generate man d",
            "shoal bench create --target vol:v --threads 2 --files 10 --json",
        ];
        for line in good {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn durations() {
        for (text, seconds) in [("5", 5), ("5s", 5), ("90m", 5400), ("8h", 28_800), ("2d", 172_800)]
        {
            assert_eq!(duration(text), Ok(seconds), "{text}");
        }
        for text in ["", "0h", "+5", "5 m", "1.5h", "99999999999999999999", "9999999999999999999d"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        let bad: &[&str] = &[
            "shoal",
            "shoal mkfs",
            "shoal mkfs v --size 8X",
            "shoal mkfs v --inode-size 300",
            "shoal mount v",
            "shoal subvolume",
            "shoal subvolume create v",
            "shoal mount v d --threads 0",
            "shoal cp a",
            "shoal sync",
            "shoal sync d --delete",
            "shoal tar -f a.tar",
            "shoal tar -cxf a.tar -C v:/",
            "shoal mkdir -m 888 v:/a",
            "shoal rm --no-wait v:/a",
            "shoal stats v --every 0",
            "shoal orphans",
            "shoal scrub",
            "shoal scrub v --rate 0",
            "shoal scrub v --rate fast",
            "shoal find",
            "shoal ls --color=blue v",
            "shoal chmod 9 v:/a",
            "shoal chmod u+y v:/a",
            "shoal chmod 755",
            "shoal chown ann",
            "shoal touch -d yesterday v:/a",
            "shoal touch -d 2026-11-20 -r v:/b v:/a",
            "shoal du",
            "shoal du -s -a v",
            "shoal du -t x v",
            "shoal xattr get v:/a",
            "shoal xattr set v:/a user.x y --create --replace",
            "shoal path v",
            "shoal share",
            "shoal share v:/a --rights x",
            "shoal share v:/a --for 0",
            "shoal share v:/a --for 1w",
            "shoal share v:/a --for -1h",
            "shoal share v:/a --for h",
            "shoal share --revoke v --rights r",
            "shoal changes",
            "shoal changes v --since a --mark-file b",
            "shoal changes v --json -0",
            "shoal changes v --keep-removed maybe",
            "shoal path v x",
            "shoal mkfs v --parent maybe",
            "shoal label",
            "shoal label v a/b --remove",
            "shoal truncate v:/a",
            "shoal cp -nu v:/a d",
            "shoal readlink",
            "shoal mkfs v -L a/b",
            "shoal fsck -a -y v",
            "shoal bucket",
            "shoal bucket check",
            "shoal frobnicate",
        ];
        for line in bad {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
