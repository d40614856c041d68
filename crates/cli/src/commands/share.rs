//! `shoal share`: makes a token that opens one file, and revokes tokens. A mounted volume is asked
//! through its mount.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use shoal::raw::{Code, Rights, Token};

use crate::args::ShareArgs;
use crate::failure::{Failure, OK, Reason, Result};
use crate::json::Object;
use crate::location::{Location, Place};
use crate::mounted::{self, NOT_OURS, is_not_ours};
use crate::output::Out;
use crate::progress::eprint_line;
use crate::session::{Access, Session};
use crate::text::printable;

/// Makes a token, or revokes all.
pub(crate) fn run(args: &ShareArgs) -> Result<u8> {
    if args.revoke {
        return revoke(Path::new(&args.place));
    }
    let (rights, lifetime) = (args.rights.rights(), Duration::from_secs(args.lifetime));
    let token = match Place::parse(&args.place) {
        Place::Local(path) => of_mount(&path, rights, lifetime)?,
        Place::Volume(location) => of_volume(&location, rights, lifetime)?,
    };
    let mut out = Out::new();
    match args.json {
        true => out.json(
            Object::new()
                .put("token", token.to_string())
                .put("rights", if rights.contains(Rights::WRITE) { "rw" } else { "r" })
                .put("lifetime", args.lifetime),
        )?,
        false => out.line(&token.to_string())?,
    }
    out.flush()?;
    Ok(OK)
}

fn of_volume(location: &Location, rights: Rights, lifetime: Duration) -> Result<Token> {
    let failed = |error| Failure::failed(location.label(), Reason::Volume(error));
    Session::with(&location.volume, Access::Write, |session| {
        let (_, real) = session.place(&location.path, true).map_err(failed)?;
        let (calls, who) = (session.calls(), &session.who);
        session
            .on(&real, |node, path| calls.share(who, node, path, rights, lifetime))
            .map_err(failed)
    })
}

fn of_mount(path: &Path, rights: Rights, lifetime: Duration) -> Result<Token> {
    let label = || printable(path.as_os_str().as_bytes()).into_owned();
    let failed = |error: io::Error| match is_not_ours(&error) {
        true => Failure::usage(label(), NOT_OURS),
        false => Failure::failed(label(), Reason::from(error)),
    };
    let file = mounted::open_at(path).map_err(failed)?;
    let shared = shoal_fuse::share(&file, rights, lifetime).map_err(failed)?;
    if !shared.by_name {
        let label = label();
        eprint_line(&format!(
            "{label}: this mount does not open files by tokens (mount with -o open, and without \
             writeback)"
        ));
    }
    Ok(shared.token)
}

fn revoke(place: &Path) -> Result<u8> {
    if place.is_dir() {
        mounted::ask(place, |mount| shoal_fuse::revoke_tokens(mount))?;
        return Ok(OK);
    }
    let place = Location::parse(place.as_os_str());
    if place.path != b"/" {
        return Err(Failure::usage(place.label(), "is no volume: all its tokens are revoked"));
    }
    Session::with(&place.volume, Access::Write, |session| {
        let revoked = session.calls().revoke_tokens(&session.reader());
        revoked.map_err(|error| match error.code() {
            Code::ReadOnly => Failure::failed(place.volume.display(), Reason::Volume(error)),
            _ => Failure::volume(place.volume.display(), &error),
        })
    })?;
    Ok(OK)
}
