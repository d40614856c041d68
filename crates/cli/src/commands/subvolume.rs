//! `shoal subvolume`: several trees in one volume, each with inode numbers of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, chmod};
use shoal::raw::{Caller, Code, Error, RootInfo, SetAttr, Volume};

use crate::args::{
    SubvolumeArgs, SubvolumeCommand, SubvolumeCreateArgs, SubvolumeDeleteArgs, SubvolumeListArgs,
};
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

/// Works on a volume, or on the mount whose top a directory is.
fn on<T>(place: &Path, access: Access, work: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
    mounted::at(place, access, |session| {
        if place.is_dir() && !shoal_fuse::is_mounted(place) {
            let reason = "is below a mount (name the directory that the volume is mounted on)";
            return Err(Failure::usage(place.display(), reason));
        }
        work(session)
    })
}

fn create(args: &SubvolumeCreateArgs) -> Result<u8> {
    let name = args.name.as_bytes();
    on(&args.volume, Access::Write, |session| {
        let umask = if args.mode.is_some() { 0 } else { session.who.umask };
        let who = Caller { umask, ..session.who.clone() };
        let make = || {
            let (calls, mode) = (session.calls(), args.mode.unwrap_or(0o777));
            let made = session.opened(calls.make_subvolume(&who, name, mode)?);
            // A top with the set-group-id bit gives its group to new directories; the mode was
            // asked for.
            match args.mode.filter(|mode| made.attr.mode & 0o7777 != *mode) {
                None => {}
                Some(mode) if args.volume.is_dir() => {
                    // The node was closed with the call.
                    let path = args.volume.join(OsStr::from_bytes(name));
                    chmod(path, Mode::from_raw_mode(mode)).map_err(|os| error_of(os.into()))?;
                }
                Some(_) => {
                    let set = SetAttr { mode: args.mode, ..SetAttr::default() };
                    calls.set_attr(&who, made.node, b"", false, set)?;
                }
            }
            Ok(OK)
        };
        make().map_err(|e| refused(session, name, &e))
    })
}

fn list(args: &SubvolumeListArgs) -> Result<u8> {
    let roots = mounted::at(&args.volume, Access::Read, all)?;
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

/// Returns all subvolumes.
fn all(session: &Session) -> Result<Vec<RootInfo>> {
    session.calls().all_subvolumes(&session.who).map_err(|e| mounted::failed(session, &e))
}

fn delete(args: &SubvolumeDeleteArgs) -> Result<u8> {
    let name = args.name.as_bytes();
    let said = on(&args.volume, Access::Write, |session| {
        let (calls, who) = (session.calls(), &session.who);
        calls.delete_subvolume(who, name).map_err(|e| refused(session, name, &e))?;
        let label = location::label(&args.volume, &location::join(b"/", name));
        if !args.volume.is_dir() {
            // Freeing takes time, and may be interrupted.
            calls.sync(who).map_err(|e| mounted::failed(session, &e))?;
        }
        let Some(volume) = session.direct() else {
            // Its server does it.
            if args.wait {
                wait_until_free(&|| all(session), &label)?;
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
fn refused(session: &Session, name: &[u8], error: &Error) -> Failure {
    let volume = &session.path;
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
        Code::NotPermitted => mounted::failed(session, error),
        _ => Failure::failed(label, error),
    }
}

fn json(root: &RootInfo) -> Object {
    let object = Object::new().put("number", root.id);
    let object = if root.deleted { object } else { object.put_name("name", &root.name) };
    object.put("top", root.top.0).put("inodes", root.inodes).put("deleted", root.deleted)
}
