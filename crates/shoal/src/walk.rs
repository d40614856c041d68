//! Walking a tree on several threads.

use crate::error::{Doing, Error, Result};
use crate::path::to_path_buf;
use crate::raw::{self, Attr, Code, Cookies, DirEntry, Fields, FileKind, Filter, Ino, Stat};
use crate::{Dir, Metadata};
use std::ffi::OsStr;
use std::iter::FusedIterator;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Entries that a thread hands over at a time.
const BATCH: usize = 256;
/// Batches that wait to be taken, at most: a slow consumer stops the walk.
const BATCHES: usize = 64;
/// Threads of a walk that waits for a slow device, at most.
const WAITING_MAX: usize = 32;
/// Time to list a directory, and for each of its entries, beyond which the thread must have waited
/// for the device.
const LIST_MAX: Duration = Duration::from_millis(1);
const ENTRY_MAX: Duration = Duration::from_micros(5);

/// A walk over everything below a directory; see [`Dir::walk`]. Iterate over it to begin it.
#[derive(Clone)]
#[must_use = "a walk does nothing until it is iterated over"]
pub struct Walk {
    dir: Dir,
    depth: usize,
    follow_roots: bool,
    /// The caller's choice. Otherwise one for each processor, and more while they wait for the
    /// device.
    threads: Option<usize>,
    filter: Filter,
    enters: Option<Arc<Enters>>,
}

/// Decides which directories are entered.
type Enters = dyn Fn(&WalkEntry) -> bool + Send + Sync;

impl Dir {
    /// A walk over everything below this directory, on several threads.
    pub fn walk(&self) -> Walk {
        Walk::new(self.clone())
    }
}

impl Walk {
    pub(crate) fn new(dir: Dir) -> Walk {
        Walk {
            dir,
            depth: usize::MAX,
            follow_roots: true,
            threads: None,
            filter: Filter::new(),
            enters: None,
        }
    }

    /// Sets the number of levels: 1 lists the directory alone.
    pub fn depth(mut self, depth: usize) -> Walk {
        self.depth = depth;
        self
    }

    /// Enters subvolumes; on by default. Their top directories are returned in any case.
    pub fn follow_roots(mut self, follow: bool) -> Walk {
        self.follow_roots = follow;
        self
    }

    /// Sets the filter: other entries are left out. Directories are entered whether they pass it or
    /// not.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// use shoal::Filter;
    ///
    /// # fn main() -> shoal::Result<()> {
    /// # let volume = Volume::options().size(64 << 20).in_memory()?;
    /// # let root = volume.root(Credentials::root());
    /// root.create_dir_all("src/target")?;
    /// root.write("src/main.rs", "fn main() {}")?;
    /// root.write("src/target/main.rs", "")?;
    /// let walk = root.walk().filter(Filter::new().name(b"*.rs"));
    /// let walk = walk.enter_if(|dir| dir.name() != b"target");
    /// let found: Vec<_> = walk.into_iter().collect::<Result<_, _>>()?;
    /// assert_eq!(found.len(), 1);
    /// assert_eq!(found[0].path().to_str(), Some("src/main.rs"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn filter(mut self, filter: Filter) -> Walk {
        self.filter = filter;
        self
    }

    /// Enters only directories for which `enters` returns `true`. Several threads call it. The
    /// directories themselves are returned in any case, if they pass the filter.
    pub fn enter_if(mut self, enters: impl Fn(&WalkEntry) -> bool + Send + Sync + 'static) -> Walk {
        self.enters = Some(Arc::new(enters));
        self
    }

    /// Sets the number of threads; by default as many as processors, and up to 32 while they wait
    /// for a slow device. With one thread, the entries of a directory follow each other, and a
    /// directory comes before its contents; with more there is no order.
    pub fn threads(mut self, threads: usize) -> Walk {
        self.threads = Some(threads.max(1));
        self
    }
}

/// A file or directory that a walk has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WalkEntry {
    path: Vec<u8>,
    depth: usize,
    metadata: Metadata,
}

impl WalkEntry {
    /// Its path below the directory that the walk began in.
    pub fn path(&self) -> PathBuf {
        to_path_buf(&self.path)
    }
    /// The same as bytes.
    pub fn path_bytes(&self) -> &[u8] {
        &self.path
    }
    /// The last component of its path, as the standard library has it.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name())
    }
    /// The last component of its path.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
    /// Level below the directory that the walk began in: 1 for its own entries.
    pub fn depth(&self) -> usize {
        self.depth
    }
    /// Its attributes, as they were when the walk read them. A symlink is not followed.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Walk { dir, depth, follow_roots, threads, filter, enters: _ } = self;
        f.debug_struct("Walk")
            .field("dir", dir)
            .field("depth", depth)
            .field("follow_roots", follow_roots)
            .field("threads", threads)
            .field("filter", filter)
            .finish_non_exhaustive()
    }
}

impl IntoIterator for Walk {
    type Item = Result<WalkEntry>;
    type IntoIter = Walking;

    fn into_iter(self) -> Walking {
        let top = Pending { ino: self.dir.0.ino, path: Vec::new(), depth: 1 };
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { dirs: vec![top], busy: 0, stopped: self.depth == 0 }),
            changed: Condvar::new(),
            crew: Mutex::default(),
            walk: self,
        });
        let (send, receive) = sync_channel(BATCHES);
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        let threads = shared.walk.threads.unwrap_or_else(processors);
        // Fewer threads do as well; without any, the walk is only this error.
        let started = (0..threads).filter(|_| shared.start(&send)).count();
        let batch = match started {
            0 => vec![Err(Error::new("walk", None, Code::Again.into()))],
            _ => Vec::new(),
        };
        Walking { shared, batch: batch.into_iter(), receive: Some(receive) }
    }
}

/// A directory that is still to be listed.
struct Pending {
    ino: Ino,
    path: Vec<u8>,
    depth: usize,
}

struct Queue {
    /// Last in, first out, so that it holds no more than the directories beside one path or,
    /// with several threads, a few.
    dirs: Vec<Pending>,
    /// Threads that are listing a directory, and may find more.
    busy: usize,
    stopped: bool,
}

struct Shared {
    walk: Walk,
    queue: Mutex<Queue>,
    changed: Condvar,
    crew: Mutex<Vec<JoinHandle<()>>>,
}

type Found = Vec<Result<WalkEntry>>;

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn crew(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread. Returns `false` if there can be no more.
    fn start(self: &Arc<Self>, send: &SyncSender<Found>) -> bool {
        let (shared, send) = (self.clone(), send.clone());
        let run = move || shared.run(&send);
        let started = thread::Builder::new().name("shoal-walk".to_owned()).spawn(run);
        started.map(|thread| self.crew().push(thread)).is_ok()
    }

    /// One thread.
    fn run(self: &Arc<Self>, send: &SyncSender<Found>) {
        while let Some(dir) = self.next() {
            let (mut below, mut sender) = (Vec::new(), Sender::new(send));
            let begun = Instant::now();
            self.list(&dir, &mut below, &mut sender);
            let took = begun.elapsed().saturating_sub(sender.waited);
            let has_waited = took > LIST_MAX + ENTRY_MAX * sender.entries;
            let mut queue = self.queue();
            queue.busy -= 1;
            queue.stopped |= sender.is_closed;
            // In the order of the listing: the first is taken first.
            queue.dirs.extend(below.into_iter().rev());
            let more = has_waited && !queue.stopped && !queue.dirs.is_empty();
            if more && self.walk.threads.is_none() && self.crew().len() < WAITING_MAX {
                // Under the lock of the queue: nobody starts one after the walk has been stopped.
                self.start(send);
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// Waits for a directory; `None` at the end of the walk.
    fn next(&self) -> Option<Pending> {
        let mut queue = self.queue();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(dir) = queue.dirs.pop() {
                queue.busy += 1;
                return Some(dir);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lists a directory, as long as somebody takes what it finds.
    fn list(&self, dir: &Pending, below: &mut Vec<Pending>, sender: &mut Sender<'_>) {
        let (top, mut found) = (&self.walk.dir, Found::new());
        let listing =
            raw::Listing { cookies: Cookies::ALL, want: Fields::ALL, filter: Filter::new() };
        let mut each = |entry: &DirEntry<'_>, stat: raw::Result<Stat>| {
            let attr = stat.and_then(|stat| stat.attr().ok_or(Code::Io.into()));
            match attr {
                Ok(attr) => found.extend(self.entry(dir, entry, &attr, below).map(Ok)),
                Err(e) => found.push(Err(Error::new("walk", Some(&path_of(dir, entry.name)), e))),
            }
            if found.len() == BATCH {
                sender.send(std::mem::take(&mut found));
            }
            !sender.is_closed
        };
        let (who, node) = (top.who(), top.node());
        let listed = top.calls().list(who, node, &dir.path, dir.ino, &listing, &mut each);
        match listed {
            // Removed since it was found: it is not there any more.
            Err(e) if e.is(Code::Stale) && dir.depth > 1 => {}
            Err(e) => found.push(Err(Error::new("walk", Some(&dir.path), e))),
            Ok(()) => {}
        }
        if !found.is_empty() && !sender.is_closed {
            sender.send(found);
        }
    }

    /// Returns the entry if it passes the filter, and adds a directory to those that are still to
    /// be listed.
    fn entry(
        &self,
        dir: &Pending,
        entry: &DirEntry<'_>,
        attr: &Attr,
        below: &mut Vec<Pending>,
    ) -> Option<WalkEntry> {
        let Walk { depth, follow_roots, filter, enters, .. } = &self.walk;
        let passes = filter.passes_entry(entry) && filter.passes_inode(attr);
        let may_enter = attr.kind == FileKind::Directory
            && dir.depth < *depth
            && (*follow_roots || attr.ino.root() == dir.ino.root());
        if !passes && !may_enter {
            return None;
        }
        let path = path_of(dir, entry.name);
        let found = WalkEntry { path, depth: dir.depth, metadata: Metadata(*attr) };
        if may_enter && enters.as_ref().is_none_or(|enters| enters(&found)) {
            let (path, depth) = (found.path.clone(), dir.depth + 1);
            below.push(Pending { ino: attr.ino, path, depth });
        }
        passes.then_some(found)
    }
}

/// Returns the path of an entry of a directory.
fn path_of(dir: &Pending, name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.path.len() + 1 + name.len());
    path.extend_from_slice(&dir.path);
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Hands a thread's entries to the consumer.
struct Sender<'s> {
    send: &'s SyncSender<Found>,
    /// The consumer has dropped the walk.
    is_closed: bool,
    /// Entries sent, and the time spent waiting for the consumer.
    entries: u32,
    waited: Duration,
}

impl Sender<'_> {
    fn new(send: &SyncSender<Found>) -> Sender<'_> {
        Sender { send, is_closed: false, entries: 0, waited: Duration::ZERO }
    }

    fn send(&mut self, found: Found) {
        let begun = Instant::now();
        self.entries = self.entries.saturating_add(found.len() as u32);
        self.is_closed = self.send.send(found).is_err();
        self.waited += begun.elapsed();
    }
}

/// A walk under way. Dropping it ends the walk.
pub struct Walking {
    shared: Arc<Shared>,
    batch: std::vec::IntoIter<Result<WalkEntry>>,
    /// `None` when it is being dropped.
    receive: Option<Receiver<Found>>,
}

impl Walking {
    fn check_process(&self) -> Result<()> {
        let volume = self.shared.walk.dir.volume();
        volume.raw().map_or(Ok(()), raw::check_process).done("walk")
    }
}

impl Iterator for Walking {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Result<WalkEntry>> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(entry);
            }
            if let Err(forked) = self.check_process() {
                // Its threads are the parent's.
                std::mem::forget(self.receive.take()?);
                return Some(Err(forked));
            }
            self.batch = self.receive.as_ref()?.recv().ok()?.into_iter();
        }
    }
}

impl FusedIterator for Walking {}

impl Drop for Walking {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            std::mem::forget((self.receive.take(), self.shared.clone()));
            return;
        }
        // Who is sending fails, who waits is told.
        self.receive = None;
        self.shared.queue().stopped = true;
        self.shared.changed.notify_all();
        let crew = std::mem::take(&mut *self.shared.crew());
        for thread in crew {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Walking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walking({:?})", self.shared.walk)
    }
}
