//! For fuzz targets and tests: a session without a connection, and messages of any bytes.

use crate::about::{Fact, HardLinks, Load, Metric, Operation, ScrubStep, Trace};
use crate::calls::{CopyWish, How, Node, Opened, ROWS};
use crate::client::Link;
use crate::connect::{Beside, Session};
use crate::copies::{behind, entry_at, take_dir};
use crate::feeds::Feeds;
use crate::kept::{Asked, KeptSessions, Made};
use crate::memory::Memory;
use crate::nodes::Nodes;
use crate::peer::Peer;
use crate::resent::Resent;
use crate::serve::{Client, Host, is_noted};
use crate::served::{Before, Looked, Served};
use crate::trees::Trees;
use crate::wire::{Put, Reader, Take, Writer, put_caller, take_caller};
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use shoal_engine::{
    Attr, BatchOp, Caller, ChangeMark, Code, Cookies, Error, Fallocate, Fields, FileKind, Filter,
    Freshness, Handle, Listing, OrphanInfo, Quota, QuotaLimits, RenameFlags, Result, Rights,
    RootInfo, Seek, SetAttr, Stat, StatFs, Token, Totals, XattrFlags,
};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Words of a lane's head, by their places.
pub use crate::connect::word::{AGAIN, ANSWER, CALL, FAILED, LEN, NUMBER, STATE, UMASK, WHO};
/// Numbers of calls that are no rows: a part of one, the rest of an answer, another caller.
pub use crate::connect::{BECOME, PART, REST};

/// A session of a client in this process.
pub struct Asker {
    client: Client,
    who: Caller,
    /// Number of the last call.
    call: AtomicU32,
}

impl Asker {
    /// Begins a session of this caller. An owner's may use all rows.
    pub fn new(host: Arc<dyn Host>, who: Caller, is_owner: bool) -> Asker {
        let (nodes, feeds, trees) = (Nodes::default(), Feeds::default(), Trees::default());
        let client = Client { host, nodes, feeds, trees, is_owner, slot: None };
        Asker { client, who, call: AtomicU32::new(0) }
    }

    /// The same for a session that outlives its server.
    ///
    /// # Panics
    /// If there are too many sessions.
    #[must_use]
    pub fn kept(mut self, kept: &Arc<KeptSessions>) -> Asker {
        let peer = Peer { pid: 0, uid: self.who.uid, gid: self.who.gid };
        let slot = kept.claim(peer, [0, 0]).expect("a place");
        self.client.nodes = Nodes::kept(slot.clone());
        self.client.slot = Some(slot);
        self
    }

    /// Asks what may be no question.
    ///
    /// # Errors
    /// Those of the call.
    pub fn ask(&self, number: u16, question: &[u8]) -> Result<Vec<u8>> {
        let mut answer = Vec::new();
        let call = self.call.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = Asked { lane: 0, call };
        let noted = is_noted(number);
        if noted {
            self.client.note(asked, 0, None);
        }
        let outcome = self.client.answer((number, asked), &self.who, question, &mut answer);
        if noted {
            self.client.settle(asked, Made::of(&outcome));
        }
        outcome.map(|_| answer)
    }

    /// Asks a question, as if the last call had been that and its server had died since. A server
    /// had made it, if `is_made`.
    ///
    /// # Errors
    /// Those of the call.
    pub fn ask_again(&self, number: u16, question: &[u8], is_made: bool) -> Result<Vec<u8>> {
        let mut answer = Vec::new();
        let asked = Asked { lane: 0, call: self.call.load(Ordering::Relaxed) };
        if is_made {
            self.client.settle(asked, Made::Done(0, 0));
        }
        let resent = Resent { number, asked, who: &self.who, question };
        let outcome = self.client.answer_again(resent, &mut None, &mut answer);
        if is_noted(number) {
            self.client.settle(asked, Made::of(&outcome));
        }
        outcome.map(|_| answer)
    }

    /// Asks to write a whole file, as if a server had died between the two steps of it.
    ///
    /// # Errors
    /// Those of the call.
    pub fn ask_step(&self, question: &[u8]) -> Result<Vec<u8>> {
        let asked = Asked { lane: 0, call: self.call.load(Ordering::Relaxed) };
        self.client.settle(asked, Made::Step);
        self.ask_again(crate::calls::number::put, question, false)
    }

    /// Number of open nodes.
    pub fn open_nodes(&self) -> usize {
        self.client.nodes.len()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.client.nodes.close_all(self.client.host.calls());
    }
}

impl Link for &Asker {
    fn call<T>(
        &self,
        number: u16,
        who: &Caller,
        put: impl FnOnce(&mut Writer<'_>),
        take: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        Asker::call(self, number, who, put, take)
    }

    fn room(&self) -> usize {
        Asker::room(self)
    }

    fn close(&self, node: u64) -> bool {
        Asker::close(self, node)
    }
}

impl Link for Asker {
    fn call<T>(
        &self,
        number: u16,
        _: &Caller,
        put: impl FnOnce(&mut Writer<'_>),
        take: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut question = Vec::new();
        put(&mut Writer::new(&mut question));
        let answer = self.ask(number, &question)?;
        let mut reader = Reader::new(&answer);
        let result = take(&mut reader)?;
        reader.end().map(|()| result)
    }

    fn room(&self) -> usize {
        crate::memory::ROOM
    }

    fn close(&self, node: u64) -> bool {
        self.client.close(Node(node))
    }
}

/// A server whose client calls it for each question.
struct Alone {
    served: Served,
    memory: Mutex<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for Alone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alone")
    }
}

impl Beside for Alone {
    fn called(&self) {
        let memory = &mut *self.memory.lock();
        loop {
            match self.served.look(memory) {
                Looked::Nothing => return,
                Looked::Answered => {}
                Looked::Waits(work) => self.served.work(work),
            }
        }
    }
}

/// Begins a session of the superuser whose two ends are one thread, the one that calls: memory,
/// lanes and messages are those of any session, but a run of calls depends on no other thread, and
/// is the same each time.
///
/// # Errors
/// `ENOMEM`; `EIO` without descriptors.
pub fn in_one_thread(host: Arc<dyn Host>) -> Result<Session> {
    let (family, kind, flags) = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let pair = rustix::net::socketpair(family, kind, flags, None);
    let (socket, other) =
        pair.map_err(|e| Error::refused(Code::Io, format!("no socket for a session: {e}")))?;
    let (memory, file) = Memory::make()?;
    let peer = Peer { pid: std::process::id(), uid: 0, gid: 0 };
    let parts = (other, Memory::of_client(file.as_fd())?.0, Vec::new());
    let whose = (peer, Vec::new(), Arc::default());
    let served = Served::new(host, whose, parts, Before::default());
    Ok(Session::beside(
        (memory, file),
        socket,
        Box::new(Alone { served, memory: Mutex::default() }),
    ))
}

/// Returns the number of a row.
pub fn number_of(name: &str) -> Option<u16> {
    ROWS.iter().find(|row| row.name == name).map(|row| row.number)
}

/// Appends a value to a message.
pub fn put(value: &impl Put) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut Writer::new(&mut bytes));
    bytes
}

/// Takes a value of each type off a message.
///
/// # Panics
/// If one comes back otherwise when it is put and taken again.
pub fn take_all(bytes: &[u8]) {
    macro_rules! comes_back {
        ($($type:ty),*) => {$({
            if let Ok(value) = <$type as Take<'_>>::take(&mut Reader::new(bytes)) {
                let once = put(&value);
                let mut reader = Reader::new(&once);
                let again = <$type as Take<'_>>::take(&mut reader);
                let again = again.unwrap_or_else(|e| panic!("{}: {e}", stringify!($type)));
                assert!(reader.is_at_end() && put(&again) == once, stringify!($type));
                assert_eq!(format!("{value:?}"), format!("{again:?}"));
            }
        })*};
    }
    comes_back! {
        Attr, Stat, Opened, How, Handle, RenameFlags, XattrFlags, SetAttr, StatFs, QuotaLimits,
        Quota, Option<Quota>, Vec<Quota>, RootInfo, Vec<RootInfo>, Totals, Filter, Listing, Cookies,
        Fields, FileKind, Fallocate, Seek, Freshness, Rights, Token, ChangeMark, Duration, Error,
        Vec<Result<Stat>>, Vec<Attr>, Option<String>, BatchOp<'_>, &[u8], bool, Node, HardLinks,
        Vec<Metric>, Vec<Operation>, Vec<Fact>, Vec<Load>, Trace, Vec<OrphanInfo>, ScrubStep,
        CopyWish
    }
    let mut copies = Reader::new(bytes);
    while let Ok((_, entries)) = take_dir(&mut copies) {
        let mut at = 0;
        while let Ok(entry) = entry_at(entries, at) {
            let _ = entry.attr();
            at = behind(entries, at).expect("an entry has an end");
            assert!(at <= entries.len());
        }
    }
    if let Ok(caller) = take_caller(&mut Reader::new(bytes)) {
        let mut once = Vec::new();
        put_caller(&caller, &mut Writer::new(&mut once));
        let again = take_caller(&mut Reader::new(&once));
        assert!(again.is_ok_and(|again| again.groups == caller.groups && again.uid == caller.uid));
    }
    if let Ok((entry, stat)) = crate::wire::take_entry(&mut Reader::new(bytes)) {
        let mut once = Vec::new();
        crate::wire::put_entry(&entry, &stat, &mut Writer::new(&mut once));
        assert!(crate::wire::take_entry(&mut Reader::new(&once)).is_ok());
    }
}

#[cfg(test)]
mod tests {
    /// Bytes of which most types have a value: small ones, with some of any kind.
    #[test]
    fn every_value_comes_back_as_it_was() {
        let mut state = 37u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let kind = next() % 4;
            let bytes: Vec<u8> = (0..300)
                .map(|_| match (kind, next() % 8) {
                    (0, _) | (1, 1..) => (next() % 2) as u8,
                    (2, 1..) => 0,
                    _ => next() as u8,
                })
                .collect();
            super::take_all(&bytes);
        }
    }
}
