//! The mount: a Shoal volume as a directory, by the FUSE protocol spoken directly.
//!
//! Bottom-up; each uses only those above it:
//!
//! | module | what |
//! | --- | --- |
//! | [`protocol`] | bytes of requests and replies; no I/O |
//! | `table` | the kernel's list of mounts |
//! | `known` | inodes that the kernel may know |
//! | `crossing` | names that a session changes while a system call acts on them |
//! | `listings` | directory listings that the kernel keeps |
//! | `pages` | cached file data that may be older than a direct write |
//! | `unread` | replies with attributes that may be out of date when the kernel takes them |
//! | `about` | facts about a mount, and whether it has become read-only |
//! | `caller` | the caller of a request |
//! | `notices` | messages by which the kernel forgets cached entries, and the thread that sends them |
//! | `observe` | times and counts requests, keeps the slow ones |
//! | `documents` | files of the directory `.shoal` |
//! | `preemptions` | how often a thread was interrupted |
//! | `look` | when a thread that waits for requests looks for the next one, and when it sleeps |
//! | `service` | interface between a transport and its server |
//! | `apart` | threads with a descriptor table of their own |
//! | `trees` | removed trees, as the kernel knows them |
//! | `sweep` | names below a removed tree, dropped by the kernel in the background |
//! | `calls`, `inherited` | what a dead server has left: requests, and references of the kernel |
//! | `tokens` | nodes of files that were opened by tokens |
//! | `views` | the volume, which may be replaced by a newer view of it |
//! | `session` | state of a mount |
//! | `mounted` | the server of a mount, as calls ask and control it |
//! | `doors` | the mount as a host of sessions |
//! | `report` | statistics, metrics, slow requests, health as text |
//! | `ops` | one handler for each request, on a [`shoal::raw::Volume`] |
//! | `dispatch` | from a request to its reply: where every kernel request enters |
//! | `transport` | how requests arrive and replies leave |
//! | `mount` | attach, shake hands, serve, until unmounted |
//! | `control` | from outside: calls through an open file, sync, remount, unmount, a trace |
//!
//! The server keeps no state of its own, but for files opened by tokens: a node
//! id is an inode number, handles are 0, and the kernel's references are counted by the volume. All
//! changes come through the one mount, so the kernel may cache names (absent ones too) and
//! attributes without limit; but for mounts that follow a volume of another process (`views`).

mod about;
mod crossing;
mod known;
mod listings;
mod pages;
mod preemptions;

pub mod protocol;
mod stripped;
mod table;
mod unread;

mod look;

mod caller;
mod calls;
mod inherited;
mod notices;
mod observe;

mod apart;
pub mod service;
mod sweep;
mod tokens;
mod trees;
mod views;

mod documents;

mod session;

mod mounted;

mod doors;

mod report;

mod ops;

mod dispatch;
mod transport;

mod mount;

mod control;

pub use control::{
    MountPlace, OtherMount, Server, ServerProcess, Traced, Tracer, Unmount, Unmounted, calls_by,
    facts_of, is_in_mount, is_mounted, mount_above, mounts, place_of, remount, remount_read_only,
    server_pid, servers_without_asking, sync, unmount, unmount_and_wait, unmount_by_force,
    unmount_lazy,
};
pub use mount::Mount;
pub use mount::kept::{Handed, Keeper, can_be_kept};
pub use mount::options::{MountOptions, Sessions};
pub use mount::served::{Outliving, Served};
pub use protocol::traced::Facts;
pub use report::json::Durations;
pub use shoal_session::{Peer, peer_of};
pub use tokens::DIRECTORY_NAME as TOKENS_DIRECTORY;
pub use transport::readers::may_read;
