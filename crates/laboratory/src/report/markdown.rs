//! A report as Markdown, with its figures as files beside it.

use super::page::{Block, Table, Text};
use super::text::markdown as escape;

/// Returns the text.
pub(super) fn page(blocks: &[Block]) -> String {
    let text: Vec<String> = blocks.iter().map(block).collect();
    text.join("\n")
}

fn block(block: &Block) -> String {
    match block {
        Block::Title(title) => format!("# {}\n", escape(title)),
        Block::Section(level, anchor, title) => {
            let marks = "#".repeat(usize::from(*level));
            format!("<a id=\"{anchor}\"></a>\n\n{marks} {}\n", escape(title))
        }
        Block::Text(label, text) => format!("{}{}\n", named(label), escape(text)),
        Block::Command(label, command) => format!("{}`{command}`\n", named(label)),
        Block::Commands(summary, all) => format!(
            "<details><summary>{}</summary>\n\n```\n{}\n```\n\n</details>\n",
            escape(summary),
            all.join("\n").replace("```", "` ` `")
        ),
        Block::Figure(name, _, caption) => {
            let caption = escape(caption);
            format!("![{caption}](figures/{name}.svg)\n\n{caption}\n")
        }
        Block::Table(table) => self::table(table),
        Block::Note(note) => format!("<sub>{}</sub>\n", escape(note)),
        Block::Contents(entries) => {
            let entry = |(level, anchor, title): &(u8, String, String)| {
                let indent = " ".repeat(usize::from(level.saturating_sub(2)) * 2);
                format!("{indent}- [{}](#{anchor})\n", escape(title))
            };
            entries.iter().map(entry).collect()
        }
    }
}

fn named(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!("**{}:** ", escape(label)) }
}

/// Writes a table; numbers are right-aligned.
pub(super) fn table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(table.head.iter().map(|it| escape(it)).collect());
    let rule = |at: usize| if at == 0 { "---" } else { "---:" };
    text += &line((0..table.head.len()).map(|at| rule(at).to_owned()).collect());
    for row in &table.rows {
        text += &line(row.iter().map(cell).collect());
    }
    text
}

fn cell(text: &Text) -> String {
    let main = escape(&text.main);
    let main = match &text.link {
        Some(link) => format!("[{main}]({link})"),
        None => main,
    };
    let small: String =
        text.small.iter().map(|it| format!("<br><sub>{}</sub>", escape(it))).collect();
    main + &small
}
