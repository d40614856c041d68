//! An exhaustive search of the protocol that decides who owns a volume in a bucket.
//!
//! The model has a store, a creator, two openers, and a reader. Each step is one request, which the
//! store carries out at once or not at all; the processes take steps in every order. The search
//! visits each state within its bounds, breadth first, and checks in each one:
//!
//! | | property |
//! | --- | --- |
//! | 1 | an opener that begins now finds the volume, and each acknowledged flush in it |
//! | 2 | of two acknowledged flushes, one's state contains the other's |
//! | 3 | a reader loads a prefix of the volume, with each flush acknowledged before it began; it is told of no damage |
//!
//! So no acknowledgement is false, two owners never diverge, and there is no state in which the
//! volume cannot be opened any more.
//!
//! | event | in the model |
//! | --- | --- |
//! | the reply of a request is lost, or the request lands late | the object lands at any later time, or never. Its writer sends it again; it may also have ended |
//! | "exists" although nothing is there | a possible answer to each create |
//! | an old list | each opener's list ends at any manifest, or is empty |
//! | a process stalls, or crashes | the others take steps, and property 1 needs no step of any process |
//! | the patience for a manifest is over | its owner goes on without it; the object may still land |
//! | collection | deletes any log object with data that a manifest of an owner covers, and supersedes any manifest that is no layer of its newest one, at any time: the request may be late, and its owner gone |
//! | a manifest of changes | an owner's next manifest changes any layer, or is complete; a load reads all layers, one after another |
//!
//! A flush is a number, and the volume's state is the sequence of flushes applied. The model has no
//! data objects (they are written before the log object that names them), no leases (an opener does
//! not wait, as with `force`), no closed volumes, and a load reads one slot at a time.
//!
//! Each [`Defect`] is planted, and must be found. `SHOAL_MODEL_LARGE=1` raises the bounds.

mod model;
mod state;

use model::{Bounds, Defect, Model};
use state::Broken;

/// Bounds of the smallest search; the others add to it.
const SMALL: Bounds = Bounds {
    flushes: [1, 0, 0],
    snapshots: [0, 1, 0],
    writers: 2,
    reader: false,
    layers: false,
    lates: 0,
    deletes: 1,
};
/// Bounds for three writers, of which the last one collects.
const THREE: Bounds = Bounds { writers: 3, snapshots: [0, 0, 1], ..SMALL };

#[test]
fn no_acknowledged_flush_is_lost_and_no_two_owners_diverge() {
    let late = Bounds { lates: 1, ..THREE };
    let two = Bounds { writers: 2, flushes: [1, 1, 0], snapshots: [1, 1, 0], ..late };
    let searches = [
        Bounds { flushes: [2, 1, 1], deletes: 2, ..late },
        Bounds { flushes: [1, 0, 1], reader: true, ..THREE },
        Bounds { reader: true, ..two },
        Bounds { flushes: [2, 0, 0], snapshots: [3, 1, 0], layers: true, reader: true, ..SMALL },
        Bounds { flushes: [2, 1, 0], snapshots: [2, 1, 0], layers: true, lates: 1, ..SMALL },
        // Only if they are to be large:
        Bounds { flushes: [2, 1, 1], snapshots: [1, 0, 1], deletes: 2, ..late },
        Bounds { flushes: [1, 0, 1], reader: true, ..late },
        Bounds { flushes: [2, 2, 0], snapshots: [2, 1, 0], lates: 2, ..two },
    ];
    let count = if std::env::var_os("SHOAL_MODEL_LARGE").is_some() { searches.len() } else { 5 };
    let mut states = 0;
    for bounds in searches.into_iter().take(count) {
        println!("{bounds:?}");
        let (visited, broken) = Model { bounds, defect: None, only: None }.run();
        assert_eq!(broken, None, "the steps are printed above");
        states += visited;
    }
    println!("{states} states, no false acknowledgement");
    assert!(states > 1_000_000);
}

#[test]
fn each_planted_defect_is_found() {
    let reader = Bounds { reader: true, ..THREE };
    let manifests = Bounds { snapshots: [1, 1, 0], ..SMALL };
    let layers =
        Bounds { flushes: [2, 0, 0], snapshots: [2, 0, 0], writers: 1, layers: true, ..SMALL };
    for (defect, bounds, expected) in [
        (Defect::FencesDeleted, SMALL, Broken::Lost),
        (Defect::ClaimsDeleted, manifests, Broken::Unopenable),
        (Defect::OldManifestsDeleted, manifests, Broken::Lost),
        (Defect::Pipelined, Bounds { flushes: [2, 0, 0], ..SMALL }, Broken::Unopenable),
        (Defect::ExistsIsSuccess, SMALL, Broken::Lost),
        (Defect::NoFence, SMALL, Broken::Unopenable),
        (Defect::NoFence, Bounds { flushes: [1, 1, 0], ..SMALL }, Broken::Split),
        (Defect::NoCheck, Bounds { flushes: [2, 1, 0], deletes: 2, ..THREE }, Broken::Split),
        (Defect::CreatorLoads, SMALL, Broken::Unopenable),
        (Defect::NoRecheck, Bounds { flushes: [1, 0, 1], ..reader }, Broken::NotPrefix),
        (Defect::NoRecheck, Bounds { flushes: [2, 0, 0], ..reader }, Broken::FalseDamage),
        (Defect::NoRecheck, Bounds { reader: true, ..manifests }, Broken::Stale),
        (Defect::LayersSuperseded, layers, Broken::Unopenable),
        (Defect::EarlierSuperseded, Bounds { lates: 1, ..layers }, Broken::Unopenable),
    ] {
        let (_, broken) = Model { bounds, defect: Some(defect), only: Some(expected) }.run();
        assert_eq!(broken, Some(expected), "{defect:?}");
    }
}

/// Defects that end an owner that nobody has replaced, and do no other harm.
#[test]
fn defects_of_liveness_are_found_as_such() {
    let bounds = Bounds { flushes: [1, 1, 0], snapshots: [2, 0, 0], lates: 1, ..SMALL };
    let only = Some(Broken::Needless);
    assert_eq!(Model { bounds, defect: None, only }.run().1, None);
    for defect in [Defect::ExistsIsLoss, Defect::OwnSnapshotForeign].map(Some) {
        assert_eq!(Model { bounds, defect, only: None }.run().1, None, "{defect:?}");
        assert_eq!(Model { bounds, defect, only }.run().1, only, "{defect:?}");
    }
}
