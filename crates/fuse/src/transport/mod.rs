//! How requests arrive and replies leave. A transport reads a request, has a
//! [`Worker`](crate::dispatch::Worker) answer it, and sends the [`Reply`](crate::protocol::Reply).
//! Nothing outside this module knows whether that goes through reads and writes or shared rings.

mod crew;
pub mod device;
