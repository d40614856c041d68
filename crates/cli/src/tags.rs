//! `LABEL=backup` and `UUID=...` in place of a volume's path.
//!
//! 1. The link that udev has made (`/dev/disk/by-label`, `by-uuid`; its rule is
//!    `packaging/60-shoal.rules`), if what is there says the same.
//! 2. Otherwise every block device that the kernel lists is read: two sectors of each. So it also
//!    works early at boot, in containers, and without the rule.
//!
//! Two volumes may have the same label. Where they are looked for, the tag is refused and both are
//! named; udev has one of them in its link.

use std::fs;
use std::path::{Path, PathBuf};

use shoal::raw::{Identity, identify};

use crate::failure::{Failure, Result};

/// A property by which a volume is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag<'a> {
    Label(&'a str),
    Id(&'a str),
}

impl<'a> Tag<'a> {
    fn parse(text: &'a str) -> Option<Tag<'a>> {
        let unquoted = |value: &'a str| value.trim_matches('"');
        match text.split_once('=')? {
            ("LABEL", value) => Some(Tag::Label(unquoted(value))),
            ("UUID" | "ID", value) => Some(Tag::Id(unquoted(value))),
            _ => None,
        }
    }

    fn is_of(self, found: &Identity) -> bool {
        match self {
            Tag::Label(label) => !label.is_empty() && found.label == label,
            Tag::Id(id) => found.id.eq_ignore_ascii_case(id),
        }
    }

    /// Returns the link that udev makes.
    fn link(self) -> PathBuf {
        match self {
            Tag::Label(label) => Path::new("/dev/disk/by-label").join(encoded(label)),
            Tag::Id(id) => Path::new("/dev/disk/by-uuid").join(encoded(&id.to_lowercase())),
        }
    }
}

/// Returns the path of a volume: the one that a tag names, or the argument itself. A file whose
/// name looks like a tag is written with ./ before it.
pub(crate) fn resolve(argument: &Path) -> Result<PathBuf> {
    let Some(tag) = argument.to_str().and_then(Tag::parse) else {
        return Ok(argument.to_owned());
    };
    let link = tag.link();
    if let Ok(Some(found)) = identify(&link)
        && tag.is_of(&found)
        && let Ok(device) = fs::canonicalize(&link)
    {
        return Ok(device);
    }
    let devices = devices();
    match &search(tag, &devices)[..] {
        [] => {
            let reason = format!(
                "no volume like this ({} block devices looked at; one in a file is named by its \
                 path)",
                devices.len()
            );
            Err(Failure::usage(argument.display(), reason))
        }
        [(device, _)] => Ok(device.clone()),
        several => {
            let names: Vec<_> =
                several.iter().map(|(path, _)| path.display().to_string()).collect();
            let reason = format!("several volumes are like this: {} (name one)", names.join(", "));
            Err(Failure::usage(argument.display(), reason))
        }
    }
}

/// Returns the devices with the tag. A volume that is seen through several devices, as a disk and a
/// mapping of it, counts once, by the device that lies on the others.
fn search(tag: Tag<'_>, devices: &[PathBuf]) -> Vec<(PathBuf, Identity)> {
    let mut found: Vec<(PathBuf, Identity)> = Vec::new();
    for device in devices {
        let Ok(Some(identity)) = identify(device) else { continue };
        if tag.is_of(&identity) {
            found.push((device.clone(), identity));
        }
    }
    let upper = |device: &Path| {
        let name = device.file_name().unwrap_or_default();
        let holders = fs::read_dir(Path::new("/sys/class/block").join(name).join("holders"));
        holders.is_ok_and(|mut holders| holders.next().is_some())
    };
    if found.len() > 1 {
        found.retain(|(device, _)| !upper(device));
    }
    found
}

/// Returns the block devices that the kernel lists and that may hold a volume.
fn devices() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/partitions").unwrap_or_default();
    names(&text).map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}

/// Iterates over the names in `/proc/partitions`: major, minor, blocks, name. Devices of no size
/// and those that only memory backs are left out.
fn names(partitions: &str) -> impl Iterator<Item = &str> {
    partitions.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let blocks: u64 = words.nth(2)?.parse().ok()?;
        let name = words.next()?;
        let is_none = ["ram", "zram", "fd", "sr"].iter().any(|kind| {
            name.strip_prefix(kind).is_some_and(|rest| rest.bytes().all(|it| it.is_ascii_digit()))
        });
        (blocks > 0 && !is_none).then_some(name)
    })
}

/// Returns whether udev leaves a character of a name as it is.
pub(crate) fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii()
}

/// Encodes a value as udev does in names of links and in `..._ENC`: bytes that are not safe become
/// `\x20`.
pub(crate) fn encoded(value: &str) -> String {
    let one = |c: char| match is_safe(c) {
        true => c.to_string(),
        false => format!("\\x{:02x}", u32::from(c)),
    };
    value.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        assert_eq!(Tag::parse("LABEL=a=b"), Some(Tag::Label("a=b")));
        assert_eq!(Tag::parse("LABEL=\"my data\""), Some(Tag::Label("my data")));
        assert_eq!(Tag::parse("UUID=AB"), Some(Tag::Id("AB")));
        for path in ["vol.img", "./LABEL=x", "PARTUUID=x", "label=x"] {
            assert_eq!(Tag::parse(path), None, "{path}");
        }
        assert_eq!(Tag::Label("my data").link(), Path::new("/dev/disk/by-label/my\\x20data"));
        assert_eq!(encoded("a/b\\é"), "a\\x2fb\\x5cé");
    }

    #[test]
    fn devices_of_the_kernel() {
        let text = "major minor  #blocks  name\n\n   1  0  8192 ram0\n 254  0  83886080 vda\n \
                    7  0  0 loop0\n  7  1  262144 loop1\n  104 1 900 cciss!c0d0p1\n 11 0 9 sr0\n";
        assert_eq!(names(text).collect::<Vec<_>>(), ["vda", "loop1", "cciss!c0d0p1"]);
    }
}
