//! The copier: what is kept, what is overwritten, what is refused.
//!
//! The walk keeps a stack of open directories instead of recursing. A failure concerns one file
//! and is reported; only a full destination or a volume that has become read-only ends it all.

use std::collections::HashMap;
use std::vec::IntoIter;

use shoal::raw::text::counted;
use shoal::raw::{Code, FileKind};

use super::options::Options;
use super::side::{Found, Holder, Id, Kept, Meta, Node, Operand, Outcome, Side};
use crate::failure::{Failure, Reason, Result};
use crate::interrupt;
use crate::location::{join, push, split_last};
use crate::output::Out;
use crate::progress::Progress;
use crate::size::human;
use crate::text::printable;

/// Bytes read and written at once.
const PIECE: usize = 1 << 20;

/// Destination of the copies.
pub(super) struct Destination<D> {
    place: Operand<D>,
    path: Vec<u8>,
    /// An open directory that the copies are made in, under their own names.
    into: Option<D>,
    /// It was written with a slash at the end, so it can only be a directory.
    slash: bool,
}

impl<D> Destination<D> {
    /// Looks at what the destination is.
    pub(super) fn find<T: Side<Dir = D>>(
        target: &T,
        path: &[u8],
        may_be_directory: bool,
    ) -> Outcome<Destination<D>> {
        let place = target.place(path)?;
        let found = target.find(&place.dir, &place.name, true)?;
        let is_directory = found.is_some_and(|found| found.kind == FileKind::Directory);
        let into = if is_directory && may_be_directory {
            Some(target.enter(&place.dir, &place.name, true)?)
        } else {
            None
        };
        Ok(Destination { place, path: path.to_vec(), into, slash: split_last(path).slash })
    }

    /// Returns whether copies are made in it.
    pub(super) fn is_directory(&self) -> bool {
        self.into.is_some()
    }
}

/// A failure with the object it concerns.
pub(super) struct Fault {
    object: String,
    pub(super) reason: Reason,
    /// It concerns the original, not the copy.
    pub(super) is_source: bool,
}

/// Remembered for hard links: where the file went, and how many names are still to come.
struct Linked<L> {
    link: L,
    id: Id,
    remaining: u32,
}

/// A directory that is being copied.
struct Frame<S: Side, T: Side> {
    from: S::Dir,
    list: S::List,
    pending: IntoIter<Found>,
    to: T::Dir,
    meta: Meta,
    from_len: usize,
    to_len: usize,
}

/// Copies trees to one target.
pub(super) struct Copier<'a, T: Side> {
    pub(super) target: &'a T,
    pub(super) options: Options,
    pub(super) shunned: Vec<Id>,
    links: HashMap<Id, Linked<T::Link>>,
    pub(super) progress: Progress,
    /// It has been said that attributes are refused.
    warned: bool,
    out: Option<Out>,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) buffer: Vec<u8>,
    /// Paths of the file at hand, for messages.
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

impl<'a, T: Side> Copier<'a, T> {
    /// A copier that touches none of the files `shunned`.
    pub(super) fn new(target: &'a T, options: Options, shunned: Vec<Id>) -> Copier<'a, T> {
        Copier {
            target,
            options,
            shunned,
            links: HashMap::new(),
            progress: Progress::counting(),
            warned: false,
            out: options.verbose.then(Out::new),
            files: 0,
            bytes: 0,
            buffer: vec![0; PIECE],
            from: Vec::new(),
            to: Vec::new(),
        }
    }

    /// Ends the copy: the exit status.
    pub(super) fn finish(mut self) -> Result<u8> {
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        Ok(self.progress.finish())
    }

    /// Copies one operand with everything below it.
    pub(super) fn operand<S: Side>(
        &mut self,
        source: &S,
        path: &[u8],
        destination: &Destination<T::Dir>,
    ) -> Result<()> {
        interrupt::check(|| self.done())?;
        self.from = path.to_vec();
        let started = self.start(source, path, destination);
        match started {
            Ok(None) => Ok(()),
            Ok(Some(frame)) => self.tree(source, frame),
            Err(fault) => self.settle(fault),
        }
    }

    fn start<S: Side>(
        &mut self,
        source: &S,
        path: &[u8],
        destination: &Destination<T::Dir>,
    ) -> Result<Option<Frame<S, T>>, Fault> {
        let operand = source.operand(path).map_err(|reason| self.at_source(source, reason))?;
        let follow = !self.options.recursive;
        let meta = source
            .stat(&operand.dir, &operand.name, follow)
            .map_err(|reason| self.at_source(source, reason))?;
        let node = Node { name: operand.name, meta, followed: follow };
        let (dir, name) = match &destination.into {
            Some(dir) if operand.base.is_empty() => (dir, b".".to_vec()),
            Some(dir) => (dir, operand.base),
            None => (&destination.place.dir, destination.place.name.clone()),
        };
        self.to = match &destination.into {
            Some(_) if name != b"." => join(&destination.path, &name),
            _ => destination.path.clone(),
        };
        if destination.slash && destination.into.is_none() && meta.kind != FileKind::Directory {
            return Err(self.at_target(shoal::raw::Error::Code(Code::NotDirectory).into()));
        }
        if meta.kind == FileKind::Directory {
            let inside =
                self.target.is_inside(dir, meta.id).map_err(|reason| self.at_target(reason))?;
            if inside && self.options.recursive {
                let reason = format!("cannot be copied into itself, {}", self.target_label());
                return Err(self.at_source(source, Reason::Text(reason)));
            }
        }
        self.entry(source, &operand.dir, &node, dir, &name, true)
    }

    /// Copies everything below the first directory.
    fn tree<S: Side>(&mut self, source: &S, first: Frame<S, T>) -> Result<()> {
        let mut stack = vec![first];
        while let Some(frame) = stack.last_mut() {
            interrupt::check(|| self.done())?;
            self.from.truncate(frame.from_len);
            self.to.truncate(frame.to_len);
            let Some(found) = frame.pending.next() else {
                match source.next(&frame.from, &mut frame.list) {
                    Ok(batch) if !batch.is_empty() => {
                        frame.pending = batch.into_iter();
                        continue;
                    }
                    Ok(_) => {}
                    Err(reason) => self.settle(self.at_source(source, reason))?,
                }
                let target = self.target;
                let kept = self.keep(source, Holder::Dir(&frame.from), &frame.meta, |kept| {
                    target.finish_dir(&frame.to, kept)
                });
                kept.or_else(|fault| self.settle(fault))?;
                stack.pop();
                continue;
            };
            push(&mut self.from, &found.name);
            push(&mut self.to, &found.name);
            let copied = match found.meta {
                Ok(meta) => {
                    let node = Node { name: found.name, meta, followed: false };
                    self.entry(source, &frame.from, &node, &frame.to, &node.name, false)
                }
                Err(reason) => Err(self.at_source(source, reason)),
            };
            match copied {
                Ok(Some(below)) => stack.push(below),
                Ok(None) => {}
                Err(fault) => self.settle(fault)?,
            }
        }
        Ok(())
    }

    /// Copies one file, or starts on a directory.
    fn entry<S: Side>(
        &mut self,
        source: &S,
        from: &S::Dir,
        node: &Node,
        to: &T::Dir,
        name: &[u8],
        is_operand: bool,
    ) -> Result<Option<Frame<S, T>>, Fault> {
        let meta = &node.meta;
        if self.shunned.contains(&meta.id) {
            let reason = Reason::Text("holds the volume itself; not copied".into());
            return Err(self.at_source(source, reason));
        }
        let found = self.existing(to, name, meta, is_operand)?;
        if found.is_some_and(|found| found.id == meta.id) {
            let reason = format!("is the same file as {}", self.target_label());
            return Err(self.at_source(source, Reason::Text(reason)));
        }
        if found.is_some_and(|found| self.shunned.contains(&found.id)) {
            return Err(self.at_target_text("holds the volume itself; not overwritten"));
        }
        if meta.kind != FileKind::Directory && self.options.existing.stays(meta, found.as_ref()) {
            return Ok(None);
        }
        self.show(source)?;
        if meta.kind == FileKind::Directory {
            return self.directory(source, from, node, to, name, found, is_operand).map(Some);
        }
        if found.is_some_and(|found| found.kind == FileKind::Directory) {
            return Err(self.at_target_text("is a directory; not overwritten by a file"));
        }
        self.file_or_link(source, from, node, to, name, found)?;
        self.files += 1;
        self.progress.count(self.files, self.bytes, &self.from);
        Ok(None)
    }

    /// Finds the file at the copy's destination. A symlink is followed only if it is the operand.
    fn existing(
        &self,
        to: &T::Dir,
        name: &[u8],
        meta: &Meta,
        is_operand: bool,
    ) -> Result<Option<Meta>, Fault> {
        let stat =
            |follow| self.target.find(to, name, follow).map_err(|reason| self.at_target(reason));
        let found = stat(false)?;
        let is_link = found.is_some_and(|found| found.kind == FileKind::Symlink);
        let through = matches!(meta.kind, FileKind::Regular | FileKind::Directory);
        if !(is_link && through && is_operand) {
            return Ok(found);
        }
        match stat(true)? {
            Some(found) => Ok(Some(found)),
            None => {
                Err(self.at_target_text("is a symlink that leads nowhere; not written through"))
            }
        }
    }

    fn directory<S: Side>(
        &mut self,
        source: &S,
        from: &S::Dir,
        node: &Node,
        to: &T::Dir,
        name: &[u8],
        found: Option<Meta>,
        follow: bool,
    ) -> Result<Frame<S, T>, Fault> {
        if !self.options.recursive {
            let reason = Reason::Text("is a directory (copy it with -r)".into());
            return Err(self.at_source(source, reason));
        }
        let from =
            source.enter_node(from, node).map_err(|reason| self.at_source(source, reason))?;
        let list = source.list(&from).map_err(|reason| self.at_source(source, reason))?;
        let to = match found.map(|found| found.kind) {
            None => self.target.make_dir(to, name),
            Some(FileKind::Directory) => self.target.enter(to, name, follow),
            Some(_) => Err(Reason::Text("is not a directory; not overwritten by one".into())),
        };
        let to = to.map_err(|reason| self.at_target(reason))?;
        self.files += 1;
        Ok(Frame {
            from,
            list,
            pending: Vec::new().into_iter(),
            to,
            meta: node.meta,
            from_len: self.from.len(),
            to_len: self.to.len(),
        })
    }

    /// Copies anything but a directory, or links it to a copy made before.
    fn file_or_link<S: Side>(
        &mut self,
        source: &S,
        from: &S::Dir,
        node: &Node,
        to: &T::Dir,
        name: &[u8],
        mut found: Option<Meta>,
    ) -> Result<(), Fault> {
        if self.link(node, to, name, &mut found)?.is_some() {
            return Ok(());
        }
        self.one(source, from, node, to, name, found)?;
        self.remember(node, to, name)
    }

    /// Links a file to a copy made before. Returns whether that was necessary; `None` if there is
    /// no such copy.
    pub(super) fn link(
        &mut self,
        node: &Node,
        to: &T::Dir,
        name: &[u8],
        found: &mut Option<Meta>,
    ) -> Result<Option<bool>, Fault> {
        let Some(linked) = self.links.get_mut(&node.meta.id) else { return Ok(None) };
        linked.remaining = linked.remaining.saturating_sub(1);
        if found.is_some_and(|found| found.id == linked.id) {
            return Ok(Some(false));
        }
        if found.take().is_some() {
            self.target.remove(to, name).map_err(|reason| self.at_target(reason))?;
        }
        let linked = &self.links[&node.meta.id];
        let made = self.target.link(&linked.link, to, name);
        if linked.remaining == 0 {
            self.links.remove(&node.meta.id);
        }
        match made {
            Ok(()) => Ok(Some(true)),
            // This filesystem cannot: then the file becomes one of its own.
            Err(reason) if cannot_link(&reason) => Ok(None),
            Err(reason) => Err(self.at_target(reason)),
        }
    }

    /// Remembers a copy, if the original has more names.
    pub(super) fn remember(&mut self, node: &Node, to: &T::Dir, name: &[u8]) -> Result<(), Fault> {
        let is_shared = node.meta.nlink > 1 && node.meta.kind != FileKind::Directory;
        if is_shared && !self.links.contains_key(&node.meta.id) {
            let made = self.target.remember(to, name);
            let (link, id) = made.map_err(|reason| self.at_target(reason))?;
            let remaining = node.meta.nlink - 1;
            self.links.insert(node.meta.id, Linked { link, id, remaining });
        }
        Ok(())
    }

    /// Makes one copy.
    pub(super) fn one<S: Side>(
        &mut self,
        source: &S,
        from: &S::Dir,
        node: &Node,
        to: &T::Dir,
        name: &[u8],
        found: Option<Meta>,
    ) -> Result<(), Fault> {
        if node.meta.kind == FileKind::Regular {
            return self.regular(source, from, node, to, name, found);
        }
        let link_to = match node.meta.kind {
            FileKind::Symlink => {
                let read = source.readlink(from, node);
                Some(read.map_err(|reason| self.at_source(source, reason))?)
            }
            _ => None,
        };
        if found.is_some() {
            self.target.remove(to, name).map_err(|reason| self.at_target(reason))?;
        }
        let target = self.target;
        self.keep(source, Holder::Name(from, node), &node.meta, |kept| match link_to {
            Some(link_to) => target.symlink(to, name, &link_to, kept),
            None => target.special(to, name, kept),
        })
    }

    /// Finishes a copy with what is to be kept of its original. Attributes that the target refuses
    /// are left out. Where the copy is to be the same, each is a failure; otherwise that is said
    /// once, for the first.
    pub(super) fn keep<S: Side>(
        &mut self,
        source: &S,
        of: Holder<'_, S::File, S::Dir>,
        meta: &Meta,
        finish: impl FnOnce(&mut Kept<'_>) -> Outcome<()>,
    ) -> Result<(), Fault> {
        let attributes = source.attributes(of).map_err(|reason| self.at_source(source, reason))?;
        let exact = self.options.mirror;
        let mut kept = Kept { meta, attributes: &attributes, exact, refused: Vec::new() };
        finish(&mut kept).map_err(|reason| self.at_target(reason))?;
        let label = self.target_label();
        for (name, reason) in kept.refused {
            if exact && Kept::is_missed(&name) {
                let what = format!("attribute {} is not kept: {reason}", printable(&name));
                self.progress.failure(&label, what);
                continue;
            }
            if std::mem::replace(&mut self.warned, true) {
                continue;
            }
            self.progress.note(&format!(
                "{label}: attribute {} is not kept: {reason} (nor are others that are refused; the \
                 rest is copied)",
                printable(&name)
            ));
        }
        Ok(())
    }

    /// Prints what is copied, if asked for.
    fn show<S: Side>(&mut self, source: &S) -> Result<(), Fault> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let line = format!("'{}' -> '{}'", source.label(&self.from), self.target.label(&self.to));
        // A reader who has gone away does not stop the copy.
        if out.line(&line).is_err() {
            self.out = None;
        }
        Ok(())
    }

    pub(super) fn at_source<S: Side>(&self, source: &S, reason: Reason) -> Fault {
        Fault { object: source.label(&self.from), reason, is_source: true }
    }

    pub(super) fn at_target(&self, reason: Reason) -> Fault {
        Fault { object: self.target_label(), reason, is_source: false }
    }

    pub(super) fn at_target_text(&self, reason: &str) -> Fault {
        self.at_target(Reason::Text(reason.into()))
    }

    fn target_label(&self) -> String {
        self.target.label(&self.to)
    }

    /// How far it came.
    pub(super) fn done(&self) -> String {
        format!("{}, {} copied", counted(self.files, "file"), human(self.bytes))
    }

    /// Reports a failure; an error in turn if it is of no use to go on.
    pub(super) fn settle(&mut self, fault: Fault) -> Result<()> {
        let Fault { object, reason, .. } = fault;
        if let Reason::Interrupted(status) = reason {
            self.progress.finish();
            return Err(interrupt::stopped(status, self.done()));
        }
        if reason.stops_everything() {
            self.progress.finish();
            return Err(Failure::failed(object, format!("{reason} (the copy is incomplete)")));
        }
        self.progress.failure(object, reason);
        Ok(())
    }
}

/// Returns whether a hard link failed for a property of the filesystem, not of the file.
fn cannot_link(reason: &Reason) -> bool {
    [Code::TooManyLinks, Code::CrossRoot, Code::NotPermitted, Code::NotSupported, Code::NameTooLong]
        .into_iter()
        .any(|code| reason.is(code))
}
