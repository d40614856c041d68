//! The tree: finding a leaf, making it, and letting go of nodes that are empty.
//!
//! Going down takes no lock. Whoever writes locks the leaf, looks whether it is dead (then it
//! starts again), changes it, and *settles*: if what the leaf's parent has to know has changed, it
//! locks the parent, and so on upwards as far as something changes, and keeps all of it locked
//! until that is done. So a mark whose setting has returned can be found from the root, and one
//! that is being cleared cannot take along one that another thread sets meanwhile: both hold the
//! leaf's lock, or the lock of the node where their paths meet.
//!
//! Writers in different leaves exclude each other only for such a step: with dense indexes for one
//! in 64.
//!
//! The tree grows by a node above the topmost, with that one locked, and shrinks by the opposite,
//! with both locked. A reader that still sees the old topmost node finds what there was when it
//! began.

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

/// How far the way to an index leads.
enum Way<'g, E: Entry> {
    /// To its leaf.
    Leaf(&'g Node<E>),
    /// To a node of this level whose slot for the index is empty.
    Missing(&'g Node<E>, usize),
    /// Nowhere: the topmost node, of this level, does not reach so far.
    Short(&'g Node<E>, usize),
    /// Nowhere: there is no node.
    Empty,
}

impl<E: Entry> Tree<E> {
    /// No node.
    pub fn new() -> Tree<E> {
        Tree { root: Root::new() }
    }

    #[inline]
    fn way<'g>(&self, index: u64, pin: &'g Pin<'_>) -> Way<'g, E> {
        // The way of every lookup, so by shifts rather than levels.
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

    /// The leaf that an index belongs to, if there is one. O(height), no lock.
    #[inline]
    pub fn leaf<'g>(&self, index: u64, pin: &'g Pin<'_>) -> Option<&'g Node<E>> {
        match self.way(index, pin) {
            Way::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// The same, locked and alive.
    #[inline]
    pub fn lock<'g>(&self, index: u64, pin: &'g Pin<'_>) -> Option<Locked<'g, E>> {
        loop {
            let leaf = self.leaf(index, pin)?.lock();
            if !leaf.is_dead() {
                return Some(leaf);
            }
        }
    }

    /// The same, made if there is none.
    #[inline]
    pub fn lock_or_make<'g>(
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

    /// Makes all that an index out of reach needs, and sets it on top of the tree at once.
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
        // If not, then somebody was faster: the next look will tell.
        if !top.is_dead() && self.root.is(&top) {
            self.root.raise(&top, spine, pin);
        }
        Ok(())
    }

    /// To be called with a leaf that was changed, and the summary of it before.
    #[inline]
    pub fn settle(&self, leaf: Locked<'_, E>, before: Summary, pin: &Pin<'_>) {
        if leaf.summary().differs(before) {
            self.ascend(leaf, before, pin);
        }
    }

    /// The same where an entry was put in and nothing else: the parent can only have to know that
    /// the leaf has become full.
    #[inline]
    pub fn settle_put(&self, leaf: Locked<'_, E>, was_full: bool, pin: &Pin<'_>) {
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
        let mut spare = false;
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
            spare = dead.is_some() && parent.is_spare();
            *held = Some(std::mem::replace(&mut node, parent));
        }
        // From here on no lock is held: what is retired may run anything.
        drop((node, held));
        for dead in dead.into_iter().flatten() {
            dead.retire(pin);
        }
        if spare {
            self.lower(pin);
        }
    }

    /// Takes off topmost nodes that have only their first child.
    fn lower(&self, pin: &Pin<'_>) {
        loop {
            let Some((top, level)) = self.root.load(pin) else { return };
            if level == 0 || top.slots(Select::Present) != 1 {
                return;
            }
            let Some(child) = top.child(0, pin) else { return };
            let (child, top) = (child.lock(), top.lock());
            // Whoever changed it meanwhile will come here, or has put something into it.
            if child.is_dead() || top.is_dead() || !top.is_spare() || !self.root.is(&top) {
                return;
            }
            let dead = self.root.lower(&top, &child);
            drop((top, child));
            if let Some(dead) = dead {
                dead.retire(pin);
            }
        }
    }

    /// The first slot at or after `from`, and not after `to`, that `select` means: its index, leaf
    /// and place. O(height) for each node that is looked at; no lock.
    pub fn next<'g>(
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

    /// The lowest index from `from` to `to` that looks free. O(height) for each node on whose way
    /// something changes, no lock.
    pub fn next_free(&self, from: u64, to: u64, pin: &Pin<'_>) -> Option<u64> {
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

    /// Nodes, from the topmost down. O(nodes); what changes meanwhile may be counted or not.
    pub fn count_nodes(&self, pin: &Pin<'_>) -> usize {
        self.root.load(pin).map_or(0, |(top, _)| count_below(top, pin))
    }
}

fn count_below<E: Entry>(node: &Node<E>, pin: &Pin<'_>) -> usize {
    let below = (0..FANOUT).filter_map(|place| node.child(place, pin));
    1 + below.map(|child| count_below(child, pin)).sum::<usize>()
}

/// The lowest level of a topmost node that reaches the index.
fn height_for(index: u64) -> usize {
    (0..LEVELS).find(|level| reaches(*level, index)).unwrap_or(LEVELS - 1)
}

/// An empty leaf for an index, and nodes above it up to a level.
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

/// Makes what is missing between a node and the leaf of an index, and hangs it there at once.
fn hang<E: Entry>(parent: &Node<E>, level: usize, index: u64) -> Result<(), AllocError> {
    let branch = branch(index, level - 1)?;
    let parent = parent.lock();
    // If not, then somebody was faster: the next look will tell.
    if !parent.is_dead() && parent.is_vacant(offset(index, level)) {
        parent.adopt(offset(index, level), branch);
    }
    Ok(())
}
