//! Every sequence of one operation and a slice of those of two, crashed after every device
//! operation; and proof that the explorer sees what it is for. All of it: `cargo xtask exhaustive`.

use shoal_sim::deadline::{from_environment, within};
use shoal_sim::exhaustive::actions::all;
use shoal_sim::exhaustive::explore::{Counts, Points, Violation, explore};
use shoal_sim::exhaustive::run::{Found, Wanted, run};
use shoal_sim::exhaustive::sequence::Only;
use shoal_sim::exhaustive::start::{Mode, Start};

fn wanted(length: usize, every: usize) -> Wanted {
    Wanted { length, every, sample: 0, seed: 1, limit: None, threads: 2 }
}

fn found(mode: Mode, wanted: Wanted) -> Found {
    within(600, mode.name(), move || {
        let start = Start::new(mode.settings()).expect("a tree to start from");
        run(&start, &wanted, &|_, _| {})
    })
}

fn clean(mode: Mode, wanted: Wanted) -> Found {
    let found = found(mode, wanted);
    if let Some(violation) = found.violations.first() {
        panic!(
            "{} of them, the first in mode {}: {violation}",
            found.violations.len(),
            mode.name()
        );
    }
    assert!(found.complete);
    found
}

/// One sequence in plain mode, crashed everywhere.
fn one(name: &str) -> Result<Counts, Violation> {
    let only: Only = name.parse().expect("a name");
    let start = Start::new(Mode::Plain.settings()).expect("a tree to start from");
    explore(&start, &all(), &only.sequence, Points::All)
}

#[test]
fn one_operation_crashed_everywhere() {
    for (mode, _) in Mode::EACH {
        let total = clean(mode, wanted(1, 1)).total();
        assert!(total.sequences > 500 && total.new_pairs > 1500, "{total:?}");
        assert_eq!(total.pairs, total.new_pairs, "no sequence is shorter");
        assert!(total.torn > 100 && total.reordered > 0, "{total:?}");
        assert_eq!(total.intents > 0, mode == Mode::Intents, "{total:?}");
    }
}

/// `SHOAL_EXHAUSTIVE_EVERY=1` runs all of them.
#[test]
fn a_slice_of_two_operations() {
    let every = from_environment("SHOAL_EXHAUSTIVE_EVERY", 487) as usize;
    let total = clean(Mode::Plain, wanted(2, every)).counts[1];
    assert!(total.sequences > 100 && total.pairs > total.new_pairs, "{total:?}");
}

#[test]
fn a_sample_of_three_operations() {
    let wanted = Wanted { sample: 100, ..wanted(0, 1) };
    assert_eq!(clean(Mode::Intents, wanted).counts[2].sequences, 100);
}

/// A device that says it flushed and did not: what was acknowledged is lost, and that is seen.
#[test]
fn a_lying_device_is_caught() {
    let found = within(600, "lying", || {
        let mut settings = Mode::Plain.settings();
        settings.lying = true;
        let start = Start::new(settings).expect("a tree to start from");
        run(&start, &wanted(1, 1), &|_, _| {})
    });
    assert!(!found.complete, "stopped when it had seen enough");
    let violation = found.violations.first().expect("it is caught");
    assert!(violation.only.at.is_some(), "at a crash point: {violation}");
    assert!(violation.message.contains("none of"), "{violation}");
}

/// The same sequence and crash points give the same images: a name is enough to replay one.
#[test]
fn a_sequence_is_explored_again_in_the_same_way() {
    let (first, again) = (one("0s-40c").expect("clean"), one("0s-40c").expect("clean"));
    assert_eq!((first.pairs, first.images), (again.pairs, again.images));
    assert!(first.pairs > first.new_pairs && first.new_pairs > 2, "{first:?}");
}
