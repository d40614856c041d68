//! The engines: one file for each.

mod fjall;
mod lmdb;
mod redb;
mod shoal;
mod sqlite;

use crate::engine::Kind;

/// All engines, by their names on the command line.
pub(crate) const ENGINES: [Kind; 5] = [
    Kind { name: "shoal", open: shoal::open },
    Kind { name: "sqlite", open: sqlite::open },
    Kind { name: "redb", open: redb::open },
    Kind { name: "fjall", open: fjall::open },
    Kind { name: "lmdb", open: lmdb::open },
];

/// Cache of each engine that has one of its own: no run is to read what it has written.
const CACHE_BYTES: u64 = 2 << 30;
