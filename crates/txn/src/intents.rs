//! Open intents: changes promised in the journal and not made yet. All transactions of one call run
//! without a checkpoint in between, so during normal operation no checkpoint sees an open intent.
//! Only intents found by recovery are here, until the engine has completed them.

use crate::read::read_object;
use shoal_base::Result;
use shoal_base::sync::{AtomicU64, Mutex};
use shoal_device::Device;
use shoal_format::intent::{self, Intent};
use shoal_format::{Geometry, Ptr};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Largest number of open intents in one object. Whatever the length of their attributes, it fits
/// in the smallest segment.
const IN_OBJECT: usize = 128;

/// Open intents by number.
#[derive(Default)]
pub struct Intents {
    open: Mutex<BTreeMap<u64, Intent>>,
    last: AtomicU64,
}

impl Intents {
    /// Allocates a number for a new intent.
    pub fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }
    /// Sets the state of an open intent. Returns the previous one.
    pub fn note(&self, id: u64, intent: Intent) -> Option<Intent> {
        self.last.fetch_max(id, Ordering::Relaxed);
        self.open.lock().insert(id, intent)
    }
    /// Closes an intent.
    pub fn done(&self, id: u64) -> Option<Intent> {
        self.open.lock().remove(&id)
    }
    /// Returns whether any intent is open.
    pub fn any(&self) -> bool {
        !self.open.lock().is_empty()
    }
    /// All open intents, by number, which is the order in which they were logged.
    pub fn all(&self) -> Vec<(u64, Intent)> {
        self.open.lock().iter().map(|(id, intent)| (*id, intent.clone())).collect()
    }
    /// Reads the objects of a checkpoint.
    pub fn read(
        device: &dyn Device,
        geometry: &Geometry,
        volume: u64,
        objects: &[Ptr],
    ) -> Result<Intents> {
        let intents = Intents::default();
        for ptr in objects {
            let raw = read_object(device, geometry, *ptr, "open intents")?;
            for (id, intent) in intent::decode_open(&raw, ptr.addr, volume)? {
                intents.note(id, intent);
            }
        }
        Ok(intents)
    }
    /// Encodes the open intents for a checkpoint: one object or several, usually none.
    pub(crate) fn encode(&self, volume: u64) -> Vec<Vec<u8>> {
        self.all().chunks(IN_OBJECT).map(|some| intent::encode_open(volume, some)).collect()
    }
}
