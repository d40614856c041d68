//! Archives of tar, read and written as a stream: headers of ustar and GNU tar, the extended
//! records of pax, sparse files. It knows nothing of files: bytes in, members out, and the reverse.
//!
//! - **Nothing is believed.** A header has a checksum, a number its bounds, a sparse map must fit
//!   the file that it describes. An error names the member and the offset in the archive.
//! - **Memory is bounded** by [`EXTENSION_MAX`], whatever a header says. Contents pass through the
//!   caller's buffer.
//! - **Written** are ustar headers, with pax records where a header has no room: times to the
//!   nanosecond, long names, large numbers, extended attributes, sparse files (GNU's format 1.0).
//!
//! The crate `tar` was looked at: it reads an extension of any length into memory, and leaves pax
//! times, attributes and sparse files of pax to its caller.
//!
//! Modules bottom-up; each uses only those above it in this list.

#![forbid(unsafe_code)]

mod limits;

mod error;
mod header;
mod member;
mod pax;

mod reader;
mod writer;

pub use error::{Error, Problem, Result};
pub use limits::EXTENSION_MAX;
pub use member::{Extent, Kind, Member};
pub use reader::Reader;
pub use writer::Writer;
