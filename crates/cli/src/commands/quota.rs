//! `shoal quota`: limits of directory trees, and what they use.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::fstat;
use shoal::raw::{Code, Error, FileKind, Ino, Quota, QuotaLimits};
use shoal_session::Node;

use crate::args::{
    Limit, QuotaArgs, QuotaCommand, QuotaListArgs, QuotaRemoveArgs, QuotaSetArgs, QuotaShowArgs,
};
use crate::failure::{Failure, OK, Reason, Result};
use crate::in_mount;
use crate::json::Object;
use crate::location::{Location, Place};
use crate::mounted;
use crate::output::Out;
use crate::session::{Access, Session};
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
    on_dir(&args.place, Access::Write, &|session, dir, ino| {
        let (calls, who) = (session.calls(), &session.who);
        let found = calls.quota(who, dir)?.filter(|it| it.dir == ino);
        let now = found.map_or_else(QuotaLimits::default, |quota| quota.limits);
        let (bytes, inodes) = (bytes.unwrap_or(now.bytes), inodes.unwrap_or(now.inodes));
        calls.set_quota(who, dir, QuotaLimits { bytes, inodes }).map(|_| ())
    })
}

fn remove(args: &QuotaRemoveArgs) -> Result<u8> {
    on_dir(&args.place, Access::Write, &|session, dir, _| {
        session.calls().remove_quota(&session.who, dir)
    })
}

/// Makes calls on a directory, in a mount or in a volume: on its node, which has an inode number.
fn on_dir(
    place: &OsStr,
    access: Access,
    work: &dyn Fn(&Session, Node, Ino) -> shoal::raw::Result<()>,
) -> Result<u8> {
    if let Some(mount) = InMount::open(place)? {
        return mount.ask(|session| work(session, Node::TOP, mount.ino)).map(|()| OK);
    }
    let place = Location::parse(place);
    Session::with(&place.volume, access, |session| {
        let (found, real) = session.place(&place.path, true).map_err(|e| refused(&place, &e))?;
        let done = session
            .open_dir(&real, Some(found.ino))
            .and_then(|dir| work(session, dir.node, dir.attr.ino));
        done.map(|()| OK).map_err(|e| refused(&place, &e))
    })
}

fn show(args: &QuotaShowArgs) -> Result<u8> {
    if let Some(mount) = InMount::open(&args.place)? {
        let quota = mount.ask(|session| {
            let quota = session.calls().quota(&session.who, Node::TOP)?;
            quota.map(|quota| with_path(session, quota)).ok_or(Error::Code(Code::NoData))
        })?;
        return print(&[quota], args.json);
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
    mounted::at(&args.volume, Access::Read, |session| {
        let all = settle(session).and_then(|()| session.calls().all_quotas(&session.who));
        let all = all.map_err(|e| mounted::failed(session, &e))?;
        let all: Vec<Found> = all.into_iter().map(|it| with_path(session, it)).collect();
        print(&all, args.json)
    })
}

/// A quota, and the path of its directory if that is told.
struct Found {
    quota: Quota,
    path: Option<Vec<u8>>,
}

/// Waits until what is used has been counted: a volume that was not closed begins without.
fn settle(session: &Session) -> shoal::raw::Result<()> {
    session.direct().map_or(Ok(()), |volume| volume.quotas().settle())
}

fn with_path(session: &Session, quota: Quota) -> Found {
    let paths = session.calls().paths_of(&session.who, quota.dir).unwrap_or_default();
    Found { quota, path: paths.into_iter().next() }
}

/// A file or directory of a mounted volume.
struct InMount {
    path: PathBuf,
    session: Session,
    ino: Ino,
}

impl InMount {
    /// Opens a place; `None`: it is in no mount.
    fn open(place: &OsStr) -> Result<Option<InMount>> {
        let Place::Local(path) = Place::parse(place) else { return Ok(None) };
        let failed = |error: io::Error| Failure::failed(path.display(), Reason::from(error));
        match mounted::open_at(&path) {
            Ok(opened) if shoal_fuse::is_in_mount(&opened) => {
                let ino = Ino(fstat(&opened).map_err(|os| failed(os.into()))?.st_ino);
                let session = Session::through(opened, &path);
                Ok(Some(InMount { path, session, ino }))
            }
            Err(error) if in_mount::is_below_mount(path.as_os_str().as_bytes()) => {
                Err(failed(error))
            }
            _ => Ok(None),
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&Session) -> shoal::raw::Result<T>) -> Result<T> {
        question(&self.session).map_err(|error| match error.code() {
            Code::NoData => {
                let remedy = "has no quota (list them with shoal quota list and the directory \
                              where the volume is mounted)";
                Failure::failed(self.path.display(), remedy)
            }
            Code::NotPermitted => {
                Failure::failed(self.path.display(), "only root may set and remove quotas")
            }
            _ => mounted::refused(&self.path, &error),
        })
    }
}

fn print(quotas: &[Found], is_json: bool) -> Result<u8> {
    let mut out = Out::new();
    if !is_json && !quotas.is_empty() {
        let [used, most] = ["USED", "LIMIT"];
        out.heading(&format!("{used:>10} {most:>10}  {:>10} {most:>10}  PATH", "INODES"))?;
    }
    for Found { quota, path } in quotas {
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
