//! Sessions: the calls of the library, and their way to another process over shared memory.
//!
//! Bottom-up; each uses only those above it:
//!
//! | module | what |
//! | --- | --- |
//! | `told` | notices of changes to a mount |
//! | [`about`] | what calls tell of a volume and its server |
//! | [`calls`] | the calls: one line each, from which all the rest is made |
//! | `views` | calls on the newest view of a volume |
//! | `lists` | lists that come in parts, collected |
//! | [`wire`] | their bytes |
//! | [`client`] | sends them, and awaits the answers |
//! | `peer` | the process at the other end of a socket |
//! | [`lane`], [`memory`], [`hello`] | the words that both sides share, where they lie, and how it
//! begins
//! |
//! | [`copies`] | copies of directories, which hold until the volume changes |
//! | `shown` | the number of the volume's state, where clients see it |
//! | [`place`] | where the socket of a volume is |
//! | `waiting` | how a thread waits that will soon be answered |
//! | [`watch`] | which of the threads that serve a queue looks for what comes next |
//! | [`kept`], `noting` | what the next server must know of sessions and of their calls |
//! | `parking` | how the threads of a client wait for the next server |
//! | [`connect`] | the client's end |
//! | `nodes`, `feeds`, `trees` | what a session has open, reads and changes at its server |
//! | `gate`, [`serve`] | the answer to a question |
//! | [`page`] | a call in a page of an ioctl |
//! | `resent` | the answer to one that a dead server may have carried out |
//! | `served` | the lanes of a session at its server |
//! | [`server`] | the server's end |
//! | `fuzzing` | sessions without a connection, for fuzz targets and tests |

mod told;

pub mod about;
pub mod calls;
mod lists;
mod views;
pub mod wire;

pub mod client;

mod peer;
pub mod place;
mod waiting;
pub mod watch;

pub mod hello;
pub mod lane;
pub mod memory;

pub mod copies;

mod shown;

pub mod kept;
mod noting;
mod parking;

pub mod connect;

mod feeds;
mod nodes;

mod gate;
mod trees;

pub mod serve;

pub mod page;

mod resent;

mod served;

pub mod server;

#[doc(hidden)]
pub mod fuzzing;

pub use about::{
    Control, Fact, Group, HardLink, HardLinks, Load, Metric, Operation, ScrubEvent, ScrubStep,
    Trace, TracedRequest,
};
pub use calls::{
    AT_END, Calls, ChangeFeed, CopyWish, EachEntry, Effect, FeedReader, How, Node, OR_KERNEL,
    Opened, ROWS, Row, TreeWatch,
};
pub use client::Remote;
pub use connect::{Session, keep_descriptors_from};
pub use copies::EntryCopy;
pub use kept::{KeptSessions, OF_SESSIONS};
pub use peer::{Peer, groups_of, peer_of};
pub use serve::{Changed, Counted, Host, Owed};
pub use server::{Restored, Server};
pub use told::Told;
pub use views::Newest;
