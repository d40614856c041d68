//! The answer to a question, whatever brings it.

use crate::calls::types::*;
use crate::calls::{self, Calls, Effect, Node, Opened, ROWS, number, table};
use crate::feeds::Feeds;
use crate::gate::{Admit, Gate, Grant};
use crate::kept::{Asked, Made, NodeEntry, Slot, unique};
use crate::nodes::{Nodes, Open, close, release};
use crate::noting;
use crate::trees::Trees;
use crate::wire::{
    CHANGES_MAX, INODES_MAX, NAMES_MAX, Put, READ_MAX, Reader, Take, TreeQuestion, Writer,
    put_entry, too_many, too_much, unknown_row,
};
use shoal_engine::{
    BatchOp, Caller, ChangeMark, Code, Error, Fields, Filter, Freshness, Ino, Left, Listing,
    Result, TreeChange, must_not_wait, refuse_to_wait,
};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of entries in one answer: of a session that is served alone, and beside others. A longer
/// listing goes on with the next question, so that no call takes long.
const LISTED_MAX: usize = 32 << 10;
const LISTED_BESIDE_MAX: usize = 4 << 10;
/// Bytes of a file in an answer that opens it. What is longer is left open, and read on.
const GOT_MAX: usize = READ_MAX;

thread_local! {
    /// Several sessions ask this thread.
    static BESIDE: Cell<bool> = const { Cell::new(false) };
}

/// Lets the answers of this thread be short, as several sessions ask it, or not.
#[inline]
pub(crate) fn serve_beside(others: bool) {
    BESIDE.set(others);
}

/// Work that is left before a call may be answered.
pub type Owed = Box<dyn FnOnce() + Send>;

/// Something that a call has changed at a server before this one, which may not have told it.
#[derive(Clone, Copy, Debug)]
pub enum Changed<'c> {
    /// A name, by a path below an open directory, and what it leads to.
    Name(Node, &'c [u8]),
    /// Data and attributes of an inode.
    Inode(Ino),
}

/// A call that has been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// The client's process; 0 in another pid namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Time that it took at the server.
    pub took: Duration,
    /// Bytes that were read, about.
    pub read: u64,
    /// Bytes that were to be written, about.
    pub written: u64,
}

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
    /// Begins a change, to be ended by [`Host::end_change`]; `false`: nothing may be changed.
    fn begin_change(&self) -> bool {
        !self.is_read_only()
    }
    /// Ends a change.
    fn end_change(&self) {}
    /// Returns the error of a change when nothing may be changed.
    fn refusal(&self) -> Error {
        Code::ReadOnly.into()
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
    /// Tells once more of a change that a server before this one has made.
    fn retell(&self, _: Changed<'_>) {}
    /// The call that this thread has begun was refused, as it would have had to wait, and has
    /// changed nothing: nothing is owed for it.
    fn refused(&self) {}
    /// The client of the call that this thread is about to make could make it by the kernel too,
    /// and wants `EBUSY` where that is faster, as the kernel would have to be told.
    #[inline]
    fn may_refuse(&self, _is_wanted: bool) {}
    /// Tells the number of the volume's state from now on, beginning with `first`, to whoever keeps
    /// copies of directories; without it nobody can keep any.
    fn tell_states(&self, _first: u64, _tell: Box<dyn Fn(u64) + Send + Sync>) {}
    /// Returns whether somebody watches the load of sessions.
    #[inline]
    fn is_watched(&self) -> bool {
        false
    }
    /// Counts a call for whoever watches.
    fn count(&self, _: &Counted) {}
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
            | number::links
            | number::trim
            | number::scrub
            | number::set_label
            | number::remount
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
pub(crate) fn is_for_owner(number: u16) -> bool {
    matches!(
        number,
        number::revoke_tokens
            | number::links
            | number::facts
            | number::loads
            | number::trace
            | number::orphans
            | number::trim
            | number::scrub
            | number::set_label
            | number::remount
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

/// Rows that change the volume, or may.
const CHANGING: [bool; 256] = {
    let (mut changing, mut at) = ([false; 256], 0);
    while at < ROWS.len() {
        changing[ROWS[at].number as usize] = matches!(ROWS[at].effect, Effect::Changes);
        at += 1;
    }
    changing
};

/// Returns whether a call may change the volume.
#[inline]
pub(crate) fn may_change(number: u16) -> bool {
    CHANGING.get(usize::from(number)).is_some_and(|changing| *changing)
}

/// Returns whether calls of a row are noted for the next server: those that may change the volume.
/// A change of a tree is made by questions of its own kind.
#[inline]
pub(crate) fn is_noted(number: u16) -> bool {
    may_change(number) && number != number::change_tree
}

/// A change in progress.
pub(crate) struct InProgress<'h>(&'h dyn Host);

impl InProgress<'_> {
    /// Begins one; `None`: nothing may be changed.
    fn begin(host: &dyn Host) -> Option<InProgress<'_>> {
        host.begin_change().then(|| InProgress(host))
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.end_change();
    }
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
        pub(crate) fn answer_plain(
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
    /// Its place in memory that outlives the server.
    pub slot: Option<Arc<Slot>>,
}

/// Two numbers of a result that the next server could not find out.
pub(crate) type Numbers = (u64, u64);

impl Client {
    /// Begins a call: fails if the client may not make it.
    pub(crate) fn gate(
        &self,
        number: u16,
        asked: Asked,
    ) -> Result<(Gate<'_>, Option<InProgress<'_>>)> {
        let host = &*self.host;
        if is_for_owner(number) && !self.is_owner {
            return Err(Code::NotPermitted.into());
        }
        let changes = may_change(number);
        let changing = if changes { InProgress::begin(host) } else { None };
        let read_only = if changes { changing.is_none() } else { host.is_read_only() };
        // Opening a file changes the volume only in some ways: the gate looks.
        let depends = matches!(number, number::open_file | number::open_handle | number::put);
        if read_only && changes && !depends {
            return Err(host.refusal());
        }
        let may = (read_only, self.is_owner);
        let gate = Gate::new(&self.nodes, host.calls(), host.top(), may, (number, asked));
        Ok((gate, changing))
    }

    /// Answers a question: appends its result to `out`.
    pub(crate) fn answer(
        &self,
        (number, asked): (u16, Asked),
        who: &Caller,
        question: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Numbers> {
        let (mut gate, _changing) = self.gate(number, asked)?;
        let read_only = gate.read_only && may_change(number);
        match self.admitted((number, &mut gate), who, question, out) {
            Err(error) if read_only && error.is(Code::ReadOnly) => Err(self.host.refusal()),
            done => done,
        }
    }

    /// Answers a question of one who may ask it.
    fn admitted(
        &self,
        (number, gate): (u16, &mut Gate<'_>),
        who: &Caller,
        question: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Numbers> {
        let (mut args, mut out) = (Reader::new(question), Writer::new(out));
        if number == number::write {
            return write(gate, who, &mut args, &mut out);
        }
        let done = match number {
            number::close => {
                let node = Node::take(&mut args)?;
                args.end()?;
                if self.close(node) { Ok(()) } else { Err(Code::BadHandle.into()) }
            }
            number::put => self.put(gate, who, &mut args),
            number::read => read(gate, who, &mut args, &mut out),
            number::get => self.get(gate, who, &mut args, &mut out),
            number::list => list(gate, who, &mut args, &mut out),
            number::stat_many => stat_many(gate, who, &mut args, &mut out),
            number::batch => batch(gate, who, &mut args),
            number::inodes => {
                let (after, at_most): (Ino, u32) = Take::take(&mut args)?;
                args.end()?;
                let at_most = (at_most as usize).min(INODES_MAX);
                gate.calls.inodes(who, after, at_most)?.put(&mut out);
                Ok(())
            }
            number::changes => self.changes(gate, who, &mut args, &mut out),
            number::next_changes => {
                let feed = u32::take(&mut args)?;
                self.feeds.next(gate.calls, who, feed)?.put(&mut out);
                Ok(())
            }
            number::end_changes => self.feeds.end(u32::take(&mut args)?),
            number::change_tree => self.change_tree(gate, who, &mut args, &mut out),
            number::copies => copies(gate, who, &mut args, &mut out),
            _ => answer_plain(gate, who, &mut args, &mut out),
        };
        done.map(|()| (0, 0))
    }

    /// Returns whether another server goes on with the session.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.kept().is_left())
    }

    /// Notes that this thread makes a step of a call.
    #[inline]
    pub(crate) fn note(&self, asked: Asked, step: u8, left: Option<Left>) {
        if let Some(slot) = &self.slot {
            noting::begin(slot.kept().ring(), unique(slot.number(), asked, step), left);
        }
    }

    /// Stores an outcome of a call or of its first step, and ends the note of it.
    #[inline]
    pub(crate) fn settle(&self, asked: Asked, made: Made) {
        if let Some(slot) = &self.slot {
            // Of a server that gives way, only the cell says what was made.
            if !self.is_left() {
                slot.made(asked, made);
            }
            noting::end();
        }
    }

    fn put(&self, gate: &mut Gate<'_>, who: &Caller, args: &mut Reader<'_>) -> Result<()> {
        let (dir, path): (Node, &[u8]) = Take::take(args)?;
        let (how, bytes): (calls::How, &[u8]) = Take::take(args)?;
        args.end()?;
        let (dir, how) = (dir.admit(gate)?, how.admit(gate)?);
        if self.slot.is_none() {
            return gate.calls.put(who, dir, path, how, bytes);
        }
        let opened = gate.calls.open_file(who, dir, path, how)?;
        let node = gate.opened(&opened)?;
        self.settle(gate.asked, Made::Step);
        self.note(gate.asked, 1, None);
        self.fill(gate, who, node, bytes)
    }

    /// Makes the second step of [`Calls::put`]: writes a file that the call has opened, and closes
    /// it.
    pub(crate) fn fill(
        &self,
        gate: &mut Gate<'_>,
        who: &Caller,
        node: Node,
        bytes: &[u8],
    ) -> Result<()> {
        let written = node.admit(gate).and_then(|file| {
            if !gate.may_write() {
                return Err(Code::BadHandle.into());
            }
            let mut done = 0;
            while done < bytes.len() {
                let at = (done as u64).admit(gate)?;
                let (_, more) = gate.calls.write(who, file, at, &bytes[done..])?;
                done += more as usize;
            }
            Ok(())
        });
        self.close(node);
        written
    }

    /// Gives a node back; `false`: it is not open.
    pub(crate) fn close(&self, node: Node) -> bool {
        let open = self.nodes.remove(node);
        open.map(|open| release(self.host.calls(), open)).is_some()
    }

    /// Gives a node back that the client has noted as closed; `taken` takes the note off.
    pub(crate) fn close_noted(&self, node: Node, taken: impl FnOnce()) {
        if let Some(open) = self.nodes.remove_noted(node, taken) {
            release(self.host.calls(), open);
        }
    }

    /// Makes the changes of trees that have begun.
    pub(crate) fn run_trees(&self) {
        let finish = || {
            if let Some(owed) = self.host.owed() {
                owed();
            }
        };
        while let Some(tree) = self.trees.begun() {
            let changing = InProgress::begin(&*self.host);
            let refusal = changing.is_none().then(|| self.host.refusal());
            tree.run(self.host.calls(), refusal, &finish);
        }
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
                if let Some(slot) = &self.slot {
                    // From here on a part of it may be made.
                    slot.made(gate.asked, Made::Step);
                }
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
        let entry = NodeEntry {
            ino: opened.attr.ino,
            generation: opened.attr.generation,
            rights: 0,
            mark: gate.asked.mark(),
        };
        let result = (|| {
            let more = match size > GOT_MAX {
                true => Some(self.nodes.add(open.clone(), &entry)?),
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

fn write(
    gate: &mut Gate<'_>,
    who: &Caller,
    args: &mut Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Numbers> {
    let ((file, at), bytes): ((Node, u64), &[u8]) = Take::take(args)?;
    args.end()?;
    let (file, at) = (file.admit(gate)?, at.admit(gate)?);
    let written = gate.calls.write(who, file, at, bytes)?;
    written.put(out);
    Ok(written)
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
    let ((top, path), ino): ((Node, &[u8]), Ino) = Take::take(args)?;
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
    let listed = match opened {
        Some(opened) if opened.attr.ino != ino => Err(Code::Stale.into()),
        _ => list_into((gate.calls, who), top, path, opened, &listing, out),
    };
    if let Some(opened) = opened {
        close(gate.calls, opened.node);
    }
    listed
}

fn copies(
    gate: &mut Gate<'_>,
    who: &Caller,
    args: &mut Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<()> {
    let ((dir, path), wish): ((Node, &[u8]), CopyWish) = Take::take(args)?;
    let mut names: Vec<&[u8]> = Vec::new();
    while !args.is_at_end() {
        if names.len() == NAMES_MAX {
            return Err(too_many("names", NAMES_MAX));
        }
        names.push(Take::take(args)?);
    }
    let dir = dir.admit(gate)?;
    let state = gate.calls.copies(who, dir, path, &names, &wish, out.buffer())?;
    // Known at the end; 0: there is none.
    state.unwrap_or(0).put(out);
    Ok(())
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
    let at_most = if BESIDE.get() { LISTED_BESIDE_MAX } else { LISTED_MAX };
    let listed = calls.list(who, top, path, ino, listing, &mut |entry, stat| {
        let before = out.len();
        put_entry(entry, &stat, out);
        is_last = out.len() <= at_most;
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
