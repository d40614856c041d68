//! `shoal subvolume`: several trees in one volume, each with inode numbers of its own.

use std::os::unix::ffi::OsStrExt;

use shoal::raw::{Caller, Code, Error, RootInfo, SetAttr};

use crate::args::{
    SubvolumeArgs, SubvolumeCommand, SubvolumeCreateArgs, SubvolumeDeleteArgs, SubvolumeListArgs,
};
use crate::failure::{Failure, OK, Reason, Result};
use crate::json::Object;
use crate::location;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session};
use crate::text::printable;

/// Makes, lists or deletes subvolumes.
pub fn run(args: &SubvolumeArgs) -> Result<u8> {
    match &args.command {
        SubvolumeCommand::Create(args) => create(args),
        SubvolumeCommand::List(args) => list(args),
        SubvolumeCommand::Delete(args) => delete(args),
    }
}

fn create(args: &SubvolumeCreateArgs) -> Result<u8> {
    let name = args.name.as_bytes();
    Session::with(&args.volume, Access::Write, |session| {
        let volume = &session.volume;
        let umask = if args.mode.is_some() { 0 } else { session.who.umask };
        let who = Caller { umask, ..session.who.clone() };
        let mode = args.mode.unwrap_or(0o777);
        let made =
            volume.subvolumes().create(&who, name, mode).map_err(|e| refused(session, name, &e))?;
        // A top with the set-group-id bit gives its group to new directories; the mode was asked
        // for.
        if args.mode.is_some_and(|mode| made.mode & 0o7777 != mode) {
            let set = SetAttr { mode: args.mode, ..SetAttr::default() };
            volume
                .attributes()
                .setattr(&who, made.ino, &set)
                .map_err(|e| refused(session, name, &e))?;
        }
        Ok(OK)
    })
}

fn list(args: &SubvolumeListArgs) -> Result<u8> {
    let roots = Session::with(&args.volume, Access::Read, |session| {
        Ok(session.volume.subvolumes().list())
    })?;
    let mut out = Out::new();
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
    let said = Session::with(&args.volume, Access::Write, |session| {
        let deleted = session.volume.subvolumes().delete(&session.who, name);
        deleted.map_err(|e| refused(session, name, &e))?;
        // Freeing takes time, and may be interrupted.
        session.volume.sync().map_err(|e| Failure::volume(args.volume.display(), &e))?;
        let label = location::label(&args.volume, &location::join(b"/", name));
        if !args.wait {
            return Ok(format!(
                "{label}: deleted; its space is freed when the volume is next used"
            ));
        }
        free(session).map_err(|e| Failure::failed(&label, e))?;
        Ok(format!("{label}: deleted, and its space is free"))
    })?;
    let mut out = Out::new();
    out.line(&said)?;
    out.flush()?;
    Ok(OK)
}

/// Frees the space of deleted subvolumes, and shows the progress.
fn free(session: &Session) -> Result<(), Reason> {
    let left = || {
        let roots = session.volume.subvolumes().list();
        roots.iter().filter(|root| root.deleted).map(|root| root.inodes).sum::<u64>()
    };
    let total = left();
    let mut progress = Progress::share();
    let freed = session.volume.maintenance().reap_roots(&mut |left| {
        progress.set("freeing", total.saturating_sub(left), total);
    });
    progress.finish();
    freed?;
    match session.volume.subvolumes().list().iter().any(|root| root.deleted) {
        false => Ok(()),
        true => Err(Reason::Text(format!(
            "deleted, but {} damaged inodes could not be freed (check the volume with shoal fsck)",
            left()
        ))),
    }
}

/// Failure to make or delete a subvolume, with the remedy.
fn refused(session: &Session, name: &[u8], error: &Error) -> Failure {
    let label = location::label(&session.path, &location::join(b"/", name));
    let is_name = !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/');
    match error.code() {
        Code::Invalid if !is_name => Failure::usage(
            session.path.display(),
            format!(
                "'{}' cannot be the name of a subvolume (take a name without '/', other than '.' \
                 and '..')",
                printable(name)
            ),
        ),
        Code::NameTooLong => {
            Failure::usage(session.path.display(), format!("{error} (take a shorter name)"))
        }
        Code::Exists => Failure::failed(
            label,
            format!("{error} (take another name, or remove the file of this name)"),
        ),
        Code::NotFound => Failure::failed(
            label,
            format!(
                "no such subvolume (list them with shoal subvolume list {})",
                session.path.display()
            ),
        ),
        Code::Invalid => Failure::failed(
            &label,
            format!("is not a subvolume (remove it with shoal rm -r {label})"),
        ),
        Code::NoSpace => Failure::failed(
            label,
            format!("{error} (remove something, or delete a subvolume with --wait)"),
        ),
        Code::ReadOnly => {
            Failure::usage(session.path.display(), format!("{error} (see shoal info)"))
        }
        _ => Failure::failed(label, error),
    }
}

fn json(root: &RootInfo) -> Object {
    let object = Object::new().put("number", root.id);
    let object = if root.deleted { object } else { object.put_name("name", &root.name) };
    object.put("top", root.top.0).put("inodes", root.inodes).put("deleted", root.deleted)
}
