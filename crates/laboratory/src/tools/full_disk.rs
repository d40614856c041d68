//! `full-disk`: files of 64 KiB until there is no space left, refused ones, and the time until the
//! space of all is free again.
//!
//! Written as a user without privileges, since some filesystems keep a reserve for root, which
//! statvfs does not count as available. A mount that does not let that user in is filled as root.

use super::children::{self, Times};
use crate::error::{LabError, Result};
use crate::sample::median;
use rustix::fs::StatVfs;
use rustix::io::Errno;
use serde_json::json;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a file.
const SIZE: usize = 64 << 10;
/// Files in a directory.
const PER_DIR: u64 = 1000;
/// Writes that must be refused.
const REFUSALS: usize = 200;
/// Part of the space that must come back, of 100.
const BACK: u64 = 95;
/// Longest time to wait for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// User without privileges: nobody.
const USER: u32 = 65_534;

/// Runs the workload.
pub(crate) fn run(root: &Path, bytes_max: u64, keep: bool) -> Result<()> {
    let before = available(root)?;
    let top = Top { path: root.join("full"), keep };
    let failed = |what: &str, e: io::Error| LabError::failed(what, top.path.display(), e);
    fs::create_dir(&top.path).map_err(|e| failed("making folder", e))?;
    let user = choose_user(&top.path);
    let filled = as_user(user, || fill(&top.path, bytes_max))?;
    let refused_us = filled.refused_us;
    let start = Instant::now();
    let (mut freed_seconds, mut back_percent) = (0.0, 0.0);
    if !keep {
        fs::remove_dir_all(&top.path).map_err(|e| failed("removing", e))?;
    }
    let removed_seconds = start.elapsed().as_secs_f64();
    if !keep {
        (freed_seconds, back_percent) = wait_until_free(root, before)?;
    }
    let own = [
        ("bytes", json!(filled.bytes)),
        ("available_bytes", json!(before)),
        ("usable_percent", json!(100.0 * filled.bytes as f64 / before.max(1) as f64)),
        ("refused_us_median", json!(median(&refused_us))),
        ("refused_us_max", json!(refused_us.iter().copied().fold(0.0, f64::max))),
        ("removed_seconds", json!(removed_seconds)),
        ("freed_seconds", json!(freed_seconds)),
        ("removed_and_freed_seconds", json!(removed_seconds + freed_seconds)),
        ("back_percent", json!(back_percent)),
        ("as_root", json!(user.is_none())),
    ];
    children::print(["full-disk", "full", "usual"], filled.files, filled.times, &own)
}

/// The folder of the files, which an error must not leave behind unless it is to stay.
struct Top {
    path: PathBuf,
    keep: bool,
}

impl Drop for Top {
    fn drop(&mut self) {
        if !self.keep {
            let _none = fs::remove_dir_all(&self.path);
        }
    }
}

/// Returns the bytes that statvfs calls available.
fn available(root: &Path) -> Result<u64> {
    let found: StatVfs =
        rustix::fs::statvfs(root).map_err(|e| LabError::failed("statvfs of", root.display(), e))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns the user to write as; `None`: as the one that this process runs as.
fn choose_user(top: &Path) -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let given = std::os::unix::fs::chown(top, Some(USER), None);
    let allowed = given
        .and_then(|()| as_user(Some(USER), || fs::File::create(top.join("allowed")).map(drop)));
    match allowed.and_then(|()| fs::remove_file(top.join("allowed"))) {
        Ok(()) => Some(USER),
        Err(error) => {
            eprintln!("laboratory: full-disk runs as root, since another user is refused: {error}");
            None
        }
    }
}

/// Does the work on a thread that has the rights of the user only.
fn as_user<T: Send, E: Send + From<Denied>>(
    user: Option<u32>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let Some(user) = user else { return work() };
    let changed = move || {
        let uid = rustix::process::Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(Denied)?;
        work()
    };
    std::thread::scope(|scope| {
        let done = scope.spawn(changed).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The rights of the user could not be taken on.
struct Denied(Errno);

impl From<Denied> for io::Error {
    fn from(denied: Denied) -> io::Error {
        denied.0.into()
    }
}

impl From<Denied> for LabError {
    fn from(denied: Denied) -> LabError {
        LabError::failed("becoming user", USER, denied.0)
    }
}

/// A filesystem that is full.
struct Filled {
    bytes: u64,
    files: u64,
    times: Times,
    /// Microseconds of each refused write.
    refused_us: Vec<f64>,
}

/// Writes files until enough writes have been refused. Some filesystems refuse a write and take
/// the next one, when they have found space in the background: what is taken counts.
fn fill(top: &Path, bytes_max: u64) -> Result<Filled> {
    let data = vec![0x5au8; SIZE];
    let (mut bytes, mut files, mut refused_us) = (0, 0, Vec::new());
    let (start, cpu) = (Instant::now(), children::cpu_of_self());
    let mut times = None;
    while refused_us.len() <= REFUSALS {
        if bytes >= bytes_max {
            let why = format!("{bytes} bytes were written, and it is not full: see --bytes-max");
            return Err(LabError::failed("filling", top.display(), why));
        }
        let begun = Instant::now();
        let (path, taken) = write_one(top, files, &data)?;
        let us = begun.elapsed().as_secs_f64() * 1e6;
        if taken == Some(SIZE) {
            (files, bytes) = (files + 1, bytes + SIZE as u64);
            continue;
        }
        if times.is_none() {
            times = Some(Times {
                seconds: start.elapsed().as_secs_f64(),
                cpu_seconds: children::cpu_of_self() - cpu,
            });
            // The first refusal may take until everything is written back: it is not counted below.
            rustix::fs::sync();
        }
        refused_us.push(us);
        if taken.is_some() {
            fs::remove_file(&path).map_err(|e| LabError::failed("removing", path.display(), e))?;
        }
    }
    refused_us.remove(0);
    let zero = Times { seconds: 0.0, cpu_seconds: 0.0 };
    Ok(Filled { bytes, files, times: times.unwrap_or(zero), refused_us })
}

/// Writes one file. Returns its path and the bytes taken, or `None` if it could not even be made.
fn write_one(top: &Path, index: u64, data: &[u8]) -> Result<(PathBuf, Option<usize>)> {
    let dir = top.join(format!("d{}", index / PER_DIR));
    let path = dir.join(format!("f{index}"));
    let failed = |e: io::Error| LabError::failed("writing", path.display(), e);
    match fs::create_dir(&dir) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) if is_full(&e) => return Ok((path, None)),
        other => other.map_err(failed)?,
    }
    let mut file = match fs::File::create(&path) {
        Err(e) if is_full(&e) => return Ok((path, None)),
        other => other.map_err(failed)?,
    };
    let mut taken = 0;
    while let Some(rest) = data.get(taken..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => break,
            Ok(count) => taken += count,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if is_full(&e) => break,
            Err(e) => return Err(failed(e)),
        }
    }
    Ok((path, Some(taken)))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Waits until the space is available again. Returns the seconds that it took, and the part of the
/// space that there is then, in percent.
fn wait_until_free(root: &Path, before: u64) -> Result<(f64, f64)> {
    let start = Instant::now();
    loop {
        let (now, seconds) = (available(root)?, start.elapsed());
        let enough = u128::from(now) * 100 >= u128::from(before) * u128::from(BACK);
        if enough || seconds > PATIENCE {
            let percent = 100.0 * now as f64 / before.max(1) as f64;
            return Ok((seconds.as_secs_f64(), percent));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_larger_than_the_limit_is_an_error() {
        let scratch = crate::process::Scratch::new("test-full").expect("a folder");
        let error = fill(scratch.path(), 200_000).err().expect("not full").to_string();
        assert!(error.contains("262144 bytes were written"), "{error}");
    }

    #[test]
    fn space_that_is_there_is_free_at_once() {
        let (seconds, percent) = wait_until_free(&std::env::temp_dir(), 1).expect("statvfs");
        assert!(seconds < 30.0 && percent >= 100.0);
        assert!(wait_until_free(Path::new("/no/such/path"), 1).is_err());
    }
}
