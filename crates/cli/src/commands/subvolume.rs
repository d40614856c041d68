//! `shoal subvolume`: several trees in one volume, each with inode numbers of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use shoal::raw::{Caller, Code, Error, RootInfo, SetAttr, Volume};

use crate::args::{
    SubvolumeArgs, SubvolumeCommand, SubvolumeCreateArgs, SubvolumeDeleteArgs, SubvolumeListArgs,
};
use crate::direct;
use crate::failure::{Failure, OK, Reason, Result};
use crate::in_mount::error_of;
use crate::interrupt;
use crate::json::Object;
use crate::location;
use crate::mounted;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session};
use crate::text::printable;

/// Interval at which a mount is asked what is left to be freed.
const POLL: Duration = Duration::from_millis(100);

/// Makes, lists or deletes subvolumes.
pub(crate) fn run(args: &SubvolumeArgs) -> Result<u8> {
    match &args.command {
        SubvolumeCommand::Create(args) => create(args),
        SubvolumeCommand::List(args) => list(args),
        SubvolumeCommand::Delete(args) => delete(args),
    }
}

fn create(args: &SubvolumeCreateArgs) -> Result<u8> {
    let name = args.name.as_bytes();
    if args.volume.is_dir() {
        let (mode, umask) = (args.mode.unwrap_or(0o777), direct::umask());
        let umask = if args.mode.is_some() { 0 } else { umask };
        return in_mount(&args.volume, name, |top| {
            shoal_fuse::make_subvolume(top, name, mode, umask)
        });
    }
    Session::with(&args.volume, Access::Write, |session| {
        let umask = if args.mode.is_some() { 0 } else { session.who.umask };
        let who = Caller { umask, ..session.who.clone() };
        let make = || {
            let (calls, mode) = (session.calls(), args.mode.unwrap_or(0o777));
            let made = session.opened(calls.make_subvolume(&who, name, mode)?);
            // A top with the set-group-id bit gives its group to new directories; the mode was
            // asked for.
            if args.mode.is_some_and(|mode| made.attr.mode & 0o7777 != mode) {
                let set = SetAttr { mode: args.mode, ..SetAttr::default() };
                calls.set_attr(&who, made.node, b"", false, set)?;
            }
            Ok(OK)
        };
        make().map_err(|e| refused(&session.path, name, &e))
    })
}

fn list(args: &SubvolumeListArgs) -> Result<u8> {
    let roots = match args.volume.is_dir() {
        true => mounted::ask(&args.volume, |mount| shoal_fuse::subvolumes_of(mount))?,
        false => Session::with(&args.volume, Access::Read, |session| {
            let all = session.calls().subvolumes(&session.who);
            all.map_err(|e| Failure::volume(args.volume.display(), &e))
        })?,
    };
    let mut out = Out::new();
    if !args.json && !roots.is_empty() {
        out.heading(&format!("{:>5} {:>12}  NAME", "ID", "INODES"))?;
    }
    for root in &roots {
        if args.json {
            out.json(json(root))?;
            continue;
        }
        out.bytes(format!("{:>5} {:>12}  ", root.id, root.inodes).as_bytes())?;
        if root.deleted {
            out.line("(deleted, being freed)")?;
        } else {
            out.name(&root.name)?;
            out.line("")?;
        }
    }
    out.flush()?;
    Ok(OK)
}

fn delete(args: &SubvolumeDeleteArgs) -> Result<u8> {
    let name = args.name.as_bytes();
    if args.volume.is_dir() {
        return delete_in_mount(args, name);
    }
    let said = Session::with(&args.volume, Access::Write, |session| {
        let (calls, who) = (session.calls(), &session.who);
        calls.delete_subvolume(who, name).map_err(|e| refused(&session.path, name, &e))?;
        // Freeing takes time, and may be interrupted.
        calls.sync(who).map_err(|e| Failure::volume(args.volume.display(), &e))?;
        let label = location::label(&args.volume, &location::join(b"/", name));
        let Some(volume) = session.direct() else {
            // Its server does it.
            if args.wait {
                let left = || {
                    let all = calls.subvolumes(who);
                    all.map_err(|e| Failure::volume(args.volume.display(), &e))
                };
                wait_until_free(&left, &label)?;
            }
            return Ok(deleted(&label, args.wait));
        };
        if !args.wait {
            return Ok(format!(
                "{label}: deleted; its space is freed when the volume is next used"
            ));
        }
        free(volume).map_err(|e| Failure::failed(&label, e))?;
        Ok(deleted(&label, true))
    })?;
    let mut out = Out::new();
    out.line(&said)?;
    out.flush()?;
    Ok(OK)
}

/// Asks the server of a mount, whose top `dir` must be, about a subvolume by name.
fn in_mount(dir: &Path, name: &[u8], ask: impl FnOnce(&OwnedFd) -> io::Result<()>) -> Result<u8> {
    let top = mounted::open(dir)?;
    if shoal_fuse::is_in_mount(&top) && !shoal_fuse::is_mounted(dir) {
        let reason = "is below a mount (name the directory that the volume is mounted on)";
        return Err(Failure::usage(dir.display(), reason));
    }
    match ask(&top) {
        Ok(()) => Ok(OK),
        Err(error) if mounted::is_not_ours(&error) => Err(mounted::refused(dir, error)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::PROTONOSUPPORT) => Err(mounted::refused(dir, error)),
            _ => Err(refused(dir, name, &error_of(error))),
        },
    }
}

fn delete_in_mount(args: &SubvolumeDeleteArgs, name: &[u8]) -> Result<u8> {
    in_mount(&args.volume, name, |top| shoal_fuse::delete_subvolume(top, name))?;
    let label = location::label(&args.volume, &location::join(b"/", name));
    if args.wait {
        let left = || mounted::ask(&args.volume, |mount| shoal_fuse::subvolumes_of(mount));
        wait_until_free(&left, &label)?;
    }
    let mut out = Out::new();
    out.line(&deleted(&label, args.wait))?;
    out.flush()?;
    Ok(OK)
}

/// Returns the line that tells that a subvolume is deleted.
fn deleted(label: &str, is_free: bool) -> String {
    let what = if is_free { ", and its space is free" } else { "; its space is being freed" };
    format!("{label}: deleted{what}")
}

/// Waits until the server has freed the space of all deleted subvolumes.
fn wait_until_free(all: &dyn Fn() -> Result<Vec<RootInfo>>, label: &str) -> Result<()> {
    let (mut progress, mut total) = (Progress::share(), 0);
    loop {
        interrupt::check(|| format!("{label}: deleted, and its space is being freed"))?;
        let roots = all()?;
        let deleted = roots.iter().filter(|root| root.deleted);
        let (count, left) = deleted.fold((0, 0), |(n, sum), root| (n + 1, sum + root.inodes));
        if count == 0 {
            progress.finish();
            return Ok(());
        }
        total = total.max(left);
        progress.set("freeing", total - left, total);
        std::thread::sleep(POLL);
    }
}

/// Frees the space of deleted subvolumes, and shows the progress.
fn free(volume: &Volume) -> Result<(), Reason> {
    let left = || {
        let roots = volume.subvolumes().list();
        roots.iter().filter(|root| root.deleted).map(|root| root.inodes).sum::<u64>()
    };
    let total = left();
    let mut progress = Progress::share();
    let freed = volume.maintenance().reap_roots(&mut |left| {
        progress.set("freeing", total.saturating_sub(left), total);
    });
    progress.finish();
    freed?;
    match volume.subvolumes().list().iter().any(|root| root.deleted) {
        false => Ok(()),
        true => Err(Reason::Text(format!(
            "deleted, but {} damaged inodes could not be freed (check the volume with shoal fsck)",
            left()
        ))),
    }
}

/// Failure to make or delete a subvolume, with the remedy.
fn refused(volume: &Path, name: &[u8], error: &Error) -> Failure {
    let label = location::label(volume, &location::join(b"/", name));
    let is_name = !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/');
    match error.code() {
        Code::Invalid if !is_name => Failure::usage(
            volume.display(),
            format!(
                "'{}' cannot be the name of a subvolume (take a name without '/', other than '.' \
                 and '..')",
                printable(name)
            ),
        ),
        Code::NameTooLong => {
            Failure::usage(volume.display(), format!("{error} (take a shorter name)"))
        }
        Code::Exists => Failure::failed(
            label,
            format!("{error} (take another name, or remove the file of this name)"),
        ),
        Code::NotFound => Failure::failed(
            label,
            format!("no such subvolume (list them with shoal subvolume list {})", volume.display()),
        ),
        Code::Invalid => Failure::failed(
            &label,
            format!("is not a subvolume (remove it with shoal rm -r {label})"),
        ),
        Code::NoSpace => Failure::failed(
            label,
            format!("{error} (remove something, or delete a subvolume with --wait)"),
        ),
        Code::ReadOnly => Failure::usage(volume.display(), format!("{error} (see shoal info)")),
        _ => Failure::failed(label, error),
    }
}

fn json(root: &RootInfo) -> Object {
    let object = Object::new().put("number", root.id);
    let object = if root.deleted { object } else { object.put_name("name", &root.name) };
    object.put("top", root.top.0).put("inodes", root.inodes).put("deleted", root.deleted)
}
