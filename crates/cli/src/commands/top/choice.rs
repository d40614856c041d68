//! The keys of the screen, and what they choose.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::interval::Row;

/// Rows by which a page of a table is scrolled.
const PAGE: usize = 10;

/// Tables that are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum View {
    /// As much of each as there is place for.
    #[default]
    All,
    Requests,
    Inside,
    Users,
    Processes,
}

impl View {
    const ORDER: [(View, &str); 5] = [
        (View::All, "all"),
        (View::Requests, "requests"),
        (View::Inside, "volume"),
        (View::Users, "users"),
        (View::Processes, "processes"),
    ];

    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        View::ORDER[self.place()].1
    }

    fn place(self) -> usize {
        View::ORDER.iter().position(|(view, _)| *view == self).unwrap_or_default()
    }

    fn moved(self, by: usize) -> View {
        View::ORDER[(self.place() + by) % View::ORDER.len()].0
    }
}

/// Order of users and processes, the largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Order {
    #[default]
    Requests,
    Bytes,
    Busy,
}

impl Order {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Requests => "operations",
            Order::Bytes => "bytes",
            Order::Busy => "busy",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Requests => Order::Bytes,
            Order::Bytes => Order::Busy,
            Order::Busy => Order::Requests,
        }
    }

    /// Sorts rows.
    pub(super) fn sort(self, rows: &mut [Row]) {
        let key = |row: &Row| match self {
            Order::Requests => row.requests,
            Order::Bytes => row.read + row.written,
            Order::Busy => row.busy,
        };
        rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }
}

/// State of the screen that keys change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Choice {
    pub view: View,
    pub order: Order,
    /// First row that is shown of a table that has the screen for itself.
    pub first: usize,
    /// New readings are not shown.
    pub is_paused: bool,
}

impl Choice {
    /// Does what a key says. Returns whether it ends the command.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Tab | KeyCode::Right => self.show(self.view.moved(1)),
            KeyCode::BackTab | KeyCode::Left => {
                self.show(self.view.moved(View::ORDER.len() - 1));
            }
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Down => self.first = self.first.saturating_add(1),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first = self.first.saturating_add(PAGE),
            KeyCode::PageUp => self.first = self.first.saturating_sub(PAGE),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        false
    }

    fn show(&mut self, view: View) {
        (self.view, self.first) = (view, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(keys: &[KeyCode]) -> Choice {
        let mut choice = Choice::default();
        for key in keys {
            assert!(!choice.press(KeyEvent::from(*key)), "{key:?} does not end it");
        }
        choice
    }

    #[test]
    fn keys_go_around() {
        assert_eq!(after(&[KeyCode::Tab]).view, View::Requests);
        assert_eq!(after(&[KeyCode::Left]).view, View::Processes);
        assert_eq!(after(&[KeyCode::Tab; 5]), Choice::default());
        assert_eq!(after(&[KeyCode::Char('s'); 2]).order, Order::Busy);
        assert_eq!(after(&[KeyCode::Char('s'); 3]).order, Order::Requests);
        assert!(after(&[KeyCode::Char(' ')]).is_paused);
        assert!(!after(&[KeyCode::Char(' '); 2]).is_paused);
        assert_eq!(after(&[KeyCode::PageDown, KeyCode::Up, KeyCode::Down]).first, PAGE);
        assert_eq!(after(&[KeyCode::Up, KeyCode::PageUp]).first, 0);
        assert_eq!(after(&[KeyCode::PageDown, KeyCode::Tab]).first, 0, "another table");
        assert_eq!(after(&[KeyCode::Char('c')]), Choice::default());
    }

    #[test]
    fn three_keys_end_it() {
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [control_c, KeyCode::Esc.into(), KeyCode::Char('q').into()] {
            assert!(Choice::default().press(key), "{key:?}");
        }
    }

    #[test]
    fn rows_are_sorted_by_the_choice() {
        let row = |id, requests, written, busy| {
            let name = String::new();
            Row { id, name, user: 0, requests, read: 1.0, written, busy }
        };
        let rows = [row(1, 9.0, 1.0, 2.0), row(2, 8.0, 7.0, 1.0), row(3, 7.0, 6.0, 3.0)];
        for (order, ids) in
            [(Order::Requests, [1, 2, 3]), (Order::Bytes, [2, 3, 1]), (Order::Busy, [3, 1, 2])]
        {
            let mut rows = rows.clone();
            order.sort(&mut rows);
            assert_eq!(rows.map(|row| row.id), ids, "{order:?}");
        }
    }
}
