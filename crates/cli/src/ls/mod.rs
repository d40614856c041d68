//! Listings as ls(1) writes them: columns, orders, time styles, quotes and colors.
//!
//! Compared with ls(1) in `crates/cli/tests/it/ls.rs`.

mod colors;
mod columns;
mod names;
mod times;

pub(crate) use colors::Colors;
pub(crate) use columns::Columns;
pub(crate) use names::{indicator, order, quoted};
pub(crate) use times::Style;
