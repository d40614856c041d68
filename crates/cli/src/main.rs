//! The command `shoal`.
//!
//! `main` is the table of modes: it reads the arguments, calls the command, and turns its result
//! into an exit status. The arguments are in `args`, the commands in `commands`. Under names as
//! `mount.shoal` the same binary is a helper of mount(8) and others (`commands/helper.rs`).
//!
//! Modules bottom-up; each uses only those above it in this list.

#![forbid(unsafe_code)]

mod accounts;
mod clock;
mod exclude;
mod size;
mod text;

mod mounts;

mod failure;

mod tags;

mod acl;
mod args;
mod interrupt;
mod json;
mod operations;

mod keeping;
mod location;
mod logging;
mod new_file;
mod output;
mod progress;
mod rings;
mod store;

mod marks;
mod patience;

mod direct;

mod session;

mod mounted;

mod feed;
mod source;

mod start;

mod in_mount;

mod tree;

mod ahead;
mod find;
mod ls;

mod walk;

mod commands;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};
use commands::helper::{self, Helper};
use failure::{Failure, OK, Result};
use shoal::raw::memory::WithReserve;

/// The allocator: a command allocates and frees names and batches by the million, on several
/// threads, and a mount must survive when the machine is out of memory.
#[global_allocator]
static ALLOCATOR: WithReserve<mimalloc::MiMalloc> = WithReserve(mimalloc::MiMalloc);

fn main() -> ExitCode {
    shoal::raw::memory::enable();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let program = arguments.first().map(Path::new).unwrap_or_else(|| Path::new(""));
    let status = match Helper::named(program) {
        Some(Helper::Mount) => parsed(&arguments, helper::mount),
        Some(Helper::Umount) => parsed(&arguments, helper::umount),
        Some(Helper::Command(command)) => shoal(&helper::spelt(command, &arguments)),
        None => shoal(&arguments),
    };
    ExitCode::from(status)
}

/// Runs a helper of mount(8) or umount(8); returns its exit status.
fn parsed<A: Parser>(arguments: &[OsString], run: impl FnOnce(&A) -> Result<u8>) -> u8 {
    match A::try_parse_from(arguments) {
        Ok(args) => finish(run(&args)),
        Err(error) => usage(&error, helper::USAGE),
    }
}

/// Runs the command; returns its exit status.
fn shoal(arguments: &[OsString]) -> u8 {
    let arguments = &helper::plain(arguments);
    match Cli::try_parse_from(arguments) {
        Ok(cli) => {
            session::insist(cli.direct);
            finish(run(&cli.command))
        }
        Err(error) => {
            let is_check = |command: &OsString| command == "fsck" || command == "scrub";
            let is_check = arguments.get(1).is_some_and(is_check);
            usage(&error, if is_check { commands::fsck::USAGE } else { failure::UNUSABLE })
        }
    }
}

/// Calls the command.
fn run(command: &Command) -> Result<u8> {
    match command {
        Command::Mkfs(args) => commands::mkfs::run(args),
        Command::Mount(args) => commands::mount::mount(args),
        Command::Serve(args) => commands::sessions::serve(args),
        Command::Remount(args) => commands::remount::run(args),
        Command::Umount(args) => commands::mount::umount(args),
        Command::Sync(args) => commands::sync::run(args),
        Command::Fsck(args) => commands::fsck::run(args),
        Command::Scrub(args) => commands::scrub::run(args),
        Command::Info(args) => commands::info::run(args),
        Command::Grow(args) => commands::grow::run(args),
        Command::Shrink(args) => commands::shrink::run(args),
        Command::Copy(args) => commands::copy::run(args),
        Command::Dump(args) => commands::dump::run(args),
        Command::Restore(args) => commands::dump::restore(args),
        Command::Label(args) => commands::label::run(args),
        Command::Stats(args) => commands::stats::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Trim(args) => commands::trim::run(args),
        Command::Orphans(args) => commands::orphans::run(args),
        Command::Logdump(args) => commands::logdump::run(args),
        Command::Subvolume(args) => commands::subvolume::run(args),
        Command::Quota(args) => commands::quota::run(args),
        Command::Bucket(args) => commands::bucket::run(args),
        Command::Ls(args) => commands::ls::run(args),
        Command::Stat(args) => commands::stat::run(args),
        Command::Cat(args) => commands::cat::run(args),
        Command::Find(args) => commands::find::run(args),
        Command::Changes(args) => commands::changes::run(args),
        Command::Watch(args) => commands::changes::watch(args),
        Command::Du(args) => commands::du::run(args),
        Command::Df(args) => commands::df::run(args),
        Command::Cp(args) => commands::cp::run(args),
        Command::Tar(args) => commands::tar::run(args),
        Command::Mv(args) => commands::mv::run(args),
        Command::Rm(args) => commands::rm::run(args),
        Command::Chmod(args) => commands::chmod::chmod(args),
        Command::Chown(args) => commands::chmod::chown(args),
        Command::Getfacl(args) => commands::acl::get(args),
        Command::Setfacl(args) => commands::acl::set(args),
        Command::Touch(args) => commands::chmod::touch(args),
        Command::Truncate(args) => commands::truncate::run(args),
        Command::Mkdir(args) => commands::mkdir::run(args),
        Command::Ln(args) => commands::ln::run(args),
        Command::Readlink(args) => commands::readlink::run(args),
        Command::Xattr(args) => commands::xattr::run(args),
        Command::Path(args) => commands::parents::path(args),
        Command::Parents(args) => commands::parents::parents(args),
        Command::Share(args) => commands::share::run(args),
        Command::Run(args) => commands::run::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Generate(args) => commands::generate::run(args),
    }
}

/// Reports the end of a command; returns its exit status.
fn finish(result: Result<u8>) -> u8 {
    match result {
        Ok(status) => status,
        Err(Failure::BrokenPipe) => OK,
        Err(Failure::Line { line, status }) => {
            progress::eprint_line(&line);
            status
        }
    }
}

/// Prints help, the version, or an error in the arguments.
fn usage(error: &clap::Error, status: u8) -> u8 {
    // If it cannot be printed there is nobody to tell.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => OK,
        _ => status,
    }
}
