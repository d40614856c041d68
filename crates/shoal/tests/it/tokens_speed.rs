//! Opening a file by a token, against opening it by its path, which decides no test:
//!
//! `cargo test --release -p shoal --test it -- tokens_speed:: --ignored --nocapture`

use shoal::{Credentials, Rights, Volume};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Directories above the file.
const DEPTH: usize = 10;
const OPENS: u32 = 200_000;

/// Returns the nanoseconds of a call, in the fastest of five rounds.
fn time(mut call: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..OPENS).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(OPENS)
    };
    (0..5).map(round).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "a measurement: run it in release"]
fn a_token_and_a_path_ten_deep() {
    let volume = Volume::options().size(256 << 20).in_memory().unwrap();
    let root = volume.root(Credentials::root());
    let mut path = String::new();
    for level in 0..DEPTH {
        path.push_str(&format!("directory-{level}/"));
        root.create_dir(&path).unwrap();
        for n in 0..100 {
            root.write(format!("{path}file-{n}"), b"x").unwrap();
        }
    }
    let file = format!("{path}file-50");
    let token = root.share(&file, Rights::READ, Duration::from_secs(3600)).unwrap();
    for (who, credentials) in
        [("root", Credentials::root()), ("a user", Credentials::user(1000, 1000))]
    {
        let dir = volume.root(credentials);
        let by_path = time(|| drop(black_box(dir.open(&file).unwrap())));
        let by_token = time(|| drop(black_box(volume.open_token(&token).unwrap())));
        println!(
            "{who}: path {by_path:.0} ns, token {by_token:.0} ns: {:.2} x",
            by_path / by_token
        );
    }
}
