//! Expressions of `find`, as find(1) has them: parsing, and evaluation for one file.
//!
//! Words become an expression (`parse`, pure), which is evaluated file by file (`eval`). The rows
//! of the tests and actions are in `primary`. Compared with find(1) in
//! `crates/cli/tests/it/find.rs`.

mod eval;
mod exec;
mod expr;
mod file;
mod parse;
mod perm;
mod primary;
mod printf;
mod regex;
mod rows;
mod stamp;

pub(crate) use eval::{Evaluator, Flow};
pub(crate) use exec::Waiting;
pub(crate) use expr::{Action, Reference, Same, Test};
pub(crate) use file::{File, World};
pub(crate) use parse::{Parsed, parse};
pub(crate) use rows::Rows;
pub(crate) use stamp::Times;
