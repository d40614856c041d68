//! `shoal dump` and `shoal restore`: a whole volume as a stream.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use shoal::raw::{Error, OpenOptions};

use crate::args::{DumpArgs, RestoreArgs};
use crate::failure::{Failure, OK, Result, SOME_FAILED, UNUSABLE};
use crate::output::{Out, create_private};
use crate::progress::{Progress, eprint_line};
use crate::session::Session;
use crate::size::human;
use crate::tags;

/// Bytes of the stream that are read or written at a time.
const BUFFER: usize = 1 << 20;

/// Writes a volume to a stream.
pub(crate) fn run(args: &DumpArgs) -> Result<u8> {
    let volume = &tags::resolve(&args.volume)?;
    Session::take_ring(volume)?;
    let mut progress = Progress::share();
    let mut moved = |done, all| progress.set("dumping", done, all);
    match &args.output {
        None if io::stdout().is_terminal() => {
            return Err(Failure::usage("--output", "needed: the stream is not for a terminal"));
        }
        None => drop(write(volume, None, &mut io::stdout().lock(), &mut moved)?),
        Some(path) => {
            let failed = |error| Failure::failed(path.display(), error);
            let mut file = create_private(path).map_err(|e| failed(e).with_status(UNUSABLE))?;
            let bytes = write(volume, Some(path), &mut file, &mut moved)?;
            file.sync_all().map_err(failed)?;
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
    let mut input: Box<dyn Read> = match stream {
        None => Box::new(io::stdin().lock()),
        Some(stream) => {
            let file = File::open(stream)
                .map_err(|error| Failure::failed(stream.display(), error).with_status(UNUSABLE))?;
            Box::new(BufReader::with_capacity(BUFFER, file))
        }
    };
    let options = OpenOptions { notice: eprint_line, ..OpenOptions::default() };
    shoal::raw::restore(&mut input, volume, args.force, &options, &mut moved)
        .map_err(|error| failed(volume, stream, &error))?;
    progress.finish();
    Ok(OK)
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
