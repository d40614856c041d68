//! Everything a contributor runs, as a library so that `cargo test` runs it too.
//!
//! | module | what |
//! | --- | --- |
//! | `repository` | the files of the checkout, and what cargo says of its crates |
//! | `source` | a Rust file with its comments and literals told apart from its code |
//! | `rules` | the house rules, one small module each |
//! | `ladder` | the order of the crates, in ARCHITECTURE.md |
//! | `checks_cost` | what the checks of our own code cost, measured |
//! | `format_doc` | byte tables of docs/on-disk-format.md, from the `format` crate |
//! | `mutate` | changes of the declared format, and whether the tests notice them |

pub mod checks_cost;
pub mod format_doc;
pub mod ladder;
pub mod mutate;
pub mod repository;
pub mod rules;
pub mod source;
