//! Serving an open volume to other processes.

use crate::error::{Doing, Result};
use crate::local::Local;
use crate::raw;
use crate::{Dir, Volume};
use shoal_session::place::default_socket;
use shoal_session::{Calls, Host, Node, Server};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a volume is served; see [`Volume::serve`].
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until `serve`"]
pub struct ServeOptions {
    socket: Option<PathBuf>,
    allow_other: bool,
    read_only: bool,
}

impl ServeOptions {
    /// The default: at the place where [`Volume::connect`] looks, for this user and the superuser.
    pub fn new() -> ServeOptions {
        ServeOptions::default()
    }

    /// Sets the place of the socket.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> ServeOptions {
        self.socket = Some(path.into());
        self
    }

    /// Lets all users in. Each may do what the permissions of files and directories allow.
    pub fn allow_other(mut self, allow: bool) -> ServeOptions {
        self.allow_other = allow;
        self
    }

    /// Refuses every change by others.
    pub fn read_only(mut self, read_only: bool) -> ServeOptions {
        self.read_only = read_only;
        self
    }

    /// Serves what is below this directory. It is the top for those who connect.
    ///
    /// # Errors
    /// Those of [`Volume::serve`].
    pub fn serve(self, top: &Dir) -> Result<Serving> {
        let start = || {
            let (raw, local) = top.volume().to_serve()?;
            raw::check_process(raw)?;
            let socket = match self.socket {
                Some(socket) => socket,
                None => default_socket(&raw.info().id)?,
            };
            let shared = Shared {
                local,
                top: top.clone(),
                allow_other: self.allow_other,
                read_only: self.read_only,
            };
            Server::start(&socket, Arc::new(shared))
        };
        start().map(Serving).done("serve volume")
    }
}

impl Volume {
    /// Serves this volume to other processes, which use [`Volume::connect`]; its own calls go on as
    /// before.
    ///
    /// # Errors
    /// `ResourceBusy` if a process serves at that place; `NotFound` if there is no place for the
    /// socket; `Unsupported` for a volume that another process has open.
    pub fn serve(&self, options: ServeOptions) -> Result<Serving> {
        options.serve(&self.root(crate::Credentials::root()))
    }
}

/// A volume that is served to other processes, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends all sessions"]
pub struct Serving(Server);

impl Serving {
    /// The place of the socket.
    pub fn socket(&self) -> &Path {
        self.0.path()
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.0.sessions()
    }
}

struct Shared {
    local: Local,
    top: Dir,
    allow_other: bool,
    read_only: bool,
}

impl Host for Shared {
    fn calls(&self) -> &dyn Calls {
        &self.local
    }
    fn top(&self) -> Node {
        self.top.node()
    }
    fn is_read_only(&self) -> bool {
        self.read_only
    }
    fn may_enter(&self, uid: u32) -> bool {
        self.allow_other || uid == 0 || uid == rustix::process::geteuid().as_raw()
    }
}
