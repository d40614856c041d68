//! `shoal mount`, `shoal umount`, `shoal sync`.
//!
//! A mount in the background is a second process of this same program, started with `--foreground`
//! and a pipe as its standard output. It writes one line there when the mount is usable. Until then
//! it shares our standard error, so that it reports errors itself, and its exit status becomes
//! ours. A fork without starting the program again would be left with one thread of several, which
//! safe code cannot do.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shoal::raw::is_bucket;
use shoal_fuse::{MountOptions, OtherMount, Server, Unmount, Unmounted};

use crate::args::{MountArgs, UmountArgs};
use crate::commands::end::{End, Waiter};
use crate::commands::keeper::{self, Keeps};
use crate::commands::serve::{self, KeeperWish, Plan, READY, Role};
use crate::direct;
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED, UNUSABLE};
use crate::patience;
use crate::progress::eprint_line;
use crate::rings::{self, GivenUp};
use crate::tags;
use crate::text::printable;

/// Message for a server that has ended without a line.
const NOT_CLOSED: &str = "unmounted, but its server had ended without closing the volume: changes \
    that were not synced are lost, and the next mount recovers the rest";
/// The same, if there is a ring.
const KEPT: &str = "unmounted, but its server had ended without closing the volume: the next open \
    of the volume finds all completed calls, unless this machine is restarted before";

/// Mounts a volume.
pub(crate) fn mount(args: &MountArgs) -> Result<u8> {
    let plan = Plan::new(args, false)?;
    if args.kept.is_none() {
        check_mount_point(&plan.directory)?;
    }
    match args {
        MountArgs { foreground: false, .. } => background(&plan, args),
        MountArgs { kept: Some(oom_score), .. } => serve::run_kept(&plan, args, oom_score),
        _ if let Some(role) = plan.role => serve::run_following(&plan, role, args.report_ready),
        _ if plan.has_keeper()? => {
            serve::prepare_keeper(&plan, args.report_ready)?;
            let arguments = server_arguments(&plan, args);
            let given_up = GivenUp::of(&plan.volume);
            let mount = (Keeps::Mount, plan.directory);
            keeper::run(mount, arguments, args.report_ready, given_up)
        }
        _ => serve::run(&plan, args.report_ready),
    }
}

/// Unmounts, and waits until the volume is released. Reports how the server ended.
pub(crate) fn umount(args: &UmountArgs) -> Result<u8> {
    let directory = &args.directory;
    let failed = |error| Failure::volume(directory.display(), &error).with_status(SOME_FAILED);
    if args.lazy {
        shoal_fuse::unmount_lazy(directory).map_err(failed)?;
        return Ok(OK);
    }
    if args.force {
        shoal_fuse::unmount_by_force(directory).map_err(failed)?;
        return Ok(OK);
    }
    // While the mount still says which process serves it, and from what.
    let waiting = patience::wait_for_answer(directory);
    let volume = shoal_fuse::mount_above(directory).ok().flatten().map(|(_, source)| source);
    let unmount = Unmount::prepare(directory).map_err(failed)?;
    drop(waiting);
    let waiter = match unmount.server() {
        Server::Process(pid) => Some(Waiter::connect(pid, &unmount.seen())),
        Server::Unknown => Some(Waiter::Refused),
        Server::Ended => None,
    };
    let stopped = |pid| eprint_line(&stopped_while_closing(directory, pid));
    if let Unmounted::Elsewhere(others) = unmount.run(stopped).map_err(failed)? {
        eprint_line(&still_mounted(directory, &others));
        return Ok(OK);
    }
    let reason = match waiter {
        Some(Waiter::Refused) => {
            "unmounted, but its server could not be asked whether the volume is closed (shoal info \
             shows it)"
                .to_owned()
        }
        Some(waiter) => match waiter.end() {
            End::Closed | End::Unknown => return Ok(OK),
            End::Failed(why) => format!("unmounted, but the volume could not be closed: {why}"),
            End::Died => not_closed(volume).to_owned(),
        },
        None => not_closed(volume).to_owned(),
    };
    Err(Failure::failed(directory.display(), reason))
}

/// Message for a server that is stopped before it has closed its volume.
fn stopped_while_closing(directory: &Path, pid: u32) -> String {
    format!(
        "{}: unmounted, but its server (process {pid}) is stopped, and has not closed the volume: \
         let it go on with 'kill -CONT {pid}'",
        directory.display()
    )
}

/// Most other mounts that a message names.
const NAMED_MAX: usize = 3;

/// Message for a mount that is gone while others of the same server remain.
fn still_mounted(directory: &Path, others: &[OtherMount]) -> String {
    let mut places: Vec<String> = others.iter().take(NAMED_MAX).map(place).collect();
    if others.len() > NAMED_MAX {
        places.push(format!("in {} more places", others.len() - NAMED_MAX));
    }
    if places.is_empty() {
        places.push("in a mount namespace or below a filesystem that cannot be seen here".into());
    }
    format!(
        "{}: unmounted here; the volume stays in use, as it is also mounted {}",
        directory.display(),
        places.join(", ")
    )
}

fn place(other: &OtherMount) -> String {
    let dir = printable(other.dir.as_os_str().as_bytes());
    match &other.process {
        None => format!("on {dir}"),
        Some((pid, name)) => {
            format!(
                "on {dir} in the mount namespace of process {pid} ({})",
                printable(name.as_bytes())
            )
        }
    }
}

/// Returns the message for a volume whose server has ended without a line.
fn not_closed(volume: Option<OsString>) -> &'static str {
    if volume.is_some_and(|volume| rings::is_left(Path::new(&volume))) { KEPT } else { NOT_CLOSED }
}

/// Makes a mounted volume durable.
pub(crate) fn sync(directory: &Path) -> Result<u8> {
    shoal_fuse::sync(directory)
        .map_err(|error| Failure::volume(directory.display(), &error))
        .map_err(|failure| failure.with_status(SOME_FAILED))?;
    Ok(OK)
}

impl Plan {
    /// Combines the options: those of `-o` in order, then those with a flag of their own. `sloppy`
    /// ignores unknown ones.
    pub(crate) fn new(args: &MountArgs, sloppy: bool) -> Result<Plan> {
        // The keeper's paths are absolute, and nobody may answer for the directory yet.
        let resolved = |path: &Path| match args.kept {
            Some(_) => path.to_owned(),
            None => absolute(path),
        };
        let mut plan = Plan {
            volume: resolved(&tags::resolve(&args.volume)?),
            directory: resolved(&args.directory),
            options: MountOptions::default(),
            accepted: Vec::new(),
            force: args.force,
            log: args.log.as_deref().map(absolute),
            log_level: args.log_level,
            log_format: args.log_format,
            keeper: KeeperWish::Auto,
            role: None,
        };
        warn(args);
        for list in &args.options {
            for option in list.split(',') {
                match plan.option(option) {
                    Ok(()) => plan.accepted.push(option.to_owned()),
                    Err(_) if sloppy => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        plan.options.read_only |= args.read_only;
        if args.standby && plan.role.is_none() {
            plan.option("standby")?;
            plan.accepted.push("standby".to_owned());
        }
        if let Some(role) = plan.role {
            serve::check_role(&plan, role)?;
            plan.options.follows = true;
            plan.options.read_only |= matches!(role, Role::Replica(_));
        }
        if let Some(cache) = args.cache {
            plan.options.cache_bytes = cache;
        }
        match (&plan.options.disk_cache, direct::disk_cache(&plan.volume)?) {
            (Some(_), _) if !is_bucket(&plan.volume) => {
                let reason = "is for volumes in buckets alone; this one is on a disk already";
                return Err(Failure::usage("mount option \"disk_cache\"", reason));
            }
            (None, Some(disk)) => {
                plan.options.disk_cache = Some(disk.directory);
                plan.options.disk_cache_bytes = disk.bytes;
            }
            _ => {}
        }
        if let Some(address) = &args.metrics {
            let option = format!("metrics={address}");
            plan.options.add(&option).map_err(|error| Failure::usage("--metrics", error))?;
        }
        if let Some(threads) = args.threads {
            plan.options.threads = threads.into();
        }
        let level = name_of(plan.log_level);
        let log = plan.log.iter().map(|log| format!("log={}", log.display()));
        let level = (level != "info").then(|| format!("log_level={level}"));
        const OURS: [&str; 4] = ["keeper=", "log_format=", "follow", "standby"];
        let is_ours = |option: &&String| OURS.iter().any(|ours| option.starts_with(ours));
        let others = plan.accepted.iter().filter(is_ours).cloned();
        plan.options.also = log.chain(level).chain(others).collect();
        Ok(plan)
    }

    fn option(&mut self, option: &str) -> Result<()> {
        if let Some(role) = Role::parse(option)? {
            self.role = Some(role);
            return Ok(());
        }
        match option.split_once('=') {
            None if option == "force" => self.force = true,
            Some(("log", file)) if !file.is_empty() => self.log = Some(absolute(Path::new(file))),
            Some(("log_format", format)) => {
                self.log_format = clap::ValueEnum::from_str(format, true).map_err(|_| {
                    Failure::usage(format!("mount option \"{option}\""), "needs text or json")
                })?;
            }
            Some(("log_level", level)) => {
                self.log_level = clap::ValueEnum::from_str(level, true).map_err(|_| {
                    let levels = "needs error, warn, info, debug or trace";
                    Failure::usage(format!("mount option \"{option}\""), levels)
                })?;
            }
            Some(("keeper", wish)) => self.keeper = KeeperWish::parse(wish)?,
            _ => self.options.add(option).map_err(|error| Failure::usage("-o", error))?,
        }
        Ok(())
    }
}

/// Warns of options that have no effect. The server that it starts is told the same options.
fn warn(args: &MountArgs) {
    if args.report_ready || args.kept.is_some() {
        return;
    }
    let options = args.options.iter().flat_map(|list| list.split(','));
    for warning in options.filter_map(MountOptions::warning) {
        eprint_line(&format!("shoal: {warning}"));
    }
}

/// Makes a path absolute, since a server changes its directory. A path that cannot be resolved is
/// left as it is, and opening it reports why.
fn absolute(path: &Path) -> PathBuf {
    if is_bucket(path) {
        return path.to_owned();
    }
    let resolved = fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    resolved.unwrap_or_else(|_| path.to_owned())
}

/// Refuses a mount point that cannot be one before the volume is opened and perhaps recovered.
/// Mounting finds any other error.
pub(crate) fn check_mount_point(directory: &Path) -> Result<()> {
    let reason = match fs::metadata(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "no such directory (make the mount point first)"
        }
        Ok(found) if !found.is_dir() => "is not a directory (a mount point must be one)",
        _ => return Ok(()),
    };
    Err(Failure::failed(directory.display(), reason))
}

/// Starts the server and waits until it is ready, or has failed.
pub(crate) fn background(plan: &Plan, args: &MountArgs) -> Result<u8> {
    let cannot = |error| {
        Failure::failed(plan.directory.display(), format!("no server: {}", Reason::System(error)))
    };
    let program = std::env::current_exe().map_err(cannot)?;
    // The allocator reads these when a process begins. Huge pages for each thread's few kilobytes:
    // half as much memory again in a server that makes 200,000 files, and no more speed. Pages that
    // are free for a second: given back only when the server allocates again, an idle one never
    // does.
    let allocator = ["MIMALLOC_ALLOW_THP", "MIMALLOC_PURGE_DELAY"];
    let allocator = allocator.map(|of| (of, std::env::var_os(of).unwrap_or_else(|| "0".into())));
    let mut server = Command::new(program)
        .arg0("shoal")
        .envs(allocator)
        .args(server_arguments(plan, args))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut line = String::new();
    if let Some(output) = server.stdout.take() {
        // Unreadable is the same as silent: the exit status says more.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim_end() == READY {
        return Ok(OK);
    }
    let status = server.wait().map_err(cannot)?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        // It has reported why.
        Some(status @ (SOME_FAILED | UNUSABLE)) => Ok(status),
        _ => Err(Failure::failed(
            plan.directory.display(),
            format!("the server ended before the mount was usable ({status})"),
        )),
    }
}

/// Returns the command line of the server.
fn server_arguments(plan: &Plan, args: &MountArgs) -> Vec<std::ffi::OsString> {
    let mut arguments: Vec<std::ffi::OsString> = vec!["mount".into(), "--foreground".into()];
    if args.report_ready || !args.foreground {
        arguments.push("--report-ready".into());
    }
    for option in &plan.accepted {
        arguments.extend(["-o".into(), option.into()]);
    }
    let flags = [
        ("--cache", args.cache.map(|bytes| bytes.to_string())),
        ("--metrics", args.metrics.clone()),
        ("--threads", args.threads.map(|threads| threads.to_string())),
    ];
    for (flag, value) in flags {
        arguments.extend(value.map(|value| format!("{flag}={value}").into()));
    }
    if args.read_only {
        arguments.push("--read-only".into());
    }
    if args.force {
        arguments.push("--force".into());
    }
    if let Some(log) = &plan.log {
        arguments.extend(["--log".into(), log.into()]);
    }
    arguments.extend(["--log-level".into(), name_of(plan.log_level).into()]);
    arguments.extend(["--log-format".into(), name_of(plan.log_format).into()]);
    arguments.extend(["--".into(), plan.volume.clone().into(), plan.directory.clone().into()]);
    arguments
}

fn name_of(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, LogFormat, LogLevel};
    use clap::Parser;

    fn args(line: &str) -> MountArgs {
        match Cli::try_parse_from(line.split(' ')).expect(line).command {
            Command::Mount(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_come_together() {
        let args = args(
            "shoal mount v /d -o ro,cache=1M,log=/l,log_level=debug,log_format=json \
             -o allow_other --cache 2M",
        );
        let plan = Plan::new(&args, false).expect("good options");
        assert!(plan.options.read_only && plan.options.allow_other);
        assert_eq!(plan.options.cache_bytes, 2 << 20);
        assert_eq!(plan.log.as_deref(), Some(Path::new("/l")));
        assert_eq!((plan.log_level, plan.log_format), (LogLevel::Debug, LogFormat::Json));
        assert!(plan.volume.is_absolute());
    }

    #[test]
    fn unknown_options_are_named_unless_sloppy() {
        let args = args("shoal mount v /d -o ro,frobnicate");
        let Err(Failure::Line { line, status }) = Plan::new(&args, false) else { panic!() };
        assert!(line.contains("frobnicate") && status == UNUSABLE, "{line}");
        let plan = Plan::new(&args, true).expect("sloppy");
        assert!(plan.options.read_only);
        assert!(!server_arguments(&plan, &args).contains(&"frobnicate".into()));
    }

    #[test]
    fn the_server_gets_the_same_plan() {
        let args = args(
            "shoal mount v /d -o ro,noexec --threads 3 --cache 1M --metrics :9500 --log l \
             --log-level trace --log-format json --force",
        );
        let plan = Plan::new(&args, false).expect("good options");
        assert!(plan.force);
        let line = std::iter::once("shoal".into()).chain(server_arguments(&plan, &args));
        let Command::Mount(again) = Cli::try_parse_from(line).expect("parses").command else {
            panic!()
        };
        assert!(again.foreground && again.report_ready);
        let again = Plan::new(&again, false).expect("good options");
        assert_eq!(again.options, plan.options);
        assert_eq!((&again.volume, &again.log), (&plan.volume, &plan.log));
        assert_eq!((again.log_level, again.force), (plan.log_level, plan.force));
        assert_eq!((again.log_format, plan.log_format), (LogFormat::Json, LogFormat::Json));
    }
}
