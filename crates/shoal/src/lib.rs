//! Shoal, a POSIX filesystem for shoals of small files, as a library. Front ends use only this.

mod path;

pub use path::{Follow, split_parent};
pub use shoal_engine::*;
