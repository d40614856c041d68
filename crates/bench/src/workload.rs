//! The workloads, written once for every target, and the phases they run in.
//!
//! A round is: set-up (not timed) → settle → the timed phase → settle. Settling before makes the
//! counters start from a quiet volume; settling after charges the workload with everything that it
//! made necessary, in bytes (`journal_bytes`, `checkpoint_bytes`) and as `settle_seconds`.

use crate::args::{Args, SMALL, Workload};
use crate::driver::{Driver, Target, Usage};
use crate::error::{BenchError, Result};
use crate::layout::{self, FilePath, Layout, Name};
use crate::meter::{Measured, Meter};
use crate::report::{Report, Results};
use crate::resources;
use std::ffi::{CStr, CString};
use std::sync::Barrier;
use std::time::Instant;

/// Generations among which the files of an earlier run are looked for.
const GENERATIONS: u32 = 1000;

/// One thread's share of a workload.
pub(crate) struct Share {
    /// Number of the thread.
    pub thread: usize,
    /// Layout of its files.
    pub layout: Layout,
    /// Which set of names.
    pub generation: u32,
}

/// Runs all rounds and reports each, and the whole.
pub(crate) fn run_rounds<T: Target>(args: &Args, target: &T, report: &mut Report) -> Result<()> {
    let base = first_generation(args, target)?;
    make_directories(args, target)?;
    let mut whole = Results::new(Measured::empty());
    for round in 0..args.rounds {
        let generation = prepare_round(args, target, base, round)?;
        let results = measure_round(args, target, generation)?;
        if args.rounds > 1 {
            report.round(round, &results)?;
        }
        whole.add(&results);
    }
    report.whole(&whole)
}

/// The newest generation whose first file is there, for a volume that is reused.
fn first_generation<T: Target>(args: &Args, target: &T) -> Result<Option<u32>> {
    if !target.reused() {
        return Ok(None);
    }
    let layout = Layout::new(args);
    let mut driver = target.driver()?;
    let mut path = FilePath::new(0);
    let mut newest = None;
    // An earlier rename has left gaps, so there is no stopping at the first.
    for generation in 0..GENERATIONS {
        if driver.stat(path.of(&layout, 0, generation)?)? {
            newest = Some(generation);
        }
    }
    Ok(newest)
}

/// Makes what the round needs and is not there; returns the generation it works on.
fn prepare_round<T: Target>(
    args: &Args,
    target: &T,
    found: Option<u32>,
    round: u32,
) -> Result<u32> {
    let small = args.workload.file_size() > 0;
    match args.workload {
        Workload::Create
        | Workload::CreateSync
        | Workload::WriteSmall
        | Workload::Append
        | Workload::OpenUnlink => {
            return Ok(found.map_or(0, |newest| newest + 1) + round);
        }
        Workload::ReadRandom if round == 0 && found.is_none() => {
            let args = &Args { block_bytes: args.block_bytes.max(1 << 17), ..args.clone() };
            run_phase(args, target, 0, |d, s, m| append(args, d, s, m))?;
        }
        Workload::Rename if round > 0 => return Ok(found.unwrap_or(0) + round),
        // The files that were found go in the first round; the same names are made again.
        Workload::Unlink if found.is_none() || round > 0 => {
            make_files(args, target, found.unwrap_or(0), small)?;
        }
        _ if round == 0 && found.is_none() => make_files(args, target, 0, small)?,
        _ => {}
    }
    let generation = found.unwrap_or(0);
    // One pass that is not timed, so that what is measured is warm also on a volume just opened.
    match args.workload {
        Workload::Stat | Workload::Readdirplus if round == 0 => {
            run_phase(args, target, generation, |d, s, m| timed(args, d, s, m))?;
        }
        _ => {}
    }
    Ok(generation)
}

/// Runs the timed phase of a round between two settlings.
pub(crate) fn measure_round<T: Target>(
    args: &Args,
    target: &T,
    generation: u32,
) -> Result<Results> {
    measure(target, || run_phase(args, target, generation, |d, s, m| timed(args, d, s, m)))
}

/// Runs a phase between two settlings.
pub(crate) fn measure<T: Target>(
    target: &T,
    phase: impl FnOnce() -> Result<Measured>,
) -> Result<Results> {
    target.settle()?;
    let before = (target.usage(), resources::resident_bytes());
    let measured = phase()?;
    let resident = resources::resident_bytes();
    let settling = Instant::now();
    target.settle()?;
    let mut results = Results::new(measured);
    results.settle_seconds = settling.elapsed().as_secs_f64();
    results.grow(before.0, target.usage());
    if target.usage().is_some() {
        results.rss_bytes = Some(resident as i64 - before.1 as i64);
    }
    Ok(results)
}

/// Runs `work` on all threads at once and measures from the moment all are ready to the last one's
/// end.
pub(crate) fn run_phase<T: Target>(
    args: &Args,
    target: &T,
    generation: u32,
    work: impl Fn(&mut T::Driver, &Share, &mut Meter) -> Result<()> + Sync,
) -> Result<Measured> {
    // Handles are made here: a failure between the barriers would leave the others waiting.
    let handles = (0..args.threads).map(|_| target.driver()).collect::<Result<Vec<_>>>()?;
    let (ready, go) = (Barrier::new(args.threads + 1), Barrier::new(args.threads + 1));
    let layout = Layout::new(args);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (thread, mut driver) in handles.into_iter().enumerate() {
            let (ready, go, work) = (&ready, &go, &work);
            running.push(scope.spawn(move || {
                let share = Share { thread, layout, generation };
                let mut meter = Meter::new(args.sample);
                ready.wait();
                go.wait();
                let result = work(&mut driver, &share, &mut meter);
                (result.map(|()| meter), Instant::now())
            }));
        }
        ready.wait();
        let cpu = resources::cpu_seconds();
        let start = Instant::now();
        go.wait();
        let mut end = start;
        let mut meters = Vec::new();
        for thread in running {
            let (result, ended) = thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            meters.push(result?);
            end = end.max(ended);
        }
        Ok(Measured::of_phase(&meters, start, end, resources::cpu_seconds() - cpu))
    })
}

/// Makes every thread's directories, where an earlier run has not.
pub(crate) fn make_directories<T: Target>(args: &Args, target: &T) -> Result<()> {
    let reused = target.reused();
    run_phase(args, target, 0, |driver, share, _| {
        let thread = share.thread;
        if share.layout.owner(thread) != thread {
            return Ok(());
        }
        let below = (0..share.layout.dirs).map(|dir| layout::dir_path(thread, dir));
        for path in std::iter::once(layout::top_path(thread)).chain(below) {
            let path = path?;
            if !reused || !driver.stat(&path)? {
                driver.mkdir(&path)?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Makes every thread's files.
pub(crate) fn make_files<T: Target>(
    args: &Args,
    target: &T,
    generation: u32,
    small: bool,
) -> Result<()> {
    run_phase(args, target, generation, |driver, share, meter| match small {
        true => write_small(driver, share, meter),
        false => each_file(driver, share, |driver, dir, name, _| driver.create(dir, name, false)),
    })?;
    Ok(())
}

/// The timed part.
fn timed<D: Driver>(args: &Args, driver: &mut D, share: &Share, meter: &mut Meter) -> Result<()> {
    match args.workload {
        Workload::Create => each_file(driver, share, |driver, dir, name, _| {
            meter.op(|| driver.create(dir, name, false))
        }),
        Workload::CreateSync => each_file(driver, share, |driver, dir, name, _| {
            meter.op(|| driver.create(dir, name, true))
        }),
        Workload::Unlink => {
            each_file(driver, share, |driver, dir, name, _| meter.op(|| driver.unlink(dir, name)))
        }
        Workload::Rename => each_file(driver, share, |driver, dir, name, index| {
            let to = Name::new(share.thread, index, share.generation + 1);
            meter.op(|| driver.rename(dir, name, to.as_cstr()))
        }),
        Workload::WriteSmall => write_small(driver, share, meter),
        Workload::Append => append(args, driver, share, meter),
        Workload::ReadSmall => read_small(driver, share, meter),
        Workload::ReadRandom => read_random(args, driver, share, meter),
        Workload::Readdirplus => list_tree(driver, share, meter),
        Workload::Stat => stat_all(driver, share, meter, args.shuffle),
        Workload::OpenUnlink => open_unlink(driver, share, meter),
        // They have phases of their own.
        _ => Err(BenchError::new(format!("{} has no rounds", args.workload.name()))),
    }
}

/// Makes, removes and closes every file.
fn open_unlink<D: Driver>(driver: &mut D, share: &Share, meter: &mut Meter) -> Result<()> {
    each_file(driver, share, |driver, dir, name, _| {
        meter.op(|| {
            let file = driver.open_new(dir, name, b"")?;
            driver.unlink(dir, name)?;
            driver.close(file)
        })
    })
}

/// Calls `each(driver, directory, name, index)` for every file, opening a directory when its turn
/// comes.
pub(crate) fn each_file<D: Driver>(
    driver: &mut D,
    share: &Share,
    mut each: impl FnMut(&mut D, &D::Dir, &CStr, u64) -> Result<()>,
) -> Result<()> {
    let layout = &share.layout;
    let mut first = 0;
    while first < layout.files {
        let dir = driver
            .open_dir(&layout::dir_path(layout.owner(share.thread), layout.dir_of(first))?)?;
        let end = (first + layout.per_dir).min(layout.files);
        for index in first..end {
            let name = Name::new(share.thread, index, share.generation);
            each(driver, &dir, name.as_cstr(), index)?;
        }
        first = end;
    }
    Ok(())
}

/// Makes small files; each begins with a stamp of its own and continues with bytes that do not
/// compress.
fn write_small<D: Driver>(driver: &mut D, share: &Share, meter: &mut Meter) -> Result<()> {
    let mut data: Vec<u8> = (0..SMALL as u64 / 8).flat_map(|n| layout::stamp(99, n)).collect();
    each_file(driver, share, |driver, dir, name, index| {
        data[..8].copy_from_slice(&layout::stamp(share.thread, index));
        meter.op(|| driver.write_new(dir, name, &data))
    })
}

/// Writes files from their beginnings to their ends a block at a time, some of them in turns.
fn append<D: Driver>(args: &Args, driver: &mut D, share: &Share, meter: &mut Meter) -> Result<()> {
    let stamps = (0..args.block_bytes.div_ceil(8)).flat_map(|n| layout::stamp(99, n));
    let data: Vec<u8> = stamps.take(args.block_bytes as usize).collect();
    let mut open = Vec::new();
    each_file(driver, share, |driver, dir, name, index| {
        open.push(driver.open_new(dir, name, &[])?);
        if (open.len() as u64) < args.together && index + 1 < share.layout.files {
            return Ok(());
        }
        for at in (0..args.file_bytes).step_by(data.len()) {
            let len = data.len().min((args.file_bytes - at) as usize);
            open.iter()
                .try_for_each(|file| meter.op(|| driver.write_at(file, at, &data[..len])))?;
        }
        open.drain(..).try_for_each(|file| driver.close(file))
    })
}

/// Reads blocks of each file in a scattered order, and looks whether they are what was written.
fn read_random<D: Driver>(
    args: &Args,
    driver: &mut D,
    share: &Share,
    meter: &mut Meter,
) -> Result<()> {
    let (blocks, len) = (args.file_bytes / args.block_bytes, args.block_bytes as usize);
    // As `append` wrote them.
    let period = args.block_bytes.max(1 << 17).next_multiple_of(8);
    let mut data = vec![0; len];
    each_file(driver, share, |driver, dir, name, index| {
        let file = driver.open_file(dir, name)?;
        for n in 0..blocks {
            let block = layout::mix(index << 32 | n) % blocks.max(1);
            let at = block * args.block_bytes;
            let read = meter.op(|| driver.read_at(&file, at, &mut data))?;
            let first = layout::stamp(99, at % period / 8);
            if read != len || !at.is_multiple_of(8) || data[..8] != first {
                let why = format_args!("{read} bytes at {at} that are not what was written");
                return Err(BenchError::failed("reading", name.to_string_lossy(), why));
            }
        }
        driver.close(file)
    })
}

/// Reads small files and looks at their stamps: a fast wrong answer is no result.
fn read_small<D: Driver>(driver: &mut D, share: &Share, meter: &mut Meter) -> Result<()> {
    let mut data = vec![0; SMALL];
    each_file(driver, share, |driver, dir, name, index| {
        let len = meter.op(|| driver.read(dir, name, &mut data))?;
        if len != SMALL || data[..8] != layout::stamp(share.thread, index) {
            let why = format_args!("{len} bytes that are not what was written");
            return Err(BenchError::failed("reading", name.to_string_lossy(), why));
        }
        Ok(())
    })
}

/// Attributes of every file by its path.
pub(crate) fn stat_all<D: Driver>(
    driver: &mut D,
    share: &Share,
    meter: &mut Meter,
    shuffle: bool,
) -> Result<()> {
    let mut path = FilePath::new(share.thread);
    let stride = if shuffle { share.layout.stride() } else { 1 };
    let mut index = 0;
    for _ in 0..share.layout.files {
        let path = path.of(&share.layout, index, share.generation)?;
        if !meter.op(|| driver.stat(path))? {
            return Err(BenchError::failed(
                "stat",
                path.to_string_lossy(),
                "there is no such file",
            ));
        }
        index = (index + stride) % share.layout.files;
    }
    Ok(())
}

/// Lists the thread's whole tree, as `find -ls` would.
fn list_tree<D: Driver>(driver: &mut D, share: &Share, meter: &mut Meter) -> Result<()> {
    let mut todo = vec![layout::top_path(share.thread)?];
    let mut subdirs = Vec::new();
    let mut files = 0;
    while let Some(path) = todo.pop() {
        let entries = meter.bulk(|| driver.list(&path, &mut subdirs))?;
        files += entries - subdirs.len() as u64;
        for name in subdirs.drain(..) {
            todo.push(join(&path, &name)?);
        }
    }
    if files < share.layout.files {
        let why = format_args!("{files} files listed of {}", share.layout.files);
        let top = layout::top_path(share.thread)?;
        return Err(BenchError::failed("listing", top.to_string_lossy(), why));
    }
    Ok(())
}

fn join(dir: &CStr, name: &CStr) -> Result<CString> {
    let path = [dir.to_bytes(), b"/", name.to_bytes()].concat();
    CString::new(path).map_err(|e| BenchError::failed("path", dir.to_string_lossy(), e))
}

impl Results {
    /// Takes over what grew between two looks at a volume.
    pub(crate) fn grow(&mut self, before: Option<Usage>, after: Option<Usage>) {
        if let (Some(before), Some(after)) = (before, after) {
            self.volume_bytes = Some(after.volume_bytes as i64 - before.volume_bytes as i64);
            self.journal_bytes = Some(after.journal_bytes - before.journal_bytes);
            self.checkpoint_bytes = Some(after.checkpoint_bytes - before.checkpoint_bytes);
            self.data_bytes = Some(after.data_bytes - before.data_bytes);
        }
    }
}
