//! Arguments of `getfacl` and `setfacl`.

use std::ffi::OsString;

use clap::{ArgGroup, Args, ValueHint};

const GET_AFTER: &str = "\
OUTPUT:
  As of getfacl(1): owner and group, then an entry a line. After an entry that the mask limits,
  \"#effective:\" has the permissions that are left of it.

EXIT STATUS:
  0   Every list was printed.
  1   Some files could not be read; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Print access control lists of files in a volume
#[derive(Args, Debug)]
#[command(after_long_help = GET_AFTER)]
#[command(group = ArgGroup::new("list").args(["access", "default"]))]
pub(crate) struct GetfaclArgs {
    /// Files and directories, as VOLUME:/path or in a mounted volume
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Print only the access list
    #[arg(short, long)]
    pub access: bool,
    /// Print only the default list
    #[arg(short, long)]
    pub default: bool,
    /// Print no lines with the name, owner and group
    #[arg(short = 'c', long)]
    pub omit_header: bool,
    /// Print the effective permissions of every entry that the mask limits
    #[arg(short = 'e', long, overrides_with = "no_effective")]
    pub all_effective: bool,
    /// Do not print effective permissions
    #[arg(short = 'E', long, overrides_with = "all_effective")]
    pub no_effective: bool,
    /// Print numbers of users and groups, not names
    #[arg(short, long)]
    pub numeric: bool,
    /// Print the lists of everything in a directory too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

const SET_AFTER: &str = "\
ENTRIES:
  u::PERMS u:USER:PERMS g::PERMS g:GROUP:PERMS m::PERMS o::PERMS, separated by commas; with d:
  before it, an entry of the default list. USER and GROUP are names of this machine or numbers.
  PERMS are of rwxX or one octal digit; X is x for directories, and where somebody may execute the
  file.
  First the lists are cleared, then entries are set, then removed.

MASK:
  It becomes the union of the entries that it limits, unless it is changed itself, or with -n.

PERMISSIONS:
  A user who can write the volume's file may change every file in it. In a mounted volume it is the
  owner of each file, and root.

WITH -R:
  Everything below is changed in steps, by several threads, the access lists first. If the command
  is killed or the machine crashes, the change of the lists that it was at goes on when the volume
  is next opened for writing; in a mounted volume the server goes on with it at once. Symlinks have
  no lists, and only directories default lists.

EXIT STATUS:
  0   Everything was changed.
  1   Some of it was not; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal setfacl -R -m u:ann:rwX,d:u:ann:rwX vol.img:/projects
    shoal setfacl -b vol.img:/projects/secret
    shoal setfacl -R -x u:ann /mnt/vol/projects
";

/// Change access control lists of files in a volume
///
/// A symlink that is given is followed.
#[derive(Args, Debug)]
#[command(after_long_help = SET_AFTER)]
#[command(group = ArgGroup::new("change").required(true).multiple(true)
    .args(["modify", "set", "remove", "remove_all", "remove_default"]))]
pub(crate) struct SetfaclArgs {
    /// Files and directories, as VOLUME:/path or in a mounted volume
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Add or replace entries
    #[arg(short, long, value_name = "ENTRIES")]
    pub modify: Vec<String>,
    /// Replace whole lists
    #[arg(long, value_name = "ENTRIES", conflicts_with_all = ["modify", "remove"])]
    pub set: Vec<String>,
    /// Remove entries, written without permissions
    #[arg(short = 'x', long, value_name = "ENTRIES")]
    pub remove: Vec<String>,
    /// First remove everything that the permission bits do not say, and the default list
    #[arg(short = 'b', long)]
    pub remove_all: bool,
    /// First remove the default list
    #[arg(short = 'k', long)]
    pub remove_default: bool,
    /// Leave the mask as it is
    #[arg(short = 'n', long)]
    pub no_mask: bool,
    /// Change default lists, also by entries without d:
    #[arg(short, long)]
    pub default: bool,
    /// Change directories with everything in them
    #[arg(short = 'R', long)]
    pub recursive: bool,
}
