//! Comparison of a file with its copy.

use rustix::process::{getegid, geteuid};
use shoal::raw::FileKind;

use super::copier::Fault;
use super::mirror::Mirror;
use super::side::{Attribute, Holder, Kept, Meta, Node, Outcome, Side, mode_kept};

/// Difference between a file and its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Difference {
    Missing,
    Contents,
    Attributes,
}

impl<S: Side, T: Side> Mirror<'_, S, T> {
    /// Compares anything but a directory.
    pub(super) fn file(
        &mut self,
        from: &S::Dir,
        to: &T::Dir,
        node: &Node,
        mut found: Option<Meta>,
    ) -> Result<(), Fault> {
        self.note_linked(&node.meta);
        if self.choices.dry_run {
            return match self.compare(from, to, node, found.as_ref())? {
                Some(change) => self.changed(change),
                None => Ok(()),
            };
        }
        let was_there = found.is_some();
        match self.copier.link(node, to, &node.name, &mut found)? {
            Some(true) => {
                self.counts.created += u64::from(!was_there);
                self.counts.updated += u64::from(was_there);
                return self.say("link");
            }
            Some(false) => return Ok(()),
            None => {}
        }
        let Some(change) = self.compare(from, to, node, found.as_ref())? else {
            return self.copier.remember(node, to, &node.name);
        };
        self.changed(change)?;
        match (change, found) {
            (Difference::Attributes, Some(found)) if node.meta.kind == FileKind::Regular => {
                let target = self.copier.target;
                let there = Node { name: node.name.clone(), meta: found, followed: false };
                let copy = target.open(to, &there).map_err(|it| self.copier.at_target(it))?;
                let keep = |kept: &mut Kept<'_>| target.finish_file(&copy, kept);
                self.copier.keep(self.source, Holder::Name(from, node), &node.meta, keep)?;
            }
            (_, found) => self.copier.one(self.source, from, node, to, &node.name, found)?,
        }
        self.copier.files += 1;
        self.copier.remember(node, to, &node.name)
    }

    fn changed(&mut self, change: Difference) -> Result<(), Fault> {
        let (count, what) = match change {
            Difference::Missing => (&mut self.counts.created, "create"),
            Difference::Contents => (&mut self.counts.updated, "update"),
            Difference::Attributes => (&mut self.counts.attributes, "attributes"),
        };
        *count += 1;
        self.say(what)
    }

    /// Returns how a copy differs from a file; `None`: it does not.
    fn compare(
        &mut self,
        from: &S::Dir,
        to: &T::Dir,
        node: &Node,
        found: Option<&Meta>,
    ) -> Result<Option<Difference>, Fault> {
        let Some(found) = found else { return Ok(Some(Difference::Missing)) };
        let there = Node { name: node.name.clone(), meta: *found, followed: false };
        if found.kind != node.meta.kind || !self.has_same_contents(from, to, node, &there)? {
            return Ok(Some(Difference::Contents));
        }
        let (original, copy) = (Holder::Name(from, node), Holder::Name(to, &there));
        let is_same = self.has_same_mode(&node.meta, found)
            && node.meta.mtime == found.mtime
            && self.has_same_attributes(original, copy)?;
        Ok(match is_same {
            true => None,
            // It has names that are those of other files in the source.
            false if found.nlink > node.meta.nlink => Some(Difference::Contents),
            false => Some(Difference::Attributes),
        })
    }

    fn has_same_contents(
        &mut self,
        from: &S::Dir,
        to: &T::Dir,
        node: &Node,
        there: &Node,
    ) -> Result<bool, Fault> {
        let (source, target) = (self.source, self.copier.target);
        match node.meta.kind {
            FileKind::Regular if node.meta.size != there.meta.size => Ok(false),
            FileKind::Regular if self.choices.checksum => {
                let input = source.open(from, node).map_err(|it| self.source_fault(it))?;
                let copy = target.open(to, there).map_err(|it| self.copier.at_target(it))?;
                self.copier.is_same(source, &input, &copy)
            }
            FileKind::Regular => Ok(node.meta.mtime == there.meta.mtime),
            FileKind::Symlink => {
                let original = source.readlink(from, node).map_err(|it| self.source_fault(it))?;
                let copy = target.readlink(to, there).map_err(|it| self.copier.at_target(it))?;
                Ok(original == copy)
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                Ok(node.meta.device == there.meta.device)
            }
            _ => Ok(true),
        }
    }

    /// Returns whether mode and owner of a copy are those that it gets.
    pub(super) fn has_same_mode(&self, meta: &Meta, found: &Meta) -> bool {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let is_owned = uid != 0 || (meta.uid, meta.gid) == (found.uid, found.gid);
        let is_link = meta.kind == FileKind::Symlink;
        is_owned && (is_link || mode_kept(uid, gid, meta) == found.mode)
    }

    pub(super) fn has_same_attributes(
        &self,
        original: Holder<'_, S::File, S::Dir>,
        copy: Holder<'_, T::File, T::Dir>,
    ) -> Result<bool, Fault> {
        let sorted = |attributes: Outcome<Vec<Attribute>>| {
            let mut attributes = attributes?;
            attributes.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(attributes)
        };
        let original = sorted(self.source.attributes(original));
        let copy = sorted(self.copier.target.attributes(copy));
        let original = original.map_err(|reason| self.source_fault(reason))?;
        Ok(original == copy.map_err(|reason| self.copier.at_target(reason))?)
    }
}
