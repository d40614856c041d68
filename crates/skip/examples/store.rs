//! A store that speaks S3, in memory, for trying by hand: prints the variables by which programs
//! find it, and runs until it is killed.
//!
//! `store [DIRECTORY]`: while there is a file in the directory, requests fail: `hang-GET` and
//! `hang-PUT` are not answered, `403-PUT` and `503-GET` (any number and method) are refused.

use shoal_skip::s3::{Request, Server, Weather};
use std::path::Path;
use std::time::Duration;

/// The names of the files in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn weather(names: &[String], request: &Request) -> Weather {
    for (what, method) in names.iter().filter_map(|name| name.split_once('-')) {
        if method == request.method {
            return match what.parse() {
                Ok(status) => Weather::Answer(status, "Refused", ""),
                Err(_) => Weather::Hang,
            };
        }
    }
    Weather::Fair
}

fn main() {
    let server = Server::start();
    for (name, value) in server.variables() {
        println!("export {name}={value}");
    }
    let directory = std::env::args().nth(1).unwrap_or_default();
    let mut before = Vec::new();
    loop {
        let now = names(Path::new(&directory));
        if now != before {
            before.clone_from(&now);
            // Those that hang look again.
            server.set_weather(move |request| weather(&now, request));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
