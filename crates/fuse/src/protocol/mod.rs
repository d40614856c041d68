//! The FUSE wire protocol, version 7.45: bytes and their meaning, no I/O and no file system.
//!
//! | what | where |
//! | --- | --- |
//! | structures, with size and offset asserted | [`wire`] |
//! | request codes, a row each | [`opcode`] |
//! | flag bits | [`flags`] |
//! | handshake: every capability asked for or refused, with the reason | [`init`] |
//! | parsing requests (untrusted bytes) | [`request`] |
//! | building replies | [`reply`] |
//! | directory listings | [`dirent`] |
//! | notifications to the kernel | [`notify`] |
//! | requests in a trace (untrusted bytes) | [`traced`] |
//! | the request that makes the kernel stop sending OPEN | [`probe`] |
//!
//! Integers are in the host's byte order: both ends are the same machine.

pub mod dirent;
pub mod flags;
pub mod init;
pub mod notify;
pub mod opcode;
pub mod probe;
pub mod reply;
pub mod request;
pub mod traced;
pub mod wire;

pub use opcode::Opcode;
pub use reply::{Errno, Reply};
pub use request::{Request, VIRTUAL};
