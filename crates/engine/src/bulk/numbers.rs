//! Attributes of inodes by number.

use super::{Answers, Bulk, Wish, block_of, check_privileged};
use crate::stat::attr_of;
use crate::types::{Caller, Fields, Stat, StatItem};
use shoal_base::{Code, Error, Generation, Ino, Result};
use shoal_itable::BlockView;

/// An item by number, and its position in the chunk.
#[derive(Clone, Copy)]
struct Numbered {
    ino: Ino,
    generation: Option<Generation>,
    at: usize,
}

impl Bulk<'_> {
    /// Answers the items of a chunk that are numbers.
    pub(super) fn numbers(
        self,
        who: &Caller,
        items: &[StatItem<'_>],
        wish: Wish,
        answers: &mut Answers,
    ) {
        let numbered = items.iter().enumerate().filter_map(|(at, item)| match *item {
            StatItem::Number(ino, generation) => Some(Numbered { ino, generation, at }),
            StatItem::Name(..) => None,
        });
        let mut numbered: Vec<Numbered> = numbered.collect();
        if let Err(denied) = check_privileged(who) {
            numbered.iter().for_each(|item| answers[item.at] = Err(denied.clone()));
            return;
        }
        numbered.sort_unstable_by_key(|item| item.ino);
        let mut missing = Vec::new();
        for block in numbered.chunk_by(|a, b| block_of(a.ino) == block_of(b.ino)) {
            match self.in_memory(block, answers) {
                Ok(true) => {}
                Ok(false) => missing.push(block),
                Err(e) => block.iter().for_each(|item| answers[item.at] = Err(e.clone())),
            }
        }
        if missing.is_empty() || !wish.may_read() {
            let unknown = missing.into_iter().flatten();
            unknown.for_each(|item| answers[item.at] = Ok(unread(item.ino)));
            return;
        }
        let first = missing.iter().filter_map(|block| block.first());
        self.0.store.read_ahead().inodes(first.map(|item| item.ino));
        for block in missing {
            if let Err(e) = self.read(block, answers) {
                block.iter().for_each(|item| answers[item.at] = Err(e.clone()));
            }
        }
    }

    /// Answers the items of one block. Returns `false` if it is not in memory.
    fn in_memory(self, items: &[Numbered], answers: &mut Answers) -> Result<bool> {
        let Some(first) = items.first() else { return Ok(true) };
        let table = &self.0.root(first.ino)?.table;
        let pin = table.pin();
        let Some(view) = table.view(&pin, block_of(first.ino).1) else { return Ok(false) };
        self.answer(items, &view, answers);
        Ok(true)
    }

    /// As [`Bulk::in_memory`]; reads the block if necessary.
    fn read(self, items: &[Numbered], answers: &mut Answers) -> Result<()> {
        let Some(first) = items.first() else { return Ok(()) };
        let table = &self.0.root(first.ino)?.table;
        table.with_view(block_of(first.ino).1, |view| self.answer(items, view, answers))
    }

    fn answer(self, items: &[Numbered], view: &BlockView<'_>, answers: &mut Answers) {
        for item in items {
            let attr = view.look(item.ino, |inode| attr_of(item.ino, inode));
            answers[item.at] = attr.and_then(|attr| {
                let other = item.generation.is_some_and(|known| known != attr.generation);
                let gone = attr.nlink == 0 && !self.0.holds.is_held(item.ino);
                match other || gone {
                    true => Err(Error::Code(Code::Stale)),
                    false => Ok(Stat::from(attr)),
                }
            });
        }
    }
}

/// The answer for an inode that is not in memory and must not be read.
fn unread(ino: Ino) -> Stat {
    Stat { valid: Fields::NONE, ino: ino.0, ..Stat::default() }
}
