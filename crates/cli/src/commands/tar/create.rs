//! `shoal tar -c`.
//!
//! A tree is walked as `shoal cp` does it: a stack of open directories, listed in batches with the
//! attributes of all entries. Small files of a batch are read ahead by several threads; members are
//! written in the order of the listing, whoever has read them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::vec::IntoIter;

use rustix::fs::{major, minor};
use shoal::raw::FileKind;
use shoal_tar::{EXTENSION_MAX, Extent, Kind, Member, Writer};

use super::feed::Changed;
use super::list::Lines;
use super::names::{Listed, inside};
use super::stream::{self, Output};
use crate::accounts::Accounts;
use crate::acl;
use crate::args::TarArgs;
use crate::commands::cp::side::{ACLS, Found, Holder, Id, Meta, Node, Outcome, Side};
use crate::exclude::is_excluded;
use crate::failure::{Failure, Reason, Result};
use crate::location::{join, push};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::Session;
use crate::text::printable;

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Stretches of a sparse file beyond which its holes are stored as zeros.
const EXTENTS_MAX: usize = 64 << 10;

/// Makes an archive of what is in `top`.
pub(super) fn run<S: Side>(
    args: &TarArgs,
    side: &S,
    top: &[u8],
    session: Option<&Session>,
    shunned: Vec<Id>,
) -> Result<u8> {
    let feed = Changed::open(args, session, top)?;
    let list = Listed::open(args)?;
    if feed.is_none() && list.is_none() && args.members.is_empty() {
        let what = "nothing to archive: name MEMBERS, or . for everything";
        return Err(Failure::usage(side.label(top), what));
    }
    side.directory(top).map_err(|reason| Failure::usage(side.label(top), reason))?;
    let (output, itself) = Output::create(args, session.map(|session| &*session.path))?;
    let mut archiver = Archiver {
        args,
        side,
        top,
        writer: Writer::new(output),
        itself,
        shunned,
        accounts: Accounts::of_this_machine(),
        links: HashMap::new(),
        progress: Progress::counting(),
        shown: Shown::new(args),
        buffer: vec![0; PIECE],
        path: Vec::new(),
        name: Vec::new(),
        has_cut: false,
        files: 0,
        bytes: 0,
    };
    for member in &args.members {
        archiver.operand(member.as_bytes(), !args.no_recursion)?;
    }
    if let Some(mut list) = list {
        while let Some(name) = list.next()? {
            archiver.operand(&name, !args.no_recursion)?;
        }
    }
    let mark = match &feed {
        Some(feed) => Some(feed.each(|path, whole| archiver.operand(path, whole))?),
        None => None,
    };
    let status = archiver.finish()?;
    if let (Some(feed), Some(mark), crate::failure::OK) = (&feed, &mark, status) {
        feed.done(mark)?;
    }
    Ok(status)
}

/// Destination of the lines of `-v`.
enum Shown {
    Nothing,
    Stdout(Lines, Out),
    Stderr(Lines),
}

impl Shown {
    fn new(args: &TarArgs) -> Shown {
        let lines = Lines::new(args, args.verbose > 1);
        match args.verbose {
            0 => Shown::Nothing,
            _ if stream::is_standard(args) => Shown::Stderr(lines),
            _ => Shown::Stdout(lines, Out::new()),
        }
    }
}

/// A directory whose entries are being archived.
struct Frame<S: Side> {
    dir: S::Dir,
    list: S::List,
    pending: IntoIter<(Found, Option<Vec<u8>>)>,
    path_len: usize,
    name_len: usize,
}

struct Archiver<'a, S: Side> {
    args: &'a TarArgs,
    side: &'a S,
    top: &'a [u8],
    writer: Writer<Output>,
    /// The archive.
    itself: Vec<Id>,
    /// Files that hold volumes.
    shunned: Vec<Id>,
    accounts: Accounts,
    /// Members that may get more names: their names, and how many more there are.
    links: HashMap<Id, (Vec<u8>, u32)>,
    progress: Progress,
    shown: Shown,
    buffer: Vec<u8>,
    /// Path of the file at hand, for messages.
    path: Vec<u8>,
    /// Its name in the archive.
    name: Vec<u8>,
    /// It has been said that beginnings of names are removed.
    has_cut: bool,
    files: u64,
    bytes: u64,
}

impl<S: Side> Archiver<'_, S> {
    /// Archives one operand, with everything below it if `is_recursive`.
    fn operand(&mut self, name: &[u8], is_recursive: bool) -> Result<()> {
        self.path = if name.starts_with(b"/") { name.to_vec() } else { join(self.top, name) };
        let trimmed = name.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let (kept, cut) = inside(&name[..trimmed]);
        self.name = if kept.is_empty() { b".".to_vec() } else { kept.to_vec() };
        if !cut.is_empty() && !self.has_cut {
            self.has_cut = true;
            let cut = printable(cut);
            self.progress.note(&format!("removing '{cut}' from the beginning of names"));
        }
        let found = self.side.operand(&self.path).and_then(|operand| {
            let meta = self.side.stat(&operand.dir, &operand.name, false)?;
            Ok((operand.dir, Node { name: operand.name, meta, followed: false }))
        });
        let (dir, node) = match found {
            Ok(found) => found,
            Err(reason) => return self.fail(reason),
        };
        match self.entry(&dir, &node, None)? {
            Some(frame) if is_recursive => self.tree(frame),
            _ => Ok(()),
        }
    }

    /// Archives everything below the first directory.
    fn tree(&mut self, first: Frame<S>) -> Result<()> {
        let mut stack = vec![first];
        while let Some(frame) = stack.last_mut() {
            self.path.truncate(frame.path_len);
            self.name.truncate(frame.name_len);
            let Some((found, ahead)) = frame.pending.next() else {
                match self.side.next(&frame.dir, &mut frame.list) {
                    Ok(batch) if !batch.is_empty() => {
                        let ahead = self.side.read_ahead(&frame.dir, &batch);
                        let pairs: Vec<_> = batch.into_iter().zip(ahead).collect();
                        frame.pending = pairs.into_iter();
                        continue;
                    }
                    Ok(_) => {}
                    Err(reason) => self.fail(reason)?,
                }
                stack.pop();
                continue;
            };
            push(&mut self.path, &found.name);
            push(&mut self.name, &found.name);
            match found.meta {
                Ok(meta) => {
                    let node = Node { name: found.name, meta, followed: false };
                    if let Some(below) = self.entry(&frame.dir, &node, ahead)? {
                        stack.push(below);
                    }
                }
                Err(reason) => self.fail(reason)?,
            }
        }
        Ok(())
    }

    /// Archives one file, and opens it if it is a directory.
    fn entry(
        &mut self,
        dir: &S::Dir,
        node: &Node,
        ahead: Option<Vec<u8>>,
    ) -> Result<Option<Frame<S>>> {
        if crate::interrupt::pending().is_some() {
            return Err(stream::failed(self.args, io::Error::other("interrupted")));
        }
        let meta = &node.meta;
        if is_excluded(&self.args.exclude, &self.name) || self.is_older(meta) {
            return Ok(None);
        }
        if self.itself.contains(&meta.id) {
            self.progress.note(&format!("{}: is the archive; left out", self.label()));
            return Ok(None);
        }
        if self.shunned.contains(&meta.id) {
            self.fail(Reason::Text("holds the volume itself; left out".into()))?;
            return Ok(None);
        }
        if meta.kind == FileKind::Socket {
            self.progress.note(&format!("{}: is a socket; left out", self.label()));
            return Ok(None);
        }
        let opened = match meta.kind {
            FileKind::Directory => Some(self.open(dir, node)),
            _ => None,
        };
        if meta.kind == FileKind::Directory || !self.linked(meta)? {
            let holder = match &opened {
                Some(Ok(frame)) => Holder::Dir(&frame.dir),
                _ => Holder::Name(dir, node),
            };
            match self.member(dir, node, holder) {
                Ok(member) => self.store(dir, node, member, ahead)?,
                Err(reason) => self.fail(reason)?,
            }
        }
        self.files += 1;
        self.progress.count(self.files, self.bytes, &self.path);
        match opened {
            Some(Ok(frame)) => Ok(Some(frame)),
            Some(Err(reason)) => self.fail(reason).map(|()| None),
            None => Ok(None),
        }
    }

    /// Returns whether a file has not changed since the time of `-N`.
    fn is_older(&self, meta: &Meta) -> bool {
        let is_older = |newer| meta.mtime < newer && meta.ctime < newer;
        meta.kind != FileKind::Directory && self.args.newer.is_some_and(is_older)
    }

    fn open(&self, dir: &S::Dir, node: &Node) -> Outcome<Frame<S>> {
        let dir = self.side.enter_node(dir, node)?;
        let list = self.side.list(&dir)?;
        let pending = Vec::new().into_iter();
        let (path_len, name_len) = (self.path.len(), self.name.len());
        Ok(Frame { dir, list, pending, path_len, name_len })
    }

    /// Stores one more name of a member before; returns whether it is one.
    fn linked(&mut self, meta: &Meta) -> Result<bool> {
        if meta.nlink < 2 {
            return Ok(false);
        }
        let Some((first, left)) = self.links.get_mut(&meta.id) else { return Ok(false) };
        let first = first.clone();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.links.remove(&meta.id);
        }
        let member = Member { link: first, ..self.describe(Kind::HardLink, meta) };
        self.begin(&member).map(|()| true)
    }

    /// Stores a member with its contents.
    fn store(
        &mut self,
        dir: &S::Dir,
        node: &Node,
        mut member: Member,
        ahead: Option<Vec<u8>>,
    ) -> Result<()> {
        let meta = &node.meta;
        match (meta.kind, ahead) {
            (FileKind::Regular, Some(contents)) => {
                self.begin(&member)?;
                self.bytes += contents.len() as u64;
                self.writer.data(&contents).map_err(|error| self.output(error))?;
            }
            (FileKind::Regular, None) if meta.size > 0 => {
                // Opened first: what cannot be read is not in the archive.
                let opened = self.side.open(dir, node).and_then(|file| {
                    let extents = self.extents(&file, meta)?;
                    Ok((file, extents))
                });
                let (file, extents) = match opened {
                    Ok(opened) => opened,
                    Err(reason) => return self.fail(reason),
                };
                let whole = [Extent { offset: 0, len: meta.size }];
                member.sparse = (extents != whole).then(|| extents.clone());
                self.begin(&member)?;
                self.contents(&file, &extents)?;
            }
            _ => self.begin(&member)?,
        }
        if meta.nlink > 1 && meta.kind != FileKind::Directory {
            self.links.insert(meta.id, (member.name, meta.nlink - 1));
        }
        Ok(())
    }

    /// Returns the stretches of a file that are no holes, with an empty one at the end if that is a
    /// hole.
    fn extents(&self, file: &S::File, meta: &Meta) -> Outcome<Vec<Extent>> {
        let whole = vec![Extent { offset: 0, len: meta.size }];
        if meta.dense {
            return Ok(whole);
        }
        let (mut extents, mut at) = (Vec::new(), 0);
        while at < meta.size
            && let Some((start, end)) = self.side.data_after(file, at)?
        {
            let end = end.min(meta.size);
            if start >= end {
                break;
            }
            extents.push(Extent { offset: start, len: end - start });
            at = end;
        }
        if at < meta.size {
            extents.push(Extent { offset: meta.size, len: 0 });
        }
        Ok(if extents.len() > EXTENTS_MAX { whole } else { extents })
    }

    fn contents(&mut self, file: &S::File, extents: &[Extent]) -> Result<()> {
        for Extent { offset, len } in extents {
            let (mut at, end) = (*offset, offset + len);
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
                let read = match self.side.read(file, at, &mut self.buffer[..wanted]) {
                    Ok(0) => Err(Reason::Text("has become shorter while it was read".into())),
                    read => read,
                };
                let read = match read {
                    Ok(read) => read,
                    Err(reason) => {
                        let left = self.writer.left();
                        let what = format!("{reason} (its last {left} bytes in the archive are 0)");
                        return self.fail(Reason::Text(what));
                    }
                };
                let written = self.writer.data(&self.buffer[..read]);
                written.map_err(|error| self.output(error))?;
                at += read as u64;
                self.bytes += read as u64;
                self.progress.count(self.files, self.bytes, &self.path);
            }
        }
        Ok(())
    }

    /// Returns a member with the attributes that all have.
    fn describe(&self, kind: Kind, meta: &Meta) -> Member {
        let name = |name: Option<&str>| match self.args.numeric_owner {
            true => Vec::new(),
            false => name.unwrap_or_default().as_bytes().to_vec(),
        };
        Member {
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            user: name(self.accounts.user(meta.uid)),
            group: name(self.accounts.group(meta.gid)),
            mtime: (meta.mtime.sec, meta.mtime.nsec),
            ..Member::new(self.name.clone(), kind)
        }
    }

    /// Returns the member of a file.
    fn member(
        &mut self,
        dir: &S::Dir,
        node: &Node,
        holder: Holder<'_, S::File, S::Dir>,
    ) -> Outcome<Member> {
        let meta = &node.meta;
        let kind = match meta.kind {
            FileKind::Regular | FileKind::Socket => Kind::File,
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Symlink,
            FileKind::CharDevice => Kind::CharDevice,
            FileKind::BlockDevice => Kind::BlockDevice,
            FileKind::Fifo => Kind::Fifo,
        };
        let mut member = self.describe(kind, meta);
        match kind {
            Kind::File => member.size = meta.size,
            Kind::Directory => member.name.push(b'/'),
            Kind::Symlink => member.link = self.side.readlink(dir, node)?,
            Kind::CharDevice | Kind::BlockDevice => {
                member.device = (major(meta.device.into()), minor(meta.device.into()));
            }
            _ => {}
        }
        if self.args.xattrs || self.args.acls {
            self.attributes(&mut member, holder)?;
        }
        Ok(member)
    }

    /// Adds extended attributes and access control lists, as far as they are wanted and fit.
    fn attributes(
        &mut self,
        member: &mut Member,
        holder: Holder<'_, S::File, S::Dir>,
    ) -> Outcome<()> {
        let mut bytes = 0;
        for it in self.side.attributes(holder)? {
            let is_acl = ACLS.contains(&it.name.as_slice());
            let is_wanted = if is_acl { self.args.acls } else { self.args.xattrs };
            bytes += if is_wanted { 3 * it.name.len() + it.value.len() + 64 } else { 0 };
            if bytes > EXTENSION_MAX / 2 {
                let what = "has more than 2 MiB of attributes; the rest of them is left out";
                self.progress.failure(self.label(), what);
                break;
            }
            match is_acl {
                _ if !is_wanted => {}
                false => member.xattrs.push((it.name, it.value)),
                true if it.name == ACLS[0] => member.acl = acl::to_text(&it.value),
                true => member.default_acl = acl::to_text(&it.value),
            }
        }
        Ok(())
    }

    /// Writes the header of a member, and its line.
    fn begin(&mut self, member: &Member) -> Result<()> {
        self.writer.member(member).map_err(|error| self.output(error))?;
        match &mut self.shown {
            Shown::Nothing => Ok(()),
            Shown::Stdout(lines, out) => {
                let line = lines.line(member);
                self.progress.aside(|| out.text(&line))
            }
            Shown::Stderr(lines) => {
                let line = lines.line(member);
                // Nobody else is told if it cannot be written.
                self.progress.aside(|| io::stderr().write_all(&line).or(Ok(())))
            }
        }
    }

    fn label(&self) -> String {
        self.side.label(&self.path)
    }

    /// Failure to write the archive.
    fn output(&self, error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe if stream::is_standard(self.args) => Failure::BrokenPipe,
            _ => stream::failed(self.args, error),
        }
    }

    /// Reports a failure of the file at hand; an error if it is of no use to go on.
    fn fail(&mut self, reason: Reason) -> Result<()> {
        if let Reason::Volume(shoal::raw::Error::Poisoned(_)) = reason {
            self.progress.finish();
            return Err(Failure::failed(self.label(), reason));
        }
        self.progress.failure(self.label(), reason);
        Ok(())
    }

    /// Ends the archive: the exit status.
    fn finish(self) -> Result<u8> {
        let Archiver { args, writer, mut shown, progress, .. } = self;
        let finished = writer.finish().and_then(Output::finish);
        let archive = finished.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe if stream::is_standard(args) => Failure::BrokenPipe,
            _ => stream::failed(args, error),
        })?;
        archive.finish()?;
        if let Shown::Stdout(_, out) = &mut shown {
            out.flush()?;
        }
        Ok(progress.finish())
    }
}
