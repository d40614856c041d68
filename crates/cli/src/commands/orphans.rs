//! `shoal orphans`: what has no name but is still there.

use serde::Serialize;
use shoal::{OrphanInfo, OrphanState, RootInfo};
use shoal_fuse::{Orphans, orphans_of};

use crate::args::OrphansArgs;
use crate::failure::{OK, Result};
use crate::mounted;
use crate::output::{Out, json_name};
use crate::session::{Access, Session};

/// Lists the orphans of a volume.
pub fn run(args: &OrphansArgs) -> Result<u8> {
    let found = match args.volume.is_dir() {
        true => {
            let mount = mounted::open(&args.volume)?;
            orphans_of(&mount).map_err(|error| mounted::refused(&args.volume, error))?
        }
        false => {
            let session = Session::open(&args.volume, Access::Read)?;
            let mut roots = session.volume.root_list();
            roots.retain(|root| root.deleted);
            let orphans = Orphans { inodes: session.volume.orphans(), roots };
            session.close()?;
            orphans
        }
    };
    let mut rows: Vec<Row> = found.inodes.iter().map(Row::of_inode).collect();
    rows.extend(found.roots.iter().map(Row::of_root));
    rows.sort_by_key(|row| row.ino);
    let mut out = Out::new();
    if args.json {
        rows.iter().try_for_each(|row| out.json(&JsonOrphan::new(row)))?;
    } else if !rows.is_empty() {
        table(&mut out, &rows)?;
    }
    out.flush()?;
    Ok(OK)
}

/// A line of the table.
struct Row<'a> {
    ino: u64,
    kind: &'static str,
    slot: bool,
    held: bool,
    size: u64,
    bytes: u64,
    path: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    fn of_inode(info: &'a OrphanInfo) -> Row<'a> {
        let kind = match info.state {
            OrphanState::Unlinked => "unlinked",
            OrphanState::Tree => "tree",
            OrphanState::Cut => "cut",
            OrphanState::Broken => "broken",
        };
        let OrphanInfo { ino, slot, held, size, bytes, .. } = *info;
        Row { ino: ino.0, kind, slot, held, size, bytes, path: info.path.as_deref() }
    }

    /// A deleted root has a record of its own, which is as good as a slot.
    fn of_root(root: &RootInfo) -> Row<'_> {
        let (ino, size) = (root.top.0, root.inodes);
        Row { ino, kind: "root", slot: true, held: false, size, bytes: 0, path: None }
    }
}

fn table(out: &mut Out, rows: &[Row<'_>]) -> Result<()> {
    let width = rows.iter().map(|row| row.ino.to_string().len()).max().unwrap_or(0).max(5);
    let head = ("INODE", "KIND", "IN", "HELD", "SIZE", "BYTES", "PATH");
    let (ino, kind, place, held, size, bytes, path) = head;
    out.line(&format!(
        "{ino:>width$}  {kind:8}  {place:6}  {held:4}  {size:>12}  {bytes:>12}  {path}"
    ))?;
    for row in rows {
        let Row { ino, kind, slot, held, size, bytes, path } = row;
        let place = if *slot { "slot" } else { "memory" };
        let held = if *held { "yes" } else { "no" };
        let line =
            format!("{ino:>width$}  {kind:8}  {place:6}  {held:4}  {size:>12}  {bytes:>12}  ");
        out.bytes(line.as_bytes())?;
        out.name(path.unwrap_or(b"-"))?;
        out.line("")?;
    }
    Ok(())
}

/// An orphan in JSON.
#[derive(Serialize)]
struct JsonOrphan {
    ino: u64,
    kind: &'static str,
    slot: bool,
    held: bool,
    size: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

impl JsonOrphan {
    fn new(row: &Row<'_>) -> JsonOrphan {
        let (path, path_bytes) = match row.path.map(json_name) {
            Some((path, bytes)) => (Some(path), bytes),
            None => (None, None),
        };
        let Row { ino, kind, slot, held, size, bytes, .. } = *row;
        JsonOrphan { ino, kind, slot, held, size, bytes, path, path_bytes }
    }
}
