//! `shoal xattr`: extended attributes of files in a volume, or where it is mounted.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{
    getxattr, lgetxattr, lremovexattr, lsetxattr, lstat, removexattr, setxattr, stat,
};
use shoal::raw::{Code, Error, FileKind, XattrFlags};

use crate::args::{
    XattrArgs, XattrCommand, XattrGetArgs, XattrLsArgs, XattrPlace, XattrRmArgs, XattrSetArgs,
};
use crate::failure::{Failure, OK, Reason, Result};
use crate::in_mount::{InMount, error_of};
use crate::json::Object;
use crate::location::Location;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::text::{hex, printable, unhex};
use crate::tree::mounted_path;

/// Bytes of the longest value.
const VALUE_MAX: u64 = 65_536;

/// Gets, sets, lists or removes attributes.
pub(crate) fn run(args: &XattrArgs) -> Result<u8> {
    match &args.command {
        XattrCommand::Get(args) => get(args),
        XattrCommand::Set(args) => set(args),
        XattrCommand::Ls(args) => list(args),
        XattrCommand::Rm(args) => remove(args),
    }
}

/// A file and its attributes.
struct File {
    holder: Holder,
    label: String,
    /// Path in the volume or, in a mount, as it was typed.
    path: Vec<u8>,
}

enum Holder {
    /// With its path from the top.
    Volume(Arc<Session>, Vec<u8>),
    /// In a mount; set: a symlink itself.
    Mount(bool),
}

impl File {
    fn find(sessions: &mut Sessions, place: &XattrPlace) -> Result<File> {
        if let Some(path) = mounted_path(&place.place)? {
            let path = path.as_os_str().as_bytes().to_vec();
            let label = printable(&path).into_owned();
            let found = if place.no_dereference { lstat(&path[..]) } else { stat(&path[..]) };
            found.map_err(|error| Failure::failed(&label, Reason::from(error)))?;
            return Ok(File { holder: Holder::Mount(place.no_dereference), label, path });
        }
        let location = Location::parse(&place.place);
        let session = sessions.get(&location)?;
        let found = session.place(&location.path, !place.no_dereference);
        let label = location.label();
        let (_, real) = found.map_err(|error| Failure::failed(&label, Reason::from(error)))?;
        Ok(File { holder: Holder::Volume(session, real), label, path: location.path })
    }

    /// Returns the names of all attributes. A user who can read a volume may see them all; in a
    /// mount, what the system shows.
    fn names(&self) -> shoal::raw::Result<Vec<Vec<u8>>> {
        match &self.holder {
            Holder::Volume(session, real) => session.xattrs(real),
            Holder::Mount(true) => InMount::attribute_names(&self.path, FileKind::Symlink),
            Holder::Mount(false) => InMount::attribute_names(&self.path, FileKind::Regular),
        }
    }

    fn get(&self, name: &[u8]) -> shoal::raw::Result<Vec<u8>> {
        let path = &self.path[..];
        match &self.holder {
            Holder::Volume(session, real) => session.xattr(&session.reader(), real, name),
            Holder::Mount(is_link) => {
                let mut value = vec![0; VALUE_MAX as usize];
                let len = match is_link {
                    true => lgetxattr(path, name, &mut value[..]),
                    false => getxattr(path, name, &mut value[..]),
                };
                value.truncate(len.map_err(|error| error_of(error.into()))?);
                Ok(value)
            }
        }
    }

    fn set(&self, name: &[u8], value: &[u8], args: &XattrSetArgs) -> shoal::raw::Result<()> {
        let path = &self.path[..];
        match &self.holder {
            Holder::Volume(session, real) => {
                let (create, replace) = (args.create, args.replace);
                let flags = XattrFlags { create, replace, ..XattrFlags::default() };
                let (calls, who) = (session.calls(), &session.who);
                session.on(real, |node, path| {
                    calls.set_xattr(who, node, path, false, name, value, flags)
                })
            }
            Holder::Mount(is_link) => {
                let mut flags = rustix::fs::XattrFlags::empty();
                flags.set(rustix::fs::XattrFlags::CREATE, args.create);
                flags.set(rustix::fs::XattrFlags::REPLACE, args.replace);
                let set = match is_link {
                    true => lsetxattr(path, name, value, flags),
                    false => setxattr(path, name, value, flags),
                };
                set.map_err(|error| error_of(error.into()))
            }
        }
    }

    fn remove(&self, name: &[u8]) -> shoal::raw::Result<()> {
        let path = &self.path[..];
        match &self.holder {
            Holder::Volume(session, real) => {
                let (calls, who) = (session.calls(), &session.who);
                session.on(real, |node, path| calls.remove_xattr(who, node, path, false, name))
            }
            Holder::Mount(is_link) => {
                let removed =
                    if *is_link { lremovexattr(path, name) } else { removexattr(path, name) };
                removed.map_err(|error| error_of(error.into()))
            }
        }
    }

    /// Failure of an operation on an attribute.
    fn failed(&self, name: &[u8], error: &Error) -> Failure {
        Failure::failed(self.of(name), why(error))
    }

    fn of(&self, name: &[u8]) -> impl Display {
        format!("{} of {}", printable(name), self.label)
    }
}

/// Returns an error in words that fit attributes, with the remedy.
fn why(error: &Error) -> String {
    match error.code() {
        Code::NoData => "there is no such attribute".into(),
        Code::NotSupported => {
            "cannot be kept here (names start with user., trusted. or security.; access control \
             lists have their own names, and symlinks have none)"
                .into()
        }
        Code::Range => "the name has more than 255 bytes, or none".into(),
        Code::TooBig => format!("the value has more than {VALUE_MAX} bytes"),
        Code::Exists => "the attribute exists".into(),
        Code::NotPermitted => "files of this type have no user attributes (take trusted.)".into(),
        Code::Invalid => "is not a name, or not a value that this attribute can have".into(),
        _ => error.to_string(),
    }
}

fn get(args: &XattrGetArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let file = File::find(sessions, &args.file)?;
        let name = args.name.as_bytes();
        let value = file.get(name).map_err(|error| file.failed(name, &error))?;
        let mut out = Out::new();
        if args.json {
            out.json(
                Object::new()
                    .put_name("path", &file.path)
                    .put_name("name", name)
                    .put("size", value.len())
                    .put_name("value", &value),
            )?;
        } else if args.hex {
            out.line(&hex(&value))?;
        } else {
            out.value(&value)?;
        }
        out.flush()?;
        Ok(OK)
    })
}

fn set(args: &XattrSetArgs) -> Result<u8> {
    let value = match &args.value {
        Some(value) => value.as_bytes().to_vec(),
        None => read_value()?,
    };
    let value = match args.hex {
        false => value,
        true => unhex(&value).ok_or_else(|| {
            let shown = args.value.as_deref().unwrap_or(OsStr::new("standard input"));
            let what = "is not hexadecimal (write two digits for each byte)";
            Failure::usage(printable(shown.as_bytes()), what)
        })?,
    };
    Sessions::run(Access::Write, |sessions| {
        let file = File::find(sessions, &args.file)?;
        let name = args.name.as_bytes();
        file.set(name, &value, args).map_err(|error| file.failed(name, &error))?;
        Ok(OK)
    })
}

/// Reads standard input up to its end, or until it is longer than any value.
fn read_value() -> Result<Vec<u8>> {
    let mut value = Vec::new();
    // In hexadecimal, with a new line behind it.
    let most = 2 * VALUE_MAX + 2;
    let read = std::io::stdin().lock().take(most).read_to_end(&mut value);
    read.map_err(|error| Failure::failed("standard input", Reason::from(error)))?;
    Ok(value)
}

fn list(args: &XattrLsArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let file = File::find(sessions, &args.file)?;
        let failed = |error| Failure::failed(&file.label, Reason::from(error));
        let mut out = Out::new();
        for name in file.names().map_err(failed)? {
            if !args.long && !args.json {
                out.name(&name)?;
                out.line("")?;
                continue;
            }
            let size = file.get(&name).map_err(|error| file.failed(&name, &error))?.len();
            if args.json {
                out.json(Object::new().put_name("name", &name).put("size", size))?;
            } else {
                out.bytes(format!("{size:>6} ").as_bytes())?;
                out.name(&name)?;
                out.line("")?;
            }
        }
        out.flush()?;
        Ok(OK)
    })
}

fn remove(args: &XattrRmArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let file = File::find(sessions, &args.file)?;
        let mut progress = Progress::counting();
        for name in &args.names {
            let name = name.as_bytes();
            if let Err(error) = file.get(name).and_then(|_| file.remove(name)) {
                progress.failure(file.of(name), why(&error));
            }
        }
        Ok(progress.finish())
    })
}
