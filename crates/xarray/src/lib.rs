//! A general XArray: a map from `u64` to shared entries that is read without locks.
//!
//! After the XArray of Linux (Matthew Wilcox, 2018), its interface rather than its code: a tree of
//! nodes with 64 slots, as high as the largest index requires, with marks, reservations and
//! allocation of indexes. Unlike there, writers in different leaves do not exclude each other, and
//! an entry can be removed exactly if nobody uses it.
//!
//! ```
//! use shoal_xarray::{Mark, XArray};
//! use std::sync::Arc;
//!
//! let inodes: XArray<Arc<String>> = XArray::new();
//! inodes.insert(256, Arc::new("root".into()))?;
//! let root = inodes.get(256).expect("just inserted");
//!
//! // Marks: entries that need some work.
//! inodes.set_mark(256, Mark::A);
//! assert_eq!(inodes.next_marked(0, Mark::A), Some((256, root.clone())));
//!
//! // Allocate first, so that the store cannot fail.
//! let place = inodes.reserve(257)?;
//! place.store(Arc::new("file".into()));
//!
//! // Many reads under one pin, without counting.
//! let guard = inodes.pin();
//! assert_eq!(guard.range(..).map(|(index, name)| (index, name.len())).last(), Some((257, 4)));
//! drop(guard);
//!
//! // Removal: only this entry, and only if nobody else holds it.
//! let user = root.clone();
//! assert!(!inodes.remove_if_unused(256, &root, |_| true));
//! drop(user);
//! assert!(inodes.remove_if_unused(256, &root, |_| true));
//! # Ok::<(), shoal_xarray::AllocError>(())
//! ```
//!
//! # Cost
//!
//! | | work | locks | memory |
//! | --- | --- | --- | --- |
//! | [`get`](XArray::get) | O(height) | none, never waits | |
//! | [`insert`](XArray::insert), [`remove`](XArray::remove), marks | O(height) | the leaf; 1 in 64 its parent too | a node of 576 bytes for 64 dense indexes |
//! | next entry, next marked, next free | O(height) | none | |
//!
//! Height is 1 for indexes up to 63, 4 up to 16 million, at most 11.
//!
//! # Guarantees with concurrent writers
//!
//! Every call on one index is linearisable: it takes effect at one moment between its beginning and
//! its end. For iteration see [`Iter`], for the removal of unused entries
//! [`XArray::remove_if_unused`].
//!
//! An entry that has left the array is dropped when no reader can be looking at it, by epoch-based
//! reclamation. Entries must therefore be `'static`. An entry's destructor may use arrays.
//!
//! # Modules, bottom-up
//!
//! | module | contents |
//! | --- | --- |
//! | `sync` | atomics and the nodes' lock, or their models |
//! | `epoch` | deferred freeing |
//! | `entry` | types of entries |
//! | `alloc` | allocation failures |
//! | `node` | nodes and the root: the invariants, and the protocol of removal |
//! | `tree` | finding, making and removing leaves; summaries of children in their parents |
//! | `array`, `guard`, `marks`, `iter`, `reserve` | the interface |

mod sync;

mod epoch;

mod entry;

mod alloc;

mod node;

mod tree;

mod array;

mod guard;
mod marks;

mod iter;
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
