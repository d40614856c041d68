//! `shoal orphans`: lists inodes without a name that are not free yet.

use shoal::raw::{Code, OrphanInfo, OrphanState, RootInfo};

use crate::args::OrphansArgs;
use crate::failure::{OK, Result};
use crate::json::Object;
use crate::mounted;
use crate::output::Out;
use crate::session::Access;

/// Lists the orphans of a volume.
pub(crate) fn run(args: &OrphansArgs) -> Result<u8> {
    let (inodes, roots) = mounted::at(&args.volume, Access::Read, |session| {
        let (calls, who) = (session.calls(), &session.who);
        let inodes = calls.all_orphans(who).map_err(|error| mounted::failed(session, &error))?;
        let roots = match calls.all_subvolumes(who) {
            // A mount of one subvolume shows no others.
            Err(error) if error.is(Code::NotPermitted) => Vec::new(),
            roots => roots.map_err(|error| mounted::failed(session, &error))?,
        };
        Ok((inodes, roots))
    })?;
    let mut rows: Vec<Row> = inodes.iter().map(Row::of_inode).collect();
    rows.extend(roots.iter().filter(|root| root.deleted).map(Row::of_subvolume));
    rows.sort_by_key(|row| row.ino);
    let mut out = Out::new();
    if args.json {
        rows.iter().try_for_each(|row| out.json(json(row)))?;
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
            OrphanState::Truncating => "truncated",
            OrphanState::Changing => "change",
            OrphanState::Broken => "broken",
        };
        let OrphanInfo { ino, slot, held, size, bytes, .. } = *info;
        Row { ino: ino.0, kind, slot, held, size, bytes, path: info.path.as_deref() }
    }

    /// Describes a deleted subvolume. It has a record of its own, which serves as a slot.
    fn of_subvolume(root: &RootInfo) -> Row<'_> {
        let (ino, size) = (root.top.0, root.inodes);
        Row { ino, kind: "subvolume", slot: true, held: false, size, bytes: 0, path: None }
    }
}

fn table(out: &mut Out, rows: &[Row<'_>]) -> Result<()> {
    let width = rows.iter().map(|row| row.ino.to_string().len()).max().unwrap_or(0).max(5);
    let head = ("INODE", "KIND", "IN", "HELD", "SIZE", "BYTES", "PATH");
    let (ino, kind, place, held, size, bytes, path) = head;
    out.line(&format!(
        "{ino:>width$}  {kind:9}  {place:6}  {held:4}  {size:>12}  {bytes:>12}  {path}"
    ))?;
    for row in rows {
        let Row { ino, kind, slot, held, size, bytes, path } = row;
        let place = if *slot { "slot" } else { "memory" };
        let held = if *held { "yes" } else { "no" };
        let line =
            format!("{ino:>width$}  {kind:9}  {place:6}  {held:4}  {size:>12}  {bytes:>12}  ");
        out.bytes(line.as_bytes())?;
        out.name(path.unwrap_or(b"-"))?;
        out.line("")?;
    }
    Ok(())
}

fn json(row: &Row<'_>) -> Object {
    let Row { ino, kind, slot, held, size, bytes, path } = *row;
    let object = Object::new()
        .put("ino", ino)
        .put("kind", kind)
        .put("slot", slot)
        .put("held", held)
        .put("size", size)
        .put("bytes", bytes);
    match path {
        Some(path) => object.put_name("path", path),
        None => object,
    }
}
