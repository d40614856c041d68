//! Lists that calls return in parts, collected.

use crate::about::{Fact, HardLinks, Load, Metric, Operation};
use crate::calls::{Calls, Node};
use shoal_engine::{Caller, Ino, OrphanInfo, Quota, Result, RootInfo};
use std::collections::BTreeMap;

/// Collects a list: `part` gets what there is, and returns what comes after it; nothing at the end.
fn all<T>(mut part: impl FnMut(&[T]) -> Result<Vec<T>>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    loop {
        let more = part(&found)?;
        if more.is_empty() {
            return Ok(found);
        }
        found.extend(more);
    }
}

/// Whole lists. Entries that come or go while a list is read may be missing, or be in it twice
/// where it has no order of its own (facts, loads).
///
/// # Errors
/// Those of the calls that return the parts.
#[allow(clippy::missing_errors_doc, reason = "said of all")]
impl dyn Calls + '_ {
    /// Returns all hard links of an inode; without a number, of an open node.
    pub fn all_links(&self, who: &Caller, file: Node, ino: Option<Ino>) -> Result<HardLinks> {
        let mut found = self.links(who, file, ino, 0)?;
        while let Some(from) = found.next {
            let part = self.links(who, file, ino, from)?;
            // A server cannot let its client go round.
            found.next = part.next.filter(|next| *next > from);
            found.links.extend(part.links);
        }
        Ok(found)
    }

    /// Returns all paths of an inode, from the top of the volume.
    pub fn paths_of(&self, who: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let links = self.all_links(who, Node::TOP, Some(ino))?.links;
        Ok(links.into_iter().map(|link| link.path).collect())
    }

    /// Returns all subvolumes, deleted ones that are not free among them, by number.
    pub fn all_subvolumes(&self, who: &Caller) -> Result<Vec<RootInfo>> {
        all(|found| self.subvolumes(who, found.last().map_or(0, |last: &RootInfo| last.id)))
    }

    /// Returns all quotas, by the number of their directory.
    pub fn all_quotas(&self, who: &Caller) -> Result<Vec<Quota>> {
        all(|found| self.quotas(who, found.last().map_or(Ino(0), |last: &Quota| last.dir)))
    }

    /// Returns all counters and gauges.
    pub fn all_metrics(&self, who: &Caller) -> Result<Vec<Metric>> {
        all(|found| self.metrics(who, found.len() as u32))
    }

    /// Returns all operations that there have been.
    pub fn all_operations(&self, who: &Caller) -> Result<Vec<Operation>> {
        all(|found| self.operations(who, found.len() as u32))
    }

    /// Returns all facts about the server and the volume, by name; a server of another version may
    /// know others.
    pub fn all_facts(&self, who: &Caller) -> Result<BTreeMap<String, String>> {
        let facts: Vec<Fact> = all(|found| self.facts(who, found.len() as u32))?;
        Ok(facts.into_iter().collect())
    }

    /// Returns the load of all users and processes that are shown.
    pub fn all_loads(&self, who: &Caller) -> Result<Vec<Load>> {
        all(|found| self.loads(who, found.len() as u32))
    }

    /// Returns all inodes without a name that are not free.
    pub fn all_orphans(&self, who: &Caller) -> Result<Vec<OrphanInfo>> {
        all(|found| self.orphans(who, found.last().map_or(Ino(0), |last: &OrphanInfo| last.ino)))
    }
}
