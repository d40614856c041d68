//! The identity of this process and its machine for a claim, and the test whether the process of
//! another claim still exists.
//!
//! "No such process" proves a death only where process ids mean the same: on the same boot and in
//! the same pid namespace. Ids are reused, so a process is identified by its id and its start time.
//! A property that cannot be determined is left unknown, and nothing is concluded from it.

use rustix::process::{Pid, test_kill_process};
use shoal_format::claim::OwnerClaim;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest command line stored, in bytes.
const COMMAND_MAX: usize = 2048;

/// State of a claim's process on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Process {
    /// The process exists.
    Runs,
    /// The process provably does not exist.
    Gone,
    /// The state cannot be determined from here.
    Unknown,
}

/// This process and its machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Here {
    pub machine: [u8; 16],
    pub boot: [u8; 16],
    /// Boot time of the machine, in seconds since 1970; `None` if unknown.
    pub booted: Option<i64>,
    pub pid_namespace: u64,
    /// `true` if `/proc` shows the processes of this pid namespace, with its ids.
    pub proc_is_ours: bool,
}

impl Here {
    pub(crate) fn look() -> Here {
        let first = |paths: &[&str]| paths.iter().find_map(|path| id_in(Path::new(path)));
        Here {
            machine: first(&["/etc/machine-id", "/var/lib/dbus/machine-id"]).unwrap_or_default(),
            boot: first(&["/proc/sys/kernel/random/boot_id"]).unwrap_or_default(),
            booted: boot_time(),
            pid_namespace: std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()),
            proc_is_ours: proc_is_ours(),
        }
    }

    /// Makes a claim for this process.
    pub(crate) fn claim(&self, path: &Path) -> OwnerClaim {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        OwnerClaim {
            machine: self.machine,
            boot: self.boot,
            pid_namespace: self.pid_namespace,
            pid: std::process::id(),
            process_start: stat_of("self").map_or(0, |stat| stat.start),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            path: path.display().to_string(),
            command: command(),
            ..OwnerClaim::default()
        }
    }

    /// Looks for the process of a claim. [`Process::Unknown`] if its id is not valid here.
    pub(crate) fn find(&self, claim: &OwnerClaim) -> Process {
        let known = |id: [u8; 16]| id != [0; 16];
        if !known(self.boot) || self.boot != claim.boot {
            return Process::Unknown;
        }
        if self.pid_namespace == 0 || self.pid_namespace != claim.pid_namespace {
            return Process::Unknown;
        }
        let Some(pid) = i32::try_from(claim.pid).ok().and_then(Pid::from_raw) else {
            return Process::Unknown;
        };
        // Not through `/proc/PID`, which may hide the processes of other users.
        if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            return Process::Gone;
        }
        if !self.proc_is_ours {
            return Process::Runs;
        }
        let name = claim.pid.to_string();
        match stat_of(&name) {
            Some(stat) if claim.process_start != 0 && stat.start != claim.process_start => {
                Process::Gone
            }
            Some(_) if all_threads_ended(&name) => Process::Gone,
            _ => Process::Runs,
        }
    }
}

/// The current time in seconds since 1970.
pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() as i64
}

/// Parses the 32 hexadecimal digits in a file, ignoring dashes.
fn id_in(path: &Path) -> Option<[u8; 16]> {
    parse_id(&std::fs::read_to_string(path).ok()?)
}

fn parse_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[i * 2..i * 2 + 2], 16).ok()?;
    }
    Some(id)
}

fn boot_time() -> Option<i64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns whether `/proc` belongs to our pid namespace. A procfs of an outer namespace shows a
/// process with one id for each namespace in between; ours shows one id.
fn proc_is_ours() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_whitespace();
    numbers.next() == Some(&*std::process::id().to_string()) && numbers.next().is_none()
}

/// The fields needed from `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    state: char,
    start: u64,
}

fn stat_of(place: &str) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{place}/stat")).ok()?)
}

/// Parses `17 (any ) name) S 1 …`. The name may contain anything, so fields count from its last
/// parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The start is field 22 of the whole line; the state was field 3.
    let start = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, start })
}

/// Returns whether all threads of a process have ended. A killed process stays as a zombie until
/// its parent reaps it; its files are closed when its last thread has ended.
fn all_threads_ended(pid: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut states = threads.flatten().filter_map(|thread| {
        let thread = thread.file_name().into_string().ok()?;
        stat_of(&format!("{pid}/task/{thread}")).map(|stat| stat.state)
    });
    states.all(|state| matches!(state, 'Z' | 'X'))
}

fn command() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let mut line = words.collect::<Vec<_>>().join(" ");
    line.truncate(line.floor_char_boundary(COMMAND_MAX));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn ids_and_stat_lines_are_parsed() {
        let id = parse_id("01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
        assert_eq!(id[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(parse_id("0123"), None);
        assert_eq!(parse_id("uninitialized"), None);
        assert_eq!(parse_id(&"é".repeat(16)), None);
        let line = "17 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_stat(line), Some(Stat { state: 'S', start: 4711 }));
        assert_eq!(parse_stat("17 (a) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_runs_and_one_with_its_number_and_another_start_does_not() {
        let here = Here::look();
        let own = here.claim(Path::new("v"));
        assert!(own.pid_namespace != 0 && own.process_start != 0 && own.boot != [0; 16]);
        assert!(own.path.starts_with('/') && !own.command.is_empty());
        assert_eq!(here.find(&own), Process::Runs);
        let reused = OwnerClaim { process_start: own.process_start - 1, ..own.clone() };
        assert_eq!(here.find(&reused), Process::Gone);
        for foreign in [
            OwnerClaim { boot: [9; 16], ..own.clone() },
            OwnerClaim { pid_namespace: own.pid_namespace + 1, ..own.clone() },
            OwnerClaim { pid: 0, ..own.clone() },
            OwnerClaim { pid: u32::MAX, ..own.clone() },
        ] {
            assert_eq!(here.find(&foreign), Process::Unknown);
        }
        assert_eq!(Here::default().find(&OwnerClaim::default()), Process::Unknown);
    }

    #[test]
    fn a_killed_process_is_gone_also_while_its_parent_has_not_looked() {
        let here = Here::look();
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let start = stat_of(&child.id().to_string()).unwrap().start;
        let own = here.claim(Path::new("v"));
        let claim = OwnerClaim { pid: child.id(), process_start: start, ..own };
        assert_eq!(here.find(&claim), Process::Runs);
        child.kill().unwrap();
        shoal_skip::wait_until("a zombie is gone", || here.find(&claim) == Process::Gone);
        child.wait().unwrap();
        assert_eq!(here.find(&claim), Process::Gone);
    }
}
