//! Damaged objects: a copy of the store loses a part of an object, and a reader of that copy asks
//! for everything. Each answer is the model's, or an error of damage that names the object, at
//! once. When the object is whole again, the same reader reads everything.

use super::{Clock, Run, clocked, place};
use crate::call::wait_for_reaping;
use crate::exec::{Lockstep, Step};
use crate::model::Model;
use crate::op::{Op, Target, Who};
use crate::rng::Rng;
use crate::walk::walk;
use shoal::raw::{Error, FileKind, Ino, OpenOptions, Volume};
use shoal_bucket::BucketDevice;
use shoal_bucket::faulty::{Faults, World};
use std::sync::Arc;
use tokio::time::Instant;

/// Bytes read at the beginning and at the end of a file.
const READ: u64 = 256 << 10;
/// Page of a listing.
const PAGE: usize = 100;

/// An object, and what it has become.
struct Damage {
    name: String,
    intact: Vec<u8>,
    damaged: Vec<u8>,
}

/// A reader of a copy of the store, opened or refused.
struct Reader {
    opened: Result<Volume, Error>,
    clock: Clock,
    begun: Instant,
}

impl Run {
    /// Damages one object of a copy of the store, and reads that copy.
    pub(super) fn damage(&mut self) -> Result<(), String> {
        let volume = self.volume()?;
        wait_for_reaping(volume)?;
        volume.sync().map_err(|e| format!("sync: {e}"))?;
        let world = self.world.fork(self.rng.next());
        let whole = self.reader(&world)?.opened.map_err(|e| format!("a reader: {e}"))?;
        if walk(&whole, Ino::ROOT, true)?.digest() != self.run.model.digest() {
            // Opening it has freed what is open and has no name, which may change times.
            return Ok(());
        }
        self.report.damaged += 1;
        let damage = Damage::draw(&world, &mut self.rng);
        let early = if self.rng.chance(50) { Some(self.reader(&world)?) } else { None };
        world.change(&damage.name, |_| Some(damage.damaged.clone()));
        let reader = match early {
            Some(early) => early,
            None => self.reader(&world)?,
        };
        let Reader { opened, clock, begun } = reader;
        let told = match &opened {
            Ok(volume) => self.ask_all(volume, Some(&damage))?,
            Err(error) if damage.is_told_by(error) => 1,
            Err(error) => return Err(format!("damage of {}: opening: {error}", damage.name)),
        };
        self.report.reported += told;
        if clock.now() != begun {
            return Err(format!("damage of {} was waited for", damage.name));
        }
        world.change(&damage.name, |_| Some(damage.intact.clone()));
        let again = match opened {
            Ok(volume) => volume,
            Err(_) => self.reader(&world)?.opened.map_err(|e| format!("a reader again: {e}"))?,
        };
        self.ask_all(&again, None).map(drop)
    }

    /// Opens a copy of the store for reading.
    fn reader(&self, world: &Arc<World>) -> Result<Reader, String> {
        let (runtime, clock) = clocked()?;
        let begun = clock.now();
        let place = place(&world.connect(Faults::default()));
        let open = OpenOptions { read_only: true, ..self.settings.open.clone() };
        let opened = BucketDevice::read_only(&place, self.options.clone(), runtime)
            .and_then(|device| Volume::open_on(Arc::new(device), &open));
        Ok(Reader { opened, clock, begun })
    }

    /// Asks for everything, and compares. Returns the number of calls that ended with an error of
    /// this damage.
    fn ask_all(&self, volume: &Volume, damage: Option<&Damage>) -> Result<u64, String> {
        let (mut run, mut told) = (Lockstep::of(self.run.model.clone()), 0);
        let name = damage.map_or("no object", |damage| &damage.name);
        for op in questions(&self.run.model) {
            let step = run.step(volume, &op).map_err(|e| format!("damage of {name}: {op}: {e}"))?;
            match (step, damage) {
                (Step::Done, _) => {}
                (Step::Refused(error), Some(damage)) if damage.is_told_by(&error) => told += 1,
                (step, _) => return Err(format!("damage of {name}: {op}: {step:?}")),
            }
        }
        Ok(told)
    }
}

impl Damage {
    /// Cuts off the end of an object, or all of it, or flips a bit.
    fn draw(world: &World, rng: &mut Rng) -> Damage {
        let (name, size) = rng.pick(&world.objects()).clone();
        let mut intact = Vec::new();
        world.change(&name, |bytes| {
            intact = bytes.to_vec();
            Some(intact.clone())
        });
        let (mut damaged, at) = (intact.clone(), rng.below(size) as usize);
        match rng.below(4) {
            0 => damaged.clear(),
            1 | 2 => damaged.truncate(at),
            _ => damaged.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << rng.below(8)),
        }
        Damage { name, intact, damaged }
    }

    fn is_told_by(&self, error: &Error) -> bool {
        let shown = self.name.strip_prefix("volume/").unwrap_or(&self.name);
        error.is_damage() && error.to_string().contains(shown)
    }
}

/// Questions for everything that the model has.
fn questions(model: &Model) -> Vec<Op> {
    let mut all = Vec::new();
    let mut queue = vec![(Vec::new(), model.root())];
    while let Some((path, ino)) = queue.pop() {
        let file = Target::Path(path.clone());
        all.push(Op::Getattr { file: file.clone() });
        all.push(Op::ListXattr { who: Who::Root, file: file.clone() });
        let Some(node) = model.node(ino) else { continue };
        match node.kind {
            FileKind::Directory => {
                all.push(Op::Readdir { dir: file, page: PAGE });
                for (name, child) in model.entries(ino).into_iter().flatten() {
                    let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                    queue.push(([&path, separator, name].concat(), *child));
                }
            }
            FileKind::Regular => {
                for offset in [0, node.size().saturating_sub(READ)] {
                    all.push(Op::Read { file: file.clone(), offset, len: READ });
                }
            }
            FileKind::Symlink => all.push(Op::Readlink { file }),
            _ => {}
        }
    }
    all
}
