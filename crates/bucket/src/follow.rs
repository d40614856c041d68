//! Following a volume that another process owns, and taking it over when that one ends.
//!
//! The log is all that there is to follow: each object in it is one flush of the owner, and the
//! state after it is a volume as the owner's would be after a crash. Names of objects are never
//! used again, so pieces in memory stay valid from one state to the next, and for the owner that
//! this process becomes.
//!
//! | step | action | reason |
//! | --- | --- | --- |
//! | 1 | read the slots of the log from the last one known, up to the first absent one | |
//! | 2 | read the headers of manifests behind the newest one known | if one covers a slot that was just read, what was found there may be no log any more: a late fence in a slot that was collected, with newer slots behind it |
//! | 3 | apply the objects; or, after step 2 has found such a manifest, begin again with it | |
//!
//! Step 2 keeps what [`open::take`] needs: all manifests up to the newest are known, and the newest
//! layer among them covers no slot behind the first absent one.
//!
//! *Silence.* An owner that has written nothing for as long as its lease says has ended, or cannot
//! reach the store. Only time counts in which the store answered this process, in steps of a
//! second at most.
//!
//! *Beats* of an idle owner, and manifests of what the log said before, end its silence, and are no
//! changes: a view that was opened before them shows the same, and its objects stay, since only an
//! object of the log that is a change makes an older one useless.

use crate::device::{BucketDevice, no_volume};
use crate::load::{self, State, WINDOW_MAX};
use crate::map::Place as Piece;
use crate::open::{self, LOOK, Rival};
use crate::place::Place;
use crate::requests::Counted;
use crate::runtime::Runtime;
use crate::shared::{Access, Means, Options};
use bytes::Bytes;
use futures::future::join_all;
use shoal_base::Result;
use shoal_format::bucket::manifest::{Body, ManifestHeader, decode_header};
use shoal_format::bucket::object::ObjectKind;
use shoal_format::bucket::{Name, log_name, manifest_name};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Objects of the log that are read before they are applied.
const BATCH_MAX: usize = 64;
/// Most that one look at the store adds to the silence of the owner.
const STEP_MAX: Duration = Duration::from_secs(1);

/// State of the owner of a volume, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// It has written something within the time that it promised.
    Works,
    /// It has closed the volume: whoever opens it next need not wait.
    Closed,
    /// It has written nothing for longer than it promised, or its process on this machine is gone.
    Silent,
}

/// A volume that is followed.
pub struct Follower {
    place: Place,
    access: Access,
    options: Options,
    followed: Mutex<Followed>,
}

/// Signs of life of the owner in one look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Nothing,
    /// Beats, or a manifest.
    Alive,
    /// A newer state than before.
    Changes,
}

struct Followed {
    /// `None`: it has to be read anew.
    state: Option<State>,
    /// Number of a manifest that was there.
    known: u64,
    /// Log objects that the last look found.
    found: u64,
    /// Time without a sign of life of the owner.
    silent: Duration,
    looked: Instant,
    /// The opening whose claim is known, and the claim.
    claim: (u64, Vec<u8>),
}

impl Follower {
    /// Reads the newest state of a volume.
    ///
    /// # Errors
    /// NotFound: there is none. Those of requests, and of damage.
    pub fn open(place: &Place, options: Options, runtime: Runtime) -> Result<Follower> {
        let means = Means::new(place, &options, runtime)?;
        let state = means.wait(load::load(&means.store))?;
        let state = state.ok_or_else(|| no_volume(place.name()))?;
        let access = means.access(state.volume, &options);
        let (silent, looked, claim) = (Duration::ZERO, Instant::now(), (0, Vec::new()));
        let (known, found, state) = (state.newest, 0, Some(state));
        let followed = Followed { state, known, found, silent, looked, claim };
        Ok(Follower { place: place.clone(), access, options, followed: Mutex::new(followed) })
    }

    /// Reads what the owner has flushed since the last call. Returns whether the volume has
    /// changed, or its owner has. A beat of an idle owner is no change.
    ///
    /// # Errors
    /// Those of requests, and of damage. The next call begins with the newest manifest.
    pub fn advance(&self) -> Result<bool> {
        self.access.runtime.wait(async {
            let mut followed = self.followed.lock().await;
            let done = self.read_on(&mut followed).await;
            let step = followed.looked.elapsed().min(STEP_MAX);
            match &done {
                Ok(News::Changes | News::Alive) => followed.silent = Duration::ZERO,
                Ok(News::Nothing) => followed.silent += step,
                Err(_) => followed.state = None,
            }
            followed.looked = Instant::now();
            done.map(|news| news == News::Changes)
        })
    }

    /// Returns the volume as it is after the last flush that was read, for reading. Its objects
    /// stay for a minute after the owner needs them no more.
    ///
    /// # Errors
    /// Those of [`Follower::advance`] after it has failed.
    pub fn view(&self) -> Result<BucketDevice> {
        self.access.runtime.wait(async {
            let mut followed = self.followed.lock().await;
            let state = self.state(&mut followed).await?;
            Ok(BucketDevice::look(self.access.clone(), state, self.options.clone()))
        })
    }

    /// Returns what is known of the owner, as of the last [`Follower::advance`]. `patience`: the
    /// shortest silence that counts.
    ///
    /// # Errors
    /// Those of requests.
    pub fn owner(&self, patience: Duration) -> Result<Owner> {
        self.access.runtime.wait(async {
            let mut followed = self.followed.lock().await;
            let silent = followed.silent;
            let state = self.state(&mut followed).await?;
            let (epoch, lease) = (state.epoch, state.lease);
            if state.closed {
                return Ok(Owner::Closed);
            }
            if silent > lease.max(patience) + LOOK {
                return Ok(Owner::Silent);
            }
            // Only after it has been silent for a moment: it costs a look at processes.
            if silent < LOOK {
                return Ok(Owner::Works);
            }
            self.learn_claim(&mut followed, epoch).await?;
            Ok(match shoal_device::owner::runs(&followed.claim.1) {
                Some(false) => Owner::Silent,
                Some(true) | None => Owner::Works,
            })
        })
    }

    /// Returns who owns the volume, or did last, for messages.
    ///
    /// # Errors
    /// Those of requests.
    pub fn owner_name(&self) -> Result<String> {
        self.access.runtime.wait(async {
            let mut followed = self.followed.lock().await;
            let epoch = self.state(&mut followed).await?.epoch;
            self.learn_claim(&mut followed, epoch).await?;
            Ok(shoal_device::owner::describe(&followed.claim.1))
        })
    }

    /// Takes the volume over, for writing. Whoever owns it becomes read-only, and loses what it has
    /// not flushed. The follower may go on, and sees what this process writes.
    ///
    /// # Errors
    /// Busy: yet another process has taken it over since [`Follower::advance`]. Those of requests,
    /// and of damage.
    pub fn take(&self) -> Result<BucketDevice> {
        let claim = shoal_device::owner::encode(self.place.name());
        let options = Options { force: true, ..self.options.clone() };
        let owned = self.access.runtime.wait(async {
            let mut followed = self.followed.lock().await;
            let state = self.state(&mut followed).await?.clone();
            let store = &self.access.store;
            open::take(store, state, &claim, None, Rival::Yield, &options).await
        })?;
        Ok(BucketDevice::own(self.access.clone(), owned, self.options.clone()))
    }

    /// Requests since the volume was opened, those of its views and of an owner included.
    pub fn counted(&self) -> Counted {
        self.access.store.requests.read()
    }

    async fn state<'f>(&self, followed: &'f mut Followed) -> Result<&'f mut State> {
        let state = match followed.state.take() {
            Some(state) => state,
            None => {
                let loaded = load::load_from(&self.access.store, followed.known).await?;
                loaded.ok_or_else(|| no_volume(self.place.name()))?
            }
        };
        followed.known = state.newest;
        Ok(followed.state.insert(state))
    }

    async fn read_on(&self, followed: &mut Followed) -> Result<News> {
        let is_new = followed.state.is_none();
        let expected = followed.found;
        let state = self.state(followed).await?;
        if is_new {
            return Ok(News::Changes);
        }
        let (begun, newest, closed) = (state.slot, state.newest, state.closed);
        let mut news = News::Nothing;
        loop {
            let (objects, is_end) = self.read_log(state.slot, expected).await?;
            if !self.read_manifests(state).await? {
                followed.state = None;
                self.state(followed).await?;
                return Ok(News::Changes);
            }
            for raw in objects {
                news = news.max(self.apply(state, &raw)?);
            }
            if is_end {
                if state.newest > newest {
                    news = news.max(News::Alive);
                }
                if state.closed != closed {
                    news = News::Changes;
                }
                followed.found = state.slot - begun;
                return Ok(news);
            }
        }
    }

    /// Reads objects from a slot on, at first as many at once as are expected, and one more.
    /// Returns whether an absent slot is behind them.
    async fn read_log(&self, from: u64, expected: u64) -> Result<(Vec<Bytes>, bool)> {
        let (mut objects, mut window) = (Vec::new(), (expected + 1).min(WINDOW_MAX));
        while objects.len() < BATCH_MAX {
            let next = from + objects.len() as u64;
            let names: Vec<String> = (next..next + window).map(log_name).collect();
            for found in join_all(names.iter().map(|name| self.access.store.get(name))).await {
                let Some(raw) = found? else { return Ok((objects, true)) };
                objects.push(raw);
            }
            window = (window * 2).min(WINDOW_MAX);
        }
        Ok((objects, false))
    }

    /// Reads the headers of new manifests. Returns `false` if the state has to be read anew.
    async fn read_manifests(&self, state: &mut State) -> Result<bool> {
        loop {
            let sequence = state.newest + 1;
            let range = 0..ManifestHeader::SIZE as u64;
            let name = manifest_name(sequence);
            let Some(raw) = self.access.store.get_range(&name, range).await? else {
                return Ok(true);
            };
            if !state.learn(&decode_header(&raw, sequence)?) {
                return Ok(false);
            }
        }
    }

    fn apply(&self, state: &mut State, raw: &Bytes) -> Result<News> {
        let name = Name::Log(state.slot);
        let (kind, pieces) = state.apply(raw)?;
        for piece in pieces.iter().filter(|piece| piece.object == 0 && !piece.is_discarded()) {
            self.access.frames.keep(&Piece::of(piece, name), raw);
        }
        Ok(match kind {
            ObjectKind::Beat => News::Alive,
            ObjectKind::Flush | ObjectKind::Close | ObjectKind::Fence | ObjectKind::Data => {
                News::Changes
            }
        })
    }

    async fn learn_claim(&self, followed: &mut Followed, epoch: u64) -> Result<()> {
        if followed.claim.0 != epoch {
            let claim = load::manifest(&self.access.store, epoch).await?;
            let Body::Claim(raw) = claim.body else { return Ok(()) };
            followed.claim = (epoch, raw);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("place", &self.place.name()).finish_non_exhaustive()
    }
}
