//! `shoal cp`: between a local tree and a volume, or within and between volumes.
//!
//! Both ends stand behind one trait (`side`), implemented by `local` and `involume`; the copier
//! knows neither. So every rule about what is kept and what is overwritten exists once.

mod attributes;
mod compare;
mod contents;
mod copier;
mod input;
pub(crate) mod involume;
pub(crate) mod local;
mod merge;
pub(crate) mod mirror;
mod options;
pub(crate) mod side;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::args::CpArgs;
use crate::failure::{Failure, Result};
use crate::location::{Location, Place};
use crate::new_file::{self, Terms};
use crate::session::{Access, Session, Sessions};

use copier::{Copier, Destination};
use involume::InVolume;
use local::Local;
use options::{Existing, Options};
use side::{Id, Side};

/// Copies files.
pub(crate) fn run(args: &CpArgs) -> Result<u8> {
    if args.sources == ["-"] {
        return match Place::parse(&args.destination) {
            Place::Volume(destination) => input::copy(&destination),
            Place::Local(path) => {
                let reason = "is not in a volume (write VOLUME:/path)";
                Err(Failure::usage(path.display(), reason))
            }
        };
    }
    let sources: Vec<Place> = args.sources.iter().map(|source| Place::parse(source)).collect();
    let destination = Place::parse(&args.destination);
    let any_in_volume =
        sources.iter().chain([&destination]).any(|place| in_volume(place).is_some());
    if !any_in_volume {
        return Err(Failure::usage(
            args.destination.display(),
            "neither this nor a source is in a volume (write VOLUME:/path; for local copies use \
             cp)",
        ));
    }
    raise_file_limit();
    match destination {
        Place::Local(path) => Sessions::run(Access::Read, |sessions| {
            let sources = open_sources(&sources, sessions)?;
            let shunned = volume_files(&sources, None);
            let place = (path.as_os_str().as_bytes(), Some(&*path));
            copy_all(args, &sources, &Local::new(), place, shunned)
        }),
        Place::Volume(place) => Sessions::run(Access::Write, |sessions| {
            let session = sessions.get(&place)?;
            let sources = open_sources(&sources, sessions)?;
            let shunned = volume_files(&sources, Some(&session));
            let target = InVolume::new(session);
            copy_all(args, &sources, &target, (&place.path, None), shunned)
        }),
    }
}

fn in_volume(place: &Place) -> Option<&Location> {
    match place {
        Place::Volume(location) => Some(location),
        Place::Local(_) => None,
    }
}

/// A source with its volume opened.
enum Opened {
    Local(Vec<u8>),
    Volume(Arc<Session>, Vec<u8>),
}

impl Opened {
    /// Returns the volume's file or device.
    fn volume(&self) -> Option<&Path> {
        match self {
            Opened::Volume(session, _) => Some(&session.path),
            Opened::Local(_) => None,
        }
    }
}

fn open_sources(places: &[Place], sessions: &mut Sessions) -> Result<Vec<Opened>> {
    let open = |place: &Place| match place {
        Place::Local(path) => Ok(Opened::Local(path.as_os_str().as_bytes().to_vec())),
        Place::Volume(place) => {
            // The destination's volume is open for writing by now.
            let session = sessions.get_for(place, Access::Read)?;
            Ok(Opened::Volume(session, place.path.clone()))
        }
    };
    places.iter().map(open).collect()
}

fn copy_all<T: Side>(
    args: &CpArgs,
    sources: &[Opened],
    target: &T,
    (path, local): (&[u8], Option<&Path>),
    shunned: Vec<Id>,
) -> Result<u8> {
    let destination = Destination::find(target, path, !args.no_target_directory)
        .map_err(|reason| Failure::failed(target.label(path), reason))?;
    if sources.len() > 1 && !destination.is_directory() {
        return Err(Failure::usage(
            target.label(path),
            "is not a directory (several files can only be copied into one)",
        ));
    }
    if let Some(path) = local.filter(|_| !destination.is_directory()) {
        // Only of what is named itself: a tree may well have volumes in it.
        let volumes: Vec<&Path> = sources.iter().filter_map(Opened::volume).collect();
        let terms = Terms { sources: &volumes, force: Some(args.force), ..Terms::default() };
        new_file::guard(path, &terms)?;
    }
    let recursive = args.recursive || args.archive;
    let existing = match (args.no_clobber, args.update) {
        (true, _) => Existing::Leave,
        (_, true) => Existing::LeaveIfNewer,
        _ => Existing::Overwrite,
    };
    let options = Options { recursive, verbose: args.verbose, mirror: false, existing };
    let mut copier = Copier::new(target, options, shunned);
    for source in sources {
        match source {
            Opened::Local(path) => copier.operand(&Local::new(), path, &destination)?,
            Opened::Volume(session, path) => {
                copier.operand(&InVolume::new(Arc::clone(session)), path, &destination)?;
            }
        }
    }
    copier.finish()
}

/// The files that hold the volumes in use: copying one into itself would never end, and
/// overwriting one would destroy what is being read.
fn volume_files(sources: &[Opened], target: Option<&Arc<Session>>) -> Vec<Id> {
    let target = target.map(|session| &*session.path);
    let identify = |path: &Path| local::identify(OsStr::as_bytes(path.as_os_str()));
    sources.iter().filter_map(Opened::volume).chain(target).filter_map(identify).collect()
}

/// A tree is walked with open directories, a few for each level, so that paths of any length and
/// directories that are renamed meanwhile do no harm. Deep trees need more than the usual limit.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it only very deep trees fail, and say so.
    let _ = setrlimit(Resource::Nofile, limit);
}
