//! `shoal label`: shows the label of a volume, or changes it, mounted or not.

use std::path::Path;

use shoal::raw::{Label, identify};

use crate::args::LabelArgs;
use crate::failure::{Failure, OK, Result, SOME_FAILED};
use crate::mounted;
use crate::output::Out;
use crate::session::Access;
use crate::tags;

/// Shows the label, or changes it.
pub(crate) fn run(args: &LabelArgs) -> Result<u8> {
    let volume = &tags::resolve(&args.volume)?;
    let wanted = match (&args.label, args.remove) {
        (_, true) => Some(Label::NONE),
        (Some(text), _) => {
            Some(Label::new(text).map_err(|rule| Failure::usage(format!("label '{text}'"), rule))?)
        }
        (None, _) => None,
    };
    match wanted {
        None => show(volume),
        Some(label) => mounted::at(volume, Access::Write, |session| {
            let set = session.calls().set_label(&session.who, label.as_str().as_bytes());
            set.map_err(|error| mounted::failed(session, &error).with_status(SOME_FAILED))?;
            Ok(OK)
        }),
    }
}

fn show(volume: &Path) -> Result<u8> {
    let label = match volume.is_dir() {
        true => {
            let facts = mounted::ask(volume, |mount| mount.calls().all_facts(&mount.who))?;
            facts.get("label").cloned().unwrap_or_default()
        }
        false => {
            let found = identify(volume).map_err(|e| Failure::volume(volume.display(), &e))?;
            let none = || Failure::usage(volume.display(), "not a Shoal volume");
            found.ok_or_else(none)?.label
        }
    };
    let mut out = Out::new();
    if !label.is_empty() {
        out.line(&label)?;
    }
    out.flush()?;
    Ok(OK)
}
