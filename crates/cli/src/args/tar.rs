//! Arguments of `shoal tar`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args, ValueHint};
use shoal::raw::Time;

const TAR_AFTER: &str = "\
PLACES:
  -C names the directory whose files are archived, or that files are extracted into: VOLUME:/path,
  or a directory of this machine, for instance in a mounted volume. MEMBERS are paths in it; an
  absolute one begins at the top of the volume. -f is a file of this machine, or - for standard
  output or input, which is the default.

ARCHIVES:
  -c writes ustar headers with pax records where they are needed: times to the nanosecond, names of
  any length, large files and numbers, holes of sparse files (GNU's format 1.0), and, if asked for,
  extended attributes and access control lists. GNU tar and bsdtar read them. Files with several
  names are stored once, with hard links. Sockets are left out. -x and -t read archives of GNU tar,
  of POSIX and older ones, and recognise zstd; but not sparse files in GNU's formats 0.0 and 0.1,
  nor archives in several volumes.

EXTRACTING:
  Nothing leaves the directory of -C: a leading slash is removed, a name with '..' refused, and no
  symlink on the way is followed, neither one that was there nor one of the archive. A file is
  written without a name and gets its name when it is whole, also if the machine crashes meanwhile;
  an older file of the name is replaced then. A symlink in place of a directory is refused, not
  replaced.
  Owners are set if run by root: by name if there is such a user here, else by number. Modes are
  those of the archive without the bits of the umask, set-id and sticky; with -p, and for root, as
  they are. Times of last access are not in archives.

INCREMENTS:
  -N stores files whose contents or attributes have changed after a time, and all directories.
  --since and --mark-file store the changes that 'shoal changes' lists, without a walk: MEMBERS
  cannot be given.
  Removed files are not in the archive: see 'shoal changes --removed'. If the volume does not keep
  removed names ('shoal changes VOLUME --keep-removed on'), a directory that may have been renamed
  is stored with everything below: one that has changed together with the directory above. Of the
  top of a volume with subvolumes everything is archived, and a message says so.

OUTPUT:
  -t prints as GNU tar does, -tv with times in UTC. -v prints each member, on standard error if the
  archive goes to standard output.

EXIT STATUS:
  0   Everything was done.
  1   Some of it failed, or a file has changed while it was read; each failure has a line of its own
      on standard error. An archive that is damaged is read up to there.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal tar -cf home.tar -C vol.img:/ home
    shoal tar -c --zstd -C vol.img:/ . | ssh host 'cat >backup.tar.zst'
    tar -c -C /usr/share doc | shoal tar -x -C vol.img:/
    shoal tar -tvf home.tar home/ann
    shoal tar -cf monday.tar -C vol.img:/home --mark-file home.mark
";

/// Archive files of a volume, or extract an archive into one
#[derive(Args, Debug)]
#[command(after_long_help = TAR_AFTER)]
#[command(group = ArgGroup::new("mode").args(["create", "extract", "list"]).required(true))]
#[command(group = ArgGroup::new("increment").args(["since", "mark_file"]))]
pub(crate) struct TarArgs {
    /// Make an archive
    #[arg(short, long)]
    pub create: bool,
    /// Extract files from an archive
    #[arg(short = 'x', long, visible_alias = "get")]
    pub extract: bool,
    /// List the members of an archive
    #[arg(short = 't', long)]
    pub list: bool,
    /// The archive; - for standard output or input
    #[arg(short, long, value_name = "FILE", default_value = "-", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Directory in a volume, VOLUME:/path, or on this machine
    #[arg(short = 'C', long, value_name = "PLACE", default_value = ".",
          value_hint = ValueHint::AnyPath)]
    pub directory: OsString,
    /// Files and directories in it; members of the archive with -x and -t [default for these: all]
    #[arg(value_name = "MEMBERS", value_hint = ValueHint::AnyPath)]
    pub members: Vec<OsString>,
    /// Print each member; twice: with its attributes
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// Write the archive also over a volume
    #[arg(long, requires = "create")]
    pub force: bool,
    /// Compress with zstd; when reading it is recognised
    #[arg(long)]
    pub zstd: bool,
    /// Leave out files and directories whose path, or the end of it, matches: * ? [a-z]
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Read more MEMBERS from a file, one a line; - for standard input
    #[arg(short = 'T', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from: Option<PathBuf>,
    /// The names in the file of -T end with NUL bytes
    #[arg(long, requires = "files_from")]
    pub null: bool,
    /// Archive directories without their contents
    #[arg(long)]
    pub no_recursion: bool,
    /// Archive files that are newer than a time in UTC, and all directories
    #[arg(short = 'N', long, value_name = "TIME", value_parser = super::time,
          visible_alias = "after-date")]
    pub newer: Option<Time>,
    /// Archive what has changed since a mark of 'shoal changes'
    #[arg(long, value_name = "MARK",
          conflicts_with_all = ["members", "files_from"])]
    pub since: Option<String>,
    /// The same with the mark in FILE, everything if it does not exist; then replace the mark
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["members", "files_from"])]
    pub mark_file: Option<PathBuf>,
    /// Store or use extended attributes
    #[arg(long)]
    pub xattrs: bool,
    /// Store or use access control lists
    #[arg(long)]
    pub acls: bool,
    /// Store, use and print numbers of users and groups, not their names
    #[arg(long)]
    pub numeric_owner: bool,
    /// Extract modes as they are, also set-id bits [default for root]
    #[arg(short = 'p', long, visible_alias = "same-permissions")]
    pub preserve_permissions: bool,
    /// Extracted files belong to the user that runs this
    #[arg(long)]
    pub no_same_owner: bool,
    /// Keep files that exist: extracting them fails
    #[arg(short, long)]
    pub keep_old_files: bool,
    /// Remove so many directories from the beginning of each name
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub strip_components: usize,
}
