//! JSON objects, written field by field in the order of the calls.
//!
//! JSON strings must be UTF-8 and names need not be. A name that is not UTF-8 is written with each
//! invalid byte as `\xNN`, and only then a second field, `…_bytes`, holds all bytes as hex.

use serde::Serialize;
use shoal::raw::{Attr, FileKind, Ino, Time};

use crate::text::{device_numbers, escaped, hex, kind_name};

/// An object being written.
pub(crate) struct Object {
    /// The text, without the closing brace.
    text: Vec<u8>,
}

impl Object {
    /// Returns an object without fields.
    pub(crate) fn new() -> Object {
        Object { text: vec![b'{'] }
    }

    /// Adds a field.
    pub(crate) fn put(mut self, field: &str, value: impl Serialize) -> Object {
        self.begin(field);
        self.write(&value);
        self
    }

    /// Adds a field if it has a value.
    pub(crate) fn put_some(self, field: &str, value: Option<impl Serialize>) -> Object {
        match value {
            Some(value) => self.put(field, value),
            None => self,
        }
    }

    /// Adds a name as text, and as hex if the text alone would lose something.
    pub(crate) fn put_name(self, field: &str, name: &[u8]) -> Object {
        match std::str::from_utf8(name) {
            Ok(text) => self.put(field, text),
            Err(_) => {
                self.put(field, escaped(name, false)).put(&format!("{field}_bytes"), hex(name))
            }
        }
    }

    /// Adds a list of names as text, and all of them as hex if the text of one would lose
    /// something.
    pub(crate) fn put_names<'a>(
        self,
        field: &str,
        names: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Object {
        let is_odd = names.clone().any(|name| std::str::from_utf8(name).is_err());
        let texts: Vec<String> = names.clone().map(|name| escaped(name, false)).collect();
        let bytes = is_odd.then(|| names.map(hex).collect::<Vec<String>>());
        self.put(field, texts).put_some(&format!("{field}_bytes"), bytes)
    }

    /// Adds an object.
    pub(crate) fn put_object(mut self, field: &str, object: Object) -> Object {
        self.begin(field);
        self.text.extend(object.into_bytes());
        self
    }

    /// Adds a list of objects.
    pub(crate) fn put_list(mut self, field: &str, objects: impl Iterator<Item = Object>) -> Object {
        self.begin(field);
        let objects: Vec<Vec<u8>> = objects.map(Object::into_bytes).collect();
        self.text.push(b'[');
        self.text.extend(objects.join(&b','));
        self.text.push(b']');
        self
    }

    /// Returns the text of the object.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.text.push(b'}');
        self.text
    }

    fn begin(&mut self, field: &str) {
        if self.text.len() > 1 {
            self.text.push(b',');
        }
        self.write(&field);
        self.text.push(b':');
    }

    fn write(&mut self, value: &impl Serialize) {
        // Numbers, strings, and lists and maps of them: nothing that JSON cannot have.
        let _ = serde_json::to_writer(&mut self.text, value);
    }
}

/// Describes a file by what its directory has.
pub(crate) fn name(path: &[u8], name: &[u8], kind: FileKind, ino: Ino) -> Object {
    Object::new()
        .put_name("path", path)
        .put_name("name", name)
        .put("type", kind_name(kind))
        .put("ino", ino.0)
}

/// Describes the file at `path`, called `name`; `target` is that of a symlink. The output of `ls`,
/// `stat` and `find`.
pub(crate) fn file(path: &[u8], name: &[u8], attr: &Attr, target: Option<&[u8]>) -> Object {
    let time = |Time { sec, nsec }| Object::new().put("sec", sec).put("nsec", nsec);
    let object = self::name(path, name, attr.kind, attr.ino)
        .put("generation", attr.generation.0)
        .put("mode", format!("{:04o}", attr.mode & 0o7777))
        .put("nlink", attr.nlink)
        .put("uid", attr.uid)
        .put("gid", attr.gid)
        .put("size", attr.size)
        .put("blocks", attr.blocks)
        .put_some("device", device_numbers(attr))
        .put_object("atime", time(attr.atime))
        .put_object("mtime", time(attr.mtime))
        .put_object("ctime", time(attr.ctime))
        .put_object("btime", time(attr.btime));
    match target {
        Some(target) => object.put_name("target", target),
        None => object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::attr;

    fn text(object: Object) -> String {
        String::from_utf8(object.into_bytes()).expect("UTF-8")
    }

    #[test]
    fn objects_hold_their_fields_in_order() {
        assert_eq!(text(Object::new()), "{}");
        let inner = || Object::new().put("b", 1).put_some("c", None::<u8>).put("a", [2, 3]);
        let all = Object::new()
            .put("q\"", "x\n")
            .put_object("o", inner())
            .put_list("l", [inner(), Object::new()].into_iter())
            .put_list("e", std::iter::empty())
            .put("z", 1.5);
        let inner = r#"{"b":1,"a":[2,3]}"#;
        let wanted = format!(r#"{{"q\"":"x\n","o":{inner},"l":[{inner},{{}}],"e":[],"z":1.5}}"#);
        assert_eq!(text(all), wanted);
    }

    #[test]
    fn names_lose_nothing() {
        let odd = Object::new().put_name("n", b"a\nb").put_name("m", b"a\xffb");
        assert_eq!(text(odd), r#"{"n":"a\nb","m":"a\\xffb","m_bytes":"61ff62"}"#);
        let names = [&b"a"[..], b"\xff"];
        let list = Object::new().put_names("n", names.into_iter());
        assert_eq!(text(list), r#"{"n":["a","\\xff"],"n_bytes":["61","ff"]}"#);
        let list = Object::new().put_names("n", names[..1].iter().copied());
        assert_eq!(text(list), r#"{"n":["a"]}"#);
    }

    #[test]
    fn files_have_no_empty_fields() {
        let plain = text(file(b"/a", b"a", &attr(FileKind::Regular, 0o644), None));
        let times = r#""btime":{"sec":1,"nsec":2}}"#;
        assert!(plain.contains(r#""mode":"0644""#) && plain.ends_with(times), "{plain}");
        assert!(!plain.contains("device") && !plain.contains("_bytes"), "{plain}");
        let device = text(file(b"/d", b"d", &attr(FileKind::CharDevice, 0o600), Some(b"t")));
        assert!(
            device.contains("\"device\":[") && device.ends_with(r#""target":"t"}"#),
            "{device}"
        );
    }
}
