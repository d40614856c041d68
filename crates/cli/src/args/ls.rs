//! Arguments of `ls`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueEnum, ValueHint};

use super::files::JSON_FILE;

const AFTER: &str = "\
OUTPUT:
  One name a line. With -l: type and mode, links, owner, group, size (of a device its numbers), time
  of the last change of the contents, name. With -n, -g, -o, -s or --full-time the listing of a
  directory begins with the line 'total', as in ls(1); and then

    shoal ls -n VOLUME:/path    is    TZ=UTC ls -ln --time-style=long-iso

  of the directory on a mount, byte for byte, also with the other options, if the locale sorts by
  bytes (LC_ALL=C.UTF-8) and no file has an access control list, which ls(1) shows as '+'.

COLORS:
  As LS_COLORS says, or by type. An entry of it that is more than numbers and semicolons is left
  out.
";

/// List directories of a volume
///
/// Prints one name a line, sorted by bytes. Owners are shown as numbers and times in UTC, because
/// a volume may come from another machine.
#[derive(Args, Debug)]
#[command(after_long_help = format!("{AFTER}\n{JSON_FILE}"), disable_help_flag = true)]
#[command(args_override_self = true)]
pub(crate) struct LsArgs {
    /// Directories and files to list, in a mount or as VOLUME:/path
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Show type, mode, links, owner, group, size and time of each file
    #[arg(short)]
    pub long: bool,
    /// As -l, with the line 'total' of ls(1)
    #[arg(short = 'n', long)]
    pub numeric_uid_gid: bool,
    /// As -n, without the owner
    #[arg(short = 'g')]
    pub no_owner: bool,
    /// As -n, without the group
    #[arg(short = 'o')]
    pub no_group: bool,
    /// Show inode numbers
    #[arg(short, long)]
    pub inode: bool,
    /// Show the space of the blocks of each file, in KiB
    #[arg(short, long)]
    pub size: bool,
    /// Show sizes with units: 1.5K, 23M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// List the directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Show names that start with a dot, too
    #[arg(short, long)]
    pub all: bool,
    /// The same, except '.' and '..'
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// Show a directory itself, not its contents
    #[arg(short, long)]
    pub directory: bool,
    /// Do not sort: without a line 'total' it starts at once and needs no memory, however large
    /// the directory
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size", "by_extension"])]
    pub unsorted: bool,
    /// Sort by time, the newest first
    #[arg(short = 't', overrides_with_all = ["unsorted", "by_size", "by_extension"])]
    pub by_time: bool,
    /// Sort by size, the largest first
    #[arg(short = 'S', overrides_with_all = ["unsorted", "by_time", "by_extension"])]
    pub by_size: bool,
    /// Sort by extension
    #[arg(short = 'X', overrides_with_all = ["unsorted", "by_time", "by_size"])]
    pub by_extension: bool,
    /// Reverse the order
    #[arg(short, long)]
    pub reverse: bool,
    /// Show types behind names: / for directories, * executable, @ symlink, | pipe, = socket
    #[arg(short = 'F', long)]
    pub classify: bool,
    /// Show / behind the names of directories
    #[arg(short = 'p', overrides_with = "classify")]
    pub slash: bool,
    /// Quote names as strings of C
    #[arg(short = 'Q', long)]
    pub quote_name: bool,
    /// Accepted out of habit: one name a line
    #[arg(short = '1')]
    pub one: bool,
    /// Show names in colors
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "never", default_missing_value = "always")]
    pub color: When,
    /// As -n, with all of the time: --time-style=full-iso
    #[arg(long)]
    pub full_time: bool,
    /// Style of times: full-iso, long-iso, iso, locale, or +FORMAT as for date(1)
    #[arg(long, value_name = "STYLE", default_value = "long-iso")]
    pub time_style: String,
    /// Print JSON, one object a line for each file
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Choice of when to use colors.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// In any case
    Always,
    /// On a terminal
    Auto,
    /// Never
    Never,
}

impl LsArgs {
    /// Returns whether files are shown with their attributes.
    pub(crate) fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid || self.no_owner || self.no_group || self.full_time
    }

    /// Returns whether a directory's entries begin with the line 'total'.
    pub(crate) fn has_total(&self) -> bool {
        let is_of_ls = self.numeric_uid_gid || self.no_owner || self.no_group || self.full_time;
        (is_of_ls || self.size) && !self.json
    }
}
