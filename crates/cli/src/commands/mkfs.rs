//! `shoal mkfs`.

use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::process::{getegid, geteuid};
use shoal::raw::MkfsOptions;

use crate::args::{MkfsArgs, Switch};
use crate::commands::info;
use crate::direct;
use crate::failure::{Failure, OK, Result};
use crate::output::Out;
use crate::progress::{Progress, eprint_line, eprint_line_over_bar};
use crate::size::human;

/// Progress of the test of a store: the library calls a function, not a closure.
static TESTING: LazyLock<Mutex<Progress>> = LazyLock::new(|| Mutex::new(Progress::share()));

fn testing(show: impl FnOnce(&mut Progress)) {
    show(&mut TESTING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Makes a volume.
pub(crate) fn run(args: &MkfsArgs) -> Result<u8> {
    let volume = args.volume.display();
    if args.size == Some(0) {
        return Err(Failure::usage("--size", "must not be 0"));
    }
    let options = MkfsOptions {
        size: args.size.unwrap_or(0),
        inode_size: args.inode_size,
        segment_size: args.segment_size.unwrap_or(0),
        force: args.force,
        notice: eprint_line_over_bar,
        root_uid: geteuid().as_raw(),
        root_gid: getegid().as_raw(),
        parents: args.parent == Switch::On,
        compression: args.compress,
        label: args.label.unwrap_or_default(),
        trust_store: args.trust_store,
        progress: |done, all| testing(|bar| bar.set("testing the store", done, all)),
        ..MkfsOptions::default()
    };
    let made = shoal::raw::mkfs(&args.volume, &options);
    testing(|bar| _ = bar.finish());
    let made = made.map_err(|error| Failure::volume(&volume, &error))?;
    direct::warn_if_readable(&args.volume, eprint_line);
    let mut out = Out::new();
    if args.json {
        out.json(info::json(&args.volume, &made, &info::Subvolumes::default(), None))?;
    } else {
        let size = u64::from(made.segments) * made.segment_size;
        out.line(&format!(
            "{volume}: made a volume of {} ({} segments of {}, inodes of {} bytes), id {}",
            human(size),
            made.segments,
            human(made.segment_size),
            made.inode_size,
            made.id
        ))?;
    }
    out.flush()?;
    Ok(OK)
}
