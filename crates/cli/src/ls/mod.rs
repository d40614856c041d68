//! Listings as ls(1) writes them: columns, orders, time styles, quotes and colors.
//!
//! Compared with ls(1) in `crates/cli/tests/it/list.rs`.

mod colors;
mod columns;
mod names;
mod times;

pub use colors::Colors;
pub use columns::Columns;
pub use names::{indicator, order, quoted};
pub use times::Style;
