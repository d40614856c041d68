//! Sessions: the calls of the library, and their way to another process over shared memory.
//!
//! Bottom-up; each uses only those above it:
//!
//! | module | what |
//! | --- | --- |
//! | `rows` | the macro of the table |
//! | [`calls`] | the calls: one line each, from which all the rest is made |
//! | [`wire`] | their bytes |
//! | [`client`] | sends them, and awaits the answers |

mod rows;

pub mod calls;
pub mod wire;

pub mod client;

pub use calls::{Calls, EachEntry, Effect, How, Node, Opened, ROWS};
pub use rows::Row;
