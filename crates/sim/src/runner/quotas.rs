//! Quotas of a run: of the tops of its subvolumes, without limits, so that the model needs to know
//! nothing of them.

use shoal::raw::{Caller, Code, Ino, QuotaLimits, Volume};

/// Gives each subvolume's top a quota, or removes it. A full volume may refuse it.
pub(super) fn toggle_quotas(volume: &Volume) -> Result<(), String> {
    let (who, quotas) = (Caller::root(), volume.quotas());
    let roots = volume.subvolumes().list().into_iter().filter(|root| !root.deleted);
    for top in [Ino::ROOT].into_iter().chain(roots.map(|root| root.top)) {
        let done = match quotas.get(top) {
            Ok(_) => quotas.remove(&who, top),
            Err(_) => quotas.set(&who, top, QuotaLimits::default()).map(drop),
        };
        match done {
            Err(e) if !e.is(Code::NoSpace) => return Err(format!("quota of {top}: {e}")),
            _ => {}
        }
    }
    volume.sync().map_err(|e| format!("sync: {e}"))
}
