//! What several threads, or processes on a mount, do to the same names can be put in an order.

use shoal::{Caller, Code, Ino, MemDevice, MkfsOptions, OpenOptions, Volume, mkfs_on};
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::linear::call::{At, Call, Content, Flavour, HEAD, Kind, Mode, Reply, Seen, WHOLE};
use shoal_sim::linear::history::{Event, History};
use shoal_sim::linear::library;
use shoal_sim::linear::search::{Recovered, check, check_recovered};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn at(dir: u8, name: u8) -> At {
    At { dir, name }
}

/// A history of calls that begin and end at the given times.
fn history(events: &[(usize, Call, Reply, u64, u64)]) -> History {
    let flavour = Flavour { dirs: 4, names: 3, trees: false, replacing: false, data: false };
    let event = |&(thread, call, reply, begin, end)| Event { thread, call, reply, begin, end };
    let events = events.iter().map(event).collect();
    History { seed: 0, flavour, inos: [1, 2, 3, 4, 5, 6], events }
}

const NOT_FOUND: Reply = Reply::Failed(2);
const EXISTS: Reply = Reply::Failed(17);

fn file(ino: u64) -> Reply {
    Reply::Found(Seen { kind: Kind::File, ino, age: 0 })
}

#[test]
fn an_order_is_found_if_there_is_one() {
    let (x, y) = (at(0, 0), at(0, 1));
    // The rename overlaps with both lookups, which see it half-way, each from its own side.
    let rename = (0, Call::Rename(x, y, Mode::Plain), Reply::Done, 1, 10);
    let before = (1, Call::Lookup(x), file(5), 2, 3);
    let after = (1, Call::Lookup(x), NOT_FOUND, 4, 5);
    check(&history(&[rename, before, after])).expect("the rename is between");
    let wrong = check(&history(&[rename, (1, Call::Lookup(x), NOT_FOUND, 2, 3), {
        (2, Call::Lookup(x), file(5), 4, 5)
    }]));
    let text = wrong.expect_err("gone, then there again").to_string();
    assert!(text.contains("not linearisable") && text.contains("lookup a/x"), "{text}");
}

#[test]
fn what_had_ended_comes_first() {
    let (create, y) =
        (|ino, begin, end| (0, Call::Create(at(0, 1)), file(ino), begin, end), at(0, 1));
    let missing = |begin, end| (1, Call::Lookup(y), NOT_FOUND, begin, end);
    check(&history(&[create(9, 1, 5), missing(4, 6)])).expect("they overlap");
    check(&history(&[create(9, 1, 3), missing(4, 6)])).expect_err("it was made before");
}

#[test]
fn two_cannot_make_one_name() {
    let make = |thread, reply| (thread, Call::Mkdir(at(1, 1)), reply, 1, 5);
    check(&history(&[make(0, Reply::Done), make(1, EXISTS)])).expect("one of them");
    check(&history(&[make(0, Reply::Done), make(1, Reply::Done)])).expect_err("not both");
    check(&history(&[make(0, EXISTS), make(1, EXISTS)])).expect_err("nor neither");
}

/// Each of two directories moves into the other at the same time: a loop that nothing reaches.
#[test]
fn directories_cannot_move_into_each_other() {
    let (c, d) = (at(0, 2), at(1, 2));
    let first = |reply| (0, Call::Rename(c, at(3, 0), Mode::Plain), reply, 1, 5);
    let second = |reply| (1, Call::Rename(d, at(2, 0), Mode::Plain), reply, 2, 4);
    check(&history(&[first(Reply::Done), second(NOT_FOUND)])).expect_err("it is there");
    check(&history(&[first(Reply::Done), second(Reply::Failed(22))])).expect("one is below");
    check(&history(&[first(Reply::Done), second(Reply::Done)])).expect_err("both");
}

/// A listing may be torn, but not so that it misses what was there all the time.
#[test]
fn listings_show_what_stays() {
    let shown = |ino| Some(Seen { kind: Kind::File, ino, age: 0 });
    let dir = Some(Seen { kind: Kind::Dir, ino: 3, age: 0 });
    let list = |entries| (1, Call::List(0), Reply::Listed(entries), 2, 5);
    let rename = (0, Call::Rename(at(0, 0), at(0, 1), Mode::Plain), Reply::Done, 1, 6);
    check(&history(&[rename, list([None, None, dir])])).expect("x after, y before");
    check(&history(&[rename, list([None, shown(5), None])])).expect_err("z is missing");
}

/// On a mount attributes may show a change while it is under way, before names do; not after it.
#[test]
fn only_attributes_of_a_change_under_way_are_excused() {
    let (x, y) = (at(0, 0), at(0, 1));
    let unlink = (0, Call::Unlink(x), Reply::Done, 1, 10);
    let stat = |of, entries, begin| {
        (1, Call::Stat(of), Reply::Attrs { links: 3, entries }, begin, begin + 1)
    };
    let early = history(&[unlink, stat(0, 1, 3), (1, Call::Lookup(x), file(5), 5, 6)]);
    check(&early).expect_err("gone, and there");
    check(&early.without_early_attributes()).expect("the name is kept until the end");
    for wrong in [
        history(&[unlink, stat(0, 2, 11)]),
        history(&[unlink, stat(1, 1, 3)]),
        history(&[(0, Call::Unlink(y), NOT_FOUND, 1, 10), stat(0, 1, 3)]),
        history(&[unlink, stat(0, 1, 3), (1, Call::Lookup(x), file(5), 11, 12)]),
    ] {
        let rest = wrong.without_early_attributes();
        check(&rest).expect_err("after it, elsewhere, of none, or of names");
    }
}

/// A crash leaves what some beginning of an order leads to, and no less than was acknowledged.
#[test]
fn a_recovery_is_a_beginning() {
    let made = history(&[
        (0, Call::Create(at(0, 1)), file(9), 1, 3),
        (1, Call::Write(4, 66), Reply::Done, 2, 5),
        (0, Call::Write(4, 23), Reply::Done, 6, 7),
    ]);
    let content = |len, head, tail| Reply::Content(Some(Content { len, head, tail }));
    let finds = |name: Reply, bytes: Reply, durable| {
        let seen = vec![(Call::Lookup(at(0, 1)), name), (Call::Read(4), bytes)];
        check_recovered(&made, Recovered { durable, seen }).is_ok()
    };
    let (none, long, both) = (content(0, 0, 0), content(6000, 66, 66), content(6000, 23, 66));
    assert!(finds(NOT_FOUND, none, 0) && finds(file(9), both, 0), "nothing, or all");
    assert!(finds(file(9), none, 4) && !finds(NOT_FOUND, none, 4), "acknowledged");
    assert!(finds(NOT_FOUND, long, 0), "they overlap");
    assert!(!finds(NOT_FOUND, both, 0), "the last without the first");
    assert!(!finds(file(9), content(100, 23, 0), 0), "the second write alone");
    assert!(!finds(file(9), long, 8) && finds(file(9), both, 8));
}

#[test]
fn bytes_of_two_writers_are_no_content() {
    let mut bytes = vec![66; WHOLE as usize];
    assert_eq!(Content::of(&bytes), Some(Content::default().written(66)));
    bytes[..HEAD as usize].fill(23);
    assert_eq!(Content::of(&bytes), Some(Content::default().written(66).written(23)));
    assert_eq!(Content::of(&bytes[..HEAD as usize]), Some(Content::default().written(23)));
    bytes[HEAD as usize + 1] = 23;
    assert_eq!(Content::of(&bytes), None);
}

#[test]
fn threads_on_the_library() {
    let seeds = from_environment("SHOAL_LINEAR_SEEDS", 1500);
    let first = from_environment("SHOAL_LINEAR_SEED", 0);
    let tally = within(600, "histories", move || library::run(first..first + seeds));
    let tally = tally.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(tally.histories, seeds);
    assert!(tally.overlapping > 0, "the threads never met");
}

/// A name that is replaced by renames is there all the time, and means what one of them put there:
/// lookup found the old file, which was gone when it asked for its attributes, and said `ENOENT`.
///
/// Before a lookup kept the directory locked, three of a million failed by a single thread beside
/// the one that renames: `SHOAL_LINEAR_REPLACED=6000000` to see as many.
#[test]
fn a_name_that_is_replaced_is_always_there() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).expect("mkfs");
    let volume = Volume::open_on(device, &OpenOptions::default()).expect("open");
    let who = Caller::root();
    volume.create(&who, Ino::ROOT, b"name", 0o600).expect("create");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..from_environment("SHOAL_LINEAR_REPLACED", 20_000) {
                volume.create(&who, Ino::ROOT, b"new", 0o600).expect("create");
                let flags = Default::default();
                volume.rename(&who, Ino::ROOT, b"new", Ino::ROOT, b"name", flags).expect("rename");
            }
            done.store(true, Ordering::Relaxed);
        });
        let (mut lookups, mut missing) = (0u64, 0u64);
        while !done.load(Ordering::Relaxed) {
            lookups += 1;
            match volume.lookup(&who, Ino::ROOT, b"name") {
                Ok(_) => {}
                Err(e) if e.is(Code::NotFound) => missing += 1,
                Err(e) => panic!("{e}"),
            }
        }
        println!("{missing} of {lookups} missing");
        assert_eq!(missing, 0, "of {lookups} lookups");
    });
}
