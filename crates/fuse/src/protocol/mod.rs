//! The FUSE wire protocol, version 7.45: bytes and their meaning, no I/O and no file system.
//!
//! | what | where |
//! | --- | --- |
//! | structures, with size and offset asserted | [`wire`] |
//! | request codes, a row each | [`opcode`] |
//! | flag bits | [`flags`] |
//! | handshake: every capability asked for or refused, with the reason | [`init`] |
//! | taking a request apart (untrusted bytes) | [`request`] |
//! | making a reply | [`reply`] |
//! | directory listings | [`dirent`] |
//! | messages from us to the kernel | [`notify`] |
//! | what our ioctls take and give: a file's names; a tree to remove; counters and orphans; a check | [`parents`], [`tree`], [`inspect`], [`scrub`] |
//! | the pages that they come in | [`page`] |
//! | how the kernel learns not to send OPEN | [`probe`] |
//!
//! Integers are in the host's byte order: both ends are the same machine.

pub mod dirent;
pub mod flags;
pub mod init;
pub mod inspect;
pub mod notify;
pub mod opcode;
pub mod page;
pub mod parents;
pub mod probe;
pub mod reply;
pub mod request;
pub mod scrub;
pub mod tree;
pub mod wire;

pub use opcode::Opcode;
pub use reply::{Errno, Reply};
pub use request::Request;
