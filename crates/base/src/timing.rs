//! Latency histograms without contention: each thread shard has its own cells, a reader adds them
//! up and stops nobody.
//!
//! Buckets are log-linear, as in an HdrHistogram: [`STEPS`] of equal width between two powers of
//! two, so that a value is known to within an eighth. A bucket holds the values above its lower
//! bound, up to and including its upper bound; so a power of two from 512 ns on is the exact bound
//! of a cumulative count. The last bucket holds everything longer than 137 seconds too.
//!
//! Recording takes no lock and allocates nothing once [`Timings::prepare`] has run for the thread's
//! shard. The recorded numbers are added one by one: a reader may see a count without its sum.

use crate::error::Code;
use crate::sample::EVERY;
use crate::shard::{SHARDS, shard};
use crossbeam_utils::CachePadded;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets between two powers of two.
pub const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 3;
/// Width of the first buckets, in bits of a nanosecond count: 32 ns.
const UNIT_BITS: u32 = 5;
/// Powers of two of the unit up to the longest duration.
const POWERS_MAX: u32 = 32;
/// Number of buckets.
pub const BUCKETS: usize = 2 * STEPS + (POWERS_MAX - STEP_BITS - 1) as usize * STEPS;

/// Returns the bucket of a duration.
#[inline]
pub fn bucket_of(ns: u64) -> usize {
    // One less, so that an upper bound belongs to its bucket.
    let units = (ns.saturating_sub(1) >> UNIT_BITS).min((1 << POWERS_MAX) - 1);
    if units < 2 * STEPS as u64 {
        return units as usize;
    }
    let shift = 63 - units.leading_zeros() - STEP_BITS;
    shift as usize * STEPS + (units >> shift) as usize
}

/// Returns the upper bound of a bucket in nanoseconds.
pub fn bucket_end(bucket: usize) -> u64 {
    if bucket < 2 * STEPS {
        return (bucket as u64 + 1) << UNIT_BITS;
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    ((STEPS + step + 1) as u64) << shift << UNIT_BITS
}

/// Declares what is measured inside a volume: variant, name in output, description.
macro_rules! timed {
    ($($variant:ident $name:literal $what:literal;)*) => {
        /// Kinds of durations that every open volume measures.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Timed { $(#[doc = $what] $variant,)* }
        impl Timed {
            /// All kinds, in the order of declaration.
            pub const ALL: &'static [Timed] = &[$(Timed::$variant,)*];
            /// The kind's name in output.
            pub fn name(self) -> &'static str { match self { $(Timed::$variant => $name,)* } }
            /// Describes the duration.
            pub fn what(self) -> &'static str { match self { $(Timed::$variant => $what,)* } }
        }
    };
}

timed! {
    DeviceRead "device_read" "reads of the device";
    DeviceWrite "device_write" "writes to the device";
    DeviceFlush "device_flush" "flushes of the device";
    DeviceDiscard "device_discard" "discards of free space on the device";
    JournalWait "journal_wait" "waits until the journal is durable, as in fsync";
    Checkpoint "checkpoint" "checkpoints, from their beginning until they are durable";
    Quiesce "quiesce" "parts of checkpoints during which transactions cannot begin";
}

/// Declares the calls of the library: variant, name in output, how it is timed, description.
macro_rules! calls {
    ($($variant:ident $name:literal $timed:ident $what:literal;)*) => {
        /// Calls of the library. One that takes less than some microseconds is `sampled`: one in
        /// [`EVERY`] is timed. The others are timed `each` time.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Call { $(#[doc = $what] $variant,)* }
        impl Call {
            /// All calls, in the order of declaration.
            pub const ALL: &'static [Call] = &[$(Call::$variant,)*];
            /// The call's name in output.
            pub fn name(self) -> &'static str { match self { $(Call::$variant => $name,)* } }
            /// Describes the call.
            pub fn what(self) -> &'static str { match self { $(Call::$variant => $what,)* } }
            /// Returns whether it is timed each time.
            #[inline]
            pub const fn is_always_timed(self) -> bool {
                match self { $(Call::$variant => calls!(@ $timed),)* }
            }
        }
    };
    (@ each) => { true };
    (@ sampled) => { false };
}

calls! {
    Lookup "lookup" sampled "lookups of a name in a directory";
    Resolve "resolve" sampled "lookups of a path";
    Create "create" sampled "creations of files, special and unnamed ones too";
    Mkdir "mkdir" sampled "creations of directories";
    Symlink "symlink" sampled "creations of symbolic links";
    Link "link" sampled "hard links";
    Unlink "unlink" sampled "removals of names of files";
    Rmdir "rmdir" sampled "removals of directories";
    Rename "rename" sampled "renames";
    Readlink "readlink" sampled "reads of symbolic links";
    Getattr "getattr" sampled "reads of an inode's attributes (stat)";
    Setattr "setattr" sampled "changes of an inode's attributes";
    Access "access" sampled "checks of permissions";
    Getxattr "getxattr" sampled "reads of an extended attribute";
    Listxattr "listxattr" sampled "lists of extended attributes";
    Setxattr "setxattr" sampled "changes of an extended attribute or an access list";
    Removexattr "removexattr" sampled "removals of an extended attribute";
    Read "read" sampled "reads of files";
    Write "write" sampled "writes to files, appends too";
    Seek "seek" sampled "searches for data and holes";
    Readdir "readdir" sampled "pages of listings, with attributes or without";
    Paths "paths" sampled "searches for the names and paths of an inode";
    Redeem "redeem" sampled "files opened with a token";
    Issue "issue" each "tokens issued";
    Fallocate "fallocate" each "preallocations, holes, zeroed ranges";
    CopyRange "copy_range" each "copies of ranges of files";
    Fsync "fsync" each "changes of a file made durable";
    Sync "sync" each "all changes made durable";
    Batch "batch" each "batches: several changes as one";
    StatMany "stat_many" each "reads of the attributes of many inodes";
    Bulkstat "bulkstat" each "scans of all inodes";
    Children "children" each "listings in the order of inodes";
    Totals "totals" each "totals of directories";
    Changes "changes" each "pages of changes since a mark";
    RemoveTree "remove_tree" each "removals of a directory with all that is in it";
    ChangeTree "change_tree" each "changes of all inodes of a tree";
    Quota "quota" each "quotas set and removed";
    Subvolume "subvolume" each "subvolumes created and deleted";
}

impl Call {
    /// Number of calls that one counts for: the numbers of `sampled` calls are estimates.
    pub const fn weight(self) -> u64 {
        if self.is_always_timed() { 1 } else { EVERY }
    }

    /// Returns whether a result is a failure. No such name, or attribute, is an ordinary answer of
    /// a call that looks for one.
    pub fn is_failure(self, code: Code) -> bool {
        match self {
            Call::Lookup | Call::Resolve => code != Code::NotFound,
            Call::Getxattr | Call::Removexattr => code != Code::NoData,
            _ => true,
        }
    }
}

/// One kind's cells of one shard.
struct Row {
    buckets: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
}

impl Row {
    fn new() -> Row {
        let zero = || AtomicU64::new(0);
        let buckets = std::array::from_fn(|_| zero());
        Row { buckets, total_ns: zero(), errors: zero(), bytes: zero() }
    }
}

/// Histograms of several kinds of durations.
pub struct Timings {
    kinds: usize,
    shards: Box<[CachePadded<Shard>]>,
}

/// Histograms of one shard, by kind.
type Shard = OnceLock<Box<[Row]>>;

impl Timings {
    /// Makes histograms for kinds 0 to `kinds - 1`. The memory of a shard is allocated when one of
    /// its threads is prepared or records.
    pub fn new(kinds: usize) -> Timings {
        Timings::with_shards(kinds, SHARDS)
    }

    fn with_shards(kinds: usize, shards: usize) -> Timings {
        let shards = (0..shards).map(|_| CachePadded::new(OnceLock::new())).collect();
        Timings { kinds, shards }
    }

    /// Makes the histograms of [`Timed`] with all their memory. Fewer shards than threads may have:
    /// each of these durations is long beside an increment that is contended.
    pub fn of_volume() -> Timings {
        Timings::complete(Timed::ALL.len(), 8)
    }

    /// Makes the histograms of [`Call`] with all their memory. Still fewer shards: of short calls
    /// one in [`EVERY`] is recorded.
    pub fn of_calls() -> Timings {
        Timings::complete(Call::ALL.len(), 4)
    }

    fn complete(kinds: usize, shards: usize) -> Timings {
        let timings = Timings::with_shards(kinds, shards);
        for shard in &timings.shards {
            timings.rows(shard);
        }
        timings
    }

    /// Allocates the memory of the calling thread's shard, so that recording does not.
    pub fn prepare(&self) {
        self.rows(self.shard());
    }

    #[inline]
    fn shard(&self) -> &OnceLock<Box<[Row]>> {
        &self.shards[shard() % self.shards.len()]
    }

    #[inline]
    fn rows<'a>(&self, shard: &'a OnceLock<Box<[Row]>>) -> &'a [Row] {
        shard.get_or_init(|| (0..self.kinds).map(|_| Row::new()).collect())
    }

    /// Records a duration of a kind, whether what took it failed, and the bytes that it moved.
    #[inline]
    pub fn record(&self, kind: usize, took: Duration, failed: bool, bytes: u64) {
        let ns = took.as_nanos().min(u64::MAX.into()) as u64;
        let row = &self.rows(self.shard())[kind];
        row.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        row.total_ns.fetch_add(ns, Ordering::Relaxed);
        if failed {
            row.errors.fetch_add(1, Ordering::Relaxed);
        }
        if bytes > 0 {
            row.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a failure of a kind whose duration was not recorded.
    #[inline]
    pub fn failed(&self, kind: usize) {
        self.rows(self.shard())[kind].errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the sum over all threads of a kind.
    pub fn get(&self, kind: usize) -> Timing {
        let mut sum = Timing::default();
        for rows in self.shards.iter().filter_map(|shard| shard.get()) {
            let row = &rows[kind];
            let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
            for (bucket, cell) in row.buckets.iter().enumerate() {
                sum.add(bucket, get(cell));
            }
            sum.total_ns = sum.total_ns.wrapping_add(get(&row.total_ns));
            sum.errors += get(&row.errors);
            sum.bytes += get(&row.bytes);
        }
        sum
    }
}

/// A histogram as read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// Counts of the buckets, up to the last one that is not 0.
    counts: Vec<u64>,
    /// Sum of the durations, in nanoseconds.
    pub total_ns: u64,
    /// Number that failed.
    pub errors: u64,
    /// Bytes moved.
    pub bytes: u64,
}

impl Timing {
    /// Adds `n` to a bucket. One that no duration has is counted as the longest.
    pub fn add(&mut self, bucket: usize, n: u64) {
        if n == 0 {
            return;
        }
        let bucket = bucket.min(BUCKETS - 1);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += n;
    }

    /// Returns a histogram in which each duration counts `weight` times. Failures and bytes stay.
    pub fn weighted(mut self, weight: u64) -> Timing {
        self.counts.iter_mut().for_each(|n| *n *= weight);
        self.total_ns = self.total_ns.wrapping_mul(weight);
        self
    }

    /// Returns whether there was nothing: no duration, and no failure.
    pub fn is_empty(&self) -> bool {
        self.errors == 0 && self.count() == 0
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Timing) {
        other.buckets().for_each(|(bucket, n)| self.add(bucket, n));
        self.total_ns = self.total_ns.wrapping_add(other.total_ns);
        self.errors += other.errors;
        self.bytes += other.bytes;
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Buckets that are not empty, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter().copied().enumerate().filter(|(_, n)| *n > 0)
    }

    /// Number of durations of at most `ns`, which should be the bound of a bucket.
    pub fn count_up_to(&self, ns: u64) -> u64 {
        self.buckets().filter(|(bucket, _)| bucket_end(*bucket) <= ns).map(|(_, n)| n).sum()
    }

    /// The duration in nanoseconds that a share of them, 0 to 1, did not exceed: the upper bound of
    /// its bucket. 0 if there are none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, n) in self.buckets() {
            seen += n;
            if seen >= rank {
                return bucket_end(bucket);
            }
        }
        0
    }

    /// Durations since `before`, an earlier reading of the same kind.
    pub fn since(&self, before: &Timing) -> Timing {
        let mut rest = Timing {
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            errors: self.errors.saturating_sub(before.errors),
            bytes: self.bytes.saturating_sub(before.bytes),
            ..Timing::default()
        };
        for (bucket, n) in self.buckets() {
            let earlier = before.counts.get(bucket).copied().unwrap_or(0);
            rest.add(bucket, n.saturating_sub(earlier));
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for bucket in 0..BUCKETS {
            let end = bucket_end(bucket);
            assert_eq!(bucket_of(end), bucket, "{end}");
            if bucket + 1 < BUCKETS {
                assert_eq!(bucket_of(end + 1), bucket + 1, "{end}");
                let width = bucket_end(bucket + 1) - end;
                assert!(width == 32 || width * STEPS as u64 <= end, "an eighth: {width} of {end}");
            }
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_end(BUCKETS - 1), 1 << 37);
        for power in 9..=37 {
            assert_eq!(bucket_end(bucket_of(1 << power)), 1 << power, "an exact bound");
        }
    }

    #[test]
    fn threads_add_up() {
        let timings = Timings::new(2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 1..=1000 {
                        timings.record(1, Duration::from_micros(n), n % 100 == 0, 3);
                    }
                });
            }
        });
        assert_eq!(timings.get(0), Timing::default());
        let all = timings.get(1);
        assert_eq!((all.count(), all.errors, all.bytes), (4000, 40, 12_000));
        assert_eq!(all.total_ns, 4 * 500_500_000);
        for (share, us) in [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let found = all.quantile_ns(share);
            let exact = us * 1000;
            assert!(found >= exact && found <= exact + exact / 7, "{share}: {found}");
        }
        assert_eq!(all.count_up_to(1 << 37), 4000);
        assert_eq!(all.count_up_to(1 << 19), 4 * 524, "of at most 524,288 ns");
        let later = {
            timings.record(1, Duration::from_secs(1), true, 0);
            timings.get(1).since(&all)
        };
        assert_eq!((later.count(), later.errors, later.bytes), (1, 1, 0));
        assert!(later.quantile_ns(0.5) >= 1_000_000_000);
        assert_eq!(Timing::default().quantile_ns(0.5), 0);
        let mut twice = all.clone();
        twice.merge(&all);
        assert_eq!(twice.count(), 8000);
    }

    #[test]
    fn a_sampled_duration_counts_for_many_and_a_failure_for_one() {
        let timings = Timings::of_calls();
        timings.record(2, Duration::from_micros(3), true, 0);
        timings.failed(2);
        let timing = timings.get(2).weighted(64);
        assert_eq!((timing.count(), timing.total_ns, timing.errors), (64, 192_000, 2));
        assert_eq!(timing.quantile_ns(0.5), timings.get(2).quantile_ns(0.5));
        assert!(!timing.is_empty() && timings.get(1).is_empty());
        timings.failed(1);
        assert!(!timings.get(1).is_empty());
    }

    #[test]
    fn names_are_different() {
        let names: std::collections::HashSet<_> = Timed::ALL.iter().map(|it| it.name()).collect();
        assert_eq!(names.len(), Timed::ALL.len());
        assert!(Timed::ALL.iter().all(|it| !it.what().is_empty()));
        let names: std::collections::HashSet<_> = Call::ALL.iter().map(|it| it.name()).collect();
        assert_eq!(names.len(), Call::ALL.len());
        assert!(Call::ALL.iter().all(|it| !it.what().is_empty()));
    }
}
