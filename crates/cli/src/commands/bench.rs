//! `shoal bench`: runs the workloads of the crate of that name.

use std::io::{self, Write};

use crate::failure::{Failure, OK, Result, SOME_FAILED};
use crate::new_file::{self, Terms};

/// Runs a workload.
pub(crate) fn run(args: &shoal_bench::Args) -> Result<u8> {
    if let Some(plot) = &args.plot {
        new_file::guard(plot, &Terms::default())?;
    }
    let mut out = Watched { out: io::stdout().lock(), closed: false };
    match shoal_bench::run_into(args, &mut out) {
        Ok(()) => Ok(OK),
        // The benchmark's errors are lines of text; only the writer knows that a pipe was closed.
        Err(_) if out.closed => Err(Failure::BrokenPipe),
        Err(error) => Err(Failure::Line { line: error.to_string(), status: SOME_FAILED }),
    }
}

/// A writer that remembers that its reader has gone away.
struct Watched<W> {
    out: W,
    closed: bool,
}

impl<W: Write> Watched<W> {
    fn watch<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.closed |= error.kind() == io::ErrorKind::BrokenPipe;
        }
        result
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.watch(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.watch(result)
    }
}
