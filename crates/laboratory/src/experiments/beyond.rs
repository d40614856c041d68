//! Experiments about the whole filesystem.

use super::{
    BESIDE, Chapter, Experiment, Figure, Kind, Labels, Measure, PROCESSOR, Program, RATE, bench,
    each, files_of, less, more, repeated, study, tools,
};
use crate::plan::Size;
use crate::systems::System;

/// In the order of the report.
pub(super) const ALL: &[Experiment] = &[
    Experiment {
        id: "names",
        title: "Creates, renames and removals",
        shows: "Two threads make empty files, give each another name, remove all. Processor time \
                is that of the program, and for creates that of Shoal's server; that of the \
                kernel's own threads is not counted.",
        aims: "The library: 2 million creates and 2 million removals a second.",
        measures: names,
        figures: &[RATE, PROCESSOR],
        ..OURS
    },
    Experiment {
        id: "small-files",
        title: "Files of 4 KiB",
        shows: "Two threads make files of 4 KiB (create, write), and read them (look up, open, \
                read), from warm caches.",
        measures: small_files,
        figures: &[RATE, PROCESSOR],
        ..OURS
    },
    Experiment {
        id: "programs",
        title: "Programs on real files",
        shows: "Unmodified programs, one after the other, on real files of this machine (headers, \
                Python, documents, Perl): extracted, copied, cloned, listed, compared, removed; a \
                script and fs_mark with files of 1,000 bytes, fs_mark also beside a program that \
                computes on each processor. The default mount, and filesystems of the kernel.",
        aims: "The default mount has these parts of the speed of XFS: 0.5 of tar -x, Python and \
               ls -lR, 0.6 of git clone, 0.7 of rsync, 0.8 of stat, 0.75 of fs_mark.",
        measures: programs,
        figures: &[less(Kind::Bars, "seconds", 1e3, "ms")],
        ..OURS
    },
    Experiment {
        id: "phases",
        title: "Phases of mdtest",
        shows: "What mdtest does on parallel filesystems, by two threads in trees of their own: \
                directories made, looked at, renamed and removed, then files of 3,901 bytes made, \
                looked at, read and removed, by their paths and with warm caches. Making and \
                removing the trees themselves, of 80 directories, is too short to say anything.",
        measures: phases,
        figures: &[RATE],
        ..OURS
    },
    Experiment {
        id: "source-tree",
        title: "Tar of a source tree",
        shows: "An archive of a tree of source-like files is extracted by tar, read again by tar, \
                and removed by rm -rf.",
        measures: source_tree,
        figures: &[Figure { axis: "thousands of files a second", ..RATE }],
        ..OURS
    },
    Experiment {
        id: "remove-tree",
        title: "Removing a tree",
        shows: "A tree made by two threads is removed: as one call in the library, as rm -rf does \
                it elsewhere. The rate is that of the time \
                until the space is free again.",
        aims: "Gone from the namespace within 10 ms.",
        measures: remove_tree,
        figures: &[RATE, less(Kind::Bars, "gone_seconds", 1e3, "ms until the tree is gone")],
        ..OURS
    },
    Experiment {
        id: "latency",
        title: "Latency of creates",
        shows: "Each of the creates of two threads timed, while checkpoints and journals are \
                written behind them.",
        aims: "The library: a 99th percentile of 10 µs, 99.9 % within 0.5 ms, all within 20 ms.",
        measures: latency,
        figures: &[less(Kind::Percentiles, "latency_ns", 1e-3, "µs")],
        ..OURS
    },
    Experiment {
        id: "embedded",
        title: "A create in embedded databases",
        shows: "A directory entry, its reverse entry, an inode's row and the directory's row \
                changed as one transaction, or as one of a thousand in a transaction, by one \
                thread, not synced: microseconds of processor time for each file, of all threads \
                of the process. Shoal by its library, in single calls and in batches.",
        answers: "Ours: the design has 0.9 µs for LMDB, 1.4 µs for redb and 1.8 µs for SQLite in \
                  batches of 1,000, of a sketch with two puts.",
        aims: "1 µs a create.",
        baseline: "sqlite",
        measures: embedded,
        figures: &[PROCESSOR, RATE],
        ..OURS
    },
    Experiment {
        id: "many",
        title: "Millions of files",
        shows: "Files made by two threads in one go, in memory: the rate by the million.",
        aims: "The rate of the last million at least 0.85 of that of the first.",
        baseline: "Shoal, library",
        measures: many,
        rounds_max: 5,
        figures: &[MILLIONS],
        ..OURS
    },
    Experiment {
        id: "hundred-million",
        title: "A hundred million files",
        shows: "Files made by two threads in one go, with 2 GiB of cache, in a volume on a disk: \
                the rate by the million, and the resident memory.",
        answers: "Ours: 100 million files in 110 s on two processors.",
        aims: "1 million a second, 2.4 GB of memory.",
        baseline: "Shoal, library",
        measures: hundred_million,
        rounds_max: 1,
        figures: &[
            MILLIONS,
            less(Kind::Bars, "rss_bytes", 1e-9, "GB of memory that the process gained"),
            less(Kind::Bars, "volume_bytes_each", 1.0, "bytes of the volume for each file"),
        ],
        ..OURS
    },
    Experiment {
        id: "ageing",
        title: "Ageing",
        shows: "A random half of all files removed and made anew, round after round: the rate of \
                creates by round.",
        answers: "Ours: the rate of an aged volume stays that of a new one.",
        baseline: "Shoal, library",
        measures: ageing,
        rounds_max: 5,
        figures: &[
            more(Kind::Curves, "creates_per_second", 1e-3, "thousands of creates a second"),
            less(Kind::Curves, "create_bytes", 1.0, "bytes written for each create"),
        ],
        ..OURS
    },
    Experiment {
        id: "full-disk",
        title: "A full disk",
        shows: "A filesystem of 1 GiB filled with files of 64 KiB, by an ordinary user where the \
                mount lets him: the part of the free space of statvfs that could be written, the \
                time of a refused write, and the time in which all is removed and the space is \
                free again.",
        aims: "98 % can be written, a refusal takes 50 µs.",
        measures: full_disk,
        rounds_max: 5,
        figures: &[
            more(Kind::Bars, "usable_percent", 1.0, "% of the free space"),
            less(Kind::Bars, "refused_us_median", 1.0, "µs for a refused write"),
            less(
                Kind::Bars,
                "removed_and_freed_seconds",
                1e3,
                "ms until all is removed and the space is free",
            ),
        ],
        ..OURS
    },
    Experiment {
        id: "recovery",
        title: "Recovery by length of the journal",
        shows: "Files made and none of them in a checkpoint, the volume dropped as a crash would, \
                opened again: the time by the number of files.",
        answers: "Ours: bounded, as a checkpoint is requested when the journal grows.",
        aims: "A million creates in 1 s.",
        baseline: "Shoal, library",
        measures: recovery,
        rounds_max: 5,
        figures: &[less(Kind::Curves, "recovery_seconds", 1e3, "ms to open the volume")],
        ..OURS
    },
    Experiment {
        id: "checkpoint",
        title: "A checkpoint with one new file",
        shows: "Checkpoints of a volume with one new file, beside all others in the cache: the \
                median of 201 by the number of files.",
        answers: "Ours: a checkpoint visits what has changed, not what is cached.",
        aims: "1 ms.",
        baseline: "Shoal, library",
        measures: checkpoint,
        rounds_max: 5,
        figures: &[less(Kind::Curves, "checkpoint_seconds_median", 1e6, "µs a checkpoint")],
        ..OURS
    },
];

/// An experiment of this chapter, to begin from.
const OURS: Experiment = Experiment {
    id: "",
    chapter: Chapter::Beyond,
    title: "",
    shows: "",
    answers: "None: an aim of ours.",
    aims: "",
    baseline: "XFS",
    measures: names,
    rounds_max: u32::MAX,
    figures: &[],
};

const MILLIONS: Figure =
    more(Kind::Millions, "rate_per_million", 1e-6, "millions of files a second");

fn names(size: Size) -> Vec<Measure> {
    each(&["create", "rename", "unlink"], size.of([1000, 5_000, 30_000]))
}

fn small_files(size: Size) -> Vec<Measure> {
    let files = size.of([1000, 4_000, 20_000]);
    let mut all = each(&["write-small"], files);
    all.extend(repeated(&["read-small"], files, size.of([2, 5, 10])));
    all
}

/// All that are mounted.
fn on_mounts(args: &str) -> Vec<Measure> {
    let mounted = BESIDE.into_iter().filter(|system| *system != System::Library);
    mounted.map(|system| tools(system, args.to_owned())).collect()
}

fn programs(size: Size) -> Vec<Measure> {
    let args = format!("programs --files {}", size.of([100, 3_000, 20_000]));
    let systems = [System::Default, System::Tmpfs, System::Xfs, System::Ext4];
    systems.map(|system| tools(system, args.clone())).into()
}

fn phases(size: Size) -> Vec<Measure> {
    on_mounts(&format!("phases --files {}", size.of([200, 3_000, 20_000])))
}

fn source_tree(size: Size) -> Vec<Measure> {
    on_mounts(&format!("source-tree --files {}", size.of([200, 3000, 20_000])))
}

fn remove_tree(size: Size) -> Vec<Measure> {
    let all = each(&["remove-tree"], size.of([1000, 5_000, 50_000]));
    all.into_iter().filter(|measure| measure.system != System::Session).collect()
}

fn latency(size: Size) -> Vec<Measure> {
    let files = size.of([1000, 10_000, 60_000]);
    let of = |system| {
        let files = files_of(system, files);
        bench(system, "create", format!("create --threads 2 --files {files} --sample 1"))
    };
    BESIDE.into_iter().map(of).collect()
}

fn embedded(size: Size) -> Vec<Measure> {
    let files = size.of([1000, 20_000, 150_000]);
    let mut all = Vec::new();
    for engine in ["shoal", "sqlite", "redb", "fjall", "lmdb"] {
        for batch in [1, 1000] {
            let args = format!("create --engine {engine} --files {files} --batch {batch}");
            let labels = Labels::Fields("engine", "batch");
            let of = bench(System::Memory, "", args);
            all.push(Measure { program: Program::Peers, labels, ..of });
        }
    }
    all
}

fn many(size: Size) -> Vec<Measure> {
    let files = size.of([600_000, 2_000_000, 8_000_000]);
    let args = format!("create --threads 2 --files {files} --sample 1024");
    vec![bench(System::Library, "create", args)]
}

fn hundred_million(size: Size) -> Vec<Measure> {
    let files = size.of([600_000, 2_500_000, 50_000_000]);
    let args = format!(
        "create --threads 2 --files {files} --dirs 50000 --cache 2G --size 60G --sample 1024"
    );
    vec![Measure { on_disk: true, ..bench(System::Library, "create", args) }]
}

fn ageing(size: Size) -> Vec<Measure> {
    let files = size.of([2000, 20_000, 300_000]);
    let rounds = size.of([2, 10, 20]);
    let args = format!("age --threads 2 --files {files} --rounds {rounds}");
    vec![Measure { labels: Labels::Rounds, ..bench(System::Library, "", args) }]
}

fn full_disk(size: Size) -> Vec<Measure> {
    let bytes = size.of([512 << 20, 512 << 20, 1 << 30]);
    let systems = [System::Mount, System::Xfs, System::Ext4, System::Btrfs];
    let of = |system| Measure { size: Some(bytes), ..tools(system, "full-disk".to_owned()) };
    systems.map(of).into()
}

fn recovery(size: Size) -> Vec<Measure> {
    by_files(size, Program::Bench, "recover")
}

fn checkpoint(size: Size) -> Vec<Measure> {
    by_files(size, Program::Studies, "checkpoint")
}

/// A workload of the library with more and more files.
fn by_files(size: Size, program: Program, word: &str) -> Vec<Measure> {
    let counts: &[u64] = match size {
        Size::Smoke => &[1000, 2000],
        Size::Quick => &[10_000, 50_000, 200_000],
        Size::Full => &[10_000, 100_000, 1_000_000, 3_000_000],
    };
    let of = |files: &u64| Measure {
        program,
        ..study(&files.to_string(), format!("{word} --files {files}"))
    };
    counts.iter().map(of).collect()
}
