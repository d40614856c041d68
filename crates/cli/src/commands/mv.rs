//! `shoal mv`.

use std::ffi::OsStr;

use shoal::raw::{Code, FileKind, RenameFlags};

use crate::args::MvArgs;
use crate::failure::{Failure, Reason, Result};
use crate::interrupt;
use crate::location::{Location, join, split_last};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};

/// Renames or moves files within a volume.
pub(crate) fn run(args: &MvArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let destination = Location::parse(&args.destination);
        let session = sessions.get(&destination)?;
        let into = !args.no_target_directory
            && !args.exchange
            && session
                .find(&destination.path, true)
                .is_ok_and(|found| found.kind == FileKind::Directory);
        if args.sources.len() > 1 && !into {
            return Err(Failure::usage(
                destination.label(),
                "is not a directory (several files can only be moved into one)",
            ));
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

/// Returns the source, which must be in the destination's volume.
fn same_volume(source: &OsStr, destination: &Location) -> Result<Location> {
    let source = Location::parse(source);
    let real = |location: &Location| location.volume.canonicalize().ok();
    if source.volume != destination.volume && real(&source) != real(destination) {
        return Err(Failure::usage(
            source.label(),
            "is not in the destination's volume (copy it with cp -r, then remove it with rm -r)",
        ));
    }
    Ok(source)
}

fn rename(session: &Session, from: &[u8], to: &[u8], args: &MvArgs) -> Result<(), Reason> {
    let source = session.slot(from)?;
    let target = session.slot(to)?;
    let flags = RenameFlags { noreplace: args.no_clobber, exchange: args.exchange };
    let from = session.volume.namespace().lookup(&session.who, source.dir, &source.name)?;
    if let Some(found) = session.lookup(target.dir, &target.name)?
        && found.ino == from.ino
        && !args.exchange
    {
        // rename(2) does nothing for two names of one file, which would look like a success.
        return Err(Reason::Text(format!("is the same file as {}", session.label(to))));
    }
    let renamed = session.volume.namespace().rename(
        &session.who,
        source.dir,
        &source.name,
        target.dir,
        &target.name,
        flags,
    );
    match renamed {
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
