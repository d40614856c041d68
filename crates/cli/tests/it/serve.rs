//! `shoal serve`. Sessions of a mount whose server is replaced: `keeper/deaths.rs`.

use crate::common::{Scratch, has_gnu};
use crate::keeper::kill_server_of;
use crate::monitor::get;
use rustix::process::{Pid, Signal, kill_process};
use shoal::{Credentials, FileOptions, Volume};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A process that serves a volume, or the keeper of one.
pub(crate) struct Serving {
    child: Child,
    pub socket: PathBuf,
}

impl Serving {
    pub(crate) fn start(scratch: &Scratch, arguments: &[&str]) -> Serving {
        let socket = scratch.path("socket");
        let place = ["serve", "v", "--socket", socket.to_str().expect("a name")];
        let serving = Serving::begin(scratch, &[&place, arguments].concat());
        assert_eq!(serving.socket, socket);
        serving
    }

    fn begin(scratch: &Scratch, arguments: &[&str]) -> Serving {
        let mut command = scratch.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("start");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        Serving { child, socket: line.trim_end().into() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("signalled");
        self.wait()
    }

    fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("waited").code()
    }
}

/// A test that has failed leaves no server.
impl Drop for Serving {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

#[test]
fn a_served_volume_is_used_by_other_processes_and_closed_at_the_end() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &[]);
    let volume = Volume::connect(&serving.socket).expect("connected");
    let root = volume.root(Credentials::current());
    root.create_dir("d").expect("made").write("file", "by a session").expect("written");
    scratch.shoal(["ls", "v:/", "--direct"]).fails(2, &["in use"]);
    scratch.shoal(["serve", "v"]).fails(2, &["in use"]);
    assert_eq!(serving.end(Signal::TERM), Some(0));
    assert!(root.read("d/file").is_err(), "its server has ended");
    assert_eq!(scratch.shoal(["cat", "v:/d/file"]).ok(), "by a session");
    let info = scratch.shoal(["info", "v"]).ok();
    assert!(info.contains("closed          yes"), "{info}");
    scratch.shoal(["serve", "missing"]).fails(2, &["missing"]);
    scratch.shoal(["serve", "v", "--socket", "no/such/place"]).fails(1, &["no/such/place"]);
    let refused = scratch.shoal(["serve", "v", "--read-only", "--keeper", "on"]);
    refused.fails(2, &["--keeper on", "--read-only"]);
}

/// Commands for a volume that they open, and for one that is served, one after another: none prints
/// a time of the moment, or a count that depends on the order of a directory.
const LINES: &str = r#"
shoal mkdir -p v:/a/b/c
shoal mkdir v:/a
shoal mkdir v:/none/x
echo hi | shoal cp - v:/a/f
echo longer | shoal cp - v:/a/f
shoal cp -r src v:/
shoal cp -r src v:/none/src
shoal ls -R v:
shoal ls v:/none
shoal cat v:/a/f v:/none v:/a
shoal ln v:/a/f v:/a/g
shoal ln v:/a v:/second
shoal ln -s /a v:/abs
shoal ln -s ../a v:/a/up
shoal ln -s nowhere v:/broken
shoal cat v:/abs/f v:/a/up/up/f v:/src/../a/./f
shoal cat v:/broken
shoal ls v:/abs/
shoal ls -F v:/abs
shoal readlink v:/abs v:/a
shoal mv v:/a/g v:/a/h
shoal mv v:/a v:/a/b/x
shoal mv v:/a/f v:/a/h
shoal mv --exchange v:/a/b v:/src
shoal mv --exchange v:/a/b v:/src
shoal mv -n v:/a/h v:/abs
shoal truncate -s 5 v:/a/f v:/new v:/a
shoal touch -d @7 v:/a/new v:/none/new
shoal chmod -R u=rwX,go= v:/a
shoal chmod 4755 v:/src/file
shoal chown -R 7:8 v:/a v:/none
shoal stat -c '%n %s %a %u %g %h' v:/a/new v:/a/h v:/abs
shoal stat -c '%Y' v:/a/new
shoal find v:/ -type f -size -9
shoal find v:/ -name 'n*' -user 7 -delete
shoal find v:/ -type l -printf '%p %l
'
shoal du -s --inodes v:/a v:/src
shoal du -s --apparent-size v: v:/a
shoal xattr set v:/a/f user.one 1
shoal xattr set v:/a/f nonsense 1
shoal xattr get v:/a/f user.one
shoal xattr get v:/a/f user.two
shoal xattr ls v:/a/f
shoal xattr rm v:/a/f user.one user.two
shoal setfacl -m u:9:rx v:/a
shoal setfacl -R -m g:9:r v:/src
shoal getfacl -n v:/a v:/src/file
shoal quota set v:/src --inodes 100
shoal quota show v:/src/file
shoal quota show v:/a
shoal quota list v
shoal quota remove v:/src
shoal quota remove v:/src
shoal subvolume create v ci --mode 750
shoal subvolume create v ci
shoal cp -r src v:/ci
shoal ln v:/a/f v:/ci/f
shoal rm -r v:/ci
shoal subvolume list v | grep -c ci
shoal changes v:/ --keep-removed on
shoal changes v:/ --now >mark
rm -rf out && shoal sync --delete v:/src out && ls -R out
echo x | shoal cp - v:/src/more
shoal sync --delete v:/src out && ls -R out
shoal rm v:/src/more
shoal sync --delete src v:/mirror && shoal ls -R v:/mirror
shoal sync --delete v:/src v:/mirror && shoal ls -R v:/mirror
shoal cp -r -a v:/src/. copied && ls -lR copied | wc -l
shoal tar -c -f - v:/src | tar -t
tar -c -f - src | shoal tar -x -f - v:/a && shoal ls -R v:/a/src
echo new | shoal cp - v:/a/made && shoal mv v:/a/made v:/a/moved && shoal rm v:/a/h
shoal changes v:/a --since $(cat mark) | grep -v ^mark | sort
shoal path v 1
shoal parents v:/a/f | cut -f3-
shoal rm v:/none
shoal rm v:/a
shoal rm -f v:/none
shoal rm -d v:/a/b
shoal rm -r v:/a
shoal rm v:/broken
shoal subvolume delete v ci
shoal subvolume delete v none
shoal find v:
"#;

#[test]
fn commands_do_the_same_by_a_session() {
    if !has_gnu(&["touch", "tar"]) {
        return;
    }
    let scratch = Scratch::with_volume();
    for place in ["direct", "served"] {
        scratch.shell(&format!("mkdir -p {place}/src/deep/er && cd {place}/src")).ok();
        let plant = "echo 1 >file && ln file deep/link && ln -s ../file deep/er/symlink && \
            mkfifo fifo && chmod 640 file && touch -d @5 file deep";
        scratch.shell(&format!("cd {place}/src && {plant}")).ok();
        scratch.shell(&format!("cd {place} && shoal mkfs v --size {}", crate::common::SIZE)).ok();
    }
    let serving = Serving::begin(&scratch, &["serve", "served/v"]);
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let [direct, served] = ["direct", "served"].map(|place| {
            let ran = scratch.shell(&format!("cd {place} && {line}"));
            // One frees at the next use, the other in the background.
            let told = ran.stdout().replace("freed when the volume is next used", "being freed");
            // Each volume has an order of its own.
            let sorted = |text: String| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            (ran.status(), sorted(told), sorted(ran.stderr()))
        });
        assert_eq!(direct, served, "{line}");
    }
    scratch.shell("cd served && shoal ls --direct v:").fails(2, &["in use"]);
    assert_eq!(serving.end(Signal::TERM), Some(0));
    for place in ["direct", "served"] {
        scratch.shell(&format!("cd {place} && shoal fsck v")).ok();
    }
}

/// A volume that is served is watched and maintained as a mounted one is.
#[test]
fn a_served_volume_is_watched_and_maintained() {
    let scratch = Scratch::with_volume();
    let metrics = scratch.path("metrics");
    let place = &format!("unix:{}", metrics.display());
    for keeper in ["on", "off"] {
        let serving =
            Serving::begin(&scratch, &["serve", "v", "--keeper", keeper, "--metrics", place]);
        scratch.shell("echo text | shoal cp - v:/file && shoal mkdir v:/dir").ok();
        let volume = Volume::connect(&serving.socket).expect("connected");
        let root = volume.root(Credentials::current());
        let held = root.create("held").expect("made");
        root.remove_file("held").expect("removed");
        let info = scratch.shoal(["info", "v"]).ok();
        assert!(info.contains("writable") && info.contains("yes"), "{info}");
        scratch.shoal(["info", "--json", "v"]).ok();
        let stats = scratch.shoal(["stats", "v"]).ok();
        assert!(stats.contains("journal_writes") && stats.contains("calls of the lib"), "{stats}");
        assert!(scratch.shoal(["orphans", "v"]).ok().contains("/held"), "it is open");
        scratch.shoal(["label", "v", keeper]).ok();
        assert_eq!(scratch.shoal(["label", "v"]).ok(), format!("{keeper}\n"));
        assert!(scratch.shoal(["trim", "v"]).ok().starts_with("discarded "));
        assert!(scratch.shoal(["scrub", "v"]).ok().starts_with("v: clean; read "));
        assert!(scratch.shoal(["df", "v"]).ok().contains('v'));
        let top = scratch.shoal(["top", "--once", "--every", "1", "v"]).ok();
        assert!(top.contains("process"), "{top}");
        let text = get(UnixStream::connect(&metrics).expect("connect"), "/metrics");
        assert!(text.contains("shoal_health{state=\"ok\"} 1"), "{text}");
        drop((held, root, volume));
        assert_eq!(serving.end(Signal::TERM), Some(0));
        scratch.shoal(["top", "--once", "v"]).fails(2, &["v", "neither mounted nor served"]);
        scratch.shoal(["rm", "-r", "v:/file", "v:/dir"]).ok();
        scratch.shoal(["fsck", "v"]).ok();
    }
    // An address that cannot be: before the volume is opened.
    scratch.shoal(["serve", "v", "--metrics", "9500"]).fails(2, &["--metrics", "needs an address"]);
}

/// Another program goes on with the sessions of a volume that is served.
#[test]
fn another_program_takes_a_served_volume_over() {
    let scratch = Scratch::with_volume();
    let serving = Serving::begin(&scratch, &["serve", "v"]);
    let server = || {
        let info = scratch.shoal(["info", "--json", "v"]).ok();
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        assert_eq!(info["keeper"].as_u64(), Some(serving.pid().into()));
        info["server"].as_u64().expect("a process")
    };
    let first = server();
    let volume = Volume::connect(&serving.socket).expect("connected");
    let root = volume.root(Credentials::current());
    let options = FileOptions::new().read(true).write(true).create_new(true);
    let file = options.open(&root, "gone").expect("made");
    root.remove_file("gone").expect("removed");
    for round in 0..3u64 {
        let before = server();
        scratch.shoal(["remount", "--takeover", "v"]).ok();
        assert_ne!(server(), before);
        file.write_all_at(b"text", round * 4).expect("written");
        root.write(format!("{round}"), b"whole").expect("written");
    }
    assert_ne!(server(), first);
    let mut read = [0; 12];
    file.read_exact_at(&mut read, 0).expect("read");
    assert_eq!(&read, b"texttexttext");
    // Larger, while it is served.
    let grown = scratch.shoal(["grow", "v", "--size", "1G"]).ok();
    assert!(grown.contains("1.0 GiB now"), "{grown}");
    scratch.shoal(["grow", "v", "--size", "1G"]).fails(1, &["v", "already"]);
    file.write_all_at(b"after", 0).expect("written");
    drop((file, root, volume));
    assert_eq!(serving.end(Signal::TERM), Some(0));
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "0\n1\n2\n");
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shoal(["remount", "--takeover", "v"]).fails(1, &["v", "neither mounted nor served"]);
    let serving = Serving::begin(&scratch, &["serve", "v", "--keeper", "off"]);
    scratch.shoal(["remount", "--takeover", "v"]).fails(1, &["v", "has no keeper"]);
    scratch.shoal(["grow", "v", "--size", "2G"]).fails(1, &["v", "has no keeper"]);
    assert_eq!(serving.end(Signal::TERM), Some(0));
}

/// Calls that had returned are there, synced or not.
#[test]
fn a_killed_server_loses_nothing() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &["--keeper", "off"]);
    let volume = Volume::connect(&serving.socket).expect("connected");
    let root = volume.root(Credentials::current());
    for n in 0..100 {
        root.write(format!("{n}"), format!("{n}")).expect("written");
    }
    assert_eq!(serving.end(Signal::KILL), None);
    let serving = Serving::start(&scratch, &["--read-only"]);
    let volume = Volume::connect(&serving.socket).expect("connected");
    let root = volume.root(Credentials::current());
    for n in 0..100 {
        assert_eq!(root.read(format!("{n}")).expect("kept"), format!("{n}").as_bytes());
    }
    assert!(root.write("new", "").is_err(), "read-only");
    assert_eq!(serving.end(Signal::INT), Some(0));
    scratch.shoal(["fsck", "v"]).ok();
}

/// Open files stay open when the server dies, and are freed when their client has closed them.
#[test]
fn open_files_of_a_served_volume_stay_open() {
    let scratch = Scratch::with_volume();
    let serving = Serving::start(&scratch, &[]);
    let root = |serving: &Serving| {
        let volume = Volume::connect(&serving.socket).expect("connected");
        volume.root(Credentials::current())
    };
    let (top, other) = (root(&serving), root(&serving));
    let options = FileOptions::new().read(true).write(true).create_new(true);
    let file = options.open(&top, "gone").expect("made");
    let forgotten = options.open(&other, "forgotten").expect("made");
    forgotten.write_all_at(&[7; 3_000_000], 0).expect("written");
    let free = || {
        let connect = || Volume::connect(&serving.socket).ok();
        let volume = shoal_skip::wait_for("a server", connect);
        volume.usage().expect("usage").bytes_available
    };
    for name in ["gone", "forgotten"] {
        top.remove_file(name).expect("removed");
    }
    let before = free();
    for round in 0..3u64 {
        kill_server_of(serving.pid());
        file.write_all_at(b"text", round * 4).expect("written");
        let mut read = vec![0; 4 * (round as usize + 1)];
        file.read_exact_at(&mut read, 0).expect("read");
        assert_eq!(read, b"text".repeat(round as usize + 1));
        assert!(free() < before + 2_000_000, "the other file is open");
    }
    kill_server_of(serving.pid());
    drop((forgotten, other));
    // Its client has not come to the next server, and has the session no more.
    shoal_skip::wait_until("the space of the other file", || free() >= before + 2_000_000);
    drop((file, top));
    assert_eq!(serving.end(Signal::TERM), Some(0));
    scratch.shoal(["fsck", "v"]).ok();
    assert!(scratch.shoal(["orphans", "v"]).ok().is_empty());
}

/// A replica and a standby without mounts: they read, and the standby goes on when the owner dies.
#[test]
fn a_standby_serves_a_bucket_when_its_owner_is_killed() {
    let (scratch, url) = crate::bucket::bucket();
    scratch.shoal(["serve", "--follow", "v"]).fails(2, &["--follow", "a volume in a bucket"]);
    scratch.shoal(["serve", "--standby=x", &url]).fails(2, &["--standby", "needs seconds"]);
    scratch.shoal(["serve", "--follow", &url]).fails(2, &["there is no volume"]);
    scratch.shoal(["mkfs", &url]).ok();
    let [owner, replica] = ["owner", "replica"].map(|name| scratch.path(name));
    let serve = |options: &[&str]| Serving::begin(&scratch, &[&["serve", &url], options].concat());
    let at = |place: &PathBuf| place.to_str().expect("a name").to_owned();
    let owning = serve(&["--socket", &at(&owner)]);
    let volume = Volume::connect(&owner).expect("connected");
    let made = volume.root(Credentials::current()).create_dir("d").expect("made");
    made.write("file", "by the owner").expect("written");
    volume.sync().expect("durable");
    let replicating = serve(&["--follow=0.1", "--socket", &at(&replica)]);
    // However long the owner is stalled by a busy machine.
    let patient = serve(&["--standby=3600"]);
    for place in [&replica, &patient.socket] {
        let view = Volume::connect(place).expect("connected").root(Credentials::current());
        shoal_skip::wait_for("the owner's file", || view.read("d/file").ok());
        let refused = view.write("d/file", "by a reader").expect_err("a view");
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{refused}");
    }
    // Found by the volume.
    assert_eq!(scratch.shoal(["cat", &format!("{url}:/d/file")]).ok(), "by the owner");
    scratch.shoal(["remount", "--promote", &url]).fails(1, &["uses the volume", "--force"]);
    made.write("more", "").expect("written");
    volume.sync().expect("durable");
    let view = Volume::connect(&replica).expect("connected").root(Credentials::current());
    shoal_skip::wait_for("the owner's second file", || view.read("d/more").ok());
    owning.end(Signal::KILL);
    assert_eq!(patient.end(Signal::TERM), Some(0));
    let standing = serve(&["--standby"]);
    // Sessions with its view end when it takes over.
    shoal_skip::wait_for("the next owner", || {
        let next = Volume::connect(&standing.socket).ok()?;
        next.root(Credentials::current()).write("d/next", "by the next").ok()?;
        next.sync().ok()
    });
    shoal_skip::wait_for("the next owner's file", || view.read("d/next").ok());
    scratch.shoal(["remount", "--promote", &url]).ok();
    assert_eq!(replicating.end(Signal::TERM), Some(0));
    assert_eq!(standing.end(Signal::TERM), Some(0));
    assert!(scratch.shoal(["fsck", &url]).ok().contains("clean"));
    assert!(scratch.shoal(["ls", &format!("{url}:/d")]).ok().contains("next"));
}

/// A standby that owns the volume, and nobody can reach, leaves it to another process.
#[test]
fn a_standby_without_a_socket_closes_the_volume() {
    let (scratch, url) = crate::bucket::bucket();
    scratch.shoal(["mkfs", &url]).ok();
    let serve = |name: &str, options: &[&str]| {
        let socket = scratch.path(name);
        let socket = socket.to_str().expect("a name");
        Serving::begin(&scratch, &[&["serve", "--socket", socket, &url], options].concat())
    };
    std::fs::create_dir(scratch.path("gone")).expect("made");
    let (owning, standing) = (serve("owner", &[]), serve("gone/standby", &["--standby=3600"]));
    std::fs::remove_dir_all(scratch.path("gone")).expect("removed");
    assert_eq!(owning.end(Signal::TERM), Some(0));
    assert_eq!(standing.wait(), Some(1));
    scratch.shoal(["mkdir", &format!("{url}:/d")]).ok();
}
