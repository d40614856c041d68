//! From words to an expression. Errors name the word.
//!
//! ```text
//! list    = or { "," or }
//! or      = and { "-o" and }
//! and     = not { ["-a"] not }
//! not     = "!" not | "(" list ")" | primary
//! ```

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::expr::{Action, Expr, Test};
use super::primary::{Options, Primaries, Primary, failure};
use crate::accounts::Accounts;
use crate::failure::{Failure, Result};

/// Parentheses and negations in each other, at most: parsing and evaluation are recursive.
const NESTED_MAX: usize = 200;

/// A command line of `find`.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Places to start at.
    pub places: Vec<OsString>,
    /// The expression, which ends in an action.
    pub expr: Expr,
    /// The options, which hold for all files.
    pub options: Options,
}

/// Parses the words behind `shoal find`.
pub(crate) fn parse(words: &[OsString], accounts: &Accounts) -> Result<Parsed> {
    let options = Options {
        depth_min: 0,
        depth_max: usize::MAX,
        contents_first: false,
        one_subvolume: false,
        json: false,
        null: false,
    };
    let mut parser = Parser {
        words: words.iter().map(OsString::as_os_str).collect(),
        primaries: Primaries { accounts, options, from_midnight: false, commands: 0 },
        places: Vec::new(),
        places_come_first: false,
        nested: 0,
    };
    parser.take_places();
    parser.places_come_first = !parser.places.is_empty();
    let expr = match parser.words.front() {
        None => Expr::Test(Test::Always(true)),
        Some(_) => parser.list()?,
    };
    if let Some(word) = parser.words.front() {
        let what = if *word == ")" { "closes nothing" } else { "must come after an expression" };
        return Err(failure(word, what));
    }
    let Parser { primaries: Primaries { options, .. }, places, .. } = parser;
    finish(places, expr, options)
}

/// Checks the whole, and adds the action that is not written.
fn finish(places: Vec<OsString>, mut expr: Expr, mut options: Options) -> Result<Parsed> {
    if places.is_empty() {
        return Err(Failure::usage("find", "no place to start at (write VOLUME:/path first)"));
    }
    let deletes = expr.has(|action| matches!(action, Action::Delete));
    if deletes && !options.contents_first {
        if expr.has(|action| matches!(action, Action::Prune)) {
            let what = "turns on -depth, with which -prune does nothing (write -depth to do so)";
            return Err(Failure::usage("-delete", what));
        }
        options.contents_first = true;
    }
    if !expr.has(|action| !matches!(action, Action::Prune | Action::Quit)) {
        expr = Expr::And(vec![expr, Expr::Action(Action::Print)]);
    }
    let parsed = Parsed { places, expr, options };
    parsed.check()?;
    Ok(parsed)
}

impl Parsed {
    /// Checks options that exclude each other.
    pub(crate) fn check(&self) -> Result<()> {
        match self.options.json && self.options.null {
            true => Err(Failure::usage("--json", "cannot be used with -0")),
            false => Ok(()),
        }
    }

    /// Returns whether files may change while it goes on, so that attributes must be read late.
    pub(crate) fn changes(&self) -> bool {
        self.expr.has(|action| matches!(action, Action::Delete | Action::Exec(_)))
    }

    /// Refuses commands, for a volume that is open here.
    pub(crate) fn refuse_commands(&self) -> Result<()> {
        self.expr.actions(&mut |action| match action {
            Action::Exec(exec) => Err(exec.refused()),
            _ => Ok(()),
        })
    }

    /// Returns whether it changes the volume.
    pub(crate) fn deletes(&self) -> bool {
        self.expr.has(|action| matches!(action, Action::Delete))
    }
}

struct Parser<'w> {
    words: VecDeque<&'w OsStr>,
    primaries: Primaries<'w>,
    places: Vec<OsString>,
    /// Places stood before the expression, so that there are none in it.
    places_come_first: bool,
    nested: usize,
}

/// Returns whether a word belongs to an expression.
fn is_expression(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    matches!(bytes, b"(" | b")" | b"!" | b",") || bytes.first() == Some(&b'-') && bytes.len() > 1
}

impl<'w> Parser<'w> {
    fn take_places(&mut self) {
        while let Some(word) = self.words.pop_front_if(|word| !is_expression(word)) {
            self.places.push(word.to_owned());
        }
    }

    /// Takes the next word if it is one of these.
    fn take(&mut self, words: &[&str]) -> Option<&'w OsStr> {
        self.words.pop_front_if(|next| words.iter().any(|word| next == word))
    }

    fn list(&mut self) -> Result<Expr> {
        self.operands(&[","], Parser::or, Expr::List)
    }

    fn or(&mut self) -> Result<Expr> {
        self.operands(&["-o", "-or"], Parser::and, Expr::Or)
    }

    /// Reads operands with operators between them.
    fn operands(
        &mut self,
        operators: &[&str],
        operand: fn(&mut Self) -> Result<Expr>,
        join: fn(Vec<Expr>) -> Expr,
    ) -> Result<Expr> {
        let mut all = vec![operand(self)?];
        while let Some(operator) = self.take(operators) {
            if self.words.is_empty() {
                return Err(failure(operator, "has nothing behind it"));
            }
            all.push(operand(self)?);
        }
        Ok(joined(all, join))
    }

    fn and(&mut self) -> Result<Expr> {
        let mut all = vec![self.not()?];
        loop {
            let operator = self.take(&["-a", "-and"]);
            match self.words.front() {
                None if operator.is_none() => break,
                Some(word) if operator.is_none() && is_end(word) => break,
                None => {
                    return Err(failure(operator.unwrap_or_default(), "has nothing behind it"));
                }
                Some(_) => all.push(self.not()?),
            }
        }
        Ok(joined(all, Expr::And))
    }

    fn not(&mut self) -> Result<Expr> {
        let mut negations = 0_usize;
        let mut last = None;
        while let Some(word) = self.take(&["!", "-not"]) {
            (negations, last) = (negations + 1, Some(word));
        }
        let Some(word) = self.words.pop_front() else {
            return Err(failure(last.unwrap_or_default(), "has nothing behind it"));
        };
        let inner = match word.as_bytes() {
            b"(" => self.parentheses()?,
            b")" | b"," | b"-o" | b"-or" | b"-a" | b"-and" => {
                return Err(failure(word, "has nothing before it"));
            }
            _ => self.primary(word)?,
        };
        // Two negations are none.
        Ok(if negations.is_multiple_of(2) { inner } else { Expr::Not(Box::new(inner)) })
    }

    fn parentheses(&mut self) -> Result<Expr> {
        let open = OsStr::new("(");
        self.nested += 1;
        if self.nested > NESTED_MAX {
            return Err(failure(open, "too many parentheses in each other"));
        }
        match self.words.front() {
            None => return Err(failure(open, "is not closed")),
            Some(word) if *word == ")" => return Err(failure(open, "has nothing in it")),
            Some(_) => {}
        }
        let inner = self.list()?;
        self.nested -= 1;
        match self.take(&[")"]) {
            Some(_) => Ok(inner),
            None => Err(failure(open, "is not closed")),
        }
    }

    fn primary(&mut self, word: &'w OsStr) -> Result<Expr> {
        if !is_expression(word) {
            if self.places_come_first {
                let what = "a place must come before the expression (quote patterns that the \
                            shell must not expand)";
                return Err(failure(word, what));
            }
            self.places.push(word.to_owned());
            return Ok(Expr::Test(Test::Always(true)));
        }
        let words = &mut self.words;
        Ok(match self.primaries.read(word, &mut || words.pop_front())? {
            Primary::Test(test) => Expr::Test(test),
            Primary::Action(action) => Expr::Action(action),
        })
    }
}

/// Returns whether a word ends a chain of `-a`.
fn is_end(word: &OsStr) -> bool {
    matches!(word.as_bytes(), b")" | b"," | b"-o" | b"-or")
}

fn joined(mut all: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    match all.pop() {
        Some(only) if all.is_empty() => only,
        last => {
            all.extend(last);
            join(all)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    fn parsed(line: &str) -> Result<Parsed> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&words, &Accounts::default())
    }

    /// Shows an expression with all parentheses.
    fn show(expr: &Expr) -> String {
        let all = |sign: &str, all: &[Expr]| {
            format!("({})", all.iter().map(show).collect::<Vec<_>>().join(sign))
        };
        match expr {
            Expr::Test(Test::Always(value)) => value.to_string(),
            Expr::Test(Test::Empty) => "empty".into(),
            Expr::Test(_) => "test".into(),
            Expr::Action(action) => format!("{action:?}"),
            Expr::Not(one) => format!("!{}", show(one)),
            Expr::And(list) => all("&", list),
            Expr::Or(list) => all("|", list),
            Expr::List(list) => all(",", list),
        }
    }

    #[test]
    fn operators_bind_as_in_find() {
        let cases: &[(&str, &str)] = &[
            ("v", "(true&Print)"),
            ("v -empty", "(empty&Print)"),
            ("v -true -o -false -a -empty", "((true|(false&empty))&Print)"),
            ("v -true -false , -empty -print", "((true&false),(empty&Print))"),
            ("v ! -true -empty -print", "(!true&empty&Print)"),
            ("v ! ( -true -o ! ! -empty ) -print", "(!(true|empty)&Print)"),
            ("v -true -prune -o -print", "((true&Prune)|Print)"),
            ("v -empty -quit", "((empty&Quit)&Print)"),
            ("-name x v", "((test&true)&Print)"),
            ("v -empty -delete", "(empty&Delete)"),
            ("v -daystart -xtype f,d", "((true&test)&Print)"),
        ];
        for (line, expected) in cases {
            let parsed = parsed(line).expect(line);
            assert_eq!(show(&parsed.expr), *expected, "{line}");
            assert_eq!(parsed.places, ["v"], "{line}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        let cases: &[(&str, &str)] = &[
            ("", "find: no place"),
            ("v -foo", "-foo: "),
            ("v -name", "-name: has no argument"),
            ("v -o -true", "-o: has nothing before"),
            ("v -true -o", "-o: has nothing behind"),
            ("v -true -a", "-a: has nothing behind"),
            ("v !", "!: has nothing behind"),
            ("v ( -true", "(: is not closed"),
            ("v (", "(: is not closed"),
            ("v ( )", "(: has nothing in it"),
            ("v -true )", "): closes nothing"),
            ("v -name x y", "y: a place must come before"),
            ("v -type x", "x: "),
            ("v -type f,", "f,: "),
            ("v -size 5x", "5x: "),
            ("v -mtime a", "a: "),
            ("v -perm zzz", "zzz: "),
            ("v -links -", "-: "),
            ("v -maxdepth -1", "-1: "),
            ("v -user nobody-here", "nobody-here: "),
            ("v -printf %", "%: "),
            ("v -regex (", "(: "),
            ("v -newermt yesterday", "yesterday: "),
            ("v -prune -delete", "-delete: turns on -depth"),
            ("v -exec ls {}", "-exec: has no end"),
            ("v -exec ;", "-exec: has no command"),
            ("v -exec {} +", "-exec: has no command"),
            ("v -exec a{} {} +", "-exec: may have only one"),
            ("v -ok ls {} +", "-ok: has no end"),
            ("v -okdir ;", "-okdir: has no command"),
            ("v -xtype x", "x: "),
            ("v -json -0", "--json: "),
            ("v -L", "-L: "),
        ];
        for (line, begin) in cases {
            let error = parsed(line).expect_err(line);
            let said = error.line().expect("a line");
            assert!(said.starts_with(begin), "{line}: {said}");
        }
    }

    #[test]
    fn options_hold_for_all() {
        let parsed = parsed("v -maxdepth 3 -mindepth 1 -xdev -delete").expect("parsed");
        let options = parsed.options;
        assert_eq!((options.depth_min, options.depth_max), (1, 3));
        assert!(options.one_subvolume && options.contents_first);
    }

    #[test]
    fn nesting_is_bounded() {
        let open = "( ".repeat(100_000);
        assert!(parsed(&format!("v {open}")).is_err());
        let not = "! ".repeat(100_001);
        assert_eq!(
            show(&parsed(&format!("v {not} -empty")).expect("parsed").expr),
            "(!empty&Print)"
        );
    }

    proptest! {
        #![proptest_config(property(256))]

        /// No line makes it panic; what it accepts is as the operators say, printed and read again.
        #[test]
        fn any_line_is_read_or_refused(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("("), Just(")"), Just("!"), Just("-a"), Just("-o"), Just(","),
                    Just("-true"), Just("-false"), Just("-empty"), Just("-name"), Just("-size"),
                    Just("-prune"), Just("-printf"), Just("+1k"), Just("%p\\n"), Just("x"),
                    Just("-mtime"), Just("-depth"), Just("-regex"), Just("[a"), Just("-perm"),
                ],
                0..12,
            ),
        ) {
            let _ = parsed(&format!("v {}", words.join(" ")));
        }

        #[test]
        fn what_is_written_is_read(expr in expressions()) {
            let read = parsed(&format!("v {} -print", write(&expr))).expect("read");
            prop_assert_eq!(values(&read.expr), values(&expr));
        }
    }

    /// Expressions of constants.
    fn expressions() -> impl Strategy<Value = Expr> {
        let leaf = any::<bool>().prop_map(|value| Expr::Test(Test::Always(value))).boxed();
        (0..1).prop_flat_map(move |_| nested(leaf.clone(), 3))
    }

    fn nested(leaf: BoxedStrategy<Expr>, depth: usize) -> BoxedStrategy<Expr> {
        if depth == 0 {
            return leaf;
        }
        let inner = move || nested(leaf.clone(), depth - 1);
        let some = |of: BoxedStrategy<Expr>| proptest::collection::vec(of, 1..4);
        prop_oneof![
            inner(),
            inner().prop_map(|one| Expr::Not(Box::new(one))),
            some(inner()).prop_map(Expr::And),
            some(inner()).prop_map(Expr::Or),
            some(inner()).prop_map(Expr::List),
        ]
        .boxed()
    }

    fn write(expr: &Expr) -> String {
        let all = |sign: &str, all: &[Expr]| {
            format!("( {} )", all.iter().map(write).collect::<Vec<_>>().join(sign))
        };
        match expr {
            Expr::Test(Test::Always(value)) => format!("-{value}"),
            Expr::Not(one) => format!("! {}", write(one)),
            Expr::And(list) => all(" ", list),
            Expr::Or(list) => all(" -o ", list),
            Expr::List(list) => all(" , ", list),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the value of an expression of constants; an action is true.
    fn values(expr: &Expr) -> bool {
        match expr {
            Expr::Test(Test::Always(value)) => *value,
            Expr::Test(_) | Expr::Action(_) => true,
            Expr::Not(one) => !values(one),
            Expr::And(list) => list.iter().all(values),
            Expr::Or(list) => list.iter().any(values),
            Expr::List(list) => list.last().is_some_and(values),
        }
    }
}
