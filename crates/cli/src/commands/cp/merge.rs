//! A walk through a directory and its copy side by side, with a stack of open directories.

use std::vec::IntoIter;

use shoal::raw::{Code, FileKind};

use super::copier::Fault;
use super::mirror::{Frame, Mirror};
use super::side::{Found, Holder, Kept, Meta, Node, Outcome, Side};
use crate::exclude::is_left_out;
use crate::failure::{Reason, Result};
use crate::interrupt;
use crate::location::{join, push};

impl<S: Side, T: Side> Mirror<'_, S, T> {
    /// Compares everything below a directory.
    pub(super) fn tree(&mut self, first: Frame<S, T>) -> Result<()> {
        let mut stack = Vec::new();
        self.begin(&first.from, first.to.as_ref(), first.lens)?;
        stack.push(first);
        while let Some(frame) = stack.last_mut() {
            interrupt::check(|| self.copier.done())?;
            let [path, from, to] = frame.lens;
            self.path.truncate(path);
            self.copier.from.truncate(from);
            self.copier.to.truncate(to);
            let Some(found) = frame.pending.next() else {
                match self.source.next(&frame.from, &mut frame.list) {
                    Ok(batch) if !batch.is_empty() => {
                        frame.pending = batch.into_iter();
                        continue;
                    }
                    Ok(_) => {}
                    Err(reason) => self.settle(self.source_fault(reason))?,
                }
                let Frame { from, to, meta, is_new, .. } = frame;
                let left = self.finish_dir((from, to.as_ref()), meta, *is_new);
                left.or_else(|fault| self.settle(fault))?;
                stack.pop();
                continue;
            };
            for path in [&mut self.path, &mut self.copier.from, &mut self.copier.to] {
                push(path, &found.name);
            }
            if is_left_out(self.choices.exclude, &self.path) {
                continue;
            }
            let compared = match found.meta {
                Ok(meta) => {
                    let node = Node { name: found.name, meta, followed: false };
                    self.entry(&frame.from, frame.to.as_ref(), &node)
                }
                Err(reason) => Err(self.source_fault(reason)),
            };
            match compared {
                Ok(Some(below)) => {
                    self.begin(&below.from, below.to.as_ref(), below.lens)?;
                    stack.push(below);
                }
                Ok(None) => {}
                Err(fault) => self.settle(fault)?,
            }
        }
        Ok(())
    }

    /// Removes what a directory of the source does not have.
    pub(super) fn begin(
        &mut self,
        original: &S::Dir,
        to: Option<&T::Dir>,
        [path, from, at]: [usize; 3],
    ) -> Result<()> {
        let (Some(to), true) = (to, self.choices.delete) else { return Ok(()) };
        let target = self.copier.target;
        let mut list = match target.list(to) {
            Ok(list) => list,
            Err(reason) => return self.settle(self.copier.at_target(reason)),
        };
        loop {
            let batch = match target.next(to, &mut list) {
                Ok(batch) if batch.is_empty() => return Ok(()),
                Ok(batch) => batch,
                Err(reason) => return self.settle(self.copier.at_target(reason)),
            };
            for found in batch {
                for it in [&mut self.path, &mut self.copier.from, &mut self.copier.to] {
                    push(it, &found.name);
                }
                if !is_left_out(self.choices.exclude, &self.path) {
                    match self.extra(original, Some(to), &found.name) {
                        // It is there, and reported when it is compared.
                        Err(fault) if fault.is_source && fault.reason.is(Code::Io) => {}
                        removed => removed.or_else(|fault| self.settle(fault))?,
                    }
                }
                self.path.truncate(path);
                self.copier.from.truncate(from);
                self.copier.to.truncate(at);
            }
        }
    }

    /// Removes what has a name in the target, if nothing has it in the source.
    pub(super) fn extra(
        &mut self,
        from: &S::Dir,
        to: Option<&T::Dir>,
        name: &[u8],
    ) -> Result<(), Fault> {
        let Some(to) = to else { return Ok(()) };
        let original = self.source.find(from, name, false);
        if original.map_err(|reason| self.source_fault(reason))?.is_some() {
            return Ok(());
        }
        match self.copied(to, name)? {
            Some(found) => self.remove(to, name, &found),
            None => Ok(()),
        }
    }

    pub(super) fn copied(&self, to: &T::Dir, name: &[u8]) -> Result<Option<Meta>, Fault> {
        self.copier.target.find(to, name, false).map_err(|reason| self.copier.at_target(reason))
    }

    /// Removes a file, or a directory with everything below.
    fn remove(&mut self, to: &T::Dir, name: &[u8], found: &Meta) -> Result<(), Fault> {
        if self.copier.shunned.contains(&found.id) {
            return Err(self.copier.at_target_text("holds the volume itself; not removed"));
        }
        let is_dir = found.kind == FileKind::Directory;
        self.counts.deleted += 1;
        self.say(if is_dir { "delete-tree" } else { "delete" })?;
        if self.choices.dry_run {
            return Ok(());
        }
        let target = self.copier.target;
        let removed = match is_dir {
            true => {
                let exclude = self.choices.exclude;
                remove_tree(target, to, name, &mut |path| {
                    !exclude.is_empty() && is_left_out(exclude, &join(&self.path, path))
                })
            }
            false => target.remove(to, name),
        };
        removed.map_err(|reason| self.copier.at_target(reason))
    }

    /// Compares one file, or begins a directory.
    pub(super) fn entry(
        &mut self,
        from: &S::Dir,
        to: Option<&T::Dir>,
        node: &Node,
    ) -> Result<Option<Frame<S, T>>, Fault> {
        let meta = &node.meta;
        self.counts.compared += 1;
        if self.copier.shunned.contains(&meta.id) {
            let reason = Reason::Text("holds the volume itself; not copied".into());
            return Err(self.source_fault(reason));
        }
        let is_dir = meta.kind == FileKind::Directory;
        let mut found = match to {
            Some(to) => self.copied(to, &node.name)?,
            None => None,
        };
        if let (Some(there), Some(to)) = (&found, to)
            && (there.kind == FileKind::Directory) != is_dir
        {
            if there.kind == FileKind::Directory && !self.choices.delete {
                let what = "is a directory there; replaced by a file only with --delete";
                return Err(self.copier.at_target_text(what));
            }
            self.remove(to, &node.name, there)?;
            found = None;
        }
        self.copier.progress.count(self.counts.compared, self.copier.bytes, &self.path);
        match (is_dir, to) {
            (true, _) => self.directory(from, to, node, found).map(Some),
            (false, Some(to)) => self.file(from, to, node, found).map(|()| None),
            (false, None) => {
                self.counts.created += 1;
                self.say("create").map(|()| None)
            }
        }
    }

    fn directory(
        &mut self,
        from: &S::Dir,
        to: Option<&T::Dir>,
        node: &Node,
        found: Option<Meta>,
    ) -> Result<Frame<S, T>, Fault> {
        let opened = self.source.enter_node(from, node).and_then(|from| {
            let list = self.source.list(&from)?;
            Ok((from, list))
        });
        let (from, list) = opened.map_err(|reason| self.source_fault(reason))?;
        let target = self.copier.target;
        let to = match (to, found) {
            (Some(to), Some(_)) => Some(target.enter(to, &node.name, false)),
            (Some(to), None) if !self.choices.dry_run => Some(target.make_dir(to, &node.name)),
            _ => None,
        };
        let to = to.transpose().map_err(|reason| self.copier.at_target(reason))?;
        if found.is_none() {
            self.counts.created += 1;
            self.say("create")?;
        }
        Ok(self.frame((from, list), to, found.is_none(), node.meta))
    }

    /// Gives a directory the attributes of its original, if they differ.
    pub(super) fn finish_dir(
        &mut self,
        (from, to): (&S::Dir, Option<&T::Dir>),
        meta: &Meta,
        is_new: bool,
    ) -> Result<(), Fault> {
        let Some(to) = to else { return Ok(()) };
        let target = self.copier.target;
        let found = target.stat(to, b".", false).map_err(|it| self.copier.at_target(it))?;
        let differs = !self.has_same_mode(meta, &found)
            || !self.has_same_attributes(Holder::Dir(from), Holder::Dir(to))?;
        if !differs && meta.mtime == found.mtime {
            return Ok(());
        }
        if differs && !is_new {
            self.counts.attributes += 1;
            self.say("attributes")?;
        }
        if self.choices.dry_run {
            return Ok(());
        }
        let keep = |kept: &mut Kept<'_>| target.finish_dir(to, kept);
        self.copier.keep(self.source, Holder::Dir(from), meta, keep)
    }
}

/// A directory that is being removed.
struct Going<T: Side> {
    dir: T::Dir,
    list: T::List,
    pending: IntoIter<Found>,
    name: Vec<u8>,
    /// Length of its path.
    len: usize,
    /// Something in it stays.
    stays: bool,
}

/// Removes a directory with everything below, but for what `stays`, by its path from there.
fn remove_tree<T: Side>(
    target: &T,
    dir: &T::Dir,
    name: &[u8],
    stays: &mut dyn FnMut(&[u8]) -> bool,
) -> Outcome<()> {
    let open = |above: &T::Dir, name: &[u8], len| {
        let dir = target.enter(above, name, false)?;
        let (list, pending) = (target.list(&dir)?, Vec::new().into_iter());
        Ok::<_, Reason>(Going { dir, list, pending, name: name.to_vec(), len, stays: false })
    };
    let mut path = Vec::new();
    let mut stack: Vec<Going<T>> = vec![open(dir, name, 0)?];
    while let Some(going) = stack.last_mut() {
        if let Some(status) = interrupt::pending() {
            return Err(Reason::Interrupted(status));
        }
        path.truncate(going.len);
        let Some(found) = going.pending.next() else {
            let batch = target.next(&going.dir, &mut going.list)?;
            if !batch.is_empty() {
                going.pending = batch.into_iter();
                continue;
            }
            let Some(Going { name, stays, .. }) = stack.pop() else { break };
            match (stays, stack.last_mut()) {
                (true, Some(above)) => above.stays = true,
                (true, None) => {
                    let what = "is not empty: the excluded files in it stay";
                    return Err(Reason::Text(what.into()));
                }
                (false, above) => target.remove_dir(above.map_or(dir, |it| &it.dir), &name)?,
            }
            continue;
        };
        push(&mut path, &found.name);
        if stays(&path) {
            going.stays = true;
            continue;
        }
        match found.meta?.kind {
            FileKind::Directory => {
                let below = open(&going.dir, &found.name, path.len())?;
                stack.push(below);
            }
            _ => target.remove(&going.dir, &found.name)?,
        }
    }
    Ok(())
}
