//! The same sequences on a volume in a bucket, ended after every request instead of every device
//! operation: the store has carried out that request and all before it, its reply is not seen, and
//! nothing of the process happens after it. Another process takes the volume over.

use super::actions::Action;
use super::sequence::Sequence;
use super::start::{Start, opening};
use crate::checks;
use crate::exec::{Lockstep, Step};
use crate::history::History;
use crate::op::Op;
use crate::runner::{Ack, bucket, make_durable};
use crate::walk::walk;
use shoal::raw::{Ino, Volume};
use shoal_bucket::faulty::{Faults, Faulty, World};
use shoal_bucket::{BucketDevice, CreateOptions};
use shoal_device::Device;
use std::sync::Arc;

/// Bytes copied at a time.
const COPIED: usize = 1 << 20;
/// Requests of a sequence at most; one that makes more never ends.
const REQUESTS_MAX: u64 = 1000;

/// The volume that every sequence starts from, in a bucket.
pub struct InBucket<'a> {
    start: &'a Start,
    world: Arc<World>,
}

/// A sequence in progress.
struct Run {
    connection: Faulty,
    volume: Option<Volume>,
    history: History,
    /// Operations so far, which take the place of the operations of a device.
    position: u64,
}

impl<'a> InBucket<'a> {
    /// Copies the start to an empty bucket.
    ///
    /// # Errors
    /// A request fails.
    pub fn new(start: &'a Start) -> Result<InBucket<'a>, String> {
        let (world, from) = (World::new(1), start.device());
        let place = bucket::place(&world.connect(Faults::default()));
        let capacity = start.settings.capacity;
        let create = CreateOptions { capacity, overwrite: false, race: None, progress: |_, _| {} };
        let runtime = bucket::runtime()?;
        let copied =
            BucketDevice::create(&place, &create, bucket::options(), runtime).and_then(|to| {
                let mut bytes = vec![0; COPIED];
                for at in (0..capacity).step_by(COPIED) {
                    from.read_at(&mut bytes, at)?;
                    if bytes.iter().any(|byte| *byte != 0) {
                        to.write_at(&bytes, at)?;
                    }
                }
                to.close()
            });
        copied.map_err(|e| format!("copying the start: {e}"))?;
        Ok(InBucket { start, world })
    }

    /// Runs a sequence as often as it makes requests, each time one request longer. Returns their
    /// number: those of opening the volume before it are not counted, those of closing it are.
    ///
    /// # Errors
    /// The violation, with the request after which it was found.
    pub fn explore(&self, actions: &[Action], sequence: &Sequence) -> Result<u64, String> {
        for last in 1..REQUESTS_MAX {
            let ended = self.run(actions, sequence, last);
            match ended.map_err(|e| format!("{sequence}, ended after request {last}: {e}"))? {
                true => {}
                false => return Ok(last - 1),
            }
        }
        Err(format!("{sequence} makes {REQUESTS_MAX} requests"))
    }

    /// Returns whether the process was ended: else it has closed the volume before that.
    fn run(&self, actions: &[Action], sequence: &Sequence, last: u64) -> Result<bool, String> {
        let world = self.world.fork(last);
        let (mut run, mut model) = self.begin(world.connect(Faults::default()), last)?;
        let steps = sequence.0.iter().map(|step| (step, &actions[step.action]));
        let ops = steps
            .flat_map(|(step, action)| action.ops.iter().cloned().chain(step.durable.op(action)));
        for op in ops {
            if !run.step(&mut model, &op)? {
                break;
            }
        }
        let ended = run.close()?;
        self.judge(&world, run)?;
        Ok(ended)
    }

    /// Opens the volume; the process is ended after `last` further requests.
    fn begin(&self, connection: Faulty, last: u64) -> Result<(Run, Lockstep), String> {
        let (volume, mut model) = (self.open(&connection)?, self.start.run.clone());
        model.step(&volume, &opening())?;
        connection.kill_after(last);
        let history = History::new(0, &model.model, true);
        Ok((Run { connection, volume: Some(volume), history, position: 0 }, model))
    }

    fn open(&self, connection: &Faulty) -> Result<Volume, String> {
        let (place, runtime) = (bucket::place(connection), bucket::runtime()?);
        let device = BucketDevice::open(&place, bucket::options(), runtime)
            .map_err(|e| format!("opening the bucket: {e}"))?;
        Volume::open_on(Arc::new(device), &self.start.settings.open)
            .map_err(|e| format!("opening the volume: {e}"))
    }

    /// Takes the volume over. Its state must be a permitted one, no older than what was
    /// acknowledged.
    fn judge(&self, world: &Arc<World>, run: Run) -> Result<(), String> {
        let permitted = run.history.permitted(run.position + 1);
        let volume = self.open(&world.connect(Faults::default()))?;
        let found = walk(&volume, Ino::ROOT, true)?;
        if run.history.find(&found.state, permitted.clone()).is_none() {
            return Err(run.history.explain(&found.state, permitted));
        }
        checks::all(&volume, &found)
    }
}

impl Run {
    /// Returns whether the process goes on.
    fn step(&mut self, model: &mut Lockstep, op: &Op) -> Result<bool, String> {
        let volume = self.volume.as_ref().ok_or("it is closed")?;
        match model.step(volume, op) {
            Ok(Step::Done | Step::Skipped) => {}
            // It was ended in the middle: of an operation alone nothing is durable.
            _ if self.connection.is_dead() => return Ok(false),
            Ok(Step::Refused(error)) => return Err(format!("{op}: {error}")),
            Err(error) => return Err(error),
        }
        self.position += 1;
        self.history.begin(self.position);
        let durable = make_durable(volume, model, op);
        self.history.end(&model.model);
        self.position += 1;
        match durable {
            Ok(None) => {}
            Ok(Some(Ack::All)) => self.history.acknowledge_all(self.position),
            Ok(Some(Ack::Inode(ino))) => self.history.acknowledge(self.position, ino),
            Err(_) if self.connection.is_dead() => return Ok(false),
            Err(error) => return Err(format!("{op}: {error}")),
        }
        Ok(true)
    }

    /// Closes the volume, unless the process was ended. Returns whether it was, before or now.
    fn close(&mut self) -> Result<bool, String> {
        if self.connection.is_dead() {
            return Ok(true);
        }
        match self.volume.take().ok_or("it is closed")?.close() {
            Ok(()) => self.history.acknowledge_all(self.position),
            Err(_) if self.connection.is_dead() => {}
            Err(error) => return Err(format!("close: {error}")),
        }
        Ok(self.connection.is_dead())
    }
}

#[cfg(test)]
mod tests {
    use super::super::start::Mode;
    use super::*;

    /// The next owner finds a store that has nothing of the process, although that was told so.
    #[test]
    fn what_was_acknowledged_and_is_not_there_is_seen() {
        let start = Start::new(Mode::Plain.settings()).unwrap();
        let bucket = InBucket::new(&start).unwrap();
        let run = |ops: &[Op]| {
            let world = bucket.world.fork(1);
            let begun = bucket.begin(world.connect(Faults::default()), REQUESTS_MAX);
            let (mut run, mut model) = begun.unwrap();
            ops.iter().for_each(|op| assert!(run.step(&mut model, op).unwrap(), "{op}"));
            run
        };
        let file = super::super::actions::Make::default().create("B", "foo");
        let lost = run(&[file.clone(), Op::Sync]);
        let message = bucket.judge(&bucket.world.fork(1), lost).unwrap_err();
        assert!(message.contains("none of"), "{message}");
        // Nobody was told anything.
        bucket.judge(&bucket.world.fork(1), run(&[file])).unwrap();
    }
}
