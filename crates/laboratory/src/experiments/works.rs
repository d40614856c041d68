//! Experiments that repeat the measurements of the four published pieces of work.

use super::{
    BESIDE, Chapter, Experiment, Figure, Kind, Labels, Measure, PROCESSOR, Program, RATE, bench,
    files_of, less, repeated, study, tools,
};
use crate::plan::Size;
use crate::systems::System;

/// In the order of the report.
pub(super) const ALL: &[Experiment] = &[
    Experiment {
        id: "parents",
        chapter: Chapter::Parents,
        title: "Cost of parent pointers",
        shows: "The same calls on volumes of Shoal without parent pointers, with them, and with \
                each of their changes through an intent; beside XFS without and with them. Times \
                of Shoal include making everything durable.",
        answers: "XFS, on publication of the shortcut past the attr intents: parent pointers added \
                  28 % of system time to creates and 56 % to removals, with the shortcut 8 % and \
                  19 % (\"xfs: shortform xattr shortcut\").",
        aims: "A create costs at most 5 % more processor time with parent pointers than without.",
        baseline: "Shoal, off",
        measures: parents,
        rounds_max: u32::MAX,
        figures: &[
            PROCESSOR,
            RATE,
            less(Kind::Bars, "journal_bytes_each", 1.0, "bytes of journal each"),
            less(Kind::Bars, "transactions_each", 1.0, "transactions each"),
        ],
    },
    Experiment {
        id: "instructions",
        chapter: Chapter::Parents,
        title: "Instructions of a call",
        shows: "Instructions of each call on volumes of Shoal in the same three settings, counted \
                by valgrind (callgrind). First of all threads of the process, with making \
                everything durable: a parent pointer makes the journal's record longer, and the \
                inode that a checkpoint encodes. Then of the calling thread alone. The same from \
                run to run, but for the background threads.",
        answers: "None: the published figures are times.",
        aims: "",
        baseline: "Shoal, off",
        measures: instructions,
        rounds_max: 1,
        figures: &[
            less(Kind::Bars, "instructions", 1.0, "instructions each, of all threads"),
            less(Kind::Bars, "call_instructions", 1.0, "instructions each, of the calling thread"),
        ],
    },
    Experiment {
        id: "inode-index",
        chapter: Chapter::Index,
        title: "Structures that find an inode by its number",
        shows: "Dense inode numbers inserted into the XArray and into what else could do it, then \
                looked up at random, by one thread, and beside one that writes. The mean is of a \
                pass without a clock; the percentiles are of a pass that times each call, less the \
                time of the clock.",
        answers: "btrfs, on moving its open inodes from a red-black tree to an xarray: a mean of \
                  272 ns an insert instead of 776 ns, a 99th percentile of 572 ns instead of \
                  1,397 ns (\"btrfs: use an xarray to track open inodes in a root\").",
        aims: "",
        baseline: "rbtree",
        measures: inode_index,
        rounds_max: 3,
        figures: &[
            NANOSECONDS,
            Figure { value: "median_ns", axis: "ns, median", ..NANOSECONDS },
            Figure { value: "p99_ns", axis: "ns, 99th percentile", ..NANOSECONDS },
            Figure { value: "stddev_ns", axis: "ns, standard deviation", ..NANOSECONDS },
            Figure { kind: Kind::Histogram, value: "histogram", axis: "ns", ..NANOSECONDS },
        ],
    },
    Experiment {
        id: "create-rounds",
        chapter: Chapter::Index,
        title: "Creates over five rounds",
        shows: "Empty files made by two threads in the pattern of fs_mark, five rounds in the \
                same directories, no sync: the rate by round.",
        answers: "btrfs, same change: fs_mark up to 19 % faster.",
        aims: "",
        baseline: "XFS",
        measures: create_rounds,
        rounds_max: u32::MAX,
        figures: &[Figure { kind: Kind::Curves, axis: "thousands of files a second", ..RATE }],
    },
    Experiment {
        id: "fs-mark",
        chapter: Chapter::Index,
        title: "fs_mark on mounts",
        shows: "The program fs_mark itself, two threads, empty files, no sync, five rounds: the \
                rate by the number of files that there are.",
        answers: "btrfs, same change: fs_mark up to 19 % faster.",
        aims: "Shoal's mount as fast as XFS.",
        baseline: "XFS",
        measures: fs_mark,
        rounds_max: 5,
        figures: &[Figure { kind: Kind::Curves, axis: "thousands of files a second", ..RATE }],
    },
    Experiment {
        id: "truncate",
        chapter: Chapter::Orphans,
        title: "Truncates byte by byte",
        shows: "Threads cut files from 4,096 bytes to nothing, a byte at a time. Shoal through \
                its library in three ways: a truncate is tracked only if it takes several steps \
                (needed, as it is), always by a slot of the table, or by a list under a mutex. \
                Few processors cannot show contention: compare with the next experiment.",
        answers: "ext4, on publication of the orphan file: 128 threads took 160 s through one list \
                  under a mutex, 71 s through slots of the orphan file, as without any tracking.",
        aims: "",
        baseline: "ext4",
        measures: truncate,
        rounds_max: u32::MAX,
        figures: &[Figure { kind: Kind::Curves, axis: "thousands of truncates a second", ..RATE }],
    },
    Experiment {
        id: "shared-lines",
        chapter: Chapter::Orphans,
        title: "Cache lines that move between two truncates",
        shows: "Two threads take turns; every access of theirs is traced, and played on two \
                caches. A line moves if a thread uses it after the other has written it, or \
                writes it after the other has read it. Each such move makes a call slower with \
                more processors, also where two are too few to show it in a time.",
        answers: "None: the change of ext4 was published with times.",
        aims: "The slots of the table move no line; the list under a mutex does.",
        baseline: "needed",
        measures: shared_lines,
        rounds_max: 1,
        figures: &[less(Kind::Bars, "moves", 1.0, "lines that move, for each call")],
    },
    Experiment {
        id: "calls",
        chapter: Chapter::Bulk,
        title: "The table of 2006",
        shows: "System calls that ask about, or change, one file at a time, by usual programs on a \
                mail server's tree with cold caches, and by the tools of Shoal on its mount: how \
                many for each file, and their share of the time of all calls that did not wait \
                for another process (strace -c -w).",
        answers: "The proposal of readdirplus for POSIX (HEC extensions, 2006), on 543,337 files: \
                  82 % of the time of the calls of ls -lR, 84 % of find, 93 % of chown -R, 62 % of \
                  an unchanged rsync, 82 % of an incremental tar.",
        aims: "",
        baseline: "XFS",
        measures: calls,
        rounds_max: 3,
        figures: &[
            less(Kind::Bars, "single_calls_per_file", 1.0, "calls about one file, for each file"),
            less(Kind::Bars, "single_percent_unwaited", 1.0, "% of the time of all calls"),
        ],
    },
    Experiment {
        id: "trees",
        chapter: Chapter::Bulk,
        title: "Walks of a tree",
        shows: "The same programs without strace, and parallel ones where they are installed, with \
                cold and warm caches, and the tools of Shoal on its mount. Cold means that the \
                kernel's caches were dropped: the cache of Shoal's server stays, as it is the \
                memory of a process (scripts/trees.sh mounts it anew).",
        answers: "The same proposal; it has no times of an implementation.",
        aims: "Tools of Shoal on the mount against the usual ones on XFS: ls -lR 10 ×, find 5 ×, \
               du 100 ×, chown -R and chmod -R 10 ×. Unmodified find, du, rsync and tar on a cold \
               mount: 1.5 ×.",
        baseline: "XFS",
        measures: trees,
        rounds_max: 5,
        figures: &[less(Kind::Bars, "seconds", 1e3, "ms")],
    },
    Experiment {
        id: "listing",
        chapter: Chapter::Bulk,
        title: "Listing with attributes",
        shows: "A tree listed with all attributes, warm, by two threads: readdirplus in the \
                library, readdir and statx elsewhere; and the attributes of each file by its path.",
        answers: "The same proposal, which gives no rate.",
        aims: "The library: 10 million entries a second with one thread, 18 million with two.",
        baseline: "XFS",
        measures: listing,
        rounds_max: u32::MAX,
        figures: &[RATE],
    },
    Experiment {
        id: "scans",
        chapter: Chapter::Bulk,
        title: "All inodes of a volume",
        shows: "Attributes of all inodes in the order of their numbers, and totals of the whole \
                volume without a walk, in the library, by threads.",
        answers: "XFS's bulkstat: 28.5 million inodes a second with 40 threads.",
        aims: "20 million inodes a second.",
        baseline: "Shoal, library",
        measures: scans,
        rounds_max: u32::MAX,
        figures: &[Figure { scale: 1e-6, axis: "millions of inodes a second", ..RATE }],
    },
];

const NANOSECONDS: Figure = less(Kind::Bars, "mean_ns", 1.0, "ns a call, mean");

fn parents(size: Size) -> Vec<Measure> {
    let files = size.of([2000, 30_000, 200_000]);
    let labels = Labels::Settings("parents", "workload");
    let shoal = study("", format!("parents --files {files} --rounds 2"));
    let mut all = vec![Measure { labels, ..shoal }];
    let files = size.of([1000, 8_000, 50_000]);
    for word in ["create", "rename", "unlink"] {
        for system in [System::Xfs, System::XfsParent] {
            all.push(bench(system, word, format!("{word} --files {files}")));
        }
    }
    all
}

fn instructions(size: Size) -> Vec<Measure> {
    let files = size.of([200, 1000, 10_000]);
    let program = Program::Instructions;
    let labels = Labels::Settings("parents", "workload");
    vec![Measure { program, labels, ..study("", format!("--files {files}")) }]
}

fn inode_index(size: Size) -> Vec<Measure> {
    let entries = size.of([50_000, 100_000, 5_000_000]);
    let labels = Labels::Fields("structure", "operation");
    let study = study("", format!("inode-index --entries {entries}"));
    vec![Measure { system: System::Memory, labels, ..study }]
}

fn create_rounds(size: Size) -> Vec<Measure> {
    let files = size.of([1000, 3_000, 15_000]);
    let of = |system| {
        let files = files_of(system, files);
        let args = format!("create --threads 2 --files {files} --rounds 5");
        Measure { labels: Labels::Rounds, ..bench(system, "", args) }
    };
    BESIDE.into_iter().map(of).collect()
}

fn fs_mark(size: Size) -> Vec<Measure> {
    let args = format!("fs-mark --files {}", size.of([500, 2500, 20_000]));
    let systems = [System::Mount, System::Xfs, System::Ext4, System::Btrfs, System::Tmpfs];
    systems.into_iter().map(|system| tools(system, args.clone())).collect()
}

fn truncate(size: Size) -> Vec<Measure> {
    let cuts = size.of([1 << 14, 1 << 15, 1 << 17]);
    let threads: &[u32] = match size {
        Size::Smoke => &[1, 2],
        Size::Quick => &[1, 2, 16],
        Size::Full => &[1, 2, 8, 32, 128],
    };
    let mut all = Vec::new();
    for count in threads {
        let labels = Labels::Settings("tracking", "threads");
        let args = format!("--threads {count} --cuts {} --rounds 2", 4 * cuts);
        all.push(Measure { labels, ..study("", format!("truncate-tracking {args}")) });
        let args = format!("--threads {count} --cuts {cuts} --rounds 2");
        for system in [System::Ext4, System::Ext4Orphan, System::Xfs, System::Tmpfs] {
            all.push(bench(system, &count.to_string(), format!("truncate {args}")));
        }
    }
    all
}

fn shared_lines(size: Size) -> Vec<Measure> {
    if size == Size::Smoke {
        // One of the tests; it tries volumes until one has no rare events, which may take minutes.
        return Vec::new();
    }
    // With the features of all crates, as the tests are built: nothing is built again.
    let args = "test --quiet --workspace --test shared_lines -- --nocapture".to_owned();
    let labels = Labels::Fields("tracking", "call");
    let of = bench(System::Memory, "", args);
    vec![Measure { program: Program::Cargo, labels, ..of }]
}

/// The filesystems on which unmodified programs are measured.
const MOUNTED: [System; 5] =
    [System::Mount, System::Xfs, System::XfsParent, System::Ext4, System::Btrfs];

fn calls(size: Size) -> Vec<Measure> {
    let args = format!("calls --files {}", size.of([300, 1000, 10_000]));
    let systems = [System::Mount, System::Xfs, System::Ext4, System::Btrfs];
    systems.map(|system| tools(system, args.clone())).into()
}

fn trees(size: Size) -> Vec<Measure> {
    let args = format!("trees --files {}", size.of([300, 2_000, 25_000]));
    MOUNTED.into_iter().map(|system| tools(system, args.clone())).collect()
}

fn listing(size: Size) -> Vec<Measure> {
    repeated(&["readdirplus", "stat"], size.of([1000, 5_000, 50_000]), size.of([2, 10, 20]))
}

fn scans(size: Size) -> Vec<Measure> {
    let files = size.of([2000, 200_000, 1_000_000]);
    let of = |(word, threads): (&str, u64)| {
        let args = format!("{word} --threads {threads} --files {}", files / threads);
        bench(System::Library, &format!("{word}, threads: {threads}"), args)
    };
    [("bulkstat", 1), ("bulkstat", 2), ("totals", 1), ("totals", 2)].map(of).into()
}
