//! Turns a hang into a failure, and a panic into a message that says where it happened.

use crate::text::panic_text;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `work` in a thread of its own and panics, naming `what`, when it panics or takes longer
/// than `seconds`. A thread that hangs is left behind; the process is expected to end soon.
pub fn within<T: Send + 'static>(
    seconds: u64,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        let result = work();
        // Nobody may be listening any more.
        let _ = send.send(result);
    });
    match receive.recv_timeout(Duration::from_secs(seconds)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("{what}: hangs (more than {seconds} s)"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => panic!("{what}: {}", panic_text(&*panic)),
            Ok(()) => unreachable!("the thread sends before it ends"),
        },
    }
}

/// A number from the environment: how much of a long test to run.
pub fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back() {
        assert_eq!(within(60, "sum", || 1 + 1), 2);
    }

    #[test]
    #[should_panic(expected = "here: why")]
    fn panics_are_passed_on() {
        within(60, "here", || panic!("why"));
    }

    #[test]
    #[should_panic(expected = "hangs")]
    fn hangs_end() {
        within(0, "sleep", || std::thread::sleep(Duration::from_secs(5)));
    }
}
