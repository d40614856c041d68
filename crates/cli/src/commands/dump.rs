//! `shoal dump` and `shoal restore`: a whole volume as a stream.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use shoal::raw::{Error, OpenOptions};

use crate::args::{DumpArgs, RestoreArgs};
use crate::direct::Direct;
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED, UNUSABLE};
use crate::interrupt;
use crate::new_file::{self, NewFile, Terms, temporary};
use crate::output::Out;
use crate::progress::{Progress, eprint_line};
use crate::size::human;
use crate::tags;

/// Bytes of the stream that are read or written at a time.
const BUFFER: usize = 1 << 20;

/// Writes a volume to a stream.
pub(crate) fn run(args: &DumpArgs) -> Result<u8> {
    let volume = &tags::resolve(&args.volume)?;
    Direct::take_ring(volume)?;
    let mut progress = Progress::share();
    let mut moved = |done, all| progress.set("dumping", done, all);
    match &args.output {
        None if io::stdout().is_terminal() => {
            return Err(Failure::usage("--output", "needed: the stream is not for a terminal"));
        }
        None => drop(write(volume, None, &mut io::stdout().lock(), &mut moved)?),
        Some(path) => {
            let (mode, force) = (Terms::PRIVATE, Some(args.force));
            let terms = Terms { mode, sources: &[volume], force, stops: true };
            let mut file = NewFile::create(path, &terms)?;
            let written = write(volume, Some(path), &mut file, &mut moved);
            let bytes = written.map_err(|failure| file.stopped(failure))?;
            file.finish()?;
            progress.finish();
            let mut out = Out::new();
            out.line(&format!("{}: {} in {}", volume.display(), human(bytes), path.display()))?;
            out.flush()?;
        }
    }
    progress.finish();
    Ok(OK)
}

fn write(
    volume: &Path,
    stream: Option<&Path>,
    out: &mut dyn Write,
    moved: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let options = OpenOptions { notice: eprint_line, ..OpenOptions::default() };
    shoal::raw::dump(volume, &mut out, &options, moved)
        .map_err(|error| failed(volume, stream, &error))
}

/// Makes a volume from a stream.
pub(crate) fn restore(args: &RestoreArgs) -> Result<u8> {
    let volume = &args.volume;
    let mut progress = Progress::share();
    let mut moved = |done, all| progress.set("restoring", done, all);
    let stream = Some(&*args.stream).filter(|stream| stream.as_os_str() != "-");
    let input: Box<dyn Read> = match stream {
        None => Box::new(io::stdin().lock()),
        Some(stream) => {
            let file = File::open(stream)
                .map_err(|error| Failure::failed(stream.display(), error).with_status(UNUSABLE))?;
            Box::new(BufReader::with_capacity(BUFFER, file))
        }
    };
    interrupt::defer();
    let mut input = Stoppable(input);
    let sources: &[&Path] = match stream {
        Some(stream) => &[stream],
        None => &[],
    };
    let over = fs::metadata(volume).is_ok_and(|found| args.force && found.is_file());
    let terms = Terms { sources, force: Some(true), ..Terms::default() };
    let old = new_file::guard(volume, &terms)?;
    let restored = match over {
        true => instead(volume, |beside| make(&mut input, beside, false, &mut moved))?,
        false => {
            // The library locks it itself.
            drop(old);
            make(&mut input, volume, args.force, &mut moved)
        }
    };
    progress.finish();
    match (restored, interrupt::pending()) {
        (Ok(()), _) => Ok(OK),
        (Err(error), None) => Err(failed(volume, stream, &error)),
        (Err(_), Some(status)) => {
            let line = format!("interrupted: {} is not restored", volume.display());
            Err(Failure::Line { line, status })
        }
    }
}

/// Makes a volume beside a file, which it replaces when it is whole.
fn instead(
    volume: &Path,
    make: impl FnOnce(&Path) -> shoal::raw::Result<()>,
) -> Result<shoal::raw::Result<()>> {
    let failed = |error: io::Error| Failure::failed(volume.display(), Reason::from(error));
    let real = fs::canonicalize(volume).map_err(failed)?;
    let name = temporary(real.file_name().unwrap_or_default().as_bytes());
    let directory = real.parent().unwrap_or(Path::new("/"));
    let beside = directory.join(OsStr::from_bytes(&name));
    if let Err(error) = make(&beside) {
        return Ok(Err(error));
    }
    let replaced = || {
        let old = fs::metadata(&real)?;
        std::os::unix::fs::chown(&beside, Some(old.uid()), Some(old.gid()))?;
        fs::set_permissions(&beside, old.permissions())?;
        fs::rename(&beside, &real)?;
        File::open(directory)?.sync_all()
    };
    replaced().map(Ok).map_err(|error| {
        // There is a failure, and it is what is reported.
        let _ = fs::remove_file(&beside);
        failed(error)
    })
}

/// A stream whose reading ends when the user interrupts the command.
struct Stoppable<R>(R);

impl<R: Read> Read for Stoppable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match interrupt::pending() {
            Some(_) => Err(io::Error::other("interrupted")),
            None => self.0.read(buffer),
        }
    }
}

/// Makes a volume from a stream, in a place that the library checks.
fn make(
    input: &mut dyn Read,
    volume: &Path,
    force: bool,
    moved: &mut dyn FnMut(u64, u64),
) -> shoal::raw::Result<()> {
    let options = OpenOptions { notice: eprint_line, ..OpenOptions::default() };
    shoal::raw::restore(input, volume, force, &options, moved)
}

/// Returns the failure of a volume, or of the stream, which has a name if it is a file.
fn failed(volume: &Path, stream: Option<&Path>, error: &Error) -> Failure {
    let failure = Failure::volume(volume.display(), error);
    match failure.line().and_then(|line| line.strip_prefix("the stream")) {
        Some(rest) => match stream {
            Some(stream) => {
                Failure::Line { line: format!("{}{rest}", stream.display()), status: SOME_FAILED }
            }
            None => failure.with_status(SOME_FAILED),
        },
        None if matches!(error, Error::Device(_)) => failure.with_status(SOME_FAILED),
        None => failure,
    }
}
