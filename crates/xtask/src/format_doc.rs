//! The byte tables of docs/on-disk-format.md, from the `format` crate's own layout.
//!
//! A table stands between `<!-- table NAME -->` and `<!-- end NAME -->`; the prose around it, which
//! gives the reasons, is written by hand. Hand-drawn layouts go stale; these cannot, because the
//! check fails, both for a stale table and for a structure that the document leaves out.

use crate::repository::Repository;
use shoal_format::declare::{Row, Table};
use shoal_format::features::{FEATURES, Feature, VERSIONS};
use shoal_format::{item, layout};
use std::path::Path;

/// The document.
pub const PATH: &str = "docs/on-disk-format.md";

/// Text between the markers of a name.
struct Part {
    name: &'static str,
    text: String,
}

/// Every part of the document that is generated.
fn parts() -> Vec<Part> {
    let tables = layout::TABLES.iter().chain(item::TABLES);
    let structures = tables.map(|table| Part { name: table.name, text: render(table) });
    let mut versions = String::from("| version | since | what |\n| ---: | --- | --- |\n");
    for version in VERSIONS {
        let (number, draft) = (version.number & 0xffff, version.number >> 16);
        let draft = if draft == 0 { String::new() } else { format!(", draft {draft}") };
        versions.push_str(&format!("| {number}{draft} | {} | {} |\n", version.since, version.what));
    }
    let mut features = String::from(
        "| word | bit | name | since | what a Shoal that does not know it gets wrong |\n\
         | --- | ---: | --- | --- | --- |\n",
    );
    for Feature { word, bit, name, since, what } in FEATURES {
        let word = format!("{word:?}").to_lowercase();
        features.push_str(&format!("| {word} | {bit} | `{name}` | {since} | {what} |\n"));
    }
    let lists = [("versions", versions), ("features", features)];
    lists.into_iter().map(|(name, text)| Part { name, text }).chain(structures).collect()
}

fn render(table: &Table) -> String {
    let size = match table.size {
        0 => "of varying length".into(),
        size => format!("{size} bytes"),
    };
    let mut text = format!("**{}**, {size}. {}\n\n", table.name, table.doc);
    text.push_str("| offset | bytes | field | what it is |\n| ---: | ---: | --- | --- |\n");
    for Row { at, len, name, what } in table.rows {
        text.push_str(&format!("| {at} | {len} | `{name}` | {what} |\n"));
    }
    text
}

/// Puts the tables into the text, each between its markers.
fn fill(text: &str, parts: &[Part]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    let mut seen = Vec::new();
    while let Some((before, after)) = rest.split_once("<!-- table ") {
        let (name, body) = after
            .split_once(" -->\n")
            .ok_or(format!("{PATH}: a table's marker does not end its line"))?;
        let end = format!("<!-- end {name} -->");
        let at = body.find(&end).ok_or(format!("{PATH}: no line {end}"))?;
        let part = parts
            .iter()
            .find(|part| part.name == name)
            .ok_or(format!("{PATH}: the format has no table '{name}'"))?;
        out.push_str(&format!("{before}<!-- table {name} -->\n{}{end}", part.text));
        seen.push(name);
        rest = &body[at + end.len()..];
    }
    out.push_str(rest);
    for Part { name, text } in parts.iter().filter(|part| !seen.contains(&part.name)) {
        if !out.ends_with("\n\n") {
            out.push('\n');
        }
        out.push_str(&format!("<!-- table {name} -->\n{text}<!-- end {name} -->\n"));
    }
    Ok(out)
}

/// Writes the tables afresh: whether they were up to date, or, with `check`, an error message when
/// they are not. Structures without markers are added at the end.
pub fn refresh(repository: &Repository, check: bool) -> Result<Result<bool, String>, String> {
    let path = Path::new(PATH);
    let text = repository.read(path)?;
    let fresh = fill(&text, &parts())?;
    if fresh == text {
        return Ok(Ok(true));
    }
    if check {
        return Ok(Err(format!("{PATH}: tables are stale: run cargo xtask format-doc")));
    }
    repository.write(path, &fresh)?;
    Ok(Ok(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &'static str) -> Part {
        let rows = &[Row { at: 0, len: 8, name: "magic", what: "says what it is" }];
        Part { name, text: render(&Table { name, doc: "A thing.", size: 8, rows }) }
    }

    #[test]
    fn tables_are_replaced_between_their_markers_and_stable() {
        let text = "why\n<!-- table a -->\nold\n<!-- end a -->\nafter\n";
        let once = fill(text, &[table("a"), table("b")]).expect("fills");
        assert!(once.starts_with("why\n<!-- table a -->\n**a**, 8 bytes. A thing.\n"));
        assert!(once.contains("| 0 | 8 | `magic` | says what it is |\n<!-- end a -->\nafter\n"));
        assert!(once.contains("<!-- table b -->"), "added at the end");
        assert_eq!(fill(&once, &[table("a"), table("b")]).as_deref(), Ok(once.as_str()));
    }

    #[test]
    fn unknown_and_unclosed_tables_are_refused() {
        assert!(fill("<!-- table z -->\n<!-- end z -->\n", &[table("a")]).is_err());
        assert!(fill("<!-- table a -->\n", &[table("a")]).is_err());
    }
}
