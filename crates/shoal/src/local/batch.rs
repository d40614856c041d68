//! Names and inodes that a batch touches, for a listener.

use super::Local;
use shoal_engine::{BatchOp, Caller, Ino, Result};

/// A name or an inode that a batch touches.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Touched {
    name: Option<(Ino, Vec<u8>)>,
    ino: Option<Ino>,
}

impl Local {
    /// Finds the names of a batch, and the inodes that they lead to: asked before the batch and
    /// after it, as a path may lead elsewhere then. Nothing, if nobody listens.
    pub(super) fn touched(&self, who: &Caller, dir: Ino, changes: &[BatchOp<'_>]) -> Vec<Touched> {
        let mut all = Vec::new();
        if self.told.is_none() {
            return all;
        }
        for change in changes {
            let paths = match *change {
                BatchOp::File { path, .. }
                | BatchOp::Dir { path, .. }
                | BatchOp::Symlink { path, .. }
                | BatchOp::Remove { path }
                | BatchOp::RemoveDir { path } => [Some(path), None],
                BatchOp::Link { from, to } | BatchOp::Rename { from, to, .. } => {
                    [Some(from), Some(to)]
                }
                BatchOp::SetAttr { path, .. } | BatchOp::SetXattr { path, .. } => {
                    let ino = self.find_at(who, dir, path, true).ok().map(|attr| attr.ino);
                    all.push(Touched { name: None, ino });
                    [None, None]
                }
            };
            for path in paths.into_iter().flatten() {
                let Ok((above, name)) = self.place(who, dir, path) else { continue };
                let found = self.volume.namespace().lookup(who, above, name);
                let ino = found.ok().map(|attr| attr.ino);
                all.push(Touched { name: Some((above, name.to_vec())), ino });
            }
        }
        all
    }

    /// Tells the listener that the names will change.
    pub(super) fn before_batch(&self, touched: &[Touched]) -> Result<()> {
        let Some(told) = &self.told else { return Ok(()) };
        let mut names = touched.iter().filter_map(|touched| touched.name.as_ref());
        names.try_for_each(|(dir, name)| told.before_name(*dir, name))
    }

    /// Tells each of them once.
    pub(super) fn tell_touched(&self, mut touched: Vec<Touched>) {
        self.tell(|told| {
            touched.sort_unstable();
            touched.dedup();
            for Touched { name, ino } in &touched {
                if let Some((dir, name)) = name {
                    told.name(*dir, name);
                    told.attributes(*dir);
                }
                if let Some(ino) = ino {
                    told.attributes(*ino);
                }
            }
        });
    }
}
