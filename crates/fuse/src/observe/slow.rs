//! Slow requests: the newest are kept, and logged at a limited rate.
//!
//! A line for each would let a user fill the log, so each operation has a line at most every
//! [`LOG_EVERY`]; the next one says how many were left out. Paths take some reads, so they are
//! looked up only for that many requests, in the thread that was slow anyway.

use crate::caller::shown_user;
use crate::observe::{Answered, label};
use crate::protocol::wire::InHeader;
use parking_lot::Mutex;
use shoal::raw::phase::{self, Phase, Spent};
use shoal::raw::{Ino, Volume};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Most requests that are kept.
pub(crate) const KEPT_MAX: usize = 256;
/// Least duration of a slow request, unless the mount options say otherwise.
pub(crate) const DEFAULT: Duration = Duration::from_secs(1);
/// Shortest time between two lines in the log about the same operation.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Most paths that are looked up in a second.
const PATHS_MAX: u32 = 10;
/// Most directories of a path.
const DEPTH_MAX: usize = 128;
/// Most bytes of a path.
const PATH_MAX: usize = 4096;
/// Most names of a file whose path is looked up: all of them would be read.
const NAMES_MAX: u32 = 64;

/// A slow request.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    /// Number, from 1 in order.
    pub number: u64,
    /// When it was answered.
    pub at: SystemTime,
    /// Operation.
    pub op: String,
    /// Inode: for an operation on a name, its directory.
    pub ino: Ino,
    /// Path from the top of the mount, if it was looked up and the inode has one.
    pub path: Option<Vec<u8>>,
    /// Thread of the caller.
    pub pid: u32,
    /// User of the caller.
    pub uid: u32,
    /// Errno; 0: none.
    pub errno: i32,
    /// Duration in nanoseconds.
    pub took_ns: u64,
    /// Of that, what it has waited for.
    pub spent: Spent,
}

impl Slow {
    /// Returns the phases in which it has waited, with nanoseconds.
    pub(crate) fn phases(&self) -> impl Iterator<Item = (Phase, u64)> + '_ {
        let all = Phase::ALL.iter().map(|phase| (*phase, self.spent[*phase as usize]));
        all.filter(|(_, ns)| *ns > 0)
    }
}

/// The slow requests of a mount.
pub(crate) struct SlowLog {
    from_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: VecDeque<Slow>,
    /// Number of slow requests.
    count: u64,
    /// By operation: when the last line was logged, and how many were left out since.
    logged: HashMap<u32, (Instant, u64)>,
    /// The second in which paths are counted, and their number.
    paths: Option<(Instant, u32)>,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        let from_ns = AtomicU64::new(DEFAULT.as_nanos() as u64);
        SlowLog { from_ns, state: Mutex::default() }
    }
}

impl SlowLog {
    /// Returns the least duration of a slow request in nanoseconds.
    #[inline]
    pub(crate) fn least_ns(&self) -> u64 {
        self.from_ns.load(Ordering::Relaxed)
    }

    /// Sets the least duration of a slow request; 0: none is slow.
    pub(crate) fn set(&self, from: Duration) {
        let ns = u64::try_from(from.as_nanos()).unwrap_or(u64::MAX);
        self.from_ns.store(if ns == 0 { u64::MAX } else { ns }, Ordering::Relaxed);
    }

    /// Keeps a slow request of this thread, and logs it.
    #[cold]
    pub(crate) fn note(
        &self,
        volume: &Volume,
        top: Ino,
        ino: Ino,
        header: &InHeader,
        answered: &Answered,
    ) {
        let spent = phase::spent();
        let path = self.path_of(volume, top, ino);
        let mut slow = Slow {
            number: 0,
            at: SystemTime::now(),
            op: label(answered.op),
            ino,
            path,
            pid: header.pid,
            uid: shown_user(header),
            errno: answered.errno,
            took_ns: answered.took_ns,
            spent,
        };
        let mut state = self.state.lock();
        state.count += 1;
        slow.number = state.count;
        let left_out = state.may_log(answered.op as u32);
        if state.kept.len() == KEPT_MAX {
            state.kept.pop_front();
        }
        state.kept.push_back(slow.clone());
        drop(state);
        if let Some(left_out) = left_out {
            log(&slow, left_out);
        }
    }

    /// Returns the path of an inode from the top of the mount, if it has one and few paths were
    /// looked up in the last second.
    pub(crate) fn path_of(&self, volume: &Volume, top: Ino, ino: Ino) -> Option<Vec<u8>> {
        self.may_look_up().then(|| path_of(volume, top, ino)).flatten()
    }

    fn may_look_up(&self) -> bool {
        let mut state = self.state.lock();
        let now = Instant::now();
        match &mut state.paths {
            Some((begun, count)) if now - *begun < Duration::from_secs(1) => {
                *count += 1;
                *count <= PATHS_MAX
            }
            paths => {
                *paths = Some((now, 1));
                true
            }
        }
    }

    /// Number of slow requests since the mount began.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Returns the requests that are kept, the newest first.
    pub(crate) fn kept(&self) -> Vec<Slow> {
        self.state.lock().kept.iter().rev().cloned().collect()
    }
}

impl State {
    /// Returns the number of requests left out since the last line of an operation; `None` if there
    /// must be no other line yet. There are as many entries as operations.
    fn may_log(&mut self, op: u32) -> Option<u64> {
        let now = Instant::now();
        match self.logged.get_mut(&op) {
            Some((at, left_out)) if now - *at < LOG_EVERY => {
                *left_out += 1;
                None
            }
            known => {
                let left_out = known.map_or(0, |(_, left_out)| *left_out);
                self.logged.insert(op, (now, 0));
                Some(left_out)
            }
        }
    }
}

fn log(slow: &Slow, left_out: u64) {
    let phases: Vec<String> = slow
        .phases()
        .map(|(phase, ns)| format!("{} {:.1} ms", phase.name(), ns as f64 / 1e6))
        .collect();
    let path = slow.path.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    tracing::warn!(
        op = slow.op,
        took_ms = slow.took_ns / 1_000_000,
        waited = phases.join(", "),
        ino = slow.ino.0,
        // With quotes: whoever makes names must not make lines.
        ?path,
        pid = slow.pid,
        uid = slow.uid,
        errno = slow.errno,
        left_out,
        "slow operation"
    );
}

/// Returns a path of an inode from the top of the mount. `None` if it has none, has many names, or
/// cannot be read.
fn path_of(volume: &Volume, top: Ino, ino: Ino) -> Option<Vec<u8>> {
    let attr = volume.attributes().getattr(ino).ok()?;
    if attr.nlink > NAMES_MAX && attr.kind != shoal::raw::FileKind::Directory {
        return None;
    }
    let (mut names, mut at, mut len) = (Vec::new(), ino, 0);
    while at != top {
        let parent = volume.paths().parents_of(at).ok()?.into_iter().next()?;
        len += parent.name.len() + 1;
        if names.len() == DEPTH_MAX || len > PATH_MAX {
            return None;
        }
        at = parent.dir;
        names.push(parent.name);
    }
    let mut path = vec![b'/'];
    names.reverse();
    path.extend(names.join(&b'/'));
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Opcode;
    use shoal::raw::{Caller, MkfsOptions, OpenOptions};

    fn volume(name: &str) -> Volume {
        let path = std::env::temp_dir().join(format!("shoal-slow-{name}-{}", std::process::id()));
        let wish = MkfsOptions { size: 64 << 20, ..MkfsOptions::default() };
        shoal::raw::mkfs(&path, &wish).unwrap();
        let volume = Volume::open(&path, &OpenOptions::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
        volume
    }

    fn answered(op: Opcode) -> Answered {
        Answered { op, took_ns: 5_000_000, errno: 0, bytes: 0 }
    }

    #[test]
    fn the_newest_are_kept_and_few_have_paths() {
        let (volume, log) = (volume("kept"), SlowLog::default());
        let who = Caller::root();
        let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"a\nb", 0o755).unwrap().ino;
        let file = volume.namespace().create(&who, dir, b"c", 0o644).unwrap().ino;
        phase::reset();
        phase::waited(Phase::Journal, Duration::from_millis(3));
        let header = InHeader { uid: 7, pid: 9, ..InHeader::default() };
        for _ in 0..1000 {
            log.note(&volume, Ino::ROOT, file, &header, &answered(Opcode::Fsync));
        }
        assert_eq!(log.count(), 1000);
        let kept = log.kept();
        assert_eq!((kept.len(), kept[0].number, kept[255].number), (KEPT_MAX, 1000, 745));
        let phases: Vec<_> = kept[0].phases().collect();
        assert_eq!(phases, [(Phase::Journal, 3_000_000)]);
        assert_eq!((kept[0].uid, kept[0].pid, &*kept[0].op), (7, 9, "fsync"));
        let with_path = kept.iter().filter(|slow| slow.path.is_some()).count();
        assert!(with_path <= 2 * PATHS_MAX as usize, "{with_path}");
        assert_eq!(path_of(&volume, Ino::ROOT, file).as_deref(), Some(&b"/a\nb/c"[..]));
        assert_eq!(path_of(&volume, Ino::ROOT, Ino::ROOT).as_deref(), Some(&b"/"[..]));
        assert_eq!(path_of(&volume, dir, file).as_deref(), Some(&b"/c"[..]));
        assert_eq!(path_of(&volume, Ino::ROOT, Ino(1 << 40)), None);
    }

    #[test]
    fn each_operation_has_few_lines_that_count_the_others() {
        let mut state = State::default();
        assert_eq!(state.may_log(5), Some(0));
        assert_eq!([state.may_log(5), state.may_log(5)], [None, None]);
        assert_eq!(state.may_log(6), Some(0), "another operation");
        if let Some((at, _)) = state.logged.get_mut(&5) {
            *at -= LOG_EVERY;
        }
        assert_eq!(state.may_log(5), Some(2));
        assert_eq!(state.may_log(5), None);
    }

    #[test]
    fn a_threshold_of_0_is_none() {
        let log = SlowLog::default();
        log.set(Duration::from_millis(100));
        assert_eq!(log.least_ns(), 100_000_000);
        log.set(Duration::ZERO);
        assert_eq!(log.least_ns(), u64::MAX);
    }
}
