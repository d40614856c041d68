//! A mount shows what it does: statistics, `.shoal/`, metrics by HTTP, `shoal top`,
//! `shoal trace`.

use crate::common;

use crate::common::{Scratch, as_user, run_as_user};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A mounted volume with some work done on it.
fn worked(options: &str) -> Option<Scratch> {
    let scratch = Scratch::to_mount()?;
    scratch.shoal(["mount", "v", "m", "-o", options]).ok();
    scratch.shell("mkdir m/d && for n in 1 2 3 4 5; do echo $n > m/d/$n; done").ok();
    scratch.shell("cat m/d/* > /dev/null; rm m/d/5; ls -l m/d > /dev/null; sync m/d/1").ok();
    Some(scratch)
}

fn end(scratch: &Scratch) {
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["fsck", "v"]).status().filter(|status| *status == 0).expect("sound");
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn stats_have_every_operation() {
    let Some(scratch) = worked("rw") else { return };
    let stats = json(&scratch.shoal(["stats", "m", "--json"]).ok());
    for (name, least) in [("create", 5), ("mkdir", 1), ("write", 5), ("unlink", 1), ("fsync", 1)] {
        let operation = &stats["operations"][name];
        assert!(operation["count"].as_u64() >= Some(least), "{name}: {operation}");
        assert!(operation["p99"].as_f64() > Some(0.0), "{name}: {operation}");
        assert!(operation["p50"].as_f64() <= operation["p99.9"].as_f64(), "{operation}");
    }
    assert!(stats["operations"]["write"]["bytes"].as_u64() >= Some(10));
    for name in ["device_write", "device_flush", "journal_wait"] {
        assert!(stats["volume"][name]["count"].as_u64() > Some(0), "{name}: {stats}");
    }
    // Exact, because it is timed each time; the request is another number.
    let call = &stats["calls"]["fsync"];
    assert!(call["count"].as_u64() >= Some(1) && call["errors"] == 0, "{call}");
    assert!(stats["operations"]["copy_range"].is_null() && stats["calls"]["init"].is_null());
    let document = json(&scratch.shell("cat m/.shoal/stats").ok());
    assert_eq!(document["calls"]["fsync"]["weight"], 1, "{document}");
    assert!(document["calls"]["fsync"]["buckets"].is_array());
    let text = scratch.shoal(["stats", "m"]).ok();
    for part in [
        "\nrequests:\noperation ",
        "\nmkdir ",
        "\ncalls of the library (",
        "\ninside the volume:\n",
        "\ndevice_write ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // An ordinary user may see it too, if let in.
    end(&scratch);
}

/// Operations with one request for each call are counted as often as strace sees the call.
#[test]
fn operations_are_counted_as_strace_sees_the_calls() {
    let Some(scratch) = worked("rw") else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        shoal_skip::skipped("strace is not on this machine");
        return end(&scratch);
    }
    let counts = || json(&scratch.shoal(["stats", "m", "--json"]).ok())["operations"].take();
    let before = counts();
    let work = "cd m; mkdir t t/d; for n in 1 2 3 4 5 6 7; do touch t/$n; ln t/$n t/d/$n; \
        ln -s $n t/s$n; done; mv t/1 t/moved; mv t/d/2 t/two; sync t/3 t/4; rm t/5 t/d/5 t/s5; \
        rm -r t/d; mkdir t/e; rmdir t/e";
    let calls = "trace=%file,fsync";
    scratch.shell(&format!("strace -f -qq -o calls -e {calls} sh -c '{work}'")).ok();
    let after = counts();
    let calls = fs::read_to_string(scratch.path("calls")).expect("what strace saw");
    // The operation of a line, if the call succeeded.
    let kind_of = |line: &str| {
        let line = line.split_once(' ')?.1.trim_start();
        let (call, rest) = line.split_once('(')?;
        let succeeded = rest.rsplit("= ").next().is_some_and(|result| !result.starts_with('-'));
        let kind = match call.trim_end_matches('2').trim_end_matches("at") {
            "unlink" if rest.contains("AT_REMOVEDIR") => "rmdir",
            "open" if rest.contains("O_CREAT") => "create",
            name => name,
        };
        succeeded.then(|| kind.to_owned())
    };
    let seen: Vec<String> = calls.lines().filter_map(kind_of).collect();
    for kind in ["create", "mkdir", "link", "symlink", "rename", "unlink", "rmdir", "fsync"] {
        // A rename with flags is an operation of its own.
        let names = [kind, &format!("{kind}2")];
        let count = |of: &serde_json::Value| -> u64 {
            names.iter().filter_map(|name| of[*name]["count"].as_u64()).sum()
        };
        let seen = seen.iter().filter(|it| *it == kind).count() as u64;
        assert!(seen > 0, "{kind} in {calls}");
        assert_eq!(count(&after) - count(&before), seen, "{kind}: {calls}");
    }
    end(&scratch);
}

/// Returns the names of the problems of a mount, and their texts.
fn problems(scratch: &Scratch) -> (String, String) {
    let health = json(&scratch.shell("cat m/.shoal/health").ok());
    let all = health["problems"].as_array().expect("a list");
    let names: Vec<&str> = all.iter().filter_map(|it| it["name"].as_str()).collect();
    (
        format!("{} {}", health["status"].as_str().expect("a word"), names.join(" ")),
        health.to_string(),
    )
}

/// Nothing is written wrongly yet, so only the health tells before all of it is gone.
#[test]
fn a_volume_whose_file_was_removed_is_not_well() {
    let Some(scratch) = worked("keeper=off") else { return };
    assert_eq!(problems(&scratch).0, "ok ");
    fs::remove_file(scratch.path("v")).expect("remove");
    let (names, text) = problems(&scratch);
    assert_eq!(names, "warning unlinked", "{text}");
    assert!(text.contains("has been removed") && text.contains("copy it"), "{text}");
    scratch.shell("umount m").ok();
}

/// A volume that could be larger is no use where the disk below its file is full.
#[test]
fn a_full_disk_below_the_volume_is_named() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let tmpfs = scratch.shell("mount -t tmpfs -o size=48m tmpfs n");
    if tmpfs.status() != Some(0) {
        return shoal_skip::skipped("a tmpfs cannot be mounted");
    }
    scratch.shoal(["mkfs", "n/v", "--size", "256M"]).ok();
    scratch.shoal(["mount", "n/v", "m", "-o", "keeper=off"]).ok();
    scratch.shell("cat /dev/zero > n/ballast");
    let (names, text) = problems(&scratch);
    assert_eq!(names, "warning host_space", "{text}");
    assert!(text.contains("n/v is nearly full: make space there"), "{text}");
    assert!(!text.contains("grow the volume"), "{text}");
    fs::remove_file(scratch.path("n/ballast")).expect("remove");
    scratch.shoal(["umount", "m"]).ok();
    assert!(scratch.shoal(["fsck", "n/v"]).ok().contains("n/v: clean"));
}

#[test]
fn a_mount_that_was_made_read_only_is_well() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "ro"]).ok();
    assert_eq!(problems(&scratch).0, "ok ");
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn the_directory_of_documents_is_for_who_has_mounted() {
    let Some(scratch) = worked("allow_other,slow=1us") else { return };
    assert_eq!(scratch.shell("ls -A m").ok(), "d\n", "not listed");
    assert_eq!(scratch.shell("ls -A m/.shoal").ok(), "config\nhealth\nmetrics\nslow\nstats\n");
    for name in ["config", "health", "slow", "stats"] {
        let text = scratch.shell(&format!("cat m/.shoal/{name}")).ok();
        assert!(json(&text).is_object(), "{name}");
        let size = scratch.shell(&format!("stat -c %s m/.shoal/{name}")).ok();
        assert!(size.trim().parse::<usize>().is_ok_and(|size| size > 2), "{name}: {size}");
    }
    let config = json(&scratch.shell("cat m/.shoal/config").ok());
    assert_eq!(config["options"]["allow_other"], true);
    assert_eq!(config["slow"], 1e-6);
    let slow = json(&scratch.shell("cat m/.shoal/slow").ok());
    let kept = slow["slow"].as_array().expect("a list");
    assert!(kept.iter().any(|it| it["path"] == "/d" && it["uid"] == 0), "{slow}");
    assert!(kept.len() <= 256 && slow["count"].as_u64() >= Some(kept.len() as u64));
    let fsync = kept.iter().find(|it| it["operation"] == "fsync").expect("fsync");
    assert!(fsync["waited"]["journal"].as_f64() > Some(0.0), "{fsync}");
    assert!(scratch.shell("cat m/.shoal/metrics").ok().contains("# TYPE shoal_inodes gauge\n"));
    // Two descriptors have two texts, each of its moment.
    scratch.shell("exec 3< m/.shoal/stats; touch m/x; cat <&3 | tail -1").ok();
    for line in [
        "echo > m/.shoal/stats",
        "echo > m/.shoal/new",
        "rm -f m/.shoal/stats",
        "mkdir m/.shoal/d",
        "chmod 777 m/.shoal",
        "mv m/d m/.shoal/d",
        "ln m/x m/.shoal/x",
    ] {
        assert_ne!(scratch.shell(line).status(), Some(0), "{line}");
    }
    for line in ["ls m/.shoal", "cat m/.shoal/stats", "cat m/.shoal/slow", "cd m/.shoal"] {
        assert_ne!(run_as_user(&scratch, line).status(), Some(0), "{line}");
    }
    as_user(&scratch, "shoal stats m --json");
    end(&scratch);
    // A real one comes first.
    scratch.shoal(["mkdir", "v:/.shoal"]).ok();
    scratch.shoal(["mount", "v", "m"]).ok();
    assert_eq!(scratch.shell("ls -A m m/.shoal").ok(), "m:\n.shoal\nd\nx\n\nm/.shoal:\n");
    end(&scratch);
}

/// Documents that are open, more than are kept: whoever has an old one gets an error, and the
/// server keeps no more.
#[test]
fn many_open_documents_end_the_oldest() {
    let Some(scratch) = worked("rw") else { return };
    let open = |_| fs::File::open(scratch.path("m/.shoal/stats")).expect("open");
    let mut files: Vec<fs::File> = (0..100).map(open).collect();
    let read = |file: &mut fs::File| file.read_to_string(&mut String::new());
    assert!(read(&mut files[0]).is_err(), "pushed out");
    assert!(read(&mut files[99]).is_ok_and(|len| len > 1000));
    drop(files);
    end(&scratch);
}

#[test]
fn top_shows_who_does_what() {
    let Some(scratch) = worked("allow_other") else { return };
    scratch.shell("mkdir m/u && chmod 777 m/u").ok();
    let load = "(n=0; while :; do n=$((n+1)); echo > m/u/f$n; done) & load=$!; \
                shoal top m --once --every 2 --json; kill $load; wait 2> /dev/null";
    let root = json(&scratch.shell(load).ok());
    assert!(root["operations"]["create"]["count"].as_u64() > Some(100), "{root}");
    assert_eq!(root["users"][0]["id"], 0);
    assert!(root["users"][0]["requests"].as_f64() > Some(50.0), "{root}");
    let names: Vec<_> = root["processes"].as_array().expect("a list").iter().collect();
    assert!(names.iter().any(|row| row["name"] == "sh"), "{root}");
    assert!(root["now"]["segments_free"].as_u64() > Some(0));
    let user = json(&as_user(&scratch, "shoal top m --once --every 1 --json"));
    assert!(user["users"].is_null() && user["operations"].is_object(), "{user}");
    let text = scratch.shell("ls m/u > /dev/null & shoal top m --once --every 1").ok();
    for part in [" operations/s   p50 ", "\nspace: ", "\nuser ", "\nprocess "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    scratch.shoal(["top", "."]).fails(2, &["is not in a mounted Shoal volume"]);
    end(&scratch);
}

/// Lines of a trace of `work` on a mount: the tracer is there before, and ends after it. What
/// earlier ones have left would say so too early.
fn trace(scratch: &Scratch, options: &str, work: &str) -> String {
    let line = format!(
        "rm -f t.*; shoal trace m {options} > t.out 2> t.err & tracer=$!; \
         for n in $(seq 6000); do grep -qs shoal_trace t.* && break; sleep 0.05; done; \
         ({work}); \
         for n in $(seq 6000); do touch m/last$n; grep -qs /last t.* && break; sleep 0.05; done; \
         kill -INT $tracer; wait $tracer; cat t.out"
    );
    scratch.shell(&line).ok()
}

#[test]
fn a_trace_has_each_operation_with_its_path_and_caller() {
    let Some(scratch) = worked("allow_other") else { return };
    let work = "mkdir m/a; echo text > m/a/f; mv m/a m/b; cat m/b/f > /dev/null; chmod 640 m/b/f; \
                ln m/b/f m/b/g; setfattr -n user.x -v 1 m/b/g 2> /dev/null; rm m/b/f; \
                rmdir m/b 2> /dev/null; cat m/d/1 > /dev/null";
    let lines = trace(&scratch, "--json", work);
    let lines: Vec<_> = lines.lines().map(json).collect();
    let (head, tail) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!((&head["mount"], &head["shoal_trace"]), (&"m".into(), &1.into()));
    let told = lines.len() as u64 - 2;
    assert_eq!((tail["operations"].as_u64(), tail["lost"].as_u64()), (Some(told), Some(0)));
    let find = |op: &str, path: &str| {
        let found = lines.iter().find(|line| line["op"] == op && line["path"] == path);
        found.unwrap_or_else(|| panic!("no {op} of {path} in {lines:#?}"))
    };
    assert_eq!(find("mkdir", "/a")["mode"].as_u64().map(|mode| mode & 0o700), Some(0o700));
    assert_eq!(find("write", "/a/f")["size"], 5);
    let moved = lines.iter().find(|line| line["to"] == "/b").expect("the rename");
    assert_eq!(moved["path"], "/a");
    assert_eq!(find("setattr", "/b/f")["mode"].as_u64().map(|mode| mode & 0o777), Some(0o640));
    assert_eq!(find("link", "/b/f")["to"], "/b/g");
    assert_eq!(find("rmdir", "/b")["errno"], 39);
    find("unlink", "/b/f");
    assert!(find("create", "/a/f")["took_ns"].as_u64() > Some(0));
    end(&scratch);
}

#[test]
fn a_trace_is_filtered_and_replayed() {
    let Some(scratch) = worked("allow_other") else { return };
    let work =
        "cp m/d/1 m/d/copy; rm m/d/2; mkdir m/e; mv m/d/3 m/e; cat m/e/3 m/none > /dev/null 2>&1";
    trace(&scratch, "--output t.trace", work);
    let said = scratch.shell("cat t.err").ok();
    assert!(said.starts_with("shoal: t.trace: ") && said.ends_with(" operations\n"), "{said}");
    assert_eq!(scratch.shell("stat -c %a t.trace").ok(), "600\n", "names of everybody's files");
    scratch.shell("mkdir other").ok();
    for target in ["dir:other", "dir:m", "vol:w"] {
        let line =
            format!("shoal bench replay --trace t.trace --target {target} --json --size 64M");
        let played = json(&scratch.shell(&line).ok());
        assert_eq!(played["differences"], 0.0, "{target}: {played}");
        assert_eq!(played["cut_off"], 0.0);
        assert!(played["made_before"].as_f64() >= Some(4.0), "d, 1, 2, 3: {played}");
    }
    scratch.shell("head -c 500 t.trace > cut; echo x >> cut").ok();
    let refused = scratch.shell("shoal bench replay --trace cut --target dir:other");
    refused.fails(1, &["cut: line "]);
    // Filters.
    let failed = trace(&scratch, "--json --failed --op lookup,create", "cat m/no 2> /dev/null; :");
    assert!(failed.lines().skip(1).all(|line| !line.contains("\"op\"") || line.contains("errno")));
    let text = scratch.shell(
        "timeout 60 shoal trace m --count 2 --path /d --op unlink,create --user root > t.out & \
         tracer=$!; \
         while kill -0 $tracer 2> /dev/null; do echo > m/d/new; echo > m/other; rm m/d/new; done; \
         cat t.out",
    );
    let text = text.ok();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.lines().all(|line| line.contains("  /d/new")), "{text}");
    scratch.shoal(["trace", "m", "--user", "nobody-here"]).fails(2, &["no such user"]);
    scratch.shoal(["trace", "."]).fails(2, &["is not in a mounted Shoal volume"]);
    scratch.shoal(["trace", "m", "--output", "/none/x"]).fails(2, &["/none/x: no such file"]);
    let user = run_as_user(&scratch, "shoal trace m --count 1");
    user.fails(1, &["operation not permitted"]);
    end(&scratch);
}

pub(crate) fn get(mut stream: impl Read + Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("write");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("read");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    text.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

/// Returns a port that is free now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.local_addr().expect("address").port()
}

#[test]
fn metrics_are_offered_by_http() {
    let port = free_port();
    let Some(scratch) = worked(&format!("slow=1us,metrics=:{port}")) else { return };
    let ask = |path| get(TcpStream::connect(("127.0.0.1", port)).expect("connect"), path);
    let metrics = ask("/metrics");
    assert!(metrics.contains("shoal_operation_duration_seconds_count{operation=\"create\"} "));
    let page = ask("/");
    assert!(page.starts_with("<!doctype html>"));
    // It asks nobody else.
    let foreign = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!foreign.contains("http:") && !foreign.contains("https:") && !foreign.contains("src="));
    assert!(json(&ask("/stats.json"))["operations"]["create"]["buckets"].is_array());
    assert_eq!(json(&ask("/health.json"))["status"], "ok");
    let slow = json(&ask("/slow.json"));
    assert!(slow["slow"][0]["seconds"].is_number(), "{slow}");
    for whose in ["path", "pid", "uid"] {
        assert!(slow["slow"][0].get(whose).is_none(), "of nobody's files: {slow}");
    }
    // The address is in use: the second mount is refused in a line.
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    let address = format!("127.0.0.1:{port}");
    let second = scratch.shoal(["mount", "w", "n", "--metrics", &address]);
    second.fails(1, &[&address, "another program listens there"]);
    assert!(!common::is_mount(&scratch.path("n")));
    let socket = scratch.path("socket");
    let unix = format!("unix:{}", socket.display());
    scratch.shoal(["mount", "w", "n", "--metrics", &unix, "-o", "slow=1us"]).ok();
    scratch.shell("ls n").ok();
    let slow = json(&get(UnixStream::connect(&socket).expect("connect"), "/slow.json"));
    assert_eq!(slow["slow"][0]["uid"], 0, "{slow}");
    scratch.shoal(["umount", "n"]).ok();
    assert!(!socket.exists());
    scratch.shoal(["mount", "w", "n", "--metrics", "9500"]).fails(2, &["--metrics", "write :PORT"]);
    end(&scratch);
    // At once: nothing of the old server is left.
    scratch.shoal(["mount", "v", "m", "--metrics", &format!(":{port}")]).ok();
    end(&scratch);
}

/// The dashboard and the alerts use metrics that there are.
#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let Some(scratch) = worked("rw") else { return };
    scratch.shoal(["generate", "grafana", "out"]).ok();
    let metrics = scratch.shell("cat m/.shoal/metrics").ok();
    let alerts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/shoal-alerts.yml");
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring.md");
    for file in [scratch.path("out/shoal-dashboard.json"), alerts.into(), manual.into()] {
        let text = fs::read_to_string(&file).expect("read");
        let is_word = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let words = text.split(|letter| !is_word(letter));
        let names: Vec<&str> = words.filter(|word| word.starts_with("shoal_")).collect();
        assert!(names.len() > 5, "{}", file.display());
        for name in names {
            let is_there = ["{", " "].iter().any(|end| metrics.contains(&format!("\n{name}{end}")))
                || metrics.contains(&format!("# TYPE {name} "));
            assert!(is_there, "{name} of {}", file.display());
        }
    }
    end(&scratch);
}

#[test]
fn the_log_is_json_if_wanted_and_slow_operations_are_in_it() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch
        .shoal(["mount", "v", "m", "--log", "log", "--log-format", "json", "-o", "slow=1us"])
        .ok();
    scratch.shell("for n in $(seq 300); do echo > m/$n; done").ok();
    end(&scratch);
    let log = fs::read_to_string(scratch.path("log")).expect("a log");
    let lines: Vec<serde_json::Value> = log.lines().map(json).collect();
    assert!(lines.iter().any(|line| line["message"] == "mounted"), "{log}");
    let slow: Vec<_> = lines.iter().filter(|line| line["message"] == "slow operation").collect();
    let create = slow.iter().find(|line| line["op"] == "create");
    let create = create.unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&create["level"], &create["uid"]), (&"WARN".into(), &0.into()));
    assert!(slow.len() <= 40, "hundreds were slow: {}", slow.len());
}
