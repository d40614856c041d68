//! The mount: a Shoal volume as a directory, by the FUSE protocol spoken directly.
//!
//! Bottom-up; each uses only those above it:
//!
//! | module | what |
//! | --- | --- |
//! | [`protocol`] | bytes of requests and replies; no I/O |
//! | `service` | what a transport asks of whatever it serves |
//! | `session`, `caller` | what requests of one mount share; who is calling |
//! | `ops` | one handler for each request, on a [`shoal::Volume`] |
//! | `dispatch` | from a request to its reply: where every kernel request enters |
//! | `transport` | how requests arrive and replies leave |
//! | `mount` | attach, shake hands, serve, until unmounted |
//! | `control` | sync, unmount, names of a file: from outside |
//!
//! The server keeps no state of its own: a node id is an inode number, handles are 0, and the
//! kernel's references are counted by the volume. All changes come through the one mount, so the
//! kernel may cache names (absent ones too) and attributes without limit.

pub mod protocol;

mod caller;
mod control;
mod dispatch;
mod mount;
mod ops;
pub mod service;
mod session;
mod transport;

pub use control::{
    Link, Names, is_mounted, names_of, server_pid, sync, unmount, unmount_and_wait, unmount_lazy,
};
pub use mount::Mount;
pub use mount::options::MountOptions;
