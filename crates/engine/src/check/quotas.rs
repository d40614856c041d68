//! Checks the use of quotas, and the project numbers of inodes.

use super::work::Worker;
use super::{Check, is_dying};
use shoal_base::{Ino, Result};
use shoal_format::inode::Inode;
use shoal_format::quota::{Row, State};
use std::sync::atomic::Ordering;

impl Worker<'_> {
    /// Counts an inode for its project, and compares the number of a directory with that of its
    /// parent. (A file may have had a name in another tree when that got its quota.)
    pub(super) fn project(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let (volume, core) = (self.volume, &inode.core);
        if core.project != 0 {
            self.found.projects.entry(core.project).or_default().add(core);
        }
        let quotas = &volume.0.quotas;
        // While numbers are being changed, or must be looked at, nothing is known.
        let is_ready = |rows: &[Row]| rows.iter().all(|row| row.state == State::Ready);
        if quotas.is_tag_due.load(Ordering::Acquire)
            || !self.has_quotas
            || !is_ready(&quotas.table.lock().rows)
            || core.nlink == 0
            || is_dying(volume, ino)
        {
            return Ok(());
        }
        let top = volume.0.store.root(ino)?.top();
        let dir = Ino(core.parent_or_rdev);
        if !core.is_dir() || ino == top || dir.root() != ino.root() {
            return Ok(());
        }
        let look = |dir: &Inode| dir.core.in_use().then_some(dir.core.project);
        let Ok(Some(project)) = volume.0.table(dir)?.look(dir, look) else { return Ok(()) };
        if project != core.project && !volume.0.store.roots().projects().is_top(core.project, ino) {
            let who = self.who(ino);
            let message =
                format!("{who}: project {}, in a directory of project {project}", core.project);
            self.problem("quota-project", message);
        }
        Ok(())
    }
}

impl Check<'_> {
    /// Compares the kept use of each quota with what was found.
    pub(crate) fn quotas(&mut self) -> Result<()> {
        let state = self.volume.0;
        let projects = state.store.roots().projects();
        // Unlinked but open inodes are in memory only.
        if !projects.is_counted() || state.detached.len() > 0 || self.sum.broken {
            return Ok(());
        }
        let rows = state.quotas.table.lock().rows.clone();
        for row in &rows {
            let said = projects.used(row.project);
            let found = self.sum.projects.remove(&row.project).unwrap_or_default();
            if said != found {
                let (dir, project) = (row.dir, row.project);
                let message = format!(
                    "quota of directory {dir}, project {project}: {} inodes and {} bytes, recorded \
                     {} and {}",
                    found.inodes, found.bytes, said.inodes, said.bytes
                );
                self.problem("quota-use", message);
            }
        }
        for (project, found) in std::mem::take(&mut self.sum.projects) {
            let count = found.inodes;
            let message = format!("{count} inodes are of project {project}, which has no quota");
            self.problem("quota-unknown", message);
        }
        Ok(())
    }
}
