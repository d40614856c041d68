//! Arguments of the commands about trees in a volume: `find`, `du`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueEnum, ValueHint};

use crate::size::Unit;

const FIND_AFTER: &str = "\
EXPRESSION:
  As for find(1): tests, actions and options, joined by operators. Without an action, the paths for
  which it is true are printed. Words may also begin with two dashes: --name.

    ( EXPR )                   parentheses, which the shell wants quoted
    ! EXPR, -not EXPR          negation
    EXPR EXPR, EXPR -a EXPR    and; the second is evaluated only if the first is true
    EXPR -o EXPR               or; the second is evaluated only if the first is false
    EXPR , EXPR                both are evaluated; the value is that of the second

TESTS:
  A number N is exact; +N is more, -N is less.

    -name, -iname PATTERN      the name: * ? [a-z] [!a-z] [[:alpha:]]; -i ignores case
    -path, -ipath PATTERN      the whole path; * also matches slashes
    -regex, -iregex REGEX      the whole path, as a POSIX extended regular expression
    -lname, -ilname PATTERN    the target of a symlink
    -type f,d,l,p,s,c,b        file, directory, symlink, pipe, socket, character and block device
    -xtype f,d,l,p,s,c,b       the same of what a symlink leads to; l if it leads nowhere
    -size N[cwbkMG]            size in bytes, words of 2, blocks of 512 (without a letter), KiB,
                               MiB, GiB; rounded up
    -empty                     files without contents, directories without entries
    -mtime, -ctime, -atime N   days since the contents, the inode were changed, the file was read
    -mmin, -cmin, -amin N      minutes since then
    -newer, -anewer, -cnewer FILE
                               changed (read, inode changed) after FILE was changed, which is a
                               place VOLUME:/path or a file of this machine
    -newerXY FILE              time X is later than time Y of FILE; X and Y are a, B (birth), c or
                               m. With t for Y, FILE is a time: 2026-11-20 16:47, or @SECONDS
    -user, -group NAME         owner and group, by name or number; names are those of this
                               machine's /etc/passwd and /etc/group
    -uid, -gid, -links, -inum N    numbers of the inode
    -nouser, -nogroup          the number has no name on this machine
    -perm MODE, -MODE, /MODE   exactly these permission bits, all of them, any of them; octal or
                               symbolic, as -u+w,g+w
    -samefile PLACE            the same inode, a hard link included
    -true, -false

ACTIONS:
    -print, -print0            the path, and a new line or a zero byte
    -printf FORMAT             FORMAT, with the fields below
    -ls                        a row as from ls -dils
    -delete                    remove the file or empty directory; implies -depth. Symlinks are
                               removed, never followed
    -prune                     do not go into this directory
    -quit                      end
    -exec COMMAND ;            run COMMAND, with the path for each {} in it; true if it succeeds
    -exec COMMAND {} +         run COMMAND with as many paths as fit
    -execdir COMMAND ... ;     the same in the file's directory, with ./NAME for {}; also with +
    -ok COMMAND ;              as -exec, if the user agrees: the question is on standard error, and
                               an answer that begins with y or Y is yes
    -okdir COMMAND ;           as -execdir, likewise

  Commands are for mounted paths: of VOLUME:/path they would get a path that they cannot open.
  There, write the paths with -print0 for xargs -0.

PLACES:
  VOLUME:/path, or any path in a mounted volume. The server of a mount lists whole directories at a
  time, with the permissions of the user; -delete removes by ordinary system calls. Other mounts
  below are not seen.

OPTIONS WITHIN THE EXPRESSION:
    -maxdepth, -mindepth N     levels below the places to start at
    -depth, -d                 a directory after its contents
    -xdev, -mount              do not go into subvolumes
    -daystart                  times of the tests behind it are counted from the end of today (UTC)
    -regextype posix-extended  accepted; other types are refused

FIELDS OF -PRINTF:
    %p %P %H %f %h             path, path below the start, start, name, directory
    %i %n %m %M %u %U %g %G    inode, links, mode in octal and letters, owner and group
    %s %b %k %S                bytes, blocks of 512, blocks of 1 KiB, space used / size
    %y %Y %l %d %F             type, type of a symlink's target, target, depth, 'shoal'
    %a %c %t                   time of the last reading, change of the inode, change of contents
    %Ak %Bk %Ck %Tk            the same and of birth, with a field k of strftime(3), or @ or +
    %% \\n \\t \\0 \\NNN \\c        as in printf(1); \\c ends the output

DIFFERENCES FROM FIND(1):
  Paths VOLUME:/path are printed without the volume's name. Times are in UTC. The size of
  a directory is the number of its entries. Regular expressions are POSIX extended ones, without
  back references.

JSON:
  With --json, -print prints an object a line for each file: see shoal ls --help.

EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal find vol.img:/src -name '*.o' -size +1M
    shoal find vol.img -name .git -prune -o -type f -mtime -1 -print
    shoal find vol.img:/tmp -type f -mtime +30 -delete
    shoal find vol.img -printf '%s %p\\n' | sort -n | tail
";

/// Find files in a volume
///
/// Walks the trees below the given places and evaluates an expression for each file, in the order
/// of the directories, as find(1) does.
#[derive(Args, Debug)]
#[command(after_long_help = FIND_AFTER)]
#[command(override_usage = "shoal find [OPTIONS] <PLACE>... [EXPRESSION]")]
pub(crate) struct FindArgs {
    /// End each path with a zero byte instead of a new line
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// Print JSON, one object a line for each file
    #[arg(long)]
    pub json: bool,
    /// Places to start at, in a mount or as VOLUME:/path, and the expression
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

const DU_AFTER: &str = "\
OUTPUT:
  A line for each directory, behind those of the directories in it: the size of everything in and
  below it, a tab, and its path in the volume. Sizes are rounded up to the unit. With --json, one
  object a line:

    path         string; path_bytes as in shoal ls --json; of the sum of all places, total
    bytes        space, or with --apparent-size contents
    inodes
    newest       {sec, nsec} since 1970, with --time

COUNTED:
  The space that the blocks of files and directories take, as stat shows it. Contents that are kept
  in the inode count, rounded up to 512 bytes. Inodes, entries of directories and other metadata do
  not: they are in trees that all files share (shoal info shows the space of the whole volume). A
  directory counts with the blocks that stat shows for it. With --apparent-size, the bytes of files
  and of the targets of symlinks; directories count nothing then, because their size is a number of
  entries.

  A file with several hard links is counted where it is found first, in the order of the
  directories. A place that is within another one is not counted again.

KEPT:
  With -s --kept the use that is kept with the quota of a directory is printed, at once, however
  large it is; places without a quota are counted. It is that of this moment, and in four things
  other than a count: files that are removed but open count until they are freed; contents that are
  kept in the inode and what has a quota of its own below do not; a file with names in several trees
  that was there before the quota counts for one of them.

EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal du -sh vol.img:/home/*
    shoal du -d 1 -h vol.img | sort -h
    shoal du --inodes -s vol.img:/cache
    shoal du -sh --kept /mnt/vol/home/*
";

/// Show the space that trees in a volume take
///
/// Counts the files below the given places and prints a line for each directory, as du(1) does.
#[derive(Args, Debug)]
#[command(after_long_help = DU_AFTER, disable_help_flag = true)]
#[command(args_override_self = true)]
pub(crate) struct DuArgs {
    /// Directories and files, in a mount or as VOLUME:/path
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Print one line for each place: the same as -d 0
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    pub summarize: bool,
    /// Print lines for files, too
    #[arg(short, long)]
    pub all: bool,
    /// Print sizes with units: 1.5K, 23M
    #[arg(short = 'h', long, overrides_with_all = ["kibibytes", "mebibytes", "block_size"])]
    pub human_readable: bool,
    /// Print a last line with the sum of all places
    #[arg(short = 'c', long)]
    pub total: bool,
    /// Print only directories at most N levels below a place
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<usize>,
    /// Count the sizes of contents, not the blocks
    #[arg(long)]
    pub apparent_size: bool,
    /// Print bytes of contents: --apparent-size, in units of 1
    #[arg(short, long)]
    pub bytes: bool,
    /// Print sizes in KiB (the default)
    #[arg(short, overrides_with_all = ["human_readable", "mebibytes", "block_size"])]
    pub kibibytes: bool,
    /// Print sizes in MiB
    #[arg(short, overrides_with_all = ["human_readable", "kibibytes", "block_size"])]
    pub mebibytes: bool,
    /// Print sizes in units of SIZE: 512, 2M; or M, which is also printed; MB is of 1000 kB
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = Unit::parse)]
    #[arg(overrides_with_all = ["human_readable", "kibibytes", "mebibytes"])]
    pub block_size: Option<Unit>,
    /// Print the newest time of what is counted (UTC): when contents changed; atime, access or use:
    /// when they were read; ctime or status: when inodes changed
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "mtime")]
    pub time: Option<TimeShown>,
    /// Style of times: full-iso, long-iso, iso, or +FORMAT as for date(1)
    #[arg(long, value_name = "STYLE", default_value = "long-iso", value_parser = time_format)]
    pub time_style: String,
    /// End each line with a zero byte instead of a new line
    #[arg(short = '0', long)]
    pub null: bool,
    /// Count inodes, not space
    #[arg(long)]
    pub inodes: bool,
    /// Print JSON, one object a line
    #[arg(long, conflicts_with_all = ["null", "human_readable", "block_size"])]
    pub json: bool,
    /// Do not go into subvolumes
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Leave out files and directories whose path, or the end of it, matches: * ? [a-z]
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Count hard links each time
    #[arg(short = 'l', long)]
    pub count_links: bool,
    /// Do not add the sizes of the directories below
    #[arg(short = 'S', long)]
    pub separate_dirs: bool,
    /// Print the totals that are kept with the quotas of the places, without counting
    #[arg(long, requires = "summarize", conflicts_with_all = [
        "apparent_size", "bytes", "exclude", "count_links", "separate_dirs", "one_file_system",
        "time",
    ])]
    pub kept: bool,
    /// Print only entries of at least SIZE, or with -SIZE at most
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    #[arg(value_parser = signed_size)]
    pub threshold: Option<Threshold>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// A time that `du` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TimeShown {
    /// Last change of contents
    Mtime,
    /// Last reading
    #[value(aliases = ["access", "use"])]
    Atime,
    /// Last change of the inode
    #[value(alias = "status")]
    Ctime,
}

/// Returns the format of strftime(3) of a style.
fn time_format(style: &str) -> Result<String, String> {
    Ok(match style {
        "full-iso" => "%Y-%m-%d %H:%M:%S.%N %z",
        "long-iso" => "%Y-%m-%d %H:%M",
        "iso" => "%Y-%m-%d",
        _ => style.strip_prefix('+').ok_or_else(|| {
            format!("'{style}' is no style: write full-iso, long-iso, iso or +FORMAT")
        })?,
    }
    .to_owned())
}

/// Bound of the sizes that `du` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threshold {
    /// At least so much.
    Min(u64),
    /// At most so much.
    Max(u64),
}

fn signed_size(text: &str) -> Result<Threshold, String> {
    match text.strip_prefix('-') {
        Some("0") => Err("'-0' would leave everything out".to_owned()),
        Some(size) => super::size(size).map(Threshold::Max),
        None => super::size(text).map(Threshold::Min),
    }
}
