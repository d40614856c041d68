//! Files and directories that a program has open.

use crate::Volume;
use crate::raw::{Caller, Ino};
use shoal_session::{Calls, Node, Opened};

/// An open node, which is closed when this is dropped.
pub(crate) struct Held {
    pub volume: Volume,
    pub who: Caller,
    pub node: Node,
    pub ino: Ino,
    /// The path by which it was opened, from the top directory, for messages. Empty for the top,
    /// and if it is not known.
    pub path: Box<[u8]>,
}

impl Held {
    /// Takes a node that a call has opened.
    #[inline]
    pub(crate) fn new(volume: Volume, who: Caller, opened: &Opened, path: Box<[u8]>) -> Held {
        Held { volume, who, node: opened.node, ino: opened.attr.ino, path }
    }

    /// The top directory, which is always open.
    pub(crate) fn top(volume: Volume, who: Caller) -> Held {
        Held { volume, who, node: Node::TOP, ino: Ino::ROOT, path: Box::default() }
    }

    #[inline]
    pub(crate) fn calls(&self) -> &dyn Calls {
        self.volume.calls()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A connection that has ended has closed it.
        let _ = self.calls().close(&self.who, self.node);
    }
}
