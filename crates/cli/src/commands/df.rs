//! `shoal df`: the space of volumes, mounted or not.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shoal::raw::StatFs;

use crate::args::DfArgs;
use crate::failure::{Failure, Reason, Result};
use crate::json::Object;
use crate::location::Place;
use crate::mounted;
use crate::mounts;
use crate::output::Out;
use crate::patience;
use crate::progress::Progress;
use crate::session::{Access, Sessions};
use crate::size::ceiling;
use crate::text::printable;
use crate::tree::{Operand, Tree};

/// A volume's space.
struct Row {
    volume: Vec<u8>,
    mount: Option<Vec<u8>>,
    size: u64,
    free: u64,
    available: u64,
    inodes: u64,
    inodes_free: u64,
}

/// Shows the space of volumes.
pub(crate) fn run(args: &DfArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let (mut rows, mut progress) = (Vec::new(), Progress::counting());
        if args.places.is_empty() {
            let mounts = shoal_fuse::mounts();
            for (dir, source) in mounts.map_err(|e| Failure::failed("mounts", Reason::from(e)))? {
                let _waiting = patience::wait_for_answer(&dir);
                match of_mount(&dir, &dir, source.as_bytes()) {
                    Ok(row) => rows.push(row),
                    Err(reason) => progress.failure(dir.display(), reason),
                }
            }
        }
        for place in &args.places {
            let _waiting = patience::wait_for_answer(Path::new(place));
            match of_place(sessions, place)? {
                Ok(row) => rows.push(row),
                Err((label, reason)) => progress.failure(label, reason),
            }
        }
        show(args, &rows)?;
        Ok(progress.finish())
    })
}

/// Returns the space of the volume that a place is in, or of the quota that it is below.
fn of_place(sessions: &mut Sessions, place: &OsStr) -> Result<Result<Row, (String, Reason)>> {
    if let Place::Local(path) = Place::parse(place)
        && !path.is_dir()
        && let Some(dir) = mounts::of_volume(&path)
    {
        let row = of_mount(&dir, &dir, place.as_bytes());
        return Ok(row.map_err(|reason| (printable(place.as_bytes()).into_owned(), reason)));
    }
    let opened = match Operand::open(sessions, Access::Read, place, true)? {
        Ok(opened) => opened,
        Err(missing) => return Ok(Err((missing.label, Reason::from(missing.error)))),
    };
    Ok(match &opened.tree {
        Tree::Volume(start) => {
            let (session, real) = (&start.session, start.real(&opened.path));
            let space = |node, path: &[u8]| session.calls().space_at(&session.who, node, path);
            let volume = session.path.as_os_str().as_bytes();
            match session.on(&real, space) {
                Ok(shown) => Ok(Row::of(volume, &shown)),
                Err(error) => Err((opened.label(), Reason::from(error))),
            }
        }
        Tree::Mount(_) => {
            let path = Path::new(place);
            let above = shoal_fuse::mount_above(path).ok().flatten();
            let (dir, source) = above.unwrap_or_else(|| (path.to_owned(), place.to_owned()));
            of_mount(path, &dir, source.as_bytes()).map_err(|reason| (opened.label(), reason))
        }
    })
}

fn of_mount(path: &Path, dir: &Path, source: &[u8]) -> Result<Row, Reason> {
    let opened = mounted::open_at(path)?;
    let found = rustix::fs::fstatvfs(&opened)?;
    Ok(Row {
        volume: source.to_vec(),
        mount: Some(dir.as_os_str().as_bytes().to_vec()),
        size: found.f_blocks * found.f_frsize,
        free: found.f_bfree * found.f_frsize,
        available: found.f_bavail * found.f_frsize,
        inodes: found.f_files,
        inodes_free: found.f_ffree,
    })
}

impl Row {
    fn of(volume: &[u8], shown: &StatFs) -> Row {
        Row {
            volume: volume.to_vec(),
            mount: None,
            size: shown.bytes_total,
            free: shown.bytes_free,
            available: shown.bytes_available,
            inodes: shown.inodes_used + shown.inodes_free,
            inodes_free: shown.inodes_free,
        }
    }

    fn json(&self) -> Object {
        let object = Object::new().put_name("volume", &self.volume);
        let object = match &self.mount {
            Some(mount) => object.put_name("mount", mount),
            None => object,
        };
        object
            .put("size", self.size)
            .put("used", self.size - self.free.min(self.size))
            .put("available", self.available)
            .put("inodes", self.inodes)
            .put("inodes_free", self.inodes_free)
    }

    /// Returns the cells of a line: volume, total, used, available, share, mount.
    fn cells(&self, args: &DfArgs) -> [String; 6] {
        let (total, free, available) = match args.inodes {
            true => (self.inodes, self.inodes_free, self.inodes_free),
            false => (self.size, self.free, self.available),
        };
        let used = total - free.min(total);
        let number = |number: u64| match (args.human_readable, args.inodes) {
            (true, _) => ceiling(number),
            (false, true) => number.to_string(),
            (false, false) => number.div_ceil(1024).to_string(),
        };
        // As df(1): of what users can have, rounded up.
        let most = used + available;
        let share = if most == 0 { "-".into() } else { format!("{}%", share(used, most)) };
        let name = |name: &[u8]| printable(name).into_owned();
        let mount = self.mount.as_deref().map_or("-".into(), name);
        [name(&self.volume), number(total), number(used), number(available), share, mount]
    }
}

/// Returns the percentage, rounded up.
fn share(used: u64, most: u64) -> u64 {
    (u128::from(used) * 100).div_ceil(u128::from(most)) as u64
}

fn show(args: &DfArgs, rows: &[Row]) -> Result<()> {
    let mut out = Out::new();
    if args.json {
        for row in rows {
            out.json(row.json())?;
        }
        return out.flush();
    }
    let unit = match (args.inodes, args.human_readable) {
        (true, _) => "Inodes",
        (false, true) => "Size",
        (false, false) => "1K-blocks",
    };
    let (used, free, share) = match args.inodes {
        true => ("IUsed", "IFree", "IUse%"),
        false => ("Used", "Available", "Use%"),
    };
    let head = ["Volume", unit, used, free, share, "Mounted on"].map(str::to_owned);
    let lines: Vec<[String; 6]> =
        std::iter::once(head).chain(rows.iter().map(|row| row.cells(args))).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for [volume, total, used, free, share, mount] in &lines {
        let [w0, w1, w2, w3, w4, _] = widths;
        out.line(&format!(
            "{volume:w0$} {total:>w1$} {used:>w2$} {free:>w3$} {share:>w4$} {mount}"
        ))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up() {
        for (used, most, percent) in [(0, 1, 0), (1, 1000, 1), (999, 1000, 100), (1, 2, 50)] {
            assert_eq!(share(used, most), percent);
        }
    }
}
