//! A clean close in the middle of a run, and the next open.

use super::quotas::toggle_quotas;
use super::{Sim, open};
use crate::device::FaultyDevice;
use crate::history::History;
use crate::lsns::Lsns;
use shoal::raw::Ino;
use std::sync::Arc;

/// Called with the device of a volume that is closed.
pub(super) type Between<'a> = &'a mut dyn FnMut(&Arc<FaultyDevice>) -> Result<(), String>;

impl Sim {
    /// Closes and opens: nothing may change but that what was held without a name is gone.
    pub(super) fn reopen(&mut self, release: bool) -> Result<(), String> {
        self.reopen_after(release, None)
    }

    /// Closes the volume, and opens it again after `between`, which may set a hidden attribute of
    /// its top directory.
    pub(super) fn reopen_after(
        &mut self,
        release: bool,
        between: Option<Between<'_>>,
    ) -> Result<(), String> {
        self.history.begin(self.device.position());
        let session = self.run.session.clone();
        let is_its = |slot| session.as_ref().is_some_and(|session| session.holds(slot));
        for (slot, ino) in std::mem::take(&mut self.run.slots).into_iter().enumerate() {
            // A session's end releases what it holds.
            if let Some(ino) = ino.filter(|_| release && !is_its(slot)) {
                self.volume().references().release(ino, 1);
            }
        }
        drop(session);
        let volume = self.take_volume();
        volume.close().map_err(|e| format!("close: {e}"))?;
        self.run.model.drop_holds();
        self.history.end(&self.run.model);
        self.history.acknowledge_all(self.device.position());
        let is_top_changed = self.settings.quotas || between.is_some();
        if let Some(between) = between {
            between(&self.device)?;
        }
        let volume = open(&self.device, &self.settings)?;
        self.lsns.end(&volume, is_top_changed.then_some(Ino::ROOT))?;
        if volume.info().recovery.needed {
            return Err("recovery was needed after a clean close".into());
        }
        self.serve(volume)?;
        self.compare_whole("after reopening")?;
        if self.settings.quotas && self.report.steps.is_multiple_of(3) {
            toggle_quotas(self.volume())?;
            self.compare_whole("after changing quotas")?;
        }
        if is_top_changed {
            // It is durable, and no earlier state is left to be found.
            let position = self.device.position();
            self.history = History::new(position, &self.run.model, self.settings.explain);
            self.lsns = Lsns::new(self.volume(), &self.run.model)?;
        }
        Ok(())
    }
}
