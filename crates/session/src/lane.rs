//! The protocol of a lane: how a question gets to the server, and its answer back, with as few
//! system calls as can be.
//!
//! ```text
//! client                                   server
//! writes the question
//! state = Asked; waiting |= bit
//! if watched = 0: calls the server         (sleeps: watched = 0, then looks once more)
//!                                          takes waiting; copies the question
//! looks for a while                        makes the call, writes the answer
//! Asked -> Asleep, and sleeps              state = Answered; if it was Asleep: wakes the client
//! ```
//!
//! No wake-up is lost: on both ways each side first writes its own word and then reads the other's,
//! in the one order of all sequentially consistent accesses.
//!
//! The words are the caller's, so that models run the same code.

use std::sync::atomic::Ordering;

/// State of a lane: its client writes, or reads.
pub const FREE: u32 = 0;
/// A question waits for the server, and its client looks for the answer.
pub const ASKED: u32 = 1;
/// As [`ASKED`], but the client sleeps.
pub const ASLEEP: u32 = 2;
/// The answer is there.
pub const ANSWERED: u32 = 3;

/// An atomic word.
pub trait Word {
    /// Loads.
    fn load(&self, order: Ordering) -> u32;
    /// Stores.
    fn store(&self, value: u32, order: Ordering);
    /// Stores, and returns what was there.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Sets bits, and returns what was there.
    fn set(&self, bits: u32, order: Ordering) -> u32;
    /// Replaces `old` by `new`, if it is there.
    fn replace(&self, old: u32, new: u32, order: Ordering) -> bool;
}

impl Word for std::sync::atomic::AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }
    #[inline]
    fn set(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_or(bits, order)
    }
    #[inline]
    fn replace(&self, old: u32, new: u32, order: Ordering) -> bool {
        self.compare_exchange(old, new, order, Ordering::SeqCst).is_ok()
    }
}

/// The words that a session shares besides its lanes.
#[derive(Clone, Copy, Debug)]
pub struct Door<'w, W> {
    /// A bit for each lane in which a question waits.
    pub waiting: &'w W,
    /// 1: the client has closed something, of which it awaits no answer.
    pub closing: &'w W,
    /// 1: the server looks by itself; 0: it must be called.
    pub watched: &'w W,
}

impl<W: Word> Door<'_, W> {
    /// Client: asks what has been written into a lane. Returns whether the server must be called.
    #[inline]
    pub fn ask(&self, lane: u32, state: &W) -> bool {
        state.store(ASKED, Ordering::Release);
        self.waiting.set(1 << lane, Ordering::SeqCst);
        self.watched.load(Ordering::SeqCst) == 0
    }

    /// Client: says that it has closed what it has noted. Returns whether the server must be
    /// called.
    #[inline]
    pub fn close(&self) -> bool {
        self.closing.store(1, Ordering::SeqCst);
        self.watched.load(Ordering::SeqCst) == 0
    }

    /// Server: returns whether the client has closed something since the last time.
    #[inline]
    pub fn has_closed(&self) -> bool {
        self.closing.load(Ordering::Relaxed) != 0 && self.closing.swap(0, Ordering::SeqCst) != 0
    }

    /// Server: takes the lanes in which a question waits.
    #[inline]
    pub fn take(&self) -> u32 {
        match self.waiting.load(Ordering::Relaxed) {
            // Reading alone leaves the cache line with both.
            0 => 0,
            _ => self.waiting.swap(0, Ordering::SeqCst),
        }
    }

    /// Server: looks by itself from now on.
    pub fn watch(&self) {
        self.watched.store(1, Ordering::SeqCst);
    }

    /// Server: stops looking; `false`: a question waits, and it goes on.
    pub fn leave(&self) -> bool {
        self.watched.store(0, Ordering::SeqCst);
        let may_leave =
            self.waiting.load(Ordering::SeqCst) == 0 && self.closing.load(Ordering::SeqCst) == 0;
        if !may_leave {
            self.watch();
        }
        may_leave
    }
}

/// The threads of a server that may look for the questions of one session: one at a time does.
///
/// A thread that is called while another one looks does nothing: that one looks once more when it
/// has said that it leaves, and so finds what the call was for.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'w, W> {
    /// The words that both sides share.
    pub door: Door<'w, W>,
    /// The thread that looks, by number and one; 0: none, the server must be called.
    pub watcher: &'w W,
}

impl<W: Word> Watch<'_, W> {
    /// A thread has been called, and looks from now on; `false`: another one does.
    pub fn come(&self, number: u32) -> bool {
        let comes = self.watcher.replace(0, number + 1, Ordering::SeqCst);
        if comes {
            self.door.watch();
        }
        comes
    }

    /// The thread that looks leaves it to another one, which has to be called after that, and will
    /// come: clients call nobody meanwhile.
    pub fn hand_over(&self) {
        self.watcher.store(0, Ordering::SeqCst);
    }

    /// The thread that looks has found nothing for a while. Returns whether it goes on: a question
    /// waits, and no other thread has come for it.
    pub fn stays(&self, number: u32) -> bool {
        // In this order: a bell that is rung when the door has been left finds it without a
        // watcher.
        self.watcher.store(0, Ordering::SeqCst);
        !self.door.leave() && self.watcher.replace(0, number + 1, Ordering::SeqCst)
    }
}

/// Client: returns whether the answer is there.
#[inline]
pub fn is_answered<W: Word>(state: &W) -> bool {
    state.load(Ordering::Acquire) == ANSWERED
}

/// Client: says that it will sleep as long as the state is [`ASLEEP`]; `false`: the answer is
/// there.
pub fn will_sleep<W: Word>(state: &W) -> bool {
    state.replace(ASKED, ASLEEP, Ordering::SeqCst) || state.load(Ordering::SeqCst) == ASLEEP
}

/// Server: returns whether the lane has a question. What a client has written else is ignored.
#[inline]
pub fn is_asked<W: Word>(state: &W) -> bool {
    matches!(state.load(Ordering::Acquire), ASKED | ASLEEP)
}

/// Server: the answer has been written. Returns whether the client must be woken.
#[inline]
pub fn answered<W: Word>(state: &W) -> bool {
    state.swap(ANSWERED, Ordering::SeqCst) == ASLEEP
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::scheduler::PctScheduler;
    use shuttle::sync::Arc;
    use shuttle::sync::atomic::AtomicU32;
    use shuttle::{Config, Runner, thread};

    /// A word at every use of which the scheduler may switch threads.
    impl Word for AtomicU32 {
        fn load(&self, order: Ordering) -> u32 {
            self.load(order)
        }
        fn store(&self, value: u32, order: Ordering) {
            self.store(value, order);
        }
        fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.swap(value, order)
        }
        fn set(&self, bits: u32, order: Ordering) -> u32 {
            self.fetch_or(bits, order)
        }
        fn replace(&self, old: u32, new: u32, order: Ordering) -> bool {
            self.compare_exchange(old, new, order, Ordering::SeqCst).is_ok()
        }
    }

    const LANES: usize = 2;
    const CALLS: u32 = 3;
    const LOOKERS: usize = 2;

    /// The shared words, and what stands for bells, sleep and messages.
    #[derive(Default)]
    struct Shared {
        waiting: AtomicU32,
        closing: AtomicU32,
        watched: AtomicU32,
        state: [AtomicU32; LANES],
        /// A question, and then its answer: one more.
        message: [AtomicU32; LANES],
        /// Rung by clients; a thread of the server that sleeps hears nothing but its own.
        bells: [AtomicU32; LOOKERS],
        /// Threads that look leave it to the next one.
        may_hand_over: bool,
        /// The thread that looks, and how many do.
        watcher: AtomicU32,
        inside: AtomicU32,
        /// Clients that were woken.
        woken: [AtomicU32; LANES],
        left: AtomicU32,
        /// Things that clients have closed, and that the server has.
        closed: AtomicU32,
        seen: AtomicU32,
    }

    impl Shared {
        fn door(&self) -> Door<'_, AtomicU32> {
            Door { waiting: &self.waiting, closing: &self.closing, watched: &self.watched }
        }

        fn watch(&self) -> Watch<'_, AtomicU32> {
            Watch { door: self.door(), watcher: &self.watcher }
        }

        /// Rings the bell of the thread on whose processor the client is just now.
        fn ring(&self, lane: usize, n: u32, lookers: usize) {
            self.bells[(lane + n as usize) % lookers].store(1, Ordering::SeqCst);
        }

        fn client(&self, lane: usize, lookers: usize) {
            let state = &self.state[lane];
            for n in 0..CALLS {
                self.message[lane].store(10 * n, Ordering::Relaxed);
                if self.door().ask(lane as u32, state) {
                    self.ring(lane, n, lookers);
                }
                // Looks once, and sleeps.
                while !is_answered(state) && will_sleep(state) {
                    while self.woken[lane].swap(0, Ordering::SeqCst) == 0 {
                        thread::yield_now();
                    }
                }
                assert_eq!(self.message[lane].load(Ordering::Relaxed), 10 * n + 1);
                state.store(FREE, Ordering::Relaxed);
                self.closed.fetch_add(1, Ordering::SeqCst);
                if self.door().close() {
                    self.ring(lane, n + 1, lookers);
                }
            }
            self.left.fetch_sub(1, Ordering::SeqCst);
        }

        fn looker(&self, number: usize) {
            let bell = &self.bells[number];
            loop {
                while bell.swap(0, Ordering::SeqCst) == 0 {
                    if self.left.load(Ordering::SeqCst) == 0 && bell.load(Ordering::SeqCst) == 0 {
                        return;
                    }
                    thread::yield_now();
                }
                let mut looks = self.watch().come(number as u32);
                let mut rounds = 0;
                while looks {
                    assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two look");
                    self.look();
                    self.inside.fetch_sub(1, Ordering::SeqCst);
                    rounds += 1;
                    if rounds == 2 && self.may_hand_over {
                        self.watch().hand_over();
                        self.bells[(number + 1) % LOOKERS].store(1, Ordering::SeqCst);
                        break;
                    }
                    looks = self.watch().stays(number as u32);
                }
            }
        }

        fn look(&self) {
            if self.door().has_closed() {
                self.seen.fetch_add(self.closed.swap(0, Ordering::SeqCst), Ordering::SeqCst);
            }
            let taken = self.door().take();
            for lane in (0..LANES).filter(|lane| taken & 1 << lane != 0) {
                assert!(is_asked(&self.state[lane]));
                let asked = self.message[lane].load(Ordering::Relaxed);
                self.message[lane].store(asked + 1, Ordering::Relaxed);
                if answered(&self.state[lane]) {
                    self.woken[lane].store(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Runs clients and threads of a server in orders that a seed decides.
    fn in_all_orders(lookers: usize, may_hand_over: bool, seed: u64) {
        let scheduler = PctScheduler::new_from_seed(seed, 4, 2000);
        let mut config = Config::new();
        config.max_steps = shuttle::MaxSteps::FailAfter(100_000);
        Runner::new(scheduler, config).run(move || {
            let shared = Arc::new(Shared { may_hand_over, ..Shared::default() });
            shared.left.store(LANES as u32, Ordering::SeqCst);
            let clients = (0..LANES).map(|lane| {
                let shared = shared.clone();
                thread::spawn(move || shared.client(lane, lookers))
            });
            let mut threads: Vec<_> = clients.collect();
            threads.extend((1..lookers).map(|number| {
                let shared = shared.clone();
                thread::spawn(move || shared.looker(number))
            }));
            shared.looker(0);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(shared.seen.load(Ordering::SeqCst), LANES as u32 * CALLS);
        });
    }

    /// In every order, each question is answered once, and nobody sleeps for ever: that would be a
    /// run without end, which the scheduler reports.
    #[test]
    fn no_question_and_no_wake_up_is_lost() {
        in_all_orders(1, false, 37);
    }

    /// As above, when two threads of the server take over from each other: one at a time looks.
    #[test]
    fn no_question_is_lost_between_two_threads() {
        in_all_orders(LOOKERS, false, 38);
    }

    /// As above, when a thread that looks leaves it to the other one.
    #[test]
    fn no_question_is_lost_between_a_thread_and_the_one_that_it_calls() {
        in_all_orders(LOOKERS, true, 39);
    }
}
