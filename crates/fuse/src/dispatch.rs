//! From a request to its reply: where every kernel request enters, whatever the transport.
//!
//! A thread of a transport owns a [`Worker`] and gives it one request at a time. The answer is
//! left in the request's own body; nothing is allocated and no other thread is involved, because
//! the kernel holds the directory's lock while a create or unlink waits for us.

use crate::caller::Who;
use crate::notices::Notices;
use crate::ops::{self, Context};
use crate::protocol::dirent::{Node, for_each_node};
use crate::protocol::wire::EntryOut;
use crate::protocol::{Errno, Opcode, Reply, Request};
use crate::service::Serve;
use crate::session::Session;
use shoal::Ino;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use zerocopy::FromBytes;

/// One thread's way to answer requests.
pub struct Worker {
    session: Arc<Session>,
    who: Who,
}

impl Serve for Worker {
    type Shared = Session;

    fn new(session: Arc<Session>) -> Worker {
        Worker { session, who: Who::new() }
    }

    fn notices(session: &Session) -> Option<&Arc<Notices>> {
        Some(&session.notices)
    }

    /// Answers `request`. A handler that panics costs its caller an EIO, not its life.
    #[inline]
    fn handle(&mut self, request: &mut Request<'_>) -> Reply {
        let Some(op) = request.opcode else {
            return Reply::Error(Errno::ENOSYS);
        };
        let session = &*self.session;
        let who = &mut self.who;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            request.set_node(session.node(request.header.nodeid));
            let caller = who.adopt(request, op, session.rules.kernel_checks);
            let (volume, tid) = (&*session.volume, request.header.pid);
            answer(op, &mut Context { session, volume, who: caller, tid }, request)
        }));
        match outcome {
            _ if op.is_silent() => Reply::Silent,
            Ok(Ok(len)) => Reply::Body(len),
            Ok(Err(errno)) => Reply::Error(errno),
            Err(_) => {
                tracing::error!(op = op.name(), node = request.header.nodeid, "handler panicked");
                Reply::Error(Errno::EIO)
            }
        }
    }

    /// Takes back what a successful reply to `op` gave, because it could not be sent: the
    /// references that the kernel would have dropped by FORGET.
    #[cold]
    fn undo(&self, op: Option<Opcode>, reply: &mut [u8]) {
        use Opcode::*;
        let volume = &self.session.volume;
        let Some(op) = op else { return };
        match op {
            Lookup | Create | Mknod | Mkdir | Symlink | Link | Tmpfile => {
                if let Ok((entry, _)) = EntryOut::read_from_prefix(reply)
                    && entry.nodeid != 0
                {
                    volume.release(self.session.node(entry.nodeid), 1);
                }
            }
            Readdirplus => {
                let release = |entry: &EntryOut| {
                    volume.release(Ino(entry.nodeid), 1);
                    Node::Keep
                };
                // Our own records, so they parse.
                let _ = for_each_node(reply, release);
            }
            _ => {}
        }
    }
}

/// One row per operation.
#[inline]
fn answer(op: Opcode, cx: &mut Context<'_>, request: &mut Request<'_>) -> ops::Outcome {
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
        Opcode::Lseek => ops::data::lseek(cx, request),
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
        Opcode::Interrupt | Opcode::NotifyReply => Ok(0),
        // Close has nothing to report: writes have reached the volume before.
        Opcode::Flush => Err(Errno::ENOSYS),
        // Locks and polling are the kernel's own; the rest is not for mounts like ours.
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw | Opcode::Poll => Err(Errno::ENOSYS),
        Opcode::Bmap | Opcode::Setupmapping | Opcode::Removemapping => Err(Errno::ENOSYS),
        // Answered by whoever set the mount up; a second one is nonsense.
        Opcode::Init => Err(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notices::Notice;
    use crate::protocol::wire::*;
    use crate::session::Rules;
    use proptest::prelude::*;
    use shoal::{MkfsOptions, OpenOptions, Volume};
    use std::sync::atomic::{AtomicU32, Ordering};
    use zerocopy::{Immutable, IntoBytes};

    /// A worker on a fresh volume, and a buffer for its requests.
    struct Bench {
        worker: Worker,
        buffer: Vec<u8>,
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
            shoal::mkfs(&path, &wish).unwrap();
            let volume = Volume::open(&path, &OpenOptions::default()).unwrap();
            // The open volume needs no name.
            std::fs::remove_file(&path).unwrap();
            let (volume, notices) = (Arc::new(volume), Arc::default());
            let session = Arc::new(Session::new(volume, rules, Ino::ROOT, notices));
            Bench { worker: Worker::new(session), buffer: vec![0; 70_000] }
        }

        fn volume(&self) -> &Volume {
            &self.worker.session.volume
        }

        /// Puts a request into the buffer; returns its length.
        fn fill(&mut self, op: u32, node: u64, ext: u16, parts: &[&[u8]]) -> usize {
            let len = 40 + parts.iter().map(|part| part.len()).sum::<usize>();
            let header = InHeader {
                len: len as u32,
                opcode: op,
                unique: 2,
                nodeid: node,
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
            match self.worker.handle(&mut request) {
                Reply::Body(len) => Ok(self.buffer[start..start + len].to_vec()),
                Reply::Error(errno) => Err(errno),
                Reply::Silent => Ok(Vec::new()),
            }
        }

        fn create(&mut self, name: &[u8]) -> EntryOut {
            let arg = CreateIn { flags: 0o102, mode: 0o100_644, ..CreateIn::default() };
            let reply = self.call(Opcode::Create, 1, &[arg.as_bytes(), name]).unwrap();
            assert_eq!(reply.len(), 144);
            EntryOut::read_from_prefix(&reply).unwrap().0
        }
    }

    /// Of a new file nobody else can have been given attributes, so a change needs no notice; of
    /// one that is looked up somebody may have been.
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
            assert!(bench.volume().getattr(Ino(node)).is_err());
        }
    }

    /// A listing that the kernel keeps goes with the first of its files, once, and not for one that
    /// has no name any more.
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
        assert!(bench.volume().getattr(Ino(node)).is_ok(), "still held by CREATE");
        bench.call(Opcode::Forget, node, &[1u64.as_bytes()]).unwrap();
        assert!(bench.volume().getattr(Ino(node)).is_err());
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

    /// A question of the ioctl about names.
    fn page() -> impl Strategy<Value = (Vec<u8>, u64)> {
        (prop_oneof![0u64..6, any::<u64>()], 0u32..3, 0u32..4, any::<u64>(), 0u64..6).prop_map(
            |(ino, generation, flags, cookie, node)| {
                let cookie = if flags < 2 { 0 } else { cookie };
                let head = ParentsHead { ino, generation, flags, cookie, ..ParentsHead::default() };
                (head.as_bytes().to_vec(), node)
            },
        )
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
        (op, 0u64..6, 0u16..3, proptest::collection::vec(word(), 0..12), payload())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
        #[test]
        fn arbitrary_questions_about_names_do_no_harm((head, node) in page()) {
            use crate::protocol::page::PAGE;
            use crate::protocol::parents::{IS_END, records};
            let mut bench = Bench::new();
            for name in [&b"a\0"[..], b"b\0", b"c\0"] {
                bench.create(name);
            }
            let size = PAGE as u32;
            let cmd = crate::protocol::flags::IOCTL_PARENTS;
            let arg = IoctlIn { cmd, in_size: size, out_size: size, ..IoctlIn::default() };
            let mut page = head;
            page.resize(PAGE, 0);
            if let Ok(reply) = bench.call(Opcode::Ioctl, node, &[arg.as_bytes(), &page]) {
                let (head, _) = ParentsHead::read_from_prefix(&reply[16..]).unwrap();
                prop_assert!(head.flags & IS_END != 0);
                prop_assert_eq!(records(&reply[16..]).count(), head.count as usize);
            }
        }
    }

    /// Heads of our other ioctls' structures, sound and unsound, in words of 32 bits.
    fn head() -> impl Strategy<Value = (bool, Vec<u32>, u64)> {
        let word = prop_oneof![4 => 0u32..3, 1 => any::<u32>()];
        (any::<bool>(), proptest::collection::vec(word, 4..7), 0u64..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
        #[test]
        fn arbitrary_looks_inside_and_removals_do_no_harm(
            asked in proptest::collection::vec(head(), 1..20),
        ) {
            use crate::protocol::flags::{IOCTL_INSPECT, IOCTL_REMOVE_TREE};
            let mut bench = Bench::new();
            for name in [&b"d"[..], b"dd"] {
                let top = bench.volume().mkdir(&shoal::Caller::root(), Ino::ROOT, name, 0o755);
                let top = top.unwrap().ino;
                bench.volume().mkdir(&shoal::Caller::root(), top, b"d", 0o755).unwrap();
            }
            for (is_tree, words, node) in asked {
                let cmd = if is_tree { IOCTL_REMOVE_TREE } else { IOCTL_INSPECT };
                let (in_size, out_size) = (16_376, 16_376);
                let arg = IoctlIn { cmd, in_size, out_size, ..IoctlIn::default() };
                let mut page: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                page.resize(16_376, b'd');
                if let Ok(reply) = bench.call(Opcode::Ioctl, node, &[arg.as_bytes(), &page])
                    && !is_tree
                {
                    let (head, _) = InspectHead::read_from_prefix(&reply[16..]).unwrap();
                    prop_assert!(head.flags == 1 && head.count < 100, "{head:?}");
                }
            }
            let report = bench.volume().check(&mut |_, _| {}).unwrap();
            prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
        /// Wherever a scrub is asked to begin, it reads what it is asked for and finds nothing.
        #[test]
        fn arbitrary_scrubs_do_no_harm(
            asked in proptest::collection::vec((proptest::array::uniform4(word()), 0u32..9), 1..20),
        ) {
            use crate::protocol::flags::IOCTL_SCRUB;
            let mut bench = Bench::new();
            for name in [&b"a\0"[..], b"b\0", b"c\0"] {
                bench.create(name);
            }
            bench.volume().checkpoint().unwrap();
            for ([stage, hi, lo, bytes], odd) in asked {
                let (in_size, out_size) = (16_376, 16_376);
                let arg = IoctlIn { cmd: IOCTL_SCRUB, in_size, out_size, ..IoctlIn::default() };
                let flags = u32::from(odd == 0);
                let head =
                    ScrubHead { stage, key: [hi, lo], bytes, flags, ..ScrubHead::default() };
                let mut page = head.as_bytes().to_vec();
                page.resize(16_376, 0xff);
                let reply = bench.call(Opcode::Ioctl, 1, &[arg.as_bytes(), &page]);
                prop_assert_eq!(reply.is_ok(), bytes > 0 && odd > 0);
                if let Ok(reply) = reply {
                    let (head, _) = ScrubHead::read_from_prefix(&reply[16..]).unwrap();
                    prop_assert!(head.count == 0 && head.left_out == 0, "{head:?}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
        /// Whatever arrives, no handler and nothing in the volume panics, and the volume is still
        /// consistent and usable.
        #[test]
        fn arbitrary_requests_do_no_harm(
            requests in proptest::collection::vec(wild(), 1..120),
        ) {
            let mut bench = Bench::new();
            for (op, node, ext, words, payload) in requests {
                let mut arg: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                arg.resize(op.header_size(), 0);
                if matches!(op, Opcode::Forget | Opcode::BatchForget) {
                    // The kernel gives back only what it has got; more is its own bug.
                    continue;
                }
                let len = bench.fill(op as u32, node, ext, &[&arg, &payload]);
                let Ok((mut request, _)) = Request::split(&mut bench.buffer, len) else { continue };
                let session = &*bench.worker.session;
                let who = bench.worker.who.adopt(&request, op, false);
                let mut cx = Context { session, volume: &session.volume, who, tid: 1 };
                // Not through `handle`, which would catch the panic that we are looking for.
                let _ = answer(op, &mut cx, &mut request);
            }
            prop_assert_eq!(bench.volume().read_only_reason(), None);
            let report = bench.volume().check(&mut |_, _| {}).unwrap();
            prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    }
}
