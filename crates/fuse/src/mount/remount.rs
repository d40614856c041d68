//! Mount options as a list again, and the options that a remount asks for.

use super::options::{IGNORED, IGNORED_VALUES, MountOptions, Rings, Sessions};
use crate::about::Facts;
use crate::table;
use shoal::raw::{Code, Error, Result};
use std::path::Path;
use std::time::Instant;

impl MountOptions {
    /// Returns the options that are not the default, as a list for `-o`.
    pub fn list(&self) -> String {
        let flags = [
            (self.read_only, "ro"),
            (self.allow_other, "allow_other"),
            (self.default_permissions == Some(true), "default_permissions"),
            (self.default_permissions == Some(false), "no_default_permissions"),
            (self.noatime, "noatime"),
            (self.no_discard, "nodiscard"),
            (self.writeback, "writeback"),
            (self.send_open == Some(true), "open"),
            (self.send_open == Some(false), "no_open"),
            (self.no_xattr, "no_xattr"),
            (self.no_btime, "no_btime"),
            (self.no_handles, "no_handles"),
            (self.no_busy_poll, "no_busy_poll"),
            (self.io_uring == Rings::On, "io_uring=on"),
            (self.io_uring == Rings::Off, "io_uring=off"),
            (self.suid, "suid"),
            (self.dev, "dev"),
            (self.noexec, "noexec"),
            (self.sync, "sync"),
            (self.dirsync, "dirsync"),
        ];
        let number = |number: u64| (number != 0).then(|| number.to_string());
        let values = [
            ("threads", number(self.threads as u64)),
            ("cache", number(self.cache_bytes)),
            ("journal_ring", self.journal_ring.as_ref().map(|ring| ring.display().to_string())),
            ("disk_cache", self.disk_cache.as_ref().map(|path| path.display().to_string())),
            ("disk_cache_size", number(self.disk_cache_bytes)),
            ("grace", number(self.grace_seconds)),
            ("subvolume", self.subvolume.clone()),
            (
                "session",
                match &self.session {
                    Sessions::Auto => None,
                    Sessions::Off => Some("off".to_owned()),
                    Sessions::At(path) => Some(path.display().to_string()),
                },
            ),
            ("fsname", self.fsname.clone()),
            ("metrics", self.metrics.as_ref().map(|address| address.to_string())),
        ];
        let set = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name.to_owned());
        let values =
            values.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        set.chain(values).chain(self.also.iter().cloned()).collect::<Vec<_>>().join(",")
    }

    /// Parses the list of a mount that is served.
    pub fn served(list: &str) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        for option in list.split(',') {
            match is_servers(option) {
                true => options.also.push(option.to_owned()),
                false => options.add(option)?,
            }
        }
        Ok(options)
    }

    /// Returns the facts of a mount with these options that begins now.
    pub(super) fn facts(&self, source: &str) -> Facts {
        Facts {
            source: source.to_owned(),
            options: self.list(),
            read_only: self.read_only,
            is_read_only: self.read_only,
            noatime: self.noatime,
            since: Instant::now(),
        }
    }

    /// Returns the facts of the mount on `dir`, which another server may have begun. If it has been
    /// made read-only since, the kernel says so.
    pub(super) fn facts_in(&self, dir: &Path) -> Facts {
        let there = table::mount_at(dir).ok().flatten();
        let source = there.as_ref().map(|there| there.source.to_string_lossy());
        let is_read_only = there.as_ref().is_some_and(|there| there.read_only);
        let facts = self.facts(&source.unwrap_or_default());
        Facts { is_read_only: is_read_only || facts.read_only, ..facts }
    }

    /// Returns the options of a mount with these ones after a remount with `lists`; `what` begins
    /// the message of an error. As mount(8) has it, set-id bits, devices and programs are allowed
    /// unless the lists say otherwise; access times are as before.
    ///
    /// # Errors
    /// `EINVAL` for an option that only a new mount can have, by name.
    pub fn changed_by(&self, lists: &[String], what: &str) -> Result<MountOptions> {
        let mut wanted = MountOptions {
            default_permissions: Some(self.kernel_checks()),
            suid: true,
            dev: true,
            noexec: false,
            sync: false,
            dirsync: false,
            ..self.clone()
        };
        for option in lists.iter().flat_map(|list| list.split(',')).map(str::trim) {
            if is_ignored(option) || self.also.iter().any(|it| it == option) {
                continue;
            }
            let mut changed = wanted.clone();
            if !is_servers(option) {
                changed.add(option)?;
            }
            if is_servers(option) || changed.clone().changeable_from(&wanted) != wanted {
                let message = format!(
                    "{what}: option \"{option}\" cannot change while the volume is mounted: \
                     unmount it, and mount it again"
                );
                return Err(Error::refused(Code::Invalid, message));
            }
            wanted = wanted.changeable_from(&changed);
        }
        if wanted.check().is_err() {
            // Not asked for, but the default.
            wanted.dev = false;
        }
        Ok(wanted)
    }

    /// Returns the options with those of `other` that a remount can change.
    fn changeable_from(self, other: &MountOptions) -> MountOptions {
        MountOptions {
            read_only: other.read_only,
            noatime: other.noatime,
            suid: other.suid,
            dev: other.dev,
            noexec: other.noexec,
            sync: other.sync,
            dirsync: other.dirsync,
            ..self
        }
    }
}

/// Returns whether an option is for the program that serves the mount ([`MountOptions::also`]).
fn is_servers(option: &str) -> bool {
    ["log=", "log_level=", "log_format=", "keeper="].iter().any(|name| option.starts_with(name))
}

/// Returns whether a remount has nothing to do for an option.
fn is_ignored(option: &str) -> bool {
    let is_in = |list: &str, name| list.split_ascii_whitespace().any(|ignored| ignored == name);
    match option.split_once('=') {
        Some((name, _)) => is_in(IGNORED_VALUES, name),
        None => option.is_empty() || option == "force" || is_in(IGNORED, option),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_reads_back() {
        for list in [
            "",
            "ro,allow_other,noatime,nodiscard,no_xattr,no_btime,io_uring=off,noexec,threads=3",
            "no_default_permissions,writeback,no_open,suid,dev,sync,dirsync,cache=1048576",
            "default_permissions,open,io_uring=on,journal_ring=/run/r,subvolume=job,fsname=a b",
        ] {
            let options = MountOptions::parse(list).unwrap();
            assert_eq!(MountOptions::parse(&options.list()).unwrap(), options, "{list}");
        }
        let also = vec!["log=/l".to_owned(), "log_level=debug".to_owned()];
        let options = MountOptions { noatime: true, also, ..MountOptions::default() };
        assert_eq!(options.list(), "noatime,log=/l,log_level=debug");
        assert_eq!(MountOptions::served(&options.list()).unwrap(), options);
    }

    fn after(before: &str, lists: &[&str]) -> Result<String> {
        let lists: Vec<String> = lists.iter().map(|list| (*list).to_owned()).collect();
        let before = MountOptions::parse(before).unwrap();
        before.changed_by(&lists, "cannot").map(|options| options.list())
    }

    #[test]
    fn what_can_change_changes() {
        let plain = "no_default_permissions,suid,dev";
        assert_eq!(after("", &[""]).unwrap(), plain);
        assert_eq!(after("", &["remount,ro"]).unwrap(), format!("ro,{plain}"));
        assert_eq!(after("noatime", &["ro", "rw,remount"]).unwrap(), {
            "no_default_permissions,noatime,suid,dev"
        });
        assert_eq!(after("noatime", &["relatime,rw"]).unwrap(), plain);
        // As the kernel shows the mount, which mount(8) repeats.
        let shown = "rw,nosuid,nodev,noexec,noatime,user_id=0,group_id=0,default_permissions,\
            allow_other,max_read=4096,remount,ro";
        let all = "ro,allow_other,default_permissions,noatime,noexec";
        assert_eq!(after("allow_other,noatime,noexec", &[shown]).unwrap(), all);
        // As a line of fstab has it.
        let line = "cache=2G,nofail,x-systemd.automount,comment=x,force,allow_other,remount";
        let before = "allow_other,cache=2147483648";
        assert_eq!(
            after(before, &[line]).unwrap(),
            "allow_other,default_permissions,suid,dev,cache=2147483648"
        );
        let unchecked = "allow_other,no_default_permissions";
        assert_eq!(after(unchecked, &["ro"]).unwrap(), format!("ro,{unchecked},suid"));
    }

    #[test]
    fn what_cannot_change_is_named() {
        for (before, list, name) in [
            ("", "ro,cache=1M", "cache=1M"),
            ("cache=2M", "cache=1M", "cache=1M"),
            ("", "allow_other", "allow_other"),
            ("", "default_permissions", "default_permissions"),
            ("", "no_xattr,ro", "no_xattr"),
            ("subvolume=a", "subvolume=b", "subvolume=b"),
            ("", "log=/other", "log=/other"),
            ("", "frobnicate", "frobnicate"),
        ] {
            let error = after(before, &[list]).unwrap_err().to_string();
            assert!(error.contains(&format!("\"{name}\"")), "{before}; {list}: {error}");
        }
    }
}
