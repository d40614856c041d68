//! The HTTP server of a mount: listens before the mount is made, so that an address in use refuses
//! the mount, and ends with it.

use super::Mount;
use super::options::MountOptions;
use crate::observe::Config;
use crate::report::http::{Address, Server};
use crate::report::pages::MountPages;
use crate::session::Session;
use crate::table;
use shoal::raw::{Code, Error, Result};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::{self, Builder};
use std::time::Duration;

/// Attempts of a server that goes on with a mount to get its address, and the pause between two:
/// the server before may still have it.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(200);

/// A server of reports, which ends when this is dropped: it sees that its peer is closed.
pub(super) struct Monitor(UnixStream);

/// Begins to listen, if the options say where.
pub(super) fn bind(options: &MountOptions) -> Result<Option<Server>> {
    let bind = |address| Server::bind(address).map_err(|why| Error::refused(Code::Busy, why));
    options.metrics.as_ref().map(bind).transpose()
}

impl Mount {
    /// Begins to show what the mount does. The server's thread holds nothing of the mount.
    pub(super) fn show(
        &mut self,
        session: &Arc<Session>,
        options: &MountOptions,
        server: Option<Server>,
    ) -> Result<()> {
        self.note_options(session, options);
        self.monitor = show(session, server)?;
        Ok(())
    }

    /// As [`Mount::show`], for a server that goes on with a mount: one that gets no address serves
    /// without.
    pub(super) fn show_later(&mut self, session: &Arc<Session>, options: &MountOptions) {
        self.note_options(session, options);
        let Some(address) = options.metrics.clone() else { return };
        self.monitor = show_soon(session, address);
    }

    fn note_options(&self, session: &Session, options: &MountOptions) {
        let entry = table::mount_at(&self.dir).ok().flatten();
        let source = entry.map(|entry| entry.source.display().to_string()).unwrap_or_default();
        note(session, options, &self.dir, source);
    }
}

/// Notes the options of a server at a place, for its reports.
pub(super) fn note(session: &Session, options: &MountOptions, place: &Path, source: String) {
    if let Some(slow) = options.slow {
        session.observer.slow.set(slow);
    }
    // It fails only if it has been set already.
    let _ = session.observer.config.set(Config {
        directory: place.to_owned(),
        source,
        options: serde_json::to_value(options).unwrap_or_default(),
    });
}

/// Begins to report, if there is a server for it.
pub(super) fn show(session: &Arc<Session>, server: Option<Server>) -> Result<Option<Monitor>> {
    let failed = |error: io::Error| {
        Error::refused(Code::Io, format!("cannot start the server of metrics: {error}"))
    };
    server.map(|server| begin(session, move |_| Some(server)).map_err(failed)).transpose()
}

/// Begins to report as soon as the address is free; a server that gets none goes on without.
pub(super) fn show_soon(session: &Arc<Session>, address: Address) -> Option<Monitor> {
    let begun = begin(session, move |end| bind_soon(&address, end));
    begun.inspect_err(|error| tracing::warn!(%error, "no metrics")).ok()
}

fn begin(
    session: &Arc<Session>,
    server: impl FnOnce(&UnixStream) -> Option<Server> + Send + 'static,
) -> io::Result<Monitor> {
    let (end, other) = UnixStream::pair()?;
    let session: Weak<Session> = Arc::downgrade(session);
    let serve = move || {
        let Some(server) = server(&other) else { return };
        tracing::info!(address = %server.address(), "metrics");
        server.serve(&MountPages::new(session, server.address()), &other);
    };
    Builder::new().name("shoal-metrics".into()).spawn(serve)?;
    Ok(Monitor(end))
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// Listens as soon as the address is free. `None` if it is not, or the mount has ended.
fn bind_soon(address: &Address, end: &UnixStream) -> Option<Server> {
    end.set_nonblocking(true).ok()?;
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        match Server::bind(address) {
            Ok(server) => return Some(server),
            Err(error) => why = error,
        }
        thread::sleep(PAUSE);
        if let Ok(0) = io::Read::read(&mut &*end, &mut [0]) {
            return None;
        }
    }
    tracing::warn!(why, "no metrics");
    None
}
