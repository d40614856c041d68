//! `shoal share`: makes a token that opens one file, and revokes tokens. A mounted volume is asked
//! through its mount.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use shoal::raw::{Code, Rights, Token};
use shoal_fuse::TOKENS_DIRECTORY;
use shoal_session::Node;

use crate::args::ShareArgs;
use crate::failure::{Failure, OK, Reason, Result};
use crate::json::Object;
use crate::location::{Location, Place};
use crate::mounted::{self, NOT_OURS};
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
    let file = mounted::open_at(path);
    let file = file.map_err(|error| Failure::failed(label(), Reason::from(error)))?;
    if !shoal_fuse::is_in_mount(&file) {
        return Err(Failure::usage(label(), NOT_OURS));
    }
    let session = Session::through(file, path);
    let token = session.calls().share(&session.who, Node::TOP, b"", rights, lifetime);
    let token = token.map_err(|error| Failure::failed(label(), error))?;
    if !opens_by_name(path, &token) {
        let label = label();
        eprint_line(&format!(
            "{label}: this mount does not open files by tokens (mount with -o open, and without \
             writeback)"
        ));
    }
    Ok(token)
}

/// Returns whether the mount that a file is in opens it by a token.
fn opens_by_name(path: &Path, token: &Token) -> bool {
    let above = shoal_fuse::mount_above(path).ok().flatten();
    above.is_none_or(|(dir, _)| dir.join(TOKENS_DIRECTORY).join(token.to_string()).exists())
}

fn revoke(place: &Path) -> Result<u8> {
    if place.is_dir() {
        mounted::ask(place, |mount| mount.calls().revoke_tokens(&mount.who))?;
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
