//! What the fuzz targets do with their input; each target in `bin` calls one function of these. All
//! of it runs without libFuzzer too: the tests replay the corpus.
//!
//! | module | input is |
//! | --- | --- |
//! | [`decoders`] | bytes of one structure on disk |
//! | [`coded`] | bytes to be decoded by a codec: nodes, inode blocks, anything |
//! | [`request`] | bytes of one request of the kernel, or of a call through the ioctl |
//! | [`session`] | questions of a client of a session, or bytes of its messages |
//! | [`token`] | bytes or text of a token, or changes of a valid one |
//! | [`changes`] | bytes or text of a mark, or of the stored window of removed names |
//! | [`archive`] | bytes of an archive of tar |
//! | [`tree`] | changes of a tree, which a `BTreeMap` follows |
//! | [`image`] | damage to a volume, a fresh one or a frozen one, which is then opened and used |
//!
//! [`frozen`] cuts inputs out of the frozen images.
//!
//! Checksums keep random bytes out, so most targets look at their input twice: as it is, and with
//! magic and checksum put right, as after a fault in our own code or on purpose.

pub mod archive;
pub mod changes;
pub mod coded;
pub mod decoders;
pub mod frozen;
pub mod image;
pub mod overlay;
pub mod request;
pub mod seal;
pub mod session;
pub mod token;
pub mod tree;

/// Code of a target: takes an input, and panics if something is wrong.
pub type Target = fn(&[u8]);

/// Targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("superblock", decoders::superblock),
    ("checkpoint", decoders::checkpoint),
    ("root_page", decoders::root_page),
    ("orphan_list", decoders::orphan_list),
    ("codec", coded::codec),
    ("node", coded::node),
    ("inode_block", coded::inode_block),
    ("usage", decoders::usage),
    ("batch", decoders::batch),
    ("bucket_object", decoders::bucket_object),
    ("bucket_manifest", decoders::bucket_manifest),
    ("orphan", decoders::orphan),
    ("claim", decoders::claim),
    ("copy_mark", decoders::copy_mark),
    ("extent", decoders::extent),
    ("dirent", decoders::dirent),
    ("tree_change", decoders::tree_change),
    ("quota", decoders::quota),
    ("request", request::request),
    ("control", request::control),
    ("session", session::session),
    ("wire", session::wire),
    ("token", token::token),
    ("changes", changes::changes),
    ("archive", archive::archive),
    ("tree", tree::tree),
    ("image", image::image),
];

#[cfg(test)]
mod tests {
    use super::Target;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// Changes of the corpus that each target gets; some targets are slow.
    const RUNS: u64 = 50_000;
    const RUNS_OF_SLOW: &[(&str, u64)] = &[
        ("codec", 2_000),
        ("node", 5_000),
        ("inode_block", 20_000),
        ("batch", 30_000),
        ("tree", 2_000),
        ("session", 1_000),
        ("image", 400),
    ];
    /// Longest run, where the number of runs is not fixed: `SHOAL_FUZZ_SECONDS` is set by who wants
    /// to find something, on a machine where this is long.
    const RUN_MAX: Duration = Duration::from_secs(20);

    /// The corpus of a target, and what libFuzzer has found for it on this machine.
    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let kept = std::fs::read_dir(here.join("corpus").join(name));
        let found = std::fs::read_dir(here.join("found").join(name));
        let files = kept.expect("each target has a corpus").chain(found.into_iter().flatten());
        let read = |file: std::io::Result<std::fs::DirEntry>| {
            let path = file.expect("a readable folder").path();
            std::fs::read(path).expect("a readable file")
        };
        let inputs: Vec<Vec<u8>> = files.map(read).collect();
        assert!(!inputs.is_empty(), "{name} has no corpus");
        inputs
    }

    #[test]
    fn every_target_survives_its_corpus() {
        for (name, target) in super::TARGETS {
            corpus(name).iter().for_each(|input| target(input));
        }
    }

    /// xorshift64*: enough to choose bytes by.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % n.max(1)
        }
    }

    /// Some bytes changed, removed, put in, or taken from another input.
    fn mutated(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = inputs[rng.below(inputs.len())].clone();
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(input.len());
            match rng.below(6) {
                0 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
                1 if !input.is_empty() => {
                    input[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][rng.below(6)];
                }
                2 => input.truncate(at),
                3 => input.insert(at, rng.below(256) as u8),
                4 if input.len() - at >= 8 => {
                    let word = [0, 1, u64::MAX, 1 << 63, u64::from(u32::MAX)][rng.below(5)];
                    input[at..at + 8].copy_from_slice(&word.to_le_bytes());
                }
                _ => {
                    let other = &inputs[rng.below(inputs.len())];
                    let from = rng.below(other.len());
                    let len = rng.below(64).min(other.len() - from);
                    input.splice(at..at, other[from..from + len].iter().copied());
                }
            }
        }
        input
    }

    fn from_env<T: std::str::FromStr>(name: &str) -> Option<T> {
        std::env::var(name).ok().and_then(|value| value.parse().ok())
    }

    /// The other threads need not go on.
    static FAILED: AtomicBool = AtomicBool::new(false);

    /// Runs changes of the inputs. Returns how many.
    fn run(name: &str, target: Target, inputs: &[Vec<u8>], seed: u64) -> u64 {
        let (mut rng, mut runs) = (Rng(seed | 1 << 40), 0);
        let time = from_env("SHOAL_FUZZ_SECONDS").map(Duration::from_secs);
        let slow = RUNS_OF_SLOW.iter().find(|(slow, _)| *slow == name);
        let (begun, last) = (Instant::now(), slow.map_or(RUNS, |(_, runs)| *runs));
        let is_over = |runs| time.map_or(runs == last, |time| begun.elapsed() >= time);
        // What aborts cannot say what it was given.
        let kept = std::env::var("SHOAL_FUZZ_LAST").map(|at| format!("{at}.{name}.{seed}")).ok();
        while !is_over(runs) && !FAILED.load(Relaxed) {
            let input = mutated(&mut rng, inputs);
            if let Some(kept) = &kept {
                std::fs::write(kept, &input).expect("SHOAL_FUZZ_LAST can be written");
            }
            let begun = Instant::now();
            let ran = std::panic::catch_unwind(|| target(&input));
            FAILED.fetch_or(ran.is_err(), Relaxed);
            assert!(ran.is_ok(), "{name} fails with {}", input.escape_ascii());
            let took = begun.elapsed();
            let is_short = time.is_none() || took < RUN_MAX;
            assert!(is_short, "{name} takes {took:?} with {}", input.escape_ascii());
            runs += 1;
        }
        runs
    }

    /// A fixed number of changes for each target, or for `SHOAL_FUZZ_TARGET` alone; or as many as
    /// `SHOAL_FUZZ_SECONDS` allows. `SHOAL_FUZZ_SEED` chooses the changes, `SHOAL_FUZZ_THREADS`
    /// try at a time. A failure
    /// prints its input; with `SHOAL_FUZZ_LAST=FILE` that is also kept before each run.
    #[test]
    fn every_target_survives_changes_of_its_corpus() {
        let seed: u64 = from_env("SHOAL_FUZZ_SEED").unwrap_or(1);
        let threads = from_env("SHOAL_FUZZ_THREADS").unwrap_or(1);
        let only = std::env::var("SHOAL_FUZZ_TARGET").ok();
        let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
        for (name, target) in super::TARGETS.iter().filter(|(name, _)| wanted(name)) {
            let inputs = &corpus(name);
            let runs: u64 = std::thread::scope(|scope| {
                let start = |n| scope.spawn(move || run(name, *target, inputs, seed + n));
                let all: Vec<_> = (0..threads).map(start).collect();
                all.into_iter().map(|thread| thread.join().expect("see above")).sum()
            });
            println!("{name}: {runs} runs from {} inputs", inputs.len());
        }
    }
}
