//! A volume that is served by sessions alone, with everything that a mount has beside its kernel:
//! metrics, health, the load of users and processes, sessions that outlive their server.

use super::monitor::{self, Monitor};
use super::options::{MountOptions, Sessions};
use super::rules;
use crate::doors::Door;
use crate::session::Session;
use parking_lot::Mutex;
use shoal::raw::{Ino, Local, Result, Volume};
use shoal_session::place::default_socket;
use shoal_session::{Restored, Server};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sessions that outlive their server, for it and for the next one.
pub struct Outliving {
    /// The sessions, which outlive the server; those of a server before it go on.
    pub restored: Restored,
    /// There was a server before it: an address for metrics that is in use ends nothing.
    pub resumes: bool,
    /// Process that starts the next one.
    pub keeper: u32,
}

/// A volume that other processes use by sessions, until this is dropped.
pub struct Served {
    session: Arc<Session>,
    /// User who may enter beside the superuser; `None`: all.
    only: Option<u32>,
    socket: PathBuf,
    /// `None`: it has ended.
    server: Mutex<Option<Server>>,
    /// Ends when it is dropped.
    _monitor: Option<Monitor>,
}

impl Served {
    /// Serves a volume, shown as `source`. Of the options those count that are not about a kernel:
    /// `allow_other`, `ro`, `session`, `metrics`, `slow`, and [`MountOptions::follows`]: then
    /// `volume` is a view of one that another process changes. `outliving`: with a keeper.
    ///
    /// # Errors
    /// `EBUSY` if another process serves at the socket, or listens at the address for metrics;
    /// `ENOENT` if there is no place for a socket. The sessions have been given back then.
    pub fn new(
        volume: Arc<Volume>,
        source: &str,
        options: &MountOptions,
        outliving: Option<Outliving>,
    ) -> Result<Served> {
        let (resumes, keeper) =
            outliving.as_ref().map_or((false, 0), |kept| (kept.resumes, kept.keeper));
        let restored = outliving.map(|kept| kept.restored);
        let place = || {
            let early = if resumes { None } else { monitor::bind(options)? };
            let socket = match &options.session {
                Sessions::At(path) => path.clone(),
                Sessions::Auto | Sessions::Off => default_socket(&volume.info().id)?,
            };
            Ok((early, socket))
        };
        let (early, socket) = match place() {
            Ok(place) => place,
            Err(error) => {
                let local = Local::new(volume);
                restored.into_iter().for_each(|restored| restored.give_back(&local));
                return Err(error);
            }
        };
        let rules = rules(options);
        let mut session = Session::without_kernel(volume, rules, Ino::ROOT, Arc::default());
        session.keeper = keeper;
        if options.follows {
            session.views.follow();
        }
        let session = Arc::new(session);
        session.about.begin(options.facts(source));
        monitor::note(&session, options, &socket, source.to_owned());
        let only = (!options.allow_other).then(|| rustix::process::geteuid().as_raw());
        let door = match options.follows {
            true => Door::of_views(session.clone(), 0, only),
            false => Door::without_kernel(session.clone(), only),
        };
        let door = Arc::new(door);
        let server = match restored {
            Some(restored) => Server::keep(&socket, door, restored)?,
            None => Server::start(&socket, door)?,
        };
        let monitor = match &options.metrics {
            Some(address) if resumes => monitor::show_soon(&session, address.clone()),
            _ => monitor::show(&session, early)?,
        };
        let (socket, server) = (server.path().to_owned(), Mutex::new(Some(server)));
        Ok(Served { session, only, socket, server, _monitor: monitor })
    }

    /// The place of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends this server so that another one can go on with its sessions: calls in work are
    /// answered, and nothing is given back.
    pub fn leave(self) {
        if let Some(server) = self.server.into_inner() {
            server.leave();
        }
    }

    /// Ends all sessions, and admits no others. Returns whether it has served until now.
    pub fn end(&self) -> bool {
        self.server.lock().take().is_some()
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.server.lock().as_ref().map_or(0, Server::sessions)
    }

    /// Serves another view of the same volume from now on. Calls in work end with the view that
    /// they began with. Ignored once this process owns the volume.
    pub fn show_view(&self, volume: Arc<Volume>) {
        self.session.views.replace(volume);
    }

    /// Serves a volume that this process owns from now on: programs can change it, when they have
    /// connected anew. Sessions with views end: what they have open was not counted.
    ///
    /// # Errors
    /// Those of making the socket.
    pub fn own(&self, volume: Arc<Volume>) -> Result<()> {
        self.session.views.own(volume);
        let mut server = self.server.lock();
        if server.take().is_some() {
            let door = Door::without_kernel(self.session.clone(), self.only);
            *server = Some(Server::start(&self.socket, Arc::new(door))?);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served({})", self.socket().display())
    }
}
