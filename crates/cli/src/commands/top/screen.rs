//! The drawing of a screen: the state of the mount above, tables below, keys in the last line.
//!
//! A screen that is too narrow loses columns, the least needed first; one that is too short loses
//! rows, then tables. A table that has the screen for itself can be scrolled.

use std::ffi::OsStr;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::choice::{Choice, View};
use super::interval::{Interval, cells, hidden};
use crate::operations;

/// Space between two columns.
const GAP: u16 = 2;
/// Least number of columns of a name.
const NAME: u16 = 8;
/// Index of the column of errors of a table of operations.
const ERRORS: usize = 2;
/// Columns of operations without which a narrow screen does, the first first: p99.9, bytes, p50.
const SPARE_OF_OPERATIONS: &[usize] = &[5, 6, 3];
/// The same of users and processes: their number, bytes read, bytes written.
const SPARE_OF_LOADS: &[usize] = &[1, 3, 4];
/// A server that does not answer for so long is reported.
const SILENCE: Duration = Duration::from_secs(3);

/// Looks of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Theme {
    is_coloured: bool,
}

impl Theme {
    /// Returns that of the terminal, `None` if it cannot move its cursor.
    pub(super) fn of_this_terminal() -> Option<Theme> {
        let no_color = std::env::var_os("NO_COLOR");
        Theme::of(&std::env::var("TERM").ok()?, no_color.as_deref())
    }

    /// Colours are for terminals that have them, and users who do not refuse them.
    fn of(term: &str, no_color: Option<&OsStr>) -> Option<Theme> {
        if matches!(term, "" | "dumb") {
            return None;
        }
        let has_colours = !term.starts_with("vt") && !term.ends_with("-m");
        let is_refused = no_color.is_some_and(|value| !value.is_empty());
        Some(Theme { is_coloured: has_colours && !is_refused })
    }

    fn style(self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.is_coloured { style.fg(colour) } else { style }
    }

    fn head(self) -> Style {
        self.style(Color::Cyan, Modifier::BOLD)
    }

    fn alarm(self) -> Style {
        let seen = if self.is_coloured { Modifier::BOLD } else { Modifier::REVERSED };
        self.style(Color::Red, seen)
    }

    fn warning(self) -> Style {
        self.style(Color::Yellow, Modifier::BOLD)
    }

    fn keys(self) -> Style {
        self.style(Color::DarkGray, Modifier::empty())
    }
}

/// Content of a screen.
pub(super) struct Shown<'a> {
    /// `None` until there are two readings.
    pub interval: Option<&'a Interval>,
    pub choice: Choice,
    pub theme: Theme,
    /// Mount point.
    pub place: &'a str,
    /// Time between two readings.
    pub every: Duration,
    /// Time since a reading should have come.
    pub silent: Duration,
}

impl Shown<'_> {
    /// Draws the screen. Returns the first row that is shown of a table that is scrolled.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) -> usize {
        let area = frame.area();
        let mut head = self.head(area.width);
        // The tables keep at least half of a short screen.
        head.truncate(usize::from(area.height.div_ceil(2)));
        let parts = [
            Constraint::Length(u16::try_from(head.len()).unwrap_or(u16::MAX)),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [top, tables, keys] = Layout::vertical(parts).areas(area);
        frame.render_widget(Paragraph::new(head), top);
        frame.render_widget(Paragraph::new(self.keys(area.width)), keys);
        match self.interval {
            Some(interval) => self.draw_tables(frame, tables, interval),
            None => {
                let text = format!("The first view comes after {} s.", self.every.as_secs());
                frame.render_widget(Paragraph::new(vec![Line::default(), text.into()]), tables);
                0
            }
        }
    }

    fn head(&self, width: u16) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let mut alarms = Vec::new();
        if self.silent >= SILENCE {
            alarms.push(format!("NO ANSWER of the server for {} s", self.silent.as_secs()));
        }
        alarms.extend(self.interval.and_then(Interval::alarm));
        for alarm in alarms {
            let words: Vec<String> = alarm.split(' ').map(String::from).collect();
            let style = self.theme.alarm();
            lines.extend(flowed(&words, " ", width).into_iter().map(|it| Line::styled(it, style)));
        }
        for paragraph in self.interval.iter().flat_map(|interval| interval.head()) {
            let flowed = flowed(&paragraph.clauses, paragraph.between, width);
            lines.extend(flowed.into_iter().map(|line| self.named(line)));
        }
        lines
    }

    /// Emphasizes the word before the colon of a line.
    fn named(&self, line: String) -> Line<'static> {
        match line.split_once(": ") {
            Some((name, rest)) => Line::from(vec![
                Span::styled(format!("{name}: "), self.theme.head()),
                Span::raw(rest.to_owned()),
            ]),
            None => Line::raw(line),
        }
    }

    fn keys(&self, width: u16) -> Line<'static> {
        let Choice { view, order, is_paused, .. } = self.choice;
        let pause = if is_paused { "PAUSED" } else { "pause" };
        let left = format!("q end  Tab {}  s by {}  Space {pause}", view.name(), order.name());
        let right = format!("{}, every {} s", self.place, self.every.as_secs());
        let room = usize::from(width).saturating_sub(left.chars().count() + right.chars().count());
        let line = if room >= 2 { format!("{left}{}{right}", " ".repeat(room)) } else { left };
        let style = if is_paused { self.theme.warning() } else { self.theme.keys() };
        Line::styled(line, style)
    }

    fn draw_tables(&self, frame: &mut Frame<'_>, area: Rect, interval: &Interval) -> usize {
        let tables = self.tables(interval);
        // A line that is empty, and the names of the columns.
        let height = |rows: usize| u16::try_from(rows + 2).unwrap_or(u16::MAX);
        if let [table] = &tables[..] {
            let [_, area] =
                Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
            let shown = usize::from(area.height).saturating_sub(1);
            let first = self.choice.first.min(table.rows.len().saturating_sub(shown));
            table.draw(frame, area, first, self.theme);
            return first;
        }
        let wanted: Vec<u16> = tables.iter().map(|table| height(table.rows.len())).collect();
        let heights = shared(area.height, &wanted);
        let constraints = heights.iter().map(|height| Constraint::Length(*height));
        let areas = Layout::vertical(constraints).split(area);
        for (table, area) in tables.iter().zip(areas.iter().filter(|area| area.height > 1)) {
            let [_, area] =
                Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(*area);
            table.draw(frame, area, 0, self.theme);
        }
        0
    }

    fn tables(&self, interval: &Interval) -> Vec<Sheet> {
        let operations = |title: &str, operations: &[_]| {
            let mut rows = operations::rows(operations, Some(interval.seconds));
            rows[0][0] = title.into();
            Sheet::of(&rows, SPARE_OF_OPERATIONS, Some(ERRORS))
        };
        let loads = |title, rows: &Option<Vec<_>>| match rows {
            Some(rows) => {
                let mut rows = rows.clone();
                self.choice.order.sort(&mut rows);
                Sheet::of(&cells(title, &rows), SPARE_OF_LOADS, None)
            }
            None => Sheet::of(&[[hidden(title)]], &[], None),
        };
        let requests = || operations("request", &interval.requests());
        let inside = || operations("in the volume", &interval.inside());
        let users = || loads("user", &interval.users);
        let processes = || loads("process", &interval.processes);
        match self.choice.view {
            View::All => [requests(), inside(), users(), processes()]
                .into_iter()
                .filter(|table| !table.is_empty())
                .collect(),
            View::Requests => vec![requests()],
            View::Inside => vec![inside()],
            View::Users => vec![users()],
            View::Processes => vec![processes()],
        }
    }
}

/// A table of which the first column is to the left, the others to the right.
struct Sheet {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns that can be left out, the first first.
    spare: &'static [usize],
    /// Column in which everything but 0 is a warning.
    warning: Option<usize>,
}

impl Sheet {
    fn of<const N: usize>(
        rows: &[[String; N]],
        spare: &'static [usize],
        warning: Option<usize>,
    ) -> Sheet {
        let mut rows = rows.iter().map(|row| row.to_vec());
        Sheet { head: rows.next().unwrap_or_default(), rows: rows.collect(), spare, warning }
    }

    /// Returns whether it has nothing but the names of several columns.
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.head.len() > 1
    }

    /// Returns the columns that there is place for, and their widths.
    fn columns(&self, room: u16) -> Vec<(usize, u16)> {
        let width = |at: usize| {
            let cells = self.rows.iter().chain([&self.head]).map(|row| Span::raw(&row[at]).width());
            u16::try_from(cells.max().unwrap_or(0)).unwrap_or(u16::MAX)
        };
        let mut columns: Vec<(usize, u16)> =
            (0..self.head.len()).map(|at| (at, width(at))).collect();
        let total = |columns: &[(usize, u16)]| {
            columns.iter().fold(0u16, |sum, (_, width)| sum.saturating_add(*width + GAP)) - GAP
        };
        for spare in self.spare {
            if total(&columns) > room {
                columns.retain(|(at, _)| at != spare);
            }
        }
        let excess = total(&columns).saturating_sub(room);
        let name = &mut columns[0].1;
        *name = name.saturating_sub(excess).max((*name).min(NAME));
        columns
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, first: usize, theme: Theme) {
        let columns = self.columns(area.width);
        let row = |cells: &[String]| {
            let cells = columns.iter().map(|(at, _)| {
                let text = Text::raw(cells[*at].clone());
                if *at == 0 {
                    return Cell::new(text);
                }
                let is_warning = self.warning == Some(*at)
                    && cells[*at].parse::<u64>().is_ok_and(|errors| errors > 0);
                let style = if is_warning { theme.warning() } else { Style::new() };
                Cell::new(text.right_aligned()).style(style)
            });
            Row::new(cells.collect::<Vec<_>>())
        };
        let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
        let rows = self.rows.iter().skip(first).map(|cells| row(cells));
        let table = Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
            .header(row(&self.head).style(theme.head()))
            .column_spacing(GAP);
        frame.render_widget(table, area);
    }
}

/// Joins clauses to lines of at most `width` columns. One that is longer has a line of its own.
fn flowed(clauses: &[String], between: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for clause in clauses {
        match lines.last_mut() {
            Some(line)
                if Span::raw(&*line).width() + between.len() + Span::raw(clause).width()
                    <= usize::from(width) =>
            {
                line.push_str(between);
                line.push_str(clause);
            }
            _ => lines.push(clause.clone()),
        }
    }
    lines
}

/// Shares `room` lines among tables that want some: the longest gives first; where not even three
/// lines remain for each, the last ones get nothing.
fn shared(room: u16, wanted: &[u16]) -> Vec<u16> {
    const LEAST: u16 = 3;
    let mut heights = wanted.to_vec();
    let over = |heights: &[u16]| heights.iter().map(|it| u32::from(*it)).sum::<u32>() > room.into();
    while over(&heights) {
        let longest = heights.iter_mut().max_by_key(|height| **height);
        match longest {
            Some(longest) if *longest > LEAST => *longest -= 1,
            _ => break,
        }
    }
    for at in (1..heights.len()).rev() {
        if over(&heights) {
            heights[at] = 0;
        }
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::choice::Order;
    use crate::commands::top::interval::Row as Load;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;
    use shoal::raw::Timings;
    use shoal_session::{Group, Metric, Operation};

    fn operation(name: &str, group: Group, count: usize, failed: usize) -> Operation {
        let timings = Timings::new(1);
        for n in 0..count {
            timings.record(0, Duration::from_micros(20), n < failed, 0);
        }
        Operation { name: name.into(), group, timing: timings.get(0) }
    }

    fn load(id: u32, name: &str, requests: f64, busy: f64) -> Load {
        Load { id, name: name.into(), user: 0, requests, read: 0.0, written: 4096.0, busy }
    }

    fn interval() -> Interval {
        let stats = [
            ("cache_bytes", 64 << 20),
            ("resident_bytes", 96 << 20),
            ("journal_replay_bytes", 3 << 20),
            ("checkpoints", 7),
            ("orphan_slots_used", 1),
            ("live_bytes", 5 << 30),
            ("segments_free", 40),
            ("segments", 256),
            ("inodes", 123_456),
        ];
        let stat = |(name, value): (&'static str, u64)| Metric {
            name: name.into(),
            value,
            what: "".into(),
            gauge: true,
        };
        Interval {
            seconds: 2.0,
            stats: stats.map(stat).into(),
            failed: None,
            operations: vec![
                operation("lookup", Group::Requests, 2000, 0),
                operation("create", Group::Requests, 3000, 6),
                operation("journal_wait", Group::Volume, 10, 0),
            ],
            users: Some(vec![load(0, "root", 2000.0, 0.25), load(33, "www-data", 500.0, 0.75)]),
            processes: None,
            missed: [3.0, 4.0],
            store: None,
        }
    }

    const COLOURED: Theme = Theme { is_coloured: true };

    fn shown(interval: Option<&Interval>) -> Shown<'_> {
        Shown {
            interval,
            choice: Choice::default(),
            theme: COLOURED,
            place: "/mnt",
            every: Duration::from_secs(2),
            silent: Duration::ZERO,
        }
    }

    fn drawn(shown: &Shown<'_>, width: u16, height: u16) -> (Buffer, usize) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let mut first = 0;
        terminal.draw(|frame| first = shown.draw(frame)).expect("no error");
        (terminal.backend().buffer().clone(), first)
    }

    fn lines(shown: &Shown<'_>, width: u16, height: u16) -> Vec<String> {
        let (buffer, _) = drawn(shown, width, height);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_wide_screen_shows_everything() {
        let interval = interval();
        let lines = lines(&shown(Some(&interval)), 100, 24);
        assert_eq!(lines.join("\n"), WIDE.trim_matches('\n'));
    }

    const WIDE: &str = "
2500 operations/s   p50 20.5 us   p99 20.5 us   p99.9 20.5 us
memory: 64.0 MiB for metadata, 96.0 MiB the server; missed: 3 nodes/s, 4 inode blocks/s
journal: 3.0 MiB since the checkpoint; 7 checkpoints; being freed: 1 file
space: 5.0 GiB live, 40 of 256 segments free; 123456 inodes

request  per s  errors      p50      p99    p99.9  bytes/s
create    1500       6  20.5 us  20.5 us  20.5 us
lookup    1000       0  20.5 us  20.5 us  20.5 us

in the volume  per s  errors      p50      p99    p99.9  bytes/s
journal_wait       5       0  20.5 us  20.5 us  20.5 us

user      id  per s  read/s  written/s  busy
root       0   2000            4.0 KiB   25%
www-data  33    500            4.0 KiB   75%

process: shown to root and to the user who mounted






q end  Tab all  s by operations  Space pause                                         /mnt, every 2 s
";

    #[test]
    fn a_narrow_screen_loses_columns_but_not_counts_and_errors() {
        let interval = interval();
        let lines = lines(&shown(Some(&interval)), 60, 24);
        assert_eq!(lines.join("\n"), NARROW.trim_matches('\n'));
    }

    const NARROW: &str = "
2500 operations/s   p50 20.5 us   p99 20.5 us
p99.9 20.5 us
memory: 64.0 MiB for metadata, 96.0 MiB the server
missed: 3 nodes/s, 4 inode blocks/s
journal: 3.0 MiB since the checkpoint; 7 checkpoints
being freed: 1 file
space: 5.0 GiB live, 40 of 256 segments free; 123456 inodes

request  per s  errors      p50      p99    p99.9  bytes/s
create    1500       6  20.5 us  20.5 us  20.5 us
lookup    1000       0  20.5 us  20.5 us  20.5 us

in the volume  per s  errors      p50      p99  bytes/s
journal_wait       5       0  20.5 us  20.5 us

user      id  per s  read/s  written/s  busy
root       0   2000            4.0 KiB   25%
www-data  33    500            4.0 KiB   75%

process: shown to root and to the user who mounted



q end  Tab all  s by operations  Space pause
";

    #[test]
    fn a_short_screen_keeps_the_state_the_requests_and_the_keys() {
        let interval = interval();
        let lines = lines(&shown(Some(&interval)), 80, 9);
        assert_eq!(lines.join("\n"), SHORT.trim_matches('\n'));
        // As small as one can be made: nothing is out of bounds.
        for (width, height) in [(1, 1), (1, 40), (200, 1), (3, 3), (20, 5), (500, 200)] {
            for view in [View::All, View::Requests, View::Processes] {
                let choice = Choice { view, first: 3, ..Choice::default() };
                drawn(&Shown { choice, ..shown(Some(&interval)) }, width, height);
            }
        }
    }

    const SHORT: &str = "
2500 operations/s   p50 20.5 us   p99 20.5 us   p99.9 20.5 us
memory: 64.0 MiB for metadata, 96.0 MiB the server
missed: 3 nodes/s, 4 inode blocks/s
journal: 3.0 MiB since the checkpoint; 7 checkpoints; being freed: 1 file
space: 5.0 GiB live, 40 of 256 segments free; 123456 inodes

request  per s  errors      p50      p99    p99.9  bytes/s
create    1500       6  20.5 us  20.5 us  20.5 us
q end  Tab all  s by operations  Space pause                     /mnt, every 2 s
";

    #[test]
    fn one_table_is_sorted_and_scrolled() {
        let mut interval = interval();
        interval.processes =
            Some((0..30).map(|n| load(n, "sh", f64::from(100 - n), f64::from(n))).collect());
        let mut choice = Choice { view: View::Processes, first: 5, ..Choice::default() };
        let (_, first) = drawn(&Shown { choice, ..shown(Some(&interval)) }, 80, 16);
        assert_eq!(first, 5);
        let at = |choice, line: usize| {
            let lines = lines(&Shown { choice, ..shown(Some(&interval)) }, 80, 16);
            lines[line].split_whitespace().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(at(choice, 6), ["process", "id", "per", "s", "read/s", "written/s", "busy"]);
        assert_eq!(at(choice, 7)[..3], ["sh", "5", "95"]);
        choice.order = Order::Busy;
        assert_eq!(at(choice, 7)[1], "24");
        // Beyond the end: the last rows fill the screen.
        choice.first = 1000;
        let (_, first) = drawn(&Shown { choice, ..shown(Some(&interval)) }, 80, 16);
        assert_eq!(first, 30 - 8);
        assert_eq!(at(choice, 14)[1], "0");
    }

    #[test]
    fn alarms_are_first_and_seen_without_colours() {
        let mut interval = interval();
        interval.failed = Some("a write to the device failed".into());
        let mut shown = shown(Some(&interval));
        shown.silent = Duration::from_secs(12);
        let lines = lines(&shown, 60, 20);
        assert_eq!(lines[0], "NO ANSWER of the server for 12 s");
        assert_eq!(lines[1], "FAILED: the volume takes no changes: a write to the device");
        assert_eq!(lines[2], "failed");
        let (coloured, _) = drawn(&shown, 60, 20);
        assert_eq!(coloured[(0, 0)].fg, Color::Red);
        shown.theme = Theme { is_coloured: false };
        let (plain, _) = drawn(&shown, 60, 20);
        assert!(plain[(0, 0)].modifier.contains(Modifier::REVERSED));
        assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset), "no colour at all");
    }

    #[test]
    fn requests_of_a_bucket_are_in_the_head() {
        let clauses = ["bucket: 2.0 requests/s write 4.0 KiB/s", "0.0360 $ an hour"];
        let interval = Interval { store: Some(clauses.map(String::from).into()), ..interval() };
        let lines = lines(&shown(Some(&interval)), 80, 24);
        assert_eq!(lines[5], clauses.join("; "));
    }

    #[test]
    fn errors_are_coloured() {
        let interval = interval();
        let (buffer, _) = drawn(&shown(Some(&interval)), 100, 24);
        let yellow: String = buffer
            .content()
            .iter()
            .filter(|cell| cell.fg == Color::Yellow)
            .map(|cell| cell.symbol())
            .collect();
        assert_eq!(yellow.trim(), "6");
    }

    #[test]
    fn before_the_first_interval_it_says_when_it_comes() {
        assert!(lines(&shown(None), 60, 10).iter().any(|it| it.contains("comes after 2 s")));
    }

    #[test]
    fn colours_are_for_terminals_and_users_that_want_them() {
        let of = |term, no_color: Option<&str>| Theme::of(term, no_color.map(OsStr::new));
        for (term, no_color, expected) in [
            ("xterm-256color", None, Some(true)),
            ("tmux", Some(""), Some(true)),
            ("xterm", Some("1"), Some(false)),
            ("vt100", None, Some(false)),
            ("xterm-m", None, Some(false)),
            ("dumb", None, None),
            ("", None, None),
        ] {
            let found = of(term, no_color).map(|theme| theme.is_coloured);
            assert_eq!(found, expected, "{term} {no_color:?}");
        }
    }
}
