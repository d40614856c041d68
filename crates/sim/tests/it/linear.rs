//! Operations of several threads on the same names can be put in an order.

use shoal::raw::{
    BatchOp, Caller, Code, Error, Ino, MemDevice, MkfsOptions, OpenOptions, TreeCheck, Volume,
    mkfs_on,
};
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::linear::history::{Event, History};
use shoal_sim::linear::library;
use shoal_sim::linear::program::{Flavour, HEAD, WHOLE, at, list, lookup, read, stat, write};
use shoal_sim::linear::reply::{Reply, Seen};
use shoal_sim::linear::search::{Recovered, check, check_recovered};
use shoal_sim::op::{Op, Place, Who};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn rename(from: Place, to: Place) -> Op {
    Op::Rename { who: Who::Root, from, to, flags: Default::default() }
}

fn unlink(at: Place) -> Op {
    Op::Unlink { who: Who::Root, at }
}

/// A history of calls that begin and end at the given times.
fn history(events: &[(usize, Op, Reply, u64, u64)]) -> History {
    let flavour = Flavour { dirs: 4, names: 3, ..Flavour::PLAIN };
    let event =
        |(thread, op, reply, begin, end)| Event { thread, op, reply, begin, end, may_miss: false };
    let events = events.iter().cloned().map(event).collect();
    History { seed: 0, flavour, inos: [1, 2, 3, 4, 5, 6], events }
}

const NOT_FOUND: Reply = Reply::Failed(2);
const EXISTS: Reply = Reply::Failed(17);

fn file(ino: u64) -> Reply {
    Reply::Found(Seen { dir: false, ino, age: 0 })
}

#[test]
fn an_order_is_found_if_there_is_one() {
    let x = || lookup(at(0, 0));
    // The rename overlaps with both lookups, which see it half-way, each from its own side.
    let rename = (0, rename(at(0, 0), at(0, 1)), Reply::Done, 1, 10);
    let before = (1, x(), file(5), 2, 3);
    let after = (1, x(), NOT_FOUND, 4, 5);
    check(&history(&[rename.clone(), before, after])).expect("the rename is between");
    let wrong = check(&history(&[rename, (1, x(), NOT_FOUND, 2, 3), (2, x(), file(5), 4, 5)]));
    let text = wrong.expect_err("gone, then there again").to_string();
    assert!(text.contains("not linearisable") && text.contains("lookup open#0/x"), "{text}");
}

/// On both doors a system call may see half of a session's change, as long as that is under way.
#[test]
fn half_of_a_change_is_seen_while_it_is_made() {
    // Thread 1 has a session, thread 0 makes system calls (`is_by_session`).
    let rename = (1, rename(at(0, 0), at(0, 1)), Reply::Done, 1, 10);
    let look = |thread, name, reply, begin, end| (thread, lookup(at(0, name)), reply, begin, end);
    let halves = |thread, end| {
        let new = look(thread, 1, file(5), 2, 3);
        history(&[rename.clone(), new, look(thread, 0, file(5), 4, end)]).with_halves()
    };
    check(&halves(0, 5)).expect("the kernel has not been told of both names");
    check(&halves(2, 5).without_early_attributes()).expect("a system call, too");
    check(&halves(3, 5)).expect_err("a session sees all or nothing");
    let late = [rename.clone(), look(0, 0, file(5), 11, 12)];
    check(&history(&late).with_halves()).expect_err("it has ended");
    let undone = (0, self::rename(at(0, 0), at(0, 2)), Reply::Done, 2, 3);
    let after = look(2, 1, file(5), 12, 13);
    check(&history(&[rename, undone, after]).with_halves()).expect("it did nothing");
}

#[test]
fn what_had_ended_comes_first() {
    let create = |ino, begin, end| {
        (0, Op::Create { who: Who::Root, at: at(0, 1), mode: 0o666 }, file(ino), begin, end)
    };
    let missing = |begin, end| (1, lookup(at(0, 1)), NOT_FOUND, begin, end);
    check(&history(&[create(9, 1, 5), missing(4, 6)])).expect("they overlap");
    check(&history(&[create(9, 1, 3), missing(4, 6)])).expect_err("it was made before");
}

#[test]
fn two_cannot_make_one_name() {
    let make = |thread, reply| {
        (thread, Op::Mkdir { who: Who::Root, at: at(1, 1), mode: 0o777 }, reply, 1, 5)
    };
    check(&history(&[make(0, Reply::Done), make(1, EXISTS)])).expect("one of them");
    check(&history(&[make(0, Reply::Done), make(1, Reply::Done)])).expect_err("not both");
    check(&history(&[make(0, EXISTS), make(1, EXISTS)])).expect_err("nor neither");
}

/// Each of two directories moves into the other at the same time: a loop that nothing reaches.
#[test]
fn directories_cannot_move_into_each_other() {
    let first = |reply| (0, rename(at(0, 2), at(3, 0)), reply, 1, 5);
    let second = |reply| (1, rename(at(1, 2), at(2, 0)), reply, 2, 4);
    check(&history(&[first(Reply::Done), second(NOT_FOUND)])).expect_err("it is there");
    check(&history(&[first(Reply::Done), second(Reply::Failed(22))])).expect("one is below");
    check(&history(&[first(Reply::Done), second(Reply::Done)])).expect_err("both");
}

/// A listing may be torn, but not so that it misses what was there all the time.
#[test]
fn listings_show_what_stays() {
    let shown = |ino| Some(Seen { dir: false, ino, age: 0 });
    let dir = Some(Seen { dir: true, ino: 3, age: 0 });
    let list = |entries| (1, list(0), Reply::Listed(entries), 2, 5);
    let rename = (0, rename(at(0, 0), at(0, 1)), Reply::Done, 1, 6);
    check(&history(&[rename.clone(), list([None, None, dir])])).expect("x after, y before");
    check(&history(&[rename, list([None, shown(5), None])])).expect_err("z is missing");
}

/// On a mount attributes may show a change while it is under way, before names do; not after it.
#[test]
fn only_attributes_of_a_change_under_way_are_excused() {
    let gone = || (0, unlink(at(0, 0)), Reply::Done, 1, 10);
    let stat =
        |of, entries, begin| (1, stat(of), Reply::Attrs { links: 3, entries }, begin, begin + 1);
    let found = |begin| (1, lookup(at(0, 0)), file(5), begin, begin + 1);
    let early = history(&[gone(), stat(0, 1, 3), found(5)]);
    check(&early).expect_err("gone, and there");
    check(&early.without_early_attributes()).expect("the name is kept until the end");
    for wrong in [
        history(&[gone(), stat(0, 2, 11)]),
        history(&[gone(), stat(1, 1, 3)]),
        history(&[(0, unlink(at(0, 1)), NOT_FOUND, 1, 10), stat(0, 1, 3)]),
        history(&[gone(), stat(0, 1, 3), found(11)]),
    ] {
        let rest = wrong.without_early_attributes();
        check(&rest).expect_err("after it, elsewhere, of none, or of names");
    }
}

/// The answer to a read after these writes, in their order.
fn after(values: &[u64]) -> Reply {
    let mut bytes = Vec::new();
    for value in values {
        let Op::Write { data, .. } = write(4, *value) else { unreachable!("a write") };
        let written = data.bytes();
        bytes.resize(bytes.len().max(written.len()), 0);
        bytes[..written.len()].copy_from_slice(&written);
    }
    Reply::of_bytes(&bytes)
}

/// A crash leaves what some beginning of an order leads to, and no less than was acknowledged.
#[test]
fn a_recovery_is_a_beginning() {
    let create = Op::Create { who: Who::Root, at: at(0, 1), mode: 0o666 };
    let made = history(&[
        (0, create, file(9), 1, 3),
        (1, write(4, 66), Reply::Done, 2, 5),
        (0, write(4, 23), Reply::Done, 6, 7),
    ]);
    let finds = |name: Reply, bytes: Reply, durable| {
        let seen = vec![(lookup(at(0, 1)), name), (read(4), bytes)];
        check_recovered(&made, Recovered { durable, seen }).is_ok()
    };
    let (none, long, both) = (after(&[]), after(&[66]), after(&[66, 23]));
    assert!(finds(NOT_FOUND, none, 0) && finds(file(9), both, 0), "nothing, or all");
    assert!(finds(file(9), none, 4) && !finds(NOT_FOUND, none, 4), "acknowledged");
    assert!(finds(NOT_FOUND, long, 0), "they overlap");
    assert!(!finds(NOT_FOUND, both, 0), "the last without the first");
    assert!(!finds(file(9), after(&[23]), 0), "the second write alone");
    assert!(!finds(file(9), long, 8) && finds(file(9), both, 8));
}

/// Two writes leave the bytes of one of two orders, never a mixture of both.
#[test]
fn bytes_of_two_writers_are_those_of_an_order() {
    let of = |reply| {
        let writes = [(0, write(4, 66), Reply::Done, 1, 5), (1, write(4, 23), Reply::Done, 2, 6)];
        let [first, second] = writes;
        check(&history(&[first, second, (0, read(4), reply, 7, 8)]))
    };
    of(after(&[66, 23])).expect("the short one last");
    of(after(&[23, 66])).expect("the long one last");
    of(after(&[23])).expect_err("the long one is lost");
    let [long, short] = [66, 23].map(|value| match write(4, value) {
        Op::Write { data, .. } => data.bytes(),
        _ => unreachable!("a write"),
    });
    assert_eq!((long.len(), short.len()), (WHOLE as usize, HEAD as usize));
    let torn = [&short[..50], &long[50..]].concat();
    of(Reply::of_bytes(&torn)).expect_err("half of each");
}

/// Names in a removed tree go when nobody sees it, each once; meanwhile the file may be linked.
#[test]
fn names_in_removed_trees_fade() {
    let removed = (0, Op::RemoveTree { who: Who::Root, at: at(0, 2) }, Reply::Done, 1, 2);
    let links = |links, begin| (0, stat(5), Reply::Attrs { links, entries: 0 }, begin, begin + 1);
    let link = |reply, begin| {
        let from = shoal_sim::op::Target::Slot(5);
        (0, Op::Link { who: Who::Root, from, at: at(0, 1) }, reply, begin, begin + 1)
    };
    let of = |events: &[(usize, Op, Reply, u64, u64)]| {
        let mut all = vec![removed.clone(), (0, unlink(at(1, 0)), Reply::Done, 3, 4)];
        all.extend(events.iter().cloned());
        let history = history(&all);
        let flavour = Flavour { trees: true, dirs: 2, ..history.flavour };
        check(&History { flavour, ..history })
    };
    of(&[links(1, 5), links(0, 7)]).expect("one name was left, then none");
    of(&[links(0, 5), links(1, 7)]).expect_err("it came back");
    of(&[links(2, 5)]).expect_err("there are no more");
    of(&[link(Reply::Done, 5), links(2, 7), links(1, 9)]).expect("linked before it went");
    of(&[link(NOT_FOUND, 5), links(0, 7)]).expect("it had gone");
    of(&[link(NOT_FOUND, 5), links(1, 7)]).expect_err("so it has none");
    of(&[links(0, 5), link(Reply::Done, 7)]).expect_err("it had none");
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
    volume.namespace().create(&who, Ino::ROOT, b"name", 0o600).expect("create");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..from_environment("SHOAL_LINEAR_REPLACED", 20_000) {
                volume.namespace().create(&who, Ino::ROOT, b"new", 0o600).expect("create");
                let flags = Default::default();
                volume
                    .namespace()
                    .rename(&who, Ino::ROOT, b"new", Ino::ROOT, b"name", flags)
                    .expect("rename");
            }
            done.store(true, Ordering::Relaxed);
        });
        let (mut lookups, mut missing) = (0u64, 0u64);
        while !done.load(Ordering::Relaxed) {
            lookups += 1;
            match volume.namespace().lookup(&who, Ino::ROOT, b"name") {
                Ok(_) => {}
                Err(e) if e.is(Code::NotFound) => missing += 1,
                Err(e) => panic!("{e}"),
            }
        }
        println!("{missing} of {lookups} missing");
        assert_eq!(missing, 0, "of {lookups} lookups");
    });
}

/// A batch that replaces a file, or makes it, does so whatever is there when its turn comes: it
/// said `ENOENT` when the old file had gone since it looked, and `EEXIST` when one had come.
#[test]
fn a_batch_replaces_what_comes_and_goes() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).expect("mkfs");
    let volume = Volume::open_on(device, &OpenOptions::default()).expect("open");
    let (who, done) = (Caller::root(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for result in [
                    volume.namespace().create(&who, Ino::ROOT, b"name", 0o600).map(drop),
                    volume.namespace().unlink(&who, Ino::ROOT, b"name"),
                ] {
                    let other = |e: &Error| !e.is(Code::Exists) && !e.is(Code::NotFound);
                    assert!(!result.as_ref().is_err_and(other), "{result:?}");
                }
            }
        });
        let file = BatchOp::File { path: b"name", mode: 0o600, contents: b"new", replace: true };
        let mut failed = None;
        for _ in 0..from_environment("SHOAL_LINEAR_BATCHES", 20_000) {
            failed = failed.or(volume.batch(&who, Ino::ROOT, &[file]).err());
        }
        done.store(true, Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
}

/// A file that has one of two names at any time: whichever it is, the batch finds that name taken.
/// It said `ENOENT` when the second was missing while it resolved its paths, and the first when
/// it had its locks. Found by seed 1276 of the histories.
#[test]
fn a_batch_fails_for_what_is_there_in_its_turn() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).expect("mkfs");
    let volume = Volume::open_on(device, &OpenOptions::default()).expect("open");
    let (who, done) = (Caller::root(), AtomicBool::new(false));
    volume.namespace().create(&who, Ino::ROOT, b"one", 0o600).expect("create");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let names = volume.namespace();
            while !done.load(Ordering::Relaxed) {
                for (from, to) in [(b"one", b"two"), (b"two", b"one")] {
                    let flags = Default::default();
                    names.rename(&who, Ino::ROOT, from, Ino::ROOT, to, flags).expect("rename");
                }
            }
        });
        let file = BatchOp::File { path: b"one", mode: 0o600, contents: b"", replace: false };
        let link = BatchOp::Link { from: b"two", to: b"two" };
        let mut failed = None;
        for _ in 0..from_environment("SHOAL_LINEAR_BATCHES", 20_000) {
            let result = volume.batch(&who, Ino::ROOT, &[file, link]);
            let is_taken = result.as_ref().is_err_and(|e| e.code() == Code::Exists);
            failed = failed.or((!is_taken).then_some(result));
        }
        done.store(true, Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
}

/// A tree that is removed while a file takes its place, with its inode number: the file was taken
/// for the tree, lost its link as if it had one alone, and its directory counted one directory
/// fewer. Found by seed 15255 of the scheduled volumes.
#[test]
fn a_file_in_the_place_of_a_tree_is_no_tree() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).expect("mkfs");
    let volume = Volume::open_on(device, &OpenOptions::default()).expect("open");
    let (who, done) = (Caller::root(), AtomicBool::new(false));
    let names = volume.namespace();
    let remove = || names.remove_tree(&who, Ino::ROOT, b"name", TreeCheck::Top);
    let rounds = || -> Result<(), Error> {
        for _ in 0..from_environment("SHOAL_LINEAR_TREES", 20_000) {
            let tree = names.mkdir(&who, Ino::ROOT, b"name", 0o700)?;
            let _gone = remove();
            let file = names.create(&who, Ino::ROOT, b"name", 0o600)?;
            if file.ino == tree.ino {
                let _gone = names.link(&who, file.ino, Ino::ROOT, b"other");
            }
            let _gone = remove();
            let _none = names.unlink(&who, Ino::ROOT, b"other");
        }
        Ok(())
    };
    let (rounds, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut result = Ok(());
            while !done.load(Ordering::Relaxed) && result.is_ok() {
                result = remove().or_else(|e| if e.is(Code::NotFound) { Ok(()) } else { Err(e) });
            }
            result
        });
        let rounds = rounds();
        done.store(true, Ordering::Relaxed);
        (rounds, other.join())
    });
    rounds.expect("names come and go");
    other.expect("no panic").expect("remove_tree");
    let report = volume.check(&mut |_, _| {}).expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
