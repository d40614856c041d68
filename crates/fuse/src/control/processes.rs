//! The processes that serve a mount, and the mount namespaces in which it is shown, as `/proc`
//! tells: of processes that the caller may look into.

use crate::table;
use rustix::fs::{makedev, minor};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A process that has the connection of a mount open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerProcess {
    /// Its number.
    pub pid: u32,
    /// It was stopped by a signal.
    pub is_stopped: bool,
}

/// Another mount of the same volume by the same server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherMount {
    /// Mount point.
    pub dir: PathBuf,
    /// A process of its mount namespace, and that process's name; `None`: the caller's namespace.
    pub process: Option<(u32, String)>,
}

/// Returns the mount point above `path`, an absolute path without symlinks, and the processes that
/// serve it, without a request to it. No process if the caller may not look into them.
pub fn servers_without_asking(path: &Path) -> Option<(PathBuf, Vec<ServerProcess>)> {
    let above = table::ours().ok()?.into_iter().filter(|entry| path.starts_with(&entry.dir));
    let entry = above.max_by_key(|entry| entry.dir.as_os_str().len())?;
    let processes = holders(&entry);
    let processes = processes.map(|pid| ServerProcess { pid, is_stopped: is_stopped(pid) });
    Some((entry.dir.clone(), processes.collect()))
}

/// Returns those of a process and its children that are stopped: a keeper's child is the server.
pub(super) fn stopped_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(pid).chain(children).filter(|pid| is_stopped(*pid)).collect()
}

/// Returns whether a process was stopped by a signal.
fn is_stopped(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| matches!(state, 'T' | 't'))
}

/// Iterates over the processes that have the connection of a mount open. Linux before 6.18 does
/// not tell which connection a descriptor belongs to: there, over those of this program that have
/// the mount point in their command line.
pub(super) fn holders(entry: &table::MountEntry) -> impl Iterator<Item = u32> {
    let connection = connection_of(&entry.device);
    let dir = entry.dir.clone();
    all().filter(move |pid| match connections(*pid) {
        Connections::Numbers(numbers) => connection.is_some_and(|it| numbers.contains(&it)),
        Connections::Unnumbered => names(*pid, &dir),
        Connections::None | Connections::Unknown => false,
    })
}

/// Returns whether a process can be a server of a mount: `false` if it certainly is none.
pub(super) fn may_serve(pid: u32) -> bool {
    connections(pid) != Connections::None
}

/// FUSE connections that a process has open.
#[derive(PartialEq, Eq, Debug)]
enum Connections {
    /// These.
    Numbers(Vec<u64>),
    /// Some, of which the kernel does not tell the numbers.
    Unnumbered,
    /// None.
    None,
    /// The caller may not know.
    Unknown,
}

fn connections(pid: u32) -> Connections {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Connections::Unknown };
    let (mut numbers, mut unnumbered) = (Vec::new(), false);
    for file in files.flatten() {
        if fs::read_link(file.path()).is_ok_and(|target| target.ends_with("fuse")) {
            let info = format!("/proc/{pid}/fdinfo/{}", file.file_name().display());
            match connection_in(&fs::read_to_string(info).unwrap_or_default()) {
                Some(number) => numbers.push(number),
                None => unnumbered = true,
            }
        }
    }
    match (numbers.is_empty(), unnumbered) {
        (false, _) => Connections::Numbers(numbers),
        (true, true) => Connections::Unnumbered,
        (true, false) => Connections::None,
    }
}

/// Returns the number in the kernel's description of a descriptor.
fn connection_in(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
}

/// Returns the number of the connection of a device `major:minor`: the kernel's own form of it.
fn connection_of(device: &str) -> Option<u64> {
    let (major, number) = device.split_once(':')?;
    let device = makedev(major.parse().ok()?, number.parse().ok()?);
    // Mounts without a block device have the major number 0.
    Some(u64::from(minor(device)))
}

/// Returns whether the command line of a process ends with a mount point.
fn names(pid: u32, dir: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let last = line.strip_suffix(b"\0").and_then(|line| line.rsplit(|byte| *byte == 0).next());
    last == Some(dir.as_os_str().as_encoded_bytes())
}

/// Returns the state of a process: `R`, `S`, `T` for a stopped one.
fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the mounts of a device in all namespaces that the caller may look into, its own first.
pub(super) fn mounts_of(device: &str) -> Vec<OtherMount> {
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let mut found = mounts_in("self", device, None);
    let mut seen: HashSet<PathBuf> = own.into_iter().collect();
    for pid in all() {
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/mnt")) else { continue };
        if seen.insert(namespace) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let process = Some((pid, name.trim_end().to_owned()));
            found.extend(mounts_in(&pid.to_string(), device, process));
        }
    }
    found
}

fn mounts_in(process: &str, device: &str, shown: Option<(u32, String)>) -> Vec<OtherMount> {
    let text = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let ours = table::parse(&text).filter(|entry| entry.device == device);
    ours.map(|entry| OtherMount { dir: entry.dir, process: shown.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_descriptors() {
        assert_eq!(connection_in("pos:\t0\nmnt_id:\t24\nfuse_connection:\t41\n"), Some(41));
        assert_eq!(connection_in("pos:\t0\nmnt_id:\t24\n"), None);
        assert_eq!(connection_of("0:41"), Some(41));
        assert_eq!(connection_of("41"), None);
    }

    #[test]
    fn a_program_without_a_connection_serves_nothing() {
        let own = std::process::id();
        assert!(!is_stopped(own) && stopped_of(own).is_empty());
        assert!(all().any(|pid| pid == own));
        let root = table::mount_at(Path::new("/")).unwrap().unwrap();
        let places = mounts_of(&root.device);
        assert!(places.iter().any(|it| it.dir == Path::new("/") && it.process.is_none()));
    }
}
