//! The tree: finding and making leaves, and removing empty nodes.
//!
//! Descending takes no lock. A writer locks the leaf, checks that it is not dead (otherwise it
//! starts again), changes it, and *settles*: if the leaf's summary has changed, it locks the
//! parent, and so on upwards as far as summaries change, and keeps all of them locked until it is
//! done. So a mark is reachable from the root once setting it has returned, and clearing a mark
//! cannot remove one that another thread sets meanwhile: both threads hold the leaf's lock, or the
//! lock of the node where their paths meet.
//!
//! Writers in different leaves exclude each other only during such a step: with dense indexes in
//! one write of 64.
//!
//! The tree grows by a node above the topmost one, with that one locked, and shrinks by the
//! opposite, with both locked. A reader that still uses the old topmost node finds the state at its
//! start.

use crate::alloc::AllocError;
use crate::entry::Entry;
use crate::epoch::Pin;
use crate::node::{
    BITS, Dead, FANOUT, LEVELS, Locked, NewNode, Node, Root, Select, Summary, last_below, offset,
    place, reaches, reaches_from,
};

/// The nodes of an array.
pub(crate) struct Tree<E: Entry> {
    root: Root<E>,
}

/// The result of descending to an index.
enum Way<'g, E: Entry> {
    /// The leaf.
    Leaf(&'g Node<E>),
    /// A node of this level, whose slot for the index is empty.
    Missing(&'g Node<E>, usize),
    /// The topmost node, of this level, does not reach the index.
    Short(&'g Node<E>, usize),
    /// There is no node.
    Empty,
}

impl<E: Entry> Tree<E> {
    /// A tree without nodes.
    pub(crate) fn new() -> Tree<E> {
        Tree { root: Root::new() }
    }

    #[inline]
    fn way<'g>(&self, index: u64, pin: &'g Pin<'_>) -> Way<'g, E> {
        // The path of every lookup, so by shifts rather than levels.
        let Some((mut node, mut shift)) = self.root.top(pin) else { return Way::Empty };
        if !reaches_from(shift, index) {
            return Way::Short(node, (shift / BITS) as usize);
        }
        while shift > 0 {
            let Some(child) = node.child(place(index, shift), pin) else {
                return Way::Missing(node, (shift / BITS) as usize);
            };
            (node, shift) = (child, shift - BITS);
        }
        Way::Leaf(node)
    }

    /// Returns the leaf of an index, if there is one. O(height), no lock.
    #[inline]
    pub(crate) fn leaf<'g>(&self, index: u64, pin: &'g Pin<'_>) -> Option<&'g Node<E>> {
        match self.way(index, pin) {
            Way::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// Returns the leaf of an index, locked and alive, if there is one.
    #[inline]
    pub(crate) fn lock<'g>(&self, index: u64, pin: &'g Pin<'_>) -> Option<Locked<'g, E>> {
        loop {
            let leaf = self.leaf(index, pin)?.lock();
            if !leaf.is_dead() {
                return Some(leaf);
            }
        }
    }

    /// Returns the leaf of an index, locked and alive; makes it if there is none.
    #[inline]
    pub(crate) fn lock_or_make<'g>(
        &self,
        index: u64,
        pin: &'g Pin<'_>,
    ) -> Result<Locked<'g, E>, AllocError> {
        match self.lock(index, pin) {
            Some(leaf) => Ok(leaf),
            None => self.make(index, pin),
        }
    }

    #[cold]
    fn make<'g>(&self, index: u64, pin: &'g Pin<'_>) -> Result<Locked<'g, E>, AllocError> {
        loop {
            match self.way(index, pin) {
                Way::Leaf(leaf) => {
                    let leaf = leaf.lock();
                    if !leaf.is_dead() {
                        return Ok(leaf);
                    }
                }
                Way::Missing(parent, level) => hang(parent, level, index)?,
                Way::Short(top, level) => self.raise(top, level, index, pin)?,
                Way::Empty => self.root.plant(branch(index, height_for(index))?),
            }
        }
    }

    /// Makes all nodes for an index beyond the tree's reach, and puts them on top of the tree at
    /// once.
    fn raise(
        &self,
        top: &Node<E>,
        level: usize,
        index: u64,
        pin: &Pin<'_>,
    ) -> Result<(), AllocError> {
        let height = height_for(index);
        let mut spine = NewNode::try_new(level + 1, 0)?;
        for level in level + 2..=height {
            let above = NewNode::try_new(level, 0)?;
            above.adopt(spine);
            spine = above;
        }
        spine.adopt(branch(index, height - 1)?);
        let top = top.lock();
        // Otherwise another thread was faster; the next round sees it.
        if !top.is_dead() && self.root.is(&top) {
            self.root.raise(&top, spine, pin);
        }
        Ok(())
    }

    /// Propagates a change of a leaf to the nodes above. `before` is its summary before the change.
    #[inline]
    pub(crate) fn settle(&self, leaf: Locked<'_, E>, before: Summary, pin: &Pin<'_>) {
        if leaf.summary().differs(before) {
            self.ascend(leaf, before, pin);
        }
    }

    /// The same after an entry was stored and nothing else: the only possible news for the parent
    /// is that the leaf became full.
    #[inline]
    pub(crate) fn settle_put(&self, leaf: Locked<'_, E>, was_full: bool, pin: &Pin<'_>) {
        if leaf.is_full() != was_full {
            let before = leaf.summary().with_full(was_full);
            self.ascend(leaf, before, pin);
        }
    }

    #[cold]
    fn ascend<'g>(&self, leaf: Locked<'g, E>, mut before: Summary, pin: &'g Pin<'_>) {
        let mut dead: [Option<Dead<E>>; LEVELS] = [const { None }; LEVELS];
        let mut held: [Option<Locked<'g, E>>; LEVELS] = [const { None }; LEVELS];
        let mut node = leaf;
        let mut may_lower = false;
        for (dead, held) in dead.iter_mut().zip(&mut held) {
            let summary = node.summary();
            if !summary.differs(before) {
                break;
            }
            let Some(parent) = node.parent(pin) else {
                if summary.empty {
                    *dead = self.root.clear(&node);
                }
                break;
            };
            let parent = parent.lock();
            before = parent.summary();
            *dead = parent.note(&node, summary);
            may_lower = dead.is_some() && parent.has_only_first_child();
            *held = Some(std::mem::replace(&mut node, parent));
        }
        // From here on no lock is held: retiring may run any destructor.
        drop((node, held));
        for dead in dead.into_iter().flatten() {
            dead.retire(pin);
        }
        if may_lower {
            self.lower(pin);
        }
    }

    /// Removes topmost nodes that have only their first child.
    fn lower(&self, pin: &Pin<'_>) {
        loop {
            let Some((top, level)) = self.root.load(pin) else { return };
            if level == 0 || top.slots(Select::Present) != 1 {
                return;
            }
            let Some(child) = top.child(0, pin) else { return };
            let (child, top) = (child.lock(), top.lock());
            // A thread that changed it meanwhile will come here itself, or has stored something
            // in it.
            if child.is_dead()
                || top.is_dead()
                || !top.has_only_first_child()
                || !self.root.is(&top)
            {
                return;
            }
            let dead = self.root.lower(&top, &child);
            drop((top, child));
            if let Some(dead) = dead {
                dead.retire(pin);
            }
        }
    }

    /// Returns the first slot from `from` to `to` that matches `select`, as index and leaf.
    /// O(height) for each node visited; no lock.
    pub(crate) fn next<'g>(
        &self,
        from: u64,
        to: u64,
        select: Select,
        pin: &'g Pin<'_>,
    ) -> Option<(u64, &'g Node<E>)> {
        let mut index = from;
        loop {
            let (mut node, mut level) = self.root.load(pin)?;
            if index > to || !reaches(level, index) {
                return None;
            }
            let last = loop {
                let at = offset(index, level);
                let slots = node.slots(select) >> at;
                let skip = u64::from(slots.trailing_zeros());
                if slots == 0 {
                    break last_below(index, level + 1);
                }
                if skip > 0 {
                    // At most the last index of the node.
                    index = last_below(index, level) + 1 + ((skip - 1) << (level as u32 * BITS));
                }
                if index > to {
                    return None;
                }
                if level == 0 {
                    return Some((index, node));
                }
                match node.child(offset(index, level), pin) {
                    Some(child) => (node, level) = (child, level - 1),
                    None => break last_below(index, level),
                }
            };
            index = last.checked_add(1)?;
        }
    }

    /// Returns the lowest index from `from` to `to` that looks free. O(height) for each node on
    /// whose path something changes, no lock.
    pub(crate) fn next_free(&self, from: u64, to: u64, pin: &Pin<'_>) -> Option<u64> {
        let mut index = from;
        'again: while index <= to {
            let Some((mut node, mut level)) = self.root.load(pin) else { return Some(index) };
            if !reaches(level, index) {
                return Some(index);
            }
            loop {
                let at = offset(index, level);
                let free = node.free() >> at;
                if free == 0 {
                    index = last_below(index, level + 1).checked_add(1)?;
                    continue 'again;
                }
                let skip = u64::from(free.trailing_zeros());
                if skip > 0 {
                    let span = (skip - 1) << (level as u32 * BITS);
                    index = last_below(index, level).checked_add(1)?.checked_add(span)?;
                }
                if index > to {
                    return None;
                }
                match node.child(offset(index, level), pin) {
                    Some(child) if level > 0 => (node, level) = (child, level - 1),
                    _ => return Some(index),
                }
            }
        }
        None
    }

    /// Number of nodes. O(nodes); nodes added or removed meanwhile may be counted or not.
    pub(crate) fn count_nodes(&self, pin: &Pin<'_>) -> usize {
        self.root.load(pin).map_or(0, |(top, _)| count_below(top, pin))
    }
}

fn count_below<E: Entry>(node: &Node<E>, pin: &Pin<'_>) -> usize {
    let below = (0..FANOUT).filter_map(|place| node.child(place, pin));
    1 + below.map(|child| count_below(child, pin)).sum::<usize>()
}

/// The lowest level at which a topmost node reaches the index.
fn height_for(index: u64) -> usize {
    (0..LEVELS).find(|level| reaches(*level, index)).unwrap_or(LEVELS - 1)
}

/// Makes an empty leaf for an index, and nodes above it up to a level.
fn branch<E: Entry>(index: u64, level: usize) -> Result<NewNode<E>, AllocError> {
    let place = |level| if level + 1 < LEVELS { offset(index, level + 1) } else { 0 };
    let mut node = NewNode::try_new(0, place(0))?;
    for level in 1..=level {
        let above = NewNode::try_new(level, place(level))?;
        above.adopt(node);
        node = above;
    }
    Ok(node)
}

/// Makes the missing nodes between a node and the leaf of an index, and attaches them at once.
fn hang<E: Entry>(parent: &Node<E>, level: usize, index: u64) -> Result<(), AllocError> {
    let branch = branch(index, level - 1)?;
    let parent = parent.lock();
    // Otherwise another thread was faster; the next round sees it.
    if !parent.is_dead() && parent.is_vacant(offset(index, level)) {
        parent.adopt(offset(index, level), branch);
    }
    Ok(())
}
