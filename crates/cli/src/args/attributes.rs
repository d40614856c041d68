//! Arguments of the commands about extended attributes and about the names of files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const XATTR_AFTER: &str = "\
NAMES:
  A name has its namespace in front: user.NAME, trusted.NAME, security.NAME, or an access control
  list, system.posix_acl_access or system.posix_acl_default, whose value is that of the system
  calls. In files without set rules use user.

EXIT STATUS:
  0   Done.
  1   It could not be done: no such file or attribute, or the volume is full.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal xattr set vol.img:/a user.origin https://example.org/a
    shoal xattr ls -l vol.img:/a
    shoal xattr get vol.img:/a user.origin
";

/// Get, set, list and remove extended attributes of files
///
/// Of files in a mount, or as VOLUME:/path. A symlink is followed, unless -P is given. Access
/// control lists are read and set by shoal getfacl and shoal setfacl.
#[derive(Args, Debug)]
#[command(after_long_help = XATTR_AFTER, disable_help_subcommand = true)]
pub(crate) struct XattrArgs {
    /// Command to run
    #[command(subcommand)]
    pub command: XattrCommand,
}

/// The commands about attributes.
#[derive(Subcommand, Debug)]
pub(crate) enum XattrCommand {
    Get(XattrGetArgs),
    Set(XattrSetArgs),
    Ls(XattrLsArgs),
    Rm(XattrRmArgs),
}

/// File argument of the commands about attributes.
#[derive(Args, Debug)]
pub(crate) struct XattrPlace {
    /// File, in a mount or as VOLUME:/path
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub place: OsString,
    /// Take a symlink itself, not its target
    #[arg(short = 'P', long)]
    pub no_dereference: bool,
}

const GET_AFTER: &str = "\
OUTPUT:
  The bytes of the value as they are, and nothing else; on a terminal, made harmless and with a new
  line. With --json, one object:

    path, name   strings; path_bytes, name_bytes as in shoal ls --json
    size         bytes of the value
    value        as text; value_bytes if it is not UTF-8

EXIT STATUS:
  0   Done.
  1   There is no such file, or it has no such attribute.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Print the value of an attribute
#[derive(Args, Debug)]
#[command(after_long_help = GET_AFTER)]
pub(crate) struct XattrGetArgs {
    /// The file
    #[command(flatten)]
    pub file: XattrPlace,
    /// Name of the attribute, as user.NAME
    #[arg(value_name = "NAME")]
    pub name: OsString,
    /// Print the value in hexadecimal, on one line
    #[arg(long, conflicts_with = "json")]
    pub hex: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const SET_AFTER: &str = "\
EXIT STATUS:
  0   The attribute was set.
  1   It was not, and has the value it had: no such file, name or value too long, volume full.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal xattr set vol.img:/a user.note 'see b'
    shoal xattr set vol.img:/a user.icon < icon.png
    shoal xattr set vol.img:/a user.id --hex 00ff17
";

/// Set an attribute
#[derive(Args, Debug)]
#[command(after_long_help = SET_AFTER)]
pub(crate) struct XattrSetArgs {
    /// The file
    #[command(flatten)]
    pub file: XattrPlace,
    /// Name of the attribute, as user.NAME
    #[arg(value_name = "NAME")]
    pub name: OsString,
    /// The value; without it, standard input up to its end
    #[arg(value_name = "VALUE")]
    pub value: Option<OsString>,
    /// The value is written in hexadecimal
    #[arg(long)]
    pub hex: bool,
    /// Fail if the file has the attribute
    #[arg(long, conflicts_with = "replace")]
    pub create: bool,
    /// Fail if the file does not have the attribute
    #[arg(long)]
    pub replace: bool,
}

const LIST_AFTER: &str = "\
OUTPUT:
  One name a line, sorted; with -l the number of bytes of the value before it. With --json, one
  object a line:

    name   string; name_bytes as in shoal ls --json
    size   bytes of the value

EXIT STATUS:
  0   Done; also if there are no attributes.
  1   There is no such file.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// List the attributes of a file
#[derive(Args, Debug)]
#[command(after_long_help = LIST_AFTER)]
pub(crate) struct XattrLsArgs {
    /// The file
    #[command(flatten)]
    pub file: XattrPlace,
    /// Show sizes, too
    #[arg(short)]
    pub long: bool,
    /// Print JSON, one object a line for each attribute
    #[arg(long)]
    pub json: bool,
}

const REMOVE_AFTER: &str = "\
EXIT STATUS:
  0   They were removed.
  1   Some were not: no such file or attribute.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Remove attributes of a file
#[derive(Args, Debug)]
#[command(after_long_help = REMOVE_AFTER)]
pub(crate) struct XattrRmArgs {
    /// The file
    #[command(flatten)]
    pub file: XattrPlace,
    /// Names of the attributes
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<OsString>,
}

const PATH_AFTER: &str = "\
OUTPUT:
  Each path on a line of its own: all hard links of a file, from the top of the volume or mount. If
  several inodes are asked for, the number and a tab stand before each. With --json, one object a
  line for each inode:

    ino, generation   as in shoal ls --json
    paths             strings
    paths_bytes       all of them in hexadecimal, only if one is not UTF-8

EXIT STATUS:
  0   Every inode has a path.
  1   Some have none: no such inode, or an open file without a name.
  2   Wrong usage, or the volume cannot be used: missing, damaged, in use, or made without parent
      pointers.

EXAMPLES:
    shoal path vol.img 1234
    shoal path /mnt 1234
";

/// Print the paths of inodes
///
/// Every file knows its names, so nothing is searched. A mounted volume is asked through its mount;
/// only the superuser and the user who mounted it may do so.
#[derive(Args, Debug)]
#[command(after_long_help = PATH_AFTER)]
pub(crate) struct PathArgs {
    /// The volume's file or device, or a directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Inode numbers
    #[arg(value_name = "INODE", required = true)]
    pub inodes: Vec<u64>,
    /// End each path with a zero byte instead of a new line
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// Print JSON, one object a line for each inode
    #[arg(long)]
    pub json: bool,
}

const PARENTS_AFTER: &str = "\
OUTPUT:
  One line for each hard link: inode number of the directory, its generation, the name in it and the
  path from the top of the volume, with tabs between. With --json, one object a line for each link:

    ino, generation              of the file
    parent, parent_generation    of the directory
    name, path                   strings; name_bytes, path_bytes as in shoal ls --json

EXIT STATUS:
  0   Done. The top of a volume has no parent, and that is no failure.
  1   Some could not be shown: no such file, or not permitted.
  2   Wrong usage, or the volume cannot be used: missing, damaged, in use, or made without parent
      pointers.

EXAMPLES:
    shoal parents vol.img:/a/b
    shoal parents /mnt/a/b
";

/// Show the names of files: every hard link
///
/// A file in a mounted volume is looked up through the mount; only the superuser and the user who
/// mounted it may do so.
#[derive(Args, Debug)]
#[command(after_long_help = PARENTS_AFTER)]
pub(crate) struct ParentsArgs {
    /// Files in a mounted volume, or as VOLUME:/path
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Print JSON, one object a line for each link
    #[arg(long)]
    pub json: bool,
}
