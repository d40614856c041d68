//! A volume in a bucket that another process owns, as it changes, and the take-over of it.

use crate::storage::bucket_options;
use crate::types::{HoldLife, OpenOptions};
use crate::volume::Volume;
use shoal_base::Result;
use shoal_bucket::{Counted, Follower, Owner, Place, Runtime};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A volume that another process owns.
#[derive(Debug)]
pub struct Following {
    follower: Follower,
    options: OpenOptions,
}

impl Following {
    /// Begins to follow the volume at the URL of a bucket. Options that concern writing count from
    /// the take-over on.
    ///
    /// # Errors
    /// Invalid: no such URL. NotFound: there is no volume. Those of requests, and of damage.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Following> {
        let place = Place::parse(&path.to_string_lossy())?;
        Following::at(&place, options, Runtime::start()?)
    }

    /// As [`Following::open`], in a store of the caller's.
    pub fn at(place: &Place, options: &OpenOptions, runtime: Runtime) -> Result<Following> {
        let follower = Follower::open(place, bucket_options(options), runtime)?;
        Ok(Following { follower, options: options.clone() })
    }

    /// Reads what the owner has made durable since the last call. Returns whether the volume has
    /// changed, or its owner has. A sign of life of an idle owner is no change.
    ///
    /// # Errors
    /// Those of requests, and of damage.
    pub fn advance(&self) -> Result<bool> {
        self.follower.advance()
    }

    /// Opens the volume for reading as it is after the last flush that was read: what it would be
    /// after a crash of the owner. Its objects stay in the bucket for a minute after the owner
    /// needs them no more.
    ///
    /// # Errors
    /// Those of [`Volume::open`].
    pub fn view(&self) -> Result<Volume> {
        let options = OpenOptions {
            read_only: true,
            background: false,
            // Those of the view before are not counted.
            holds: HoldLife::Inherited,
            ..self.options.clone()
        };
        Volume::open_on(Arc::new(self.follower.view()?), &options)
    }

    /// Returns what is known of the owner, as of the last [`Following::advance`]. It counts as
    /// silent only after `patience` at least.
    ///
    /// # Errors
    /// Those of requests.
    pub fn owner(&self, patience: Duration) -> Result<Owner> {
        self.follower.owner(patience)
    }

    /// Returns who owns the volume, or did last, for messages.
    ///
    /// # Errors
    /// Those of requests.
    pub fn owner_name(&self) -> Result<String> {
        self.follower.owner_name()
    }

    /// Takes the volume over. Its owner, if it still works, becomes read-only and loses what it has
    /// not flushed.
    ///
    /// # Errors
    /// Busy: yet another process was faster. Those of [`Volume::open`].
    pub fn take_over(&self) -> Result<Volume> {
        let options =
            OpenOptions { read_only: false, holds: HoldLife::Inherited, ..self.options.clone() };
        Volume::open_on(Arc::new(self.follower.take()?), &options)
    }

    /// Requests since it was opened.
    pub fn requests(&self) -> Counted {
        self.follower.counted()
    }
}
