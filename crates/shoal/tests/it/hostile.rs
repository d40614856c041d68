//! Hostile clients of sessions: they write into the shared memory what and when they like. The
//! server goes on, others beside them get right answers, and nothing of theirs stays.

use crate::bounds::Open;
use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use shoal::raw::{
    Attr, Caller, Code, Cookies, Fields, Filter, Listing, Local, RingMemory, XattrFlags,
};
use shoal_session::calls::AT_END;
use shoal_session::copies::{behind, entry_at, take_dir};
use shoal_session::fuzzing::{
    AGAIN, ANSWER, CALL, FAILED, LEN, NUMBER, PART, REST, STATE, UMASK, WHO, number_of, put,
};
use shoal_session::hello::{self, Ticket, Welcome};
use shoal_session::lane::{Door, is_answered};
use shoal_session::memory::{CLOSED_MAX, FILE_BYTES, LANES, Memory, ROOM};
use shoal_session::wire::Reader;
use shoal_session::{Calls, CopyWish, How, KeptSessions, Node, Remote, Restored, Server, Session};
use shoal_skip::wait_until;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The bytes that ring a bell, on a machine of this byte order.
const RING: [u8; 8] = 1u64.to_le_bytes();
const NEW: How = How {
    read: true,
    write: true,
    append: false,
    truncate: false,
    create: true,
    create_new: false,
    mode: 0o644,
};

fn new_place() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("shoal-hostile-{}-{number}.sock", std::process::id()))
}

/// A served volume.
struct Scene {
    host: Arc<Open>,
    server: Server,
    kept: Option<Arc<KeptSessions>>,
}

impl Scene {
    fn new() -> Scene {
        let host = Arc::new(Open::new());
        let server = Server::start(&new_place(), host.clone()).unwrap();
        Scene { host, server, kept: None }
    }

    /// One whose sessions outlive their server.
    fn kept() -> Scene {
        let host = Arc::new(Open::new());
        let ring = Arc::new(RingMemory::without_name().unwrap());
        let kept = KeptSessions::make(ring).unwrap();
        let restored = Restored::none(kept.clone());
        let server = Server::keep(&new_place(), host.clone(), restored).unwrap();
        Scene { host, server, kept: Some(kept) }
    }

    /// Another server goes on, as after the end of the process of this one: what that had held is
    /// not held any more.
    fn next(self) -> Scene {
        let (kept, place) = (self.kept.unwrap(), self.server.path().to_owned());
        let files = kept.files().map(|file| file.try_clone_to_owned().unwrap());
        self.server.leave();
        let next = KeptSessions::of(files, Arc::new(RingMemory::without_name().unwrap())).unwrap();
        let (local, volume) = (Local::new(self.host.volume.clone()), &self.host.volume);
        let hold = |ino, generation| {
            let held = local.hold_again(ino, generation);
            volume.references().release(ino, 1);
            held
        };
        let restored = Restored::find(next.clone(), &local, &hold);
        let server = Server::keep(&place, self.host.clone(), restored).unwrap();
        Scene { host: self.host, server, kept: Some(next) }
    }

    fn place(&self) -> PathBuf {
        self.server.path().to_owned()
    }

    fn neighbour(&self) -> Neighbour {
        let calls = Remote(Session::connect(self.server.path()).unwrap());
        let who = calls.0.caller().clone();
        let dir = calls.make_dirs(&who, Node::TOP, b"neighbour", 0o755).unwrap().node;
        Neighbour { calls, who, dir, rounds: 0 }
    }

    /// All sessions have ended: nothing of them is left.
    fn end(self) {
        wait_until("the end of the sessions", || self.server.sessions() == 0);
        drop(self.server);
        let volume = self.host.volume.clone();
        assert!(volume.references().orphan_list().is_empty(), "something is still open");
        assert_eq!(volume.check(&mut |_, _| ()).unwrap().problems.len(), 0);
        let host = Arc::into_inner(self.host).expect("nobody has the volume any more");
        drop(host);
        Arc::into_inner(volume).expect("nobody has the volume any more").close().unwrap();
    }
}

/// A session that must get right answers whatever others do.
struct Neighbour {
    calls: Remote<Session>,
    who: Caller,
    dir: Node,
    rounds: u32,
}

impl Neighbour {
    fn round(&mut self) {
        let (calls, who, dir) = (&self.calls, &self.who, self.dir);
        let (name, text) = (format!("f{}", self.rounds % 7), self.rounds.to_le_bytes().repeat(40));
        calls.put(who, dir, name.as_bytes(), NEW, &text).unwrap();
        let mut read = Vec::new();
        let attr = calls.get(who, dir, name.as_bytes(), &mut read).unwrap();
        assert!(attr.size == 160 && read == text);
        if self.rounds % 16 == 5 {
            calls.fsync(who, dir, false).unwrap();
        }
        calls.unlink(who, dir, name.as_bytes()).unwrap();
        let gone = calls.find(who, dir, name.as_bytes(), true);
        assert!(gone.is_err_and(|e| e.errno() == Code::NotFound.errno()));
        self.rounds += 1;
    }
}

fn dial(place: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(place).unwrap()).unwrap();
    socket
}

/// A client that has the raw memory.
struct Raw {
    memory: Memory,
    file: OwnedFd,
    welcome: Welcome,
    _socket: OwnedFd,
}

impl Raw {
    fn connect(place: &Path) -> Raw {
        let socket = dial(place);
        let (memory, file) = Memory::make().unwrap();
        let welcome = hello::ask(&socket, &file, None).unwrap();
        Raw { memory, file, welcome, _socket: socket }
    }

    fn ticket(&self) -> Ticket {
        self.welcome.kept.as_ref().unwrap().ticket
    }

    /// Attaches to the next server, with the words as they are.
    fn attach(&mut self, place: &Path, ticket: Ticket) -> shoal::raw::Result<()> {
        let socket = dial(place);
        let welcome = hello::ask(&socket, &self.file, Some(ticket))?;
        (self.welcome, self._socket) = (welcome, socket);
        Ok(())
    }

    fn door(&self) -> Door<'_, AtomicU32> {
        let memory = &self.memory;
        Door { waiting: memory.waiting(), closing: memory.closing(), watched: memory.watched() }
    }

    fn ring(&self) {
        for bell in &self.welcome.bells {
            let _ = rustix::io::write(bell, &RING);
        }
    }

    fn word(&self, lane: usize, word: usize) -> &AtomicU32 {
        self.memory.lane(lane, word)
    }

    fn ask(&self, lane: usize, number: u32, bytes: &[u8]) {
        self.memory.write(lane, bytes);
        let head = [(NUMBER, number), (LEN, bytes.len() as u32), (WHO, 0), (UMASK, 0o22)];
        head.iter().for_each(|(at, value)| self.word(lane, *at).store(*value, Ordering::Relaxed));
        if self.door().ask(lane as u32, self.word(lane, STATE)) {
            self.ring();
        }
    }

    /// Waits for the answer; `Err`: it is an error.
    fn answer(&self, lane: usize) -> Result<Vec<u8>, Vec<u8>> {
        wait_until("an answer", || is_answered(self.word(lane, STATE)));
        let mut bytes = Vec::new();
        let len = self.word(lane, ANSWER).load(Ordering::Relaxed) as usize;
        self.memory.read(lane, len.min(ROOM), &mut bytes);
        match self.word(lane, FAILED).load(Ordering::Relaxed) {
            0 => Ok(bytes),
            _ => Err(bytes),
        }
    }

    fn call(&self, lane: usize, number: u32, bytes: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        self.ask(lane, number, bytes);
        self.answer(lane)
    }
}

fn row(name: &str) -> u32 {
    number_of(name).unwrap().into()
}

/// A question that is asked of the top: does it exist?
fn find_top() -> Vec<u8> {
    put(&((Node::TOP, &b""[..]), true))
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    fn word(&mut self) -> u32 {
        match self.below(4) {
            0 => self.below(4) as u32,
            1 => self.below(80) as u32,
            2 => 1 << self.below(32),
            _ => self.next() as u32,
        }
    }
}

/// Questions that open, make, remove and list in a directory of its own.
fn question(rng: &mut Rng) -> (u32, Vec<u8>) {
    let path = format!("hostile/{}", rng.below(5));
    let dir_path = (Node::TOP, path.as_bytes());
    let node = Node(rng.below(40) as u64);
    match rng.below(8) {
        0 | 1 => (row("open_file"), put(&(dir_path, NEW))),
        2 => (row("unlink"), put(&dir_path)),
        3 => (row("get"), put(&dir_path)),
        4 => (row("write"), put(&((node, rng.below(9000) as u64), &b"some bytes"[..]))),
        5 => (row("read"), put(&((node, 0u64), 5000u32))),
        6 => (row("close"), put(&node)),
        _ => (row("put"), put(&(dir_path, (NEW, &[7; 3000][..])))),
    }
}

fn ask_well(raw: &Raw, seed: u64) {
    let mut rng = Rng(seed);
    for _ in 0..1500 {
        let (number, bytes) = question(&mut rng);
        let lane = rng.below(LANES);
        raw.ask(lane, number, &bytes);
        // The answer may never come: the other thread has changed the question.
        (0..rng.below(20)).take_while(|_| !is_answered(raw.word(lane, STATE))).for_each(|_| {
            std::thread::yield_now();
        });
    }
}

fn write_anything(raw: &Raw, seed: u64, ends: &AtomicBool) {
    let mut rng = Rng(seed);
    while !ends.load(Ordering::Relaxed) {
        let value = rng.word();
        let word = match rng.below(10) {
            0 => raw.memory.waiting(),
            1 => raw.memory.closing(),
            2 => raw.memory.closed(rng.below(CLOSED_MAX)),
            3 => raw.memory.watched(),
            _ => raw.memory.lane(rng.below(LANES), rng.below(16)),
        };
        word.store(value, Ordering::Relaxed);
        if rng.below(8) == 0 {
            let (lane, len) = (rng.below(LANES), rng.below(64));
            raw.memory.write(lane, &rng.next().to_le_bytes().repeat(8)[..len]);
        }
        if rng.below(3) == 0 {
            raw.ring();
        }
    }
}

#[test]
fn words_that_change_at_any_moment_hurt_nobody_else() {
    write_into(Scene::new());
}

/// The same where what is open and was called is recorded for the next server.
#[test]
fn words_that_change_at_any_moment_hurt_nobody_else_over_servers() {
    write_into(Scene::kept());
}

/// A tree as its copies have it: each directory, with its entries in order.
fn copied(bytes: &[u8]) -> Vec<(Attr, Vec<String>)> {
    let (mut from, mut found) = (Reader::new(bytes), Vec::new());
    while !from.is_at_end() {
        let (attr, entries) = take_dir(&mut from).unwrap();
        let (mut at, mut shown) = (0, Vec::new());
        while at < entries.len() {
            let entry = entry_at(entries, at).unwrap();
            let name = String::from_utf8_lossy(entry.name);
            shown.push(format!("{name} {:?} {} {:?}", entry.ino, entry.cookie, entry.attr()));
            at = behind(entries, at).unwrap();
        }
        found.push((attr, shown));
    }
    found
}

#[test]
fn copies_are_as_listings_and_hold_until_anybody_changes_the_volume() {
    let scene = Scene::kept();
    let connect = || Remote(Session::connect(&scene.place()).unwrap());
    let (session, other) = (connect(), connect());
    let who = session.0.caller().clone();
    for dir in ["a/b/c", "a/e", "f"] {
        session.make_dirs(&who, Node::TOP, dir.as_bytes(), 0o755).unwrap();
        for n in 0..20 {
            let path = format!("{dir}/{n}");
            session.put(&who, Node::TOP, path.as_bytes(), NEW, path.as_bytes()).unwrap();
        }
    }
    session
        .set_xattr(&who, Node::TOP, b"f/7", true, b"user.k", b"v", XattrFlags::default())
        .unwrap();
    let all = CopyWish { entries: 1000, attributes: true, xattrs: true, below: true };
    let copy = |path: &[u8], names: &[&[u8]], wish: &CopyWish| {
        let mut bytes = Vec::new();
        let state = session.copies(&who, Node::TOP, path, names, wish, &mut bytes).unwrap();
        (state.expect("nobody changes it"), bytes)
    };
    let (state, bytes) = copy(b"", &[], &all);
    let dirs = copied(&bytes);
    assert_eq!(dirs.len(), 6, "the top, a, b, c, e, f");
    for (attr, shown) in &dirs {
        let mut listed = Vec::new();
        let listing = Listing { cookies: Cookies::ALL, want: Fields::ALL, filter: Filter::new() };
        let local = Local::new(scene.host.volume.clone());
        local
            .list(&who, Node(attr.ino.0), b"", attr.ino, &listing, &mut |entry, stat| {
                let (name, attr) = (String::from_utf8_lossy(entry.name), stat.unwrap().attr());
                listed.push(format!("{name} {:?} {} {attr:?}", entry.ino, entry.cookie));
                true
            })
            .unwrap();
        assert_eq!(*shown, listed, "{:?}", attr.ino);
        assert_eq!(*attr, local.attr(&who, Node(attr.ino.0)).unwrap());
    }
    // Parts of it: those of names, and as many as there is room for.
    assert_eq!(copied(&copy(b"a", &[b"e", b"none", b"b"], &all).1).len(), 3);
    assert_eq!(copied(&copy(b"a", &[], &CopyWish { below: false, ..all }).1).len(), 1);
    assert_eq!(copied(&copy(b"f", &[], &CopyWish { entries: 19, ..all }).1).len(), 0);
    let some = copied(&copy(b"", &[], &CopyWish { entries: 30, ..all }).1);
    assert!(some.iter().map(|(_, shown)| shown.len()).sum::<usize>() <= 30 && some.len() < 6);
    assert_eq!((&some[0], &some[1]), (&dirs[0], &dirs[1]), "in the order of a walk");
    let none = session.copies(&who, Node::TOP, b"f/1", &[], &all, &mut Vec::new());
    assert!(none.unwrap_err().is(Code::NotDirectory));

    // Reading ends no copy, not even where it renews the time of access.
    assert_eq!(session.0.state(), Some(state));
    other.get(&who, Node::TOP, b"f/1", &mut Vec::new()).unwrap();
    assert_eq!((session.0.state(), copy(b"", &[], &all).0), (Some(state), state));
    // A change of another session does, and of the process that has the volume.
    other.put(&who, Node::TOP, b"f/1", NEW, b"changed").unwrap();
    assert!(session.0.state() > Some(state));
    let (second, _) = copy(b"", &[], &all);
    assert_eq!(session.0.state(), Some(second));
    let local = Local::new(scene.host.volume.clone());
    local.unlink(&who, Node::TOP, b"f/2").unwrap();
    drop(local);
    assert!(session.0.state() > Some(second));
    let (third, _) = copy(b"", &[], &all);
    // So does another server.
    let scene = scene.next();
    assert!(session.0.state() > Some(third));
    session.find(&who, Node::TOP, b"f/1", true).unwrap();
    drop((session, other));
    scene.end();
}

/// A client attaches with tickets that it has not got, or again and again; and with its own, while
/// its memory says anything of what was asked and closed.
#[test]
fn a_ticket_is_good_for_one_session_once() {
    let mut scene = Scene::kept();
    let mut rng = Rng(17);
    let calls = |scene: &Scene| Remote(Session::connect(scene.server.path()).unwrap());
    let honest = calls(&scene);
    let who = honest.0.caller().clone();
    let made = honest.make_dirs(&who, Node::TOP, b"hostile", 0o777).unwrap();
    let mine = honest.open_file(&who, Node::TOP, b"mine", NEW).unwrap().node;
    honest.unlink(&who, Node::TOP, b"mine").unwrap();
    let mut raw = Raw::connect(&scene.place());
    for n in 0..10 {
        let path = format!("hostile/{n}");
        raw.call(0, row("open_file"), &put(&((Node::TOP, path.as_bytes()), NEW))).unwrap();
        raw.call(0, row("unlink"), &put(&(Node::TOP, path.as_bytes()))).unwrap();
    }
    let refused = |raw: &mut Raw, scene: &Scene, ticket| {
        let error = raw.attach(&scene.place(), ticket).unwrap_err();
        assert_eq!(error.errno(), Code::Stale.errno(), "{error}");
    };
    for round in 0..4u64 {
        let right = raw.ticket();
        // Its session is not over.
        refused(&mut raw, &scene, right);
        scene = scene.next();
        let [first, second] = right.secret;
        for secret in [[first ^ 1, second], [first, second ^ 1 << 63], [0, 0], [second, first]] {
            refused(&mut raw, &scene, Ticket { secret, ..right });
        }
        for slot in [0, 2, 8191, 8192, u32::MAX] {
            refused(&mut raw, &scene, Ticket { slot, ..right });
        }
        for lane in 0..LANES {
            (0..16).for_each(|at| raw.word(lane, at).store(rng.word(), Ordering::Relaxed));
        }
        for place in 0..CLOSED_MAX {
            raw.memory.closed(place).store(rng.below(12) as u32, Ordering::Relaxed);
        }
        raw.memory.waiting().store(rng.word(), Ordering::Relaxed);
        raw.memory.watched().store(rng.word(), Ordering::Relaxed);
        raw.attach(&scene.place(), right).unwrap();
        let again = right;
        refused(&mut raw, &scene, again);
        for _ in 0..300 {
            let (number, bytes) = question(&mut rng);
            let lane = rng.below(LANES);
            raw.word(lane, AGAIN).store(1, Ordering::Relaxed);
            raw.word(lane, CALL).store(rng.below(4) as u32, Ordering::Relaxed);
            raw.ask(lane, number, &bytes);
            (0..rng.below(20)).for_each(|_| std::thread::yield_now());
        }
        // The other client finds the server, and what it has open.
        assert_eq!(honest.write(&who, mine, AT_END, b"text").unwrap(), (4 * round, 4));
        honest.write(&who, made.node, 0, b"text").unwrap_err();
    }
    honest.close(&who, mine).unwrap();
    drop((raw, honest));
    scene.end();
}

fn write_into(scene: Scene) {
    let mut neighbour = scene.neighbour();
    for seed in 1..4 {
        let made = neighbour.calls.make_dirs(&neighbour.who, Node::TOP, b"hostile", 0o777).unwrap();
        neighbour.calls.close(&neighbour.who, made.node).unwrap();
        let raw = Raw::connect(&scene.place());
        let (ends, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| write_anything(&raw, seed, &ends));
            scope.spawn(|| {
                ask_well(&raw, seed + 100);
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                neighbour.round();
            }
            ends.store(true, Ordering::Relaxed);
        });
        drop(raw);
        wait_until("the end of the session", || scene.server.sessions() == 1);
    }
    neighbour.round();
    drop(neighbour);
    scene.end();
}

/// A question that was asked while another one of its lane was in work, all lanes at once, lengths
/// that are none, nodes that are not open.
#[test]
fn what_no_client_does_is_refused_or_ignored() {
    let scene = Scene::new();
    let mut neighbour = scene.neighbour();
    let raw = Raw::connect(&scene.place());
    for _ in 0..20 {
        (0..LANES).for_each(|lane| raw.ask(lane, row("sync"), &[]));
        (0..LANES).for_each(|lane| raw.ask(lane, row("find"), &find_top()));
    }
    neighbour.round();
    for place in 0..CLOSED_MAX {
        raw.memory.closed(place).store(place as u32 * 77_777, Ordering::Relaxed);
    }
    if raw.door().close() {
        raw.ring();
    }
    drop(raw);
    let raw = Raw::connect(&scene.place());
    raw.memory.write(3, &find_top());
    raw.word(3, NUMBER).store(row("find"), Ordering::Relaxed);
    raw.word(3, LEN).store(u32::MAX, Ordering::Relaxed);
    assert!(raw.door().ask(3, raw.word(3, STATE)));
    raw.ring();
    assert!(raw.answer(3).is_err(), "longer than its values");
    raw.call(3, row("find"), &find_top()).unwrap();
    assert_eq!(
        raw.call(4, REST, &[]).unwrap(),
        b"",
        "there is no answer of which this is the rest"
    );
    for number in [0, 63, 71, 65_535, 65_536, REST + 2, u32::MAX >> 1] {
        assert!(raw.call(5, number, &find_top()).is_err(), "{number}");
    }
    // Bits of lanes in which nothing is asked, and one in which there is.
    raw.memory.write(31, &find_top());
    raw.word(31, NUMBER).store(row("find"), Ordering::Relaxed);
    raw.word(31, LEN).store(find_top().len() as u32, Ordering::Relaxed);
    raw.word(31, STATE).store(1, Ordering::Release);
    raw.memory.waiting().store(u32::MAX, Ordering::SeqCst);
    raw.ring();
    raw.answer(31).unwrap();
    neighbour.round();
    drop((raw, neighbour));
    scene.end();
}

/// Bytes in parts that fit into one question were counted, and never let go: after 256 MiB no
/// more was taken. A question that became too long stayed, and the next one in its lane was
/// appended to it.
#[test]
fn questions_in_parts_are_counted_until_they_are_answered() {
    let scene = Scene::new();
    let raw = Raw::connect(&scene.place());
    for _ in 0..300 {
        raw.call(2, row("find") | PART, &[0; 1_000_000]).unwrap();
        assert!(raw.call(2, row("find"), &[0; 10]).is_err(), "no question");
    }
    // Without end, in two lanes.
    let (mut taken, part) = ([0; 2], vec![0; ROOM]);
    for (n, lane) in [0, 1].into_iter().cycle().enumerate() {
        match raw.call(lane, row("find") | PART, &part) {
            Ok(_) => taken[lane] += 1,
            Err(_) => break,
        }
        assert!(n < 1000, "a session holds more than it may");
    }
    assert!(taken[0] > 100);
    let refused = usize::from(taken[0] > taken[1]);
    raw.call(refused, row("find"), &find_top()).unwrap();
    for _ in 0..taken[refused] - 1 {
        raw.call(refused, row("find") | PART, &part).unwrap();
    }
    // And dies in the middle.
    drop(raw);
    scene.neighbour().round();
    scene.end();
}

/// The reason was lost with what the client had sent, which nobody had taken.
#[test]
fn who_may_not_enter_is_told() {
    let scene = Scene::new();
    scene.host.refused.store(true, Ordering::Relaxed);
    let error = Session::connect(&scene.place()).unwrap_err();
    assert_eq!(error.errno(), Code::Access.errno(), "{error}");
    assert!(error.to_string().contains("may not enter"), "{error}");
    scene.end();
}

/// Sends what no client sends, with these descriptors.
fn say(place: &Path, message: &[u8], files: &[BorrowedFd<'_>]) -> OwnedFd {
    let socket = dial(place);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(files)));
    }
    let parts = [IoSlice::new(message)];
    rustix::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
    socket
}

fn memfd(len: usize, seals: SealFlags, flags: MemfdFlags) -> Option<OwnedFd> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("hostile", flags).ok()?;
    rustix::fs::ftruncate(&file, len as u64).ok()?;
    rustix::fs::fcntl_add_seals(&file, seals).ok()?;
    Some(file)
}

#[test]
fn connections_that_no_client_makes_are_refused() {
    let scene = Scene::new();
    let place = scene.place();
    let mut neighbour = scene.neighbour();
    let right =
        [&0x5348_4f41_4c53_4553u64.to_le_bytes()[..], &hello::VERSION.to_le_bytes()].concat();
    // Which says nothing, and which goes at once.
    let silent: Vec<_> = (0..300).map(|_| dial(&place)).collect();
    (0..1000).for_each(|_| drop(dial(&place)));
    neighbour.round();
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let whole = FILE_BYTES.next_multiple_of(2 << 20);
    let mut files = vec![
        memfd(FILE_BYTES, SealFlags::empty(), MemfdFlags::empty()).unwrap(),
        memfd(4096, sealed, MemfdFlags::empty()).unwrap(),
        memfd(FILE_BYTES, sealed | SealFlags::FUTURE_WRITE, MemfdFlags::empty()).unwrap(),
        std::fs::File::open("/dev/null").unwrap().into(),
        std::fs::File::open("/proc/self/status").unwrap().into(),
        dial(&place),
        rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap(),
    ];
    files.extend(memfd(whole, sealed, MemfdFlags::HUGETLB));
    let mut said: Vec<OwnedFd> = Vec::new();
    for file in &files {
        said.push(say(&place, &right, &[file.as_fd()]));
        said.push(say(&place, &right[..7], &[file.as_fd()]));
    }
    let good = memfd(FILE_BYTES, sealed, MemfdFlags::empty()).unwrap();
    said.push(say(&place, &right, &[good.as_fd(), good.as_fd()]));
    said.push(say(&place, &right, &[good.as_fd(); 16]));
    said.push(say(&place, &right, &[]));
    said.push(say(&place, &[0; 5000], &[good.as_fd()]));
    for socket in &said {
        // Each is answered with a reason, and is no session.
        let mut answer = [0; 4096];
        let flags = rustix::net::RecvFlags::empty();
        let (len, _) = rustix::net::recv(socket, &mut answer, flags).expect("a reason");
        assert!(len > 16 && answer[12..16] != [0; 4]);
    }
    neighbour.round();
    assert_eq!(scene.server.sessions(), 1);
    drop((silent, said, neighbour));
    scene.end();
}

/// A client took away that reading its bell does not wait, and read it before the server did: the
/// server's thread waited for ever. Copies of bells outlive their session.
#[test]
fn bells_are_never_waited_for() {
    let scene = Scene::new();
    let mut neighbour = scene.neighbour();
    let raw = Raw::connect(&scene.place());
    for bell in &raw.welcome.bells {
        rustix::fs::fcntl_setfl(bell, OFlags::empty()).unwrap();
    }
    for _ in 0..3000 {
        raw.ring();
        for bell in &raw.welcome.bells {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }
    raw.call(0, row("find"), &find_top()).unwrap();
    (0..20).for_each(|_| neighbour.round());
    let copies: Vec<_> = raw.welcome.bells.iter().map(|bell| bell.try_clone().unwrap()).collect();
    drop(raw);
    wait_until("the end of the session", || scene.server.sessions() == 1);
    for _ in 0..100 {
        copies.iter().for_each(|bell| {
            let _ = rustix::io::write(bell, &RING);
        });
    }
    neighbour.round();
    drop(neighbour);
    scene.end();
}
