//! The socket of a mount's sessions: where it is, and how long.

use super::Mount;
use super::options::{MountOptions, Sessions};
use crate::doors::Door;
use crate::session::Session;
use crate::table;
use shoal::raw::{Code, Error, Local, Result};
use shoal_session::place::{default_socket, make_folder, own_link};
use shoal_session::{Restored, Server};
use std::os::unix::fs::symlink;
use std::sync::Arc;

impl Mount {
    /// Begins to serve sessions, if the options want it and there is a place for the socket.
    /// `restored`: of a mount that outlives its server.
    ///
    /// # Errors
    /// Only where they were asked for.
    pub(super) fn open_door(
        &self,
        session: &Arc<Session>,
        options: &MountOptions,
        restored: Option<Restored>,
    ) -> Result<()> {
        let is_wanted = match &options.session {
            Sessions::Off => return Ok(()),
            Sessions::Auto => false,
            Sessions::At(_) => true,
        };
        match self.door(session, options, restored) {
            Ok(server) => *self.door.lock() = Some(server),
            Err(error) if is_wanted => return Err(error),
            Err(error) => tracing::info!(%error, "no sessions"),
        }
        Ok(())
    }

    fn door(
        &self,
        session: &Arc<Session>,
        options: &MountOptions,
        restored: Option<Restored>,
    ) -> Result<Server> {
        let io = |what: &str, error: std::io::Error| {
            Error::refused(Code::Io, format!("sessions: {what}: {error}"))
        };
        let place = || {
            let entry = table::mount_at(&self.dir).map_err(|error| io("this mount", error))?;
            let device = entry.as_ref().and_then(|entry| device_of(&entry.device)).unwrap_or(0);
            let volume = session.views.keep();
            let socket = match &options.session {
                Sessions::At(path) => path.clone(),
                // The volume's own place is that of its owner. A name that nobody else has: a
                // mount's number is another's as soon as it is gone, before its server has ended.
                _ if options.follows => {
                    let own = std::process::id();
                    default_socket(&format!("{}.{device:x}.{own}", volume.info().id))?
                }
                Sessions::Auto | Sessions::Off => default_socket(&volume.info().id)?,
            };
            Ok((device, socket))
        };
        let (device, socket) = match place() {
            Ok(place) => place,
            Err(error) => {
                let local = Local::new(session.views.keep());
                restored.into_iter().for_each(|restored| restored.give_back(&local));
                return Err(error);
            }
        };
        let own = rustix::process::geteuid().as_raw();
        let only = (!options.allow_other).then_some(own);
        let door = match options.follows {
            true => Door::of_views(session.clone(), device, only),
            false => Door::new(session.clone(), device, only, options.writeback),
        };
        let door = Arc::new(door);
        let server = match restored {
            Some(restored) => Server::keep(&socket, door, restored)?,
            None => Server::start(&socket, door)?,
        };
        if let Some(link) = own_link(device).filter(|link| device != 0 && *link != socket) {
            make_folder(&link).map_err(|error| io("folder of the link to the socket", error))?;
            // That of a mount that is gone. Nobody removes a link but here: by the time its server
            // ends it may be another mount's.
            let _ = std::fs::remove_file(&link);
            symlink(&socket, &link).map_err(|error| io("link to the socket", error))?;
        }
        Ok(server)
    }
}

/// Reads `major:minor`.
fn device_of(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}
