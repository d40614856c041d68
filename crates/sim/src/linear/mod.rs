//! Linearisability of the namespace: several threads or processes do short sequences of calls on
//! the same few names, all at once; then some sequential order of the calls, consistent with which
//! of them had ended before which began, must explain every result.
//!
//! * [`program`], [`reply`]: the operations of the threads, drawn at random, and what is answered.
//! * [`space`]: the model as a state of the search, the sequential meaning of the operations.
//! * [`history`]: what was called and answered when; printed as a table when it is wrong.
//! * [`search`]: is there an order? Wing and Gong's search with Lowe's memory of what was tried.
//! * [`stage`]: where a history takes place on a volume, and its calls there.
//! * [`library`]: histories on a volume, by threads of the system. (By threads of a scheduler: the
//!   module `scheduled` beside this one.)
//! * [`crew`]: histories on a mounted directory, by system calls of several processes.
//! * [`cli`]: the command `cargo xtask linear`.
//!
//! Names are looked up below *handles* (an inode that is held, a directory that is open), never by
//! paths of several parts: walking a path is several calls, and is not atomic anywhere.
//!
//! A listing is not atomic either, and POSIX does not ask for it. It is taken apart into an
//! observation of each name, anywhere between its beginning and its end: what was there all the
//! time must be listed, what was never there must not.

pub mod cli;
pub mod crew;
pub mod history;
pub mod library;
pub mod program;
pub mod reply;
pub mod search;
pub mod space;
pub mod stage;
