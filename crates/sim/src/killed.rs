//! A process that works on a volume with the library, is killed without warning, and what it had
//! been told until then: for tests of `kill -9`.
//!
//! The process is the test program itself, entered again at a test that calls [`Scene::entered`].
//! It notes what is acknowledged as lines in a file beside the volume, which outlives it.

use shoal::raw::{MkfsOptions, mkfs};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The folder of the scene, and the number of the round.
const SCENE: &str = "SHOAL_KILLED_SCENE";
const ROUND: &str = "SHOAL_KILLED_ROUND";
/// Longest wait for notes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A folder with a volume and the notes of the processes that were killed.
#[derive(Clone, Debug)]
pub struct Scene {
    folder: PathBuf,
}

/// Lines of words, appended whole, so that their order is that of the events.
pub struct Notes(File);

impl Notes {
    /// Adds a line.
    pub fn say(&self, line: &str) {
        let mut file = &self.0;
        file.write_all(format!("{line}\n").as_bytes()).expect("notes");
    }
}

impl Scene {
    /// A new volume of this size in a folder that is emptied first.
    pub fn new(folder: PathBuf, size: u64) -> Scene {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("directory");
        let scene = Scene { folder };
        let options = MkfsOptions { size, ..MkfsOptions::default() };
        mkfs(&scene.volume(), &options).expect("mkfs");
        scene
    }

    /// The scene and the round of this process, if it is one to be killed, entered at `test`.
    pub fn entered(test: &str) -> Option<(Scene, u64)> {
        let here = std::env::args().any(|word| word == test);
        let folder = PathBuf::from(std::env::var_os(SCENE).filter(|_| here)?);
        let round = std::env::var(ROUND).ok()?.parse().ok()?;
        Some((Scene { folder }, round))
    }

    /// The volume.
    pub fn volume(&self) -> PathBuf {
        self.folder.join("volume")
    }

    /// A file for a ring that outlives the processes.
    pub fn ring(&self) -> PathBuf {
        self.folder.join("ring")
    }

    /// For the process that will be killed: where it notes what it was told.
    pub fn notes(&self) -> Notes {
        let file = OpenOptions::new().append(true).create(true).open(self.folder.join("notes"));
        Notes(file.expect("notes"))
    }

    /// The notes of all processes so far, line by line in words. A line that the kill cut off is
    /// none.
    pub fn told(&self) -> Vec<Vec<String>> {
        let text = fs::read_to_string(self.folder.join("notes")).unwrap_or_default();
        let lines = text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines();
        lines.map(|line| line.split(' ').map(String::from).collect()).collect()
    }

    /// Waits until processes have noted so many lines more: a moment that depends on what they do,
    /// however fast that is.
    ///
    /// # Panics
    /// If they do not in five minutes.
    pub fn wait_for_notes(&self, more: usize) {
        let notes = self.folder.join("notes");
        let read = || fs::read(&notes).unwrap_or_default();
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        let (begun, before) = (Instant::now(), count(&read()));
        while count(&read()) < before + more {
            assert!(begun.elapsed() < PATIENCE, "no {more} notes in {PATIENCE:?}");
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Starts the process at `test`, waits as `wait` does, and kills it.
    ///
    /// # Panics
    /// If a thread of it has panicked.
    pub fn kill(&self, test: &str, round: u64, wait: impl FnOnce()) {
        let stderr = self.folder.join("stderr");
        let mut process = self.start(test, round, &stderr);
        wait();
        process.kill().expect("kill");
        process.wait().expect("wait");
        let said = fs::read_to_string(stderr).expect("stderr");
        assert!(!said.contains("panicked"), "round {round}: {said}");
    }

    fn start(&self, test: &str, round: u64, stderr: &Path) -> Child {
        let process = Command::new(std::env::current_exe().expect("own name"))
            .args([test, "--exact", "--nocapture"])
            .env(SCENE, &self.folder)
            .env(ROUND, round.to_string())
            .stdout(Stdio::null())
            .stderr(File::create(stderr).expect("stderr"))
            .spawn();
        process.expect("start")
    }

    /// Removes the folder.
    pub fn clean_up(self) {
        fs::remove_dir_all(self.folder).expect("clean up");
    }
}
