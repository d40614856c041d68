//! Calls on inodes that only the library has: a security label replaced, all paths of a file.

use crate::args::{Args, Workload};
use crate::driver::{Driver, Target};
use crate::error::{BenchError, Result};
use crate::layout::{self, Layout, Name};
use crate::library::{VolumeDriver, VolumeTarget};
use crate::meter::Meter;
use crate::report::{Report, Results};
use crate::workload::{Share, make_directories, run_phase};
use shoal::raw::{Ino, XattrFlags};
use std::path::Path;
use std::sync::Mutex;

/// Directories below each other between a thread's subdirectory and its files: with the top two, a
/// path of ten names.
const NESTED: usize = 7;

/// The attribute that is replaced, and two values of one length.
const LABEL: &[u8] = b"security.selinux";
const VALUES: [&[u8]; 2] =
    [b"system_u:object_r:user_home_t:s0", b"system_u:object_r:user_mail_t:s0"];

/// Sets up, runs the timed phase and reports it.
pub(crate) fn run(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    let target = VolumeTarget::prepare(args, path)?;
    make_directories(args, &target)?;
    let nested = if args.workload == Workload::Paths { NESTED } else { 0 };
    let inodes: Vec<Mutex<Vec<Ino>>> = (0..args.threads).map(|_| Mutex::default()).collect();
    let inodes = &inodes;
    run_phase(args, &target, 0, |driver, share, _| {
        *lock(&inodes[share.thread]) = make(driver, share, nested)?;
        Ok(())
    })?;
    let work = |driver: &mut VolumeDriver, share: &Share, meter: &mut Meter| {
        let inodes = lock(&inodes[share.thread]);
        match args.workload {
            Workload::Paths => paths(driver, share.layout, &inodes, meter),
            _ => labels(driver, &inodes, VALUES[1], meter),
        }
    };
    if args.workload == Workload::Setxattr {
        run_phase(args, &target, 0, |driver, share, meter| {
            labels(driver, &lock(&inodes[share.thread]), VALUES[0], meter)
        })?;
    }
    target.settle()?;
    let before = target.usage();
    let mut results = Results::new(run_phase(args, &target, 0, work)?);
    target.settle()?;
    results.grow(before, target.usage());
    report.whole(&results)?;
    target.finish()
}

fn lock(inodes: &Mutex<Vec<Ino>>) -> std::sync::MutexGuard<'_, Vec<Ino>> {
    inodes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cold]
fn failed(what: &str, ino: Ino, error: shoal::raw::Error) -> BenchError {
    BenchError::failed(what, ino, error)
}

/// Makes a thread's files, so many directories below its subdirectories; returns their inodes.
fn make(driver: &mut VolumeDriver, share: &Share, nested: usize) -> Result<Vec<Ino>> {
    let layout = &share.layout;
    let mut deepest = Vec::new();
    for dir in 0..layout.dirs {
        let mut at = driver.open_dir(&layout::dir_path(share.thread, dir)?)?;
        for _ in 0..nested {
            let made = driver.volume().namespace().mkdir(driver.who(), at, b"directory", 0o755);
            at = made.map_err(|e| failed("making directory in", at, e))?.ino;
        }
        deepest.push(at);
    }
    let mut inodes = Vec::with_capacity(layout.files as usize);
    for index in 0..layout.files {
        let (dir, name) =
            (deepest[layout.dir_of(index) as usize], Name::new(share.thread, index, 0));
        let made =
            driver.volume().namespace().create(driver.who(), dir, name.as_cstr().to_bytes(), 0o644);
        inodes.push(made.map_err(|e| failed("creating in", dir, e))?.ino);
    }
    Ok(inodes)
}

fn labels(driver: &VolumeDriver, inodes: &[Ino], value: &[u8], meter: &mut Meter) -> Result<()> {
    let (volume, who) = (driver.volume(), driver.who());
    inodes.iter().try_for_each(|ino| {
        let set = || volume.attributes().setxattr(who, *ino, LABEL, value, XattrFlags::default());
        meter.op(|| set().map_err(|e| failed("labelling inode", *ino, e)))
    })
}

fn paths(driver: &VolumeDriver, layout: Layout, inodes: &[Ino], meter: &mut Meter) -> Result<()> {
    let (stride, mut index) = (layout.stride() as usize, 0);
    for _ in inodes {
        let ino = inodes[index];
        let found = meter.op(|| {
            driver.volume().paths().paths_of(ino).map_err(|e| failed("paths of inode", ino, e))
        })?;
        let depth = |path: &Vec<u8>| path.iter().filter(|b| **b == b'/').count();
        if found.len() != 1 || depth(&found[0]) != NESTED + 3 {
            return Err(BenchError::failed("paths of inode", ino, format_args!("{found:?}")));
        }
        index = (index + stride) % inodes.len();
    }
    Ok(())
}
