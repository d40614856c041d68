//! How the threads of a client wait while one of them looks for the next server.
//!
//! Rule: a thread holds its lane from before its question until it has the answer. When one finds
//! that the server has died, it changes the *era*, and waits until every thread that holds a lane
//! has come here. Then nobody writes into the shared memory, and it is made ready for the next
//! server; after that the others ask again what was not answered.
//!
//! No thread is missed: one that takes a lane marks it first and then reads the era, and the
//! thread that attaches changes the era first and then reads the marks, in the one order of all
//! sequentially consistent accesses.

#[cfg(test)]
use shuttle::sync::{Condvar, Mutex, atomic::AtomicU32};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
#[cfg(not(test))]
use std::sync::{Condvar, Mutex, atomic::AtomicU32};

/// The era of a session that has ended for good. Even eras have a server, odd ones have none.
const ENDED: u32 = u32::MAX;

/// The threads of a client.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    era: AtomicU32,
    /// Threads that hold a lane and wait.
    parked: Mutex<u32>,
    moved: Condvar,
}

/// The next thing that a thread without a server has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Ask again: there is a server.
    Ask,
    /// Attach to the next server, and call [`Parking::finish`].
    Attach,
    /// Give up.
    Fail,
}

impl Parking {
    /// The era, to be read after a lane has been taken.
    #[inline]
    pub(crate) fn era(&self) -> u32 {
        self.era.load(Ordering::SeqCst)
    }

    /// Returns whether there is a server in an era, as far as is known.
    #[inline]
    pub(crate) fn has_server(era: u32) -> bool {
        era.is_multiple_of(2)
    }

    /// Returns whether the session has ended for good.
    pub(crate) fn has_ended(&self) -> bool {
        self.era() == ENDED
    }

    /// Waits for another server than that of `era`. The thread must hold a lane.
    pub(crate) fn park(&self, era: u32) -> Next {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = self.era();
            if now == ENDED {
                return Next::Fail;
            }
            if Parking::has_server(now) {
                if now != era {
                    return Next::Ask;
                }
                self.era.store(now + 1, Ordering::SeqCst);
                *parked = 1;
                return Next::Attach;
            }
            *parked += 1;
            while self.era() == now {
                parked = self.moved.wait(parked).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits until all threads that hold a lane are parked. `used` returns how many lanes are held;
    /// `pause` wakes those that wait for an answer, and returns `false` to give up.
    pub(crate) fn gather(&self, used: impl Fn() -> u32, mut pause: impl FnMut() -> bool) -> bool {
        loop {
            // A lane is given back by threads that were answered, and the number only falls.
            let used = used();
            if *self.parked.lock().unwrap_or_else(PoisonError::into_inner) >= used {
                return true;
            }
            if !pause() {
                return false;
            }
        }
    }

    /// Ends the wait of all threads: there is a server again, or never will be.
    pub(crate) fn finish(&self, has_server: bool) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.era().wrapping_add(1);
        // Numbers that meet the last one begin anew.
        let next = if next >= ENDED - 1 { 0 } else { next };
        self.era.store(if has_server { next } else { ENDED }, Ordering::SeqCst);
        *parked = 0;
        self.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::rand::{Rng, thread_rng};
    use shuttle::scheduler::PctScheduler;
    use shuttle::sync::Arc;
    use shuttle::{Config, Runner, thread};

    const CLIENTS: usize = 3;
    const CALLS: u32 = 3;
    const DEATHS: u32 = 3;

    const FREE: u32 = 0;
    const ASKED: u32 = 1;
    const ANSWERED: u32 = 2;

    /// Shared words of a session: a lane for each thread, which takes it anew for each call.
    #[derive(Default)]
    struct Shared {
        parking: Parking,
        used: AtomicU32,
        state: [AtomicU32; CLIENTS],
        /// Number of the call, and whether it is asked again.
        call: [AtomicU32; CLIENTS],
        again: [AtomicU32; CLIENTS],
        /// The call that was made last: outlives servers.
        made: [AtomicU32; CLIENTS],
        /// The number of the server that lives, from 1; 0: none.
        lives: AtomicU32,
        /// The server that the client is attached to.
        attached: AtomicU32,
        left: AtomicU32,
    }

    impl Shared {
        fn used(&self) -> u32 {
            self.used.load(Ordering::SeqCst).count_ones()
        }

        fn client(&self, lane: usize) {
            for call in 1..=CALLS {
                self.used.fetch_or(1 << lane, Ordering::SeqCst);
                let mut again = 0;
                while !self.asked(lane, call, &mut again) {}
                self.state[lane].store(FREE, Ordering::SeqCst);
                self.used.fetch_and(!(1 << lane), Ordering::SeqCst);
            }
            self.left.fetch_sub(1, Ordering::SeqCst);
        }

        /// Asks once. Returns whether there is an answer.
        fn asked(&self, lane: usize, call: u32, again: &mut u32) -> bool {
            let era = self.parking.era();
            if Parking::has_server(era) {
                self.call[lane].store(call, Ordering::SeqCst);
                self.again[lane].store(*again, Ordering::SeqCst);
                self.state[lane].store(ASKED, Ordering::SeqCst);
                let server = self.attached.load(Ordering::SeqCst);
                loop {
                    if self.state[lane].load(Ordering::SeqCst) == ANSWERED {
                        return true;
                    }
                    let is_lost =
                        self.parking.era() != era || self.lives.load(Ordering::SeqCst) != server;
                    // What was answered before it died is there.
                    if is_lost && self.state[lane].load(Ordering::SeqCst) != ANSWERED {
                        *again = 1;
                        break;
                    }
                    thread::yield_now();
                }
            }
            match self.parking.park(era) {
                Next::Ask => {}
                Next::Attach => self.attach(),
                Next::Fail => panic!("there is a server in the end"),
            }
            false
        }

        fn attach(&self) {
            let pause = || {
                thread::yield_now();
                true
            };
            assert!(self.parking.gather(|| self.used(), pause));
            // Nobody else has the memory now.
            self.state.iter().for_each(|state| state.store(FREE, Ordering::SeqCst));
            let next = loop {
                match self.lives.load(Ordering::SeqCst) {
                    next if next != 0 && next != self.attached.load(Ordering::SeqCst) => {
                        break next;
                    }
                    _ => thread::yield_now(),
                }
            };
            self.attached.store(next, Ordering::SeqCst);
            self.parking.finish(true);
        }

        /// Servers one after another, all but the last of which die at some moment.
        fn servers(&self) {
            for server in 1..=DEATHS + 1 {
                self.lives.store(server, Ordering::SeqCst);
                let mut steps = match server {
                    last if last > DEATHS => u32::MAX,
                    _ => thread_rng().gen_range(0..20),
                };
                while steps > 0 && self.left.load(Ordering::SeqCst) > 0 {
                    if self.attached.load(Ordering::SeqCst) == server {
                        steps = self.serve(steps);
                    }
                    thread::yield_now();
                    steps = steps.saturating_sub(1);
                }
                self.lives.store(0, Ordering::SeqCst);
            }
        }

        /// Answers what is asked. Returns the steps that are left; it dies after the last.
        fn serve(&self, mut steps: u32) -> u32 {
            for lane in 0..CLIENTS {
                if self.state[lane].load(Ordering::SeqCst) != ASKED {
                    continue;
                }
                let call = self.call[lane].load(Ordering::SeqCst);
                let is_made = self.made[lane].load(Ordering::SeqCst) == call;
                if is_made {
                    let again = self.again[lane].load(Ordering::SeqCst);
                    assert_eq!(again, 1, "a question was taken twice");
                } else {
                    let before = self.made[lane].swap(call, Ordering::SeqCst);
                    assert_eq!(before + 1, call, "a call was lost, or made out of turn");
                }
                steps = steps.saturating_sub(1);
                if steps == 0 {
                    break;
                }
                self.state[lane].store(ANSWERED, Ordering::SeqCst);
            }
            steps
        }
    }

    /// In every order, however often servers die, each call is made once and answered, and nobody
    /// waits for ever.
    #[test]
    fn each_call_is_made_once_over_deaths_of_servers() {
        let scheduler = PctScheduler::new_from_seed(41, 4, 3000);
        let mut config = Config::new();
        config.max_steps = shuttle::MaxSteps::FailAfter(200_000);
        Runner::new(scheduler, config).run(|| {
            let shared = Arc::new(Shared::default());
            shared.left.store(CLIENTS as u32, Ordering::SeqCst);
            shared.attached.store(1, Ordering::SeqCst);
            shared.lives.store(1, Ordering::SeqCst);
            let client = |lane| {
                let shared = shared.clone();
                thread::spawn(move || shared.client(lane))
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            shared.servers();
            clients.into_iter().for_each(|client| client.join().unwrap());
            assert!(shared.made.iter().all(|made| made.load(Ordering::SeqCst) == CALLS));
        });
    }

    /// A session without a next server ends for all threads.
    #[test]
    fn all_threads_learn_that_there_is_no_other_server() {
        let scheduler = PctScheduler::new_from_seed(42, 3, 1000);
        Runner::new(scheduler, Config::new()).run(|| {
            let shared = Arc::new(Shared::default());
            let client = |lane: usize| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.used.fetch_or(1 << lane, Ordering::SeqCst);
                    let era = shared.parking.era();
                    if shared.parking.park(era) == Next::Attach {
                        shared.parking.finish(false);
                    }
                    assert!(shared.parking.has_ended());
                    assert_eq!(shared.parking.park(shared.parking.era()), Next::Fail);
                })
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
    }
}
