//! The answer to a question, whatever brings it.

use crate::calls::types::*;
use crate::calls::{self, Calls, Effect, Node, Opened, ROWS, number, table};
use crate::feeds::Feeds;
use crate::gate::{Admit, Gate, Grant};
use crate::nodes::{Nodes, Open, close, release};
use crate::trees::Trees;
use crate::wire::{
    CHANGES_MAX, INODES_MAX, NAMES_MAX, Put, READ_MAX, Reader, Take, TreeQuestion, Writer,
    put_entry, too_many, too_much, unknown_row,
};
use shoal_engine::{
    BatchOp, Caller, ChangeMark, Code, Error, Fields, Filter, Freshness, Ino, Listing, Result,
    TreeChange, must_not_wait, refuse_to_wait,
};
use std::sync::Arc;

/// Bytes of entries in one answer. A longer listing goes on with the next question, so that no call
/// takes long.
const LISTED_MAX: usize = 32 << 10;
/// Bytes of a file in an answer that opens it. What is longer is left open, and read on.
const GOT_MAX: usize = READ_MAX;

/// Work that is left before a call may be answered.
pub type Owed = Box<dyn FnOnce() + Send>;

/// The volume of a server of sessions.
pub trait Host: Send + Sync + 'static {
    /// The calls.
    fn calls(&self) -> &dyn Calls;
    /// The directory that is the top of all sessions; it stays open.
    fn top(&self) -> Node {
        Node::TOP
    }
    /// Nothing may be changed, as on a mount that is read-only.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Number of the mount's filesystem (`st_dev`); 0 without a mount.
    fn device(&self) -> u64 {
        0
    }
    /// Takes what has to be done before the call that this thread has made may be answered, and
    /// that may wait for others: telling the kernel of a mount.
    fn owed(&self) -> Option<Owed> {
        None
    }
    /// The call that this thread has begun was refused, as it would have had to wait, and has
    /// changed nothing: nothing is owed for it.
    fn refused(&self) {}
    /// Returns whether this user may have a session: it may enter the mount.
    fn may_enter(&self, uid: u32) -> bool;
}

/// Returns whether a call may take long, or wait for the device, in any case.
pub(crate) fn is_slow(number: u16) -> bool {
    matches!(
        number,
        number::fsync
            | number::sync
            | number::totals
            | number::remove_tree
            | number::batch
            | number::allocate
            | number::inodes
            | number::paths_of
            | number::make_subvolume
            | number::delete_subvolume
            | number::set_quota
            | number::remove_quota
            | number::revoke_tokens
            | number::changes
            | number::next_changes
            | number::change_tree
    )
}

/// Returns whether a call is for the owner of the volume, who could read all of it anyway. A handle
/// names a file whatever the permissions of the directories on its path, as in
/// `open_by_handle_at(2)`, which is for the superuser too.
fn is_for_owner(number: u16) -> bool {
    matches!(
        number,
        number::revoke_tokens
            | number::paths_of
            | number::make_subvolume
            | number::open_handle
            | number::open_subvolume
            | number::delete_subvolume
            | number::set_quota
            | number::remove_quota
            | number::quotas
            | number::keep_removed
            | number::inodes
    )
}

/// Returns the name of a call, if there is one with this number.
pub(crate) fn name_of(number: u16) -> Option<&'static str> {
    ROWS.iter().find(|row| row.number == number).map(|row| row.name)
}

fn changes(number: u16) -> bool {
    // Opening a file changes the volume only in some ways: the gate looks.
    let depends = matches!(number, number::open_file | number::open_handle | number::put);
    !depends && ROWS.iter().any(|row| row.number == number && row.effect == Effect::Changes)
}

/// The server's half of the table.
macro_rules! answers {
    (
        $($(#[$doc:meta])* $number:literal $name:ident $effect:ident (
            $($arg:ident : $type:ty),* $(,)?
        ) -> $result:ty;)*
        by hand:
        $($(#[$hand_doc:meta])* $hand_number:literal $hand:ident $hand_effect:ident (
            $($hand_arg:ident : $hand_type:ty),* $(,)?
        ) -> $hand_result:ty;)*
    ) => {
        /// Answers a row with plain arguments: reads them, makes the call, and writes its result.
        fn answer_plain(
            gate: &mut Gate<'_>,
            who: &Caller,
            args: &mut Reader<'_>,
            out: &mut Writer<'_>,
        ) -> Result<()> {
            match gate.number {
                $($number => {
                    $(
                        let $arg: $type = Take::take(args)?;
                        let $arg: $type = Admit::admit($arg, gate)?;
                    )*
                    args.end()?;
                    let result: $result = gate.calls.$name(who, $($arg),*)?;
                    Put::put(&Grant::grant(result, gate)?, out);
                })*
                number => return Err(unknown_row(number)),
            }
            Ok(())
        }
    };
}

table!(answers);

/// A session, as far as its calls see it.
pub(crate) struct Client {
    /// Whose volume it is.
    pub host: Arc<dyn Host>,
    /// Its open nodes.
    pub nodes: Nodes,
    /// The change feeds that it reads.
    pub feeds: Feeds,
    /// The changes of trees that it has begun.
    pub trees: Trees,
    /// It may do all that the volume's owner may.
    pub is_owner: bool,
}

impl Client {
    /// Answers a question: appends its result to `out`.
    pub(crate) fn answer(
        &self,
        number: u16,
        who: &Caller,
        question: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let host = &*self.host;
        if is_for_owner(number) && !self.is_owner {
            return Err(Code::NotPermitted.into());
        }
        let read_only = host.is_read_only();
        if read_only && changes(number) {
            return Err(Code::ReadOnly.into());
        }
        let (mut args, mut out) = (Reader::new(question), Writer::new(out));
        let mut gate =
            Gate::new(&self.nodes, host.calls(), host.top(), (read_only, self.is_owner), number);
        match number {
            number::close => {
                let node = Node::take(&mut args)?;
                args.end()?;
                if self.close(node) { Ok(()) } else { Err(Code::BadHandle.into()) }
            }
            number::write => {
                let ((file, at), bytes): ((Node, u64), &[u8]) = Take::take(&mut args)?;
                args.end()?;
                let (file, at) = (file.admit(&mut gate)?, at.admit(&mut gate)?);
                gate.calls.write(who, file, at, bytes)?.put(&mut out);
                Ok(())
            }
            number::put => {
                let (dir, path): (Node, &[u8]) = Take::take(&mut args)?;
                let (how, bytes): (calls::How, &[u8]) = Take::take(&mut args)?;
                args.end()?;
                let (dir, how) = (dir.admit(&mut gate)?, how.admit(&mut gate)?);
                gate.calls.put(who, dir, path, how, bytes)?.put(&mut out);
                Ok(())
            }
            number::read => read(&mut gate, who, &mut args, &mut out),
            number::get => self.get(&mut gate, who, &mut args, &mut out),
            number::list => list(&mut gate, who, &mut args, &mut out),
            number::stat_many => stat_many(&mut gate, who, &mut args, &mut out),
            number::batch => batch(&mut gate, who, &mut args),
            number::inodes => {
                let (after, at_most): (Ino, u32) = Take::take(&mut args)?;
                args.end()?;
                let at_most = (at_most as usize).min(INODES_MAX);
                gate.calls.inodes(who, after, at_most)?.put(&mut out);
                Ok(())
            }
            number::changes => self.changes(&mut gate, who, &mut args, &mut out),
            number::next_changes => {
                let feed = u32::take(&mut args)?;
                self.feeds.next(gate.calls, who, feed)?.put(&mut out);
                Ok(())
            }
            number::end_changes => self.feeds.end(u32::take(&mut args)?),
            number::change_tree => self.change_tree(&mut gate, who, &mut args, &mut out),
            _ => answer_plain(&mut gate, who, &mut args, &mut out),
        }
    }

    /// Gives a node back; `false`: it is not open.
    pub(crate) fn close(&self, node: Node) -> bool {
        let open = self.nodes.remove(node);
        open.map(|open| release(self.host.calls(), open)).is_some()
    }

    /// Makes the changes of trees that have begun.
    pub(crate) fn run_trees(&self) {
        let finish = || {
            if let Some(owed) = self.host.owed() {
                owed();
            }
        };
        self.trees.run(self.host.calls(), &finish);
    }

    fn changes(
        &self,
        gate: &mut Gate<'_>,
        who: &Caller,
        args: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<()> {
        let (dir, since): (Node, Option<ChangeMark>) = Take::take(args)?;
        args.end()?;
        let feed = gate.calls.changes(who, dir.admit(gate)?, since)?;
        let (mark, has_all_removed) = (feed.mark, feed.has_all_removed);
        ((self.feeds.add(feed)?, mark), has_all_removed).put(out);
        Ok(())
    }

    fn change_tree(
        &self,
        gate: &mut Gate<'_>,
        who: &Caller,
        args: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<()> {
        let question = TreeQuestion::take(args)?;
        args.end()?;
        match question {
            TreeQuestion::Begin { dir, change } => {
                let (dir, change) = (dir.admit(gate)?, TreeChange::from_bytes(change)?);
                self.trees.begin(gate.calls, who, dir, change)?.put(out);
            }
            TreeQuestion::Next { tree, stop } => self.trees.next(tree, stop)?.put(out),
            TreeQuestion::Leave { tree } => self.trees.leave(tree)?,
        }
        Ok(())
    }

    fn get(
        &self,
        gate: &mut Gate<'_>,
        who: &Caller,
        args: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<()> {
        let (dir, path): (Node, &[u8]) = Take::take(args)?;
        args.end()?;
        let dir = dir.admit(gate)?;
        let how = calls::How { read: true, ..calls::How::default() };
        let opened = gate.calls.open_file(who, dir, path, how)?;
        let size = usize::try_from(opened.attr.size).unwrap_or(usize::MAX);
        let open = Open { node: opened.node, read: true, write: false, append: false };
        let open = Arc::new(open);
        let result = (|| {
            let more = match size > GOT_MAX {
                true => Some(self.nodes.add(open.clone())?),
                false => None,
            };
            (opened.attr, more).put(out);
            let head = out.len();
            let read = gate.calls.read(who, opened.node, 0, out.room(size.min(GOT_MAX)));
            if read.is_err()
                && let Some(more) = more.and_then(|more| self.nodes.remove(more))
            {
                release(gate.calls, more);
            }
            out.truncate(head + read?);
            Ok(())
        })();
        release(gate.calls, open);
        result
    }
}

fn read(
    gate: &mut Gate<'_>,
    who: &Caller,
    args: &mut Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<()> {
    let ((file, at), len): ((Node, u64), u32) = Take::take(args)?;
    args.end()?;
    let file = file.admit(gate)?;
    let len = len as usize;
    if len > READ_MAX {
        return Err(too_much());
    }
    let read = gate.calls.read(who, file, at, out.room(len))?;
    out.truncate(read);
    Ok(())
}

fn list(
    gate: &mut Gate<'_>,
    who: &Caller,
    args: &mut Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<()> {
    let (top, path): (Node, &[u8]) = Take::take(args)?;
    let listing = Listing::take(args)?;
    args.end()?;
    let top = top.admit(gate)?;
    // A filter may pass nothing of a million entries: that is no work for a thread that others
    // wait for.
    if listing.filter != Filter::default() && must_not_wait() {
        return Err(refuse_to_wait());
    }
    let opened = match path {
        b"" => None,
        // Held, so that its number stays its own.
        path => Some(gate.calls.open_dir(who, top, path)?),
    };
    let listed = list_into((gate.calls, who), top, path, opened, &listing, out);
    if let Some(opened) = opened {
        close(gate.calls, opened.node);
    }
    listed
}

fn list_into(
    (calls, who): (&dyn Calls, &Caller),
    top: Node,
    path: &[u8],
    opened: Option<Opened>,
    listing: &Listing,
    out: &mut Writer<'_>,
) -> Result<()> {
    let ino = match opened {
        Some(opened) => opened.attr.ino,
        None => calls.attr(who, top)?.ino,
    };
    true.put(out);
    let head = out.len();
    let mut is_last = true;
    let listed = calls.list(who, top, path, ino, listing, &mut |entry, stat| {
        let before = out.len();
        put_entry(entry, &stat, out);
        is_last = out.len() <= LISTED_MAX;
        if !is_last {
            out.truncate(before);
        }
        is_last
    });
    match listed {
        // What was found before the error is told, and the error with the next question.
        Err(_) if out.len() > head => is_last = false,
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    out.set_first(u8::from(is_last));
    Ok(())
}

fn stat_many(
    gate: &mut Gate<'_>,
    who: &Caller,
    args: &mut Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<()> {
    let ((dir, want), freshness): ((Node, Fields), Freshness) = Take::take(args)?;
    let dir = dir.admit(gate)?;
    let mut names: Vec<&[u8]> = Vec::new();
    while !args.is_at_end() {
        if names.len() == NAMES_MAX {
            return Err(too_many("names", NAMES_MAX));
        }
        names.push(Take::take(args)?);
    }
    gate.calls.stat_many(who, dir, &names, want, freshness)?.put(out);
    Ok(())
}

fn batch(gate: &mut Gate<'_>, who: &Caller, args: &mut Reader<'_>) -> Result<()> {
    let dir = Node::take(args)?.admit(gate)?;
    let mut changes = Vec::new();
    while !args.is_at_end() {
        if changes.len() == CHANGES_MAX {
            return Err(too_many("changes", CHANGES_MAX));
        }
        changes.push(match Take::take(args)? {
            BatchOp::SetAttr { path, set } => BatchOp::SetAttr { path, set: gate.set_by(set) },
            change => change,
        });
    }
    gate.calls.batch(who, dir, &changes)
}

/// The error of a call that has panicked.
#[cold]
pub(crate) fn panicked(number: u16) -> Error {
    tracing::error!(call = name_of(number), "a call of a session panicked");
    Code::Io.into()
}
