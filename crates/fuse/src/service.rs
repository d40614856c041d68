//! Interface between a transport and its server: requests in, replies out. The server of a mounted
//! volume is `dispatch`; measurements and tests of a transport use something simpler.

use crate::look::Looking;
use crate::notices::Notices;
use crate::protocol::{Opcode, Reply, Request};
use std::sync::Arc;

/// Server of requests. Each thread of a transport has one of its own, and gives it one request at a
/// time.
pub trait Serve: Sized + 'static {
    /// State shared by all threads of a mount.
    type Shared: Send + Sync + 'static;

    /// Creates the state of a new thread.
    fn new(shared: Arc<Self::Shared>) -> Self;

    /// Returns whether [`Serve::handle`] may wait for the device, or work for long. A transport
    /// with few threads must serve others meanwhile.
    #[inline]
    fn may_block(&self, request: &Request<'_>) -> bool {
        request.may_block()
    }

    /// Called when the request of the last [`Serve::handle`] has been answered, or its caller is
    /// gone.
    #[inline]
    fn answered(&mut self) {}

    /// Called when the connection has ended: there are no more requests.
    fn ended(_shared: &Self::Shared) {}

    /// Answers `request`; a reply's body is left in the request's own. [`Reply::Later`] only if it
    /// may not wait; then the request is as it was.
    fn handle(&mut self, request: &mut Request<'_>) -> Reply;

    /// Takes back what a successful reply to `op` gave, because it could not be sent.
    fn undo(&self, op: Option<Opcode>, reply: &mut [u8]);

    /// Called before the first request: `looking` counts what threads do that wait.
    fn waits_by(_shared: &Self::Shared, _looking: &Arc<Looking>) {}

    /// Returns the queue of notices to the kernel, if there is one: the transport delivers them.
    fn notices(_shared: &Self::Shared) -> Option<&Arc<Notices>> {
        None
    }
}
