//! The calls of a client: each is sent to the server, and its answer awaited.

use crate::calls::types::*;
use crate::calls::{AT_END, Calls, ChangeFeed, FeedReader, How, Node, TreeWatch, number, table};
use crate::wire::{Put, Reader, Take, TreeQuestion, Writer};
use shoal_engine::{Caller, Code, Result, TreeChange, TreeChanged, TreeFailure, TreeStep};

/// A way to a server.
pub trait Link: Send + Sync {
    /// Sends a call: `put` appends its arguments, `take` reads its result.
    ///
    /// # Errors
    /// Those of the call, and of the connection.
    fn call<T>(
        &self,
        number: u16,
        who: &Caller,
        put: impl FnOnce(&mut Writer<'_>),
        take: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T>;

    /// Most bytes of a call's arguments, and of its result.
    fn room(&self) -> usize;

    /// Closes a node without awaiting an answer; `false`: it must be asked for.
    fn close(&self, node: u64) -> bool;
}

/// The calls, made by a server.
#[derive(Debug)]
pub struct Remote<L>(pub L);

impl<L: Link> Remote<L> {
    /// Sends a call with plain arguments.
    pub(crate) fn call<T: for<'r> Take<'r>>(
        &self,
        number: u16,
        who: &Caller,
        put: impl FnOnce(&mut Writer<'_>),
    ) -> Result<T> {
        self.0.call(number, who, put, |result| T::take(result))
    }
}

/// The client's half of the rows by hand.
macro_rules! by_hand {
    () => {
        fn read(&self, who: &Caller, file: Node, at: u64, into: &mut [u8]) -> Result<usize> {
            let mut done = 0;
            // A call for each piece, as a system call may return less; short only at the end.
            while done < into.len() {
                let piece = &mut into[done..];
                let wanted = piece.len().min(crate::wire::READ_MAX);
                let read = self.0.call(
                    number::read,
                    who,
                    |out| {
                        crate::wire::Put::put(&((file, at + done as u64), wanted as u32), out);
                    },
                    |result| {
                        let bytes = result.take_rest();
                        let room = piece.get_mut(..bytes.len());
                        room.ok_or_else(crate::wire::too_much)?.copy_from_slice(bytes);
                        Ok(bytes.len())
                    },
                )?;
                done += read;
                if read < wanted {
                    break;
                }
            }
            Ok(done)
        }

        fn close(&self, who: &Caller, node: Node) -> Result<()> {
            match self.0.close(node.0) {
                true => Ok(()),
                false => self.call(number::close, who, |out| crate::wire::Put::put(&node, out)),
            }
        }

        fn write(&self, who: &Caller, file: Node, at: u64, bytes: &[u8]) -> Result<(u64, u64)> {
            let (mut start, mut done) = (at, 0);
            loop {
                let rest = &bytes[done..];
                let piece = &rest[..rest.len().min(crate::wire::WRITE_MAX)];
                let to = if at == AT_END { AT_END } else { at + done as u64 };
                let wrote = self.call(number::write, who, |out| {
                    crate::wire::Put::put(&((file, to), piece), out);
                });
                let (place, written): (u64, u64) = match wrote {
                    // What was written before is told; the next write meets the error again.
                    Err(_) if done > 0 => return Ok((start, done as u64)),
                    wrote => wrote?,
                };
                if done == 0 {
                    start = place;
                }
                done += (written as usize).min(piece.len());
                if (written as usize) < piece.len() || done == bytes.len() {
                    return Ok((start, done as u64));
                }
            }
        }

        fn put(&self, who: &Caller, dir: Node, path: &[u8], how: How, bytes: &[u8]) -> Result<()> {
            if bytes.len() > crate::wire::WRITE_MAX {
                return crate::client::put_long(self, who, (dir, path), how, bytes);
            }
            self.call(number::put, who, |out| {
                crate::wire::Put::put(&((dir, path), (how, bytes)), out);
            })
        }

        fn get(&self, who: &Caller, dir: Node, path: &[u8], into: &mut Vec<u8>) -> Result<Attr> {
            let before = into.len();
            let (attr, more): (Attr, Option<Node>) = self.0.call(
                number::get,
                who,
                |out| crate::wire::Put::put(&(dir, path), out),
                |result| {
                    let head = crate::wire::Take::take(result)?;
                    into.extend_from_slice(result.take_rest());
                    Ok(head)
                },
            )?;
            let Some(node) = more else { return Ok(attr) };
            // A file that is larger than an answer is left open.
            let read = crate::client::rest(self, who, node, attr.size, before, into);
            let closed = self.close(who, node);
            read.and(closed).map(|()| attr)
        }

        fn list(
            &self,
            who: &Caller,
            top: Node,
            path: &[u8],
            ino: Ino,
            listing: &Listing,
            each: &mut EachEntry<'_>,
        ) -> Result<()> {
            let mut listing = listing.clone();
            loop {
                let (mut goes_on, mut last) = (true, listing.cookies.begin());
                let is_last = self.0.call(
                    number::list,
                    who,
                    |out| {
                        crate::wire::Put::put(&((top, path), ino), out);
                        crate::wire::Put::put(&listing, out);
                    },
                    |result| {
                        let is_last = crate::wire::Take::take(result)?;
                        while goes_on && !result.is_at_end() {
                            let (entry, stat) = crate::wire::take_entry(result)?;
                            last = entry.cookie;
                            goes_on = each(&entry, stat);
                        }
                        result.take_rest();
                        Ok(is_last)
                    },
                )?;
                if is_last || !goes_on {
                    return Ok(());
                }
                listing.cookies = listing.cookies.after(last);
            }
        }

        fn stat_many(
            &self,
            who: &Caller,
            dir: Node,
            names: &[&[u8]],
            want: Fields,
            freshness: Freshness,
        ) -> Result<Vec<Result<Stat>>> {
            let (mut found, mut rest) = (Vec::with_capacity(names.len()), names);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(crate::wire::names_in(self.0.room(), rest));
                rest = later;
                let part: Vec<Result<Stat>> = self.call(number::stat_many, who, |out| {
                    crate::wire::Put::put(&((dir, want), freshness), out);
                    now.iter().for_each(|name| crate::wire::Put::put(name, out));
                })?;
                found.extend(part);
            }
            Ok(found)
        }

        fn batch(&self, who: &Caller, dir: Node, changes: &[BatchOp<'_>]) -> Result<()> {
            self.call(number::batch, who, |out| {
                crate::wire::Put::put(&dir, out);
                changes.iter().for_each(|change| crate::wire::Put::put(change, out));
            })
        }

        fn inodes(&self, who: &Caller, after: Ino, at_most: usize) -> Result<Vec<Attr>> {
            let mut found = Vec::new();
            while found.len() < at_most {
                let after = found.last().map_or(after, |attr: &Attr| attr.ino);
                let wanted = (at_most - found.len()).min(crate::wire::INODES_MAX);
                let part: Vec<Attr> = self.call(number::inodes, who, |out| {
                    crate::wire::Put::put(&(after, wanted as u32), out);
                })?;
                let is_last = part.len() < wanted;
                found.extend(part);
                if is_last {
                    break;
                }
            }
            Ok(found)
        }

        fn changes(
            &self,
            who: &Caller,
            dir: Node,
            since: Option<ChangeMark>,
        ) -> Result<ChangeFeed> {
            let ((feed, mark), has_all_removed) = self.call(number::changes, who, |out| {
                crate::wire::Put::put(&(dir, since), out);
            })?;
            Ok(ChangeFeed { mark, has_all_removed, reader: FeedReader::Remote(feed) })
        }

        fn next_changes(
            &self,
            who: &Caller,
            feed: &mut ChangeFeed,
            at_most: usize,
        ) -> Result<Vec<Change>> {
            // The server bounds its answers.
            let _ = at_most;
            let feed = crate::client::number_of(feed)?;
            self.call(number::next_changes, who, |out| crate::wire::Put::put(&feed, out))
        }

        fn end_changes(&self, who: &Caller, feed: &ChangeFeed) -> Result<()> {
            let feed = crate::client::number_of(feed)?;
            self.call(number::end_changes, who, |out| crate::wire::Put::put(&feed, out))
        }

        fn change_tree(
            &self,
            who: &Caller,
            dir: Node,
            change: &TreeChange,
            watch: &TreeWatch<'_>,
        ) -> Result<TreeChanged> {
            crate::client::change_tree(self, who, dir, change, watch)
        }

        fn copies(
            &self,
            who: &Caller,
            dir: Node,
            path: &[u8],
            names: &[&[u8]],
            wish: &CopyWish,
            into: &mut Vec<u8>,
        ) -> Result<Option<u64>> {
            let names = &names[..names.len().min(crate::wire::NAMES_MAX)];
            self.0.call(
                number::copies,
                who,
                |out| {
                    crate::wire::Put::put(&((dir, path), *wish), out);
                    names.iter().for_each(|name| crate::wire::Put::put(name, out));
                },
                |result| {
                    let (copies, state) =
                        result.take_rest().split_last_chunk().ok_or(shoal_engine::Code::Invalid)?;
                    into.extend_from_slice(copies);
                    Ok(Some(u64::from_le_bytes(*state)).filter(|state| *state > 0))
                },
            )
        }

        fn entry(&self, who: &Caller, dir: Node, name: &[u8], ino: Ino) -> Result<Attr> {
            match self.find(who, dir, name, false) {
                Ok(attr) if attr.ino == ino => Ok(attr),
                Err(e) if !e.is(shoal_engine::Code::NotFound) => Err(e),
                _ => Err(shoal_engine::Code::Stale.into()),
            }
        }
    };
}

/// The client's half of the table.
macro_rules! remote {
    (
        $($(#[$doc:meta])* $number:literal $name:ident $effect:ident (
            $($arg:ident : $type:ty),* $(,)?
        ) -> $result:ty;)*
        by hand:
        $($(#[$hand_doc:meta])* $hand_number:literal $hand:ident $hand_effect:ident (
            $($hand_arg:ident : $hand_type:ty),* $(,)?
        ) -> $hand_result:ty;)*
    ) => {
        impl<L: Link> Calls for Remote<L> {
            $(
                fn $name(&self, who: &Caller, $($arg: $type),*) -> Result<$result> {
                    self.call($number, who, |_out| {
                        $(Put::put(&$arg, _out);)*
                    })
                }
            )*
            by_hand! {}
        }
    };
}

table!(remote);

/// Reads what is behind the part of a file that is in `into` from `before` on.
pub(crate) fn rest(
    calls: &dyn Calls,
    who: &Caller,
    node: Node,
    size: u64,
    before: usize,
    into: &mut Vec<u8>,
) -> Result<()> {
    let have = into.len() - before;
    let more = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(have);
    into.try_reserve_exact(more).map_err(|_| Code::NoMemory)?;
    let end = into.len();
    into.resize(end + more, 0);
    let read = calls.read(who, node, have as u64, &mut into[end..])?;
    into.truncate(end + read);
    Ok(())
}

/// Writes a whole file that is longer than a question.
pub(crate) fn put_long(
    calls: &dyn Calls,
    who: &Caller,
    (dir, path): (Node, &[u8]),
    how: How,
    bytes: &[u8],
) -> Result<()> {
    let node = calls.open_file(who, dir, path, how)?.node;
    let write = || {
        let mut done = 0;
        while done < bytes.len() {
            match calls.write(who, node, done as u64, &bytes[done..])?.1 {
                0 => return Err(Code::NoSpace.into()),
                written => done += written as usize,
            }
        }
        Ok(())
    };
    let written = write();
    let closed = calls.close(who, node);
    written.and(closed)
}

/// The number that the server has given a feed.
pub(crate) fn number_of(feed: &ChangeFeed) -> Result<u32> {
    match feed.reader {
        FeedReader::Remote(number) => Ok(number),
        FeedReader::Here(_) => Err(Code::BadHandle.into()),
    }
}

/// A change of a tree that the server makes; stopped if nobody waits for its end.
struct RemoteTree<'c, L: Link> {
    remote: &'c Remote<L>,
    who: &'c Caller,
    number: u32,
    has_ended: bool,
}

impl<L: Link> RemoteTree<'_, L> {
    fn ask<T: for<'r> Take<'r>>(&self, question: TreeQuestion<'_>) -> Result<T> {
        self.remote.call(number::change_tree, self.who, |out| question.put(out))
    }
}

impl<L: Link> Drop for RemoteTree<'_, L> {
    fn drop(&mut self) {
        if !self.has_ended {
            // The watcher has panicked, or the session has ended: then the server stops it.
            let _ = self.ask::<()>(TreeQuestion::Leave { tree: self.number });
        }
    }
}

/// Changes a tree, and tells a watcher of the progress.
pub(crate) fn change_tree<L: Link>(
    remote: &Remote<L>,
    who: &Caller,
    dir: Node,
    change: &TreeChange,
    watch: &TreeWatch<'_>,
) -> Result<TreeChanged> {
    let change = change.to_bytes()?;
    let mut tree = RemoteTree { remote, who, number: 0, has_ended: true };
    tree.number = tree.ask(TreeQuestion::Begin { dir, change: &change })?;
    tree.has_ended = false;
    let (mut stop, mut before) = (false, 0);
    loop {
        let next = TreeQuestion::Next { tree: tree.number, stop };
        let ((inodes, failures), done): ((u64, Vec<TreeFailure>), Option<TreeChanged>) =
            tree.ask(next).inspect_err(|_| tree.has_ended = true)?;
        tree.has_ended = done.is_some();
        if !stop && (inodes != before || !failures.is_empty()) {
            before = inodes;
            stop = watch(&TreeStep { inodes, failures: &failures }).is_break();
        }
        if let Some(done) = done {
            return Ok(done);
        }
    }
}
