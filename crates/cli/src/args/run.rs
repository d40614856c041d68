//! Arguments of `shoal run`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

const RUN_AFTER: &str = "\
WHAT IT DOES:
  A library, libshoal_run.so, is loaded into the program and all that it starts (LD_PRELOAD). Calls
  on paths below a mounted volume, and on files opened there, are made through memory that is shared
  with the volume's server, without the kernel. Every other call is the C library's, and so is a
  call in which anything is unusual. Results are the same, and what one program changes all others
  see at once, with the library or without.

WHICH PROGRAMS:
  All that are linked with the C library. Static programs, set-id programs and those that clear
  their environment run as without it, by the mount. A program uses a session after its fourth call
  below a mount, or when it opens a directory there.

  The library steps aside for the rest of a program that changes its user or groups, its root
  directory or namespaces, limits its system calls (seccomp), or uses io_uring; and for a mount with
  another mount below it.

ENVIRONMENT:
  SHOAL_RUN            'off' switches the library off, also for programs below a program that has it
  SHOAL_RUN_LIBRARY    the library, if it is not beside this command or in ../lib/shoal

EXIT STATUS:
  That of the command. Of a command that a signal ended: 128 and the signal's number, with --stats.
  2     Wrong usage, or the library is missing.
  126   The command cannot be run.
  127   There is no such command.

EXAMPLES:
    shoal run -- tar -xf linux.tar -C /mnt
    shoal run --stats -- cp -a /mnt/project /mnt/copy
    eval \"$(shoal run --env)\"
";

/// Run a program whose calls below mounted volumes need no kernel
///
/// The program is as it is: it needs no change and no rights.
#[derive(Args, Debug)]
#[command(after_long_help = RUN_AFTER)]
pub(crate) struct RunArgs {
    /// Print to standard error, at the end, how many calls went by sessions and how many by mounts
    #[arg(long, conflicts_with = "env")]
    pub stats: bool,
    /// Print shell commands that set the environment, for a shell and all that it starts
    #[arg(long, conflicts_with = "command")]
    pub env: bool,
    /// Program, and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "env",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}
