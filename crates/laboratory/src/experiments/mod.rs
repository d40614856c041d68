//! The experiments: the commands of each, its systems, and how its report shows it.
//!
//! [`works`] has those that repeat the measurements of the four published pieces of work that Shoal
//! is built on, [`beyond`] those about the whole filesystem.

mod beyond;
mod works;

use crate::plan::Size;
use crate::systems::System;
use std::sync::LazyLock;

/// A part of the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Chapter {
    Parents,
    Index,
    Orphans,
    Bulk,
    Beyond,
}

impl Chapter {
    pub(crate) const ALL: [Chapter; 5] =
        [Chapter::Parents, Chapter::Index, Chapter::Orphans, Chapter::Bulk, Chapter::Beyond];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Chapter::Parents => "Every file knows its paths",
            Chapter::Index => "Inodes in memory",
            Chapter::Orphans => "Files without a name, and truncates",
            Chapter::Bulk => "Ask once, answer in bulk",
            Chapter::Beyond => "The whole filesystem",
        }
    }
}

/// The program of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// `shoal bench`.
    Bench,
    /// `shoal-lab`, with the studies.
    Studies,
    /// `laboratory tools`: programs that people use, on a mounted directory.
    Tools,
    /// `laboratory instructions`: `shoal-lab` under valgrind.
    Instructions,
    /// `shoal-peers`: embedded databases that do what a create does.
    Peers,
    /// `cargo`, with a test that counts.
    Cargo,
}

/// Names of what a program's lines are about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Labels {
    /// The last line is the result, of the system and the case.
    Whole,
    /// Each line is a result: of Shoal in the setting that the first field names, in the case that
    /// the second names.
    Settings(&'static str, &'static str),
    /// Each line is a result, of the system that the first field names, in the case that the second
    /// names.
    Fields(&'static str, &'static str),
    /// Each line of a round is a result; its case is the number of the round.
    Rounds,
    /// Each line is a result, of the case that it names; with the tools of Shoal if it says so.
    Cases,
}

/// One command on one system.
#[derive(Debug)]
pub(crate) struct Measure {
    pub system: System,
    pub case: String,
    pub program: Program,
    /// Its arguments but the target, separated by spaces.
    pub args: String,
    pub labels: Labels,
    /// Bytes of the filesystem's image, if not those of the run.
    pub size: Option<u64>,
    /// The image is too large for memory: it lies on a disk.
    pub on_disk: bool,
}

/// How a figure is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A group of bars for each case, a bar for each system.
    Bars,
    /// A line for each system over the cases, which are numbers.
    Curves,
    /// A line for each system over the percentiles of the latency, on a logarithmic axis.
    Percentiles,
    /// A line for each system over the millions of files made so far.
    Millions,
    /// Shares of calls by their duration, a line for each system: arrays of the lower bound, the
    /// upper bound and the number of calls.
    Histogram,
}

/// A figure and its table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub kind: Kind,
    /// Name of the number in the result.
    pub value: &'static str,
    /// Factor from the result's unit to the shown one.
    pub scale: f64,
    /// Title of the axis.
    pub axis: &'static str,
    pub better: Better,
}

/// The better direction of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Better {
    More,
    Less,
}

impl Better {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Better::More => "more",
            Better::Less => "less",
        }
    }
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experiment {
    pub id: &'static str,
    pub chapter: Chapter,
    pub title: &'static str,
    /// A sentence: what is done and shown.
    pub shows: &'static str,
    /// The published number that it answers, or why there is none.
    pub answers: &'static str,
    /// Aims of the project, those that were reached and those that were missed; may be empty.
    pub aims: &'static str,
    /// The system or setting that others are compared with.
    pub baseline: &'static str,
    pub measures: fn(Size) -> Vec<Measure>,
    /// Most rounds that it is worth.
    pub rounds_max: u32,
    pub figures: &'static [Figure],
}

/// All of them, in the order of the report.
pub(crate) static ALL: LazyLock<Vec<Experiment>> = LazyLock::new(|| {
    let mut all: Vec<Experiment> = works::ALL.iter().chain(beyond::ALL).copied().collect();
    all.sort_by_key(|it| it.chapter);
    all
});

/// A figure of which more is better.
const fn more(kind: Kind, value: &'static str, scale: f64, axis: &'static str) -> Figure {
    Figure { kind, value, scale, axis, better: Better::More }
}

/// A figure of which less is better.
const fn less(kind: Kind, value: &'static str, scale: f64, axis: &'static str) -> Figure {
    Figure { kind, value, scale, axis, better: Better::Less }
}

const RATE: Figure = more(Kind::Bars, "ops_per_second", 1e-3, "thousands a second");
const PROCESSOR: Figure = less(Kind::Bars, "cpu_us", 1.0, "µs of processor time each");

/// Systems of the kernel that a mount is compared with, after Shoal's own.
const BESIDE: [System; 7] = [
    System::Library,
    System::Mount,
    System::Tmpfs,
    System::Xfs,
    System::XfsParent,
    System::Ext4,
    System::Btrfs,
];

/// A workload of `shoal bench` that is one result.
fn bench(system: System, case: &str, args: String) -> Measure {
    Measure {
        system,
        case: case.to_owned(),
        program: Program::Bench,
        args,
        labels: Labels::Whole,
        size: None,
        on_disk: false,
    }
}

/// A study of `shoal-lab`.
fn study(case: &str, args: String) -> Measure {
    Measure { program: Program::Studies, ..bench(System::Library, case, args) }
}

/// A workload of `laboratory tools`, whose lines name their cases.
fn tools(system: System, args: String) -> Measure {
    Measure { program: Program::Tools, labels: Labels::Cases, ..bench(system, "", args) }
}

/// Files of the library for each of another system: its calls take a tenth of the time, and a
/// sample of some milliseconds says nothing.
const LIBRARY_MORE: u64 = 10;

/// Files for a system, where others have `files`.
fn files_of(system: System, files: u64) -> u64 {
    files * if system == System::Library { LIBRARY_MORE } else { 1 }
}

/// The same, and Shoal by sessions.
fn with_sessions() -> impl Iterator<Item = System> + Clone {
    BESIDE
        .into_iter()
        .flat_map(|system| match system {
            System::Library => [Some(system), Some(System::Session)],
            _ => [Some(system), None],
        })
        .flatten()
}

/// Each of the workloads on each of the systems, with as many files for each of two threads.
fn each(workloads: &[&str], files: u64) -> Vec<Measure> {
    let pairs =
        workloads.iter().flat_map(|word| with_sessions().map(move |system| (system, *word)));
    let of = |(system, word)| {
        let files = files_of(system, files);
        bench(system, word, format!("{word} --threads 2 --files {files}"))
    };
    pairs.map(of).collect()
}

/// Each of the workloads on each of the systems, over the same files again and again: a single pass
/// over files in a cache takes milliseconds.
fn repeated(workloads: &[&str], files: u64, passes: u64) -> Vec<Measure> {
    let pairs =
        workloads.iter().flat_map(|word| with_sessions().map(move |system| (system, *word)));
    let of = |(system, word)| {
        let args = format!("{word} --threads 2 --files {files} --rounds {passes}");
        bench(system, word, args)
    };
    pairs.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::describe;
    use std::collections::HashSet;

    #[test]
    fn every_experiment_has_a_name_of_its_own_and_distinct_measures() {
        let ids: HashSet<&str> = ALL.iter().map(|it| it.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for it in ALL.iter() {
            for size in [Size::Smoke, Size::Quick, Size::Full] {
                let measures = (it.measures)(size);
                let names: HashSet<String> = measures.iter().map(describe).collect();
                // The raw file tells them apart by this text alone.
                assert_eq!(names.len(), measures.len(), "{}", it.id);
                assert!(size == Size::Smoke || !names.is_empty(), "{}", it.id);
                assert!(it.rounds_max > 0 && !it.figures.is_empty(), "{}", it.id);
            }
            assert!(it.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", it.id);
        }
    }

    #[test]
    fn chapters_are_not_empty() {
        for chapter in Chapter::ALL {
            assert!(ALL.iter().any(|it| it.chapter == chapter), "{}", chapter.title());
        }
    }
}
