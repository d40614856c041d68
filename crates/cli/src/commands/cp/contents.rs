//! Copying the contents of one regular file, piece by piece, leaving holes as holes.

use shoal::raw::FileKind;

use crate::failure::Reason;
use crate::interrupt;

use super::copier::{Copier, Fault};
use super::side::{Holder, Meta, Node, Side};

impl<T: Side> Copier<'_, T> {
    /// Copies a regular file over what may be there.
    ///
    /// A file with other names is replaced rather than overwritten, so that those names keep what
    /// they have. A new file that cannot be completed is removed: nothing incomplete stays under
    /// the name of something whole.
    pub(super) fn regular<S: Side>(
        &mut self,
        source: &S,
        from: &S::Dir,
        node: &Node,
        to: &T::Dir,
        name: &[u8],
        found: Option<Meta>,
    ) -> Result<(), Fault> {
        // Opened first: what cannot be read must not cost what is there.
        let input = source.open(from, node).map_err(|reason| self.at_source(source, reason))?;
        if self.options.mirror {
            return self.anew(source, node, (to, name), found.is_some(), &input);
        }
        let reused = found.filter(|found| found.kind == FileKind::Regular && found.nlink == 1);
        if reused.is_some_and(|found| self.target.replaces(to, name, &found)) {
            return self.anew(source, node, (to, name), true, &input);
        }
        let output = match &reused {
            Some(found) => self.target.overwrite(to, name, found),
            None if found.is_some() => {
                self.target.remove(to, name).and_then(|()| self.target.create(to, name))
            }
            None => self.target.create(to, name),
        };
        let output = output.map_err(|reason| self.at_target(reason))?;
        let copied = self.contents(source, &input, &output, &node.meta).and_then(|()| {
            let target = self.target;
            self.keep(source, Holder::File(&input), &node.meta, |kept| {
                target.finish_file(&output, kept)
            })
        });
        if copied.is_err() && reused.is_none() {
            // The failure itself is what is reported.
            let _ = self.target.remove(to, name);
        }
        copied
    }

    /// Writes a file without its name, and gives it the name when it is whole.
    fn anew<S: Side>(
        &mut self,
        source: &S,
        node: &Node,
        (to, name): (&T::Dir, &[u8]),
        replaces: bool,
        input: &S::File,
    ) -> Result<(), Fault> {
        let target = self.target;
        let draft = target.draft(to, name).map_err(|reason| self.at_target(reason))?;
        let copied = self.contents(source, input, &draft.file, &node.meta).and_then(|()| {
            self.keep(source, Holder::File(input), &node.meta, |kept| {
                target.finish_file(&draft.file, kept)
            })?;
            let named = target.publish(&draft, to, name, replaces);
            named.map_err(|reason| self.at_target(reason))
        });
        target.close(draft, to, copied.is_ok());
        copied
    }

    /// Returns whether two files have the same contents.
    pub(super) fn is_same<S: Side>(
        &mut self,
        source: &S,
        input: &S::File,
        copy: &T::File,
    ) -> Result<bool, Fault> {
        let (mut at, mut other) = (0, vec![0; self.buffer.len()]);
        loop {
            if let Some(status) = interrupt::pending() {
                return Err(self.at_target(Reason::Interrupted(status)));
            }
            let read = source.read(input, at, &mut self.buffer);
            let read = read.map_err(|reason| self.at_source(source, reason))?;
            let mut same = 0;
            while same < read.max(1) {
                let end = read.max(1);
                let some = self.target.read(copy, at + same as u64, &mut other[same..end]);
                match some.map_err(|reason| self.at_target(reason))? {
                    0 => break,
                    some => same += some,
                }
            }
            if same != read || self.buffer[..read] != other[..read] {
                return Ok(false);
            }
            if read == 0 {
                return Ok(true);
            }
            at += read as u64;
        }
    }

    /// Copies all data and gives the copy its size.
    fn contents<S: Side>(
        &mut self,
        source: &S,
        input: &S::File,
        output: &T::File,
        meta: &Meta,
    ) -> Result<(), Fault> {
        let mut written = 0;
        let mut at = 0;
        // A dense file is read to its end, wherever that has moved to since we looked.
        let mut stretch = if meta.dense { Some((0, u64::MAX)) } else { None };
        loop {
            if stretch.is_none() {
                let next = source.data_after(input, at);
                stretch = next.map_err(|reason| self.at_source(source, reason))?;
            }
            let Some((start, end)) = stretch.take() else { break };
            let reached = self.stretch(source, input, output, start, end, meta.size)?;
            if reached > start {
                written = reached;
            }
            if reached < end {
                // The file ends here.
                break;
            }
            at = end;
        }
        if written < meta.size && !meta.dense {
            let set = self.target.set_len(output, meta.size);
            set.map_err(|reason| self.at_target(reason))?;
        }
        Ok(())
    }

    /// Copies the data from `start` to `end`; how far it came before the file ended.
    fn stretch<S: Side>(
        &mut self,
        source: &S,
        input: &S::File,
        output: &T::File,
        start: u64,
        end: u64,
        size: u64,
    ) -> Result<u64, Fault> {
        let mut at = start;
        while at < end {
            if let Some(status) = interrupt::pending() {
                return Err(self.at_target(Reason::Interrupted(status)));
            }
            let wanted = usize::try_from(end - at)
                .map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
            let read = source.read(input, at, &mut self.buffer[..wanted]);
            let read = read.map_err(|reason| self.at_source(source, reason))?;
            if read == 0 {
                break;
            }
            let wrote = self.target.write_all(output, at, &self.buffer[..read]);
            wrote.map_err(|reason| self.at_target(reason))?;
            at += read as u64;
            self.bytes += read as u64;
            self.progress.count(self.files, self.bytes, &self.from);
            if at == size && read < wanted {
                // A short read at the size we know: the end, without asking once more.
                break;
            }
        }
        Ok(at)
    }
}
