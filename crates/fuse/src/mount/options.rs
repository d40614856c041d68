//! Mount options, as given after `-o` or in `/etc/fstab`.

use crate::report::http::Address;
use serde::Serialize;
use shoal::raw::{Code, DiskCache, Error, Result};
use std::path::PathBuf;
use std::time::Duration;

/// How to mount. Parsed from a list, or filled in by a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MountOptions {
    /// `ro`: no changes.
    pub read_only: bool,
    /// `allow_other`: users other than the mounting one may come in. Permissions are then checked
    /// by the kernel, unless `no_default_permissions`.
    pub allow_other: bool,
    /// `default_permissions`, `no_default_permissions`: the kernel checks permissions, or not;
    /// `None`: it does if `allow_other`. Checking in Shoal saves the kernel a request after each
    /// change of a directory. With `allow_other` it costs more: the kernel then keeps no names,
    /// because Shoal is asked for the right to search a directory only when a name is looked up.
    /// The kernel opens FIFOs and sockets without asking: their mode then protects nothing. Devices
    /// would be the same, so `dev` is refused there.
    pub default_permissions: Option<bool>,
    /// `noatime`: access times do not change.
    pub noatime: bool,
    /// `nodiscard`: free segments are not discarded.
    pub no_discard: bool,
    /// `writeback`: the kernel collects small writes before it sends them.
    pub writeback: bool,
    /// `open`, `no_open`: opens are sent to the server, or not; `None`: only where Shoal checks
    /// permissions and users other than root can come in.
    pub send_open: Option<bool>,
    /// `no_xattr`: no extended attributes and access control lists. Saves the kernel a request
    /// before the first write to a file, and `ls -l` two for each file.
    pub no_xattr: bool,
    /// `no_btime`: no times of birth. Saves the kernel a request for each file whose attributes a
    /// program reads with `statx` and all its fields, as those in Rust do.
    pub no_btime: bool,
    /// `no_handles`: no handles of files, so no export by NFS. For overlays with several layers on
    /// the mount: Linux 6.18 otherwise loses files that were copied from a lower layer (`ESTALE`)
    /// when it has been short of memory.
    pub no_handles: bool,
    /// `io_uring=auto|on|off`: requests come through rings shared with the kernel.
    pub io_uring: Rings,
    /// `threads=N`: threads that read requests where there are no rings; 0: one for each processor,
    /// at least two.
    pub threads: usize,
    /// `no_busy_poll`: threads that wait for requests sleep at once. Without it one of them looks
    /// for the next request for a while, as long as requests come and nothing else wants its
    /// processor.
    pub no_busy_poll: bool,
    /// `cache=SIZE`: bytes of metadata kept in memory; 0: the default of the volume.
    pub cache_bytes: u64,
    /// `journal_ring=FILE`: changes that are not durable yet are kept in this file, which outlives
    /// the server: a mount with the same file after it was killed has every call that had returned.
    pub journal_ring: Option<PathBuf>,
    /// `disk_cache=DIR`: what is read of a volume in a bucket is kept there too, on a local disk.
    pub disk_cache: Option<PathBuf>,
    /// `disk_cache_size=SIZE`: bytes that it may take; 0: the default.
    pub disk_cache_bytes: u64,
    /// `grace=SECONDS`: time for which the server may be stalled before another host takes the
    /// volume over; 0: the default of the volume.
    pub grace_seconds: u64,
    /// `subvolume=NAME`: shows only this subvolume.
    pub subvolume: Option<String>,
    /// `slow=DURATION`: requests that take at least so long are logged and kept; 0: none. `None`:
    /// a second.
    #[serde(skip)]
    pub slow: Option<Duration>,
    /// `metrics=ADDRESS`: metrics and a page are offered there by HTTP.
    #[serde(skip)]
    pub metrics: Option<Address>,
    /// `session=PATH|off`: sessions are served at this socket, or not; without it, where
    /// `Volume::connect` looks.
    pub session: Sessions,
    /// `fsname=NAME`: source shown in the list of mounts, instead of the volume's path.
    pub fsname: Option<String>,
    /// `suid`: set-id bits count (root only).
    pub suid: bool,
    /// `dev`: device files work (root only).
    pub dev: bool,
    /// `noexec`: nothing can be executed.
    pub noexec: bool,
    /// `sync`, `dirsync`: accepted by the kernel for every write, or every change of a directory.
    pub sync: bool,
    /// See `sync`.
    pub dirsync: bool,
    /// The volume is that of another process, and views of it follow each other.
    #[serde(skip)]
    pub follows: bool,
    /// Options of the program that serves the mount (`log=FILE`), shown with the others.
    pub also: Vec<String>,
}

/// The place where sessions are served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sessions {
    /// In the folder of running programs, if there is one.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// At this socket. The mount fails without it.
    At(PathBuf),
}

/// Use of rings shared with the kernel, which are faster than reading requests from its device one
/// by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rings {
    /// If the kernel offers it.
    #[default]
    Auto,
    /// The mount fails without rings. Root switches them on in the kernel if they are off there.
    On,
    /// Never.
    Off,
}

/// Options that are accepted and ignored: those of `mount` and `fstab`, defaults, and behaviour
/// that the server has anyway.
pub(super) const IGNORED: &str = "defaults auto noauto user nouser users nousers group nogroup \
    owner noowner _netdev nofail norelatime nostrictatime diratime nodiratime lazytime nolazytime \
    auto_unmount nonempty loud silent iversion noiversion mand nomand remount blkdev user_xattr \
    acl barrier";

/// Options with a value that are accepted and ignored: what mount(8) notes for itself, and what the
/// kernel shows of a mount, which a remount repeats.
pub(super) const IGNORED_VALUES: &str =
    "comment user uhelper helper fd rootmode user_id group_id max_read blksize";

/// Options that are accepted and cannot have the effect that mount(8) describes, with the reason.
const WITHOUT_EFFECT: [(&str, &str); 3] = [
    ("strictatime", RELATIME),
    ("norelatime", RELATIME),
    ("lazytime", "times are collected in the journal in any case"),
];
const RELATIME: &str = "access times change as with relatime, because reads from the page cache do \
                        not reach the server";

impl MountOptions {
    /// Returns a warning for an option that is accepted and cannot have its effect.
    pub fn warning(option: &str) -> Option<String> {
        let (name, why) = WITHOUT_EFFECT.iter().find(|(name, _)| *name == option)?;
        Some(format!("mount option \"{name}\" has no effect: {why}"))
    }

    /// Parses a comma-separated list. Refuses an unknown option by name.
    pub fn parse(list: &str) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        options.add(list)?;
        Ok(options)
    }

    /// Adds the options of another list; later ones win.
    pub fn add(&mut self, list: &str) -> Result<()> {
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((name, value)) => self.add_value(option, name, value)?,
                None => self.add_flag(option)?,
            }
        }
        Ok(())
    }

    /// Returns the options for opening the volume that this mount is to serve.
    pub fn open_options(&self) -> shoal::raw::OpenOptions {
        shoal::raw::OpenOptions {
            read_only: self.read_only,
            cache_bytes: self.cache_bytes,
            noatime: self.noatime,
            discard: !self.no_discard,
            grace: (self.grace_seconds != 0).then(|| Duration::from_secs(self.grace_seconds)),
            disk_cache: self.disk_cache.as_ref().map(|directory| {
                let bytes = match self.disk_cache_bytes {
                    0 => DiskCache::BYTES,
                    bytes => bytes,
                };
                DiskCache { directory: directory.clone(), bytes }
            }),
            ..shoal::raw::OpenOptions::default()
        }
    }

    /// Refuses options that make no sense, or an unsafe mount, together.
    pub fn check(&self) -> Result<()> {
        if self.follows && (self.writeback || self.send_open == Some(false)) {
            let message = "a mount that follows another process cannot have the options writeback \
                           and no_open: the kernel would not notice the other's changes";
            return Err(Error::refused(Code::Invalid, message));
        }
        if !self.allow_other || self.kernel_checks() {
            return Ok(());
        }
        let message = match (self.send_open, self.dev) {
            (Some(false), _) => {
                "mount options no_default_permissions and no_open together would let everybody \
                 open every file"
            }
            // The kernel opens a device without a request, so Shoal cannot refuse.
            (_, true) => {
                "mount options allow_other, no_default_permissions and dev together would let \
                 everybody open every device: leave no_default_permissions or dev out"
            }
            _ => return Ok(()),
        };
        Err(Error::refused(Code::Invalid, message))
    }

    /// Returns whether the mount insists on rings.
    pub fn needs_rings(&self) -> bool {
        self.io_uring == Rings::On
    }

    /// Returns whether the kernel checks permissions.
    pub fn kernel_checks(&self) -> bool {
        self.default_permissions.unwrap_or(self.allow_other)
    }

    fn add_flag(&mut self, option: &str) -> Result<()> {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = Some(true),
            "no_default_permissions" => self.default_permissions = Some(false),
            "noatime" => self.noatime = true,
            "atime" | "relatime" | "strictatime" => self.noatime = false,
            "discard" => self.no_discard = false,
            "nodiscard" => self.no_discard = true,
            "writeback" => self.writeback = true,
            "open" => self.send_open = Some(true),
            "no_open" => self.send_open = Some(false),
            "xattr" => self.no_xattr = false,
            "no_xattr" => self.no_xattr = true,
            "handles" => self.no_handles = false,
            "no_handles" => self.no_handles = true,
            "busy_poll" => self.no_busy_poll = false,
            "no_busy_poll" => self.no_busy_poll = true,
            "btime" => self.no_btime = false,
            "no_btime" => self.no_btime = true,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "noexec" => self.noexec = true,
            "exec" => self.noexec = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            _ if is_extra(option) => {}
            _ if IGNORED.split_ascii_whitespace().any(|ignored| ignored == option) => {}
            _ => return Err(unknown(option)),
        }
        Ok(())
    }

    fn add_value(&mut self, option: &str, name: &str, value: &str) -> Result<()> {
        match name {
            "threads" => {
                self.threads = value
                    .parse()
                    .ok()
                    .filter(|threads| (1..=THREADS_MAX).contains(threads))
                    .ok_or_else(|| bad(option, &format!("a number from 1 to {THREADS_MAX}")))?;
            }
            "cache" => {
                self.cache_bytes =
                    parse_size(value).ok_or_else(|| bad(option, "a size, like 512M or 4G"))?;
            }
            "io_uring" => {
                self.io_uring = match value {
                    "auto" => Rings::Auto,
                    "on" => Rings::On,
                    "off" => Rings::Off,
                    _ => return Err(bad(option, "auto, on or off")),
                };
            }
            "journal_ring" if value.starts_with('/') => self.journal_ring = Some(value.into()),
            "journal_ring" => {
                return Err(bad(option, "the absolute path of a file, best below /run"));
            }
            "disk_cache" if value.starts_with('/') => self.disk_cache = Some(value.into()),
            "disk_cache" => return Err(bad(option, "the absolute path of a directory")),
            "disk_cache_size" => {
                self.disk_cache_bytes =
                    parse_size(value).ok_or_else(|| bad(option, "a size, like 512M or 50G"))?;
            }
            "grace" => {
                let seconds = value.parse().ok().filter(|seconds| GRACE.contains(seconds));
                let wanted = format!("seconds, from {} to {}", GRACE.start(), GRACE.end());
                self.grace_seconds = seconds.ok_or_else(|| bad(option, &wanted))?;
            }
            // The older name is `root`.
            "subvolume" | "root" if !value.is_empty() => self.subvolume = Some(value.to_owned()),
            "subvolume" | "root" => return Err(bad(option, "the name of a subvolume")),
            "slow" => {
                let slow = parse_duration(value);
                self.slow =
                    Some(slow.ok_or_else(|| bad(option, "a duration, like 100ms, or off"))?);
            }
            "metrics" => {
                self.metrics = Some(
                    Address::parse(value)
                        .map_err(|why| bad(option, &format!("an address: {why}")))?,
                )
            }
            "session" if value == "off" => self.session = Sessions::Off,
            "session" if value.starts_with('/') => self.session = Sessions::At(value.into()),
            "session" => return Err(bad(option, "the absolute path of a socket, or off")),
            "fsname" if !value.is_empty() => self.fsname = Some(value.to_owned()),
            "fsname" => return Err(bad(option, "a name")),
            // The type is always fuse.shoal; `mount -t fuse.shoal` may repeat it.
            "subtype" if value == "shoal" => {}
            // Of old lines for ext4. It has no other value here: a flush is never left out.
            "barrier" if value == "1" => {}
            _ if is_extra(name) => {}
            _ if IGNORED_VALUES.split_ascii_whitespace().any(|ignored| ignored == name) => {}
            _ => return Err(unknown(option)),
        }
        Ok(())
    }
}

/// Returns whether an option is for programs that read fstab (`x-systemd.automount`) or for
/// mount(8) alone (`X-mount.mkdir`).
fn is_extra(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-")
}

/// Seconds for which a server may be stalled: what a claim can say.
const GRACE: std::ops::RangeInclusive<u64> = 2..=60;

/// Largest number of threads.
const THREADS_MAX: usize = 1024;

#[cold]
fn unknown(option: &str) -> Error {
    Error::refused(Code::Invalid, format!("unknown mount option \"{option}\""))
}

#[cold]
fn bad(option: &str, wanted: &str) -> Error {
    Error::refused(Code::Invalid, format!("mount option \"{option}\" needs {wanted}"))
}

/// A duration with a unit, or `off`.
fn parse_duration(text: &str) -> Option<Duration> {
    if text == "off" {
        return Some(Duration::ZERO);
    }
    let at = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (digits, unit) = text.split_at(at);
    let number: u64 = digits.parse().ok()?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// A number of bytes with an optional unit of 1024s: `K`, `M`, `G`, `T`.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_lists() {
        assert_eq!(MountOptions::parse("").unwrap(), MountOptions::default());
        let fstab = "rw,nosuid,nodev,relatime,defaults,_netdev,user,noauto,nofail,\
             x-systemd.automount,\
             X-mount.mkdir=755,x-systemd.device-timeout=5s,comment=a b,user=ann,users,owner,async,\
             user_id=0,group_id=0,strictatime,user_xattr,acl,barrier=1,barrier";
        assert_eq!(MountOptions::parse(fstab).unwrap(), MountOptions::default());
        let list = "ro,allow_other,threads=4,cache=256M,fsname=a b,journal_ring=/run/r,grace=60";
        let options = MountOptions::parse(list).unwrap();
        assert!(options.read_only && options.allow_other && options.kernel_checks());
        assert_eq!((options.threads, options.cache_bytes), (4, 256 << 20));
        assert_eq!(options.fsname.as_deref(), Some("a b"));
        assert_eq!(options.journal_ring.as_deref(), Some(std::path::Path::new("/run/r")));
        let open = options.open_options();
        assert!(open.read_only && open.cache_bytes == 256 << 20 && !open.noatime);
        assert_eq!(open.grace, Some(Duration::from_secs(60)));
        assert_eq!(MountOptions::parse(&options.list()).unwrap().grace_seconds, 60);
    }

    #[test]
    fn later_options_win() {
        let options = MountOptions::parse("ro,rw,noexec,exec,suid,nosuid,no_open,open").unwrap();
        assert_eq!(options, MountOptions { send_open: Some(true), ..MountOptions::default() });
        let options = MountOptions::parse("allow_other,no_default_permissions").unwrap();
        assert!(!options.kernel_checks());
        let options = MountOptions::parse("io_uring=on,io_uring=off").unwrap();
        assert_eq!(options.io_uring, Rings::Off);
        assert_eq!(MountOptions::parse("io_uring=auto").unwrap(), MountOptions::default());
    }

    #[test]
    fn unknown_and_bad_options_are_named() {
        for (list, wanted) in [
            ("rw,frobnicate", "unknown mount option \"frobnicate\""),
            ("barrier=0", "unknown mount option \"barrier=0\""),
            ("quota=7", "unknown mount option \"quota=7\""),
            ("threads=0", "\"threads=0\" needs a number"),
            ("threads=x", "needs a number"),
            ("cache=lots", "\"cache=lots\" needs a size"),
            ("cache=99999999999G", "needs a size"),
            ("fsname=", "needs a name"),
            ("metrics=9500", "needs an address: write :PORT"),
            ("slow=5", "needs a duration"),
            ("slow=ms", "needs a duration"),
            ("slow=5h", "needs a duration"),
            ("io_uring=yes", "needs auto, on or off"),
            ("subtype=other", "unknown"),
            ("journal_ring=", "the absolute path of a file"),
            ("journal_ring=here", "the absolute path of a file"),
            ("disk_cache=here", "the absolute path of a directory"),
            ("disk_cache_size=big", "\"disk_cache_size=big\" needs a size"),
            ("grace=1", "\"grace=1\" needs seconds, from 2 to 60"),
            ("grace=61", "needs seconds"),
        ] {
            let error = MountOptions::parse(list).unwrap_err().to_string();
            assert!(error.contains(wanted), "{list}: {error}");
        }
    }

    #[test]
    fn options_without_effect_are_told() {
        for (name, _) in WITHOUT_EFFECT {
            assert!(MountOptions::parse(name).is_ok());
            assert!(MountOptions::warning(name).unwrap().contains(name));
        }
        assert_eq!(MountOptions::warning("relatime"), None);
    }

    #[test]
    fn somebody_must_check() {
        let check = |list| MountOptions::parse(list).unwrap().check();
        assert!(check("allow_other,no_open").is_ok());
        assert!(check("allow_other,no_default_permissions").is_ok());
        let error = check("allow_other,no_default_permissions,no_open").unwrap_err();
        assert!(error.to_string().ends_with("would let everybody open every file"), "{error}");
        for list in ["dev", "dev,allow_other", "dev,no_default_permissions"] {
            assert!(check(list).is_ok(), "{list}");
        }
        let error = check("allow_other,no_default_permissions,dev").unwrap_err();
        assert_eq!(error.code(), Code::Invalid);
        assert!(error.to_string().contains("open every device: leave"), "{error}");
    }

    #[test]
    fn durations() {
        let slow = |list| MountOptions::parse(list).unwrap().slow;
        assert_eq!(slow("ro"), None);
        assert_eq!(slow("slow=100ms"), Some(Duration::from_millis(100)));
        assert_eq!(slow("slow=2s,slow=50us"), Some(Duration::from_micros(50)));
        assert_eq!(slow("slow=off"), Some(Duration::ZERO));
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("1K", 1024), ("2m", 2 << 20)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        assert_eq!(parse_size("3GiB"), Some(3 << 30));
        assert_eq!(parse_size("1T"), Some(1 << 40));
        for bad in ["", "K", "-1", "1X", "1.5G"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
