//! Standard output: text lines and JSON objects, one a line.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use crate::failure::{Failure, Result};
use crate::json::Object;
use crate::text::printable;

/// Buffered standard output, which turns its errors into failures.
pub(crate) struct Out {
    writer: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Out {
    /// Takes standard output.
    pub(crate) fn new() -> Out {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Out { writer: BufWriter::with_capacity(64 << 10, stdout.lock()), terminal }
    }

    /// Writes a line of headings, if a person reads.
    pub(crate) fn heading(&mut self, line: &str) -> Result<()> {
        if self.terminal { self.line(line) } else { Ok(()) }
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(Failure::output)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes a name: unchanged into a file or pipe, escaped for a terminal.
    pub(crate) fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.terminal { self.bytes(printable(name).as_bytes()) } else { self.bytes(name) }
    }

    /// Writes text with names in it: unchanged into a file or pipe; for a terminal escaped, except
    /// for new lines and tabs.
    pub(crate) fn text(&mut self, text: &[u8]) -> Result<()> {
        if !self.terminal {
            return self.bytes(text);
        }
        for part in text.split_inclusive(|byte| matches!(byte, b'\n' | b'\t')) {
            let (body, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\t'), body)) => (body, std::slice::from_ref(end)),
                _ => (part, &[][..]),
            };
            self.bytes(printable(body).as_bytes())?;
            self.bytes(end)?;
        }
        Ok(())
    }

    /// Writes arbitrary bytes: unchanged into a file or pipe; on a terminal escaped, and as a line.
    pub(crate) fn value(&mut self, value: &[u8]) -> Result<()> {
        self.name(value)?;
        if self.terminal { self.bytes(b"\n") } else { Ok(()) }
    }

    /// Writes an object as one line of JSON.
    pub(crate) fn json(&mut self, object: Object) -> Result<()> {
        self.bytes(&object.into_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes the buffer.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(Failure::output)
    }
}
