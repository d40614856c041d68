//! The mount: a Shoal volume as a directory, by the FUSE protocol spoken directly.
//!
//! Bottom-up; each uses only those above it:
//!
//! | module | what |
//! | --- | --- |
//! | [`protocol`] | bytes of requests and replies; no I/O |
//! | `notices` | what the kernel is told unasked, and by which thread |
//! | `pages` | when data that it keeps of a file may be older than a direct write |
//! | `sweep` | how the kernel drops the names of a removed tree while nobody waits |
//! | `unread` | when it must be told that attributes it is being given are old |
//! | `service` | what a transport asks of whatever it serves |
//! | `session`, `caller`, `stats` | what requests of one mount share; who is calling; what is counted |
//! | `ops` | one handler for each request, on a [`shoal::Volume`] |
//! | `dispatch` | from a request to its reply: where every kernel request enters |
//! | `transport` | how requests arrive and replies leave |
//! | `mount` | attach, shake hands, serve, until unmounted |
//! | `control` | from outside: sync, unmount, names of a file, removal of a tree, counters, a check |
//!
//! The server keeps no state of its own: a node id is an inode number, handles are 0, and the
//! kernel's references are counted by the volume. All changes come through the one mount, so the
//! kernel may cache names (absent ones too) and attributes without limit.

pub mod protocol;

mod caller;
mod control;
mod dispatch;
mod listings;
mod mount;
mod notices;
mod ops;
mod pages;
pub mod service;
mod session;
mod stats;
mod sweep;
mod transport;
mod unread;

pub use control::{
    Link, Names, Orphans, ScrubStep, is_in_mount, is_mounted, names_of, orphans_of,
    read_only_reason_of, remove_tree, scrub_of, server_pid, stats_of, sync, trim, unmount,
    unmount_and_wait, unmount_lazy,
};
pub use mount::Mount;
pub use mount::options::MountOptions;
pub use stats::Stat;
