//! The archive as a file or stream, compressed or not.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use crate::args::TarArgs;
use crate::commands::cp::local;
use crate::commands::cp::side::Id;
use crate::failure::{Failure, Reason, Result};
use crate::text::printable;
use std::os::unix::ffi::OsStrExt;

/// Bytes of the buffer before the archive.
const BUFFER: usize = 1 << 20;
/// Beginning of a stream of zstd.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Beginnings of streams that are not read here, with the program for them.
const OTHERS: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "gzip"),
    (b"BZh", "bzip2"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
    (&[4, 0x22, 0x4d, 0x18], "lz4"),
];

/// Returns the name of the archive, for messages.
pub(super) fn label(args: &TarArgs) -> String {
    match (is_standard(args), args.create) {
        (true, true) => "standard output".to_owned(),
        (true, false) => "standard input".to_owned(),
        _ => printable(args.file.as_os_str().as_bytes()).into_owned(),
    }
}

/// Returns whether the archive is standard output or input.
pub(super) fn is_standard(args: &TarArgs) -> bool {
    args.file == Path::new("-")
}

/// An archive being written.
pub(super) enum Output {
    /// As it is.
    Plain(BufWriter<File>),
    /// Compressed.
    Zstd(Box<zstd::stream::write::Encoder<'static, BufWriter<File>>>),
}

impl Output {
    /// Opens the archive; also returns which file it is, not to be archived itself.
    pub(super) fn create(args: &TarArgs, shunned: &[Id]) -> Result<(Output, Option<Id>)> {
        let failed = |error: io::Error| Failure::failed(label(args), Reason::from(error));
        let file = match is_standard(args) {
            true => {
                let stdout = io::stdout();
                if stdout.is_terminal() {
                    let what = "is a terminal: name a file with -f, or write into a pipe";
                    return Err(Failure::usage(label(args), what));
                }
                File::from(stdout.as_fd().try_clone_to_owned().map_err(failed)?)
            }
            false => {
                let there = local::identify(args.file.as_os_str().as_bytes());
                if there.is_some_and(|there| shunned.contains(&there)) {
                    let what = "is the volume itself: name another file for the archive";
                    return Err(Failure::usage(label(args), what));
                }
                File::create(&args.file).map_err(failed)?
            }
        };
        let id = local::identify_open(file.as_fd());
        let output = BufWriter::with_capacity(BUFFER, file);
        let output = match args.zstd {
            true => Output::Zstd(Box::new(
                zstd::stream::write::Encoder::new(output, 0).map_err(failed)?,
            )),
            false => Output::Plain(output),
        };
        Ok((output, id))
    }

    /// Ends the stream.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut output = match self {
            Output::Plain(output) => output,
            Output::Zstd(encoder) => encoder.finish()?,
        };
        output.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Plain(output) => output.write(bytes),
            Output::Zstd(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(output) => output.flush(),
            Output::Zstd(output) => output.flush(),
        }
    }
}

/// Opens an archive to read; zstd is recognised.
pub(super) fn open(args: &TarArgs) -> Result<Box<dyn Read>> {
    let failed = |error: io::Error| Failure::failed(label(args), Reason::from(error));
    let mut input: Box<dyn Read> = match is_standard(args) {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(&args.file).map_err(failed)?),
    };
    let mut start = Vec::new();
    input.by_ref().take(6).read_to_end(&mut start).map_err(failed)?;
    for (magic, program) in OTHERS {
        if start.starts_with(magic) {
            let what = format!("is compressed with {program}: {program} -dc FILE | shoal tar ...");
            return Err(Failure::usage(label(args), what));
        }
    }
    let is_zstd = start.starts_with(ZSTD);
    if args.zstd && !is_zstd {
        return Err(Failure::usage(label(args), "is not compressed with zstd"));
    }
    let input = BufReader::with_capacity(BUFFER, io::Cursor::new(start).chain(input));
    match is_zstd {
        true => {
            let decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(failed)?;
            Ok(Box::new(BufReader::with_capacity(BUFFER, decoder)))
        }
        false => Ok(Box::new(input)),
    }
}
