//! The label of a volume: a name that people give it, by which it can be mounted (`LABEL=backup`).
//!
//! It lies in bytes of the superblock that were reserved: an older Shoal does not read them, and
//! writes zeros there with its next checkpoint, which removes the label and nothing else. So there
//! is no feature bit for it.

use crate::declare::Field;
use std::fmt;

/// Longest label, in bytes.
pub const LABEL_MAX: usize = 64;

/// The label of a volume; empty for none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label([u8; LABEL_MAX]);

impl Label {
    /// No label.
    pub const NONE: Label = Label([0; LABEL_MAX]);

    /// Makes a label of a text.
    ///
    /// # Errors
    /// A rule that the text breaks, for people.
    pub fn new(text: &str) -> Result<Label, String> {
        if text.len() > LABEL_MAX {
            return Err(format!("a label has at most {LABEL_MAX} bytes, this one {}", text.len()));
        }
        if text.chars().any(|c| c.is_control() || c == '/') {
            return Err("a label has no slash and no control characters".to_owned());
        }
        let mut raw = [0; LABEL_MAX];
        raw[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Label(raw))
    }

    /// Returns the text, empty for none.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(LABEL_MAX);
        // Checked when it was made or read.
        str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl Default for Label {
    fn default() -> Label {
        Label::NONE
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl Field for Label {
    const LEN: usize = LABEL_MAX;

    fn put(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.0);
    }

    fn get(from: &[u8]) -> Option<Label> {
        let raw: &[u8; LABEL_MAX] = from.first_chunk()?;
        let len = raw.iter().position(|byte| *byte == 0).unwrap_or(LABEL_MAX);
        let text = str::from_utf8(&raw[..len]).ok()?;
        // Nothing behind the padding: one label has one form.
        Label::new(text).ok().filter(|label| label.0 == *raw)
    }

    fn text(&self) -> String {
        format!("{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        let longest = "x".repeat(LABEL_MAX);
        for text in ["", "backup", "Daten von Jürgen", "a b=c,d", &longest] {
            let label = Label::new(text).expect("a label");
            assert_eq!(label.as_str(), text);
            let mut raw = [1; LABEL_MAX];
            label.put(&mut raw);
            assert_eq!(Label::get(&raw), Some(label), "{text}");
        }
        for text in ["a/b", "a\nb", "a\0b", &"x".repeat(LABEL_MAX + 1)] {
            assert!(Label::new(text).is_err(), "{text:?}");
        }
        let mut raw = [0; LABEL_MAX];
        for (at, byte) in [(0, 0xff), (1, b'x'), (0, b'/'), (0, 7)] {
            raw.fill(0);
            raw[at] = byte;
            assert_eq!(Label::get(&raw), None, "{byte} at {at}");
        }
    }
}
