//! `shoal mv`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, lstat, renameat_with};
use rustix::io::Errno;
use shoal::raw::{Code, FileKind, RenameFlags};

use crate::args::MvArgs;
use crate::failure::{Failure, Reason, Result};
use crate::interrupt;
use crate::location::{Location, Place, join, split_last};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::text::printable;
use crate::tree::mounted_path;

/// Reason against a destination for several files.
const NO_DIRECTORY: &str = "is not a directory (several files can only be moved into one)";
/// Reason against a source that cannot be renamed to the destination.
const ELSEWHERE: &str =
    "is not in the destination's volume (copy it with cp -r, then remove it with rm -r)";

/// Renames or moves files within a volume.
pub(crate) fn run(args: &MvArgs) -> Result<u8> {
    if let Some(path) = mounted_path(&args.destination)? {
        return in_mount(args, path.as_os_str().as_bytes());
    }
    Sessions::run(Access::Write, |sessions| {
        let destination = Location::parse(&args.destination);
        let session = sessions.get(&destination)?;
        let into = !args.no_target_directory
            && !args.exchange
            && session
                .find(&destination.path, true)
                .is_ok_and(|found| found.kind == FileKind::Directory);
        if args.sources.len() > 1 && !into {
            return Err(Failure::usage(destination.label(), NO_DIRECTORY));
        }
        let (mut out, mut progress) = (Out::new(), Progress::counting());
        for (done, source) in args.sources.iter().enumerate() {
            interrupt::check(|| format!("{done} of {} arguments moved", args.sources.len()))?;
            let source = same_volume(source, &destination)?;
            let mut target = destination.path.clone();
            if into {
                target = join(&target, split_last(&source.path).name);
            }
            match rename(&session, &source.path, &target, args) {
                Ok(()) if args.verbose => {
                    let to = session.label(&target);
                    out.line(&format!("{} -> {to}", source.label()))?;
                }
                Ok(()) => {}
                Err(reason) => progress.failure(source.label(), reason),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

/// Renames or moves files within a mount.
fn in_mount(args: &MvArgs, destination: &[u8]) -> Result<u8> {
    let is_directory = Path::new(OsStr::from_bytes(destination)).is_dir();
    let into = !args.no_target_directory && !args.exchange && is_directory;
    if args.sources.len() > 1 && !into {
        return Err(Failure::usage(printable(destination), NO_DIRECTORY));
    }
    let (mut out, mut progress) = (Out::new(), Progress::counting());
    for source in &args.sources {
        if let Place::Volume(location) = Place::parse(source) {
            return Err(Failure::usage(location.label(), ELSEWHERE));
        }
        let source = source.as_bytes();
        let target = match into {
            true => join(destination, split_last(source).name),
            false => destination.to_vec(),
        };
        match rename_in_mount(source, &target, args) {
            Ok(()) if args.verbose => {
                out.line(&format!("{} -> {}", printable(source), printable(&target)))?;
            }
            Ok(()) => {}
            Err(reason) => progress.failure(printable(source), reason),
        }
    }
    out.flush()?;
    Ok(progress.finish())
}

fn rename_in_mount(from: &[u8], to: &[u8], args: &MvArgs) -> Result<(), Reason> {
    let source = lstat(from)?;
    let is_dir = FileType::from_raw_mode(source.st_mode).is_dir();
    if let Ok(found) = lstat(to)
        && (found.st_dev, found.st_ino) == (source.st_dev, source.st_ino)
        && !args.exchange
    {
        return Err(Reason::Text(format!("is the same file as {}", printable(to))));
    }
    let mut flags = rustix::fs::RenameFlags::empty();
    flags.set(rustix::fs::RenameFlags::NOREPLACE, args.no_clobber);
    flags.set(rustix::fs::RenameFlags::EXCHANGE, args.exchange);
    match renameat_with(CWD, from, CWD, to, flags) {
        Err(Errno::INVAL) if is_dir => Err(Reason::Text("cannot be moved into itself".into())),
        Err(Errno::XDEV) => {
            let text = "cannot be moved to another volume or subvolume (copy it with cp -r, then \
                        remove it)";
            Err(Reason::Text(text.into()))
        }
        Err(Errno::BUSY) => {
            Err(Reason::Text("the top of a mount or subvolume cannot be moved or replaced".into()))
        }
        renamed => Ok(renamed?),
    }
}

/// Returns the source, which must be in the destination's volume.
fn same_volume(source: &OsStr, destination: &Location) -> Result<Location> {
    let source = Location::parse(source);
    let real = |location: &Location| location.volume.canonicalize().ok();
    if source.volume != destination.volume && real(&source) != real(destination) {
        return Err(Failure::usage(source.label(), ELSEWHERE));
    }
    Ok(source)
}

fn rename(session: &Session, from: &[u8], to: &[u8], args: &MvArgs) -> Result<(), Reason> {
    let source = session.slot(from)?;
    let target = session.slot(to)?;
    let flags =
        RenameFlags { noreplace: args.no_clobber, exchange: args.exchange, whiteout: false };
    let from = session.look(&source.path)?;
    if let Some(found) = session.lookup(&target.path)?
        && found.ino == from.ino
        && !args.exchange
    {
        // rename(2) does nothing for two names of one file, which would look like a success.
        return Err(Reason::Text(format!("is the same file as {}", session.label(to))));
    }
    match session.rename(&source.path, &target.path, flags) {
        Err(error) if error.is(Code::Invalid) && from.kind == FileKind::Directory => {
            Err(Reason::Text("cannot be moved into itself".into()))
        }
        Err(error) if error.is(Code::CrossRoot) => {
            let text = "cannot be moved to another subvolume (copy it with cp -r, then remove it)";
            Err(Reason::Text(text.into()))
        }
        Err(error) if error.is(Code::Busy) => {
            Err(Reason::Text("the top of a subvolume cannot be moved or replaced".into()))
        }
        result => Ok(result?),
    }
}
