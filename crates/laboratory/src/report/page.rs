//! The content of a report, in blocks that are written as HTML and as Markdown.

use super::canvas::Drawing;

/// A piece of text in a table.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Text {
    pub main: String,
    /// Below it, smaller.
    pub small: Vec<String>,
    /// Address of what it names.
    pub link: Option<String>,
}

impl Text {
    pub(super) fn of(main: impl Into<String>) -> Text {
        Text { main: main.into(), ..Text::default() }
    }
}

/// A table: its first column has names, the others numbers.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<Text>>,
}

/// A block.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Block {
    /// Title of the report.
    Title(String),
    /// A section of level 2 or 3: level, anchor, title.
    Section(u8, String, String),
    /// A paragraph, with a label before it.
    Text(&'static str, String),
    /// A command, with a label before it.
    Command(&'static str, String),
    /// Commands that are folded.
    Commands(String, Vec<String>),
    /// A figure: its file name without the ending, the drawing, the words below.
    Figure(String, Drawing, String),
    Table(Table),
    /// A small note below a table.
    Note(String),
    /// Anchors and titles, each with a level.
    Contents(Vec<(u8, String, String)>),
}
