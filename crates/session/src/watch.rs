//! Which of the threads that serve a queue watches it.
//!
//! Problem: a thread that looks for the next request answers it sooner than one that sleeps, and
//! whoever sent it need wake nobody. But several that look take processors from each other, and one
//! that sleeps in the kernel is woken although another looks.
//!
//! Rule: one thread *watches*: it looks, or sleeps in the kernel. Others answer, or are *parked*
//! here. Whoever has answered looks into the queue again, and parks only if it is empty and
//! somebody watches. A parked thread is called by a thread that will be long
//! ([`Watch::relieve`]), and one of them, the *standby*, comes by itself when for one or two
//! milliseconds nobody has watched or taken a request. Then another one is the standby, as long as
//! there is one; so no request is left alone while a thread is free.

#[cfg(test)]
use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool, atomic::AtomicU64};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
#[cfg(not(test))]
use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool, atomic::AtomicU64};
use std::time::Duration;

/// Time after which the standby looks for itself.
const STUCK: Duration = Duration::from_millis(1);
/// Looks of the standby without a request between them, after which it sleeps until there is one.
const QUIET: u32 = 10;

/// The threads that serve a queue.
#[derive(Debug, Default)]
pub struct Watch {
    /// A thread watches.
    watched: AtomicBool,
    /// The standby sleeps until the next request.
    sleeps: AtomicBool,
    /// Requests that were taken.
    taken: AtomicU64,
    parked: Mutex<Parked>,
    call: Condvar,
    /// The standby has a bell of its own, so that a call for anybody cannot be lost to it.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Parked {
    /// Threads that are parked, without the standby.
    waiting: u32,
    /// Of these, those that are called.
    called: u32,
    has_standby: bool,
    /// It is called.
    standby_called: bool,
    /// Nobody parks: all threads sleep in the kernel, or the queue is gone.
    open: bool,
    gone: bool,
}

impl Watch {
    /// Begins to watch; `false`: another thread does.
    #[inline]
    pub fn begin(&self) -> bool {
        !self.watched.load(SeqCst) && !self.watched.swap(true, SeqCst)
    }

    /// Ends the watch of the calling thread.
    #[inline]
    pub fn end(&self) {
        self.watched.store(false, SeqCst);
    }

    /// Records that a request was taken, after [`Watch::end`].
    #[inline]
    pub fn took(&self) {
        self.taken.fetch_add(1, SeqCst);
        // In this order with the standby, which sets this before it looks whether somebody watches.
        if self.sleeps.load(SeqCst) {
            self.wake_standby();
        }
    }

    #[cold]
    fn wake_standby(&self) {
        let _parked = self.lock();
        self.sleeps.store(false, SeqCst);
        self.wake.notify_one();
    }

    /// Calls a parked thread, if there is one: the calling thread will be long.
    #[cold]
    pub fn relieve(&self) {
        let mut parked = self.lock();
        if parked.waiting > parked.called {
            parked.called += 1;
            self.call.notify_one();
        } else if parked.has_standby {
            parked.standby_called = true;
            self.wake.notify_one();
        }
    }

    /// Parks the calling thread, which has found the queue empty and somebody watching. When this
    /// returns, it looks again; `false`: nobody parks, and it sleeps in the kernel.
    pub fn park(&self) -> bool {
        let mut parked = self.lock();
        // Who watched may have taken a request and called for others, before this thread is here.
        if parked.open || !self.watched.load(SeqCst) {
            return !parked.open;
        }
        parked.waiting += 1;
        while parked.called == 0 && parked.has_standby && !parked.open {
            parked = self.call.wait(parked).unwrap_or_else(PoisonError::into_inner);
        }
        parked.waiting -= 1;
        if parked.called > 0 || parked.open {
            parked.called = parked.called.saturating_sub(1);
        } else {
            parked.has_standby = true;
            parked = self.stand_by(parked);
        }
        !parked.open
    }

    fn stand_by<'p>(&'p self, mut parked: MutexGuard<'p, Parked>) -> MutexGuard<'p, Parked> {
        let (mut taken, mut quiet) = (self.taken.load(SeqCst), 0);
        while !parked.open && !parked.standby_called {
            if quiet >= QUIET {
                self.sleeps.store(true, SeqCst);
                if self.watched.load(SeqCst) {
                    while self.sleeps.load(SeqCst) && !parked.open && !parked.standby_called {
                        parked = self.wake.wait(parked).unwrap_or_else(PoisonError::into_inner);
                    }
                }
                self.sleeps.store(false, SeqCst);
                quiet = 0;
                continue;
            }
            let waited = self.wake.wait_timeout(parked, STUCK);
            parked = waited.unwrap_or_else(PoisonError::into_inner).0;
            let now = self.taken.load(SeqCst);
            match (now == taken, self.watched.load(SeqCst)) {
                (true, true) => quiet += 1,
                // The one that has taken it is still at it.
                (true, false) => break,
                (false, _) => quiet = 0,
            }
            taken = now;
        }
        parked.has_standby = false;
        parked.standby_called = false;
        self.sleeps.store(false, SeqCst);
        // One of the others becomes the standby.
        self.call.notify_one();
        parked
    }

    /// Lets threads park, or calls all of them and has none park: each sleeps in the kernel.
    pub fn let_park(&self, may: bool) {
        let mut parked = self.lock();
        parked.open = !may || parked.gone;
        if parked.open {
            self.call.notify_all();
            self.wake.notify_all();
        }
    }

    /// Calls all threads, and has none park any more: the queue is gone.
    pub fn close(&self) {
        self.lock().gone = true;
        self.let_park(false);
    }

    fn lock(&self) -> MutexGuard<'_, Parked> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::scheduler::RandomScheduler;
    use shuttle::sync::Arc;
    use shuttle::{Config, Runner, thread};
    use std::collections::VecDeque;

    const THREADS: usize = 4;

    /// A request.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Request {
        Short,
        /// It is answered when a later one was. It is known to be long, or not.
        Long {
            known: bool,
        },
    }

    /// The queue in the kernel, and what was answered.
    #[derive(Default)]
    struct Kernel {
        queue: Mutex<VecDeque<(usize, Request)>>,
        comes: Condvar,
        answered: Mutex<Vec<usize>>,
        answer: Condvar,
        watch: Watch,
        gone: AtomicBool,
    }

    impl Kernel {
        fn serve(&self) {
            let mut watches = false;
            while !self.gone.load(SeqCst) {
                let next = self.queue.lock().unwrap().pop_front();
                if let Some(request) = next {
                    if std::mem::take(&mut watches) {
                        self.watch.end();
                    }
                    self.watch.took();
                    self.answer(request);
                } else if watches || self.watch.begin() {
                    watches = true;
                    let queue = self.queue.lock().unwrap();
                    if queue.is_empty() && !self.gone.load(SeqCst) {
                        drop(self.comes.wait(queue).unwrap());
                    }
                } else {
                    let _ = self.watch.park();
                }
            }
        }

        fn answer(&self, (number, request): (usize, Request)) {
            if let Request::Long { known } = request {
                if known {
                    self.watch.relieve();
                }
                let mut answered = self.answered.lock().unwrap();
                while !answered.iter().any(|it| *it > number) {
                    answered = self.answer.wait(answered).unwrap();
                }
            }
            self.answered.lock().unwrap().push(number);
            self.answer.notify_all();
        }

        fn send(&self, number: usize, request: Request) {
            self.queue.lock().unwrap().push_back((number, request));
            self.comes.notify_one();
        }
    }

    /// Sends requests one after another, or at once, and waits for all answers. Time goes on if
    /// there is a request that only the standby can help.
    fn model(requests: &'static [Request], one_by_one: bool) {
        let kernel = Arc::new(Kernel::default());
        let serving: Vec<_> = (0..THREADS)
            .map(|_| {
                let kernel = kernel.clone();
                thread::spawn(move || kernel.serve())
            })
            .collect();
        let needs_time = requests.contains(&Request::Long { known: false });
        let clock = needs_time.then(|| {
            let kernel = kernel.clone();
            thread::spawn(move || {
                while !kernel.gone.load(SeqCst) {
                    let _parked = kernel.watch.lock();
                    kernel.watch.wake.notify_all();
                    thread::yield_now();
                }
            })
        });
        for (number, request) in requests.iter().enumerate() {
            kernel.send(number, *request);
            if one_by_one && *request == Request::Short {
                let mut answered = kernel.answered.lock().unwrap();
                while !answered.contains(&number) {
                    answered = kernel.answer.wait(answered).unwrap();
                }
            }
        }
        let mut answered = kernel.answered.lock().unwrap();
        while answered.len() < requests.len() {
            answered = kernel.answer.wait(answered).unwrap();
        }
        drop(answered);
        kernel.gone.store(true, SeqCst);
        kernel.watch.close();
        kernel.watch.let_park(true);
        drop(kernel.queue.lock().unwrap());
        kernel.comes.notify_all();
        serving.into_iter().chain(clock).for_each(|thread| thread.join().unwrap());
    }

    const SHORT: Request = Request::Short;
    const LONG: Request = Request::Long { known: true };
    const STUCK: Request = Request::Long { known: false };

    /// Runs the model in 3,000 orders of its threads: with the same seed the same ones each time.
    fn run(requests: &'static [Request], one_by_one: bool) {
        let scheduler = RandomScheduler::new_from_seed(43, 3000);
        Runner::new(scheduler, Config::new()).run(move || model(requests, one_by_one));
    }

    #[test]
    fn every_request_is_answered() {
        run(&[SHORT, SHORT, SHORT, SHORT], true);
        run(&[SHORT, SHORT, SHORT, SHORT], false);
    }

    #[test]
    fn others_answer_while_a_thread_that_has_said_so_is_long() {
        run(&[LONG, SHORT, LONG, SHORT], true);
        run(&[LONG, LONG, SHORT, SHORT], false);
    }

    #[test]
    fn the_standby_comes_when_a_thread_is_stuck() {
        run(&[STUCK, SHORT, SHORT], true);
        run(&[SHORT, STUCK, LONG, SHORT], false);
        run(&[STUCK, STUCK, STUCK, SHORT], true);
        run(&[STUCK, STUCK, STUCK, SHORT], false);
    }
}
