//! The gate with real threads; its models stand beside it.

use shoal_txn::Gate;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn a_panic_opens_the_gate() {
    let gate = Gate::default();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _closed = gate.close();
        panic!("as a check that fails");
    }));
    assert!(ended.is_err());
    drop(gate.enter());
}

#[test]
fn nobody_is_inside_a_closed_gate() {
    let (gate, inside, stop) = (Gate::default(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _here = gate.enter();
                    inside.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..2000 {
            let _closed = gate.close();
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
