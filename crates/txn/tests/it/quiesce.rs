//! Transaction quiesce with real threads. Its models are in the crate.

use shoal_txn::Quiesce;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn a_panic_ends_the_quiesce() {
    let quiesce = Quiesce::default();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _quiesced = quiesce.begin();
        panic!("as a check that fails");
    }));
    assert!(ended.is_err());
    drop(quiesce.enter());
}

#[test]
fn nobody_is_inside_a_quiesced_gate() {
    let (quiesce, in_flight, stop) =
        (Quiesce::default(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _here = quiesce.enter();
                    in_flight.fetch_add(1, Ordering::SeqCst);
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..2000 {
            let _quiesced = quiesce.begin();
            assert_eq!(in_flight.load(Ordering::SeqCst), 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
