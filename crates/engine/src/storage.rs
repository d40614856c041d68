//! The storage of a volume by its name: a file or block device, or a bucket.

use crate::types::{MkfsOptions, OpenOptions};
use shoal_base::Result;
#[cfg(feature = "bucket")]
use shoal_bucket::{BucketDevice, Limits, Options, Place, Race, Runtime};
use shoal_device::{Device, FileDevice, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Opens the storage of this name.
///
/// # Errors
/// Those of [`crate::Volume::open`], but for those of its contents.
pub fn open(path: &Path, mode: OpenMode, options: &OpenOptions) -> Result<Arc<dyn Device>> {
    if is_bucket(path) {
        return open_bucket(path, mode, options);
    }
    Ok(Arc::new(FileDevice::open_with(path, mode, &options.claim())?))
}

/// Returns whether a name is that of a bucket: `s3://bucket/prefix`. Without the feature `bucket`
/// it cannot be opened.
pub fn is_bucket(path: &Path) -> bool {
    shoal_device::is_bucket(path.as_os_str().as_encoded_bytes())
}

#[cfg(not(feature = "bucket"))]
fn open_bucket(path: &Path, _: OpenMode, _: &OpenOptions) -> Result<Arc<dyn Device>> {
    Err(no_buckets(path))
}

/// The error of a program that was built without the feature `bucket`.
#[cfg(not(feature = "bucket"))]
pub(crate) fn no_buckets(path: &Path) -> shoal_base::Error {
    let message = format!(
        "{}: built without support for buckets: build the program with the feature `bucket`",
        path.display()
    );
    shoal_base::Error::refused(shoal_base::Code::NotSupported, message)
}

#[cfg(feature = "bucket")]
fn open_bucket(path: &Path, mode: OpenMode, options: &OpenOptions) -> Result<Arc<dyn Device>> {
    let place = Place::parse(&path.to_string_lossy())?;
    let of_bucket = Options {
        force: options.force,
        capacity_min: options.grow.unwrap_or(0),
        ..bucket_options(options)
    };
    let device = match mode {
        OpenMode::ReadOnly => BucketDevice::read_only(&place, of_bucket, Runtime::start()?)?,
        OpenMode::ReadWrite => BucketDevice::open(&place, of_bucket, Runtime::start()?)?,
    };
    Ok(Arc::new(device))
}

/// Least memory for pieces of a bucket's objects: what the requests made at once may bring.
#[cfg(feature = "bucket")]
const PIECES_MIN: u64 = 64 << 20;

/// The options of a bucket that readers and owners have.
#[cfg(feature = "bucket")]
pub(crate) fn bucket_options(options: &OpenOptions) -> Options {
    let disk = options.disk_cache.as_ref().map(|disk| shoal_bucket::DiskCache {
        directory: disk.directory.clone(),
        bytes: disk.bytes,
    });
    let limits = Limits { patience: options.patience, ..Limits::default() };
    let all = Options::default();
    let cache_bytes = match options.cache_bytes {
        0 => all.cache_bytes,
        bytes => bytes.clamp(PIECES_MIN, all.cache_bytes),
    };
    let lease_min = options.grace.unwrap_or(all.lease_min);
    let lease_max = all.lease_max.max(lease_min);
    Options { notice: options.notice, limits, disk, cache_bytes, lease_min, lease_max, ..all }
}

/// Default size of a volume in a bucket: a limit only, because what is not used is not stored. No
/// larger than a file of ext4 can be, so that the volume can be restored into one.
#[cfg(feature = "bucket")]
const BUCKET_SIZE: u64 = 8 << 40;

/// Makes a device at an empty place in a bucket.
#[cfg(feature = "bucket")]
pub(crate) fn make_bucket(path: &Path, options: &MkfsOptions) -> Result<Arc<dyn Device>> {
    use shoal_bucket::CreateOptions;
    let place = Place::parse(&path.to_string_lossy())?;
    // Other programs of this machine alone use a directory, and its filesystem is no remote store.
    let is_directory = place.name().starts_with("file://");
    let race = if is_directory { Race::SHORT } else { Race::FULL };
    let create = CreateOptions {
        capacity: if options.size == 0 { BUCKET_SIZE } else { options.size },
        overwrite: options.force,
        race: (!options.trust_store).then_some(race),
        progress: options.progress,
    };
    let of_bucket = Options { notice: options.notice, ..Options::default() };
    let device = BucketDevice::create(&place, &create, of_bucket, Runtime::start()?)?;
    Ok(Arc::new(device))
}

#[cfg(not(feature = "bucket"))]
pub(crate) fn make_bucket(path: &Path, _: &MkfsOptions) -> Result<Arc<dyn Device>> {
    Err(no_buckets(path))
}
