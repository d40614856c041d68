//! Extents of file data, in the inodes' forks and in the trees.

use super::census::Census;
use super::work::{LEAVES, Owner, Parts, Worker};
use super::{Check, PROBLEMS_MAX};
use shoal_base::{Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::inode::Form;
use shoal_format::node::{Key, TreeId};
use shoal_tree::Part;
use shoal_txn::Root;

impl Check<'_> {
    /// Checks the extents in the trees. Those in data forks are checked with the inodes.
    pub(crate) fn extents(&mut self) -> Result<()> {
        let roots = self.volume.0.store.roots().iter();
        let pieces = Parts::new(self.volume, roots, TreeId::Extents, LEAVES);
        self.spread(pieces, |worker, census, piece| worker.extents(census, piece))?;
        self.sum.end_owner();
        Ok(())
    }

    /// Reports inodes whose byte count is wrong.
    pub(super) fn sums(&mut self) {
        let line = |(ino, left): (Ino, i128)| {
            let place = self.volume.0.place_of(ino);
            let said = place.map_or(0, |inode| inode.read().inode.core.bytes);
            let (hint, found) = (self.volume.path_hint(ino), i128::from(said) - left);
            format!("inode {ino}{hint}: {found} bytes of extents, recorded {said}")
        };
        let wrong = self.sum.bytes.wrong().into_iter().take(PROBLEMS_MAX);
        let mut lines: Vec<String> = wrong.map(line).collect();
        lines.sort();
        lines.into_iter().for_each(|l| self.problem("inode-bytes", l));
    }
}

impl Worker<'_> {
    /// Checks one piece.
    fn extents(&mut self, census: &Census, (root, part): (&Root, Part)) -> Result<()> {
        self.begin(TreeId::Extents, &part);
        let mut nodes = Vec::new();
        let mut record = |key: Key, value: &[u8]| {
            let ino = key.ino(root.id);
            let Some(extent) = Extent::decode_value(key.lo, value) else {
                let who = self.who(ino);
                self.problem("extent", format!("{who}: record {}", key.lo));
                return Ok(());
            };
            if self.found.owners.last().is_none_or(|owner| owner.ino != ino) {
                let mut owner = self.owner(census, ino, extent);
                owner.is_wrong |= ino.root() != root.id;
                self.found.owners.push(owner);
            }
            let mut end = 0;
            if let Some(owner) = self.found.owners.last_mut() {
                end = owner.end;
                owner.end = extent.end();
                owner.records += 1;
                owner.bytes += u64::from(extent.stored_len());
            }
            self.extent(ino, &extent, end)
        };
        let mut lost = |error, low, high| nodes.push((error, low, high));
        root.extents.for_each_readable(part.low, part.high, &mut record, &mut lost)?;
        self.lost_nodes(root, TreeId::Extents, nodes);
        Ok(())
    }

    /// Returns the totals of a file, before its first record in this piece.
    fn owner(&self, census: &Census, ino: Ino, first: Extent) -> Owner {
        let form = match self.volume.0.place_of(ino) {
            Ok(inode) => inode.read().inode.core.data_form,
            Err(_) => Form::Empty,
        };
        let kind = census.get(ino).map(|seen| seen.kind);
        let is_wrong = form != Form::Tree || kind.is_none();
        Owner { ino, kind, is_wrong, first, end: 0, records: 0, bytes: 0 }
    }

    /// Checks an extent of a file; the extent before it ends at `end`.
    pub(super) fn extent(&mut self, ino: Ino, extent: &Extent, end: u64) -> Result<()> {
        self.found.report.extents += 1;
        if extent.offset < end {
            let (who, text) = (self.who(ino), extent.to_text());
            self.problem("extent-overlap", format!("{who}: {text} begins before {end}"));
        }
        if extent.is_prealloc() {
            self.found.prealloc += u64::from(extent.len);
            return Ok(());
        }
        self.add_data(extent);
        self.born(&extent.ptr);
        self.object(ino, extent)
    }
}
