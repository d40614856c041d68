//! Runs on a device that makes silent errors (`wrongs.rs`): [`run`] puts to the test what the
//! contract at the head of `device.rs` promises.

pub mod run;
mod shown;

pub use crate::wrongs::{Effect, Silent};
pub use shown::{Facts, Shown, look};
