//! Work spread over threads: real threads here, `shuttle`'s in the models of trees and inode
//! tables.

use shoal_base::sync::crew::{Steps, for_each, in_order};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Runs pieces `0..count`. Returns the pieces placed, in order, and the pieces finished.
fn run(
    threads: usize,
    count: u64,
    fails: impl Fn(&str, u64) -> bool + Sync,
) -> (Result<(), String>, Vec<u64>, BTreeSet<u64>) {
    let (mut next, mut placed, finished) = (0, Vec::new(), Mutex::new(BTreeSet::new()));
    let at = |step: &str, n: u64| match fails(step, n) {
        true => Err(format!("{step} {n}")),
        false => Ok(()),
    };
    let steps = Steps {
        take: || {
            next += 1;
            (next <= count).then_some(next - 1)
        },
        prepare: |n: u64| {
            std::thread::sleep(Duration::from_micros(n * 7 % 50));
            at("prepare", n).map(|()| n)
        },
        place: |n: &mut u64| {
            placed.push(*n);
            at("place", *n)
        },
        finish: |n: u64| {
            at("finish", n)?;
            assert!(finished.lock().expect("no panic").insert(n), "{n} twice");
            Ok(())
        },
    };
    let ended = in_order(threads, steps);
    (ended, placed, finished.into_inner().expect("no panic"))
}

#[test]
fn every_piece_is_placed_in_order_and_finished_once() {
    for threads in [0, 1, 2, 7] {
        for count in [0, 1, 100] {
            let (ended, placed, finished) = run(threads, count, |_, _| false);
            assert_eq!(ended, Ok(()));
            assert!(placed.into_iter().eq(0..count));
            assert!(finished.into_iter().eq(0..count));
        }
    }
}

#[test]
fn an_error_ends_the_work_of_all() {
    for step in ["prepare", "place", "finish"] {
        for threads in [1, 3] {
            let (ended, placed, finished) = run(threads, 1000, |at, n| at == step && n == 20);
            assert_eq!(ended, Err(format!("{step} 20")));
            assert!(placed.is_sorted() && placed.len() < 1000 && !finished.contains(&20));
        }
    }
}

#[test]
fn a_panic_ends_the_work_of_all() {
    let entered = AtomicUsize::new(0);
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(3, 1000, |at, n| {
            entered.fetch_add(1, Ordering::Relaxed);
            assert!(at != "place" || n != 20, "as a check that fails");
            false
        })
    }));
    assert!(ended.is_err() && entered.into_inner() < 1000);
}

#[test]
fn every_item_is_worked_on_once() {
    let items: Vec<u64> = (0..1000).collect();
    for threads in [0, 1, 2, 16] {
        let seen = Mutex::new(Vec::new());
        for_each(threads, &items, |n| seen.lock().expect("no panic").push(*n));
        let mut seen = seen.into_inner().expect("no panic");
        seen.sort_unstable();
        assert_eq!(seen, items);
    }
    for_each(4, &[], |_: &u64| unreachable!("there is nothing"));
}
