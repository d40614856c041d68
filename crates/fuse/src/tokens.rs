//! Nodes of files that were opened by a token, as names in a directory that exists in no volume.
//!
//! Such a file has a node of its own beside that of its inode, with a mode made of the token's
//! rights: where the kernel checks permissions, it lets everybody in whom the token lets in. The
//! node is also in the kernel's requests, so that the server knows the rights of each.
//!
//! Invariants:
//!
//! 1. No inode number has [`VIRTUAL`], and no node id is used twice.
//! 2. A token has at most one node, and a node lives as long as the kernel has references to it: so
//!    there are never more than the kernel holds.
//! 3. Each node holds its inode, whose number so cannot become another file's.

use crate::protocol::VIRTUAL;
use parking_lot::Mutex;
use shoal::raw::{Ino, Token};
use std::collections::HashMap;

/// Node of the directory of tokens.
pub(crate) const DIRECTORY: Ino = Ino(VIRTUAL);
/// Name of the directory of tokens, in the top directory. A real file of that name comes first.
pub const DIRECTORY_NAME: &str = ".shoal-open";

/// Returns whether a node is the directory of tokens, or a file in it.
#[inline]
pub(crate) fn is_virtual(node: Ino) -> bool {
    node.0 & VIRTUAL != 0
}

/// A file that was looked up by a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    /// The token.
    pub token: Token,
    /// Its file, which this node holds.
    pub ino: Ino,
    /// References of the kernel.
    lookups: u64,
}

/// The nodes of a mount.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<State>);

#[derive(Default)]
struct State {
    nodes: HashMap<u64, Shared>,
    by_token: HashMap<Token, u64>,
    /// Number of nodes made, ever.
    made: u64,
}

impl Tokens {
    /// Keeps the numbers of nodes apart from those of a server before this one, which are `ESTALE`.
    pub(crate) fn inherit(&self) {
        self.0.lock().made = crate::calls::first_number();
    }

    /// Gives the kernel a reference to the node of a token. Returns the node and whether it is new:
    /// then it has taken over the caller's hold of `ino`.
    pub(crate) fn refer(&self, token: &Token, ino: Ino) -> (Ino, bool) {
        let state = &mut *self.0.lock();
        let known = state.by_token.get(token).copied();
        if let Some(id) = known
            && let Some(node) = state.nodes.get_mut(&id)
        {
            node.lookups += 1;
            return (Ino(id), false);
        }
        state.made += 1;
        let id = VIRTUAL | state.made;
        state.nodes.insert(id, Shared { token: *token, ino, lookups: 1 });
        state.by_token.insert(*token, id);
        (Ino(id), true)
    }

    /// Drops `n` references of the kernel. Returns the inode that the caller must release, if they
    /// were the last.
    pub(crate) fn forget(&self, id: Ino, n: u64) -> Option<Ino> {
        let state = &mut *self.0.lock();
        let node = state.nodes.get_mut(&id.0)?;
        node.lookups = node.lookups.saturating_sub(n);
        if node.lookups > 0 {
            return None;
        }
        let node = state.nodes.remove(&id.0)?;
        state.by_token.remove(&node.token);
        Some(node.ino)
    }

    /// Returns whether a node holds this inode.
    pub(crate) fn hold(&self, ino: Ino) -> bool {
        self.0.lock().nodes.values().any(|node| node.ino == ino)
    }

    /// Returns a node that the kernel has references to.
    pub(crate) fn get(&self, id: Ino) -> Option<Shared> {
        self.0.lock().nodes.get(&id.0).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(seed: u8) -> Token {
        let mut bytes = [seed; 66];
        // Version 1, rights to read.
        (bytes[0], bytes[1]) = (1, 4);
        Token::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn a_node_lives_as_long_as_its_references() {
        let tokens = Tokens::default();
        let (first, is_new) = tokens.refer(&token(1), Ino(7));
        assert!(is_new && is_virtual(first) && first != DIRECTORY);
        assert_eq!(tokens.refer(&token(1), Ino(7)), (first, false));
        let (second, is_new) = tokens.refer(&token(2), Ino(7));
        assert!(is_new && second != first, "another token has other rights");
        assert_eq!(tokens.get(first).map(|node| node.token), Some(token(1)));
        assert_eq!(tokens.forget(first, 1), None);
        assert_eq!(tokens.forget(first, 1), Some(Ino(7)));
        assert!(tokens.get(first).is_none());
        assert_eq!(tokens.forget(first, 1), None, "nothing is released twice");
        let (third, is_new) = tokens.refer(&token(1), Ino(7));
        assert!(is_new && third != first, "a node id is never used again");
        assert_eq!(tokens.forget(third, u64::MAX), Some(Ino(7)));
        assert_eq!(tokens.forget(second, 1), Some(Ino(7)));
        let state = tokens.0.lock();
        assert!(state.nodes.is_empty() && state.by_token.is_empty());
    }
}
