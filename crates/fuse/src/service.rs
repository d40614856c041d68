//! What a transport serves: requests in, replies out, whatever stands behind them. For a mount that
//! is a volume (`dispatch`); measurements and tests of a transport put something simpler there.

use crate::notices::Notices;
use crate::protocol::{Opcode, Reply, Request};
use std::sync::Arc;

/// Answers requests. Each thread of a transport has one of its own, and gives it one request at a
/// time.
pub trait Serve: Sized + 'static {
    /// What all threads of a mount have in common.
    type Shared: Send + Sync + 'static;

    /// For a new thread.
    fn new(shared: Arc<Self::Shared>) -> Self;

    /// Answers `request`; a reply's body is left in the request's own.
    fn handle(&mut self, request: &mut Request<'_>) -> Reply;

    /// Takes back what a successful reply to `op` gave, because it could not be sent.
    fn undo(&self, op: Option<Opcode>, reply: &mut [u8]);

    /// Where messages to the kernel are given, if there are any: the transport delivers them.
    fn notices(_shared: &Self::Shared) -> Option<&Arc<Notices>> {
        None
    }
}
