//! The report of a run: a page of HTML, the same as Markdown with figures as files, and a table for
//! a README.
//!
//! It is made of the raw lines alone ([`grid`]), so the same lines give the same report. The
//! content is a list of blocks ([`page`]), which both forms are written from.

pub(crate) mod agreement;
mod bars;
mod canvas;
mod chart;
mod colour;
mod grid;
mod head;
mod html;
mod lines;
mod markdown;
mod page;
mod readme;
mod scale;
mod study;
mod text;

#[cfg(test)]
mod tests;

use crate::error::{LabError, Result};
use crate::experiments::{ALL, Chapter};
use crate::raw::Run;
use page::Block;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use study::Study;

/// Options of a report.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder of the run, with its raw files
    folder: PathBuf,
    /// Folder of the report
    #[arg(long, value_name = "DIR", default_value = "docs/report")]
    to: PathBuf,
    /// Also write the tables between the lines <!-- lab --> and <!-- end lab -->, and <!-- lab
    /// programs --> and <!-- end lab programs -->, of this file
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
}

/// Writes the report of a run that exists.
///
/// # Errors
/// No such folder; a raw file that is not one; a file that cannot be written.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.folder.is_dir() {
        return Err(LabError::failed("report of", args.folder.display(), "no such folder"));
    }
    let run = Run::at(&args.folder)?;
    write(&run, &args.to)?;
    match &args.readme {
        Some(readme) => write_readme(&run, readme),
        None => Ok(()),
    }
}

/// Writes the report into a folder: `index.html`, `README.md`, `figures` and `raw`. Figures and
/// raw files of an earlier report there are removed.
pub(crate) fn write(run: &Run, to: &Path) -> Result<()> {
    let blocks = blocks(run)?;
    let figures = to.join("figures");
    let raw = to.join("raw");
    empty(&figures, "svg")?;
    put(&to.join("index.html"), &html::page(&blocks))?;
    put(&to.join("README.md"), &markdown::page(&blocks))?;
    for block in &blocks {
        if let Block::Figure(name, drawing, _) = block {
            put(&figures.join(format!("{name}.svg")), &drawing.alone())?;
        }
    }
    let whole = |path: &Path| fs::canonicalize(path).ok();
    if whole(&raw).is_some() && whole(&raw) == whole(run.folder()) {
        // A report that is written again from its own raw files.
        return Ok(());
    }
    empty(&raw, "jsonl")?;
    let files = ALL.iter().map(|it| run.path(it.id));
    let others = ["machine.json", "skipped.json"].map(|name| run.folder().join(name));
    for from in files.chain(others).filter(|from| from.is_file()) {
        let name = from.file_name().unwrap_or_default();
        fs::copy(&from, raw.join(name))
            .map_err(|e| LabError::failed("copying", from.display(), e))?;
    }
    Ok(())
}

/// Writes the table of a README again.
pub(crate) fn write_readme(run: &Run, readme: &Path) -> Result<()> {
    readme::write(readme, run.machine()?.as_ref(), &studies(run)?, run.folder())
}

/// Reads all experiments.
fn studies(run: &Run) -> Result<Vec<Study>> {
    let skipped = run.skipped()?;
    let study = |experiment: &'static crate::experiments::Experiment| {
        let lines = run.lines(experiment.id)?;
        let skipped = skipped.iter().filter(|it| it.experiment == experiment.id);
        // What another run of the same folder measured is not missing.
        let skipped = skipped.filter(|it| lines.iter().all(|line| line.system != it.system));
        let skipped = skipped.cloned().collect();
        Ok(Study { experiment, lines, skipped })
    };
    ALL.iter().map(study).collect()
}

/// Returns the content of the report.
fn blocks(run: &Run) -> Result<Vec<Block>> {
    let machine = run.machine()?;
    let all = studies(run)?;
    let unmeasured = head::unmeasured(&all);
    let (studies, _): (Vec<Study>, Vec<Study>) =
        all.into_iter().partition(|it| !it.lines.is_empty());
    let mut blocks = head::blocks(machine.as_ref(), &studies);
    for chapter in Chapter::ALL {
        let mut within = studies.iter().filter(|it| it.experiment.chapter == chapter).peekable();
        if within.peek().is_some() {
            let title = chapter.title().to_owned();
            blocks.push(Block::Section(2, head::anchor(chapter), title));
        }
        for study in within {
            blocks.extend(study.blocks()?);
        }
    }
    blocks.extend(unmeasured);
    Ok(blocks)
}

/// Makes a folder, or removes the files with this ending from it.
fn empty(folder: &Path, ending: &str) -> Result<()> {
    let failed = |e| LabError::failed("emptying", folder.display(), e);
    fs::create_dir_all(folder).map_err(failed)?;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some(OsStr::new(ending)) {
            fs::remove_file(path).map_err(failed)?;
        }
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| LabError::failed("writing", path.display(), e))
}
