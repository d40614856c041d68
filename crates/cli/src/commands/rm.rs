//! `shoal rm`: files and whole trees, in a volume that is not mounted or through a mount.

use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, fstat, statat, unlinkat};
use rustix::io::dup;
use shoal::raw::{Code, FileKind, TreeCheck, Volume, VolumeInfo};
use shoal_fuse::is_in_mount;
use shoal_session::Node;

use crate::args::RmArgs;
use crate::failure::{Failure, Reason, Result};
use crate::interrupt;
use crate::json::Object;
use crate::location::{Location, Place, Split, split_last};
use crate::mounted::{NOT_OURS, open_at};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::text::printable;

/// Longest wait for a removed name to disappear.
const FORGETTING_MAX: Duration = Duration::from_secs(60);
/// Message for a directory without -r.
const IS_DIRECTORY: &str = "is a directory (remove it with -r)";

/// Removes files and trees.
pub(crate) fn run(args: &RmArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let mut remover = Remover { args, progress: Progress::counting(), out: Out::new() };
        for (done, place) in args.places.iter().enumerate() {
            interrupt::check(|| format!("{done} of {} arguments removed", args.places.len()))?;
            let place = Place::parse(place);
            let label = label_of(&place);
            if args.interactive && !confirmed(&label)? {
                continue;
            }
            let removed = match &place {
                Place::Local(path) => remover.in_mount(path),
                Place::Volume(location) => {
                    let session = sessions.get(location)?;
                    remover.in_volume(&session, location)
                }
            };
            match removed {
                Ok(removed) => remover.tell(&label, &place, &removed)?,
                Err(reason) if args.force && reason.is(Code::NotFound) => {}
                Err(reason) if reason.stops_everything() => {
                    return Err(Failure::failed(label, reason));
                }
                Err(Reason::Text(text)) if text == NOT_OURS => {
                    return Err(Failure::usage(label, NOT_OURS));
                }
                Err(reason) => remover.progress.failure(label, with_remedy(reason, args)),
            }
        }
        remover.out.flush()?;
        interrupt::check(|| "everything is removed, and its space is freed in later sessions")?;
        Ok(remover.progress.finish())
    })
}

fn label_of(place: &Place) -> String {
    match place {
        Place::Local(path) => printable(path.as_os_str().as_bytes()).into_owned(),
        Place::Volume(location) => location.label(),
    }
}

/// Asks the user; returns whether the answer is yes.
fn confirmed(label: &str) -> Result<bool> {
    let failed = |error| Failure::failed("standard input", Reason::from(error));
    let mut terminal = std::io::stderr().lock();
    // A question that cannot be shown is not answered.
    write!(terminal, "shoal: remove {label}? ").map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}

/// Adds the remedy for damage; to the refusal of a tree that nothing of it was removed, and the
/// remedy.
fn with_remedy(reason: Reason, args: &RmArgs) -> Reason {
    if reason.is(Code::Io) {
        let remedy = "shoal fsck --repair on the volume, when it is not mounted";
        return Reason::Text(format!("{reason} ({remedy})"));
    }
    let is_refusal = reason.is(Code::Access) || reason.is(Code::NotPermitted);
    match is_refusal && args.recursive {
        true if args.top_only => {
            Reason::Text(format!("{reason} (only the superuser may use --top-only)"))
        }
        true => Reason::Text(format!(
            "{reason}: nothing was removed (rm -rf removes the files that this user may remove)"
        )),
        false => reason,
    }
}

/// Result of an argument.
#[derive(Default)]
struct Removed {
    /// Inodes freed after the removal, if `rm` has waited for that.
    files: Option<u64>,
    /// There is more to free.
    waiting: bool,
}

/// Waits until the kernel does not show a removed name any more, which may take it long if the
/// directory is in use; the name may be that of a new file by then.
fn wait_until_forgotten(dir: impl AsFd, name: &[u8], ino: u64) {
    let end = Instant::now() + FORGETTING_MAX;
    while Instant::now() < end
        && statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| found.st_ino == ino)
    {
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Remover<'a> {
    args: &'a RmArgs,
    progress: Progress,
    out: Out,
}

impl Remover<'_> {
    fn check(&self) -> TreeCheck {
        if self.args.top_only { TreeCheck::Top } else { TreeCheck::Tree }
    }

    /// Removes a file or tree in a mounted volume. Its server frees the space.
    fn in_mount(&self, path: &Path) -> Result<Removed, Reason> {
        let Split { parent, name, slash } = split_last(path.as_os_str().as_bytes());
        if matches!(name, b"" | b"." | b"..") {
            return Err(Reason::Text("the path must end in a name, not in a dot".into()));
        }
        let parent = if parent.is_empty() { b"." } else { parent };
        let dir = open_at(Path::new(std::ffi::OsStr::from_bytes(parent)))?;
        let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        if slash && !is_directory {
            return Err(shoal::raw::Error::Code(Code::NotDirectory).into());
        }
        if found.st_dev != fstat(&dir)?.st_dev {
            let text = "is a mount point (name the files in it, or unmount it first)";
            return Err(Reason::Text(text.into()));
        }
        if is_directory && !self.args.recursive && !self.args.dir {
            return Err(Reason::Text(IS_DIRECTORY.into()));
        }
        if !is_in_mount(&dir) {
            return Err(Reason::Text(NOT_OURS.into()));
        }
        if !is_directory {
            unlinkat(&dir, name, AtFlags::empty())?;
            return Ok(Removed::default());
        }
        if !self.args.recursive {
            unlinkat(&dir, name, AtFlags::REMOVEDIR)?;
            return Ok(Removed::default());
        }
        let session = Session::through(dup(&dir)?, Path::new(std::ffi::OsStr::from_bytes(parent)));
        let (calls, who) = (session.calls(), &session.who);
        match calls.remove_tree(who, Node::TOP, name, self.check()) {
            Err(error) if error.is(Code::Busy) => {
                let top = printable(parent);
                let name = printable(name);
                Err(Reason::Text(format!(
                    "is a subvolume (delete it with shoal subvolume delete {top} {name})"
                )))
            }
            removed => {
                removed?;
                wait_until_forgotten(dir, name, found.st_ino);
                Ok(Removed { files: None, waiting: true })
            }
        }
    }

    /// Removes a file or tree in a volume. Whoever serves it frees the space.
    fn in_volume(&mut self, session: &Session, location: &Location) -> Result<Removed, Reason> {
        let Split { name, slash, .. } = split_last(&location.path);
        let slot = session.slot(&location.path)?;
        let entry = session.look(&slot.path)?;
        if entry.kind != FileKind::Directory {
            if slash && !name.is_empty() {
                return Err(shoal::raw::Error::Code(Code::NotDirectory).into());
            }
            session.unlink(&slot.path)?;
            return Ok(Removed::default());
        }
        if entry.ino.root() != slot.dir.root() {
            let (volume, name) = (session.path.display(), printable(&slot.name));
            let text =
                format!("is a subvolume (delete it with shoal subvolume delete {volume} {name})");
            return Err(Reason::Text(text));
        }
        if self.args.recursive {
            let before = session.direct().map(Volume::info);
            let (calls, who, check) = (session.calls(), &session.who, self.check());
            session.on(&slot.path, |node, path| calls.remove_tree(who, node, path, check))?;
            return match (session.direct(), before) {
                (Some(volume), Some(before)) => self.free(volume, &location.path, &before),
                _ => Ok(Removed { files: None, waiting: true }),
            };
        }
        if !self.args.dir {
            return Err(Reason::Text(IS_DIRECTORY.into()));
        }
        session.remove_dir(&slot.path)?;
        Ok(Removed::default())
    }

    /// Waits until the space of the removed trees is free.
    fn free(
        &mut self,
        volume: &Volume,
        path: &[u8],
        before: &VolumeInfo,
    ) -> Result<Removed, Reason> {
        let wait = || !self.args.no_wait && interrupt::pending().is_none();
        while wait() && volume.maintenance().is_reaping() {
            if let Err(error) = volume.maintenance().reap_some() {
                let text = format!("removed, but its space could not all be freed now: {error}");
                return Err(Reason::Text(text));
            }
            let now = volume.info();
            let bytes = before.live_bytes.saturating_sub(now.live_bytes);
            self.progress.count(before.inodes.saturating_sub(now.inodes), bytes, path);
        }
        let freed = || before.inodes.saturating_sub(volume.info().inodes);
        let files = (!self.args.no_wait).then(freed);
        Ok(Removed { files, waiting: volume.maintenance().is_reaping() })
    }

    fn tell(&mut self, label: &str, place: &Place, removed: &Removed) -> Result<()> {
        if self.args.json {
            return self.out.json(json(place, removed));
        }
        if !self.args.verbose {
            return Ok(());
        }
        let rest = match (removed.files, removed.waiting) {
            (_, true) => "; its space is freed in the background",
            (Some(_), false) => ", and its space is free",
            (None, false) => "",
        };
        self.out.line(&format!("{label}: removed{rest}"))
    }
}

fn json(place: &Place, removed: &Removed) -> Object {
    let name = match place {
        Place::Local(path) => path.as_os_str().as_bytes().to_vec(),
        Place::Volume(location) => {
            [location.volume.as_os_str().as_bytes(), b":", &location.path].concat()
        }
    };
    Object::new()
        .put_name("place", &name)
        .put_some("files", removed.files)
        .put("waiting", removed.waiting)
}
