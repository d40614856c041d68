//! Arguments of `chmod`, `chown` and `touch`.

use std::ffi::OsString;

use clap::{ArgGroup, Args, ValueHint};
use shoal::raw::{ModeChange, Time};

const RULES: &str = "\
PERMISSIONS:
  A user who can write the volume's file may change every file in it. In a mount the rules of files
  are those of the usual tools.

WITH -R:
  Everything below is changed in steps, by several threads. If the command is killed or the machine
  crashes, the change goes on when the volume is next opened for writing, and no file is changed
  twice; \"shoal info\" shows whether it is done. Ctrl-C ends it: what was changed stays. A file
  with several names below is changed for each, as by the usual tools.

  In a mount the server makes the change, as the user, and the command shows how far it is. If the
  command is killed, the change goes on; if the mount ends, the next one completes it. At most two
  changes of a user are in progress at a time, and eight of all; others wait for a minute. What is
  mounted below is not entered; the directory under it is changed. What cannot be done in one call
  is done file by file: a mode of more than 24 parts, a user in more than 120 groups, chmod -v, a
  place that the user may not search, and times in a mount with the option writeback.

EXIT STATUS:
  0   Everything was changed.
  1   Some of it was not; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Change permission bits of files in a volume or a mount
///
/// A symlink that is given is followed; those found with -R are left alone.
#[derive(Args, Debug)]
#[command(after_long_help = RULES)]
pub(crate) struct ChmodArgs {
    /// Octal bits, as 755, or changes, as u=rwX,g+w,o-rwx; without a user, the umask counts
    #[arg(value_name = "MODE", allow_hyphen_values = true, value_parser = changes)]
    pub mode: ModeChange,
    /// Files and directories, as VOLUME:/path or a path in a mount
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Change directories with everything in them
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print a line for each file
    #[arg(short, long)]
    pub verbose: bool,
    /// Print a line for each file whose bits change
    #[arg(short, long, overrides_with = "verbose")]
    pub changes: bool,
}

/// Change owner and group of files in a volume or a mount
#[derive(Args, Debug)]
#[command(after_long_help = RULES, disable_help_flag = true)]
pub(crate) struct ChownArgs {
    /// USER, USER:GROUP or :GROUP, by number or by the names of this machine
    #[arg(value_name = "OWNER")]
    pub owner: String,
    /// Files and directories, as VOLUME:/path or a path in a mount
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Change directories with everything in them; symlinks are changed themselves
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Change a symlink, not its target
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

/// Change the times of files in a volume or a mount, or make empty files
#[derive(Args, Debug)]
#[command(after_long_help = RULES, disable_help_flag = true)]
#[command(group = ArgGroup::new("time").args(["date", "reference"]))]
pub(crate) struct TouchArgs {
    /// Files, as VOLUME:/path or a path in a mount
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Change only the time of the last access
    #[arg(short = 'a')]
    pub access: bool,
    /// Change only the time of the last change of the contents
    #[arg(short = 'm')]
    pub modify: bool,
    /// Touch directories with everything in them; symlinks there are touched themselves
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Do not make files
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// The time: 2026-11-20 16:47:05 in UTC, or @ and seconds since 1970 [default: now]
    #[arg(short, long, value_name = "TIME", value_parser = super::time)]
    pub date: Option<Time>,
    /// Take the times of this file, a place VOLUME:/path or a file of this machine
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub reference: Option<OsString>,
    /// Change a symlink, not its target
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

fn changes(text: &str) -> Result<ModeChange, String> {
    let what = || format!("'{text}' is no mode: write octal bits, as 755, or changes, as u+w,g-x");
    ModeChange::parse(text).ok_or_else(what)
}
