//! The kernel's list of mounts.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Type of our mounts in that list.
pub(crate) const FS_TYPE: &str = "fuse.shoal";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Device number, `major:minor`.
    pub device: String,
    /// Path in the file system of what is shown at the mount point.
    pub root: PathBuf,
    /// Mount point.
    pub dir: PathBuf,
    /// Type of file system.
    pub fs_type: String,
    /// Source of the mount.
    pub source: OsString,
    /// The file system is read-only, wherever it is mounted.
    pub read_only: bool,
    /// It is read-only here.
    pub is_read_only_here: bool,
    /// It shows other owners here than the file system has.
    pub is_mapped: bool,
}

/// Returns the mount that is visible at `dir` (its absolute path without symlinks), if `dir` is the
/// top of one.
pub(crate) fn mount_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    // The last one of those stacked on a directory is the visible one.
    Ok(parse(&text).filter(|entry| entry.dir == dir).last())
}

/// Returns the visible mounts of Shoal.
pub(crate) fn ours() -> io::Result<Vec<MountEntry>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    let all: Vec<MountEntry> = parse(&text).collect();
    let is_visible = |at: usize| all[at + 1..].iter().all(|later| later.dir != all[at].dir);
    let ours = |(at, entry): &(usize, &MountEntry)| entry.fs_type == FS_TYPE && is_visible(*at);
    Ok(all.iter().enumerate().filter(ours).map(|(_, entry)| entry.clone()).collect())
}

/// Returns the mounts of Shoal of a file system, by its device number.
pub(crate) fn of_device(major: u32, minor: u32) -> io::Result<Vec<MountEntry>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    let device = format!("{major}:{minor}");
    Ok(parse(&text).filter(|it| it.fs_type == FS_TYPE && it.device == device).collect())
}

/// Iterates over the entries of a `mountinfo`; malformed lines are skipped.
pub(crate) fn parse(text: &[u8]) -> impl Iterator<Item = MountEntry> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line)
}

/// `36 35 98:0 /root /dir options [fields] - type source options`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let root = fields.next()?;
    let dir = fields.next()?;
    let here = fields.next()?.split(|byte| *byte == b',');
    let has = |wanted: &[u8]| here.clone().any(|option| option == wanted);
    let (is_read_only_here, is_mapped) = (has(b"ro"), has(b"idmapped"));
    fields.find(|field| *field == b"-")?;
    let fs_type = fields.next()?;
    let source = fields.next()?;
    let mut options = fields.next().unwrap_or_default().split(|byte| *byte == b',');
    Some(MountEntry {
        device: String::from_utf8(device.to_vec()).ok()?,
        root: unescape(root).into(),
        dir: unescape(dir).into(),
        fs_type: String::from_utf8(fs_type.to_vec()).ok()?,
        source: unescape(source),
        read_only: options.any(|option| option == b"ro"),
        is_read_only_here,
        is_mapped,
    })
}

/// Decodes a field: space, tab, newline and backslash are three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => plain.push(*byte),
        }
    }
    OsString::from_vec(plain)
}

/// Returns the absolute path of a mount point without symlinks. Works when the server of a mount
/// there is dead, so that the directory itself cannot be asked.
pub(crate) fn canonical(dir: &Path) -> io::Result<PathBuf> {
    dir.canonicalize().or_else(|error| {
        let absolute = std::path::absolute(dir)?;
        let name: &OsStr = absolute.file_name().ok_or_else(|| io::Error::from(error.kind()))?;
        if name.as_bytes().is_empty() {
            return Err(error);
        }
        let parent = absolute.parent().ok_or(error)?;
        Ok(parent.canonicalize()?.join(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 22 0:35 / /mnt/with\\040space rw,nosuid - fuse.shoal /a\\134b,c rw,user_id=0\n\
            41 22 0:35 /sub /view ro,idmapped shared:2 - fuse.shoal /v rw\n\
            nonsense\n\n";
        let entries: Vec<_> = parse(text).collect();
        assert_eq!(entries.len(), 3);
        assert!(entries[2].is_mapped && entries[2].is_read_only_here && !entries[2].read_only);
        assert_eq!(entries[2].root, Path::new("/sub"));
        assert_eq!(entries[0].fs_type, "ext4");
        assert_eq!(
            entries[1],
            MountEntry {
                device: "0:35".into(),
                root: "/".into(),
                dir: "/mnt/with space".into(),
                fs_type: FS_TYPE.into(),
                source: "/a\\b,c".into(),
                read_only: false,
                is_read_only_here: false,
                is_mapped: false,
            }
        );
    }

    #[test]
    fn the_root_is_mounted_and_a_file_is_not() {
        assert!(mount_at(Path::new("/")).unwrap().is_some());
        assert!(mount_at(Path::new("/no/such/dir")).unwrap().is_none());
    }

    #[test]
    fn paths_of_what_is_missing() {
        let dir = std::env::temp_dir().canonicalize().unwrap();
        assert_eq!(canonical(&dir.join("no-such-thing")).unwrap(), dir.join("no-such-thing"));
        assert!(canonical(Path::new("/no/such/parent/dir")).is_err());
    }
}
