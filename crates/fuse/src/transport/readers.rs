//! Which threads of a process read requests, as another process sees it.
//!
//! Problem: what a server reads while it ends is lost to the next one, if that has asked the kernel
//! before to send again what nobody has answered. Rule: after a take-over the keeper waits until no
//! thread of the former server can read any more. That is soon: long before its process has exited,
//! which gives back its memory first.

use std::fs;

/// First letters of the names of these threads.
pub(super) const NAME: &str = "shoal-fuse-";
/// Flag of a task that does not return from the kernel any more (`PF_EXITING`).
const EXITING: u32 = 4;

/// Returns whether a thread of a process, which has stopped for another server, may still read
/// requests. `false` if there is no such process.
pub fn may_read(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok()).any(|it| reads(&it))
}

/// The same of one thread, by its line of proc_pid_stat(5).
fn reads(stat: &str) -> bool {
    let Some((name, rest)) = stat.split_once('(').and_then(|(_, line)| line.rsplit_once(") "))
    else {
        return false;
    };
    let mut fields = rest.split(' ');
    let is_dead = fields.next().is_none_or(|state| matches!(state, "Z" | "X"));
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
    name.starts_with(NAME) && !is_dead && flags & EXITING == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_skip::wait_for;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_thread_that_exits_reads_no_more() {
        let line = |name, state, flags| format!("7 ({name}) {state} 1 2 3 0 -1 {flags} 9 0");
        assert!(reads(&line("shoal-fuse-0", "S", 0x40_0040)));
        assert!(reads(&line("shoal-fuse-a) Z 1 2 (", "D", 0)));
        assert!(!reads(&line("shoal-fuse-0", "R", 0x40_0044)));
        assert!(!reads(&line("shoal-fuse-0", "Z", 0)));
        assert!(!reads(&line("shoal-notices", "D", 0)));
        assert!(!reads("7"));
    }

    #[test]
    fn a_process_is_asked_as_long_as_it_is_there() {
        let dir = std::env::temp_dir().join(format!("shoal-readers-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        // Its only thread has the name of its file.
        let program = dir.join(format!("{NAME}0"));
        symlink("/bin/cat", &program).unwrap();
        let mut child = Command::new(&program).arg0("cat").stdin(Stdio::piped()).spawn().unwrap();
        wait_for("it has begun", || may_read(child.id()).then_some(()));
        child.kill().unwrap();
        wait_for("it has ended", || (!may_read(child.id())).then_some(()));
        child.wait().unwrap();
        assert!(!may_read(child.id()));
        fs::remove_dir_all(&dir).unwrap();
    }
}
