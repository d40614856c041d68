//! `shoal quota`: limits of directory trees, and what they use.

use shoal::raw::{Code, Error, Quota, QuotaLimits};

use crate::args::{
    Limit, QuotaArgs, QuotaCommand, QuotaListArgs, QuotaRemoveArgs, QuotaSetArgs, QuotaShowArgs,
};
use crate::failure::{Failure, OK, Reason, Result};
use crate::json::Object;
use crate::location::Location;
use crate::output::Out;
use crate::session::{Access, Session};
use crate::size::human;

/// Sets, shows, lists or removes quotas.
pub fn run(args: &QuotaArgs) -> Result<u8> {
    match &args.command {
        QuotaCommand::Set(args) => set(args),
        QuotaCommand::Show(args) => show(args),
        QuotaCommand::List(args) => list(args),
        QuotaCommand::Remove(args) => remove(args),
    }
}

fn set(args: &QuotaSetArgs) -> Result<u8> {
    let place = Location::parse(&args.place);
    Session::with(&place.volume, Access::Write, |session| {
        let dir = session.find(&place.path, true).map_err(|e| refused(&place, &e))?.ino;
        let quotas = session.volume.quotas();
        let now = match quotas.get(dir) {
            Ok(quota) => quota.limits,
            Err(e) if e.is(Code::NoData) => QuotaLimits::default(),
            Err(e) => return Err(refused(&place, &e)),
        };
        let limits = QuotaLimits {
            bytes: args.bytes.map_or(now.bytes, |Limit(most)| most),
            inodes: args.inodes.map_or(now.inodes, |Limit(most)| most),
        };
        quotas.set(&session.who, dir, limits).map_err(|e| refused(&place, &e))?;
        Ok(OK)
    })
}

fn remove(args: &QuotaRemoveArgs) -> Result<u8> {
    let place = Location::parse(&args.place);
    Session::with(&place.volume, Access::Write, |session| {
        let dir = session.find(&place.path, true).map_err(|e| refused(&place, &e))?.ino;
        session.volume.quotas().remove(&session.who, dir).map_err(|e| refused(&place, &e))?;
        Ok(OK)
    })
}

fn show(args: &QuotaShowArgs) -> Result<u8> {
    let place = Location::parse(&args.place);
    Session::with(&place.volume, Access::Read, |session| {
        let found = session.find(&place.path, true).and_then(|found| {
            session.volume.quotas().settle()?;
            session.volume.quotas().of(found.ino)?.ok_or(Error::Code(Code::NoData))
        });
        let quota = found.map_err(|e| refused(&place, &e))?;
        print(session, &[quota], args.json)
    })
}

fn list(args: &QuotaListArgs) -> Result<u8> {
    Session::with(&args.volume, Access::Read, |session| {
        let settled = session.volume.quotas().settle();
        settled.map_err(|e| Failure::volume(args.volume.display(), &e))?;
        print(session, &session.volume.quotas().list(), args.json)
    })
}

fn print(session: &Session, quotas: &[Quota], is_json: bool) -> Result<u8> {
    let mut out = Out::new();
    for quota in quotas {
        let path = session.volume.paths().paths_of(quota.dir).unwrap_or_default();
        // A volume of an older format has no paths.
        let path = path.first().cloned().unwrap_or_else(|| format!("#{}", quota.dir).into());
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
