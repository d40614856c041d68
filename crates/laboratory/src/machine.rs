//! The machine that a run was made on, and its state at each measurement.

use crate::wakes::Wakes;
use serde::{Deserialize, Serialize};
use std::process::Command;

/// Processors above which the use by other programs disturbs a measurement.
pub(crate) const BUSY: f64 = 0.1;

/// Facts that hold for a whole run.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Machine {
    /// Day of the first measurement, UTC, as in 2026-11-24.
    pub date: String,
    /// Commit of the checkout, with a plus sign if files differ from it.
    pub commit: String,
    pub kernel: String,
    pub processor: String,
    pub processors: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// FUSE requests may go through io_uring.
    pub fuse_rings: bool,
    /// Place of the filesystems.
    pub storage: String,
    /// Size of the run: smoke, quick or full.
    pub size: String,
    /// Older runs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<Wakes>,
}

impl Machine {
    /// Asks the machine.
    pub(crate) fn here(storage: &str, size: &str) -> Machine {
        let changed = !first_line("git", &["status", "--porcelain"]).is_empty();
        let commit = first_line("git", &["rev-parse", "--short", "HEAD"]);
        let kib = |line: &str| line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok());
        let memory: u64 = field("/proc/meminfo", "MemTotal").as_deref().and_then(kib).unwrap_or(0);
        Machine {
            date: first_line("date", &["-u", "+%F"]),
            commit: commit + if changed { "+" } else { "" },
            kernel: first_line("uname", &["-r"]),
            processor: field("/proc/cpuinfo", "model name")
                .and_then(|line| line.split_once(": ").map(|(_, name)| name.to_owned()))
                .unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory * 1024,
            fuse_rings: fuse_rings(),
            storage: storage.to_owned(),
            size: size.to_owned(),
            wakes: Wakes::measure(),
        }
    }

    /// Returns a sentence for the report.
    pub(crate) fn describe(&self) -> String {
        let rings = if self.fuse_rings { "on" } else { "off" };
        let wakes = self.wakes.map_or_else(String::new, |it| format!("; {}", it.describe()));
        format!(
            "{} × {}, {:.0} GiB of memory, Linux {}; filesystems {}; FUSE rings {rings}; commit \
             {}{wakes}",
            self.processors,
            self.processor,
            self.memory as f64 / f64::from(1 << 30),
            self.kernel,
            self.storage,
            self.commit,
        )
    }
}

/// Returns whether the kernel lets FUSE requests go through io_uring now.
pub(crate) fn fuse_rings() -> bool {
    let switch = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    switch.is_ok_and(|on| on.trim() == "Y")
}

/// Load and frequency of the processors, as the kernel says them, and other programs' use of them.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Runnable tasks, averaged over a minute.
    pub load: f64,
    /// Megahertz, the mean of the processors; 0 where the kernel does not say.
    pub mhz: f64,
    /// Processors that other programs used during the measurement; older runs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
}

impl Now {
    pub(crate) fn here() -> Now {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let load = text("/proc/loadavg");
        let cpus = text("/proc/cpuinfo");
        let of = |line: &str| line.split_once(": ").and_then(|(_, mhz)| mhz.trim().parse().ok());
        let mhz: Vec<f64> =
            cpus.lines().filter(|line| line.starts_with("cpu MHz")).filter_map(of).collect();
        Now {
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            mhz: mhz.iter().sum::<f64>() / mhz.len().max(1) as f64,
            others: None,
        }
    }
}

/// Returns the first line of a file that begins so.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find(|line| line.starts_with(name)).map(str::to_owned)
}

/// Returns the first line that a program prints; empty if it fails.
fn first_line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned()
}
