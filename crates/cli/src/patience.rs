//! A word to the user when a mount does not answer: its server is stopped, or hangs.
//!
//! The call waits on, as every other call in the mount does; the user learns which process it
//! waits for, and how to end that.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::progress::eprint_line;

/// Time after which a stopped server is reported.
const STOPPED: Duration = Duration::from_secs(1);
/// Time after which one that runs is. Under load an answer takes long.
const SILENT: Duration = Duration::from_secs(10);

/// Reports a server that does not answer, until this is dropped.
pub(crate) struct Patience {
    /// Its end ends the thread.
    _asking: Sender<()>,
}

/// Begins to wait for the answer of the mount that `path` is in, if it is in one.
pub(crate) fn wait_for_answer(path: &Path) -> Patience {
    // No request for it: the thread would wait like its caller.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (asking, answered) = channel::<()>();
    thread::spawn(move || {
        let is_answered = |after| answered.recv_timeout(after) != Err(RecvTimeoutError::Timeout);
        if !is_answered(STOPPED) && !report(&path, true) && !is_answered(SILENT - STOPPED) {
            report(&path, false);
        }
    });
    Patience { _asking: asking }
}

/// Reports the server of a mount; `stopped`: only one that is stopped. Returns whether it did.
fn report(path: &Path, stopped: bool) -> bool {
    let Some((dir, processes)) = shoal_fuse::servers_without_asking(path) else { return false };
    let dir = dir.display();
    if let Some(process) = processes.iter().find(|process| process.is_stopped) {
        eprint_line(&is_stopped(&dir.to_string(), process.pid));
        return true;
    }
    if !stopped {
        let numbers: Vec<String> = processes.iter().map(|it| it.pid.to_string()).collect();
        let server = match &*numbers.join(" and ") {
            "" => "its server".to_owned(),
            numbers => format!("its server (process {numbers})"),
        };
        eprint_line(&format!(
            "{dir}: {server} has not answered for {} seconds; to end the mount: shoal umount \
             --force {dir}",
            SILENT.as_secs()
        ));
    }
    !stopped
}

/// Returns the message for a stopped server.
pub(crate) fn is_stopped(object: &str, pid: u32) -> String {
    format!(
        "{object}: its server (process {pid}) is stopped and does not answer: let it go on with \
         'kill -CONT {pid}', or end the mount with 'shoal umount --force'"
    )
}
