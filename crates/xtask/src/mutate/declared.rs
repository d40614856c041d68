//! The declarations of the on-disk format, found in source text, and what they become when one
//! field of them is changed.

/// An entry of a declaration: a field, a constant, or bytes that are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Offset of a field; number of a variant.
    at: usize,
    name: String,
    /// Text behind the name, to the end of the entry: type, constant, document.
    rest: String,
}

/// A list of entries between braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    /// Declared name.
    pub name: String,
    /// Range of the entries in the source.
    body: std::ops::Range<usize>,
    entries: Vec<Entry>,
    /// Entries without an offset, which no mutation touches.
    others: Vec<String>,
    /// Of a structure: where its size stands, and how often.
    size: Option<(std::ops::Range<usize>, usize)>,
    /// Its size.
    bytes: Option<usize>,
    end: char,
}

/// A change of one declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutation {
    /// Description of the change.
    pub name: String,
    /// The whole source with the change.
    pub source: String,
}

/// The declarations in a source file.
pub(super) fn declarations(source: &str) -> Vec<Declaration> {
    let mut found = Vec::new();
    for (word, end) in [("\nlayout! {", ';'), ("\nitems! {", ';'), ("\nnumbered! {", ',')] {
        for (at, _) in source.match_indices(word) {
            let start = at + word.len();
            let stop = close(source, start);
            groups(source, start..stop, end, &mut found);
        }
    }
    found
}

/// The brace that closes what is open at `from`.
fn close(source: &str, from: usize) -> usize {
    let mut depth = 1;
    for (at, c) in code(source, from) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    source.len()
}

/// Characters outside strings and comments, from a place on.
fn code(source: &str, from: usize) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut string, mut comment, mut before) = (false, false, ' ');
    source[from..].char_indices().filter_map(move |(at, c)| {
        let last = std::mem::replace(&mut before, c);
        match c {
            '\n' if comment => comment = false,
            _ if comment => {}
            '"' if last != '\\' => string = !string,
            _ if string => {}
            '/' if last == '/' => comment = true,
            c => return Some((from + at, c)),
        }
        None
    })
}

/// The groups of entries in a macro's body.
fn groups(source: &str, within: std::ops::Range<usize>, end: char, found: &mut Vec<Declaration>) {
    let mut at = within.start;
    while let Some((open, _)) = code(source, at).find(|(at, c)| *c == '{' && *at < within.end) {
        let stop = close(source, open + 1);
        let head = &source[at..open];
        let (entries, others) = entries(&source[open + 1..stop], end);
        let name = name_of(head);
        if entries.len() > 1 {
            let size = size_of(head).map(|(range, n)| (at + range.start..at + range.end, n));
            let bytes = size.as_ref().and_then(|(range, _)| number(&source[range.clone()]));
            found.push(Declaration {
                name,
                body: open + 1..stop,
                entries,
                others,
                size,
                bytes,
                end,
            });
        }
        at = stop + 1;
    }
}

/// The word behind `struct` or `enum`, or the last one before the brace.
fn name_of(head: &str) -> String {
    let line = head.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let all = head.split_whitespace().collect::<Vec<_>>();
    let after = |word: &str| all.iter().position(|w| *w == word).and_then(|i| all.get(i + 1));
    let name = after("struct").or(after("enum")).copied();
    name.or(line.split_whitespace().last()).unwrap_or("?").trim_end_matches(':').to_owned()
}

/// Returns the range of `SIZE of WHOLE` in a head, and how many of its bytes are the size.
fn size_of(head: &str) -> Option<(std::ops::Range<usize>, usize)> {
    let of = head.find(" of ")?;
    let start = head[..of].rfind(' ')? + 1;
    let size = &head[start..of];
    let whole: String = head[of + 4..].chars().take_while(|c| c.is_alphanumeric()).collect();
    let equal = size == whole;
    size.parse::<usize>().ok()?;
    Some((start..if equal { of + 4 + whole.len() } else { of }, if equal { 2 } else { 1 }))
}

fn number(text: &str) -> Option<usize> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

fn entries(body: &str, end: char) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut others, mut from, mut depth) = (Vec::new(), Vec::new(), 0, 0);
    for (at, c) in code(body, 0) {
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth -= 1,
            c if c == end && depth == 0 => {
                let text = body[from..at].trim();
                from = at + 1;
                match entry(text) {
                    Some(entry) => entries.push(entry),
                    None => others.push(text.to_owned()),
                }
            }
            _ => {}
        }
    }
    (entries, others)
}

/// An entry, without the comments before it.
fn entry(text: &str) -> Option<Entry> {
    let line = |line: &&str| !line.trim_start().starts_with(['/', '#']);
    let text = text.lines().filter(line).collect::<Vec<_>>().join("\n");
    let (at, rest) = text.trim().split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    Some(Entry { at: at.parse().ok()?, name: name.into(), rest: rest.into() })
}

impl Declaration {
    /// Every change of one field, in the source that it was found in.
    pub(super) fn mutations(&self, source: &str) -> Vec<Mutation> {
        let mut all = Vec::new();
        let mut push = |what: String, entries: Vec<Entry>, longer: usize| {
            let name = format!("{}: {what}", self.name);
            all.push(Mutation { name, source: self.with(source, &entries, longer) });
        };
        for i in 0..self.entries.len() - 1 {
            let (a, b) = (&self.entries[i].name, &self.entries[i + 1].name);
            // Bytes that are not read are zeros, whatever they are called: only their number shows.
            let unread = |entry: &Entry| entry.rest.starts_with('[');
            let twins = self.entries[i].kind() == self.entries[i + 1].kind();
            if !(twins && unread(&self.entries[i])) {
                push(format!("{a} and {b} change places"), self.reordered(i), 0);
            }
            // The next field of the same type.
            let same = |entry: &Entry| entry.kind() == self.entries[i].kind() && !unread(entry);
            if let Some(j) = (i + 1..self.entries.len()).find(|j| same(&self.entries[*j])) {
                let b = &self.entries[j].name;
                push(format!("{a} and {b} swap names"), self.swapped(i, j), 0);
            }
        }
        if self.end == ';' {
            for i in 0..self.entries.len() {
                let wider = self.widened(i);
                push(format!("{} is a byte wider", self.entries[i].name), wider, 1);
            }
        }
        all
    }

    fn reordered(&self, i: usize) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        if self.end == ',' {
            // Of an enumeration: two variants change numbers.
            let at = entries[i].at;
            entries[i].at = std::mem::replace(&mut entries[i + 1].at, at);
            return entries;
        }
        entries.swap(i, i + 1);
        let start = self.entries[i].at;
        let second = self.entries[i + 1].at;
        let end = self.entries.get(i + 2).map(|entry| entry.at).or(self.bytes);
        entries[i].at = start;
        // What varies in length has no end: the compiler will not take it.
        entries[i + 1].at = end.map_or(second, |end| start + (end - second));
        entries
    }

    fn swapped(&self, i: usize, j: usize) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        (entries[i].name, entries[j].name) =
            (self.entries[j].name.clone(), self.entries[i].name.clone());
        entries
    }

    /// A byte that is not read follows the field.
    fn widened(&self, i: usize) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        let next = self.entries.get(i + 1).map(|entry| entry.at);
        entries[i + 1..].iter_mut().for_each(|entry| entry.at += 1);
        if let Some(at) = next {
            let wider = Entry { at, name: "wider".into(), rest: "[1], \"zero\"".into() };
            entries.insert(i + 1, wider);
        } else {
            // The last one moves by a byte.
            let at = entries[i].at;
            entries[i].at += 1;
            entries.insert(i, Entry { at, name: "wider".into(), rest: "[1], \"zero\"".into() });
        }
        entries
    }

    /// The source with these entries, in a structure that is longer by so much.
    fn with(&self, source: &str, entries: &[Entry], longer: usize) -> String {
        let mut body = String::from("\n");
        for Entry { at, name, rest } in entries {
            body += &format!("{at} {name}{rest}{}\n", self.end);
        }
        for other in &self.others {
            body += &format!("{other}{}\n", self.end);
        }
        let mut text = source.to_owned();
        text.replace_range(self.body.clone(), &body);
        if let Some((range, times)) = self.size.clone().filter(|_| longer > 0) {
            let size = number(&source[range.clone()]).unwrap_or(0) + longer;
            let sizes = if times == 2 { format!("{size} of {size}") } else { size.to_string() };
            text.replace_range(range, &sizes);
        }
        text
    }
}

impl Entry {
    /// Its type; of a constant and of bytes that are not read, what makes it one.
    fn kind(&self) -> &str {
        self.rest.split([',', '=']).next().unwrap_or_default().trim()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
layout! {
    /// A thing { with a brace.
    #[derive(Clone)]
    pub struct Thing: "thing", 14 of 14, "What; it is." {
        0 magic: u32 = MAGIC, "a; b";
        4 a: u32, "one";
        8 b: u32,
            "two";
        12 pad[2], "zero";
        + name: Vec<u8>, "not here";
    }
}

numbered! {
    /// A kind.
    enum Kind: u8 {
        /// One.
        1 One,
        2 Two,
    }
}
"#;

    #[test]
    fn declarations_are_found_and_every_field_is_changed() {
        let found = declarations(SOURCE);
        let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["Thing", "Kind"]);
        let mutations: Vec<Mutation> = found.iter().flat_map(|d| d.mutations(SOURCE)).collect();
        let names: Vec<&str> = mutations.iter().map(|m| m.name.as_str()).collect();
        let wanted = [
            "Thing: magic and a change places",
            "Thing: a and b change places",
            "Thing: a and b swap names",
            "Thing: b and pad change places",
            "Thing: magic is a byte wider",
            "Thing: a is a byte wider",
            "Thing: b is a byte wider",
            "Thing: pad is a byte wider",
            "Kind: One and Two change places",
        ];
        assert_eq!(names.iter().filter(|name| wanted.contains(name)).count(), wanted.len());
        let of = |name: &str| &mutations.iter().find(|m| m.name == name).expect("is there").source;
        assert!(
            of(wanted[0]).contains("\n0 a: u32, \"one\";\n4 magic: u32 = MAGIC, \"a; b\";\n8 b")
        );
        assert!(of(wanted[2]).contains("\n4 b: u32, \"one\";\n8 a: u32,"));
        let wide = of(wanted[5]);
        assert!(wide.contains("4 a: u32, \"one\";\n8 wider[1], \"zero\";\n9 b: u32"), "{wide}");
        assert!(wide.contains("\"thing\", 15 of 15, \"What"), "{wide}");
        assert!(of(wanted[7]).contains("12 wider[1], \"zero\";\n13 pad[2]"));
        assert!(of(wanted[8]).contains("2 One,\n1 Two,\n"));
        assert!(wide.contains("+ name: Vec<u8>, \"not here\";"));
    }
}
