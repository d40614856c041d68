//! The command `shoal`.
//!
//! `main` is the table of modes: it reads the arguments, calls the command, and turns its result
//! into an exit status. What the arguments are is in `args`, what the commands do in `commands`.
//! Under the name `mount.shoal` the same binary is the helper that mount(8) runs.

#![forbid(unsafe_code)]

mod args;
mod clock;
mod commands;
mod failure;
mod glob;
mod interrupt;
mod location;
mod logging;
mod mounted;
mod output;
mod progress;
mod session;
mod size;
mod walk;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command, HelperArgs};
use failure::{Failure, OK, Result};
use shoal::memory::WithReserve;

/// A command allocates and frees names and batches by the million, on several threads; and a mount
/// outlives the memory of its machine.
#[global_allocator]
static ALLOCATOR: WithReserve<mimalloc::MiMalloc> = WithReserve(mimalloc::MiMalloc);

/// The name by which mount(8) calls its helper.
const HELPER: &str = "mount.shoal";

fn main() -> ExitCode {
    shoal::memory::enable();
    let arguments: Vec<OsString> = args::accept_find_spelling(std::env::args_os());
    let name = arguments.first().and_then(|name| Path::new(name).file_name());
    let status = match name.is_some_and(|name| name == HELPER) {
        true => helper(&arguments),
        false => shoal(&arguments),
    };
    ExitCode::from(status)
}

/// Runs the mount helper; its exit status.
fn helper(arguments: &[OsString]) -> u8 {
    match HelperArgs::try_parse_from(arguments) {
        Ok(args) => finish(commands::mount::helper(&args)),
        Err(error) => usage(&error, commands::mount::HELPER_USAGE),
    }
}

/// Runs the command; its exit status.
fn shoal(arguments: &[OsString]) -> u8 {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => finish(run(&cli.command)),
        Err(error) => {
            let is_check = |command: &OsString| command == "fsck" || command == "scrub";
            let is_check = arguments.get(1).is_some_and(is_check);
            usage(&error, if is_check { commands::fsck::USAGE } else { failure::UNUSABLE })
        }
    }
}

/// The modes.
fn run(command: &Command) -> Result<u8> {
    match command {
        Command::Mkfs(args) => commands::mkfs::run(args),
        Command::Mount(args) => commands::mount::mount(args),
        Command::Umount(args) => commands::mount::umount(args),
        Command::Sync(args) => commands::mount::sync(args),
        Command::Fsck(args) => commands::fsck::run(args),
        Command::Scrub(args) => commands::scrub::run(args),
        Command::Info(args) => commands::info::run(args),
        Command::Stats(args) => commands::stats::run(args),
        Command::Trim(args) => commands::trim::run(args),
        Command::Orphans(args) => commands::orphans::run(args),
        Command::Logdump(args) => commands::logdump::run(args),
        Command::Root(args) => commands::root::run(args),
        Command::Ls(args) => commands::list::run(args),
        Command::Stat(args) => commands::stat::run(args),
        Command::Cat(args) => commands::cat::run(args),
        Command::Find(args) => commands::find::run(args),
        Command::Cp(args) => commands::copy::run(args),
        Command::Mv(args) => commands::rename::run(args),
        Command::Rm(args) => commands::remove::run(args),
        Command::Mkdir(args) => commands::mkdir::run(args),
        Command::Ln(args) => commands::link::run(args),
        Command::Xattr(args) => commands::xattr::run(args),
        Command::Path(args) => commands::parents::path(args),
        Command::Parents(args) => commands::parents::parents(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Generate(args) => commands::generate::run(args),
    }
}

/// Reports how a command ended.
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

/// Prints help, the version, or what is wrong with the arguments.
fn usage(error: &clap::Error, status: u8) -> u8 {
    // There is nobody to tell if it cannot be printed.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => OK,
        _ => status,
    }
}
