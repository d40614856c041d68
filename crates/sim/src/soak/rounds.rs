//! Rounds: mount, work, kill, check, mount again and compare.

use super::actor::Actor;
use super::verify::{self, Notes, Tree};
use super::worker::{ACTORS, Orders};
use crate::mounted::Server;
use crate::rng::Rng;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Worker processes.
const WORKERS: u64 = 3;
/// Rounds for which directories stay, and must stay as they are.
const KEPT: usize = 2;
/// Longest wait for a worker to notice that the mount is gone.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a server of a volume on a directory is started; it says `ready`.
pub type Serve = dyn Fn(&Path, &Path) -> Command;
/// Checks a volume that nobody uses.
pub type Check = dyn Fn(&Path) -> Result<(), String>;

/// The programs that take part.
pub struct Programs {
    /// The server.
    pub server: Box<Serve>,
    /// Calls [`super::worker::work`].
    pub worker: Box<dyn Fn() -> Command>,
    /// The check.
    pub check: Box<Check>,
}

/// Counts of the soak.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Servers that were killed while they worked.
    pub kills: u64,
    /// Servers that were killed while they recovered, or just after.
    pub early_kills: u64,
    /// Unmounted properly.
    pub unmounts: u64,
    /// Operations that had ended.
    pub operations: u64,
    /// Of these, those that an fsync had acknowledged, or a proper unmount.
    pub acknowledged: u64,
    /// Files whose contents, attributes and names were compared and that were acknowledged.
    pub files: u64,
    /// Time that the workers had.
    pub working: Duration,
}

/// Directories as they must stay.
type Settled = Vec<(String, Tree)>;

/// Numbers and names of actors.
type Actors = Vec<(u64, String)>;

/// The soak.
pub struct Soak {
    programs: Programs,
    base: PathBuf,
    seed: u64,
    rng: Rng,
    settled: VecDeque<Settled>,
    /// Counts so far.
    pub tally: Tally,
}

impl Soak {
    /// In a directory `base`, with the volume `base/volume` already made.
    pub fn new(programs: Programs, base: &Path, seed: u64) -> Soak {
        let (base, rng) = (base.to_owned(), Rng::new(seed).fork(0x50A7));
        Soak { programs, base, seed, rng, settled: VecDeque::new(), tally: Tally::default() }
    }

    fn mount(&self) -> PathBuf {
        self.base.join("mnt")
    }

    fn volume(&self) -> PathBuf {
        self.base.join("volume")
    }

    fn serve(&self) -> Result<Server, String> {
        let mount = self.mount();
        Server::start((self.programs.server)(&self.volume(), &mount), &mount)
    }

    /// One round.
    ///
    /// # Errors
    /// Says what is violated; the volume stays as it is.
    pub fn round(&mut self) -> Result<(), String> {
        let round = self.tally.rounds;
        let notes = self.base.join("notes");
        let _ = fs::remove_dir_all(&notes);
        fs::create_dir_all(&notes).map_err(|e| format!("{}: {e}", notes.display()))?;
        let server = self.serve()?;
        let (mut workers, actors) = self.start_workers(round, &notes)?;
        let proper = self.rng.chance(10);
        let time = Duration::from_millis(self.rng.range(100, 500));
        let began = Instant::now();
        std::thread::sleep(time);
        self.tally.working += began.elapsed();
        if proper {
            // Killed themselves: an unmount wants that nobody is in.
            workers.iter_mut().try_for_each(|w| w.kill().map_err(|e| format!("kill: {e}")))?;
            wait_for(&mut workers)?;
            server.stop()?;
            self.tally.unmounts += 1;
        } else {
            server.kill()?;
            wait_for(&mut workers)?;
            self.tally.kills += 1;
        }
        (self.programs.check)(&self.volume())?;
        self.recover_and_compare(&actors, &notes, proper)?;
        self.tally.rounds += 1;
        Ok(())
    }

    fn start_workers(&self, round: u64, notes: &Path) -> Result<(Vec<Child>, Actors), String> {
        let (mut workers, mut actors) = (Vec::new(), Vec::new());
        for worker in 0..WORKERS {
            let (mount, notes) = (self.mount(), notes.to_owned());
            let orders = Orders { mount, notes, seed: self.seed, round, worker };
            let mut command = (self.programs.worker)();
            orders.give(&mut command);
            let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
            let process = quiet.spawn();
            workers.push(process.map_err(|e| format!("worker: {e}"))?);
            actors.extend(orders.actors());
        }
        debug_assert_eq!(actors.len() as u64, WORKERS * ACTORS);
        Ok((workers, actors))
    }

    fn recover_and_compare(
        &mut self,
        actors: &Actors,
        notes: &Path,
        proper: bool,
    ) -> Result<(), String> {
        // Recovery can be cut off too, and must then begin again from the same.
        while self.rng.chance(15) {
            let server = self.serve()?;
            std::thread::sleep(Duration::from_millis(self.rng.below(20)));
            server.kill()?;
            self.tally.early_kills += 1;
        }
        let server = self.serve()?;
        let compared = self.compare(actors, notes, proper);
        // After a violation too: the volume is kept, the mount is not.
        let stopped = if self.rng.chance(50) { server.kill() } else { server.stop() };
        compared?;
        stopped
    }

    fn compare(&mut self, actors: &Actors, notes: &Path, proper: bool) -> Result<(), String> {
        let mount = self.mount();
        let read = |actor: &str| {
            verify::read(&mount.join(actor)).map_err(|e| format!("reading {actor}: {e}"))
        };
        for (actor, tree) in self.settled.iter().flatten() {
            let found = read(actor)?.unwrap_or_default();
            if let Some(difference) = verify::different(tree, &found) {
                return Err(format!("{actor}, of a round before: {difference}"));
            }
        }
        let mut settled = Vec::new();
        for (number, name) in actors {
            let actor = || Actor::new(self.seed, self.tally.rounds, *number);
            let mut notes = Notes::read(&notes.join(name), actor())?;
            if proper {
                notes.acknowledge_all();
            }
            let found = read(name)?;
            let promised = notes.judge(name, actor().run, found.as_ref())?;
            self.tally.operations += notes.done.len() as u64;
            self.tally.acknowledged += notes.acknowledged as u64;
            self.tally.files += promised as u64;
            settled.push((name.clone(), found.unwrap_or_default()));
        }
        self.settled.push_back(settled);
        if self.settled.len() > KEPT {
            for (actor, _) in self.settled.pop_front().unwrap_or_default() {
                remove(&mount.join(actor))?;
            }
        }
        // Else what was compared might not be there after the next kill.
        let top = fs::File::open(&mount).and_then(|top| top.sync_all());
        top.map_err(|e| format!("fsync of the top: {e}"))
    }
}

fn remove(directory: &Path) -> Result<(), String> {
    match fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("removing {}: {e}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Waits for the end of all; who does not end, hangs in the mount.
fn wait_for(workers: &mut [Child]) -> Result<(), String> {
    let asked = Instant::now();
    for worker in workers {
        while worker.try_wait().map_err(|e| format!("worker: {e}"))?.is_none() {
            if asked.elapsed() > PATIENCE {
                let _ = worker.kill();
                return Err(format!("a worker hangs after the server's end ({PATIENCE:?})"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
