//! `shoal changes`, as a shell session.

use crate::common;

use std::fs;

use crate::common::Scratch;
use shoal_skip::tick;

/// A volume that keeps removed names, with a few files, and a mark.
fn begun() -> (Scratch, String) {
    let scratch = Scratch::with_volume();
    scratch.shoal(["changes", "v", "--keep-removed", "on"]).ok();
    fs::create_dir_all(scratch.path("t/d")).expect("mkdir");
    for name in ["t/a", "t/d/b", "t/d/c"] {
        scratch.write(name, name);
    }
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    tick();
    let mark = scratch.shoal(["changes", "v", "--now"]).ok().trim_end().to_owned();
    assert_eq!(mark.len(), 76, "{mark}");
    tick();
    (scratch, mark)
}

fn lines(out: &str) -> Vec<&str> {
    out.lines().filter(|line| !line.starts_with("mark\t")).collect()
}

#[test]
fn changes_are_told_as_lines_as_json_and_as_lists() {
    let (scratch, mark) = begun();
    let since = ["changes", "v", "--since", &mark];
    let with = |more: &[&str]| scratch.shoal([&since[..], more].concat());
    assert_eq!(lines(&with(&[]).ok()), Vec::<&str>::new());
    scratch.shoal(["mv", "v:/t/d", "v:/t/e"]).ok();
    scratch.shoal(["rm", "v:/t/a"]).ok();
    scratch.shoal(["cp", "t/a", "v:/n"]).ok();
    let out = with(&[]).ok();
    assert_eq!(lines(&out), ["R\tt/d\tt/e", "D\tt/a", "M\t.", "M\tt", "A\tn"]);
    let next = out.trim_end().rsplit('\t').next().expect("the mark").to_owned();
    assert_eq!(with(&["--removed"]).ok(), "t/d\nt/a\n");
    assert_eq!(with(&["--removed", "-0"]).ok(), "t/d\0t/a\0");
    let mut copied: Vec<String> = with(&["--files-from"]).ok().lines().map(String::from).collect();
    copied.sort();
    assert_eq!(copied, [".", "n", "t", "t/e", "t/e/b", "t/e/c"]);
    let json = with(&["--json"]).ok();
    let first = json.lines().next().expect("a line");
    assert!(first.starts_with(r#"{"kind":"renamed","inode":"#), "{first}");
    assert!(first.ends_with(r#""paths":["t/e"],"from":"t/d","more":false}"#), "{first}");
    assert!(json.ends_with("\"all_removed\":true}\n"), "{json}");
    // Below a directory, and from the next mark on.
    let out = scratch.shoal(["changes", "v:/t", "--since", &mark]).ok();
    assert_eq!(lines(&out), ["R\td\te", "D\ta", "M\t."]);
    let out = scratch.shoal(["changes", "v:/", "--since", &next]).ok();
    assert_eq!(lines(&out), Vec::<&str>::new());
}

#[test]
fn a_mark_is_kept_in_a_file() {
    let (scratch, _) = begun();
    let file = scratch.path("mark");
    let run =
        |more: &[&str]| scratch.shoal([&["changes", "v:/t", "--mark-file", "mark"], more].concat());
    assert_eq!(
        run(&[]).ok(),
        "A\t.\nA\td\nA\ta\nA\td/b\nA\td/c\n".replace("A\td\nA\ta", "A\ta\nA\td")
    );
    assert_eq!(fs::read_to_string(&file).expect("a mark").len(), 77);
    assert_eq!(run(&[]).ok(), "");
    scratch.shoal(["touch", "v:/t/a"]).ok();
    // A mark that is not stored is used again.
    let full = "trap '' XFSZ; ulimit -f 0; exec shoal changes v:/t --mark-file mark";
    let ran = scratch.shell(full);
    assert!(ran.status() == Some(1) && ran.stderr().contains("mark: file too large"), "{ran}");
    assert_eq!(fs::read_to_string(&file).expect("a mark").len(), 77);
    assert_eq!(run(&[]).ok(), "M\ta\n");
    assert_eq!(run(&[]).ok(), "");
    scratch.write("mark", "nonsense");
    run(&[]).fails(2, &["mark", "not a mark"]);
}

#[test]
fn what_cannot_be_told_is_refused() {
    let (scratch, mark) = begun();
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    let since = |place: &str| scratch.shoal(["changes", place, "--since", &mark]);
    since("w").fails(1, &["w", "another volume", "full scan"]);
    since("v:/t/a").fails(1, &["v:/t/a", "not a directory"]);
    since("v:/missing").fails(1, &["v:/missing"]);
    scratch.shoal(["changes", "v", "--since", "abc"]).fails(2, &["--since", "not a mark"]);
    scratch.shoal(["changes", "t"]).fails(2, &["t", "VOLUME:/path"]);
    // Without removed names, --removed is not complete, and says so.
    scratch.shoal(["changes", "v", "--keep-removed", "off"]).ok();
    scratch.shoal(["rm", "v:/t/a"]).ok();
    let ran = scratch.shoal(["changes", "v", "--since", &mark, "--removed"]);
    ran.fails(1, &["removed names", "--keep-removed on"]);
    // Where no directory has changed, no name is missing, and nothing is said.
    tick();
    let mark = scratch.shoal(["changes", "v", "--now"]).ok();
    let since = ["changes", "v", "--since", mark.trim_end()];
    assert_eq!(lines(&scratch.shoal(since).ok()), Vec::<&str>::new());
    scratch.shoal(["touch", "v:/t/d/b"]).ok();
    assert_eq!(lines(&scratch.shoal(since).ok()), ["M\tt/d/b"]);
    assert_eq!(scratch.shoal([&since[..], &["--removed"]].concat()).ok(), "");
    let json = scratch.shoal([&since[..], &["--json"]].concat()).ok();
    assert!(json.ends_with("\"all_removed\":true}\n"), "{json}");
}
