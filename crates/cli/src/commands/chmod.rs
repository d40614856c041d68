//! `shoal chmod`, `shoal chown` and `shoal touch`.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use shoal::raw::text::counted;
use shoal::raw::{AclChange, Attr, Code, FileKind, SetAttr, SetTime, TreeChange, TreeStep};

use crate::accounts::Accounts;
use crate::args::{ChmodArgs, ChownArgs, TouchArgs};
use crate::direct;
use crate::failure::{Failure, Reason, Result};
use crate::find::Times;
use crate::in_mount::{self, OpenFile};
use crate::interrupt;
use crate::location::{self, Location, Place};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Found, Session, Sessions};
use crate::text::mode_text;
use crate::tree::{Operand, Tree};
use crate::walk::{Options, Step, Walk};

/// Changes permission bits.
pub(crate) fn chmod(args: &ChmodArgs) -> Result<u8> {
    let mut out = Out::new();
    let change = &args.mode;
    let tree = TreeChange { mode: Some(change.clone()), ..TreeChange::default() };
    let below = match (args.recursive, args.verbose || args.changes) {
        (false, _) => Below::Nothing,
        (true, true) => Below::OneByOne,
        (true, false) => Below::AtOnce(&tree),
    };
    let umask = direct::umask();
    let status = each(&args.places, below, true, |file| {
        let attr = file.attr();
        if attr.kind == FileKind::Symlink {
            return match args.verbose {
                true => Ok(out.line(&format!(
                    "neither symbolic link '{}' nor referent has been changed",
                    file.label
                ))?),
                false => Ok(()),
            };
        }
        let mode = change.apply(attr.mode, attr.kind == FileKind::Directory, umask);
        let old = attr.mode & 0o7777;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let (label, new) = (&file.label, file.set(&set)?);
        let show = |attr: &Attr| format!("{:04o} ({})", attr.mode & 0o7777, &mode_text(attr)[1..]);
        if new.mode & 0o7777 != old && (args.verbose || args.changes) {
            out.line(&format!("mode of '{label}' changed from {} to {}", show(&attr), show(&new)))?;
        } else if args.verbose {
            out.line(&format!("mode of '{label}' retained as {}", show(&new)))?;
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(status)
}

/// Changes owners and groups.
pub(crate) fn chown(args: &ChownArgs) -> Result<u8> {
    let accounts = Accounts::of_this_machine();
    let (user, group) = match args.owner.split_once(':') {
        Some((user, group)) => (Some(user).filter(|it| !it.is_empty()), Some(group)),
        None => (Some(args.owner.as_str()), None),
    };
    let failed = |what: &str| Failure::usage(&args.owner, what);
    let uid =
        user.map(|name| accounts.uid(name).ok_or_else(|| failed("no such user on this machine")));
    let gid = group.map(|name| match name {
        "" => Err(failed("names no group (write the group, or leave out the colon)")),
        name => accounts.gid(name).ok_or_else(|| failed("no such group on this machine")),
    });
    let set = SetAttr { uid: uid.transpose()?, gid: gid.transpose()?, ..SetAttr::default() };
    let follow = !args.no_dereference && !args.recursive;
    let tree = TreeChange { uid: set.uid, gid: set.gid, ..TreeChange::default() };
    let below = if args.recursive { Below::AtOnce(&tree) } else { Below::Nothing };
    each(&args.places, below, follow, |file| Ok(file.set(&set).map(drop)?))
}

/// Failure of one file, or of the command.
pub(super) enum Stop {
    File(Reason),
    Command(Failure),
}

impl From<shoal::raw::Error> for Stop {
    fn from(error: shoal::raw::Error) -> Stop {
        Stop::File(Reason::from(error))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Command(failure)
    }
}

/// Handling of everything below a place that is a directory.
#[derive(Clone, Copy)]
pub(super) enum Below<'c> {
    Nothing,
    /// Each file is found and changed by itself, and can be reported.
    OneByOne,
    /// One call of the volume, which also changes the directory.
    AtOnce(&'c TreeChange),
}

/// A file to be changed.
pub(super) struct Target<'t> {
    /// Its name in messages.
    pub label: String,
    file: Opened<'t>,
}

enum Opened<'t> {
    /// With its path from the top.
    Volume(&'t Session, Vec<u8>, Attr),
    Mount(OpenFile),
}

impl Target<'_> {
    /// Returns the attributes.
    pub(super) fn attr(&self) -> Attr {
        match &self.file {
            Opened::Volume(_, _, attr) => *attr,
            Opened::Mount(file) => file.attr,
        }
    }

    /// Changes an access control list.
    pub(super) fn change_acl(&self, change: &AclChange) -> shoal::raw::Result<()> {
        match &self.file {
            Opened::Volume(session, path, attr) => session.change_acl(path, attr.mode, change),
            Opened::Mount(file) => file.change_acl(change),
        }
    }

    fn set(&self, set: &SetAttr) -> shoal::raw::Result<Attr> {
        match &self.file {
            Opened::Volume(session, path, _) => session.set(path, *set),
            Opened::Mount(file) => file.set(set),
        }
    }
}

/// Returns a file of a tree at a path, with its attributes as they are now.
fn target<'t>(tree: &'t Tree, path: &[u8], follow: bool) -> shoal::raw::Result<Target<'t>> {
    let file = match tree {
        Tree::Volume(start) => {
            let real = start.real(path);
            let attr = start.session.look(&real)?;
            Opened::Volume(&start.session, real, attr)
        }
        Tree::Mount(mount) => Opened::Mount(mount.open_file(path, follow)?),
    };
    Ok(Target { label: tree.label(path), file })
}

/// Makes a change in each place and, with -R, in everything below, a directory before its contents.
/// `follow`: the target of a symlink that is a place.
pub(super) fn each(
    places: &[OsString],
    below: Below<'_>,
    follow: bool,
    mut change: impl FnMut(&Target<'_>) -> Result<(), Stop>,
) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let mut progress = Progress::counting();
        let mut done = 0_u64;
        for place in places {
            let place = match Operand::open(sessions, Access::Write, place, follow)? {
                Ok(place) => place,
                Err(missing) => {
                    progress.failure(missing.label, Reason::from(missing.error));
                    continue;
                }
            };
            let Operand { tree, path, attr } = &place;
            if attr.kind == FileKind::Directory
                && let Below::AtOnce(change) = below
                && at_once(&place, change, &mut progress, &mut done)?
            {
                continue;
            }
            let mut one = |progress: &mut Progress, path: &[u8], follow: bool| {
                interrupt::check(|| format!("{} changed", counted(done, "file")))?;
                done += 1;
                progress.count(done, 0, path);
                let changed = match target(tree, path, follow) {
                    Ok(target) => change(&target),
                    Err(error) => Err(error.into()),
                };
                match changed {
                    Ok(()) => Ok(()),
                    Err(Stop::Command(failure)) => Err(failure),
                    Err(Stop::File(reason)) if reason.stops_everything() => {
                        Err(Failure::failed(tree.label(path), reason))
                    }
                    Err(Stop::File(reason)) => {
                        progress.failure(tree.label(path), reason);
                        Ok(())
                    }
                }
            };
            one(&mut progress, path, follow)?;
            if attr.kind == FileKind::Directory && !matches!(below, Below::Nothing) {
                one_by_one(&place, &mut progress, &mut one)?;
            }
        }
        Ok(progress.finish())
    })
}

/// Changes the file at a path.
type One<'o> = dyn FnMut(&mut Progress, &[u8], bool) -> Result<()> + 'o;

/// Changes everything below a directory, each file by itself.
fn one_by_one(place: &Operand, progress: &mut Progress, one: &mut One<'_>) -> Result<()> {
    let Operand { tree, path, attr } = place;
    let top = (Found::with_attributes(Box::default(), *attr), &path[..]);
    let options = Options { names_only: true, ..Options::default() };
    Walk::through(tree.source(), top, options, |walk| {
        while let Some(step) = walk.step() {
            match step {
                // Its attributes are read now: another link of the file may have been changed since
                // it was listed.
                Step::Found(_) => one(progress, walk.path(), false)?,
                Step::Failed(error) => {
                    progress.failure(tree.label(walk.path()), Reason::from(error));
                }
                Step::Left(_) => {}
            }
        }
        Ok(())
    })
}

/// Changes a directory and everything below it with one call. An interrupted change leaves the
/// files that have been changed. Returns `false`, with nothing changed, if the call cannot make
/// this change.
fn at_once(
    place: &Operand,
    change: &TreeChange,
    progress: &mut Progress,
    done: &mut u64,
) -> Result<bool> {
    // The system refuses each file of such a view.
    if let Tree::Mount(mount) = &place.tree
        && mount.is_read_only()
    {
        return Ok(false);
    }
    let Some(start) = place.tree.start() else { return Ok(false) };
    let session = &start.session;
    // The first signal ends the change, also in a server.
    interrupt::defer();
    let before = *done;
    let label = |path: &[u8]| place.tree.label(path);
    let report = Mutex::new(Report { path: &place.path, label: &label, progress, fatal: None });
    let watch = |step: &TreeStep<'_>| {
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        for failure in step.failures {
            report.failed(&failure.path, Reason::from(failure.error.clone()));
        }
        report.count(before + step.inodes);
        report.flow()
    };
    let top = session.open_dir(&start.real(&place.path), Some(place.attr.ino));
    let changed =
        top.and_then(|top| session.calls().change_tree(&session.who, top.node, change, &watch));
    let changed = match changed {
        Ok(changed) => changed,
        // It cannot be said in one call, or the server may not be asked for it.
        Err(error) if matches!(error.code(), Code::TooBig | Code::NotSupported | Code::Invalid) => {
            return Ok(false);
        }
        Err(error) => return Err(Failure::failed(place.label(), Reason::from(error))),
    };
    *done = before + changed.inodes;
    let Report { fatal, .. } = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    match fatal {
        Some(failure) => Err(failure),
        None => interrupt::check(|| format!("{} changed", counted(done, "file"))).map(|()| true),
    }
}

/// Failures of single files, and the progress.
struct Report<'r> {
    /// Path of the place.
    path: &'r [u8],
    /// Name of a path in messages.
    label: &'r (dyn Fn(&[u8]) -> String + Sync),
    progress: &'r mut Progress,
    fatal: Option<Failure>,
}

impl Report<'_> {
    /// Reports a failure below the place.
    fn failed(&mut self, path: &[u8], reason: Reason) {
        let mut whole = self.path.to_vec();
        if !path.is_empty() {
            location::push(&mut whole, path);
        }
        let label = (self.label)(&whole);
        match reason.stops_everything() {
            true => self.fatal = Some(Failure::failed(label, reason)),
            false => self.progress.failure(label, reason),
        }
    }

    /// Shows the files changed so far.
    fn count(&mut self, files: u64) {
        self.progress.count(files, 0, self.path);
    }

    fn flow(&self) -> ControlFlow<()> {
        match self.fatal.is_some() || interrupt::pending().is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Changes times, or makes files.
pub(crate) fn touch(args: &TouchArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let mut progress = Progress::counting();
        let times = match &args.reference {
            Some(place) => Some(times_of(place, sessions)?),
            None => None,
        };
        let chosen = |of: fn(&Times) -> shoal::raw::Time| {
            let given = args.date.or_else(|| times.as_ref().map(of));
            Some(given.map_or(SetTime::Now, SetTime::To))
        };
        // Neither option means both times.
        let both = args.access == args.modify;
        let set = SetAttr {
            atime: chosen(|it| it.access).filter(|_| both || args.access),
            mtime: chosen(|it| it.modify).filter(|_| both || args.modify),
            ..SetAttr::default()
        };
        let tree = TreeChange { atime: set.atime, mtime: set.mtime, ..TreeChange::default() };
        let mut files = 0;
        for (done, place) in args.places.iter().enumerate() {
            interrupt::check(|| format!("{done} of {} arguments touched", args.places.len()))?;
            let opened = Operand::open(sessions, Access::Write, place, !args.no_dereference)?;
            let label = match &opened {
                Ok(place) => place.label(),
                Err(missing) => missing.label.clone(),
            };
            let touched = match opened {
                Ok(place) => touch_place(args, &place, (&tree, &set), &mut progress, &mut files)?,
                Err(missing) if missing.error.is(Code::NotFound) && args.no_create => Ok(()),
                Err(missing) if missing.error.is(Code::NotFound) && !args.no_dereference => {
                    make(place, sessions, &set)
                }
                Err(missing) => Err(missing.error.into()),
            };
            if let Err(reason) = touched {
                if reason.stops_everything() {
                    return Err(Failure::failed(label, reason));
                }
                progress.failure(label, reason);
            }
        }
        Ok(progress.finish())
    })
}

/// Changes the times of a place, with -R also of everything below.
fn touch_place(
    args: &TouchArgs,
    place: &Operand,
    (tree, set): (&TreeChange, &SetAttr),
    progress: &mut Progress,
    files: &mut u64,
) -> Result<Result<(), Reason>> {
    let is_tree = args.recursive && place.attr.kind == FileKind::Directory;
    if is_tree && at_once(place, tree, progress, files)? {
        return Ok(Ok(()));
    }
    let one = |path: &[u8], follow: bool| -> Result<(), Reason> {
        target(&place.tree, path, follow)?.set(set)?;
        Ok(())
    };
    if let Err(reason) = one(&place.path, !args.no_dereference) {
        return Ok(Err(reason));
    }
    if is_tree {
        let mut each = |progress: &mut Progress, path: &[u8], follow: bool| {
            interrupt::check(|| format!("{} touched", counted(&files, "file")))?;
            *files += 1;
            match one(path, follow) {
                Ok(()) => Ok(()),
                Err(reason) if reason.stops_everything() => {
                    Err(Failure::failed(place.tree.label(path), reason))
                }
                Err(reason) => {
                    progress.failure(place.tree.label(path), reason);
                    Ok(())
                }
            }
        };
        one_by_one(place, progress, &mut each)?;
    }
    Ok(Ok(()))
}

/// Makes an empty file, and sets its times.
fn make(place: &OsStr, sessions: &mut Sessions, set: &SetAttr) -> Result<(), Reason> {
    if let Place::Local(path) = Place::parse(place)
        && let path = path.as_os_str().as_bytes()
        && in_mount::is_below_mount(path)
    {
        in_mount::create(path)?;
        in_mount::open_path(path)?.set(set)?;
        return Ok(());
    }
    let session = sessions
        .get(&Location::parse(place))
        .map_err(|failure| Reason::Text(failure.line().unwrap_or_default().to_owned()))?;
    let slot = session.slot(&Location::parse(place).path)?;
    drop(session.create(&slot)?);
    session.set(&slot.path, *set)?;
    Ok(())
}

/// Returns the times of a file, a place in a volume or a file of this machine. Symlinks are
/// followed.
pub(crate) fn times_of(place: &OsStr, sessions: &mut Sessions) -> Result<Times> {
    match Place::parse(place) {
        Place::Local(path) => host_times(&path),
        Place::Volume(location) => {
            let session = sessions.get(&location)?;
            let found = session.find(&location.path, true);
            let failed = |error| Failure::usage(location.label(), Reason::from(error));
            Ok(Times::from(&found.map_err(failed)?))
        }
    }
}

fn host_times(path: &Path) -> Result<Times> {
    let failed = |error| Failure::usage(path.display(), Reason::from(error));
    Ok(Times::from(&path.metadata().map_err(failed)?))
}
