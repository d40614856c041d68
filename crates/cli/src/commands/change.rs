//! `shoal chmod`, `shoal chown` and `shoal touch`.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use shoal::raw::{Attr, Code, FileKind, SetAttr, SetTime, TreeChange, TreeStep};

use crate::accounts::Accounts;
use crate::args::{ChmodArgs, ChownArgs, TouchArgs};
use crate::failure::{Failure, Reason, Result};
use crate::find::Times;
use crate::interrupt;
use crate::location::{self, Location, Place};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Found, Session, Sessions};
use crate::text::mode_text;
use crate::walk::{Options, Step, Walk};

/// Changes permission bits.
pub fn chmod(args: &ChmodArgs) -> Result<u8> {
    let mut out = Out::new();
    let tree = TreeChange { mode: Some(args.mode.clone()), ..TreeChange::default() };
    let below = match (args.recursive, args.verbose || args.changes) {
        (false, _) => Below::Nothing,
        (true, true) => Below::OneByOne,
        (true, false) => Below::AtOnce(&tree),
    };
    let status = each(&args.places, below, true, |session, path, attr| {
        let label = session.label(path);
        if attr.kind == FileKind::Symlink {
            return match args.verbose {
                true => Ok(out.line(&format!(
                    "neither symbolic link '{label}' nor referent has been changed"
                ))?),
                false => Ok(()),
            };
        }
        let is_directory = attr.kind == FileKind::Directory;
        let mode = args.mode.apply(attr.mode, is_directory, session.who.umask);
        let old = attr.mode & 0o7777;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let new = session.volume.attributes().setattr(&session.who, attr.ino, &set)?;
        let show = |attr: &Attr| format!("{:04o} ({})", attr.mode & 0o7777, &mode_text(attr)[1..]);
        if new.mode & 0o7777 != old && (args.verbose || args.changes) {
            out.line(&format!("mode of '{label}' changed from {} to {}", show(attr), show(&new)))?;
        } else if args.verbose {
            out.line(&format!("mode of '{label}' retained as {}", show(&new)))?;
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(status)
}

/// Changes owners and groups.
pub fn chown(args: &ChownArgs) -> Result<u8> {
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
    each(&args.places, below, follow, |session, _, attr| {
        session.volume.attributes().setattr(&session.who, attr.ino, &set)?;
        Ok(())
    })
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

/// Makes a change in each place and, with -R, in everything below, a directory before its contents.
/// `follow`: the target of a symlink that is a place.
pub(super) fn each(
    places: &[OsString],
    below: Below<'_>,
    follow: bool,
    mut change: impl FnMut(&Session, &[u8], &Attr) -> Result<(), Stop>,
) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let mut progress = Progress::counting();
        let mut done = 0_u64;
        for place in places {
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            let path = &location.path;
            let attr = match session.find(path, follow) {
                Ok(attr) => attr,
                Err(error) => {
                    progress.failure(location.label(), Reason::from(error));
                    continue;
                }
            };
            if attr.kind == FileKind::Directory
                && let Below::AtOnce(tree) = below
                && at_once(&session, (path, &attr), tree, &mut progress, &mut done)?
            {
                continue;
            }
            let mut one = |progress: &mut Progress, path: &[u8], attr: &Attr| {
                interrupt::check(|| format!("{done} files changed"))?;
                done += 1;
                progress.count(done, 0, path);
                match change(&session, path, attr) {
                    Ok(()) => Ok(()),
                    Err(Stop::Command(failure)) => Err(failure),
                    Err(Stop::File(reason)) if reason.stops_everything() => {
                        Err(Failure::failed(session.label(path), reason))
                    }
                    Err(Stop::File(reason)) => {
                        progress.failure(session.label(path), reason);
                        Ok(())
                    }
                }
            };
            one(&mut progress, path, &attr)?;
            if attr.kind == FileKind::Directory && !matches!(below, Below::Nothing) {
                one_by_one(&session, (path, attr), &mut progress, &mut one)?;
            }
        }
        Ok(progress.finish())
    })
}

/// Changes the file at a path.
type One<'o> = dyn FnMut(&mut Progress, &[u8], &Attr) -> Result<()> + 'o;

/// Changes everything below a directory, each file by itself.
fn one_by_one(
    session: &Session,
    (path, attr): (&[u8], Attr),
    progress: &mut Progress,
    one: &mut One<'_>,
) -> Result<()> {
    let top = (Found::with_attributes(Box::default(), attr), path);
    let (volume, options) = (&session.volume, Options { names_only: true, ..Options::default() });
    Walk::run(session, top, options, |walk| {
        while let Some(step) = walk.step() {
            match step {
                // Read now: another link of the file may have been changed since it was listed.
                Step::Found(found) => match volume.attributes().getattr(found.ino) {
                    Ok(attr) => one(progress, walk.path(), &attr)?,
                    Err(error) => {
                        progress.failure(session.label(walk.path()), Reason::from(error));
                    }
                },
                Step::Failed(error) => {
                    progress.failure(session.label(walk.path()), Reason::from(error));
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
    session: &Session,
    (path, attr): (&[u8], &Attr),
    tree: &TreeChange,
    progress: &mut Progress,
    done: &mut u64,
) -> Result<bool> {
    let before = *done;
    let shown = Mutex::new((progress, None));
    let watch = |step: &TreeStep<'_>| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (progress, fatal) = &mut *shown;
        for failure in step.failures {
            let mut whole = path.to_vec();
            if !failure.path.is_empty() {
                location::push(&mut whole, &failure.path);
            }
            let (label, reason) = (session.label(&whole), Reason::from(failure.error.clone()));
            match reason.stops_everything() {
                true => *fatal = Some(Failure::failed(label, reason)),
                false => progress.failure(label, reason),
            }
        }
        progress.count(before + step.inodes, 0, path);
        match fatal.is_some() || interrupt::pending().is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let changes = session.volume.tree_changes();
    let changed = match changes.change_tree(&session.who, attr.ino, tree, threads, &watch) {
        Ok(changed) => changed,
        Err(error) if error.code() == Code::TooBig => return Ok(false),
        Err(error) => return Err(Failure::failed(session.label(path), Reason::from(error))),
    };
    *done = before + changed.inodes;
    let (_, fatal) = shown.into_inner().unwrap_or_else(PoisonError::into_inner);
    match fatal {
        Some(failure) => Err(failure),
        None => interrupt::check(|| format!("{done} files changed")).map(|()| true),
    }
}

/// Changes times, or makes files.
pub fn touch(args: &TouchArgs) -> Result<u8> {
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
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            if args.recursive
                && let Ok(attr) = session.find(&location.path, !args.no_dereference)
                && attr.kind == FileKind::Directory
                && at_once(&session, (&location.path, &attr), &tree, &mut progress, &mut files)?
            {
                continue;
            }
            if let Err(reason) = touch_one(args, &session, &location.path, &set) {
                if reason.stops_everything() {
                    return Err(Failure::failed(location.label(), reason));
                }
                progress.failure(location.label(), reason);
            }
        }
        Ok(progress.finish())
    })
}

fn touch_one(
    args: &TouchArgs,
    session: &Session,
    path: &[u8],
    set: &SetAttr,
) -> Result<(), Reason> {
    let (volume, who) = (&session.volume, &session.who);
    let attr = match session.find(path, !args.no_dereference) {
        Ok(attr) => attr,
        Err(error) if error.is(Code::NotFound) => {
            if args.no_create || args.no_dereference {
                return if args.no_create { Ok(()) } else { Err(error.into()) };
            }
            let slot = session.slot(path)?;
            volume.namespace().create(who, slot.dir, &slot.name, 0o666)?
        }
        Err(error) => return Err(error.into()),
    };
    volume.attributes().setattr(who, attr.ino, set)?;
    Ok(())
}

/// Returns the times of a file, a place in a volume or a file of this machine. Symlinks are
/// followed.
pub fn times_of(place: &OsStr, sessions: &mut Sessions) -> Result<Times> {
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
