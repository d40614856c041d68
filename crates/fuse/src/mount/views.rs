//! Mounts of a volume that another process owns: newer views of it replace the one that is served,
//! until this process takes the volume over.

use super::kept::find_out;
use super::options::MountOptions;
use super::{Mount, forget_links, refused};
use crate::session::Session;
use shoal::raw::{Code, Error, Result, Volume};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The parts of a mount that its next views need.
pub(super) struct Follower {
    /// The connection, to ask the kernel which inodes it knows.
    device: OwnedFd,
    /// Set as soon as it serves.
    served: Option<(Arc<Session>, MountOptions)>,
}

impl Follower {
    pub(super) fn new(device: OwnedFd) -> Follower {
        Follower { device, served: None }
    }
}

impl Mount {
    /// Prepares for other views.
    pub(super) fn follow(&mut self, session: &Arc<Session>, options: &MountOptions) {
        if let Some(follower) = &mut self.follower {
            follower.served = Some((session.clone(), options.clone()));
        }
    }

    /// Serves another view of the same volume from now on. Requests in work end with the view that
    /// they began with.
    ///
    /// # Errors
    /// Invalid: the mount was made without [`MountOptions::follows`].
    pub fn show_view(&self, volume: Arc<Volume>) -> Result<()> {
        let (session, ..) = self.followed()?;
        session.views.replace(volume);
        Ok(())
    }

    /// Serves a volume that this process owns from now on: programs can change it. It must have
    /// been opened as one with inherited references, because files are open that the views before
    /// have counted.
    ///
    /// # Errors
    /// Invalid: the mount was made without [`MountOptions::follows`]. Those of starting threads,
    /// and of the socket of sessions, if that was asked for.
    pub fn own(&self, volume: Arc<Volume>) -> Result<()> {
        let (session, options, device) = self.followed()?;
        forget_links(&volume, session.top, &session.notices);
        // Before the first unlink.
        session.views.own(volume);
        find_out(session, device, &self.threads, None)
            .map_err(|error| refused(Code::Io, "cannot start the server's threads", &error))?;
        self.look_after(session, options);
        // Sessions with views end: what they have open was not counted.
        drop(self.door.lock().take());
        let options = MountOptions { follows: false, ..options.clone() };
        self.open_door(session, &options, None)
    }

    fn followed(&self) -> Result<(&Arc<Session>, &MountOptions, &OwnedFd)> {
        let followed = self.follower.as_ref().and_then(|follower| {
            let (session, options) = follower.served.as_ref()?;
            Some((session, options, &follower.device))
        });
        followed.ok_or_else(|| {
            Error::refused(Code::Invalid, "the mount does not follow another process")
        })
    }
}
