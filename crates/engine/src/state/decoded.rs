//! Cache of the compressed objects decoded last, for readers that read a few KiB at a time.

use shoal_base::shard::spread;
use shoal_base::sync::Mutex;
use shoal_format::Ptr;
use std::sync::Arc;

/// Number of cached decoded objects, of at most 128 KiB each.
const KEPT: usize = 16;

/// A slot for a decoded object.
type Place = Mutex<Option<(Ptr, Arc<[u8]>)>>;

/// Cache of the objects decoded last, by address.
#[derive(Default)]
pub(crate) struct Decoded([Place; KEPT]);

impl Decoded {
    fn place(&self, ptr: &Ptr) -> &Place {
        &self.0[(spread(ptr.addr.0) >> 40) as usize % KEPT]
    }
    pub(crate) fn get(&self, ptr: &Ptr) -> Option<Arc<[u8]>> {
        let kept = self.place(ptr).lock();
        // Another object at the same address has another birth.
        kept.as_ref().filter(|(of, _)| of == ptr).map(|(_, bytes)| bytes.clone())
    }
    pub(crate) fn put(&self, ptr: Ptr, bytes: Arc<[u8]>) {
        *self.place(&ptr).lock() = Some((ptr, bytes));
    }
}
