//! Sessions: bytes of a message, and questions of a client that may ask anything.
//!
//! Input of [`session`]: one byte of choices, bit 0: the client may do all that the owner may, bit 1:
//! servers die, and it asks again as it likes; then questions: the number of the row (1 byte), how
//! many bytes (1 byte), the bytes.

use crate::overlay::{Overlay, Pages};
use shoal::raw::{
    Caller, Device, Local, MemDevice, MkfsOptions, OpenOptions, Result, RingMemory, Volume, mkfs_on,
};
use shoal_session::fuzzing::{Asker, take_all};
use shoal_session::{Calls, Host, KeptSessions, Node};
use std::sync::{Arc, LazyLock, OnceLock};

/// Memory of sessions that outlive their servers, used by one after another.
static KEPT: LazyLock<Arc<KeptSessions>> = LazyLock::new(|| {
    let ring = RingMemory::without_name().expect("memory");
    KeptSessions::make(Arc::new(ring)).expect("memory")
});

/// Bytes of the volume: the smallest.
const SIZE: u64 = 16 << 20;

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 4 << 20, background: false, ..OpenOptions::default() }
}

/// A volume with a few files, closed.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| make().expect("a volume in memory"))
}

fn make() -> Result<Vec<u8>> {
    let device = Arc::new(MemDevice::new(SIZE));
    mkfs_on(device.clone(), &MkfsOptions { id: Some([7; 16]), ..MkfsOptions::default() })?;
    let volume = Arc::new(Volume::open_on(device.clone(), &options())?);
    let (calls, who) = (Local::new(volume.clone()), Caller::root());
    let how = shoal_session::How {
        write: true,
        create_new: true,
        mode: 0o666,
        ..shoal_session::How::default()
    };
    calls.put(&who, Node::TOP, b"a", how, b"contents")?;
    let dir = calls.make_dir(&who, Node::TOP, b"d", 0o777)?.node;
    calls.put(&who, dir, b"b", how, &[7; 9000])?;
    calls.symlink(&who, dir, b"s", b"b")?;
    calls.close(&who, dir)?;
    drop(calls);
    Arc::into_inner(volume).expect("the only one").close()?;
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

struct Served(Local);

impl Host for Served {
    fn calls(&self) -> &dyn Calls {
        &self.0
    }
    fn may_enter(&self, _: u32) -> bool {
        true
    }
}

/// Questions; then the volume is as sound as before, and nothing is open.
pub fn session(data: &[u8]) {
    let Some((choices, mut questions)) = data.split_first() else { return };
    let device = Arc::new(Overlay::new(base(), Pages::new()));
    let volume = Volume::open_on(device, &options()).expect("a sound volume");
    let volume = Arc::new(volume);
    let host = Arc::new(Served(Local::new(volume.clone())));
    let is_owner = choices & 1 != 0;
    let who = if is_owner { Caller::root() } else { Caller::user(1000, 1000) };
    let mut asker = Asker::new(host, who, is_owner);
    let dies = choices & 2 != 0;
    if dies {
        asker = asker.kept(&KEPT);
    }
    while let [number, len, rest @ ..] = questions {
        let (question, after) = rest.split_at(usize::from(*len).min(rest.len()));
        // Every other question is asked once more, whatever the last call was.
        let _ = match dies && after.len() % 2 == 1 {
            true if after.len() % 8 == 1 => asker.ask_step(question),
            true => asker.ask_again(u16::from(*number), question, after.len() % 4 == 1),
            false => asker.ask(u16::from(*number), question),
        };
        questions = after;
    }
    drop(asker);
    assert!(volume.references().orphan_list().is_empty(), "something is still open");
    let report = volume.check(&mut |_, _| ()).expect("a volume in memory");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Values of all types.
pub fn wire(data: &[u8]) {
    take_all(data);
}
