//! The answer to a question that a dead server may have carried out and has not answered.
//!
//! A client asks again what was not answered ([`crate::connect::word::AGAIN`]). The memory of the
//! sessions and the cells beside the ring say whether the call was made ([`crate::kept`]).
//!
//! *Made* means that its first record is in the recovered journal: what a call does after that is
//! completed by recovery, but for the calls of several changes of their own, which have a row
//! below. The answer to a call that was made is what is there now. Others may have changed that
//! since, as they may after any call.
//!
//! | row | if it was made |
//! | --- | --- |
//! | `open_file`, `open_handle` | the node that the dead server had recorded; else the file is opened as it is, without making or cutting it |
//! | `make_dir`, `make_subvolume` | the same, for the directory |
//! | `make_node`, `symlink`, `link`, `set_attr` | the attributes; `ESTALE` if it has been removed since |
//! | `unlink`, `remove_dir`, `remove_tree`, `rename`, `set_xattr`, `remove_xattr`, `set_size`, `revoke_tokens`, `delete_subvolume`, `remove_quota`, `keep_removed` | success |
//! | `batch` | success: it is one change |
//! | `write` | the place and number of bytes that the dead server had stored; else all of it was written, as it is one record: where the file ends now, if it was appended |
//! | `put` | two steps, each made once: the file is opened, made or cut; all bytes are written, at once. The second is made on the file of the first, whatever has its name now |
//! | `make_dirs` | made again: directories that are there stay |
//! | `allocate`, `set_quota`, `set_label` | made again, with the same result |
//! | `make_temporary` | made again: the first has no name, and goes |
//! | `change_tree` | `EIO`, as for a change that was in progress, if it had begun: a part of it may have been made |
//! | rows that read | made again. A list of changes that was being read is over: `ESTALE` |
//!
//! A call that had returned an error returns it again. A call that was in work while many servers
//! died, or that has panicked, is refused with `EIO`.
//!
//! *Permissions.* A client that lies may say of any call that it was made. So a file is opened anew
//! only if the caller may open it, or owns it: the one who has made a file without permissions has
//! it open.
//!
//! *Notices* that the dead server owed a kernel are given again ([`Host::retell`]).

use crate::calls::types::*;
use crate::calls::{self, AT_END, Calls, Node, Opened, number};
use crate::gate::{Admit, Gate};
use crate::kept::{Asked, Made};
use crate::nodes::{close, release};
use crate::serve::{Changed, Client, Numbers, is_noted, name_of};
use crate::trees::cut_off;
use crate::wire::{Put, Reader, Take, TreeQuestion, Writer};
use shoal_engine::{BatchOp, Caller, Code, Error, Left, Outcome, Result};

/// The answer to a call that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// Success.
    Success,
    /// The attributes of a path.
    Attributes,
    /// A file or a directory, open.
    Open,
    /// Place and number of bytes.
    Written,
    /// The second step may be missing.
    Steps,
    /// The call is made again.
    Again,
}

/// The decision for each row that changes the volume.
const DECISIONS: &[(u16, Answer)] = &[
    (number::open_file, Answer::Open),
    (number::open_handle, Answer::Open),
    (number::make_dir, Answer::Open),
    (number::make_dirs, Answer::Again),
    (number::make_node, Answer::Attributes),
    (number::symlink, Answer::Attributes),
    (number::link, Answer::Attributes),
    (number::unlink, Answer::Success),
    (number::remove_dir, Answer::Success),
    (number::remove_tree, Answer::Success),
    (number::rename, Answer::Success),
    (number::set_attr, Answer::Attributes),
    (number::set_xattr, Answer::Success),
    (number::remove_xattr, Answer::Success),
    (number::set_size, Answer::Success),
    (number::write, Answer::Written),
    (number::allocate, Answer::Again),
    (number::put, Answer::Steps),
    (number::revoke_tokens, Answer::Success),
    (number::make_subvolume, Answer::Open),
    // The first has no name, and goes.
    (number::make_temporary, Answer::Again),
    (number::delete_subvolume, Answer::Success),
    (number::set_quota, Answer::Again),
    (number::remove_quota, Answer::Success),
    (number::keep_removed, Answer::Success),
    (number::set_label, Answer::Again),
    (number::batch, Answer::Success),
    // Its questions are looked at before.
    (number::change_tree, Answer::Again),
];

fn decision(number: u16) -> Answer {
    let row = DECISIONS.iter().find(|(of, _)| *of == number);
    row.map_or(Answer::Again, |(_, answer)| *answer)
}

/// A call that is asked again.
pub(crate) struct Resent<'a> {
    /// Number of its row.
    pub number: u16,
    /// The call.
    pub asked: Asked,
    /// The user that makes it.
    pub who: &'a Caller,
    /// Its arguments.
    pub question: &'a [u8],
}

impl Client {
    /// Answers a question that a server before this one may have answered: appends the result to
    /// `out`. `cell`: what a cell says of the call, and of which step; taken if the call is made
    /// now, else it is to be given back when the outcome has been stored.
    pub(crate) fn answer_again(
        &self,
        resent: Resent<'_>,
        cell: &mut Option<(u8, Left)>,
        out: &mut Vec<u8>,
    ) -> Result<Numbers> {
        let Resent { number, asked, who, question } = resent;
        if number == number::change_tree {
            return self.tree_again(asked, who, question, out);
        }
        let stored = self.slot.as_ref().and_then(|slot| slot.outcome_of(asked));
        let (step, outcome) =
            cell.as_ref().map_or((0, Outcome::Undone), |(step, left)| (*step, left.outcome));
        let of_row = decision(number);
        // The first step of two is behind a cell of the second, or is stored.
        let stepped = stored == Some(Made::Step) || step > 0;
        let made = match (stored, outcome) {
            (Some(Made::Failed(errno)), _) => return Err(again(errno)),
            (Some(Made::Done(first, second)), _) => Some(Some((first, second))),
            (_, Outcome::Deadly) => {
                tracing::error!(call = name_of(number), "refused: servers have died of this call");
                return Err(Code::Io.into());
            }
            (_, Outcome::Done) if of_row != Answer::Steps || step > 0 => Some(None),
            _ => None,
        };
        // What the dead server had opened for a call that is made again is not the client's.
        let opened = self.nodes.opened_by(asked);
        let (mut gate, _changing) = self.gate(number, asked)?;
        let cx = &mut Cx { client: self, gate: &mut gate, who, question, opened };
        match (made, of_row) {
            (Some(_), Answer::Success) => cx.success().map(|()| (0, 0)),
            (Some(_), Answer::Attributes) => cx.attributes(out).map(|()| (0, 0)),
            (Some(_), Answer::Open) => cx.open(out).map(|()| (0, 0)),
            (Some(numbers), Answer::Written) => cx.written(numbers, out),
            (Some(_), Answer::Steps) => {
                cx.forget();
                cx.success().map(|()| (0, 0))
            }
            (None, Answer::Open) if opened.is_some() => cx.open(out).map(|()| (0, 0)),
            (None, Answer::Steps) if stepped || outcome == Outcome::Done => {
                let of_step = cell.take_if(|(step, _)| *step > 0);
                self.note(asked, 1, of_step.map(|(_, left)| left));
                cx.fill().map(|()| (0, 0))
            }
            _ => {
                cx.forget();
                drop(gate);
                if is_noted(number) {
                    // One that is made again all the same has nothing to do with what was left.
                    self.note(asked, 0, cell.take().map(|(_, left)| left));
                }
                self.answer((number, asked), who, question, out)
            }
        }
    }

    fn tree_again(
        &self,
        asked: Asked,
        who: &Caller,
        question: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Numbers> {
        match TreeQuestion::take(&mut Reader::new(question))? {
            TreeQuestion::Begin { .. }
                if self.slot.as_ref().is_some_and(|slot| slot.outcome_of(asked).is_some()) =>
            {
                Err(cut_off())
            }
            TreeQuestion::Leave { .. } => Ok((0, 0)),
            TreeQuestion::Begin { .. } | TreeQuestion::Next { .. } => {
                self.answer((number::change_tree, asked), who, question, out)
            }
        }
    }
}

/// The error that a call had returned.
fn again(errno: i32) -> Error {
    let code = Code::ALL.iter().find(|code| code.errno() == errno);
    code.copied().unwrap_or(Code::Io).into()
}

/// The error of a call that was made, and whose file somebody else has removed or replaced since.
fn gone() -> Error {
    Error::refused(Code::Stale, "the call was made, and others have removed its file since")
}

fn unless_gone<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| if error.is(Code::NotFound) { gone() } else { error })
}

/// A call that was made.
struct Cx<'a, 'g> {
    client: &'a Client,
    gate: &'a mut Gate<'g>,
    who: &'a Caller,
    question: &'a [u8],
    /// The node that the dead server had opened for it.
    opened: Option<Node>,
}

impl<'a> Cx<'a, '_> {
    fn retell(&self, changed: Changed<'_>) {
        self.client.host.retell(changed);
    }

    /// Closes what the dead server had opened for the call.
    fn forget(&mut self) {
        if let Some(node) = self.opened.take() {
            self.client.close(node);
        }
    }

    /// The directory and the path with which the arguments begin.
    fn place(&mut self, args: &mut Reader<'a>) -> Result<(Node, &'a [u8])> {
        let (dir, path): (Node, &[u8]) = Take::take(args)?;
        Ok((dir.admit(self.gate)?, path))
    }

    /// Tells of the names and inodes that the call has changed.
    fn success(&mut self) -> Result<()> {
        let mut args = Reader::new(self.question);
        match self.gate.number {
            number::unlink | number::remove_dir | number::remove_tree | number::put => {
                let (dir, path) = self.place(&mut args)?;
                self.retell(Changed::Name(dir, path));
            }
            number::rename => {
                for _ in 0..2 {
                    let (dir, path) = self.place(&mut args)?;
                    self.retell(Changed::Name(dir, path));
                }
            }
            number::set_xattr | number::remove_xattr => {
                let (dir, path) = self.place(&mut args)?;
                let follow = Take::take(&mut args)?;
                // It may have been removed since.
                if let Ok(attr) = self.gate.calls.find(self.who, dir, path, follow) {
                    self.retell(Changed::Inode(attr.ino));
                }
            }
            number::set_size => {
                let file = Node::take(&mut args)?.admit(self.gate)?;
                let attr = self.gate.calls.attr(self.who, file)?;
                self.retell(Changed::Inode(attr.ino));
            }
            number::batch => self.batch(&mut args)?,
            number::delete_subvolume => {
                let name: &[u8] = Take::take(&mut args)?;
                self.retell(Changed::Name(Node::TOP, name));
            }
            _ => {}
        }
        Ok(())
    }

    fn batch(&mut self, args: &mut Reader<'a>) -> Result<()> {
        let dir = Node::take(args)?.admit(self.gate)?;
        while !args.is_at_end() {
            match Take::take(args)? {
                BatchOp::File { path, .. }
                | BatchOp::Dir { path, .. }
                | BatchOp::Symlink { path, .. }
                | BatchOp::Remove { path }
                | BatchOp::RemoveDir { path }
                | BatchOp::SetAttr { path, .. }
                | BatchOp::SetXattr { path, .. } => self.retell(Changed::Name(dir, path)),
                BatchOp::Link { from, to } | BatchOp::Rename { from, to, .. } => {
                    self.retell(Changed::Name(dir, from));
                    self.retell(Changed::Name(dir, to));
                }
            }
        }
        Ok(())
    }

    /// Answers with the attributes of what the call has made or changed.
    fn attributes(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let mut args = Reader::new(self.question);
        let (mut dir, mut path) = self.place(&mut args)?;
        let mut follow = false;
        match self.gate.number {
            number::link => (dir, path) = self.place(&mut args)?,
            number::set_attr => follow = Take::take(&mut args)?,
            _ => {}
        }
        let attr = unless_gone(self.gate.calls.find(self.who, dir, path, follow))?;
        match self.gate.number {
            number::set_attr => self.retell(Changed::Inode(attr.ino)),
            _ => self.retell(Changed::Name(dir, path)),
        }
        attr.put(&mut Writer::new(out));
        Ok(())
    }

    /// Answers with the node that the call has opened.
    fn open(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let known = self.opened.and_then(|node| Some((node, self.client.nodes.get(node)?)));
        let mut args = Reader::new(self.question);
        let opened = match known {
            Some((node, open)) => {
                let attr = self.gate.calls.attr(self.who, open.node);
                release(self.gate.calls, open);
                Opened { node, attr: attr? }
            }
            None => {
                let opened = match self.gate.number {
                    number::make_subvolume => {
                        let name: &[u8] = Take::take(&mut args)?;
                        unless_gone(self.gate.calls.open_subvolume(self.who, name))?
                    }
                    _ => self.open_now(&mut args)?,
                };
                let node = self.gate.opened(&opened)?;
                Opened { node, ..opened }
            }
        };
        let mut args = Reader::new(self.question);
        match self.gate.number {
            number::open_file | number::make_dir => {
                let (dir, path) = self.place(&mut args)?;
                self.retell(Changed::Name(dir, path));
            }
            number::make_subvolume => {
                self.retell(Changed::Name(Node::TOP, Take::take(&mut args)?));
            }
            _ => {}
        }
        self.retell(Changed::Inode(opened.attr.ino));
        opened.put(&mut Writer::new(out));
        Ok(())
    }

    /// Opens what is there now, without changing it. Returns the node of the volume.
    fn open_now(&mut self, args: &mut Reader<'_>) -> Result<Opened> {
        let (who, calls) = (self.who, self.gate.calls);
        let dir = Node::take(args)?.admit(self.gate)?;
        match self.gate.number {
            number::make_dir => {
                let path: &[u8] = Take::take(args)?;
                unless_gone(calls.open_dir(who, dir, path))
            }
            number::open_handle => {
                let (handle, how): (Handle, Option<How>) = Take::take(args)?;
                let how = how.admit(self.gate)?.map(as_it_is);
                calls.open_handle(who, dir, handle, how)
            }
            _ => {
                let (path, how): (&[u8], How) = Take::take(args)?;
                let how = how.admit(self.gate)?;
                unless_gone(open_own(calls, who, (dir, path), how))
            }
        }
    }

    /// Answers with the place and the number of bytes.
    fn written(&mut self, stored: Option<Numbers>, out: &mut Vec<u8>) -> Result<Numbers> {
        let ((file, at), bytes): ((Node, u64), &[u8]) =
            Take::take(&mut Reader::new(self.question))?;
        let (file, at) = (file.admit(self.gate)?, at.admit(self.gate)?);
        let attr = self.gate.calls.attr(self.who, file)?;
        self.retell(Changed::Inode(attr.ino));
        let len = bytes.len() as u64;
        let numbers = stored.unwrap_or_else(|| match at {
            AT_END => (attr.size.saturating_sub(len), len),
            at => (at, len),
        });
        numbers.put(&mut Writer::new(out));
        Ok(numbers)
    }

    /// Makes the second step of [`Calls::put`].
    fn fill(&mut self) -> Result<()> {
        let mut args = Reader::new(self.question);
        let (dir, path) = self.place(&mut args)?;
        let (how, bytes): (How, &[u8]) = Take::take(&mut args)?;
        let how = how.admit(self.gate)?;
        let node = match self.opened {
            Some(node) => node,
            // The server died between the change and its note of the file.
            None => match open_own(self.gate.calls, self.who, (dir, path), how) {
                Ok(opened) => self.gate.opened(&opened)?,
                // It was made, and somebody has removed it.
                Err(error) if error.is(Code::NotFound) => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        self.retell(Changed::Name(dir, path));
        self.client.fill(self.gate, self.who, node, bytes)
    }
}

/// Options to open a file as it is.
fn as_it_is(how: How) -> How {
    How { create: false, create_new: false, truncate: false, ..how }
}

/// Opens a file that a call of this caller has opened before: also one that is its own, and that it
/// may not open now.
fn open_own(
    calls: &dyn Calls,
    who: &Caller,
    (dir, path): (Node, &[u8]),
    how: calls::How,
) -> Result<Opened> {
    let found = calls.find(who, dir, path, !how.create_new)?;
    let how = as_it_is(how);
    match calls.open_file(who, dir, path, how) {
        Err(error) if error.is(Code::Access) && found.uid == who.uid => {
            let opened = calls.open_file(&Caller::root(), dir, path, how)?;
            if opened.attr.uid == who.uid && opened.attr.ino == found.ino {
                return Ok(opened);
            }
            // Another has taken its place since.
            close(calls, opened.node);
            Err(error)
        }
        Ok(opened) if opened.attr.ino != found.ino => {
            close(calls, opened.node);
            Err(gone())
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Effect, ROWS};

    /// Whoever adds a row that changes the volume decides what a call means that was made.
    #[test]
    fn each_row_that_changes_the_volume_has_a_decision() {
        for row in ROWS {
            let rows = DECISIONS.iter().filter(|(number, _)| *number == row.number).count();
            assert_eq!(rows, usize::from(row.effect == Effect::Changes), "{}", row.name);
        }
        assert!(DECISIONS.iter().all(|(number, _)| name_of(*number).is_some()));
    }
}
