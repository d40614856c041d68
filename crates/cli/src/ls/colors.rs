//! Colors of names, by the environment variable `LS_COLORS`: types, and ends of names.

use shoal::raw::FileKind;

/// The colors, and whether one was used.
pub(crate) struct Colors {
    /// Pairs of a key, such as `di` or `*.tar`, and a color. The last of a key counts.
    table: Vec<(String, String)>,
    used: bool,
}

/// The colors without `LS_COLORS`.
const DEFAULTS: &str = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:\
                        sg=30;43:st=37;44:ow=34;42:tw=30;42";

impl Colors {
    /// Reads the text of `LS_COLORS`. An entry that is not understood is left out.
    pub(crate) fn parse(text: &str) -> Colors {
        let entries = DEFAULTS.split(':').chain(text.split(':'));
        let pairs = entries.filter_map(|entry| entry.split_once('='));
        // A value ends up on the terminal: nothing but the numbers of colors.
        let is_color = |value: &str| value.bytes().all(|it| it.is_ascii_digit() || it == b';');
        let known =
            pairs.filter(|(key, value)| is_color(value) || (*key, *value) == ("ln", "target"));
        let table = known.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Colors { table, used: false }
    }

    /// Returns the color of a key, unless it is none.
    fn get(&self, key: &str) -> Option<&str> {
        let found = self.table.iter().rev().find(|(its, _)| its == key);
        found.map(|(_, value)| value.as_str()).filter(|value| value.bytes().any(|it| it != b'0'))
    }

    fn like_targets(&self) -> bool {
        self.get("ln") == Some("target")
    }

    /// Returns whether colors depend on what symlinks lead to.
    pub(crate) fn need_targets(&self, is_long: bool) -> bool {
        self.get("or").is_some() || self.like_targets() || is_long && self.get("mi").is_some()
    }

    /// Returns the color of a name; `target` is the mode of what a symlink leads to, if it was
    /// looked at and is there.
    fn of_name(&self, name: &[u8], mode: u32, nlink: u32, target: Option<u32>) -> Option<&str> {
        match (FileKind::from_mode(mode), target) {
            (Some(FileKind::Symlink), Some(target)) if self.like_targets() => {
                self.of_mode(name, target, nlink)
            }
            (Some(FileKind::Symlink), None) if self.like_targets() => self.get("or"),
            (Some(FileKind::Symlink), None) => self.get("or").or_else(|| self.get("ln")),
            _ => self.of_mode(name, mode, nlink),
        }
    }

    fn of_mode(&self, name: &[u8], mode: u32, nlink: u32) -> Option<&str> {
        let with = |key: &str, condition: bool| self.get(key).filter(|_| condition);
        match FileKind::from_mode(mode) {
            Some(FileKind::Regular) => with("su", mode & 0o4000 != 0)
                .or_else(|| with("sg", mode & 0o2000 != 0))
                .or_else(|| with("ex", mode & 0o111 != 0))
                .or_else(|| with("mh", nlink > 1))
                .or_else(|| self.of_end(name))
                .or_else(|| self.get("fi")),
            Some(FileKind::Directory) => with("tw", mode & 0o1002 == 0o1002)
                .or_else(|| with("ow", mode & 0o2 != 0))
                .or_else(|| with("st", mode & 0o1000 != 0))
                .or_else(|| self.get("di")),
            Some(FileKind::Symlink) => self.get("ln"),
            Some(FileKind::Fifo) => self.get("pi"),
            Some(FileKind::Socket) => self.get("so"),
            Some(FileKind::BlockDevice) => self.get("bd"),
            Some(FileKind::CharDevice) => self.get("cd"),
            None => self.get("or"),
        }
    }

    /// Returns the color of the last pattern `*END` that a name ends with.
    fn of_end(&self, name: &[u8]) -> Option<&str> {
        let fits = |key: &str| {
            key.strip_prefix('*').is_some_and(|end| {
                let tail = name.len().checked_sub(end.len()).map(|at| &name[at..]);
                tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end.as_bytes()))
            })
        };
        let found = self.table.iter().rev().find(|(key, _)| fits(key));
        found.map(|(_, color)| color.as_str())
    }

    /// Returns the codes before and behind a name.
    pub(crate) fn name(
        &mut self,
        name: &[u8],
        mode: u32,
        nlink: u32,
        target: Option<u32>,
    ) -> [String; 2] {
        let color = self.of_name(name, mode, nlink, target).map(str::to_owned);
        self.around(color)
    }

    /// Returns the codes before and behind the target of a symlink.
    pub(crate) fn target(&mut self, name: &[u8], target: Option<u32>) -> [String; 2] {
        let color = match target {
            Some(mode) => self.of_mode(name, mode, 1),
            None => self.get("mi").or_else(|| self.get("or")),
        };
        let color = color.map(str::to_owned);
        self.around(color)
    }

    fn around(&mut self, color: Option<String>) -> [String; 2] {
        let Some(color) = color else { return Default::default() };
        // Whatever was set before, the first color begins from nothing.
        let reset = if std::mem::replace(&mut self.used, true) { "" } else { "\x1b[0m" };
        [format!("{reset}\x1b[{color}m"), "\x1b[0m".to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_colors_of_their_types_and_ends() {
        let colors = Colors::parse("di=1:*.rs=32:*README=4:ex=00:or=31:bad=\x1b[2J:fi=");
        let cases: &[(&str, u32, Option<u32>, Option<&str>)] = &[
            ("d", 0o040_755, None, Some("1")),
            ("d", 0o041_777, None, Some("30;42")),
            ("a.RS", 0o100_644, None, Some("32")),
            ("a.rs", 0o100_755, None, Some("32")),
            ("README", 0o100_644, None, Some("4")),
            ("plain", 0o100_644, None, None),
            ("su", 0o104_755, None, Some("37;41")),
            ("link", 0o120_777, Some(0o100_644), Some("01;36")),
            ("broken", 0o120_777, None, Some("31")),
            ("pipe", 0o010_644, None, Some("33")),
        ];
        for (name, mode, target, expected) in cases {
            assert_eq!(colors.of_name(name.as_bytes(), *mode, 1, *target), *expected, "{name}");
        }
        let colors = Colors::parse("ln=target");
        assert_eq!(colors.of_name(b"link", 0o120_777, 1, Some(0o040_755)), Some("01;34"));
        assert!(
            Colors::parse("mi=5").need_targets(true) && !Colors::parse("mi=00").need_targets(true)
        );
    }
}
