//! Makes a failing list of operations shorter: runs of operations are left out as long as it still
//! fails, in ever smaller pieces. What remains need not fail for the very same reason, but it
//! fails.

use crate::op::Op;
use crate::runner::{Failure, Settings, run_list};
use std::time::{Duration, Instant};

/// Shortens `failure`, for at most `patience`.
pub fn shrink(settings: &Settings, failure: Failure, patience: Duration) -> Failure {
    let start = Instant::now();
    let mut fails = |ops: &[Op]| {
        if start.elapsed() > patience {
            return None;
        }
        run_list(settings, ops).err()
    };
    let short = shorten(failure, &mut fails);
    shorten_batches(short, fails)
}

/// Leaves out changes of batches, one after the other.
fn shorten_batches(failure: Failure, mut fails: impl FnMut(&[Op]) -> Option<Failure>) -> Failure {
    let mut best = failure;
    for at in 0.. {
        let mut change = 0;
        while let Some(Op::Batch { changes, .. }) = best.ops.get(at)
            && change < changes.len()
            && changes.len() > 1
        {
            let mut ops = best.ops.clone();
            if let Op::Batch { changes, .. } = &mut ops[at] {
                changes.remove(change);
            }
            match fails(&ops) {
                Some(failure) => best = failure,
                None => change += 1,
            }
        }
        if at >= best.ops.len() {
            break;
        }
    }
    best
}

/// Shortens by means of `fails`, which runs a list and returns how it failed.
fn shorten(failure: Failure, mut fails: impl FnMut(&[Op]) -> Option<Failure>) -> Failure {
    let mut best = failure;
    let mut piece = best.ops.len().div_ceil(2);
    while piece > 0 {
        let mut shorter = false;
        let mut from = 0;
        while from < best.ops.len() {
            let mut ops = best.ops.clone();
            ops.drain(from..(from + piece).min(best.ops.len()));
            match fails(&ops) {
                // A failing list ends where it failed, so it cannot have grown.
                Some(failure) => (best, shorter) = (failure, true),
                None => from += piece,
            }
        }
        if piece == 1 && !shorter {
            break;
        }
        piece = if piece > 1 { piece.div_ceil(2).min(piece - 1) } else { 1 };
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let noise = Op::Sync;
        let mut ops = vec![noise; 100];
        ops[17] = Op::Checkpoint;
        ops[80] = Op::Crash { seed: 1 };
        let fails = |ops: &[Op]| {
            let checkpoint = ops.iter().position(|op| *op == Op::Checkpoint)?;
            let crash = ops.iter().position(|op| matches!(op, Op::Crash { .. }))?;
            (checkpoint < crash)
                .then(|| Failure { message: String::new(), ops: ops[..=crash].to_vec() })
        };
        let failure = fails(&ops).unwrap();
        let short = shorten(failure, fails);
        assert_eq!(short.ops, [Op::Checkpoint, Op::Crash { seed: 1 }]);
    }
}
