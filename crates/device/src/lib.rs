//! Devices: the storage of a volume's bytes. The trait is small so that tests can supply devices
//! that fail, tear writes and crash (`sim`), and so that an object store can be supported later.
//!
//! Modules bottom-up; each uses only those above it in this list.

mod backing;
mod bucket_name;
mod device;
mod discard;

mod claim;
mod lock;
mod memory;
mod now;
mod signature;

mod opening;

mod file;
mod measured;
pub mod owner;

pub use bucket_name::is_bucket;
pub use claim::ClaimOptions;
pub use device::{Device, Fact};
pub use file::{FileDevice, place_of_file};
pub use measured::MeasuredDevice;
pub use memory::MemDevice;
pub use opening::OpenMode;
pub use signature::foreign_signature;
