//! `shoal copy`: a whole volume to another place. (`shoal cp`, of files, is in `cp.rs`.)

use std::path::Path;

use shoal::raw::{Code, Copied, CopyKind, Error, OpenOptions};

use crate::args::CopyArgs;
use crate::direct::Direct;
use crate::failure::{Failure, OK, Result, SOME_FAILED};
use crate::json::Object;
use crate::output::Out;
use crate::progress::{Progress, eprint_line};
use crate::size::human;
use crate::tags;

/// Copies a volume, and says how much.
pub(crate) fn run(args: &CopyArgs) -> Result<u8> {
    let source = &tags::resolve(&args.source)?;
    let destination = &args.destination;
    for path in [source, destination] {
        if path.is_dir() {
            let reason = "is a directory: unmount the volume, and give its file or device; to copy \
                          files use 'shoal cp' or 'shoal sync'";
            return Err(Failure::usage(path.display(), reason));
        }
    }
    Direct::take_ring(source)?;
    let mut progress = Progress::share();
    let mut moved = |done, all| progress.set("copying", done, all);
    let options = OpenOptions { notice: eprint_line, ..OpenOptions::default() };
    let copied = shoal::raw::copy_volume(source, destination, args.force, &options, &mut moved);
    progress.finish();
    let copied = copied.map_err(|error| failed(destination, &error))?;
    let mut out = Out::new();
    match args.json {
        true => out.json(json(&copied))?,
        false => out.line(&format!("{}: {}", destination.display(), text(&copied)))?,
    }
    out.flush()?;
    Ok(OK)
}

fn text(copied: &Copied) -> String {
    let (bytes, used) = (human(copied.bytes), human(copied.used));
    match copied.kind {
        CopyKind::Whole => format!("{bytes} copied"),
        CopyKind::Continued => format!("{bytes} copied of {used}, the rest was there"),
        CopyKind::Increment => format!("{bytes} copied that had changed, of {used}"),
        CopyKind::Same => "up to date".to_owned(),
    }
}

fn json(copied: &Copied) -> Object {
    let kind = match copied.kind {
        CopyKind::Whole => "whole",
        CopyKind::Continued => "continued",
        CopyKind::Increment => "increment",
        CopyKind::Same => "same",
    };
    let object = Object::new().put("kind", kind).put("bytes", copied.bytes);
    object.put("used", copied.used).put("stamped", copied.stamped)
}

/// Returns the failure of a copy, with status 1 if it may have begun: the same command goes on.
/// Damage is found before.
fn failed(destination: &Path, error: &Error) -> Failure {
    let failure = Failure::volume(destination.display(), error);
    let has_begun = !matches!(error, Error::Corrupt(_))
        && (matches!(error, Error::Device(_)) || matches!(error.code(), Code::NoSpace | Code::Io));
    match failure {
        Failure::Line { line, .. } if has_begun => {
            let line = format!("{line} (copied data stays: the same command goes on)");
            Failure::Line { line, status: SOME_FAILED }
        }
        failure => failure,
    }
}
