//! `shoal root`: several trees in one volume, each with inode numbers of its own.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use shoal::{Caller, Code, Error, RootInfo, SetAttr};

use crate::args::{RootArgs, RootCommand, RootCreateArgs, RootDeleteArgs, RootListArgs};
use crate::failure::{Failure, OK, Reason, Result};
use crate::location;
use crate::output::{Out, json_name, printable};
use crate::progress::Progress;
use crate::session::{Access, Session};

/// Makes, lists or deletes roots.
pub fn run(args: &RootArgs) -> Result<u8> {
    match &args.command {
        RootCommand::Create(args) => create(args),
        RootCommand::List(args) => list(args),
        RootCommand::Delete(args) => delete(args),
    }
}

/// Opens the volume, works, and closes it, also after a failure. The work's own failure comes
/// first.
fn with_volume<T>(
    volume: &std::path::Path,
    access: Access,
    work: impl FnOnce(&Session) -> Result<T>,
) -> Result<T> {
    let session = Session::open(volume, access)?;
    let result = work(&session);
    let closed = session.close();
    let done = result?;
    closed.map(|()| done)
}

fn create(args: &RootCreateArgs) -> Result<u8> {
    let name = args.name.as_bytes();
    with_volume(&args.volume, Access::Write, |session| {
        let volume = &session.volume;
        let umask = if args.mode.is_some() { 0 } else { session.who.umask };
        let who = Caller { umask, ..session.who.clone() };
        let mode = args.mode.unwrap_or(0o777);
        let made = volume.root_create(&who, name, mode).map_err(|e| refused(session, name, &e))?;
        // A top that sets the group gives it to what is made in it; the mode was asked for.
        if args.mode.is_some_and(|mode| made.mode & 0o7777 != mode) {
            let set = SetAttr { mode: args.mode, ..SetAttr::default() };
            volume.setattr(&who, made.ino, &set).map_err(|e| refused(session, name, &e))?;
        }
        Ok(OK)
    })
}

fn list(args: &RootListArgs) -> Result<u8> {
    let roots = with_volume(&args.volume, Access::Read, |session| Ok(session.volume.root_list()))?;
    let mut out = Out::new();
    for root in &roots {
        if args.json {
            out.json(&JsonRoot::new(root))?;
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

fn delete(args: &RootDeleteArgs) -> Result<u8> {
    let name = args.name.as_bytes();
    let said = with_volume(&args.volume, Access::Write, |session| {
        let deleted = session.volume.root_delete(&session.who, name);
        deleted.map_err(|e| refused(session, name, &e))?;
        // Freeing takes its time, and may be interrupted.
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

/// Frees what was in deleted roots, and shows how far it is.
fn free(session: &Session) -> Result<(), Reason> {
    let left = || {
        let roots = session.volume.root_list();
        roots.iter().filter(|root| root.deleted).map(|root| root.inodes).sum::<u64>()
    };
    let total = left();
    let mut progress = Progress::share();
    let freed = session.volume.reap_roots(&mut |left| {
        progress.set("freeing", total.saturating_sub(left), total);
    });
    progress.finish();
    freed?;
    match session.volume.root_list().iter().any(|root| root.deleted) {
        false => Ok(()),
        true => Err(Reason::Text(format!(
            "deleted, but {} damaged inodes could not be freed (check the volume with shoal fsck)",
            left()
        ))),
    }
}

/// Why a root cannot be made or deleted, with what to do.
fn refused(session: &Session, name: &[u8], error: &Error) -> Failure {
    let label = location::label(&session.path, &location::join(b"/", name));
    let is_name = !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/');
    match error.code() {
        Code::Invalid if !is_name => Failure::usage(
            session.path.display(),
            format!(
                "'{}' cannot be the name of a root (take a name without '/', other than '.' and \
                 '..')",
                printable(name)
            ),
        ),
        Code::NameTooLong => {
            Failure::usage(session.path.display(), format!("{error} (take a shorter name)"))
        }
        Code::Exists => Failure::failed(
            label,
            format!("{error} (take another name, or remove what has this one)"),
        ),
        Code::NotFound => Failure::failed(
            label,
            format!("no such root (list them with shoal root list {})", session.path.display()),
        ),
        Code::Invalid => {
            Failure::failed(&label, format!("is not a root (remove it with shoal rm -r {label})"))
        }
        Code::NoSpace => Failure::failed(
            label,
            format!("{error} (remove something, or delete a root with --wait)"),
        ),
        Code::ReadOnly => {
            Failure::usage(session.path.display(), format!("{error} (see shoal info)"))
        }
        _ => Failure::failed(label, error),
    }
}

/// A root in JSON.
#[derive(Serialize)]
struct JsonRoot {
    number: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    top: u64,
    inodes: u64,
    deleted: bool,
}

impl JsonRoot {
    fn new(root: &RootInfo) -> JsonRoot {
        let (name, name_bytes) = json_name(&root.name);
        JsonRoot {
            number: root.id,
            name: (!root.deleted).then_some(name),
            name_bytes,
            top: root.top.0,
            inodes: root.inodes,
            deleted: root.deleted,
        }
    }
}
