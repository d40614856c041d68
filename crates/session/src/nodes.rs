//! Open nodes of a session: the numbers that a client knows, and the nodes that they stand for.
//!
//! A client can name nothing that it has not opened, and so has been allowed to reach.

use crate::calls::{Calls, Node};
use parking_lot::Mutex;
use shoal_engine::{Caller, Code, Error, Result};
use std::sync::Arc;

/// Nodes that a session may have open.
const NODES_MAX: usize = 1 << 16;

/// An open node. The table has one reference, and each call that uses it another: a client may
/// close it meanwhile, and the volume would give its inode number to another file. The last one
/// closes it ([`release`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// That of the volume.
    pub node: Node,
    /// It may be read.
    pub read: bool,
    /// It may be written.
    pub write: bool,
    /// It is written at its end alone.
    pub append: bool,
}

/// The open nodes of a session.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    open: Vec<Option<Arc<Open>>>,
    free: Vec<u32>,
}

/// Numbers of a client: the top, and then those of the table.
const FIRST: u64 = Node::TOP.0 + 1;

impl Nodes {
    /// Returns an open node, to be given to [`release`].
    pub(crate) fn get(&self, node: Node) -> Option<Arc<Open>> {
        let table = self.0.lock();
        table.open.get(usize::try_from(node.0.checked_sub(FIRST)?).ok()?)?.clone()
    }

    pub(crate) fn add(&self, open: Arc<Open>) -> Result<Node> {
        let mut table = self.0.lock();
        let number = match table.free.pop() {
            Some(number) => {
                table.open[number as usize] = Some(open);
                number
            }
            None if table.open.len() == NODES_MAX => {
                let message = format!("a session has at most {NODES_MAX} open files");
                return Err(Error::refused(Code::NoMemory, message));
            }
            None => {
                table.open.push(Some(open));
                (table.open.len() - 1) as u32
            }
        };
        Ok(Node(u64::from(number) + FIRST))
    }

    /// Takes a node off the table, to be given to [`release`].
    pub(crate) fn remove(&self, node: Node) -> Option<Arc<Open>> {
        let place = usize::try_from(node.0.checked_sub(FIRST)?).ok()?;
        let mut table = self.0.lock();
        let open = table.open.get_mut(place)?.take()?;
        table.free.push(place as u32);
        Some(open)
    }

    /// Number of open nodes.
    pub(crate) fn len(&self) -> usize {
        let table = self.0.lock();
        table.open.len() - table.free.len()
    }

    /// Gives all of them back.
    pub(crate) fn close_all(&self, calls: &dyn Calls) {
        let table = std::mem::take(&mut *self.0.lock());
        for open in table.open.into_iter().flatten() {
            release(calls, open);
        }
    }
}

/// Closes a node unless somebody else still has it.
#[inline]
pub(crate) fn release(calls: &dyn Calls, open: Arc<Open>) {
    if let Some(open) = Arc::into_inner(open) {
        close(calls, open.node);
    }
}

/// Gives back what a client does not hold any more.
pub(crate) fn close(calls: &dyn Calls, node: Node) {
    if let Err(error) = calls.close(&Caller::root(), node) {
        tracing::warn!(%error, node = node.0, "a node of a session was not closed");
    }
}
