//! Threads of a mount, and the places from which they read requests.
//!
//! Rule: the number of places is the configured one, and a request that waits keeps none. A thread
//! whose request must wait (for the device, in `fsync`) takes it into memory of its own, and gives
//! its place to another thread: one that is idle, or a new one. When it has answered it takes a
//! free place, or is idle. So the caller in `fsync` waits for no other thread, and a thousand
//! callers of a device that hangs stop nobody.
//!
//! Waking a thread takes longer than most waits. As long as others read, a free place is left to
//! whoever gave it away, and to others only after [`SHORT`]: whoever reads next sees to that.
//!
//! A thread costs up to some megabytes, with all that its allocator keeps. So of requests that wait
//! for the device [`DEVICE_MAX`] wait on threads, and the others in a queue. No other request, such
//! as `fsync`, is behind them.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Most requests that wait for the device on threads.
pub(crate) const DEVICE_MAX: usize = 128;
/// Most threads, besides those that read requests.
const THREADS_MAX: usize = 1024;
/// Most bytes of requests in the queue; with more, they wait on threads all the same.
const QUEUE_MAX: usize = 64 << 20;
/// Longest wait for which a place may stay free.
const SHORT: Duration = Duration::from_millis(1);
/// Threads beyond the number of places end after so much time without work.
const IDLE: Duration = Duration::from_secs(10);

/// The work of a thread.
pub(super) enum Work<P, J> {
    /// Read requests from this place.
    Read(P),
    /// Answer this request.
    Answer(J),
    /// None: it ends.
    End,
}

/// Bookkeeping of the threads of one mount, with places `P` and requests `J`.
pub(super) struct Crew<P, J> {
    places: usize,
    /// Places are free: whoever reads looks whether that is for too long.
    is_short: AtomicBool,
    state: Mutex<State<P, J>>,
    wake: Condvar,
}

struct State<P, J> {
    free: Vec<P>,
    /// Time from which on another thread is told of a free place.
    due: Instant,
    /// Requests, and their bytes.
    queue: VecDeque<(J, usize)>,
    queued: usize,
    /// Requests that read from the device on threads.
    at_device: usize,
    /// Threads asleep.
    idle: usize,
    threads: usize,
    /// The mount is gone.
    closed: bool,
}

/// The consequence of giving a place away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Relief {
    /// Another thread takes it.
    Arranged,
    /// A new thread must be started for it.
    Hire,
}

impl<P, J> Crew<P, J> {
    /// Creates a crew with these places, and as many threads, which the caller starts.
    pub(super) fn new(free: Vec<P>) -> Crew<P, J> {
        let places = free.len();
        let (queue, queued, at_device, idle) = (VecDeque::new(), 0, 0, 0);
        let (due, threads) = (Instant::now(), places);
        let state = State { free, due, queue, queued, at_device, idle, threads, closed: false };
        let (is_short, state) = (AtomicBool::new(false), Mutex::new(state));
        Crew { places, is_short, state, wake: Condvar::new() }
    }

    /// Gives a place away, because the caller's request must wait.
    pub(super) fn give(&self, place: P) -> Relief {
        let mut state = self.state.lock();
        state.free.push(place);
        if state.free.len() < self.places {
            if !self.is_short.swap(true, Relaxed) {
                state.due = Instant::now() + SHORT;
            }
            return Relief::Arranged;
        }
        self.tell(&mut state)
    }

    /// Called by a thread that reads, before it does. Sees to places that are free for too long.
    #[inline]
    pub(super) fn see_to(&self) -> Relief {
        match self.is_short.load(Relaxed) {
            true => self.see_to_late(),
            false => Relief::Arranged,
        }
    }

    #[cold]
    fn see_to_late(&self) -> Relief {
        let mut state = self.state.lock();
        match Instant::now() >= state.due {
            true => self.tell(&mut state),
            false => Relief::Arranged,
        }
    }

    /// Tells a thread of a free place, if there is one. That is done again for the next one, or if
    /// it was too slow.
    fn tell(&self, state: &mut State<P, J>) -> Relief {
        self.is_short.store(!state.free.is_empty(), Relaxed);
        state.due = Instant::now() + SHORT;
        if state.free.is_empty() || state.closed {
            return Relief::Arranged;
        }
        if state.idle > 0 {
            self.wake.notify_one();
            return Relief::Arranged;
        }
        // However many wait, there is one for each place.
        if state.threads >= THREADS_MAX + self.places {
            return Relief::Arranged;
        }
        state.threads += 1;
        Relief::Hire
    }

    /// Begins a request of so many bytes that waits for the device, or puts it into the queue:
    /// then it is not returned. Its end must be [recorded](Crew::has_left_device).
    pub(super) fn begin_device(&self, job: J, bytes: usize) -> Option<J> {
        let mut state = self.state.lock();
        if state.at_device < DEVICE_MAX || state.queued + bytes > QUEUE_MAX {
            state.at_device += 1;
            return Some(job);
        }
        state.queued += bytes;
        state.queue.push_back((job, bytes));
        None
    }

    /// Records the end of a request that has waited for the device.
    pub(super) fn has_left_device(&self) {
        self.state.lock().at_device -= 1;
    }

    /// Called when a thread could not be started.
    pub(super) fn hire_failed(&self) {
        self.state.lock().threads -= 1;
    }

    /// Returns the next work of a thread, and waits for some.
    pub(super) fn next(&self) -> Work<P, J> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Work::End;
            }
            if let Some(place) = state.free.pop() {
                self.is_short.store(!state.free.is_empty(), Relaxed);
                return Work::Read(place);
            }
            if state.at_device < DEVICE_MAX
                && let Some((job, bytes)) = state.queue.pop_front()
            {
                state.queued -= bytes;
                state.at_device += 1;
                return Work::Answer(job);
            }
            state.idle += 1;
            let is_late = self.wake.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            // All places may be taken by threads that will wait: as many others remain.
            if is_late && state.free.is_empty() && state.threads > 2 * self.places {
                state.threads -= 1;
                return Work::End;
            }
        }
    }

    /// Ends every idle thread. Returns whether it was not closed before.
    pub(super) fn close(&self) -> bool {
        let was_closed = std::mem::replace(&mut self.state.lock().closed, true);
        self.wake.notify_all();
        !was_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    type Numbers = Crew<u32, u32>;

    fn place(crew: &Numbers) -> u32 {
        match crew.next() {
            Work::Read(place) => place,
            _ => panic!("no place is free"),
        }
    }

    #[test]
    fn a_place_is_given_to_an_idle_thread_or_a_new_one() {
        let crew = Arc::new(Numbers::new(vec![1]));
        let mine = place(&crew);
        assert_eq!(crew.give(mine), Relief::Hire);
        let (inner, taken) = (crew.clone(), std::sync::mpsc::channel());
        let other = thread::spawn(move || {
            while let Work::Read(place) = inner.next() {
                taken.0.send(place).unwrap();
            }
        });
        assert_eq!(taken.1.recv(), Ok(1));
        while crew.state.lock().idle == 0 {
            thread::yield_now();
        }
        assert_eq!(crew.give(7), Relief::Arranged);
        assert_eq!(taken.1.recv(), Ok(7));
        crew.close();
        other.join().unwrap();
        assert!(matches!(crew.next(), Work::End));
    }

    #[test]
    fn a_place_is_left_to_its_thread_for_a_moment_while_others_read() {
        let crew = Numbers::new(vec![1, 2]);
        let (_two, one) = (place(&crew), place(&crew));
        assert_eq!(crew.give(one), Relief::Arranged);
        crew.state.lock().due = Instant::now() + Duration::from_secs(3600);
        assert_eq!(crew.see_to(), Relief::Arranged, "a moment");
        assert_eq!(place(&crew), 1, "it takes it again");
        assert_eq!(crew.give(one), Relief::Arranged);
        crew.state.lock().due = Instant::now();
        assert_eq!(crew.see_to(), Relief::Hire);
        assert_eq!(place(&crew), 1);
        assert_eq!(crew.see_to(), Relief::Arranged, "none is free");
    }

    #[test]
    fn a_thread_that_has_answered_takes_its_place_again() {
        let crew = Numbers::new(vec![1]);
        let mine = place(&crew);
        // Could not be started.
        assert_eq!(crew.give(mine), Relief::Hire);
        crew.hire_failed();
        assert_eq!(place(&crew), 1);
    }

    #[test]
    fn reads_wait_in_a_queue_and_nothing_else_does() {
        let crew = Numbers::new(vec![1]);
        let mut mine = place(&crew);
        for n in 0..DEVICE_MAX as u32 {
            assert_eq!(crew.begin_device(n, 1), Some(n));
            assert_eq!(crew.give(mine), Relief::Hire);
            mine = place(&crew);
        }
        assert_eq!(crew.begin_device(500, QUEUE_MAX), None);
        assert_eq!(crew.begin_device(501, 1), Some(501), "too much");
        crew.has_left_device();
        // One in fsync.
        assert_eq!(crew.give(mine), Relief::Hire);
        place(&crew);
        crew.has_left_device();
        assert!(matches!(crew.next(), Work::Answer(500)));
        assert_eq!(crew.begin_device(502, 1), None);
    }
}
