//! The archive as a file or stream, compressed or not.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use crate::args::TarArgs;
use crate::commands::cp::local;
use crate::commands::cp::side::Id;
use crate::failure::{Failure, Reason, Result};
use crate::new_file::{self, NewFile, Terms};
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

/// Failure to write the archive.
pub(super) fn failed(args: &TarArgs, error: io::Error) -> Failure {
    let failure = Failure::failed(label(args), Reason::from(error));
    if is_standard(args) { failure } else { new_file::stopped(&label(args), failure) }
}

/// An archive being written.
pub(super) enum Output {
    /// As it is.
    Plain(BufWriter<Archive>),
    /// Compressed.
    Zstd(Box<zstd::stream::write::Encoder<'static, BufWriter<Archive>>>),
}

/// Destination of an archive.
pub(super) enum Archive {
    /// Standard output.
    Standard(File),
    /// A file.
    File(Box<NewFile>),
}

impl Archive {
    /// Gives a file its name.
    pub(super) fn finish(self) -> Result<()> {
        match self {
            Archive::Standard(_) => Ok(()),
            Archive::File(file) => file.finish(),
        }
    }
}

impl Write for Archive {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Archive::Standard(file) => file.write(bytes),
            Archive::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Archive::Standard(file) => file.flush(),
            Archive::File(file) => file.flush(),
        }
    }
}

impl Output {
    /// Opens the archive; also returns which files it is and replaces, not to be archived
    /// themselves. `volume`: what is archived.
    pub(super) fn create(args: &TarArgs, volume: Option<&Path>) -> Result<(Output, Vec<Id>)> {
        let failed = |error: io::Error| Failure::failed(label(args), Reason::from(error));
        let (archive, ids) = match is_standard(args) {
            true => {
                let stdout = io::stdout();
                if stdout.is_terminal() {
                    let what = "is a terminal: name a file with -f, or write into a pipe";
                    return Err(Failure::usage(label(args), what));
                }
                let file = File::from(stdout.as_fd().try_clone_to_owned().map_err(failed)?);
                let ids = local::identify_open(file.as_fd()).into_iter().collect();
                (Archive::Standard(file), ids)
            }
            false => {
                let sources: Vec<&Path> = volume.into_iter().collect();
                let force = Some(args.force);
                let terms = Terms { sources: &sources, force, stops: true, ..Terms::default() };
                let file = NewFile::create(&args.file, &terms)?;
                let id = |(filesystem, inode)| Id { filesystem, inode };
                let ids = file.identities().into_iter().map(id).collect();
                (Archive::File(Box::new(file)), ids)
            }
        };
        let output = BufWriter::with_capacity(BUFFER, archive);
        let output = match args.zstd {
            true => Output::Zstd(Box::new(
                zstd::stream::write::Encoder::new(output, 0).map_err(failed)?,
            )),
            false => Output::Plain(output),
        };
        Ok((output, ids))
    }

    /// Ends the stream.
    pub(super) fn finish(self) -> io::Result<Archive> {
        let output = match self {
            Output::Plain(output) => output,
            Output::Zstd(encoder) => encoder.finish()?,
        };
        output.into_inner().map_err(io::IntoInnerError::into_error)
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
