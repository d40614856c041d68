//! `shoal quota`: limits of directory trees, and what they use.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use shoal::raw::{Code, Error, FileKind, Quota, QuotaLimits};
use shoal_fuse::{QuotaFound, quota_of, quotas_of, remove_quota, set_quota};

use crate::args::{
    Limit, QuotaArgs, QuotaCommand, QuotaListArgs, QuotaRemoveArgs, QuotaSetArgs, QuotaShowArgs,
};
use crate::failure::{Failure, OK, Reason, Result};
use crate::in_mount;
use crate::json::Object;
use crate::location::{Location, Place};
use crate::mounted;
use crate::output::Out;
use crate::session::{Access, Open, Session};
use crate::size::human;

/// Sets, shows, lists or removes quotas.
pub(crate) fn run(args: &QuotaArgs) -> Result<u8> {
    match &args.command {
        QuotaCommand::Set(args) => set(args),
        QuotaCommand::Show(args) => show(args),
        QuotaCommand::List(args) => list(args),
        QuotaCommand::Remove(args) => remove(args),
    }
}

fn set(args: &QuotaSetArgs) -> Result<u8> {
    let (bytes, inodes) = (args.bytes.map(|Limit(most)| most), args.inodes.map(|Limit(most)| most));
    if let Some(mount) = InMount::open(&args.place)? {
        mount.ask(|dir| set_quota(dir, bytes, inodes))?;
        return Ok(OK);
    }
    let place = Location::parse(&args.place);
    Session::with(&place.volume, Access::Write, |session| {
        let set = || {
            let (calls, who) = (session.calls(), &session.who);
            let dir = open(session, &place.path)?;
            let found = calls.quota(who, dir.node)?.filter(|it| it.dir == dir.attr.ino);
            let now = found.map_or_else(QuotaLimits::default, |quota| quota.limits);
            let (bytes, inodes) = (bytes.unwrap_or(now.bytes), inodes.unwrap_or(now.inodes));
            calls.set_quota(who, dir.node, QuotaLimits { bytes, inodes })
        };
        set().map(|_| OK).map_err(|e| refused(&place, &e))
    })
}

fn remove(args: &QuotaRemoveArgs) -> Result<u8> {
    if let Some(mount) = InMount::open(&args.place)? {
        mount.ask(|dir| remove_quota(dir))?;
        return Ok(OK);
    }
    let place = Location::parse(&args.place);
    Session::with(&place.volume, Access::Write, |session| {
        let removed = open(session, &place.path)
            .and_then(|dir| session.calls().remove_quota(&session.who, dir.node));
        removed.map(|()| OK).map_err(|e| refused(&place, &e))
    })
}

fn show(args: &QuotaShowArgs) -> Result<u8> {
    if let Some(mount) = InMount::open(&args.place)? {
        let found = mount.ask(|file| quota_of(file))?.ok_or_else(|| mount.has_none())?;
        return print(&[found], args.json);
    }
    let place = Location::parse(&args.place);
    Session::with(&place.volume, Access::Read, |session| {
        let show = || {
            let (found, mut path) = session.place(&place.path, true)?;
            settle(session)?;
            // A file is in the quota of its directory.
            if found.kind != FileKind::Directory {
                path.truncate(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
            }
            let dir = session.open_dir(&path, None)?;
            let quota = session.calls().quota(&session.who, dir.node)?;
            quota.ok_or(Error::Code(Code::NoData))
        };
        let quota = show().map_err(|e| refused(&place, &e))?;
        print(&[with_path(session, quota)], args.json)
    })
}

fn list(args: &QuotaListArgs) -> Result<u8> {
    if args.volume.is_dir() {
        return print(&mounted::ask(&args.volume, |mount| quotas_of(mount))?, args.json);
    }
    Session::with(&args.volume, Access::Read, |session| {
        let all = settle(session).and_then(|()| session.calls().quotas(&session.who));
        let all = all.map_err(|e| Failure::volume(args.volume.display(), &e))?;
        let all: Vec<QuotaFound> = all.into_iter().map(|it| with_path(session, it)).collect();
        print(&all, args.json)
    })
}

/// Opens the directory at a path.
fn open(session: &Session, path: &[u8]) -> shoal::raw::Result<Open> {
    let (found, real) = session.place(path, true)?;
    session.open_dir(&real, Some(found.ino))
}

/// Waits until what is used has been counted: a volume that was not closed begins without.
fn settle(session: &Session) -> shoal::raw::Result<()> {
    session.direct().map_or(Ok(()), |volume| volume.quotas().settle())
}

fn with_path(session: &Session, quota: Quota) -> QuotaFound {
    let paths = session.calls().paths_of(&session.who, quota.dir).unwrap_or_default();
    QuotaFound { quota, path: paths.into_iter().next() }
}

/// A file or directory of a mounted volume.
struct InMount {
    path: PathBuf,
    opened: OwnedFd,
}

impl InMount {
    /// Opens a place; `None`: it is in no mount.
    fn open(place: &OsStr) -> Result<Option<InMount>> {
        let Place::Local(path) = Place::parse(place) else { return Ok(None) };
        match mounted::open_at(&path) {
            Ok(opened) if shoal_fuse::is_in_mount(&opened) => Ok(Some(InMount { path, opened })),
            Err(error) if in_mount::is_below_mount(path.as_os_str().as_bytes()) => {
                Err(Failure::failed(path.display(), Reason::from(error)))
            }
            _ => Ok(None),
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&OwnedFd) -> io::Result<T>) -> Result<T> {
        question(&self.opened).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == Code::NoData.errno() => self.has_none(),
            Some(errno) if errno == Code::NotPermitted.errno() => {
                Failure::failed(self.path.display(), "only root may set and remove quotas")
            }
            _ => mounted::refused(&self.path, error),
        })
    }

    fn has_none(&self) -> Failure {
        let remedy = "has no quota (list them with shoal quota list and the directory where the \
                      volume is mounted)";
        Failure::failed(self.path.display(), remedy)
    }
}

fn print(quotas: &[QuotaFound], is_json: bool) -> Result<u8> {
    let mut out = Out::new();
    if !is_json && !quotas.is_empty() {
        let [used, most] = ["USED", "LIMIT"];
        out.heading(&format!("{used:>10} {most:>10}  {:>10} {most:>10}  PATH", "INODES"))?;
    }
    for QuotaFound { quota, path } in quotas {
        // A volume of an older format has no paths, and ordinary users are told none.
        let path = path.clone().unwrap_or_else(|| format!("#{}", quota.dir).into());
        if is_json {
            out.json(json(quota, &path))?;
            continue;
        }
        let bytes = column(quota, human(quota.bytes), quota.limits.bytes.map(human));
        let limit = quota.limits.inodes.map(|most| most.to_string());
        let inodes = column(quota, quota.inodes.to_string(), limit);
        out.bytes(format!("{bytes}  {inodes}  ").as_bytes())?;
        out.name(&path)?;
        out.line("")?;
    }
    out.flush()?;
    Ok(OK)
}

fn column(quota: &Quota, used: String, limit: Option<String>) -> String {
    let used = if quota.is_exact { used } else { format!(">{used}") };
    format!("{used:>10} {:>10}", limit.as_deref().unwrap_or("-"))
}

fn json(quota: &Quota, path: &[u8]) -> Object {
    let QuotaLimits { bytes, inodes } = quota.limits;
    Object::new()
        .put_name("path", path)
        .put("ino", quota.dir.0)
        .put("bytes", quota.bytes)
        .put_some("bytes_max", bytes)
        .put("inodes", quota.inodes)
        .put_some("inodes_max", inodes)
        .put("exact", quota.is_exact)
}

/// Failure of a command about a place, with the remedy.
fn refused(place: &Location, error: &Error) -> Failure {
    match error.code() {
        Code::NoData => Failure::failed(
            place.label(),
            format!("has no quota (list them with shoal quota list {})", place.volume.display()),
        ),
        Code::ReadOnly => {
            Failure::usage(place.volume.display(), format!("{error} (see shoal info)"))
        }
        _ => Failure::failed(place.label(), Reason::from(error.clone())),
    }
}
