//! Open intents: what calls have promised in the journal and not yet done. The chain of
//! transactions of one call runs inside one pass of the gate, so while calls run no checkpoint sees
//! an intent open; only what recovery finds is here, until the engine has completed it.

use crate::store::Store;
use shoal_base::Result;
use shoal_base::sync::{AtomicU64, Mutex};
use shoal_device::Device;
use shoal_format::intent::{self, Intent};
use shoal_format::{Geometry, Ptr};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Open intents by number.
#[derive(Default)]
pub struct Intents {
    open: Mutex<BTreeMap<u64, Intent>>,
    last: AtomicU64,
}

impl Intents {
    /// A number for a new intent.
    pub fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }
    /// Notes what an open intent is now; returns what it was.
    pub fn note(&self, id: u64, intent: Intent) -> Option<Intent> {
        self.last.fetch_max(id, Ordering::Relaxed);
        self.open.lock().insert(id, intent)
    }
    /// It is done.
    pub fn done(&self, id: u64) -> Option<Intent> {
        self.open.lock().remove(&id)
    }
    /// Whether any is open.
    pub fn any(&self) -> bool {
        !self.open.lock().is_empty()
    }
    /// All that are open, by number: in the order in which they were logged.
    pub fn all(&self) -> Vec<(u64, Intent)> {
        self.open.lock().iter().map(|(id, intent)| (*id, intent.clone())).collect()
    }
    /// Reads the objects that a checkpoint names.
    pub fn read(
        device: &dyn Device,
        geometry: &Geometry,
        volume: u64,
        objects: &[Ptr],
    ) -> Result<Intents> {
        let intents = Intents::default();
        for ptr in objects {
            let raw = crate::open::read_object(device, geometry, *ptr, "open intents")?;
            for (id, intent) in intent::decode_open(&raw, ptr.addr, volume)? {
                intents.note(id, intent);
            }
        }
        Ok(intents)
    }
}

/// Open intents in one object: however long the attributes, it fits in the smallest segment.
const IN_OBJECT: usize = 128;

impl Store {
    /// The bytes of the open intents for a checkpoint: an object or several, usually none.
    pub(crate) fn encode_intents(&self) -> Vec<Vec<u8>> {
        let open = self.intents.all();
        open.chunks(IN_OBJECT).map(|some| intent::encode_open(self.volume, some)).collect()
    }
}
