//! The command lines of README.md and the guide, run as the pages show them.
//!
//! A page is one session of a shell, in an empty directory:
//!
//! | in a page | is |
//! | --- | --- |
//! | a block `sh` | a script; each of its commands must succeed |
//! | a block `console` | commands after `$ ` (and lines after `> ` that continue them), each with its output |
//! | `<!-- run: COMMANDS -->` | a script that the page does not show |
//! | `<!-- not run: REASON -->` before a block | why it is not run |
//! | `<!-- needs: PROGRAM... -->` before a block | programs without which it is not run: a skip |
//!
//! In an output `…` stands for any text, on a line of its own for any lines. Blanks count as one;
//! ids, dates, times and tokens as any others. A command that fails must show its message, a line
//! that begins with `shoal: `.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::Scratch;

/// A test for each page.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        const PAGES: &[&str] = &[$($path),*];
        $(#[test]
        fn $name() {
            run_page($path);
        })*
    };
}

pages! {
    readme: "README.md",
    guide: "docs/guide/README.md",
    backup: "docs/guide/backup.md",
    bucket: "docs/guide/bucket.md",
    comparison: "docs/guide/comparison.md",
    damaged_volume: "docs/guide/damaged-volume.md",
    failing_disk: "docs/guide/failing-disk.md",
    first_volume: "docs/guide/first-volume.md",
    fstab: "docs/guide/fstab.md",
    full_disk: "docs/guide/full-disk.md",
    growing: "docs/guide/growing.md",
    install: "docs/guide/install.md",
    limits: "docs/guide/limits.md",
    monitoring: "docs/monitoring.md",
    questions: "docs/guide/questions.md",
    run: "docs/guide/run.md",
    sessions: "docs/guide/sessions.md",
    tour: "docs/guide/tour.md",
    tuning: "docs/guide/tuning.md",
    upgrading: "docs/guide/upgrading.md",
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_page_of_the_guide_is_run() {
    for entry in fs::read_dir(repository().join("docs/guide")).expect("the guide") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        let path = format!("docs/guide/{name}");
        assert!(
            PAGES.contains(&path.as_str()),
            "{path} is not in the list of crates/cli/{}",
            file!()
        );
    }
}

/// Something of a page that is run.
#[derive(PartialEq, Eq, Debug)]
struct Step {
    /// The line of the page, from 1.
    line: usize,
    commands: String,
    /// The output, if the page shows it.
    shown: Option<Vec<String>>,
    needs: Vec<String>,
}

/// Languages of blocks that hold no commands.
const OTHER_LANGUAGES: &[&str] = &["rust", "text", "yaml", "toml", "json"];

/// Returns the steps of a page, or the fault of one of its blocks with its line.
fn steps(page: &str) -> Result<Vec<Step>, (usize, String)> {
    let mut steps = Vec::new();
    let (mut needs, mut is_not_run) = (Vec::new(), false);
    let mut lines = page.lines().enumerate().map(|(number, line)| (number + 1, line));
    while let Some((number, line)) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ") {
            let mut text = comment.to_owned();
            while !text.ends_with("-->") {
                let (_, line) =
                    lines.next().ok_or((number, "a comment does not end".to_owned()))?;
                text = format!("{text}\n{line}");
            }
            let text = text.trim_end_matches("-->").trim();
            if let Some(commands) = text.strip_prefix("run:") {
                let commands = commands.trim().to_owned();
                steps.push(Step { line: number, commands, shown: None, needs: Vec::new() });
            } else if let Some(reason) = text.strip_prefix("not run:") {
                is_not_run = true;
                if reason.trim().is_empty() {
                    return Err((number, "why is it not run?".to_owned()));
                }
            } else if let Some(programs) = text.strip_prefix("needs:") {
                needs = programs.split_whitespace().map(str::to_owned).collect();
            }
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            let block: Vec<&str> = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| !line.trim_start().starts_with("```"))
                .collect();
            let needs = std::mem::take(&mut needs);
            match language {
                _ if std::mem::take(&mut is_not_run) => {}
                "sh" => {
                    let commands = block.join("\n");
                    steps.push(Step { line: number + 1, commands, shown: None, needs });
                }
                "console" => steps.extend(session(number + 1, &block, &needs)?),
                other if OTHER_LANGUAGES.contains(&other) => {
                    if let Some(at) = block.iter().position(|line| line.starts_with("shoal ")) {
                        return Err((number + 1 + at, "a command in a block of text".to_owned()));
                    }
                }
                other => return Err((number, format!("a block of the language '{other}'"))),
            }
        }
    }
    Ok(steps)
}

/// Returns the steps of a block with commands and their output.
fn session(first: usize, block: &[&str], needs: &[String]) -> Result<Vec<Step>, (usize, String)> {
    let mut steps: Vec<Step> = Vec::new();
    for (at, line) in block.iter().enumerate() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step {
                line: first + at,
                commands: command.to_owned(),
                shown: Some(Vec::new()),
                needs: needs.to_vec(),
            }),
            (None, None) => return Err((first + at, "output before a command".to_owned())),
            (None, Some(step)) => match (line.strip_prefix("> "), &mut step.shown) {
                (Some(more), _) => step.commands = format!("{}\n{more}", step.commands),
                (None, Some(shown)) => shown.push((*line).to_owned()),
                (None, None) => {}
            },
        }
    }
    Ok(steps)
}

/// Unmounts everything below a directory at the end.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for mount in below.filter(|mount| Path::new(mount).starts_with(&self.0)) {
            let _ = Command::new("umount").arg("-l").arg(mount).output();
        }
    }
}

fn run_page(path: &str) {
    let page = fs::read_to_string(repository().join(path)).expect("the page");
    let steps = steps(&page).unwrap_or_else(|(line, fault)| panic!("{path}:{line}: {fault}"));
    commands_in_prose(path, &page);
    if steps.is_empty() || !shoal_skip::can_mount() {
        return;
    }
    let (control, scratch) = (Scratch::new(), Scratch::new());
    let _unmounted = Unmounted(scratch.path("").canonicalize().expect("a path"));
    let mut session = String::from("umask 022\n");
    for (number, step) in steps.iter().enumerate() {
        if let Some(program) = step.needs.iter().find(|program| !is_here(program)) {
            shoal_skip::skipped(&format!("{path}:{} needs {program}", step.line));
            continue;
        }
        // A script ends at its first failure, and the page with it; the failure of a command with
        // an output is judged by that.
        let (begin, end) = if step.shown.is_none() { ("set -e\n", "\nset +e") } else { ("", "") };
        control.write(format!("{number}.sh"), format!("{begin}{}{end}\n", step.commands));
        let file = control.path(number.to_string());
        let file = file.display();
        session += &format!("{{ . {file}.sh; }} >{file}.out 2>&1; echo $? >{file}.status\n");
    }
    let session = control.write("session", session);
    fs::create_dir(control.path("home")).expect("make a home");
    let search = std::env::var("PATH").unwrap_or_default();
    let binary = Path::new(env!("CARGO_BIN_EXE_shoal")).parent().expect("has a directory");
    let status = Command::new("sh")
        .arg(session)
        .current_dir(scratch.path(""))
        .env("PATH", format!("{}:{search}", binary.display()))
        .env("HOME", control.path("home"))
        .env("SHOAL_RUN_LIBRARY", crate::run::library())
        .envs([("LC_ALL", "C"), ("TZ", "UTC")])
        .env_remove("LS_COLORS")
        .stdin(Stdio::null())
        .status();
    status.expect("run sh");
    for (number, step) in steps.iter().enumerate() {
        if control.path(format!("{number}.sh")).exists() {
            judge(path, step, &control, number);
        }
    }
}

/// Compares the result of a step with what the page shows.
fn judge(path: &str, step: &Step, control: &Scratch, number: usize) {
    let read = |end: &str| fs::read_to_string(control.path(format!("{number}.{end}")));
    let (line, commands) = (step.line, &step.commands);
    let said = read("out").unwrap_or_else(|_| panic!("{path}:{line}: not reached: {commands}"));
    let status = read("status").unwrap_or_else(|_| "a failure".to_owned());
    let shown = step.shown.as_deref().unwrap_or_default();
    let may_fail = shown.iter().any(|line| line.starts_with("shoal: "));
    assert!(
        status.trim() == "0" || may_fail,
        "{path}:{line}: {commands}\nended with {}:\n{said}",
        status.trim()
    );
    if step.shown.is_some() {
        let is_as_shown = is_shown(shown, &said.lines().collect::<Vec<_>>());
        assert!(
            is_as_shown,
            "{path}:{line}: {commands}\n--- shown:\n{}\n--- printed:\n{said}",
            shown.join("\n")
        );
    }
}

fn is_here(program: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).any(|directory| directory.join(program).exists())
}

/// Returns whether an output is as a page shows it.
fn is_shown<S: AsRef<str>>(shown: &[S], printed: &[&str]) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty() };
    if first.as_ref() == "…" {
        return (0..=printed.len()).any(|left_out| is_shown(rest, &printed[left_out..]));
    }
    printed.split_first().is_some_and(|(line, lines)| {
        let is_line = is_line(&blanks(first.as_ref()), &blanks(line))
            || is_line(&normal(first.as_ref()), &normal(line));
        is_line && is_shown(rest, lines)
    })
}

/// Returns whether a line is as shown, with any text for each `…`.
fn is_line(shown: &str, printed: &str) -> bool {
    let Some((head, rest)) = shown.split_once('…') else { return shown == printed };
    printed.strip_prefix(head).is_some_and(|tail| {
        let ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
        ends.into_iter().any(|at| is_line(rest, &tail[at..]))
    })
}

/// A line with one blank for each run of them.
fn blanks(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The same with names for ids, dates, times and tokens.
fn normal(line: &str) -> String {
    line.split_whitespace().map(stand_in).collect::<Vec<_>>().join(" ")
}

fn stand_in(word: &str) -> &str {
    let bare = word.trim_end_matches([',', ';', ')']);
    let of = |c: fn(&u8) -> bool| bare.bytes().all(|byte| c(&byte));
    let shape: String = bare.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    let parts: Vec<usize> = bare.split('-').map(str::len).collect();
    match shape.as_str() {
        "9999-99-99" => "DATE",
        "99:99" | "99:99:99" => "TIME",
        _ if parts == [8, 4, 4, 4, 12] => "ID",
        _ if bare.len() >= 60 && of(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)) => "TOKEN",
        _ => word,
    }
}

/// Checks the commands that a page names outside of blocks: they exist, and so do their options.
fn commands_in_prose(path: &str, page: &str) {
    let scratch = Scratch::new();
    let mut is_in_block = false;
    for (number, line) in page.lines().enumerate() {
        is_in_block ^= line.trim_start().starts_with("```");
        let spans = line.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| !is_in_block && span.starts_with("shoal ")) {
            let words: Vec<&str> = span.split_whitespace().skip(1).collect();
            let name = words[0].trim_end_matches(',');
            let is_a_name = name.starts_with(|c: char| c.is_ascii_lowercase());
            if !is_a_name || name == "help" {
                continue;
            }
            let help = scratch.shoal([name, "--help"]);
            let at = number + 1;
            assert!(help.status() == Some(0), "{path}:{at}: `{span}`: {}", help.stderr());
            for option in words.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
                let option = option.split('=').next().unwrap_or_default();
                let is_option = |word: &str| word.trim_end_matches(',') == option;
                let is_there = help.stdout().split([' ', '\n', '=', '[']).any(is_option);
                assert!(is_there, "{path}:{at}: `{span}`: {name} has no {option}");
            }
        }
    }
}

#[test]
fn blocks_are_run_or_say_why_not() {
    let fault = |page: &str| steps(page).expect_err("a fault");
    assert_eq!(fault("```\nls\n```\n"), (1, "a block of the language ''".to_owned()));
    assert_eq!(fault("\n<!-- not run: -->\n").0, 2);
    assert_eq!(fault("```text\nshoal df\n```\n").0, 2);
    assert_eq!(fault("```console\nout\n```\n").0, 2);
    let page = "<!-- run:\na\nb\n-->\n<!-- not run: no disk -->\n```sh\nc\n```\n<!-- needs: d -->\n\
                ```sh\ne\n```\n```console\n$ f\n> g\nout\n$ h\n```\n";
    let steps = steps(page).expect("no fault");
    let run: Vec<_> = steps.iter().map(|step| (step.line, step.commands.as_str())).collect();
    assert_eq!(run, [(1, "a\nb"), (11, "e"), (14, "f\ng"), (17, "h")]);
    assert_eq!(steps[1].needs, ["d"]);
    assert_eq!(steps[2].shown.as_deref(), Some(&["out".to_owned()][..]));
    assert_eq!(steps[3].shown.as_deref(), Some(&[][..]));
}

#[test]
fn outputs_are_compared() {
    let id = "19af2a19-8906-4b12-ad66-6371d028652f";
    let token = "Y20BGa8qGYkGSxIAAAEAAAAAAAAASwYAAAAAAAABAAAAAAAAAG29CWsAAAAA9XePBXvE9lomI9IN";
    let is_shown = |shown: &[&str], printed: &[&str]| is_shown(shown, printed);
    assert!(is_shown(&["a  b"], &["a\tb"]));
    assert!(is_shown(&["id 00000000-0000-0000-0000-000000000000"], &[&format!("id  {id}")]));
    assert!(is_shown(&["2026-11-20 12:00 x"], &["2027-01-02 03:04 x"]));
    assert!(is_shown(&[&format!("mark {}", "A".repeat(76))], &[&format!("mark {token}")]));
    assert!(is_shown(&["a … c", "…", "e"], &["a b c", "d", "d", "e"]));
    assert!(is_shown(&["…"], &[]));
    assert!(is_shown(&["mark Y20B…"], &[&format!("mark {token}")]));
    for (shown, printed) in [
        (&["a"][..], &["b"][..]),
        (&["a"], &["a", "b"]),
        (&["a", "b"], &["a"]),
        (&["a …c"], &["a b"]),
        (&["…", "e"], &["d"]),
        (&["2026-11-20"], &["2026-11-2"]),
        (&[], &["a"]),
    ] {
        assert!(!is_shown(shown, printed), "{shown:?} {printed:?}");
    }
}
