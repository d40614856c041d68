//! Everything a contributor runs, as a library so that `cargo test` runs it too.
//!
//! Modules bottom-up; each uses only those above it in this list.
//!
//! | module | what |
//! | --- | --- |
//! | `repository` | the files of the checkout, and what cargo says of its crates |
//! | `source` | a Rust file with its comments and literals told apart from its code |
//! | `ladder` | the order of the crates, in ARCHITECTURE.md |
//! | `api` | the public API of the library, in docs/public-api.txt |
//! | `checks_cost` | what the checks of our own code cost, measured |
//! | `format_doc` | byte tables of docs/on-disk-format.md, from the `format` crate |
//! | `mutate` | changes of the declared format, and whether the tests notice them |
//! | `rules` | the house rules, one small module each |

pub mod repository;
pub mod source;

pub mod api;
pub mod checks_cost;
pub mod format_doc;
pub mod ladder;
pub mod mutate;

pub mod rules;
