//! Dispatch: every kernel request enters here, whatever the transport.
//!
//! Each thread of a transport owns a [`Worker`] and gives it one request at a time. The answer is
//! left in the request's own body. Nothing is allocated and no other thread is involved, because
//! the kernel holds the directory's lock while a create or unlink waits for the server.

use crate::caller::Who;
use crate::calls::{Noted, RESENT};
use crate::documents::is_document;
use crate::look::Looking;
use crate::notices::Notices;
use crate::observe::trace;
use crate::ops::{self, Context};
use crate::protocol::dirent::{Node, for_each_node};
use crate::protocol::wire::EntryOut;
use crate::protocol::{Errno, Opcode, Reply, Request};
use crate::service::Serve;
use crate::session::Session;
use crate::tokens::is_virtual;
use crate::views::limit;
use shoal::raw::{AtOnce, Caller, Ino, Outcome, at_once};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use zerocopy::FromBytes;

/// State of a thread that answers requests.
pub(crate) struct Worker {
    session: Arc<Session>,
    who: Who,
    /// The note of the request in work, where a server can be replaced.
    noted: Option<Noted>,
    /// The request in work, as far as a trace wants it.
    traced: trace::Noted,
}

impl Serve for Worker {
    type Shared = Session;

    fn new(session: Arc<Session>) -> Worker {
        let noted = session.calls.as_ref().and_then(|calls| calls.thread());
        session.observer.prepare();
        Worker { session, who: Who::new(), noted, traced: trace::Noted::new() }
    }

    fn waits_by(session: &Session, looking: &Arc<Looking>) {
        let _ = session.looking.set(looking.clone());
    }

    fn notices(session: &Session) -> Option<&Arc<Notices>> {
        Some(&session.notices)
    }

    /// Requests that may have to wait for pages are answered by a thread that may block.
    #[inline]
    fn may_block(&self, request: &Request<'_>) -> bool {
        let for_pages = match request.opcode {
            Some(Opcode::Lseek) => true,
            Some(Opcode::Setattr) => {
                let sets_mtime = request.arg().is_ok_and(|arg| ops::attr::sets_mtime(&arg));
                // With `writeback` the kernel has written the pages.
                sets_mtime && !self.session.rules.writeback
            }
            _ => false,
        };
        let node = request.header.nodeid;
        request.may_block()
            // The note of its first server is used up by the one attempt.
            || request.header.unique & RESENT != 0
            || for_pages
                && !is_virtual(Ino(node))
                && self.session.may_have_pages(self.session.node(node))
    }

    #[inline]
    fn answered(&mut self) {
        if let Some(noted) = &mut self.noted {
            noted.end();
        }
    }

    fn ended(session: &Session) {
        session.inherited.close();
    }

    /// Answers `request`. A handler that panics costs its caller an EIO, not its life.
    ///
    /// A thread that reads requests for everybody tries without waiting for the device. Where that
    /// is refused, nothing has changed, and a thread that may wait makes the whole call again.
    #[inline]
    fn handle(&mut self, request: &mut Request<'_>) -> Reply {
        let Some(op) = request.opcode else {
            return Reply::Error(Errno::ENOSYS);
        };
        let session = &self.session;
        let begun = session.observer.begin();
        request.set_node(session.node(request.header.nodeid));
        let is_traced = session.observer.trace.is_read(begun)
            && !is_virtual(request.node())
            && session.observer.trace.note(&mut self.traced, op, request);
        let who = &mut self.who;
        let before = match (&mut self.noted, &session.calls) {
            (Some(noted), Some(calls)) if !op.is_silent() => {
                noted.begin(calls, request.header.unique)
            }
            _ => Outcome::Undone,
        };
        let may_wait = request.may_wait() || op.is_silent();
        let mut call = || {
            let caller = who.adopt(request, op, session.rules.kernel_checks);
            catch_unwind(AssertUnwindSafe(|| carry_out(op, session, caller, before, request)))
        };
        let outcome = match may_wait {
            true => AtOnce::Done(call()),
            false => at_once(call),
        };
        let outcome = match outcome {
            AtOnce::Refused { result: Ok(result), device } => {
                if let Ok(len) = result {
                    // Of something that went on without what was refused.
                    self.undo(Some(op), &mut request.body()[..len]);
                }
                self.answered();
                return Reply::Later { device };
            }
            AtOnce::Refused { result, .. } | AtOnce::Done(result) => result,
        };
        let reply = match outcome {
            _ if op.is_silent() => Reply::Silent,
            Ok(Ok(len)) => Reply::Body(len),
            Ok(Err(errno)) => {
                if errno == Errno::EIO {
                    session.failed(op, request);
                }
                Reply::Error(errno)
            }
            Err(_) => {
                tracing::error!(op = op.name(), node = request.header.nodeid, "handler panicked");
                Reply::Error(Errno::EIO)
            }
        };
        session.answered(op, begun, request, &reply);
        if is_traced {
            session.traced(&mut self.traced, op, begun, request, &reply);
        }
        reply
    }

    /// Takes back the references that a successful reply to `op` gave, because it could not be sent
    /// and the kernel will not drop them by FORGET.
    #[cold]
    fn undo(&self, op: Option<Opcode>, reply: &mut [u8]) {
        use Opcode::*;
        let Some(op) = op else { return };
        match op {
            Lookup | Create | Mknod | Mkdir | Symlink | Link | Tmpfile => {
                if let Ok((entry, _)) = EntryOut::read_from_prefix(reply)
                    && entry.nodeid != 0
                {
                    let node = self.session.node(entry.nodeid);
                    match is_virtual(node) {
                        true => self.session.forgotten(node, 1),
                        false => self.session.not_given(node),
                    }
                }
            }
            Readdirplus => {
                let release = |entry: &EntryOut| {
                    self.session.not_given(Ino(entry.nodeid));
                    Node::Keep
                };
                // Our own records, so they parse.
                let _ = for_each_node(reply, release);
            }
            _ => {}
        }
    }
}

/// Carries a request out, unless a server before this one has.
#[inline]
fn carry_out(
    op: Opcode,
    session: &Arc<Session>,
    who: &mut Caller,
    before: Outcome,
    request: &mut Request<'_>,
) -> ops::Outcome {
    let follows = session.views.follows();
    let (volume, tid) = (&*session.views.get(), request.header.pid);
    let cx = &mut Context { session, volume, who, tid };
    let answer = |cx: &mut Context<'_>, request: &mut Request<'_>| {
        let len = answer(op, cx, request)?;
        if follows {
            limit(op, request.body().get_mut(..len).unwrap_or_default())?;
        }
        Ok(len)
    };
    match before {
        Outcome::Undone => answer(cx, request),
        Outcome::Done => {
            ops::resent::answer(op, cx, request).unwrap_or_else(|| answer(cx, request))
        }
        Outcome::Deadly => {
            let (op, node) = (op.name(), request.header.nodeid);
            tracing::error!(op, node, "refused: servers have died of this request");
            Err(Errno::EIO)
        }
    }
}

/// Calls the handler of an operation.
#[inline]
fn answer(op: Opcode, cx: &mut Context<'_>, request: &mut Request<'_>) -> ops::Outcome {
    if op.is_change() && cx.session.about.is_read_only() {
        return Err(Errno::EROFS);
    }
    if is_virtual(request.node()) {
        if is_document(request.node()) {
            return ops::info::answer(op, cx, request);
        }
        return ops::token::answer(op, cx, request);
    }
    match op {
        Opcode::Lookup => ops::lookup::lookup(cx, request),
        Opcode::Forget => ops::lookup::forget(cx, request),
        Opcode::BatchForget => ops::lookup::batch_forget(cx, request),
        Opcode::Getattr => ops::attr::getattr(cx, request),
        Opcode::Setattr => ops::attr::setattr(cx, request),
        Opcode::Statx => ops::attr::statx(cx, request),
        Opcode::Access => ops::attr::access(cx, request),
        Opcode::Readlink => ops::attr::readlink(cx, request),
        Opcode::Statfs => ops::attr::statfs(cx, request),
        Opcode::Create => ops::create::create(cx, request),
        Opcode::Tmpfile => ops::create::tmpfile(cx, request),
        Opcode::Mknod => ops::create::mknod(cx, request),
        Opcode::Mkdir => ops::create::mkdir(cx, request),
        Opcode::Symlink => ops::create::symlink(cx, request),
        Opcode::Link => ops::create::link(cx, request),
        Opcode::Unlink => ops::remove::unlink(cx, request),
        Opcode::Rmdir => ops::remove::rmdir(cx, request),
        Opcode::Rename => ops::rename::rename(cx, request),
        Opcode::Rename2 => ops::rename::rename2(cx, request),
        Opcode::Open => ops::open::open(cx, request),
        Opcode::Opendir => ops::open::opendir(cx, request),
        Opcode::Release | Opcode::Releasedir | Opcode::Destroy => Ok(0),
        Opcode::Read => ops::data::read(cx, request),
        Opcode::Write => ops::data::write(cx, request),
        Opcode::Fallocate => ops::data::fallocate(cx, request),
        Opcode::Lseek => ops::seek::lseek(cx, request),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => ops::data::copy(cx, request),
        Opcode::Fsync | Opcode::Fsyncdir => ops::sync::fsync(cx, request),
        Opcode::Syncfs => ops::sync::syncfs(cx, request),
        Opcode::Readdir => ops::dir::readdir(cx, request),
        Opcode::Readdirplus => ops::dir::readdirplus(cx, request),
        Opcode::Setxattr => ops::xattr::set(cx, request),
        Opcode::Getxattr => ops::xattr::get(cx, request),
        Opcode::Listxattr => ops::xattr::list(cx, request),
        Opcode::Removexattr => ops::xattr::remove(cx, request),
        Opcode::Ioctl => ops::control::ioctl(cx, request),
        // Who waits is answered when there is an answer, or the transport gives up waiting.
        Opcode::Interrupt | Opcode::NotifyReply => Ok(0),
        // Close has nothing to report: writes have reached the volume before.
        Opcode::Flush => Err(Errno::ENOSYS),
        // Locks and polling are the kernel's own; the rest is not for mounts like ours.
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw | Opcode::Poll => Err(Errno::ENOSYS),
        Opcode::Bmap | Opcode::Setupmapping | Opcode::Removemapping => Err(Errno::ENOSYS),
        // Answered before the mount is served; a second one is an error.
        Opcode::Init => Err(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::DIRECTORY as INFO;
    use crate::notices::Notice;
    use crate::protocol::flags::*;
    use crate::protocol::wire::*;
    use crate::session::Rules;
    use crate::tokens::DIRECTORY;
    use proptest::prelude::*;
    use shoal::raw::{
        Code, Error, Handle, MkfsOptions, OpenOptions, OrphanInfo, Quota, Rights, RootInfo, Token,
        Volume,
    };
    use shoal_session::hello::VERSION;
    use shoal_session::page::{HEAD, PAGE, Question, ROWS};
    use shoal_session::wire::{Put, Reader, Take, Writer};
    use shoal_session::{Fact, HardLinks, Load, Metric, Opened, Operation, ScrubStep, Trace};
    use shoal_skip::property;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use zerocopy::{Immutable, IntoBytes};

    /// A worker on a fresh volume, and a buffer for its requests.
    struct Bench {
        worker: Worker,
        volume: Arc<Volume>,
        buffer: Vec<u8>,
        /// User of the requests.
        uid: u32,
    }

    impl Bench {
        fn new() -> Bench {
            Bench::with(Rules::default())
        }

        fn with(rules: Rules) -> Bench {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("shoal-dispatch-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let wish = MkfsOptions { size: 64 << 20, ..MkfsOptions::default() };
            shoal::raw::mkfs(&path, &wish).unwrap();
            let volume = Volume::open(&path, &OpenOptions::default()).unwrap();
            // The open volume needs no name.
            std::fs::remove_file(&path).unwrap();
            let (volume, notices) = (Arc::new(volume), Arc::default());
            let session = Session::new(Arc::clone(&volume), rules, Ino::ROOT, notices);
            let worker = Worker::new(Arc::new(session));
            Bench { worker, volume, buffer: vec![0; 70_000], uid: 0 }
        }

        fn volume(&self) -> &Volume {
            &self.volume
        }

        /// Puts a request into the buffer; returns its length.
        fn fill(&mut self, op: u32, node: u64, ext: u16, parts: &[&[u8]]) -> usize {
            let len = 40 + parts.iter().map(|part| part.len()).sum::<usize>();
            let header = InHeader {
                len: len as u32,
                opcode: op,
                unique: 2,
                nodeid: node,
                uid: self.uid,
                gid: self.uid,
                total_extlen: ext,
                ..InHeader::default()
            };
            let bytes = [&[header.as_bytes()], parts].concat().concat();
            self.buffer[..len].copy_from_slice(&bytes);
            len
        }

        fn call(&mut self, op: Opcode, node: u64, parts: &[&[u8]]) -> Result<Vec<u8>, Errno> {
            let len = self.fill(op as u32, node, 0, parts);
            let (mut request, start) = Request::split(&mut self.buffer, len).unwrap();
            if op == Opcode::Ioctl {
                // As each transport does.
                request.let_wait();
            }
            let mut reply = self.worker.handle(&mut request);
            if matches!(reply, Reply::Later { .. }) {
                // The host has dropped the page.
                request.let_wait();
                reply = self.worker.handle(&mut request);
            }
            match reply {
                Reply::Body(len) => Ok(self.buffer[start..start + len].to_vec()),
                Reply::Error(errno) => Err(errno),
                Reply::Silent => Ok(Vec::new()),
                Reply::Later { .. } => unreachable!("it may wait"),
            }
        }

        fn create(&mut self, name: &[u8]) -> EntryOut {
            let arg = CreateIn { flags: 0o102, mode: 0o100_644, ..CreateIn::default() };
            let reply = self.call(Opcode::Create, 1, &[arg.as_bytes(), name]).unwrap();
            assert_eq!(reply.len(), 144);
            EntryOut::read_from_prefix(&reply).unwrap().0
        }
    }

    impl Bench {
        /// Creates a file, and returns the name of a token to write to it.
        fn share(&mut self, name: &[u8]) -> Vec<u8> {
            let ino = Ino(self.create(name).nodeid);
            let generation = self.volume().attributes().getattr(ino).unwrap().generation;
            let (file, rights) = (Handle { ino, generation }, Rights::READ | Rights::WRITE);
            let (tokens, root) = (self.volume().tokens(), Caller::root());
            let token = tokens.issue(&root, file, rights, Duration::from_secs(3600)).unwrap();
            format!("{token}\0").into_bytes()
        }
    }

    /// A reply to LOOKUP of a token that could not be sent gives its references back.
    #[test]
    fn an_unsent_reply_with_a_token_holds_nothing() {
        let mut bench = Bench::with(Rules { tokens: true, ..Rules::default() });
        let name = bench.share(b"file\0");
        let directory = bench.call(Opcode::Lookup, 1, &[b".shoal-open\0"]).unwrap();
        assert_eq!(record::<EntryOut>(&directory).nodeid, DIRECTORY.0);
        let mut replies = [0, 0].map(|_| bench.call(Opcode::Lookup, DIRECTORY.0, &[&name]));
        let node = Ino(record::<EntryOut>(replies[0].as_ref().unwrap()).nodeid);
        let tokens = &bench.worker.session.tokens;
        assert!(is_virtual(node) && tokens.get(node).is_some());
        bench.worker.undo(Some(Opcode::Lookup), replies[0].as_mut().unwrap());
        assert!(tokens.get(node).is_some(), "the other reply");
        bench.worker.session.forgotten(node, 1);
        assert!(tokens.get(node).is_none());
    }

    /// Nobody else can hold attributes of a new file, so a change needs no notice; of a file that
    /// was looked up somebody may.
    #[test]
    fn a_new_file_takes_no_note() {
        let mut bench = Bench::new();
        let made = Ino(bench.create(b"f\0").nodeid);
        assert!(!bench.worker.session.unread.changed(made, 7));
        bench.call(Opcode::Lookup, 1, &[b"f\0"]).unwrap();
        assert!(bench.worker.session.unread.changed(made, 7));
    }

    fn record<T: FromBytes + Immutable + zerocopy::KnownLayout>(reply: &[u8]) -> T {
        T::read_from_bytes(reply).unwrap()
    }

    #[test]
    fn a_file_from_its_creation_to_its_end() {
        let mut bench = Bench::new();
        let missing = bench.call(Opcode::Lookup, 1, &[b"file\0"]).unwrap();
        assert_eq!(record::<EntryOut>(&missing).nodeid, 0, "a negative entry");
        let made = bench.create(b"file\0");
        assert_eq!(made.attr.ino, made.nodeid);
        let node = made.nodeid;
        let arg = ReadIn { size: 5, offset: 3, ..ReadIn::default() };
        let reply = bench.call(Opcode::Write, node, &[arg.as_bytes(), b"hello"]).unwrap();
        assert_eq!(record::<WriteOut>(&reply).size, 5);
        let arg = ReadIn { size: 4096, ..ReadIn::default() };
        let reply = bench.call(Opcode::Read, node, &[arg.as_bytes()]).unwrap();
        assert_eq!(reply, b"\0\0\0hello");
        let found: EntryOut = record(&bench.call(Opcode::Lookup, 1, &[b"file\0"]).unwrap());
        assert_eq!((found.nodeid, found.attr.size), (node, 8));
        assert_eq!(bench.call(Opcode::Unlink, 1, &[b"file\0"]), Ok(vec![]));
        // Held twice, by CREATE and by LOOKUP.
        for n in [1u64, 1] {
            let arg = GetattrIn::default();
            let attr: AttrOut =
                record(&bench.call(Opcode::Getattr, node, &[arg.as_bytes()]).unwrap());
            assert_eq!((attr.attr.nlink, attr.attr.size), (0, 8));
            bench.call(Opcode::Forget, node, &[n.as_bytes()]).unwrap();
        }
        let arg = GetattrIn::default();
        assert_eq!(bench.call(Opcode::Getattr, node, &[arg.as_bytes()]), Err(Errno::ESTALE));
    }

    #[test]
    fn forgetting_in_a_batch() {
        let mut bench = Bench::new();
        let nodes = [&b"a\0"[..], b"b\0", b"c\0"].map(|name| bench.create(name).nodeid);
        for name in [&b"a\0"[..], b"b\0", b"c\0"] {
            bench.call(Opcode::Unlink, 1, &[name]).unwrap();
        }
        let head = BatchForgetIn { count: 3, dummy: 0 };
        let each = nodes.map(|nodeid| ForgetOne { nodeid, nlookup: 1 });
        bench.call(Opcode::BatchForget, 0, &[head.as_bytes(), each.as_bytes()]).unwrap();
        for node in nodes {
            assert!(bench.volume().attributes().getattr(Ino(node)).is_err());
        }
    }

    impl Bench {
        fn may_block(&mut self, op: Opcode, node: u64, arg: &[u8]) -> bool {
            let len = self.fill(op as u32, node, 0, &[arg]);
            self.worker.may_block(&Request::split(&mut self.buffer, len).unwrap().0)
        }
    }

    /// Calls that must not miss stores to a mapping wait, and cost a notice, only once the file's
    /// pages were read.
    #[test]
    fn only_files_that_were_read_may_have_pages() {
        let mut bench = Bench::new();
        let file = bench.create(b"a\0").nodeid;
        let data = [7; 20_000];
        let write = ReadIn { size: 20_000, ..ReadIn::default() };
        bench.call(Opcode::Write, file, &[write.as_bytes(), &data]).unwrap();
        let size = SetattrIn { valid: SETATTR_SIZE, size: 100_000, ..SetattrIn::default() };
        bench.call(Opcode::Setattr, file, &[size.as_bytes()]).unwrap();
        let notices = bench.worker.session.notices.clone();
        // None is delivered.
        notices.open(Box::new(|_| ()));
        let hole = LseekIn { offset: 50_000, whence: SEEK_DATA, ..LseekIn::default() };
        let times = SetattrIn { valid: SETATTR_MTIME_NOW, ..SetattrIn::default() };
        let both = SetattrIn { valid: SETATTR_MTIME_NOW | SETATTR_SIZE, ..size };
        let mode = SetattrIn { valid: SETATTR_MODE, mode: 0o600, ..SetattrIn::default() };
        let blocks = |bench: &mut Bench| {
            let all = [(Opcode::Lseek, hole.as_bytes()), (Opcode::Setattr, times.as_bytes())];
            let never = [both.as_bytes(), mode.as_bytes()];
            assert!(!never.iter().any(|arg| bench.may_block(Opcode::Setattr, file, arg)));
            all.map(|(op, arg)| bench.may_block(op, file, arg))
        };
        assert_eq!(blocks(&mut bench), [false; 2], "written");
        let read = ReadIn { size: 10, bits: BY_LOCK_OWNER, ..ReadIn::default() };
        bench.call(Opcode::Read, file, &[read.as_bytes()]).unwrap();
        assert_eq!(blocks(&mut bench), [false; 2], "read past the page cache");
        let end = Errno::from(Code::NoDevice);
        assert_eq!(bench.call(Opcode::Lseek, file, &[hole.as_bytes()]), Err(end));
        let read = ReadIn { size: 10, ..ReadIn::default() };
        bench.call(Opcode::Read, file, &[read.as_bytes()]).unwrap();
        assert_eq!(blocks(&mut bench), [true; 2], "read");
        // On a thread that must not wait there are no holes.
        let told = bench.call(Opcode::Lseek, file, &[hole.as_bytes()]).unwrap();
        assert_eq!(record::<OffsetOut>(&told).value, 50_000);
        let hole = LseekIn { whence: SEEK_HOLE, ..hole };
        let told = bench.call(Opcode::Lseek, file, &[hole.as_bytes()]).unwrap();
        assert_eq!(record::<OffsetOut>(&told).value, 100_000);
        bench.call(Opcode::Forget, file, &[1u64.as_bytes()]).unwrap();
        assert_eq!(blocks(&mut bench), [false; 2], "forgotten");
        notices.close();
    }

    /// The kernel's cached listing is dropped with the first of its files, once, and not for a file
    /// without a name.
    #[test]
    fn a_kept_listing_goes_with_its_files() {
        let mut bench = Bench::with(Rules { no_open: true, ..Rules::default() });
        let notices = bench.worker.session.notices.clone();
        notices.open(Box::new(|_| ()));
        let open = OpenIn::default();
        assert_eq!(bench.call(Opcode::Opendir, 1, &[open.as_bytes()]), Err(Errno::ENOSYS));
        let nodes = [&b"a\0"[..], b"b\0", b"c\0", b"d\0"].map(|name| bench.create(name).nodeid);
        let forget = |bench: &mut Bench, node: u64| {
            bench.call(Opcode::Forget, node, &[1u64.as_bytes()]).unwrap();
            notices.waiting()
        };
        bench.call(Opcode::Unlink, 1, &[b"a\0"]).unwrap();
        assert_eq!(forget(&mut bench, nodes[0]), []);
        let told = [Notice::Listing { node: 1 }];
        assert_eq!(forget(&mut bench, nodes[1]), told);
        assert_eq!(forget(&mut bench, nodes[2]), told, "told already");
        let arg = ReadIn { size: 4096, ..ReadIn::default() };
        bench.call(Opcode::Readdir, 1, &[arg.as_bytes()]).unwrap();
        assert_eq!(forget(&mut bench, nodes[3]).len(), 2, "listed since");
    }

    #[test]
    fn what_could_not_be_sent_is_taken_back() {
        let mut bench = Bench::new();
        let node = bench.create(b"file\0").nodeid;
        let arg = ReadIn { size: 4096, ..ReadIn::default() };
        let mut listing = bench.call(Opcode::Readdirplus, 1, &[arg.as_bytes()]).unwrap();
        let mut found = bench.call(Opcode::Lookup, 1, &[b"file\0"]).unwrap();
        bench.call(Opcode::Unlink, 1, &[b"file\0"]).unwrap();
        bench.worker.undo(Some(Opcode::Readdirplus), &mut listing);
        bench.worker.undo(Some(Opcode::Lookup), &mut found);
        assert!(bench.volume().attributes().getattr(Ino(node)).is_ok(), "still held by CREATE");
        bench.call(Opcode::Forget, node, &[1u64.as_bytes()]).unwrap();
        assert!(bench.volume().attributes().getattr(Ino(node)).is_err());
    }

    #[test]
    fn listings_bring_attributes() {
        let mut bench = Bench::new();
        let node = bench.create(b"file\0").nodeid;
        let arg = ReadIn { size: 4096, ..ReadIn::default() };
        let mut listing = bench.call(Opcode::Readdirplus, 1, &[arg.as_bytes()]).unwrap();
        assert_eq!(listing.len(), 3 * 160);
        let mut nodes = Vec::new();
        for_each_node(&mut listing, |entry| {
            nodes.push(entry.nodeid);
            Node::Keep
        })
        .unwrap();
        assert_eq!(nodes, [node]);
        // The cookie of the last record continues behind it.
        let (last, _) = Dirent::read_from_prefix(&listing[2 * 160 + 128..]).unwrap();
        let arg = ReadIn { size: 4096, offset: last.off, ..ReadIn::default() };
        assert_eq!(bench.call(Opcode::Readdirplus, 1, &[arg.as_bytes()]), Ok(vec![]));
        let plain = bench.call(Opcode::Readdir, 1, &[ReadIn { offset: 0, ..arg }.as_bytes()]);
        assert_eq!(plain.unwrap().len(), 3 * 32);
    }

    #[test]
    fn what_is_not_there_is_enosys_and_the_rest_is_not() {
        let mut bench = Bench::new();
        let len = bench.fill(4096, 1, 0, &[]);
        let (mut request, _) = Request::split(&mut bench.buffer, len).unwrap();
        assert_eq!(bench.worker.handle(&mut request), Reply::Error(Errno::ENOSYS));
        let enosys: Vec<_> = Opcode::ALL
            .iter()
            .copied()
            .filter(|op| {
                let arg = vec![0; op.header_size()];
                bench.call(*op, 1, &[&arg, b"a\0b\0"]) == Err(Errno::ENOSYS)
            })
            .collect();
        use Opcode::*;
        let wanted = [Flush, Getlk, Setlk, Setlkw, Bmap, Poll, Setupmapping, Removemapping];
        assert_eq!(enosys, wanted);
    }

    /// Interesting numbers for offsets, sizes, flags.
    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![
            4 => 0u64..8,
            2 => 0u64..100_000,
            1 => (0u32..64).prop_map(|shift| 1 << shift),
            1 => (0u32..64, 0u64..4096)
                .prop_map(|(shift, less)| (1u64 << shift).wrapping_sub(less)),
            1 => any::<u64>(),
        ]
    }

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => prop::sample::select(vec![
                &b"a\0"[..], b"b\0", b"c\0", b".\0", b"..\0", b"a\0b\0", b"b\0c\0", b"x/y\0", b"\0",
            ]).prop_map(<[u8]>::to_vec),
            1 => proptest::collection::vec(any::<u8>(), 0..600),
        ]
    }

    /// Operation, node, extensions, words of its structure, payload.
    type Wild = (Opcode, u64, u16, Vec<u64>, Vec<u8>);

    fn wild() -> impl Strategy<Value = Wild> {
        let op = prop::sample::select(Opcode::ALL);
        let node = prop_oneof![
            4 => 0u64..6,
            1 => (1u64 << 63)..(1u64 << 63) + 3,
            1 => INFO.0..INFO.0 + 3,
        ];
        (op, node, 0u16..3, proptest::collection::vec(word(), 0..12), payload())
    }

    /// Returns the number of a row.
    fn number_of(name: &str) -> u16 {
        shoal_session::ROWS.iter().find(|row| row.name == name).unwrap().number
    }

    /// Returns the name of a row; empty if there is none with this number.
    fn name_of(number: u16) -> &'static str {
        let row = shoal_session::ROWS.iter().find(|row| row.number == number);
        row.map_or("", |row| row.name)
    }

    /// Returns the fields of a row's arguments: numbers of 1, 2, 4 and 8 bytes, nodes, strings,
    /// optional numbers.
    fn fields(name: &str) -> &'static str {
        match name {
            "remove_tree" => "ns1",
            "share" => "ns184",
            "make_subvolume" => "s4",
            "delete_subvolume" | "set_label" => "s",
            "set_quota" => "noo",
            "quota" | "remove_quota" => "n",
            "links" => "no8",
            "subvolumes" => "2",
            "metrics" | "operations" | "facts" | "loads" => "4",
            "quotas" | "trace" | "orphans" => "8",
            "trim" => "1",
            "scrub" => "48888",
            "remount" => "11",
            _ => "",
        }
    }

    /// Returns arguments with the fields of a row. Most nodes are the top.
    fn arguments(number: u16, words: &[u64], text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let out = &mut Writer::new(&mut bytes);
        for (field, word) in fields(name_of(number)).bytes().zip(words) {
            match field {
                b'1' => (*word as u8).put(out),
                b'2' => (*word as u16).put(out),
                b'4' => (*word as u32).put(out),
                b'8' => word.put(out),
                b'n' => (if *word < 6 { 1 } else { *word }).put(out),
                b'o' => (*word != 0).then_some(*word).put(out),
                _ => text.put(out),
            }
        }
        bytes
    }

    /// Returns a page with a question, and other bytes behind it.
    fn page_of((version, number, zero): (u32, u16, u16), umask: u32, arguments: &[u8]) -> Vec<u8> {
        let mut page = Vec::new();
        let out = &mut Writer::new(&mut page);
        ((version, (number, zero)), (umask, arguments)).put(out);
        page.resize(PAGE, b'd');
        page
    }

    /// A question whose parts make sense, mostly; then the opened inode, and the user.
    fn asked() -> impl Strategy<Value = (Vec<u8>, u64, u32)> {
        let number = prop_oneof![
            16 => prop::sample::select(ROWS),
            1 => 0u16..80,
            1 => any::<u16>(),
        ];
        let small = prop_oneof![3 => Just(0u64), 4 => 0u64..6, 1 => word()];
        let text = prop_oneof![
            8 => prop::sample::select(vec![
                &b"a"[..], b"d", b"dd", b"d/d", b"s", b"new", b"", b".", b"d/..", b"../a", b"/",
            ]).prop_map(<[u8]>::to_vec),
            1 => proptest::collection::vec(any::<u8>(), 0..300),
        ];
        let bytes = |most: usize| proptest::collection::vec(any::<u8>(), 0..most);
        let noise = prop_oneof![
            8 => Just((false, Vec::new())),
            1 => bytes(3).prop_map(|bytes| (false, bytes)),
            1 => bytes(600).prop_map(|bytes| (true, bytes)),
        ];
        let rare = |value: u32| prop_oneof![19 => Just(value), 1 => any::<u32>()];
        let head =
            (rare(VERSION), number, rare(0), prop_oneof![19 => 0u32..0o1000, 1 => any::<u32>()]);
        let body = (proptest::array::uniform5(small), text, noise);
        let len = prop_oneof![19 => Just(None), 1 => word().prop_map(Some)];
        let node = prop_oneof![2 => Just(1u64), 1 => 0u64..6];
        let user = prop_oneof![3 => Just(0u32), 1 => Just(61_001)];
        (head, body, len, node, user).prop_map(|(head, body, len, node, user)| {
            let ((version, number, zero, umask), (words, text, (alone, noise))) = (head, body);
            let shaped = if alone { Vec::new() } else { arguments(number, &words, &text) };
            let arguments = [shaped, noise].concat();
            let mut page = page_of((version, number, zero as u16), umask, &arguments);
            if let Some(len) = len {
                page[HEAD - 4..HEAD].copy_from_slice(&(len as u32).to_le_bytes());
            }
            (page, node, user)
        })
    }

    /// Takes a value that is all of these bytes.
    fn whole<'a, T: Take<'a>>(bytes: &'a [u8]) -> shoal::raw::Result<T> {
        let mut reader = Reader::new(bytes);
        let value = T::take(&mut reader)?;
        reader.end().map(|()| value)
    }

    /// Takes an answer apart: its result, or its error.
    fn answer_in(reply: &[u8]) -> shoal::raw::Result<Result<&[u8], Error>> {
        let mut reader = Reader::new(reply);
        let ((version, failed), zero): ((u32, u32), u32) = Take::take(&mut reader)?;
        assert_eq!((version, zero), (VERSION, 0));
        let bytes = whole::<&[u8]>(reader.take_rest())?;
        match failed {
            0 => Ok(Ok(bytes)),
            1 => whole(bytes).map(Err),
            other => panic!("result of kind {other}"),
        }
    }

    /// Reads a result of a row.
    fn read(number: u16, result: &[u8]) -> shoal::raw::Result<()> {
        match name_of(number) {
            "share" => whole::<Token>(result).map(drop),
            "read_only_reason" => whole::<Option<String>>(result).map(drop),
            "make_subvolume" => whole::<Opened>(result).map(drop),
            "set_quota" => whole::<Quota>(result).map(drop),
            "quota" => whole::<Option<Quota>>(result).map(drop),
            "links" => whole::<HardLinks>(result).map(drop),
            "subvolumes" => whole::<Vec<RootInfo>>(result).map(drop),
            "quotas" => whole::<Vec<Quota>>(result).map(drop),
            "metrics" => whole::<Vec<Metric>>(result).map(drop),
            "operations" => whole::<Vec<Operation>>(result).map(drop),
            "facts" => whole::<Vec<Fact>>(result).map(drop),
            "loads" => whole::<Vec<Load>>(result).map(drop),
            "trace" => whole::<Trace>(result).map(drop),
            "orphans" => whole::<Vec<OrphanInfo>>(result).map(drop),
            "trim" => whole::<u64>(result).map(drop),
            "scrub" => {
                let step: ScrubStep = whole(result)?;
                assert!(step.problems.is_empty() && step.left_out == 0, "{step:?}");
                Ok(())
            }
            _ => whole::<()>(result),
        }
    }

    fn ioctl(in_size: usize, out_size: usize) -> IoctlIn {
        let (in_size, out_size) = (in_size as u32, out_size as u32);
        IoctlIn { cmd: IOCTL_CALL, in_size, out_size, ..IoctlIn::default() }
    }

    proptest! {
        #![proptest_config(property(100))]

        /// For any question of any user, from any place in a list: only what [`Question::parse`]
        /// accepts is answered, by a page that can be read; a scrub finds nothing, and the volume
        /// stays consistent.
        #[test]
        fn arbitrary_control_requests_do_no_harm(
            asked in proptest::collection::vec(asked(), 1..30),
        ) {
            let mut bench = Bench::new();
            bench.create(b"a\0");
            let who = Caller::root();
            for name in [&b"d"[..], b"dd"] {
                let names = bench.volume().namespace();
                let top = names.mkdir(&who, Ino::ROOT, name, 0o755).unwrap().ino;
                names.mkdir(&who, top, b"d", 0o755).unwrap();
            }
            bench.volume().subvolumes().create(&who, b"s", 0o755).unwrap();
            bench.volume().maintenance().checkpoint().unwrap();
            for (page, node, user) in asked {
                let refused = match Question::parse(&page) {
                    Ok(Some(_)) => None,
                    Ok(None) => Some(Errno::EPROTONOSUPPORT),
                    Err(_) => Some(Errno::EINVAL),
                };
                bench.uid = user;
                let arg = ioctl(PAGE, PAGE);
                let reply = bench.call(Opcode::Ioctl, node, &[arg.as_bytes(), &page]);
                if let Some(errno) = refused {
                    prop_assert_eq!(reply, Err(errno));
                    continue;
                }
                prop_assert!(reply.is_ok(), "{:?} {:?}", &page[..64], reply);
                let reply = reply.unwrap();
                prop_assert!(reply.len() <= 16 + PAGE);
                let number = u16::from_le_bytes([page[4], page[5]]);
                if let Ok(result) = answer_in(&reply[16..]).unwrap() {
                    read(number, result).unwrap();
                }
            }
            let report = bench.volume().check(&mut |_, _| {}).unwrap();
            prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    }

    #[test]
    fn pages_that_are_too_small_are_refused() {
        let mut bench = Bench::new();
        let mut call = |arg: IoctlIn, page: &[u8]| {
            bench.call(Opcode::Ioctl, 1, &[arg.as_bytes(), page]).map(|reply| {
                let result = answer_in(&reply[16..]).unwrap();
                result.map(<[u8]>::to_vec)
            })
        };
        let reason = page_of((VERSION, number_of("read_only_reason"), 0), 0, b"");
        for (in_size, out_size) in [(0, 0), (PAGE - 1, PAGE), (PAGE, PAGE - 1)] {
            assert_eq!(call(ioctl(in_size, out_size), &reason).unwrap_err(), Errno::EINVAL);
        }
        // Fewer bytes than the kernel says, or the question.
        let arg = ioctl(PAGE, PAGE);
        for len in [0, 1, HEAD - 1] {
            assert_eq!(call(arg, &reason[..len]).unwrap_err(), Errno::EINVAL);
        }
        assert_eq!(call(arg, &reason[..HEAD]).unwrap().unwrap(), [0], "no reason");
        let metrics = page_of((VERSION, number_of("metrics"), 0), 0, &[0; 4]);
        assert_eq!(call(arg, &metrics[..HEAD + 3]).unwrap_err(), Errno::EINVAL);
        assert!(call(arg, &metrics[..HEAD + 4]).unwrap().is_ok());
        // Arguments that end with the page, and are too long for the row.
        let full = page_of((VERSION, number_of("metrics"), 0), 0, &[0; PAGE - HEAD]);
        assert_eq!(call(arg, &full).unwrap().unwrap_err().code(), Code::Invalid);
    }

    proptest! {
        #![proptest_config(property(60))]

        /// For any request, no handler and nothing in the volume panics, and the volume stays
        /// consistent and usable.
        #[test]
        fn arbitrary_requests_do_no_harm(
            requests in proptest::collection::vec(wild(), 1..120),
        ) {
            let mut bench = Bench::with(Rules { tokens: true, ..Rules::default() });
            let shared = bench.share(b"shared\0");
            prop_assert!(bench.call(Opcode::Lookup, DIRECTORY.0, &[&shared]).is_ok());
            for (op, node, ext, words, payload) in requests {
                let mut arg: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                arg.resize(op.header_size(), 0);
                if matches!(op, Opcode::Forget | Opcode::BatchForget) {
                    // The kernel gives back only what it has got; more is its own bug.
                    continue;
                }
                let len = bench.fill(op as u32, node, ext, &[&arg, &payload]);
                let Ok((mut request, _)) = Request::split(&mut bench.buffer, len) else { continue };
                let session = &bench.worker.session;
                let who = bench.worker.who.adopt(&request, op, false);
                let mut cx = Context { session, volume: &session.views.get(), who, tid: 1 };
                // Not through `handle`, which would catch the panic that we are looking for.
                let _ = answer(op, &mut cx, &mut request);
            }
            prop_assert_eq!(bench.volume().read_only_reason(), None);
            let report = bench.volume().check(&mut |_, _| {}).unwrap();
            prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    }
}
