//! A general XArray: a map from `u64` to shared entries that is read without locks.
//!
//! After the XArray of Linux (Matthew Wilcox, 2018), its interface rather than its code: a tree of
//! nodes with 64 slots, as high as the largest index needs, with marks, reservations and allocation
//! of indexes. Otherwise than there, writers in different leaves do not exclude each other, and an
//! entry can be removed exactly if nobody uses it.
//!
//! ```
//! use shoal_xarray::{Mark, XArray};
//! use std::sync::Arc;
//!
//! let inodes: XArray<Arc<String>> = XArray::new();
//! inodes.insert(256, Arc::new("root".into()))?;
//! let root = inodes.get(256).expect("just inserted");
//!
//! // Marks: which entries have something to be done.
//! inodes.set_mark(256, Mark::A);
//! assert_eq!(inodes.next_marked(0, Mark::A), Some((256, root.clone())));
//!
//! // Memory first, so that what follows cannot fail.
//! let place = inodes.reserve(257)?;
//! place.store(Arc::new("file".into()));
//!
//! // Many reads, pinned once, without counting.
//! let guard = inodes.pin();
//! assert_eq!(guard.range(..).map(|(index, name)| (index, name.len())).last(), Some((257, 4)));
//! drop(guard);
//!
//! // Removal: only this entry, and only if nobody else has it.
//! let user = root.clone();
//! assert!(!inodes.remove_if_unused(256, &root, |_| true));
//! drop(user);
//! assert!(inodes.remove_if_unused(256, &root, |_| true));
//! # Ok::<(), shoal_xarray::AllocError>(())
//! ```
//!
//! # What it costs
//!
//! | | work | locks | memory |
//! | --- | --- | --- | --- |
//! | [`get`](XArray::get) | O(height) | none, never waits | |
//! | [`insert`](XArray::insert), [`remove`](XArray::remove), marks | O(height) | the leaf; 1 in 64 its parent too | a node of 576 bytes for 64 dense indexes |
//! | next entry, next marked, next free | O(height) | none | |
//!
//! Height is 1 for indexes up to 63, 4 up to 16 million, at most 11.
//!
//! # What is promised while others write
//!
//! Every call that is about one index takes effect at one moment between its beginning and its end
//! (it is linearisable). Iteration is described in [`Iter`], removal of unused entries in
//! [`XArray::remove_if_unused`].
//!
//! An entry that has left the array is dropped when no reader can be looking at it, by epoch-based
//! reclamation; so entries must be `'static`. An entry's destructor may use arrays.
//!
//! # Modules, bottom-up
//!
//! | module | what |
//! | --- | --- |
//! | `sync` | atomics and the nodes' lock, or their models |
//! | `epoch` | when memory is given back |
//! | `entry` | what may be an entry |
//! | `alloc` | running out of memory |
//! | `node` | nodes and the root: the invariants, and the protocol of removal |
//! | `tree` | finding, making and removing leaves; what parents know of them |
//! | `array`, `guard`, `marks`, `reserve`, `iter` | the interface |

mod sync;

mod epoch;

mod entry;

mod alloc;

mod node;

mod tree;

mod array;
mod guard;
mod iter;
mod marks;
mod reserve;

#[cfg(test)]
mod tests;

pub use alloc::AllocError;
#[cfg(any(test, feature = "fail-alloc"))]
pub use alloc::fail;
pub use array::{ExchangeError, Mismatch, XArray};
pub use entry::{Counted, Entry, Value};
pub use guard::Guard;
pub use iter::{Iter, Looks};
pub use marks::Mark;
pub use reserve::{IndexError, Reservation};
