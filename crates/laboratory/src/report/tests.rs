//! The report of a made-up run: its numbers, its forms, and the runs that have little in them.

use super::*;
use crate::machine::{Machine, Now};
use crate::raw::{Line, Skipped};
use serde_json::{Map, Value, json};

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("shoal-report-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn line(system: &str, case: &str, round: u32, result: Value) -> Line {
    let result: Map<String, Value> = result.as_object().expect("an object").clone();
    let command = format!("{system}: a <command> --case {case}");
    let now = Now { load: 0.5, mhz: 2500.0, others: None };
    Line { system: system.into(), case: case.into(), round, command, now, result }
}

/// Two systems, three rounds, all kinds of figures. In round r, Shoal is r + 2 times XFS.
fn made_up(folder: &Folder) -> Run {
    let run = Run::at(&folder.0.join("run")).expect("a run");
    let mut machine = Machine::here("in <memory>", "quick");
    machine.date = "2026-11-24".to_owned();
    run.put_machine(&machine).expect("written");
    let skipped = Skipped {
        experiment: "names".to_owned(),
        system: "btrfs".to_owned(),
        why: "mkfs.btrfs & co are <missing>".to_owned(),
    };
    run.put_skipped(&[skipped]).expect("written");
    for round in 0..3 {
        for system in ["Shoal, library", "XFS"] {
            let many = if system == "XFS" { 1.0 } else { f64::from(round) + 2.0 };
            let rate = f64::from(100 + 10 * round) * 1e3 * many;
            let ops = json!({"ops": 1000, "ops_per_second": rate, "cpu_seconds": 1.0 / rate});
            let append = |id: &str, lines: &[Line]| run.append(id, lines).expect("written");
            append("names", &[line(system, "create", round, ops.clone())]);
            append("listing", &[line(system, "stat, all", round, ops.clone())]);
            let rounds = ["1", "2", "10"].map(|case| line(system, case, round, ops.clone()));
            append("create-rounds", &rounds);
            let latency = json!({"latency_ns": {"p50": 1000.0 / many, "p90": 2000, "p99": 4e4,
                "p999": 5e5, "max": 7e6, "mean": 1500, "samples": 9}});
            append("latency", &[line(system, "create", round, latency)]);
            let rates = json!({"rate_per_million": [2e6, 1.9e6, 1e6 * many]});
            append("many", &[line(system, "create", round, rates)]);
            let classes =
                json!({"mean_ns": 7, "histogram": [[8, 16, 90], [16, 32, 10], [32, 64, 0]]});
            append("inode-index", &[line(system, "get", round, classes)]);
        }
    }
    // A system in one case only.
    let result = json!({"ops": 1000, "ops_per_second": 77_000.0, "cpu_seconds": 0.1});
    run.append("names", &[line("<b>\"new\"|", "unlink", 0, result)]).expect("written");
    run
}

/// Fails if a tag is not closed, or closed twice.
fn check_tags(text: &str) {
    const EMPTY: [&str; 4] = ["meta", "link", "br", "!DOCTYPE"];
    let mut open = Vec::new();
    for part in text.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("an end of the tag");
        let name = tag.split([' ', '\n', '/']).find(|it| !it.is_empty()).expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !tag.ends_with('/') && !EMPTY.contains(&name) {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
}

fn check_no_loads(text: &str) {
    let without = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for load in ["http", "url(", "@import", "<script", "src="] {
        assert!(!without.contains(load), "{load}");
    }
}

#[test]
fn numbers_are_medians_and_paired_ratios() {
    let folder = Folder::new("numbers");
    let run = made_up(&folder);
    let to = folder.0.join("report");
    write(&run, &to).expect("written");
    let (page, text) = (folder.text("report/index.html"), folder.text("report/README.md"));
    // Rates of XFS: 100, 110, 120; of Shoal: 200, 330, 480; ratios of the rounds: 2, 3, 4.
    let cells = "<tr><th scope=\"row\">create</th><td>330<small>200–480</small><small>× 3.00 \
                 (2.00–4.00)</small></td><td>110<small>100–120</small></td><td></td><td><a \
                 href=\"raw/names.jsonl\">lines</a></td></tr>";
    assert!(page.contains(cells), "{page}");
    let cells = "| create | 330<br><sub>200–480</sub><br><sub>× 3.00 (2.00–4.00)</sub> | \
                 110<br><sub>100–120</sub> |  | [lines](raw/names.jsonl) |";
    assert!(text.contains(cells), "{text}");
    // A system that is missing has no number, and a case without the baseline no ratio.
    let cells = "<tr><th scope=\"row\">unlink</th><td></td><td></td><td>77.0</td>";
    assert!(page.contains(cells), "{page}");
    // Of the latency: 1 µs, and 1/2, 1/3, 1/4 of it.
    assert!(page.contains("<th scope=\"row\">50 %</th><td>0.333<small>0.250–0.500</small>"));
    // Of the millions: the last is 2, 3, 4 millions.
    assert!(page.contains("<th scope=\"row\">last million</th><td>3.00<small>2.00–4.00</small>"));
    assert!(page.contains("3 rounds") && page.contains("2026-11-24"), "{page}");
    for raw in ["names.jsonl", "machine.json", "skipped.json"] {
        assert!(to.join("raw").join(raw).is_file());
    }
}

#[test]
fn pages_are_whole_escaped_and_the_same_again() {
    let folder = Folder::new("pages");
    let run = made_up(&folder);
    let to = folder.0.join("report");
    write(&run, &to).expect("written");
    let page = folder.text("report/index.html");
    check_tags(&page);
    check_no_loads(&page);
    assert!(page.contains("&lt;b&gt;&quot;new&quot;|") && !page.contains("<b>\"new\""));
    assert!(page.contains("btrfs (mkfs.btrfs &amp; co are &lt;missing&gt;)"));
    assert!(page.contains("a &lt;command&gt; --case create"));
    let text = folder.text("report/README.md");
    assert!(text.contains("&lt;b&gt;\"new\"\\|"), "{text}");
    let names = ["names-1", "create-rounds-1", "latency-1", "many-1", "inode-index-5"];
    for name in names {
        let svg = folder.text(&format!("report/figures/{name}.svg"));
        check_tags(&svg);
        check_no_loads(&svg);
        assert!(svg.contains("role=\"img\"") && svg.contains("<title>"), "{svg}");
        assert!(!svg.contains("#0101") && !svg.contains("#0202"), "a marker was left: {svg}");
        assert!(text.contains(&format!("figures/{name}.svg")));
    }
    // From the copies, into the same folder: nothing is lost, and the content is the same.
    write(&Run::at(&to.join("raw")).expect("a run"), &to).expect("written");
    assert_eq!(folder.text("report/index.html"), page);
    assert_eq!(folder.text("report/README.md"), text);
    let raw = |run: &Run| fs::read(run.path("names")).expect("raw lines");
    assert_eq!(raw(&run), raw(&Run::at(&to.join("raw")).expect("a run")));
}

#[test]
fn runs_with_little_or_nonsense_have_a_report() {
    let folder = Folder::new("little");
    let run = Run::at(&folder.0.join("run")).expect("a run");
    let to = folder.0.join("report");
    write(&run, &to).expect("of nothing");
    assert!(folder.text("report/index.html").contains("Nothing has been measured"));
    let none = json!({"ops": 0, "ops_per_second": null, "cpu_seconds": 1, "latency_ns": 7,
        "rate_per_million": ["a"], "histogram": [[1], 2, "x"], "mean_ns": "y"});
    let zero = json!({"ops": 5, "ops_per_second": 0.0, "cpu_seconds": 0.0,
        "latency_ns": {"p50": 0, "max": 1e300}, "rate_per_million": [],
        "histogram": [[0, 1, 0]], "mean_ns": 1e-300});
    for it in ALL.iter() {
        let lines = [
            line("XFS", "a", 0, json!({})),
            line("XFS", "1", 0, zero.clone()),
            line("Shoal, library", "1", 1, none.clone()),
            line("Shoal, library", "1", 2, zero.clone()),
            line("", "", 3, zero.clone()),
        ];
        run.append(it.id, &lines).expect("written");
    }
    write(&run, &to).expect("of nonsense");
    let page = folder.text("report/index.html");
    check_tags(&page);
    assert!(!page.contains("NaN") && !page.contains("inf"), "not a number");
}

#[test]
fn a_readme_has_its_table_between_the_markers() {
    let folder = Folder::new("readme");
    let run = made_up(&folder);
    let readme = folder.0.join("README.md");
    fs::write(&readme, "no markers").expect("written");
    assert!(write_readme(&run, &readme).is_err());
    let marked = "above\n<!-- lab -->\nold\n<!-- end lab -->\nbelow\n";
    fs::write(&readme, marked).expect("written");
    write_readme(&run, &readme).expect("written");
    let text = folder.text("README.md");
    assert!(text.starts_with("above\n<!-- lab -->\nMeasured on 2026-11-24: "), "{text}");
    assert!(text.ends_with("Raw files: `run`.\n<!-- end lab -->\nbelow\n"), "{text}");
    assert!(text.contains("| create | 330 | 110 |"), "{text}");
    assert!(text.contains("| stat | 330 | 110 |"), "{text}");
    assert!(!text.contains("| rename") && !text.contains("old"), "{text}");
    write_readme(&run, &readme).expect("written");
    assert_eq!(folder.text("README.md"), text);
    // A table of which the run has nothing is left as it is.
    let programs = "<!-- lab programs -->\nold\n<!-- end lab programs -->\n";
    fs::write(&readme, programs).expect("written");
    write_readme(&run, &readme).expect("written");
    assert_eq!(folder.text("README.md"), programs);
    let of = |system: &str, round, seconds: f64| {
        line(system, "tar -x", round, json!({ "seconds": seconds }))
    };
    let lines =
        [0, 1, 2].map(|round| [of("Shoal, default mount", round, 0.4), of("XFS", round, 0.1)]);
    run.append("programs", lines.as_flattened()).expect("appended");
    write_readme(&run, &readme).expect("written");
    let text = folder.text("README.md");
    assert!(text.contains("| tar -x | 400 (4.00) | 100 |"), "{text}");
}
