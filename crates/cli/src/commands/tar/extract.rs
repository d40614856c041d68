//! `shoal tar -x`.
//!
//! Names of an archive are not trusted. Each is resolved component by component from the directory
//! of `-C`, by open directories, without following a symlink; so nothing outside can be reached,
//! neither by names, nor by symlinks that the archive makes, nor by those that were there.
//!
//! The directories from there down to the last member stay open. One that is left gets its
//! attributes then, when what is in it has been made. A file gets its name when it is whole.

use rustix::fs::makedev;
use rustix::process::{getegid, geteuid};
use shoal::raw::text::counted;
use shoal::raw::{Code, FileKind, Time};
use shoal_tar::{Extent, Kind, Member, Reader};

use super::list::{self, Lines};
use super::names::{Wanted, components};
use super::stream;
use crate::accounts::Accounts;
use crate::acl;
use crate::args::TarArgs;
use crate::clock;
use crate::commands::cp::side::{ACLS, Attribute, Draft, Id, Kept, Meta, Outcome, Side, is_kept};
use crate::direct;
use crate::exclude::is_left_out;
use crate::failure::{Failure, Reason, Result};
use crate::interrupt;
use crate::output::Out;
use crate::progress::Progress;
use crate::size::human;
use crate::text::printable;

/// Bytes written at once.
const PIECE: usize = 1 << 20;

/// Extracts an archive into `top`.
pub(super) fn run<S: Side>(args: &TarArgs, side: &S, top: &[u8]) -> Result<u8> {
    let mut wanted = Wanted::new(args)?;
    let dir = side.directory(top);
    let dir = dir.map_err(|reason| Failure::usage(side.label(top), reason))?;
    let is_root = geteuid().is_root();
    let mut extractor = Extractor {
        args,
        side,
        reader: Reader::new(stream::open(args)?),
        stack: vec![Frame { name: Vec::new(), dir, pending: None }],
        accounts: Accounts::of_this_machine(),
        keeps_owner: is_root && !args.no_same_owner,
        mask: match is_root || args.preserve_permissions {
            true => 0o7777,
            false => 0o777 & !direct::umask(),
        },
        umask: direct::umask(),
        progress: Progress::counting(),
        shown: (args.verbose > 0).then(|| (Lines::new(args, args.verbose > 1), Out::new())),
        buffer: vec![0; PIECE],
        name: Vec::new(),
        warned: false,
        files: 0,
        bytes: 0,
    };
    let read = extractor.all(&mut wanted)?;
    extractor.leave_to(0).or_else(|reason| extractor.fail(reason))?;
    if let Some((_, out)) = &mut extractor.shown {
        out.flush()?;
    }
    list::end(args, read, wanted, &mut extractor.progress)
}

/// An open directory on the way to the last member.
struct Frame<D> {
    name: Vec<u8>,
    dir: D,
    /// Attributes that it gets when it is left.
    pending: Option<(Meta, Vec<Attribute>)>,
}

/// Failure to extract a member: of the file, which is reported, or of the archive, which ends it.
enum Fault {
    File(Reason),
    Archive(shoal_tar::Error),
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Fault {
        Fault::File(reason)
    }
}

impl From<shoal_tar::Error> for Fault {
    fn from(error: shoal_tar::Error) -> Fault {
        Fault::Archive(error)
    }
}

struct Extractor<'a, S: Side> {
    args: &'a TarArgs,
    side: &'a S,
    reader: Reader<Box<dyn std::io::Read>>,
    stack: Vec<Frame<S::Dir>>,
    accounts: Accounts,
    /// Files belong to whom the archive says.
    keeps_owner: bool,
    /// Bits of the modes that are used.
    mask: u32,
    umask: u32,
    progress: Progress,
    shown: Option<(Lines, Out)>,
    buffer: Vec<u8>,
    /// Name of the member at hand.
    name: Vec<u8>,
    /// It has been said that attributes are refused.
    warned: bool,
    files: u64,
    bytes: u64,
}

impl<S: Side> Extractor<'_, S> {
    /// Extracts all members that are wanted; returns how the archive ended.
    fn all(&mut self, wanted: &mut Wanted) -> Result<shoal_tar::Result<()>> {
        loop {
            let done =
                || format!("{}, {} extracted", counted(self.files, "file"), human(self.bytes));
            interrupt::check(done)?;
            let member = match self.reader.next_member() {
                Ok(Some(member)) => member,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            };
            if !wanted.takes(&member.name) || is_left_out(&self.args.exclude, &member.name) {
                continue;
            }
            self.name.clone_from(&member.name);
            match self.member(&member) {
                Ok(()) => {}
                Err(Fault::File(reason)) => self.fail(reason)?,
                Err(Fault::Archive(error)) => return Ok(Err(error)),
            }
            self.files += 1;
            self.progress.count(self.files, self.bytes, &member.name);
        }
    }

    fn member(&mut self, member: &Member) -> Result<(), Fault> {
        let text = |what: &str| Fault::File(Reason::Text(what.into()));
        if let Kind::Other(what) = member.kind {
            return Err(text(&format!("is {what}; not extracted")));
        }
        if member.link.contains(&0) {
            return Err(text("its target has a NUL byte; not extracted"));
        }
        let parts = components(&member.name).map_err(text)?;
        let skipped = self.args.strip_components;
        if skipped > 0 && parts.len() <= skipped {
            return Ok(());
        }
        let parts = &parts[skipped..];
        self.show(member);
        let attributes = self.attributes(member)?;
        let meta = self.meta(member)?;
        if member.kind == Kind::Directory {
            return Ok(self.directory(parts, meta, attributes)?);
        }
        let Some((name, above)) = parts.split_last() else {
            return Err(text("is no directory and has the name of the top; not extracted"));
        };
        self.enter(above)?;
        match member.kind {
            Kind::HardLink => Ok(self.hard_link(member, name)?),
            Kind::File => self.file(member, name, &meta, &attributes),
            _ => Ok(self.other(member, name, &meta, &attributes)?),
        }
    }

    /// Opens a directory, and makes those that are missing; leaves those that it is not in.
    fn enter(&mut self, path: &[&[u8]]) -> Result<(), Reason> {
        let open = self.stack.iter().skip(1).zip(path);
        let same = open.take_while(|(frame, part)| frame.name == **part).count();
        self.leave_to(same + 1)?;
        for part in &path[same..] {
            let above = self.here();
            let (dir, is_new) = match self.side.enter(above, part, false) {
                Ok(dir) => (dir, false),
                Err(reason) if reason.is(Code::NotFound) => {
                    (self.side.make_dir(above, part)?, true)
                }
                Err(reason) => return Err(not_followed(part, reason)),
            };
            // One that is in no archive gets what mkdir(1) gives it.
            let mode = 0o777 & !self.umask;
            let implied = || (self.meta_of(FileKind::Directory, mode, clock::now()), Vec::new());
            let pending = is_new.then(implied);
            self.stack.push(Frame { name: part.to_vec(), dir, pending });
        }
        Ok(())
    }

    fn here(&self) -> &S::Dir {
        // The top is always there.
        &self.stack[self.stack.len() - 1].dir
    }

    /// Leaves directories until `len` are open, and gives them their attributes.
    fn leave_to(&mut self, len: usize) -> Result<(), Reason> {
        while self.stack.len() > len {
            let Some(frame) = self.stack.pop() else { break };
            match self.finish_dir(&frame) {
                Err(reason) if reason.stops_everything() => return Err(reason),
                Err(reason) => self.progress.failure(printable(&frame.name), reason),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn finish_dir(&mut self, frame: &Frame<S::Dir>) -> Result<(), Reason> {
        let Some((meta, attributes)) = &frame.pending else { return Ok(()) };
        let side = self.side;
        self.keep(meta, attributes, |kept| side.finish_dir(&frame.dir, kept))
    }

    fn directory(
        &mut self,
        path: &[&[u8]],
        meta: Meta,
        attributes: Vec<Attribute>,
    ) -> Result<(), Reason> {
        if let Some((name, above)) = path.split_last() {
            self.enter(above)?;
            let found = self.side.find(self.here(), name, false)?;
            match found {
                Some(found) if found.kind == FileKind::Directory => {}
                Some(found) if self.args.keep_old_files || found.kind == FileKind::Symlink => {
                    return Err(Reason::Text("exists and is no directory; kept".into()));
                }
                Some(_) => self.side.remove(self.here(), name)?,
                None => {}
            }
            self.enter(path)?;
            if found.is_some() && self.args.keep_old_files {
                return Ok(());
            }
        } else {
            self.leave_to(1)?;
        }
        let last = self.stack.len() - 1;
        self.stack[last].pending = Some((meta, attributes));
        Ok(())
    }

    /// Removes what has the name of a file that is to be made. Returns whether something has it
    /// that is replaced by the file itself.
    fn make_room(&self, name: &[u8], keep_files: bool) -> Result<bool, Reason> {
        let Some(found) = self.side.find(self.here(), name, false)? else { return Ok(false) };
        if self.args.keep_old_files {
            return Err(Reason::Text("exists; kept".into()));
        }
        match found.kind {
            FileKind::Directory => self.side.remove_dir(self.here(), name)?,
            _ if keep_files => return Ok(true),
            _ => self.side.remove(self.here(), name)?,
        }
        Ok(false)
    }

    fn file(
        &mut self,
        member: &Member,
        name: &[u8],
        meta: &Meta,
        attributes: &[Attribute],
    ) -> Result<(), Fault> {
        let replaces = self.make_room(name, true)?;
        let draft = self.side.draft(self.here(), name)?;
        let whole = self.contents(member, &draft).and_then(|()| {
            let side = self.side;
            self.keep(meta, attributes, |kept| side.finish_file(&draft.file, kept))?;
            Ok(self.side.publish(&draft, self.here(), name, replaces)?)
        });
        self.side.close(draft, self.here(), whole.is_ok());
        whole
    }

    fn contents(&mut self, member: &Member, draft: &Draft<S::File>) -> Result<(), Fault> {
        let whole = [Extent { offset: 0, len: member.size }];
        let extents = member.sparse.as_deref().unwrap_or(&whole);
        let mut end = 0;
        for Extent { offset, len } in extents {
            let (mut at, until) = (*offset, offset + len);
            while at < until {
                if let Some(status) = interrupt::pending() {
                    return Err(Reason::Interrupted(status).into());
                }
                let wanted = usize::try_from(until - at).unwrap_or(PIECE).min(PIECE);
                let read = self.reader.read(&mut self.buffer[..wanted])?;
                if read == 0 {
                    // The reader has checked the map; it never ends before.
                    return Err(Reason::Text("has fewer bytes than its map says".into()).into());
                }
                self.side.write_all(&draft.file, at, &self.buffer[..read])?;
                at += read as u64;
                self.bytes += read as u64;
                self.progress.count(self.files, self.bytes, &self.name);
            }
            end = until;
        }
        if member.sparse.is_some() && end <= member.size {
            self.side.set_len(&draft.file, member.size)?;
        }
        Ok(())
    }

    /// Makes one more name of a file that is there, usually from the same archive.
    fn hard_link(&mut self, member: &Member, name: &[u8]) -> Result<(), Reason> {
        let text = |what: &str| Reason::Text(format!("target of the hard link: {what}"));
        let parts = components(&member.link).map_err(text)?;
        let parts = parts.get(self.args.strip_components..).unwrap_or_default();
        let Some((old, above)) = parts.split_last() else { return Err(text("has no name")) };
        // From the top, so that the directories of the member stay open.
        let mut dir = None;
        for part in above {
            let at = dir.as_ref().unwrap_or(&self.stack[0].dir);
            let entered = self.side.enter(at, part, false);
            dir = Some(entered.map_err(|reason| not_followed(part, reason))?);
        }
        let from = dir.as_ref().unwrap_or(&self.stack[0].dir);
        let target = self.side.find(from, old, false)?;
        let Some(target) = target else { return Err(text("is not there")) };
        let found = self.side.find(self.here(), name, false)?;
        if found.is_some_and(|found| found.id == target.id) {
            return Ok(());
        }
        if target.kind == FileKind::Directory {
            return Err(text("is a directory"));
        }
        self.make_room(name, false)?;
        self.side.link_name((from, old), self.here(), name)
    }

    /// Makes a symlink, device or pipe.
    fn other(
        &mut self,
        member: &Member,
        name: &[u8],
        meta: &Meta,
        attributes: &[Attribute],
    ) -> Result<(), Reason> {
        self.make_room(name, false)?;
        let side = self.side;
        let mut kept = Kept { meta, attributes, exact: false, refused: Vec::new() };
        let made = match member.kind {
            Kind::Symlink => side.symlink(self.here(), name, &member.link, &mut kept),
            _ => side.special(self.here(), name, &mut kept),
        };
        let refused = kept.refused;
        made?;
        self.note(refused);
        Ok(())
    }

    /// Gives a file what is to be kept; attributes that are refused are left out.
    fn keep(
        &mut self,
        meta: &Meta,
        attributes: &[Attribute],
        finish: impl FnOnce(&mut Kept<'_>) -> Outcome<()>,
    ) -> Result<(), Reason> {
        let mut kept = Kept { meta, attributes, exact: false, refused: Vec::new() };
        finish(&mut kept)?;
        let refused = kept.refused;
        self.note(refused);
        Ok(())
    }

    fn note(&mut self, refused: Vec<(Vec<u8>, Reason)>) {
        if let Some((name, reason)) = refused.into_iter().next()
            && !std::mem::replace(&mut self.warned, true)
        {
            self.progress.note(&format!(
                "{}: attribute {} is not kept: {reason} (nor are others that are refused; the rest \
                 is extracted)",
                printable(&self.name),
                printable(&name)
            ));
        }
    }

    /// Attributes that the file of a member gets.
    fn meta(&self, member: &Member) -> Result<Meta, Reason> {
        let kind = match member.kind {
            Kind::Symlink => FileKind::Symlink,
            Kind::CharDevice => FileKind::CharDevice,
            Kind::BlockDevice => FileKind::BlockDevice,
            Kind::Directory => FileKind::Directory,
            Kind::Fifo => FileKind::Fifo,
            _ => FileKind::Regular,
        };
        let (sec, nsec) = member.mtime;
        let mut meta = self.meta_of(kind, member.mode & self.mask, Time { sec, nsec });
        let (major, minor) = member.device;
        let device = u32::try_from(makedev(major, minor));
        meta.device = device.map_err(|_| Reason::Text("its device number is too large".into()))?;
        if self.keeps_owner {
            let named = |id: Option<u32>, number| match self.args.numeric_owner {
                true => number,
                false => id.unwrap_or(number),
            };
            let name = |name: &[u8]| std::str::from_utf8(name).unwrap_or_default().to_owned();
            meta.uid = named(self.accounts.uid(&name(&member.user)), member.uid);
            meta.gid = named(self.accounts.gid(&name(&member.group)), member.gid);
        }
        Ok(meta)
    }

    /// Attributes of a file of the user.
    fn meta_of(&self, kind: FileKind, mode: u32, mtime: Time) -> Meta {
        Meta {
            kind,
            mode,
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            device: 0,
            size: 0,
            dense: true,
            nlink: 1,
            atime: clock::now(),
            mtime,
            ctime: mtime,
            id: Id { filesystem: 0, inode: 0 },
        }
    }

    /// Attributes of a member that are wanted.
    fn attributes(&self, member: &Member) -> Result<Vec<Attribute>, Reason> {
        let mut attributes = Vec::new();
        if self.args.xattrs {
            let kept = member.xattrs.iter().filter(|(name, _)| is_kept(name));
            let kept = kept.filter(|(name, _)| !ACLS.contains(&name.as_slice()));
            let attribute = |(name, value): &(Vec<u8>, Vec<u8>)| Attribute {
                name: name.clone(),
                value: value.clone(),
            };
            attributes.extend(kept.map(attribute));
        }
        if self.args.acls {
            for (name, text) in ACLS.into_iter().zip([&member.acl, &member.default_acl]) {
                let Some(text) = text else { continue };
                let value = acl::from_text(text, &self.accounts);
                let value = value.ok_or_else(|| {
                    Reason::Text("has an access control list that is none; not extracted".into())
                })?;
                attributes.push(Attribute { name: name.to_vec(), value });
            }
        }
        Ok(attributes)
    }

    /// Prints a member, if asked for.
    fn show(&mut self, member: &Member) {
        let Some((lines, out)) = &mut self.shown else { return };
        let line = lines.line(member);
        // A reader who has gone away does not stop the work.
        if self.progress.aside(|| out.text(&line)).is_err() {
            self.shown = None;
        }
    }

    /// Reports a failure of the member at hand; an error if it is of no use to go on.
    fn fail(&mut self, reason: Reason) -> Result<()> {
        let object = printable(&self.name).into_owned();
        if let Reason::Interrupted(status) = reason {
            self.progress.finish();
            let done = format!("{}, {} extracted", counted(self.files, "file"), human(self.bytes));
            return Err(interrupt::stopped(status, done));
        }
        if reason.stops_everything() {
            self.progress.finish();
            let reason = format!("{reason} (not everything is extracted)");
            return Err(Failure::failed(object, reason));
        }
        self.progress.failure(object, reason);
        Ok(())
    }
}

/// Says that a symlink in place of a directory is not followed, if it is that.
fn not_followed(part: &[u8], reason: Reason) -> Reason {
    let is_other = [Code::NotDirectory, Code::Loop].into_iter().any(|code| reason.is(code));
    match is_other {
        true => Reason::Text(format!(
            "'{}' on its way is no directory (symlinks are not followed); not extracted",
            printable(part)
        )),
        false => reason,
    }
}
