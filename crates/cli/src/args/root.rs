//! Arguments of the commands about roots.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const ROOT_AFTER: &str = "\
EXIT STATUS:
  0   Done.
  1   It could not be done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal root create vol.img ci
    shoal cp -r workspace vol.img:/ci
    shoal root delete vol.img ci
";

/// Make, list and delete roots of a volume
///
/// A root is a directory under the volume's top that has inode numbers and trees of its own. What
/// is done in one never waits for what is done in another, and a root is deleted at once, however
/// much is in it. Like a mount point it cannot be renamed or removed as a directory, and files are
/// not renamed or linked from one root to another. The volume must not be mounted.
#[derive(Args, Debug)]
#[command(after_long_help = ROOT_AFTER, disable_help_subcommand = true)]
pub struct RootArgs {
    /// What to do
    #[command(subcommand)]
    pub command: RootCommand,
}

/// The commands about roots.
#[derive(Subcommand, Debug)]
pub enum RootCommand {
    Create(RootCreateArgs),
    List(RootListArgs),
    Delete(RootDeleteArgs),
}

const CREATE_AFTER: &str = "\
EXIT STATUS:
  0   The root was made.
  1   It was not: the name is taken, the volume is full, or it has 65,536 roots.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Make a root
///
/// It belongs to the user who runs the command. Each root takes about 128 KiB before anything is in
/// it.
#[derive(Args, Debug)]
#[command(after_long_help = CREATE_AFTER)]
pub struct RootCreateArgs {
    /// The volume's file or device
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Name of the root under the volume's top
    #[arg(value_name = "NAME")]
    pub name: OsString,
    /// Permission bits in octal [default: 777 without the bits of the umask]
    #[arg(short, long, value_name = "MODE", value_parser = super::octal_mode)]
    pub mode: Option<u32>,
}

const LIST_AFTER: &str = "\
OUTPUT:
  One root a line, by number: the number, how many inodes are in use in it, and its name. A root
  that has been deleted is listed without a name until its space is free. With --json, one object a
  line:

    number     top 16 bits of its inode numbers
    name       only of roots that have not been deleted; name_bytes as in shoal ls --json
    top        inode number of its top directory
    inodes     how many are in use
    deleted    true: what was in it is being freed

EXIT STATUS:
  0   Done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// List roots
#[derive(Args, Debug)]
#[command(after_long_help = LIST_AFTER)]
pub struct RootListArgs {
    /// The volume's file or device
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

const DELETE_AFTER: &str = "\
EXIT STATUS:
  0   The root was deleted; with --wait, and its space is free.
  1   It was not: there is no such root. With --wait also: it was, but its space could not be freed.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Delete a root and everything in it
///
/// The name is gone when the command returns. The space is freed behind, whenever the volume is
/// next mounted or changed; with --wait it is freed now.
#[derive(Args, Debug)]
#[command(after_long_help = DELETE_AFTER)]
pub struct RootDeleteArgs {
    /// The volume's file or device
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Name of the root
    #[arg(value_name = "NAME")]
    pub name: OsString,
    /// Return when the space is free: of this root, and of those deleted before
    #[arg(long)]
    pub wait: bool,
}
