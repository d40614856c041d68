//! The number of a volume's state: a reader that keeps a copy of its results sees by the number
//! whether the copy is old.
//!
//! Problem: a program that walks through a tree asks for the attributes of each name. A copy of
//! them answers faster than any server, but nobody may get from it what is older than what somebody
//! else has seen.
//!
//! Rule: a copy has the number that the state had before it was read, and holds as long as that is
//! the number. A transaction raises the number before its first change, if somebody has kept a copy
//! of it; otherwise it reads two words that nobody writes.
//!
//! Proof. A reader that keeps a copy (1) reads the number `n`, (2) raises the kept number to it,
//! (3) sees that no transaction is in flight, and (4) reads the volume. A transaction (a) counts
//! itself as in flight, (b) raises the number if it is the kept one, (c) changes the volume, and
//! (d) ends;
//! all of it is sequentially consistent. If (d) comes before (3), the copy has the change. If only
//! (a) does, the copy is not kept. Otherwise (b) comes after (2), so the kept number is `n` or
//! higher: either it is the number, which is raised then, or the number has been raised above `n`
//! before. So whoever sees the change sees another number than `n`.

use self::sync::{AtomicU64, Mutex};
use crate::quiesce::Quiesce;
#[cfg(not(test))]
use shoal_base::sync;
// `shuttle` knows only sequentially consistent atomics, as used here.
#[cfg(test)]
use shoal_base::sync::checked as sync;
use std::sync::atomic::Ordering;

/// Tells the number to whoever keeps copies. Called by transactions before they change anything,
/// from several threads at once, and perhaps with a number that is lower than one before.
type Tell = Box<dyn Fn(u64) + Send + Sync>;

/// The number of the present state.
#[derive(Default)]
pub struct States {
    number: AtomicU64,
    /// The highest number of which somebody has kept a copy.
    kept: AtomicU64,
    /// Tells the number; `None`: nobody can know of it, so no copy is kept.
    tell: Mutex<Option<Tell>>,
}

impl States {
    /// Tells the numbers from now on, which begin with `first`: above all of servers before, and
    /// above 0.
    pub fn tell(&self, first: u64, tell: impl Fn(u64) + Send + Sync + 'static) {
        *self.tell.lock() = Some(Box::new(tell));
        self.number.fetch_max(first, Ordering::SeqCst);
    }

    /// Returns the number of the present state for a copy that is about to be read; `None`: it
    /// cannot be kept, as a transaction is in flight, or as numbers are not told.
    pub fn keep(&self, transactions: &Quiesce) -> Option<u64> {
        let number = self.number.load(Ordering::SeqCst);
        // A slower thread must not take a higher number back.
        self.kept.fetch_max(number, Ordering::SeqCst);
        (number > 0 && transactions.is_quiet()).then_some(number)
    }

    /// The transaction that this thread has begun is about to change the volume.
    #[inline]
    pub(crate) fn change(&self) {
        let number = self.number.load(Ordering::SeqCst);
        if number > 0 && self.kept.load(Ordering::SeqCst) == number {
            self.raise(number);
        }
    }

    #[cold]
    fn raise(&self, number: u64) {
        // First where copies are kept: who finds it raised here relies on that.
        if let Some(tell) = &*self.tell.lock() {
            tell(number + 1);
        }
        let (then, now) = (Ordering::SeqCst, Ordering::SeqCst);
        // Another one has raised it.
        let _ = self.number.compare_exchange(number, number + 1, then, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner, thread};
    use std::sync::Arc;

    struct World {
        states: States,
        transactions: Quiesce,
        /// The volume.
        value: AtomicU64,
        told: Arc<AtomicU64>,
    }

    impl World {
        fn new() -> World {
            let (states, told) = (States::default(), Arc::new(AtomicU64::new(1)));
            let of = told.clone();
            states.tell(1, move |number| {
                of.fetch_max(number, Ordering::SeqCst);
            });
            World { states, transactions: Quiesce::default(), value: AtomicU64::new(0), told }
        }

        fn change(&self) {
            let _in_flight = self.transactions.enter();
            self.states.change();
            self.value.fetch_add(1, Ordering::SeqCst);
        }

        /// Keeps a copy, and uses it twice.
        fn keep(&self) {
            let Some(number) = self.states.keep(&self.transactions) else { return };
            let copy = self.value.load(Ordering::SeqCst);
            for _ in 0..2 {
                let seen = self.value.load(Ordering::SeqCst);
                if self.told.load(Ordering::SeqCst) == number {
                    assert_eq!(copy, seen, "a copy that holds is older than what was seen");
                }
            }
        }
    }

    fn model(changers: usize, keepers: usize, rounds: usize) {
        let world = Arc::new(World::new());
        let mut all = Vec::new();
        let mut begin = |act: fn(&World)| {
            let world = world.clone();
            all.push(thread::spawn(move || (0..rounds).for_each(|_| act(&world))));
        };
        (0..changers).for_each(|_| begin(World::change));
        (0..keepers).for_each(|_| begin(World::keep));
        all.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    }

    #[test]
    fn no_copy_holds_that_is_older_than_what_was_seen() {
        let runner =
            |seed, runs| Runner::new(RandomScheduler::new_from_seed(seed, runs), Config::new());
        runner(1, 5_000).run(|| model(2, 1, 2));
        runner(2, 5_000).run(|| model(2, 2, 2));
        let few = PctScheduler::new_from_seed(3, 5, 20_000);
        Runner::new(few, Config::new()).run(|| model(2, 2, 2));
    }

    #[test]
    fn a_copy_holds_until_the_next_change_and_only_where_it_is_told() {
        Runner::new(RandomScheduler::new_from_seed(4, 1), Config::new()).run(|| {
            let world = World::new();
            let number = world.states.keep(&world.transactions);
            assert_eq!(number, Some(1));
            assert_eq!(world.states.keep(&world.transactions), number, "nothing has changed");
            let in_flight = world.transactions.enter();
            assert_eq!(world.states.keep(&world.transactions), None, "a change is in progress");
            drop(in_flight);
            world.change();
            assert_eq!(world.told.load(Ordering::SeqCst), 2);
            world.change();
            assert_eq!(world.told.load(Ordering::SeqCst), 2, "nobody has kept a copy of 2");
            assert_eq!(States::default().keep(&world.transactions), None, "numbers are not told");
        });
    }
}
