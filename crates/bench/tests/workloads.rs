//! Every workload runs to its end on both kinds of target and says what it did.

use shoal_bench::{Args, Workload};
use std::path::PathBuf;

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// A place of its own for a test, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("shoal-bench-{name}.{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Place(path)
    }
    fn entries(&self) -> usize {
        std::fs::read_dir(&self.0).expect("lists").count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench(line: &str) -> Result<Vec<serde_json::Value>, String> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let command = <Command as clap::Parser>::try_parse_from(words).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    shoal_bench::run_into(&command.args, &mut out)?;
    let text = String::from_utf8(out).expect("UTF-8");
    if !command.args.json {
        return Ok(vec![serde_json::Value::String(text)]);
    }
    Ok(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn number(line: &serde_json::Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn every_workload(target: &str, volume: bool) {
    for workload in <Workload as clap::ValueEnum>::value_variants() {
        if workload.needs_volume() && !volume || !workload.needs_target() {
            continue;
        }
        let name = &workload.name();
        // Those that print lines of their own.
        let apart = [
            "parents",
            "truncate",
            "truncate-tracking",
            "remove-tree",
            "age",
            "overwrite",
            "replay",
        ];
        if apart.contains(&name.as_str()) || name == "checkpoint" {
            continue;
        }
        let line = "--threads 2 --files 60 --per-dir 20 --dirs 2 --sample 4 --json \
                    --file-bytes 16K --block-bytes 4K";
        let lines = bench(&format!("{name} --target {target} {line}")).expect(name);
        let whole = lines.last().expect("a line");
        assert_eq!(whole["workload"], *name);
        let ops = match workload {
            // The top directory, those of the threads, and two in each of these.
            Workload::Bulkstat | Workload::Totals => 127.0,
            // A listing also meets the two subdirectories of each thread.
            Workload::Readdirplus => 124.0,
            // A file has four blocks.
            Workload::Append | Workload::ReadRandom => 480.0,
            // So many in all.
            Workload::MakeTree => 60.0,
            _ => 120.0,
        };
        assert_eq!(number(whole, "ops"), ops, "{whole}");
        assert!(number(whole, "ops_per_second") > 0.0, "{whole}");
        if !matches!(workload, Workload::Recover | Workload::Bulkstat | Workload::Totals) {
            assert!(number(&whole["latency_ns"], "p99") > 0.0, "{whole}");
        }
    }
}

#[test]
fn every_workload_runs_on_a_directory_and_leaves_nothing() {
    let place = Place::new("directory");
    every_workload(&format!("dir:{}", place.0.display()), false);
    assert_eq!(place.entries(), 0);
}

#[test]
fn every_workload_runs_on_a_volume_and_leaves_nothing() {
    let place = Place::new("volume");
    every_workload(&format!("vol:{}", place.0.join("v").display()), true);
    assert_eq!(place.entries(), 0);
}

#[test]
fn files_are_cut_and_trees_removed() {
    let place = Place::new("orphans");
    let (dir, vol) = (place.0.display(), place.0.join("v").display().to_string());
    for (target, study, trackings) in [
        (format!("dir:{dir}"), "truncate", 1),
        (format!("vol:{vol}"), "truncate", 1),
        (format!("vol:{vol}"), "truncate-tracking", 3),
    ] {
        let line = format!("{study} --target {target} --threads 2 --bytes 50 --cuts 400 --json");
        let lines = bench(&line).expect("truncate");
        assert_eq!(lines.len(), trackings, "{target}");
        for line in &lines {
            assert_eq!(number(line, "ops"), 400.0, "{line}");
            // As it is none; each of them with the table.
            let slots = if line["tracking"] == "table" { 400.0 } else { 0.0 };
            assert_eq!(number(line, "slots"), slots, "{line}");
        }
        let line = format!("remove-tree --target {target} --threads 2 --files 60 --per-dir 20");
        let lines = bench(&format!("{line} --dirs 2 --json")).expect("remove-tree");
        let whole = lines.last().expect("a line");
        assert!(number(whole, "ops") >= 120.0 && number(whole, "gone_seconds") > 0.0, "{whole}");
    }
    assert_eq!(place.entries(), 0);
}

#[test]
fn a_volume_ages() {
    let place = Place::new("age");
    let plot = place.0.join("age.svg");
    let line = "--threads 2 --files 640 --per-dir 160 --dirs 4 --json";
    let vol = format!("vol:{}/v", place.0.display());
    let more = format!("--rounds 6 --plot {}", plot.display());
    let lines = bench(&format!("age --target {vol} {line} {more}")).expect("ages");
    assert_eq!(lines.len(), 7);
    for (line, round) in lines.iter().zip(0..) {
        assert_eq!(number(line, "round"), f64::from(round));
        assert_eq!(number(line, "inode_blocks_ideal"), 40.0, "160 files in each of 8");
        assert!(number(line, "fragmentation") <= 1.5, "{line}");
        assert!(number(line, "create_bytes") > 0.0, "{line}");
        if round > 0 {
            assert_eq!(number(line, "created"), number(line, "removed"));
            assert!((500.0..780.0).contains(&number(line, "created")), "half of 1,280: {line}");
        }
    }
    let drawing = std::fs::read_to_string(&plot).expect("drawn");
    assert!(drawing.starts_with("<svg") && drawing.matches("<polyline").count() == 5);
    std::fs::remove_file(&plot).expect("removed");

    let lines = bench(&format!("age --target {vol} {line} --rounds 2 --holes")).expect("holes");
    assert_eq!(lines.len(), 4);
    for (line, turn) in lines.iter().zip(0..) {
        assert_eq!(line["holes"], turn % 2 == 1);
        assert_eq!(number(line, "created"), 40.0, "a 32nd of the files");
        assert!(number(line, "fragmentation") <= 2.0, "{line}");
    }

    let lines = bench(&format!("age --target dir:{} {line} --rounds 2", place.0.display()));
    let lines = lines.expect("also system calls");
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.get("inode_blocks").is_none()));
    let target = format!("--target {vol} --threads 1 --files 64 --rounds 2");
    let text = bench(&format!("age {target} --holes")).expect("runs").remove(0);
    assert!(text.as_str().expect("text").contains("against without"), "{text}");
    assert_eq!(place.entries(), 0);
}

#[test]
fn rounds_add_up() {
    let place = Place::new("rounds");
    for workload in ["create", "rename", "unlink", "stat", "write-small"] {
        let target = place.0.display();
        let line = format!("{workload} --target dir:{target} --files 50 --rounds 3 --json");
        let lines = bench(&line).expect(workload);
        assert_eq!(lines.len(), 4, "{workload}");
        assert_eq!(number(&lines[0], "ops"), 50.0, "{workload}");
        assert_eq!(number(&lines[3], "ops"), 150.0, "{workload}");
        assert!(lines[3].get("round").is_none() && lines[2]["round"] == 2);
    }
}

#[test]
fn keep_leaves_the_files_and_a_table_is_for_people() {
    let place = Place::new("keep");
    let line = format!("create --target dir:{} --files 30 --keep", place.0.display());
    let text = bench(&line).expect("runs").remove(0);
    let text = text.as_str().expect("text");
    assert!(text.contains("rate") && text.contains("operations  30"), "{text}");
    assert_eq!(place.entries(), 1);
}

#[test]
fn a_kept_volume_is_used_again() {
    let place = Place::new("reuse");
    let target = format!("--target vol:{} --files 100 --json", place.0.join("v").display());
    bench(&format!("create {target} --keep")).expect("makes the files");
    for workload in ["stat", "rename", "readdirplus", "create", "unlink"] {
        let lines = bench(&format!("{workload} {target} --reuse")).expect(workload);
        assert!(number(&lines[0], "ops") >= 100.0, "{workload}");
    }
    let refused = bench(&format!("create {target}")).expect_err("it looks like a filesystem");
    assert!(refused.contains(&*place.0.join("v").to_string_lossy()), "{refused}");
    bench(&format!("create {target} --force")).expect("overwrites it");
    assert_eq!(place.entries(), 1);
}

#[test]
fn a_missing_directory_is_named() {
    let refused = bench("create --target dir:/nonexistent/place").expect_err("refused");
    assert!(refused.contains("/nonexistent/place"), "{refused}");
}

#[test]
fn the_inode_index_is_measured_for_every_structure() {
    let lines = bench("inode-index --entries 3000 --threads 2 --json").expect("runs");
    let operations = ["insert-once", "insert", "get", "get-once", "get-beside-writer"];
    assert_eq!(lines.len(), 4 * operations.len());
    for (line, n) in lines.iter().zip(0..) {
        let structure = ["xarray", "rbtree", "btreemap", "hashmap"][n / operations.len()];
        assert_eq!(line["workload"], "inode-index");
        assert_eq!(line["structure"], structure, "{line}");
        assert_eq!(line["operation"], operations[n % operations.len()], "{line}");
        assert_eq!(number(line, "count"), 3000.0, "every operation is timed");
        let rising = ["min_ns", "median_ns", "p90_ns", "p95_ns", "p99_ns", "p999_ns", "max_ns"];
        assert!(rising.map(|name| number(line, name)).is_sorted(), "{line}");
        assert!(number(line, "mean_ns") > 0.0 && number(line, "stddev_ns") >= 0.0);
        let histogram = line["histogram"].as_array().expect("buckets");
        let counts = histogram.iter().map(|bucket| bucket[2].as_u64().expect("a count"));
        assert_eq!(counts.sum::<u64>(), 3000);
    }
    // Dense, and small: 47 leaves and the node above them.
    assert_eq!(number(&lines[1], "bytes_per_entry"), 48.0 * 576.0 / 3000.0);

    let text = bench("inode-index --entries 3000").expect("runs").remove(0);
    let text = text.as_str().expect("text");
    for word in ["xarray, insert", "rbtree, get", "Median", "Stddev", "99th:", "#####"] {
        assert!(text.contains(word), "no '{word}' in {text}");
    }
}

#[test]
fn parents_are_compared_in_three_settings() {
    let place = Place::new("parents");
    let volume = place.0.join("v");
    let line = format!(
        "parents --target vol:{} --files 60 --per-dir 20 --dirs 2 --rounds 2 --json",
        volume.display()
    );
    let lines = bench(&line).expect("runs");
    let cells: Vec<(&str, &str)> = lines
        .iter()
        .map(|l| (l["workload"].as_str().expect("text"), l["parents"].as_str().expect("text")))
        .collect();
    assert_eq!(cells.len(), 12);
    assert_eq!(cells[..3], [("create", "off"), ("create", "shortcut"), ("create", "intents")]);
    for line in &lines {
        assert_eq!(number(line, "ops"), 60.0);
        let intents = number(line, "intents");
        // The last unlink of a file leaves its pointer alone in every setting.
        let wanted = line["parents"] == "intents" && line["workload"] != "unlink";
        assert_eq!(intents > 0.0, wanted, "{line}");
    }
    assert_eq!(place.entries(), 0);
    let refused = bench(&format!("parents --target dir:{}", place.0.display()));
    assert!(refused.is_err());
}

#[test]
fn overwrites_are_counted_on_the_device() {
    let place = Place::new("overwrite");
    let line = format!("overwrite --target vol:{} --size 64M --json", place.0.join("v").display());
    let lines = bench(&format!("{line} --fill 60")).expect("runs");
    let whole = lines.last().expect("a line");
    assert_eq!(number(whole, "refused"), 0.0, "{whole}");
    assert!(number(whole, "amplification") > 1.0, "{whole}");
    assert!((number(whole, "full") - 0.6).abs() < 0.05, "{whole}");
    assert!(bench(&format!("{line} --fill 100")).is_err());
    assert!(bench(&format!("{line} --file-bytes 4K")).is_err());
    assert_eq!(place.entries(), 0);
}

/// Every name, size and content of a tree.
fn tree_of(line: &str) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let place = Place::new(&format!("tree{}", line.len()));
    bench(&format!("make-tree --target dir:{} --keep {line}", place.0.display())).expect("a tree");
    let (mut files, mut dirs) = (std::collections::BTreeMap::new(), vec![place.0.clone()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("lists") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    // Behind the scratch directory.
                    let name = path.strip_prefix(&place.0).expect("below").components().skip(1);
                    files.insert(name.collect(), std::fs::read(&path).expect("reads"));
                }
            }
        }
    }
    files
}

#[test]
fn a_seed_makes_the_same_tree_in_any_order() {
    let tree = tree_of("--files 2000 --seed 7");
    assert_eq!(tree.len(), 2000);
    assert_eq!(tree, tree_of("--files 2000 --seed 7 --by-arrival"));
    assert_eq!(tree, tree_of("--files 2000 --seed 7 --threads 3"));
    assert_ne!(tree, tree_of("--files 2000 --seed 8"));
    bench("make-tree --target vol:/nowhere/v --reuse").expect_err("no --reuse");
}

/// A trace of a few operations.
const TRACE: &str = r#"{"shoal_trace":1,"begun_ns":1,"mount":"/mnt"}
{"begun_ns":10,"took_ns":5,"op":"lookup","pid":1,"uid":0,"path":"/old","mode":33188,"size":5000}
{"begun_ns":20,"took_ns":5,"op":"lookup","pid":1,"uid":0,"path":"/dir/new","errno":2}
{"begun_ns":30,"took_ns":5,"op":"create","pid":1,"uid":0,"path":"/dir/new","mode":33188,"flags":2}
{"begun_ns":40,"took_ns":5,"op":"write","pid":2,"uid":0,"path":"/dir/new","size":3000}
{"begun_ns":50,"took_ns":5,"op":"read","pid":1,"uid":0,"path":"/old","size":4096,"values":[4096,0]}
{"begun_ns":60,"took_ns":5,"op":"setattr","pid":2,"uid":0,"path":"/dir/new","flags":1,"mode":384}
{"begun_ns":61,"took_ns":5,"op":"setattr","pid":2,"uid":0,"path":"/dir/new","flags":8,"size":10}
{"begun_ns":62,"took_ns":5,"op":"setattr","pid":2,"uid":0,"path":"/dir/new","flags":48}
{"begun_ns":70,"took_ns":5,"op":"rename","pid":1,"uid":0,"path":"/dir","to":"/moved"}
{"begun_ns":80,"took_ns":5,"op":"getattr","pid":2,"uid":0,"path":"/moved/new"}
{"begun_ns":90,"took_ns":5,"op":"mkdir","pid":1,"uid":0,"path":"/moved/d","mode":493}
{"begun_ns":100,"took_ns":5,"op":"symlink","pid":1,"uid":0,"path":"/moved/l","target":"new"}
{"begun_ns":110,"took_ns":5,"op":"readlink","pid":1,"uid":0,"path":"/moved/l"}
{"begun_ns":120,"took_ns":5,"op":"link","pid":1,"uid":0,"path":"/old","to":"/moved/d/old"}
{"begun_ns":130,"took_ns":5,"op":"readdirplus","pid":3,"uid":0,"path":"/moved","size":4096}
{"begun_ns":140,"took_ns":5,"op":"rmdir","pid":1,"uid":0,"path":"/moved/d","errno":39}
{"begun_ns":150,"took_ns":5,"op":"unlink","pid":1,"uid":0,"path":"/moved/d/old"}
{"begun_ns":160,"took_ns":5,"op":"rmdir","pid":3,"uid":0,"path":"/moved/d"}
{"begun_ns":170,"took_ns":5,"op":"mknod","pid":1,"uid":0,"path":"/pipe","mode":4516}
{"begun_ns":180,"took_ns":5,"op":"fallocate","pid":1,"uid":0,"path":"/old","size":9000}
{"begun_ns":190,"took_ns":5,"op":"copy_file_range","pid":1,"uid":0,"path":"/old","to":"/moved/new"}
{"begun_ns":200,"took_ns":5,"op":"fsync","pid":1,"uid":0,"path":"/old"}
{"begun_ns":210,"took_ns":5,"op":"statfs","pid":1,"uid":0,"path":"/"}
{"begun_ns":220,"took_ns":5,"op":"access","pid":1,"uid":0,"path":"/old","flags":4}
{"begun_ns":230,"took_ns":5,"op":"open","pid":1,"uid":0,"path":"/old"}
{"begun_ns":240,"took_ns":5,"op":"ioctl","pid":1,"uid":0,"path":"/old","flags":21505}
{"begun_ns":250,"took_ns":5,"op":"read","pid":1,"uid":0}
{"begun_ns":260,"took_ns":5,"op":"unlink","pid":1,"uid":0,"path":"/moved/new","errno":13}
{"operations":28,"lost":0,"interruptions":0}
"#;

fn replay_on(target: &str, place: &Place) {
    let file = place.0.join("trace");
    std::fs::write(&file, TRACE).expect("writes");
    let line = format!("replay --target {target} --trace {} --json --sample 1", file.display());
    let whole = bench(&line).expect("replays").pop().expect("a line");
    // Of 28 operations one has no path; and one has no call.
    assert_eq!(number(&whole, "ops"), 27.0);
    assert_eq!(number(&whole, "left_out"), 2.0);
    assert_eq!(number(&whole, "made_before"), 2.0);
    // A user may not, in the trace; the superuser may, here.
    assert_eq!(number(&whole, "differences"), 1.0);
    assert_eq!((number(&whole, "concurrent"), number(&whole, "cut_off")), (3.0, 0.0));
    let cut = TRACE.len() - 60;
    std::fs::write(&file, &TRACE[..cut]).expect("writes");
    let begun = std::time::Instant::now();
    let whole = bench(&format!("{line} --paced")).expect("replays").pop().expect("a line");
    assert_eq!(number(&whole, "cut_off"), 1.0);
    assert!(begun.elapsed() >= std::time::Duration::from_nanos(240));
    let text = bench(&line.replace("--json", "")).expect("replays").pop().expect("text");
    assert!(text.as_str().expect("text").contains("it was cut off"), "{text}");
    std::fs::write(&file, "{}").expect("writes");
    let why = bench(&line).expect_err("no trace");
    assert!(why.contains("trace: not a trace: make one by shoal trace --output"), "{why}");
    std::fs::remove_file(&file).expect("removes");
}

#[test]
fn a_trace_is_replayed_by_system_calls() {
    let place = Place::new("replay-dir");
    replay_on(&format!("dir:{}", place.0.display()), &place);
    assert_eq!(place.entries(), 0, "nothing is left");
}

#[test]
fn a_trace_is_replayed_by_the_library() {
    let place = Place::new("replay-vol");
    replay_on(&format!("vol:{}/v --size 64M", place.0.display()), &place);
    assert_eq!(place.entries(), 0, "nothing is left");
}

/// A trace that makes a symlink out of the tree, and would change what it leads to.
#[test]
fn a_replay_follows_no_symlink() {
    let place = Place::new("replay-symlink");
    let (file, outside) = (place.0.join("trace"), place.0.join("outside"));
    std::fs::write(&outside, "kept").expect("writes");
    let step = |at: u32, op: &str, more: &str| {
        let head = format!(r#"{{"begun_ns":{at},"took_ns":1,"op":"{op}","pid":1,"uid":0"#);
        format!("{head},\"path\":\"/{more}}}\n")
    };
    let steps = [
        step(1, "symlink", &format!(r#"l","target":"{}""#, outside.display())),
        step(2, "symlink", &format!(r#"d","target":"{}""#, place.0.display())),
        step(3, "setattr", r#"l","flags":1,"mode":511"#),
        step(4, "setattr", r#"l","flags":8"#),
        step(5, "write", r#"l","size":10"#),
        step(6, "create", r#"l","flags":1,"mode":420"#),
        step(7, "create", r#"d/new","flags":1,"mode":420"#),
        step(8, "unlink", r#"d/outside""#),
        step(9, "setxattr", r#"l","attribute":"user.x","size":3"#),
        step(10, "mknod", r#"null","mode":8630,"size":259"#),
    ];
    let head = r#"{"shoal_trace":1,"begun_ns":1,"mount":"/mnt"}"#;
    std::fs::write(&file, format!("{head}\n{}", steps.concat())).expect("writes");
    let before = std::fs::metadata(&outside).expect("there").permissions();
    let (dir, trace) = (place.0.display(), file.display());
    let line = format!("replay --target dir:{dir} --trace {trace} --json");
    let whole = bench(&line).expect("replays").pop().expect("a line");
    assert_eq!((number(&whole, "differences"), number(&whole, "left_out")), (7.0, 1.0), "{whole}");
    assert_eq!(std::fs::read(&outside).expect("there"), b"kept");
    assert_eq!(std::fs::metadata(&outside).expect("there").permissions(), before);
    assert_eq!(place.entries(), 2, "the trace and what was there");
}
