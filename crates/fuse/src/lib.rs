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
//! | `stats`, `caller` | counters; the caller of a request |
//! | `notices` | messages by which the kernel forgets cached entries, and the thread that sends them |
//! | `observe` | times and counts requests, keeps the slow ones |
//! | `documents` | files of the directory `.shoal` |
//! | `service` | interface between a transport and its server |
//! | `sweep` | names below a removed tree, dropped by the kernel in the background |
//! | `calls`, `inherited` | what a dead server has left: requests, and references of the kernel |
//! | `tokens` | nodes of files that were opened by tokens |
//! | `views` | the volume, which may be replaced by a newer view of it |
//! | `session` | state of a mount |
//! | `report` | statistics, metrics, slow requests, health as text |
//! | `ops` | one handler for each request, on a [`shoal::raw::Volume`] |
//! | `doors` | the mount as a host of sessions |
//! | `dispatch` | from a request to its reply: where every kernel request enters |
//! | `transport` | how requests arrive and replies leave |
//! | `mount` | attach, shake hands, serve, until unmounted |
//! | `control` | from outside: sync, unmount, names, removal of a tree, counters, a check |
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

pub mod protocol;
mod stats;
mod stripped;
mod table;
mod unread;

mod caller;
mod calls;
mod inherited;
mod notices;
mod observe;

pub mod service;
mod sweep;
mod tokens;
mod views;

mod documents;

mod session;

mod report;

mod ops;

mod doors;

mod dispatch;
mod transport;

mod mount;

mod control;

pub use control::{
    Group, Link, Loads, MountPlace, Names, Operation, Orphans, OtherMount, QuotaFound, ScrubStep,
    Server, ServerProcess, Shared, Traced, Tracer, Unmount, Unmounted, delete_subvolume, facts_of,
    is_in_mount, is_mounted, loads_of, make_subvolume, mount_above, mounts, names_of,
    operations_of, orphans_of, place_of, quota_of, quotas_of, read_only_reason_of, remount,
    remount_read_only, remove_quota, remove_tree, revoke_tokens, scrub_of, server_pid,
    servers_without_asking, set_label, set_quota, share, stats_of, subvolumes_of, sync, trim,
    unmount, unmount_and_wait, unmount_by_force, unmount_lazy,
};
pub use mount::Mount;
pub use mount::kept::{Handed, Keeper, can_be_kept};
pub use mount::options::MountOptions;
pub use observe::top::Load;
pub use protocol::traced::Facts;
pub use report::json::Durations;
pub use shoal_session::{Peer, peer_of};
pub use stats::Stat;
