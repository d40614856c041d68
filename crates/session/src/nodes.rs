//! Open nodes of a session: the numbers that a client knows, and the nodes that they stand for.
//!
//! A client can name nothing that it has not opened, and so has been allowed to reach.
//!
//! Of a session that outlives its server each is also recorded in memory for the next server
//! ([`crate::kept`]), under the lock of the table: after the reference has been taken, and until
//! before it is released.

use crate::calls::{Calls, Node};
use crate::kept::{Asked, CHUNK_NODES, NodeEntry, Slot};
use parking_lot::Mutex;
use shoal_engine::{Caller, Code, Error, Generation, Ino, Result, housekeeping};
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

impl Open {
    /// Bits of [`NodeEntry::rights`].
    fn rights(&self) -> u32 {
        u32::from(self.read) | u32::from(self.write) << 1 | u32::from(self.append) << 2
    }

    fn with_rights(node: Node, rights: u32) -> Open {
        let has = |bit: u32| rights & bit != 0;
        Open { node, read: has(1), write: has(2), append: has(4) }
    }
}

/// The open nodes of a session.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
    /// The place in memory that they are recorded in for the next server.
    slot: Option<Arc<Slot>>,
}

#[derive(Debug, Default)]
struct Table {
    open: Vec<Option<Arc<Open>>>,
    free: Vec<u32>,
    /// The chunk of each [`CHUNK_NODES`] nodes, if there was one left.
    chunks: Vec<Option<u32>>,
}

/// Numbers of a client: the top, and then those of the table.
const FIRST: u64 = Node::TOP.0 + 1;

/// Returns the place of a client's number in the table.
fn place_of(node: Node) -> Option<u32> {
    u32::try_from(node.0.checked_sub(FIRST)?).ok()
}

impl Table {
    /// The chunk of a place, and the place in it.
    fn recorded(&self, place: u32) -> Option<(u32, usize)> {
        let (chunk, at) = (place as usize / CHUNK_NODES, place as usize % CHUNK_NODES);
        Some(((*self.chunks.get(chunk)?)?, at))
    }

    fn record(&mut self, slot: &Slot, place: u32, entry: &NodeEntry) {
        let number = place as usize / CHUNK_NODES;
        if self.chunks.len() <= number {
            self.chunks.resize(number + 1, None);
        }
        if self.chunks[number].is_none() {
            self.chunks[number] = slot.chunk((number * CHUNK_NODES) as u32);
        }
        if let Some((chunk, at)) = self.recorded(place) {
            slot.opened(chunk, at, entry);
        }
    }

    /// Takes a node off.
    fn take(&mut self, slot: Option<&Arc<Slot>>, place: u32) -> Option<Arc<Open>> {
        let open = self.open.get_mut(place as usize)?.take()?;
        if let (Some(slot), Some((chunk, at))) = (slot, self.recorded(place)) {
            slot.closed(chunk, at);
        }
        Some(open)
    }
}

impl Nodes {
    /// The nodes of a session that outlives its server.
    pub(crate) fn kept(slot: Arc<Slot>) -> Nodes {
        Nodes { table: Mutex::default(), slot: Some(slot) }
    }

    /// The nodes that a server before this one has recorded in these chunks, and the one that it
    /// was closing. `hold` takes a reference; what it refuses is forgotten.
    pub(crate) fn restored(
        slot: Arc<Slot>,
        chunks: &[(u32, u32)],
        hold: &dyn Fn(Ino, Generation) -> Result<Node>,
    ) -> (Nodes, Option<Arc<Open>>) {
        let mut table = Table::default();
        let closing = slot.closing();
        for (first, chunk) in chunks {
            let number = *first as usize / CHUNK_NODES;
            if table.chunks.len() <= number {
                table.chunks.resize(number + 1, None);
                table.open.resize((number + 1) * CHUNK_NODES, None);
            }
            table.chunks[number] = Some(*chunk);
            for at in 0..CHUNK_NODES {
                let Some(entry) = slot.node(*chunk, at) else { continue };
                let place = number * CHUNK_NODES + at;
                match hold(entry.ino, entry.generation) {
                    Ok(node) => {
                        let open = Open::with_rights(node, entry.rights);
                        table.open[place] = Some(Arc::new(open));
                    }
                    Err(error) => {
                        tracing::warn!(%error, ino = entry.ino.0, "open in a session, and gone");
                        slot.closed(*chunk, at);
                    }
                }
            }
        }
        let free = |place: &u32| table.open[*place as usize].is_none();
        table.free = (0..table.open.len() as u32).rev().filter(free).collect();
        slot.set_closing(None);
        let nodes = Nodes { table: Mutex::new(table), slot: Some(slot) };
        // The dead server has taken its number off the client's memory.
        let closed = closing.and_then(|place| nodes.remove(Node(u64::from(place) + FIRST)));
        (nodes, closed)
    }

    /// Returns an open node, to be given to [`release`].
    pub(crate) fn get(&self, node: Node) -> Option<Arc<Open>> {
        let table = self.table.lock();
        table.open.get(place_of(node)? as usize)?.clone()
    }

    /// Adds a node that a call has opened.
    pub(crate) fn add(&self, open: Arc<Open>, opened: &NodeEntry) -> Result<Node> {
        let mut table = self.table.lock();
        let entry = NodeEntry { rights: open.rights(), ..*opened };
        let place = match table.free.pop() {
            Some(place) => {
                table.open[place as usize] = Some(open);
                place
            }
            None if table.open.len() >= NODES_MAX => {
                let message = format!("a session has at most {NODES_MAX} open files");
                return Err(Error::refused(Code::NoMemory, message));
            }
            None => {
                table.open.push(Some(open));
                (table.open.len() - 1) as u32
            }
        };
        if let Some(slot) = &self.slot {
            table.record(slot, place, &entry);
        }
        Ok(Node(u64::from(place) + FIRST))
    }

    /// Returns the node that a call has opened at a server before this one.
    pub(crate) fn opened_by(&self, asked: Asked) -> Option<Node> {
        let (slot, table) = (self.slot.as_ref()?, self.table.lock());
        let is_its = |place: &u32| {
            let entry = table.recorded(*place).and_then(|(chunk, at)| slot.node(chunk, at));
            entry.is_some_and(|entry| entry.mark == asked.mark())
        };
        let place = (0..table.open.len() as u32).find(is_its);
        place.map(|place| Node(u64::from(place) + FIRST))
    }

    /// Takes a node off the table, to be given to [`release`].
    pub(crate) fn remove(&self, node: Node) -> Option<Arc<Open>> {
        let place = place_of(node)?;
        let mut table = self.table.lock();
        let open = table.take(self.slot.as_ref(), place)?;
        table.free.push(place);
        Some(open)
    }

    /// Takes a node off the table that the client has noted as closed, and calls `taken` when it
    /// is known to be: the next server closes it, if this one dies on the way.
    pub(crate) fn remove_noted(&self, node: Node, taken: impl FnOnce()) -> Option<Arc<Open>> {
        let (Some(slot), Some(place)) = (&self.slot, place_of(node)) else {
            taken();
            return self.remove(node);
        };
        slot.set_closing(Some(place));
        taken();
        let mut table = self.table.lock();
        let open = table.take(Some(slot), place);
        slot.set_closing(None);
        // Not before: the number may be another file's at once.
        if open.is_some() {
            table.free.push(place);
        }
        open
    }

    /// Number of open nodes.
    pub(crate) fn len(&self) -> usize {
        let table = self.table.lock();
        table.open.len() - table.free.len()
    }

    /// Gives all of them back, and the place for them; unless another server goes on with it.
    pub(crate) fn close_all(&self, calls: &dyn Calls) {
        if self.slot.as_ref().is_some_and(|slot| slot.kept().is_left()) {
            return;
        }
        let mut table = std::mem::take(&mut *self.table.lock());
        for place in 0..table.open.len() as u32 {
            if let Some(open) = table.take(self.slot.as_ref(), place) {
                release(calls, open);
            }
        }
        if let Some(slot) = &self.slot {
            slot.give_back(table.chunks.into_iter().flatten());
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
    // What is freed with it is no change of the call.
    let _apart = housekeeping();
    if let Err(error) = calls.close(&Caller::root(), node) {
        tracing::warn!(%error, node = node.0, "a node of a session was not closed");
    }
}
