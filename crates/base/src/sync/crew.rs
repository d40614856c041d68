//! Work spread over threads, with one step done in order: a checkpoint encodes and writes on all
//! processors, but allocates addresses in the order of the pieces.
//!
//! Compiled as part of both `plain` and `checked`, with the locks and threads of each.

use super::{Condvar, Mutex, spawn_in, thread};

/// Largest number of threads for one piece of work.
const THREADS_MAX: usize = 16;

/// Number of threads over which work should be spread.
pub fn processors() -> usize {
    super::available_parallelism().min(THREADS_MAX)
}

/// Calls `work` once on the calling thread and, if `threads` is more than one, once on each further
/// thread that can be started. Returns when all calls have returned.
fn on_threads(threads: usize, work: impl Fn() + Copy + Send) {
    if threads > 1 {
        thread::scope(|scope| {
            for _ in 1..threads {
                spawn_in(scope, work);
            }
            work();
        });
    } else {
        work();
    }
}

/// Calls `work` with every item, in no particular order, on up to `threads` threads. For reads,
/// many of which a device serves at a time.
pub fn for_each<T: Sync>(threads: usize, items: &[T], work: impl Fn(&T) + Sync) {
    let next = Mutex::new(0);
    let take = || {
        let mut next = next.lock();
        *next += 1;
        items.get(*next - 1)
    };
    on_threads(threads, || {
        while let Some(item) = take() {
            work(item);
        }
    });
}

/// The four steps applied to each piece of work.
pub struct Steps<Take, Prepare, Place, Finish> {
    /// Returns the next piece, `None` at the end. Never called concurrently.
    pub take: Take,
    /// Runs in parallel.
    pub prepare: Prepare,
    /// Never called concurrently; called in the order in which the pieces were taken.
    pub place: Place,
    /// Runs in parallel.
    pub finish: Finish,
}

/// State of the ordered step.
struct Turns<Place, E> {
    place: Place,
    /// Number of the next piece to place.
    next: u64,
    /// A step has failed or panicked. No further piece is begun or placed.
    stopped: bool,
    failed: Option<E>,
}

/// Stops all threads when one panics, so that none waits for its turn forever.
struct Watch<'c, Place, E> {
    turns: &'c Mutex<Turns<Place, E>>,
    moved: &'c Condvar,
}

impl<Place, E> Drop for Watch<'_, Place, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.turns.lock().stopped = true;
            self.moved.notify_all();
        }
    }
}

/// Applies the steps to all pieces on up to `threads` threads. Returns when all are done.
///
/// # Errors
/// The first error of a step. Some pieces are then not finished.
pub fn in_order<T, P, E, Take, Prepare, Place, Finish>(
    threads: usize,
    steps: Steps<Take, Prepare, Place, Finish>,
) -> Result<(), E>
where
    E: Send,
    Take: FnMut() -> Option<T> + Send,
    Prepare: Fn(T) -> Result<P, E> + Sync,
    Place: FnMut(&mut P) -> Result<(), E> + Send,
    Finish: Fn(P) -> Result<(), E> + Sync,
{
    let Steps { take, prepare, place, finish } = steps;
    let source = Mutex::new((take, 0));
    let turns = Mutex::new(Turns { place, next: 0, stopped: false, failed: None });
    let moved = Condvar::new();
    // Processes one piece. `false`: there is none left, or the work was stopped.
    let piece = || -> Result<bool, E> {
        let (taken, number) = {
            let (take, count) = &mut *source.lock();
            let Some(taken) = take() else { return Ok(false) };
            *count += 1;
            (taken, *count - 1)
        };
        let mut prepared = prepare(taken)?;
        {
            let mut turns = turns.lock();
            while turns.next != number && !turns.stopped {
                moved.wait(&mut turns);
            }
            if turns.stopped {
                return Ok(false);
            }
            (turns.place)(&mut prepared)?;
            turns.next += 1;
        }
        moved.notify_all();
        finish(prepared)?;
        Ok(true)
    };
    let work = || {
        let _watch = Watch { turns: &turns, moved: &moved };
        loop {
            match piece() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let mut turns = turns.lock();
                    turns.stopped = true;
                    turns.failed.get_or_insert(error);
                    drop(turns);
                    moved.notify_all();
                    return;
                }
            }
        }
    };
    on_threads(threads, work);
    let failed = turns.lock().failed.take();
    failed.map_or(Ok(()), Err)
}
