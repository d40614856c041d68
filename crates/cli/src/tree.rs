//! Places of the commands that read trees alike in a volume that is open here and in a mount.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shoal::raw::{Attr, Error, FileKind};

use crate::failure::{Failure, Result};
use crate::in_mount::{self, InMount};
use crate::location::{Location, Place, join};
use crate::mounted::NOT_OURS;
use crate::session::{Access, Sessions};
use crate::source::Source;
use crate::start::Start;
use crate::text::printable;

/// A tree that a place is in.
#[derive(Clone)]
pub(crate) enum Tree {
    /// In a volume, by the calls of the library.
    Volume(Start),
    /// In a mount.
    Mount(Arc<InMount>),
}

/// A place that exists.
pub(crate) struct Operand {
    /// The tree that it is in.
    pub tree: Tree,
    /// Path in the volume or, in a mount, as it was typed.
    pub path: Vec<u8>,
    /// Its attributes.
    pub attr: Attr,
}

/// A place that cannot be looked at.
pub(crate) struct Missing {
    /// Its name.
    pub label: String,
    /// Why.
    pub error: Error,
}

/// Returns the path of a place in a mount, also of one that is not there yet; `None`: it is in a
/// volume that can be opened here. The failure is that it is in neither.
pub(crate) fn mounted_path(place: &OsStr) -> Result<Option<PathBuf>> {
    let Place::Local(path) = Place::parse(place) else { return Ok(None) };
    let real = path.canonicalize();
    let bytes = real.as_ref().unwrap_or(&path).as_os_str().as_bytes();
    // The name of a directory itself is below it by a dot.
    if in_mount::is_below_mount(bytes) || in_mount::is_below_mount(&join(bytes, b"x")) {
        return Ok(Some(path));
    }
    let is_neither = real.is_err() || path.is_dir() || is_no_volume(&path);
    match is_neither {
        true => Err(Failure::usage(printable(path.as_os_str().as_bytes()), NOT_OURS)),
        false => Ok(None),
    }
}

/// Returns whether a file holds no volume, so that it can only be meant as a file itself.
fn is_no_volume(path: &Path) -> bool {
    path.is_file() && matches!(shoal::raw::identify(path), Ok(None))
}

impl Operand {
    /// Opens a place: `VOLUME:/path`, a volume, or a path in a mount. The failure is that of
    /// opening the volume, or that there is none.
    pub(crate) fn open(
        sessions: &mut Sessions,
        access: Access,
        place: &OsStr,
        follow: bool,
    ) -> Result<Result<Operand, Missing>> {
        if let Place::Local(path) = Place::parse(place) {
            let opened = InMount::open(&path, follow);
            let path = place.as_bytes().to_vec();
            match opened {
                Ok(Some((mount, attr))) => {
                    return Ok(Ok(Operand { tree: Tree::Mount(Arc::new(mount)), path, attr }));
                }
                Ok(None) if Path::new(place).is_dir() || is_no_volume(Path::new(place)) => {
                    return Err(Failure::usage(printable(&path), NOT_OURS));
                }
                Ok(None) => {}
                Err(error) => {
                    return Ok(Err(Missing { label: printable(&path).into_owned(), error }));
                }
            }
        }
        let location = Location::parse(place);
        let session = sessions.get_for(&location, access)?;
        Ok(match session.place(&location.path, follow) {
            Ok((attr, real)) => {
                let tree = Tree::Volume(Start::new(session, location.path.clone(), real));
                Ok(Operand { tree, path: location.path, attr })
            }
            Err(error) => Err(Missing { label: location.label(), error }),
        })
    }

    /// Returns the name of the place in messages.
    pub(crate) fn label(&self) -> String {
        self.tree.label(&self.path)
    }
}

impl Tree {
    /// Returns what a walk lists.
    pub(crate) fn source(&self) -> &dyn Source {
        match self {
            Tree::Volume(start) => start,
            Tree::Mount(mount) => &**mount,
        }
    }

    /// Returns the way to the server, or the volume itself; `None`: system calls alone.
    pub(crate) fn start(&self) -> Option<&Start> {
        match self {
            Tree::Volume(start) => Some(start),
            Tree::Mount(mount) => mount.start(),
        }
    }

    /// The same where it is needed.
    pub(crate) fn needs_start(&self) -> shoal::raw::Result<&Start> {
        match self {
            Tree::Volume(start) => Ok(start),
            Tree::Mount(mount) => mount.needs_start(),
        }
    }

    /// Returns the name of a path in it, for messages.
    pub(crate) fn label(&self, path: &[u8]) -> String {
        match self {
            Tree::Volume(start) => start.session.label(path),
            Tree::Mount(_) => printable(path).into_owned(),
        }
    }

    /// Returns a number that two trees of one volume share.
    pub(crate) fn volume_id(&self) -> (bool, u64) {
        match self {
            Tree::Volume(start) => (false, Arc::as_ptr(&start.session).addr() as u64),
            Tree::Mount(mount) => (true, mount.device()),
        }
    }

    /// Returns the attributes of what a path of a walk leads to.
    pub(crate) fn find(&self, path: &[u8]) -> shoal::raw::Result<Attr> {
        match self {
            Tree::Volume(start) => start.session.find(&start.real(path), true),
            Tree::Mount(_) => InMount::stat(path, true),
        }
    }

    /// Returns the target of a symlink at a path of a walk, `None` for every other type.
    pub(crate) fn target(&self, path: &[u8], attr: &Attr) -> shoal::raw::Result<Option<Vec<u8>>> {
        match self {
            _ if attr.kind != FileKind::Symlink => Ok(None),
            Tree::Volume(start) => start.session.read_link(&start.real(path)).map(Some),
            Tree::Mount(_) => InMount::target(path).map(Some),
        }
    }

    /// Returns the attributes of the directory at a path of a walk, and of the one that it is in.
    pub(crate) fn dots(&self, path: &[u8]) -> shoal::raw::Result<[Attr; 2]> {
        match self {
            Tree::Volume(start) => {
                let real = start.real(path);
                let above = real.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                Ok([start.session.look(&real)?, start.session.look(&real[..above])?])
            }
            Tree::Mount(_) => {
                Ok([InMount::stat(path, true)?, InMount::stat(&join(path, b".."), true)?])
            }
        }
    }
}
