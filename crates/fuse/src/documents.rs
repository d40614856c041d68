//! Documents about a mount: the files of its virtual directory `.shoal`.
//!
//! Each LOOKUP of a file makes a node of its own, with the text of that moment: however slowly a
//! program reads, it sees one state. A node lives as long as the kernel has references to it, but
//! only the newest [`DOCUMENTS_MAX`]: whoever holds an older one gets `ESTALE`.

use crate::protocol::{Errno, VIRTUAL};
use parking_lot::Mutex;
use shoal::raw::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the directory, in the top directory. A real file of that name comes first.
pub(crate) const DIRECTORY_NAME: &str = ".shoal";
/// Bits of the node ids of the directory and of documents.
const INFO: u64 = VIRTUAL | 1 << 61;
/// Node of the directory.
pub(crate) const DIRECTORY: Ino = Ino(INFO);
/// Most documents at a time.
const DOCUMENTS_MAX: usize = 64;

/// Returns whether a node is the directory or a document.
#[inline]
pub(crate) fn is_document(node: Ino) -> bool {
    node.0 & INFO == INFO
}

struct Document {
    text: Arc<[u8]>,
    lookups: u64,
}

/// The documents that the kernel has references to.
#[derive(Default)]
pub(crate) struct Documents(Mutex<State>);

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, Document>,
    made: u64,
}

impl Documents {
    /// Keeps the numbers of nodes apart from those of a server before this one, which are `ESTALE`.
    pub(crate) fn inherit(&self) {
        self.0.lock().made = crate::calls::first_number();
    }

    /// Makes a document, with one reference of the kernel.
    pub(crate) fn make(&self, text: Vec<u8>) -> Ino {
        let state = &mut *self.0.lock();
        state.made += 1;
        let id = INFO | state.made;
        state.nodes.insert(id, Document { text: text.into(), lookups: 1 });
        if state.nodes.len() > DOCUMENTS_MAX {
            state.nodes.pop_first();
        }
        Ino(id)
    }

    /// Returns the text of a document.
    ///
    /// # Errors
    /// `ESTALE`: there have been many newer ones.
    pub(crate) fn get(&self, id: Ino) -> Result<Arc<[u8]>, Errno> {
        self.0.lock().nodes.get(&id.0).map(|it| it.text.clone()).ok_or(Errno::ESTALE)
    }

    /// Drops `n` references of the kernel.
    pub(crate) fn forget(&self, id: Ino, n: u64) {
        let state = &mut *self.0.lock();
        let Some(document) = state.nodes.get_mut(&id.0) else { return };
        document.lookups = document.lookups.saturating_sub(n);
        if document.lookups == 0 {
            state.nodes.remove(&id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::VIRTUAL;

    #[test]
    fn the_newest_are_kept_as_long_as_the_kernel_has_them() {
        let documents = Documents::default();
        let first = documents.make(b"first".to_vec());
        let second = documents.make(b"second".to_vec());
        assert_eq!(documents.get(first).as_deref(), Ok(&b"first"[..]));
        documents.forget(first, 1);
        assert_eq!(documents.get(first), Err(Errno::ESTALE));
        let others: Vec<Ino> = (0..DOCUMENTS_MAX).map(|n| documents.make(vec![n as u8])).collect();
        assert_eq!(documents.get(second), Err(Errno::ESTALE), "pushed out");
        assert!(others.iter().all(|id| documents.get(*id).is_ok() && is_document(*id)));
        documents.forget(second, 1);
        others.iter().for_each(|id| documents.forget(*id, 1));
        assert!(documents.0.lock().nodes.is_empty());
        assert!(is_document(DIRECTORY));
        assert!(![1, VIRTUAL, VIRTUAL | 7].iter().any(|id| is_document(Ino(*id))));
    }
}
