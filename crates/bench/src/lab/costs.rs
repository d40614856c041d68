//! `costs`: calls against others that do less, on a volume in the memory of this process: creates
//! with a quota and without, opening by a token and by a path, a change of a whole tree.

use crate::error::BenchError;
use crate::resources::thread_cpu_seconds;
use shoal::raw::{
    Caller, Ino, MemDevice, MkfsOptions, OpenOptions, QuotaLimits, Result, TreeChange, TreeCheck,
    TreeStep, Volume, mkfs_on,
};
use shoal::{Credentials, Rights, Volume as Library};
use std::hint::black_box;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pairs of rounds with a quota and without, and files of each.
const PAIRS: usize = 41;
const FILES: usize = 50_000;
/// Directories above a file that is opened, and opens of a round.
const DEPTH: usize = 10;
const OPENS: u32 = 200_000;

/// Runs all of them, one after another.
pub(crate) fn run(out: &mut dyn Write) -> crate::error::Result<()> {
    quota(out).map_err(|e| BenchError::failed("measure", "quotas", e))?;
    tokens(out).map_err(|e| BenchError::failed("measure", "tokens", e))?;
    tree(out).map_err(|e| BenchError::failed("measure", "changes of trees", e))
}

fn say(out: &mut dyn Write, line: String) {
    // A reader that has gone ends no measurement.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn volume(bytes: u64, background: bool) -> Result<Volume> {
    let device = Arc::new(MemDevice::new(bytes));
    mkfs_on(device.clone(), &MkfsOptions::default())?;
    let options = OpenOptions { background, cache_bytes: 1 << 30, ..OpenOptions::default() };
    Volume::open_on(device, &options)
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Processor time of creates in a directory with a quota and in one without, in turns.
fn quota(out: &mut dyn Write) -> Result<()> {
    let volume = volume(1 << 30, false)?;
    let (who, names) = (Caller::root(), volume.namespace());
    let top = |name: &[u8]| -> Result<Ino> { Ok(names.mkdir(&who, Ino::ROOT, name, 0o755)?.ino) };
    let dirs: [Ino; 2] = [top(b"without")?, top(b"with---")?];
    let limits = QuotaLimits { bytes: Some(1 << 40), inodes: Some(1 << 40) };
    volume.quotas().set(&who, dirs[1], limits)?;
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..PAIRS {
        // Which one is first alternates.
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let name = format!("{round}");
            let dir = names.mkdir(&who, dirs[at], name.as_bytes(), 0o755)?.ino;
            let start = thread_cpu_seconds();
            for n in 0..FILES {
                names.create(&who, dir, format!("file {n}").as_bytes(), 0o644)?;
            }
            took[at].push((thread_cpu_seconds() - start) * 1e9 / FILES as f64);
            names.remove_tree(&who, dirs[at], name.as_bytes(), TreeCheck::Tree)?;
            volume.maintenance().checkpoint()?;
        }
    }
    let [none, with] = &mut took;
    let mut ratios: Vec<f64> =
        with.iter().zip(none.iter()).map(|(with, none)| with / none).collect();
    say(
        out,
        format!(
            "processor time of a create: without a quota {:.0} ns, with one {:.0} ns; median of \
             the ratios of {PAIRS} pairs {:.3}",
            median(none),
            median(with),
            median(&mut ratios)
        ),
    );
    Ok(())
}

/// Returns the nanoseconds of a call, in the fastest of five rounds.
fn fastest(mut call: impl FnMut() -> shoal::Result<()>) -> shoal::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..OPENS {
            call()?;
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(OPENS));
    }
    Ok(best)
}

/// Opening a file by a token, and by a path through many directories.
fn tokens(out: &mut dyn Write) -> shoal::Result<()> {
    let volume = Library::options().size(256 << 20).in_memory()?;
    let root = volume.root(Credentials::root());
    let mut path = String::new();
    for level in 0..DEPTH {
        path.push_str(&format!("directory-{level}/"));
        root.create_dir(&path)?;
        for n in 0..100 {
            root.write(format!("{path}file-{n}"), b"x")?;
        }
    }
    let file = format!("{path}file-50");
    let token = root.share(&file, Rights::READ, Duration::from_secs(3600))?;
    for (who, credentials) in
        [("root", Credentials::root()), ("a user", Credentials::user(1000, 1000))]
    {
        let dir = volume.root(credentials);
        let by_path = fastest(|| dir.open(&file).map(|file| drop(black_box(file))))?;
        let by_token = fastest(|| volume.open_token(&token).map(|file| drop(black_box(file))))?;
        say(
            out,
            format!(
                "open by {who}: path {by_path:.0} ns, token {by_token:.0} ns: {:.2} x",
                by_path / by_token
            ),
        );
    }
    Ok(())
}

/// A change of a hundred thousand files, all in memory.
fn tree(out: &mut dyn Write) -> Result<()> {
    let (volume, who) = (volume(2 << 30, true)?, Caller::root());
    for dir in 0..600 {
        let name = format!("dir{dir}");
        let dir = volume.namespace().mkdir(&who, Ino::ROOT, name.as_bytes(), 0o755)?.ino;
        for file in 0..168 {
            let name = format!("{}.host,S=10", 1_732_000_000 + file);
            volume.namespace().create(&who, dir, name.as_bytes(), 0o644)?;
        }
    }
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    for (round, threads) in [1, 1, 1, 2, 2, 2].into_iter().enumerate() {
        let id = Some(round as u32 + 1);
        let change = TreeChange { uid: id, gid: id, ..TreeChange::default() };
        let begun = Instant::now();
        let done = volume.tree_changes().change_tree(&who, Ino::ROOT, &change, threads, &none)?;
        let each = begun.elapsed().as_nanos() / u128::from(done.inodes.max(1));
        say(out, format!("change of a tree, {threads} threads: {each} ns a file"));
    }
    Ok(())
}
