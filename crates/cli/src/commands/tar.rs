//! `shoal tar`: archives of trees in volumes, and extracting them.
//!
//! The format is in the crate `shoal-tar`, both ends of `shoal cp` are used for the files
//! (`cp/side.rs`): so a place in a volume and a directory of this machine are the same here.

mod create;
mod extract;
mod feed;
mod list;
mod names;
mod stream;

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::args::TarArgs;
use crate::commands::cp::involume::InVolume;
use crate::commands::cp::local::{self, Local};
use crate::commands::cp::raise_file_limit;
use crate::commands::cp::side::Id;
use crate::failure::{Failure, Result};
use crate::location::Place;
use crate::session::{Access, Session, Sessions};
use crate::text::printable;

/// Archives, extracts or lists.
pub(crate) fn run(args: &TarArgs) -> Result<u8> {
    if let Place::Volume(location) = Place::parse(args.file.as_os_str()) {
        let what = "the archive must be a file of this machine, or - (-C names the volume)";
        return Err(Failure::usage(location.label(), what));
    }
    if let Some(what) = misplaced(args) {
        return Err(Failure::usage("tar", what));
    }
    if args.list {
        return list::run(args);
    }
    raise_file_limit();
    match Place::parse(&args.directory) {
        Place::Local(path) => {
            if args.since.is_some() || args.mark_file.is_some() {
                let what = "changes are read from a volume that is not mounted: -C VOLUME:/path";
                return Err(Failure::usage(printable(path.as_os_str().as_bytes()), what));
            }
            let top = path.as_os_str().as_bytes();
            match args.create {
                true => create::run(args, &Local::new(), top, None, Vec::new()),
                false => extract::run(args, &Local::new(), top),
            }
        }
        Place::Volume(location) => {
            let access = if args.create { Access::Read } else { Access::Write };
            Sessions::run(access, |sessions| {
                let session = sessions.get(&location)?;
                let side = InVolume::new(Arc::clone(&session));
                match args.create {
                    true => create::run(
                        args,
                        &side,
                        &location.path,
                        Some(&session),
                        volume_file(&session),
                    ),
                    false => extract::run(args, &side, &location.path),
                }
            })
        }
    }
}

/// Returns what is wrong if an option is given that would have no effect.
fn misplaced(args: &TarArgs) -> Option<String> {
    let of_create = [
        (args.no_recursion, "--no-recursion"),
        (args.newer.is_some(), "--newer"),
        (args.since.is_some(), "--since"),
        (args.mark_file.is_some(), "--mark-file"),
    ];
    // Not -p, which many type in any case.
    let of_extract = [
        (args.no_same_owner, "--no-same-owner"),
        (args.keep_old_files, "--keep-old-files"),
        (args.strip_components > 0, "--strip-components"),
    ];
    let given = |options: &[(bool, &'static str)]| {
        options.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name)
    };
    let create = given(&of_create).filter(|_| !args.create).map(|name| (name, "-c"));
    let extract = given(&of_extract).filter(|_| !args.extract).map(|name| (name, "-x"));
    create.or(extract).map(|(name, mode)| format!("{name} is only for {mode}"))
}

/// The file of a volume, which must not become the archive.
fn volume_file(session: &Session) -> Vec<Id> {
    local::identify(session.path.as_os_str().as_bytes()).into_iter().collect()
}
