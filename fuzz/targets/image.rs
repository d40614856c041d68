//! A damaged volume: opened, walked, read, changed, checked. Whatever the damage, calls return,
//! with an error or without.
//!
//! Input: one byte of choices, then patches: which object (1 byte, or 255: any place), where in it
//! (2 bytes), how many bytes (1), the bytes. Of the choices bit 0 puts checksums right, bit 1 opens
//! read-only, bit 2 checks first, the rest is the number of the volume: 0 the fresh one, then the
//! frozen ones.

use crate::frozen;
use crate::overlay::Overlay;
use crate::seal::Image;
use shoal::raw::{
    Caller, Device, FileKind, Ino, MemDevice, MkfsOptions, OpenOptions, RenameFlags, Result,
    SetAttr, Volume, mkfs_on,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Bytes of a volume: the smallest. Larger frozen ones are left out, as a run takes too long.
pub const SIZE: u64 = 16 << 20;
/// A volume with a bit of everything, not closed: its journal has to be replayed. Runs of bytes
/// that are not zero: place 4, length 4, bytes.
static BASE: &[u8] = include_bytes!("../base.image");

/// Most files and entries that are looked at.
const LOOKS: usize = 200;

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 4 << 20, background: false, ..OpenOptions::default() }
}

/// The sound volumes: the fresh one, then the frozen ones by name.
fn sounds() -> &'static [Image] {
    static SOUNDS: OnceLock<Option<Vec<Image>>> = OnceLock::new();
    let sounds = SOUNDS.get_or_init(|| {
        let frozen = frozen::images(SIZE).ok()?.into_iter().map(|frozen| frozen.bytes);
        unpack(BASE).into_iter().chain(frozen).map(Image::new).collect()
    });
    sounds.as_ref().expect("a volume is of another format: scripts/fuzz.sh seed")
}

thread_local! {
    /// Copies that are damaged, and put right again after each run; by number, once needed.
    static SCRATCH: RefCell<BTreeMap<usize, Image>> = const { RefCell::new(BTreeMap::new()) };
}

/// Damage, and what comes of it.
pub fn image(data: &[u8]) {
    let Some((choices, patches)) = data.split_first() else { return };
    let number = usize::from(choices >> 3) % sounds().len();
    let sound = &sounds()[number];
    let pages = SCRATCH.with_borrow_mut(|scratch| {
        let scratch = scratch.entry(number).or_insert_with(|| sound.copy());
        damage(scratch, patches, choices & 1 != 0);
        scratch.take_written(sound)
    });
    let device = Arc::new(Overlay::new(&sound.bytes, pages));
    let read_only = choices & 2 != 0;
    let opened = Volume::open_on(device.clone(), &OpenOptions { read_only, ..options() });
    let Ok(volume) = opened else { return };
    let _ = use_volume(&volume, choices & 4 != 0);
    let _ = volume.close();
    // Again, after what was written.
    if let Ok(volume) = Volume::open_on(device, &options()) {
        let _ = volume.check(&mut |_, _| ());
    }
}

/// Applies the patches, up to one that is outside the volume.
fn damage(scratch: &mut Image, mut patches: &[u8], seal: bool) {
    while let [which, a, b, len, rest @ ..] = patches {
        let place = usize::from(u16::from_le_bytes([*a, *b]));
        let patch = &rest[..rest.len().min(usize::from(*len))];
        let at = match which {
            255 => place * 256,
            n => {
                let (at, len) = scratch.objects[usize::from(*n) % scratch.objects.len()];
                at + place % len.max(1)
            }
        };
        if scratch.put(at, patch).is_none() {
            break;
        }
        patches = &rest[patch.len()..];
    }
    if seal {
        scratch.seal();
    }
}

fn use_volume(volume: &Volume, check_first: bool) -> Result<()> {
    let who = Caller::root();
    if check_first {
        volume.check(&mut |_, _| ())?;
    }
    let (mut dirs, mut files, mut looks) = (vec![Ino::ROOT], Vec::new(), 0);
    while let Some(dir) = dirs.pop() {
        let listed = volume.directories().readdirplus(dir, 0, &mut |entry, _| {
            looks += 1;
            if entry.name != b"." && entry.name != b".." {
                match entry.kind {
                    FileKind::Directory => dirs.push(entry.ino),
                    _ => files.push((dir, entry.name.to_vec(), entry.ino)),
                }
            }
            looks < LOOKS
        });
        let _ = listed;
        let _ = volume.directories().parent_of(dir);
        if looks >= LOOKS {
            break;
        }
    }
    let mut buf = vec![0; 64 << 10];
    for (n, (dir, name, ino)) in files.iter().enumerate() {
        let _ = (volume.namespace().lookup(&who, *dir, name), volume.namespace().readlink(*ino));
        let _ = volume.files().read(*ino, 0, &mut buf);
        let _ = volume.files().read(*ino, 1 << 20, &mut buf[..4096]);
        let _ = change(volume, &who, *dir, name, *ino, n);
    }
    let made = volume.namespace().mkdir(&who, Ino::ROOT, b"made", 0o755)?;
    for n in 0..20u8 {
        let file = volume.namespace().create(&who, made.ino, &[b'f', b'a' + n], 0o644)?;
        volume.files().write(file.ino, 0, &vec![n; usize::from(n) * 300], false)?;
    }
    volume.sync()?;
    volume.maintenance().checkpoint()?;
    volume.check(&mut |_, _| ())?;
    Ok(())
}

fn change(volume: &Volume, who: &Caller, dir: Ino, name: &[u8], ino: Ino, n: usize) -> Result<()> {
    match n % 6 {
        0 => volume.namespace().unlink(who, dir, name),
        1 => volume.files().write(ino, 5000, &[1; 3000], false).map(drop),
        2 => {
            let set = SetAttr { size: Some(10), ..SetAttr::default() };
            volume.attributes().setattr(who, ino, &set).map(drop)
        }
        3 => {
            let new = [b"new-", name].concat();
            volume.namespace().rename(who, dir, name, Ino::ROOT, &new, RenameFlags::default())
        }
        4 => volume.namespace().link(who, ino, Ino::ROOT, &[b"link-", name].concat()).map(drop),
        _ => volume.files().fsync(ino, false),
    }
}

/// The bytes of a volume, from its runs.
pub fn unpack(mut runs: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; SIZE as usize];
    while let Some((head, rest)) = runs.split_first_chunk::<8>() {
        let number = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().unwrap_or(&[0; 4]));
        let (at, len) = (number(0) as usize, number(4) as usize);
        bytes.get_mut(at..at + len)?.copy_from_slice(rest.get(..len)?);
        runs = &rest[len..];
    }
    Some(bytes)
}

/// The runs of a new volume.
pub fn make() -> Result<Vec<u8>> {
    let device = Arc::new(MemDevice::new(SIZE));
    mkfs_on(device.clone(), &MkfsOptions::default())?;
    let volume = Volume::open_on(device.clone(), &options())?;
    let who = Caller::root();
    fill(&volume, &who, b"old", 60)?;
    volume.maintenance().checkpoint()?;
    fill(&volume, &who, b"young", 25)?;
    volume.sync()?;
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(&mut bytes, 0)?;
    let mut runs = Vec::new();
    let mut at = 0;
    while let Some(start) = bytes[at..].iter().position(|b| *b != 0).map(|n| at + n) {
        // Short gaps cost less than another head.
        let gap = bytes[start..].windows(16).position(|w| w.iter().all(|b| *b == 0));
        let end = gap.map_or(bytes.len(), |n| start + n);
        runs.extend((start as u32).to_le_bytes());
        runs.extend(((end - start) as u32).to_le_bytes());
        runs.extend(&bytes[start..end]);
        at = end;
    }
    Ok(runs)
}

fn fill(volume: &Volume, who: &Caller, name: &[u8], count: usize) -> Result<()> {
    let dir = volume.namespace().mkdir(who, Ino::ROOT, name, 0o755)?;
    for n in 0..count {
        let name = format!("{}-{n}", String::from_utf8_lossy(name));
        let file = volume.namespace().create(who, dir.ino, name.as_bytes(), 0o644)?;
        // Inline, one extent, several with a hole between them.
        let len = [0, 100, 3000, 20_000][n % 4];
        volume.files().write(file.ino, 0, &vec![0; len], false)?;
        if n % 16 == 3 {
            (0..12)
                .try_for_each(|i| volume.files().write(file.ino, i << 14, b"x", false).map(drop))?;
        }
        match n % 10 {
            7 => volume.namespace().unlink(who, dir.ino, name.as_bytes())?,
            8 => drop(volume.namespace().symlink(
                who,
                dir.ino,
                format!("s{n}").as_bytes(),
                b"old-1",
            )?),
            9 => drop(volume.namespace().mkdir(who, dir.ino, format!("d{n}").as_bytes(), 0o700)?),
            _ => {}
        }
    }
    // In use without a name: an orphan.
    let orphan = volume.namespace().create(who, dir.ino, b"orphan", 0o600)?;
    volume.references().hold(orphan.ino, 1)?;
    volume.namespace().unlink(who, dir.ino, b"orphan")
}
