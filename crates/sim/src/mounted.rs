//! A mount served by a process that may be killed.
//!
//! Nothing here looks into the mount point when nobody serves it: that would wait for ever, or fail
//! in ways that say nothing.

use rustix::mount::{UnmountFlags, unmount};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a server to begin or to end.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process that serves a mount.
pub struct Server {
    process: Child,
    directory: PathBuf,
    mounted: bool,
}

/// Returns whether mounts can be tried here.
pub fn possible() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists()
}

impl Server {
    /// Starts one on `directory`; it says `ready` in a line when it serves.
    ///
    /// # Errors
    /// Says why it does not.
    pub fn start(mut command: Command, directory: &Path) -> Result<Server, String> {
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = process.map_err(|e| format!("{command:?}: {e}"))?;
        let said = process.stdout.take().ok_or("no pipe")?;
        let mut server = Server { process, directory: directory.to_owned(), mounted: true };
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(said).lines().map_while(Result::ok);
            let ready = lines.any(|line| line.contains("ready"));
            // Nobody may be waiting any more. The server's further words must not block it.
            let _ = send.send(ready);
            lines.for_each(drop);
        });
        match receive.recv_timeout(PATIENCE) {
            Ok(true) => Ok(server),
            Ok(false) => Err(format!("the server ends: {}", server.end()?)),
            Err(_) => Err(format!("the server is not ready after {PATIENCE:?}")),
        }
    }

    /// Kills it without warning, and takes the dead mount away.
    ///
    /// # Errors
    /// Says what does not go.
    pub fn kill(mut self) -> Result<(), String> {
        self.process.kill().map_err(|e| format!("kill: {e}"))?;
        self.end()?;
        self.detach()
    }

    fn detach(&mut self) -> Result<(), String> {
        self.mounted = false;
        unmount(&self.directory, UnmountFlags::DETACH)
            .map_err(|e| format!("umount -l {}: {e}", self.directory.display()))
    }

    /// Unmounts, and waits until the server has closed the volume.
    ///
    /// # Errors
    /// Says what keeps it from doing so.
    pub fn stop(mut self) -> Result<(), String> {
        let asked = Instant::now();
        // What has just been closed may be held for a moment by a program that is being started.
        while let Err(e) = unmount(&self.directory, UnmountFlags::empty()) {
            if asked.elapsed() > PATIENCE {
                return Err(format!("umount {}: {e}", self.directory.display()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.mounted = false;
        let status = self.end()?;
        if status.success() { Ok(()) } else { Err(format!("the server ends: {status}")) }
    }

    fn end(&mut self) -> Result<ExitStatus, String> {
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().map_err(|e| format!("wait: {e}"))? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(format!("the server does not end in {PATIENCE:?}"))
    }
}

/// A server that fails half-way must leave neither process nor mount.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if self.mounted {
            // Perhaps it never came to be mounted.
            let _ = self.detach();
        }
    }
}
