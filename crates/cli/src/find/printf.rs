//! `-printf`: formats, with the fields of find(1).

use shoal::raw::{Code, Error, FileKind, Time};

use super::file::{File, World};
use super::stamp::Stamp;
use crate::clock::Date;
use crate::text::{kind_letter, mode_text};

/// A format, read.
#[derive(Debug)]
pub(crate) struct Format(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    /// Text as it is.
    Text(Vec<u8>),
    /// A property of the file.
    Field(Layout, Property),
    /// `\c`: the rest of the format counts for nothing.
    End,
}

#[derive(Clone, Copy, Default, Debug)]
struct Layout {
    left: bool,
    zeros: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Property {
    /// A letter of find(1).
    Letter(u8),
    /// A time, whole (`None`), or a field of it.
    Time(Stamp, Option<u8>),
}

/// Letters of properties that need no attributes.
const OF_NAME: &[u8] = b"dfFhHilpPyY";
/// Those that need them.
const OF_ATTRIBUTES: &[u8] = b"bgGkmMnsSuU";
/// Widths beyond this are refused: each line would be that long.
const WIDTH_MAX: usize = 4096;

impl Format {
    /// Reads a format. The error says what is wrong with it.
    pub(crate) fn parse(text: &[u8]) -> Result<Format, String> {
        let (mut pieces, mut plain, mut at) = (Vec::new(), Vec::new(), 0);
        while let Some(byte) = text.get(at).copied() {
            at += 1;
            match byte {
                b'\\' => {
                    if text.get(at) == Some(&b'c') {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                        pieces.push(Piece::End);
                        return Ok(Format(pieces));
                    }
                    at += escape(&text[at..], &mut plain);
                }
                b'%' if text.get(at) == Some(&b'%') => {
                    plain.push(b'%');
                    at += 1;
                }
                b'%' => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    let (layout, property, used) = field(&text[at..])?;
                    pieces.push(Piece::Field(layout, property));
                    at += used;
                }
                byte => plain.push(byte),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Format(pieces))
    }

    /// Returns whether it shows more of a file than name, type and inode number.
    pub(crate) fn needs_attributes(&self) -> bool {
        self.0.iter().any(|piece| match piece {
            Piece::Field(_, Property::Letter(letter)) => OF_ATTRIBUTES.contains(letter),
            Piece::Field(_, Property::Time(..)) => true,
            Piece::Text(_) | Piece::End => false,
        })
    }

    /// Returns the text for a file.
    pub(crate) fn show(&self, file: &File<'_>, world: &World<'_>) -> Result<Vec<u8>, Error> {
        let mut line = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => line.extend_from_slice(text),
                Piece::Field(layout, property) => {
                    let value = match property {
                        Property::Letter(letter) => show(*letter, layout, file, world)?,
                        Property::Time(stamp, field) => {
                            time(stamp.of(&*world.attributes(file)?), *field).into()
                        }
                    };
                    layout.put(&value, &mut line);
                }
                Piece::End => break,
            }
        }
        Ok(line)
    }
}

/// Reads what follows a backslash; returns its length.
fn escape(rest: &[u8], plain: &mut Vec<u8>) -> usize {
    let octal = rest.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if octal > 0 {
        let value =
            rest[..octal].iter().fold(0_u32, |value, byte| value * 8 + u32::from(byte - b'0'));
        // As in C, the lowest eight bits count.
        plain.push(value as u8);
        return octal;
    }
    let byte = match rest.first() {
        Some(b'a') => 7,
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 11,
        Some(b'\\') => b'\\',
        Some(other) => {
            plain.extend([b'\\', *other]);
            return 1;
        }
        None => {
            plain.push(b'\\');
            return 0;
        }
    };
    plain.push(byte);
    1
}

/// Reads what follows a percent sign; returns its length too.
fn field(rest: &[u8]) -> Result<(Layout, Property, usize), String> {
    let (mut layout, mut at) = (Layout::default(), 0);
    while let Some(flag) = rest.get(at) {
        match flag {
            b'-' => layout.left = true,
            b'0' => layout.zeros = true,
            b'#' => layout.alternate = true,
            b' ' | b'+' => {}
            _ => break,
        }
        at += 1;
    }
    layout.width = number(rest, &mut at)?.unwrap_or(0);
    if rest.get(at) == Some(&b'.') {
        at += 1;
        layout.precision = Some(number(rest, &mut at)?.unwrap_or(0));
    }
    let letter = *rest.get(at).ok_or("ends within a field (write %% for the sign)")?;
    let stamp = match letter {
        b'a' | b'A' => Stamp::Access,
        b'B' => Stamp::Birth,
        b'c' | b'C' => Stamp::Change,
        b't' | b'T' => Stamp::Modify,
        letter if OF_NAME.contains(&letter) || OF_ATTRIBUTES.contains(&letter) => {
            return Ok((layout, Property::Letter(letter), at + 1));
        }
        letter => return Err(format!("has no field %{}", char::from(letter).escape_default())),
    };
    if letter.is_ascii_lowercase() {
        return Ok((layout, Property::Time(stamp, None), at + 1));
    }
    let within = rest.get(at + 1).copied().unwrap_or_default();
    let is_field =
        matches!(within, b'@' | b'+') || Date::of(Time { sec: 0, nsec: 0 }).field(within).is_some();
    match is_field {
        true => Ok((layout, Property::Time(stamp, Some(within)), at + 2)),
        false => Err(format!("has a %{} without a field of a time", char::from(letter))),
    }
}

fn number(rest: &[u8], at: &mut usize) -> Result<Option<usize>, String> {
    let digits = rest[*at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = String::from_utf8_lossy(&rest[*at..*at + digits]).into_owned();
    *at += digits;
    match (digits, text.parse()) {
        (0, _) => Ok(None),
        (_, Ok(number)) if number <= WIDTH_MAX => Ok(Some(number)),
        _ => Err(format!("has a width beyond {WIDTH_MAX}")),
    }
}

impl Layout {
    /// Appends a value in its width.
    fn put(&self, value: &[u8], line: &mut Vec<u8>) {
        let value = &value[..self.precision.unwrap_or(usize::MAX).min(value.len())];
        let fill = self.width.saturating_sub(value.len());
        if self.left {
            line.extend_from_slice(value);
        }
        line.extend(std::iter::repeat_n(b' ', fill));
        if !self.left {
            line.extend_from_slice(value);
        }
    }

    /// Formats a number that C's printf is given as a number: zeros fill it.
    fn number(&self, digits: String) -> Vec<u8> {
        let width = if self.zeros && !self.left { self.width } else { 0 };
        let zeros = width.max(self.precision.unwrap_or(0)).saturating_sub(digits.len());
        ["0".repeat(zeros), digits].concat().into_bytes()
    }
}

fn show(letter: u8, layout: &Layout, file: &File<'_>, world: &World<'_>) -> Result<Vec<u8>, Error> {
    Ok(match letter {
        b'd' => layout.number(file.depth.to_string()),
        b'f' => last(file).to_vec(),
        b'F' => b"shoal".to_vec(),
        b'h' => file.parent().to_vec(),
        b'H' => file.start.to_vec(),
        b'i' => file.ino.0.to_string().into(),
        b'l' => world.target(file)?.unwrap_or_default(),
        b'p' => file.path.to_vec(),
        b'P' => file.below().to_vec(),
        b'y' => vec![kind_letter(file.kind)],
        b'Y' => vec![followed(file, world)],
        _ => of_attributes(letter, layout, file, world)?,
    })
}

fn of_attributes(
    letter: u8,
    layout: &Layout,
    file: &File<'_>,
    world: &World<'_>,
) -> Result<Vec<u8>, Error> {
    let attr = &*world.attributes(file)?;
    let accounts = world.accounts;
    Ok(match letter {
        b'b' => attr.blocks.to_string().into(),
        b'g' => accounts.group_or_number(attr.gid).into(),
        b'G' => attr.gid.to_string().into(),
        b'k' => attr.blocks.div_ceil(2).to_string().into(),
        b'm' => {
            let digits = format!("{:o}", attr.mode & 0o7777);
            let is_short = layout.alternate && !digits.starts_with('0');
            layout.number(if is_short { format!("0{digits}") } else { digits })
        }
        b'M' => mode_text(attr).into(),
        b'n' => attr.nlink.to_string().into(),
        b's' => attr.size.to_string().into(),
        b'S' => sparseness(attr.blocks, attr.size).into(),
        b'u' => accounts.user_or_number(attr.uid).into(),
        _ => attr.uid.to_string().into(),
    })
}

/// Returns the last component; of the place itself with the slashes that it was typed with.
fn last<'a>(file: &File<'a>) -> &'a [u8] {
    let end = file.path.iter().rposition(|byte| *byte != b'/');
    let Some(end) = end else { return &file.path[..file.path.len().min(1)] };
    let begin = file.path[..=end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    &file.path[begin..]
}

/// Returns the type letter of what a symlink leads to: `N` for nothing, `L` for a loop.
fn followed(file: &File<'_>, world: &World<'_>) -> u8 {
    if file.kind != FileKind::Symlink {
        return kind_letter(file.kind);
    }
    match world.tree.find(file.path) {
        Ok(found) => kind_letter(found.kind),
        Err(error) if error.is(Code::NotFound) || error.is(Code::NotDirectory) => b'N',
        Err(error) if error.is(Code::Loop) => b'L',
        Err(_) => b'?',
    }
}

/// Formats a time, or a field of it. Seconds have ten digits behind the point, as in find(1).
fn time(time: Time, field: Option<u8>) -> String {
    let date = Date::of(time);
    let text = |letter: u8| date.field(letter).unwrap_or_default();
    let fraction = format!(".{:09}0", time.nsec);
    match field {
        None => {
            let day = [text(b'a'), text(b'b'), text(b'e'), text(b'T')].join(" ");
            format!("{day}{fraction} {}", text(b'Y'))
        }
        Some(b'@') => format!("{}{fraction}", time.sec),
        Some(b'+') => format!("{}+{}{fraction}", text(b'F'), text(b'T')),
        Some(letter @ (b'S' | b'T' | b'X')) => text(letter) + &fraction,
        Some(letter) => text(letter),
    }
}

/// Formats space used / size as C's `%g` does.
fn sparseness(blocks: u64, size: u64) -> String {
    match (size, blocks) {
        (0, 0) => "1".to_owned(),
        (0, _) => "inf".to_owned(),
        _ => general(blocks as f64 * 512.0 / size as f64),
    }
}

/// Formats a number that is not negative with six significant digits, as C's `%g`.
fn general(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return trim(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_or_refused() {
        for good in ["", "%p\\n", "%%", "%-20.5p|%05d", "%T@ %A+ %CY", "\\0\\101\\\\\\q", "a\\c%"] {
            assert!(Format::parse(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["%", "%q", "%5", "%T", "%T!", "%99999p", "%.", "%Z", "%D"] {
            assert!(Format::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let names =
            |format: &str| Format::parse(format.as_bytes()).expect(format).needs_attributes();
        assert!(!names("%p %y %i %l") && names("%s") && names("%T@"));
    }

    #[test]
    fn numbers_as_c_writes_them() {
        let cases: &[(f64, &str)] = &[
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (2.0 / 3.0, "0.666667"),
            (512.0, "512"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (0.00001234, "1.234e-05"),
            (0.000123, "0.000123"),
        ];
        for (value, text) in cases {
            assert_eq!(general(*value), *text);
        }
    }
}
