//! Time of a checkpoint with one new file on a volume of 100 TiB, in a sparse file: it must not
//! depend on the size of the volume.
//!
//! `cargo test --release -p shoal-engine --test it -- checkpoint_speed:: --ignored --nocapture`
//!
//! The file is made in the directory for temporary files, or in `SHOAL_SPEED_DIR`, which must be on
//! a filesystem that has files of that size (XFS, tmpfs; not ext4). It takes less than 2 GiB there.

use shoal_engine::*;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const CHECKPOINTS: usize = 200;

#[test]
#[ignore = "a measurement: run it in release"]
fn one_file_on_100_tib() {
    let dir = std::env::var_os("SHOAL_SPEED_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = dir.join(format!("shoal-checkpoint-speed-{}", std::process::id()));
    let size = 100 << 40;
    let options = MkfsOptions { size, segment_size: 64 << 20, ..MkfsOptions::default() };
    mkfs(&path, &options).unwrap();
    let start = Instant::now();
    let volume = Volume::open(&path, &OpenOptions::default()).unwrap();
    println!("opened in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let mut took = Vec::new();
    for n in 0..CHECKPOINTS {
        let name = format!("file {n}");
        volume.namespace().create(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o644).unwrap();
        let start = Instant::now();
        volume.maintenance().checkpoint().unwrap();
        took.push(start.elapsed());
    }
    volume.close().unwrap();
    std::fs::remove_file(&path).unwrap();
    took.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "{CHECKPOINTS} checkpoints of one file: median {:.2} ms, least {:.2}, 95 of 100 {:.2}",
        ms(took[took.len() / 2]),
        ms(took[0]),
        ms(took[took.len() * 95 / 100])
    );
}
