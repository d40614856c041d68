//! Makes a volume, writes 1,000 files by path, lists them with metadata and reads them back.
//!
//! ```sh
//! cargo run -p shoal --example twenty_lines [VOLUME]
//! ```

use shoal::{Credentials, Volume};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = std::env::temp_dir().join(format!("shoal-twenty-lines-{}", std::process::id()));
    let path = std::env::args_os().nth(1).map_or(scratch.clone(), Into::into);
    let volume = Volume::options().create(true).size(1 << 30).open(&path)?;
    let root = volume.root(Credentials::current());
    let samples = root.create_dir_all("training/samples")?;
    for n in 0..1000 {
        samples.write(format!("{n:04}.txt"), format!("sample {n}"))?;
    }
    samples.sync_all()?; // durable: all of them with one flush
    let (mut files, mut bytes) = (0, 0);
    for entry in samples.entries()? {
        let entry = entry?;
        bytes += entry.metadata()?.len();
        files += samples.read(entry.name())?.starts_with(b"sample ") as usize;
    }
    assert_eq!((files, bytes), (1000, 9890));
    drop((samples, root)); // what is open keeps the volume open
    volume.close()?;
    let _ = std::fs::remove_file(scratch); // there is none if an argument names the volume
    Ok(())
}
