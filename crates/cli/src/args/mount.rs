//! Arguments of the commands about mounts.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

const MOUNT_AFTER: &str = "\
MOUNT OPTIONS:
  -o takes a comma-separated list, as mount(8) does. For the volume:

    ro, rw            change nothing; or allow changes (default)
    noatime           do not update access times
    discard, nodiscard
                      return freed space to the file or device that holds the volume (default), or
                      not; see shoal-trim(1)
    cache=SIZE        as --cache
    threads=N         as --threads
    disk_cache=DIR, disk_cache_size=SIZE
                      keep what is read of a volume in a bucket in this directory too, up to SIZE
                      (10G by default); see CACHE ON DISK
    grace=SECONDS     time, from 2 to 60, for which this server may be stalled (stopped, without a
                      processor, its storage away) before another host takes the volume over; by
                      default 2 s of a file or device and 1.5 s of a bucket, longer where the
                      storage is slow
    session=PATH|off  serve sessions at this socket, or not at all; see SESSIONS
    metrics=ADDRESS   as --metrics
    force             as --force
    log=FILE          as --log
    log_level=LEVEL   as --log-level
    log_format=FORMAT as --log-format
    follow[=SECONDS]  show a volume in a bucket as another machine changes it (see REPLICAS)
    standby[=SECONDS] the same, and take it over when that one ends (see STANDBY)
    keeper=auto|on|off
                      whether programs on the mount live on when its server dies (see KEEPER)

  For the mount:

    allow_other       let all users in; without it only the user who mounts may enter
    default_permissions, no_default_permissions
                      let the kernel check permissions, or Shoal; the kernel does it by default
                      with allow_other, Shoal without. With allow_other, leave it to the kernel:
                      where Shoal checks, the kernel opens FIFOs and sockets whatever their mode,
                      and the option dev is refused, since devices would be open to everybody
    suid, nosuid, dev, nodev, exec, noexec, sync, dirsync
                      as in mount(8); nosuid, nodev and exec are the default here. Through mount(8)
                      suid and dev are, for root: see mount.shoal(8)
    fsname=NAME       source in lists of mounts, instead of the volume's path
    slow=DURATION     log requests that take at least so long (100ms, 2s), with the caller, the path
                      and the reasons for their waits, and keep the newest 256 for
                      DIR/.shoal/slow; 1s by default; off: none
    writeback         let the kernel collect small writes before it passes them on
    subvolume=NAME    show only this subvolume (see shoal-subvolume(1))
    xattr, no_xattr   extended attributes and access control lists. The kernel does not remember
                      that a file has none: it asks twice for each file that 'ls -l' shows, and
                      once before the first write to it, a chown or a chmod. Where they are not
                      needed, no_xattr makes 'ls -l' of many files several times as fast
    btime, no_btime   times of birth, as stat(1) shows them. The kernel learns them from no
                      listing: it asks once for each file of which a program wants all attributes
                      (bfs, and fd and others written in Rust). no_btime makes these several times
                      as fast on files that the kernel does not know yet
    handles, no_handles
                      handles of files, for export by NFS. no_handles is for overlays (Docker,
                      Podman) with several layers on the mount: with handles, Linux 6.18 loses
                      files that were copied from a lower layer (ESTALE) when it has been short of
                      memory
    busy_poll, no_busy_poll
                      look for the next request for up to 0.1 ms before sleeping, as long as
                      requests come and nothing else wants the processor; the default. Not where
                      they come by rings, and not on one processor
    io_uring=auto|on|off
                      exchange requests with the kernel through shared rings (FUSE over io_uring,
                      Linux 6.14), which is faster than through its device. auto, the default, does
                      so for a mount without a keeper (see KEEPER), where the kernel has it
                      switched on. With on, the mount fails if there are no rings; root also
                      switches them on in the kernel, for the whole machine, until
                        echo N > /sys/module/fuse/parameters/enable_uring
    journal_ring=FILE keep changes that are not durable yet in this file too, which outlives the
                      server: if that is killed, the next mount with the same FILE has every call
                      that had returned, synced or not. Best in memory (/run/NAME); takes 48 MiB,
                      and its content is ignored after a crash of the machine
    open, no_open     pass each open(2) on, or not; the default depends on who checks permissions;
                      with open, files are opened by tokens too (see shoal share --help)

  Options that only mount(8) and fstab(5) understand (defaults, auto, noauto, user, users, owner,
  nofail, _netdev, comment=..., x-..., X-...) are ignored. An unknown option is refused by name.

DURABILITY:
  Every change is on disk after at most five seconds. fsync(2) and fdatasync(2) wait for the disk;
  as changes become durable in the order in which they were made, everything acknowledged before is
  durable too.

  sync(2), and so the command sync, does not reach a filesystem that is served by a process on
  current kernels. Use fsync(2), or 'shoal sync DIR' for the whole volume.

  'shoal umount DIR' returns when everything is on disk and the volume is released; umount(8)
  returns earlier, unless its helper umount.fuse.shoal is installed.

KEEPER:
  Two processes serve a mount: the server, and a small one that keeps the connection to the kernel,
  the locks of the volume and the changes that are not on disk yet. When the server is killed, the
  keeper starts another one, and programs on the mount go on after a pause of a fraction of a
  second: no call fails, and nothing that had returned is lost, synced or not. Open files, locks,
  working directories and unlinked files in use live on, and so do the sessions of programs that use
  the library. A server that dies three times before it serves is given up: callers get an error,
  'shoal info' has the reason, and the next mount recovers what is in the ring.

  'shoal remount --takeover DIR' has the shoal that is called serve the mount in place of the one
  that does, as after an upgrade.

  The keeper needs Linux 6.9, and the device: what a server has taken from a ring (io_uring) cannot
  be given to another one. So keeper=auto, the default, uses no rings unless io_uring=on is given,
  and then has no keeper. keeper=off has none; then, if the server is killed, callers get an error
  at once, what was not synced in the last five seconds is lost unless journal_ring is given, and
  the next mount recovers the rest.

  The changes are in a file of 48 MiB in /run/shoal (in $XDG_RUNTIME_DIR/shoal for users other than
  root), named after the volume, or in that of journal_ring. If keeper and server are both killed,
  the next mount finds them there.

SESSIONS:
  Programs that use the library connect to the server of a mount past the kernel, by shared memory
  (Volume::connect with a directory of the mount, or the volume), at a fraction of the time for each
  call. Who may connect is who may enter the mount, and every call is checked for that user.
  Programs on the mount see their changes at once, and the other way round. The socket is
  /run/shoal/ID.sock, or below $XDG_RUNTIME_DIR of a user who mounts; those of a standby and of a
  replica are found by their directories alone. Of a mount that collects writes (writeback)
  sessions only read.

REPLICAS:
  With ro,follow a mount shows a volume in a bucket that another machine uses: what that one has
  made durable (with fsync, or by itself within five seconds), about a second later at most. Any
  number of machines may. What a mount shows is at any moment the whole volume as it was after one
  fsync. A file that is removed there gives its readers here ESTALE or ENOENT. follow=SECONDS is the
  longest time between two looks, 0.5 s by default; each look of a volume that does not change costs
  two small requests.

STANDBY:
  'shoal mount --standby', or the option standby, mounts such a volume as a replica that refuses
  changes (EROFS) until it becomes the owner: when the owner has closed the volume, or has written
  nothing for longer than it promised in its last object (1.5 s while it writes, up to a minute when
  it is idle). standby=SECONDS waits for so many seconds at least. Programs on the mount need not do
  anything; files that are open stay open. What the former owner had made durable is there. If it
  still runs, it finds out with its next write, and becomes read-only. An owner that may be stalled
  for longer, on a busy machine, is mounted with grace=SECONDS: it promises to write within that.

  'shoal remount --promote DIR' has a standby take over at once if the owner has ended, and with
  --force whatever it does.

CACHE ON DISK:
  With disk_cache=DIR a mount of a volume in a bucket keeps what it has read of the bucket, or
  written to it, in files in DIR, which should be on a fast local disk. They outlive the mount, and
  the next one begins with them. Every piece is verified by its checksum when it is used: one that
  is damaged is read from the bucket again, so that a crash, or somebody who removes files, does no
  harm. Several mounts and commands may use one DIR, of several volumes too. The files used longest
  ago are removed when there are more than disk_cache_size bytes, or when less than a sixteenth of
  DIR's filesystem is free. DIR must belong to the user who mounts, and nobody else may be able to
  write in it; the volume's content is in the files as it is.

  Commands without a mount use such a directory if the environment variable SHOAL_DISK_CACHE names
  it (SHOAL_DISK_CACHE_SIZE: its size), and mount does if it has no option of its own. fsck, and
  scrub of a volume that is not mounted, read the bucket alone.

SIGNALS:
  SIGTERM and SIGINT unmount and close the volume. If files are in use, the mount leaves the tree
  of directories at once and the volume is closed when the last file is; a second signal does not
  wait for that.

FSTAB:
  With mount.shoal in /sbin, which packages install, 'mount -t shoal VOLUME DIR' works, and lines as
  this in /etc/fstab; see mount.shoal(8), also for 'mount -o remount':

    /srv/vol.img  /data  shoal  allow_other,cache=2G,nofail  0  0

EXIT STATUS:
  0   Mounted and usable. With --foreground: was mounted, and is now unmounted and closed.
  1   The mount failed or ended badly, for example because the mount point is missing or busy.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
  Mount for all users, with 2 GiB for metadata:
    shoal mount vol.img /data -o allow_other --cache 2G

  See each step of it:
    shoal mount vol.img /mnt --foreground --log-level debug
";

/// Mount a volume on a directory
///
/// Returns when the mount is usable; a process in the background serves it until it is unmounted. A
/// volume that was not closed properly is recovered first, which takes time in proportion to the
/// journal, never to the size of the volume.
#[derive(Args, Debug)]
#[command(after_long_help = MOUNT_AFTER)]
pub(crate) struct MountArgs {
    /// The volume's file, device or place in a bucket, or LABEL= or UUID= of one on a device
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// The directory to mount it on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Mount options, separated by commas; may be given several times
    #[arg(short, long = "options", value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Serve the mount from this process, and return when it has been unmounted
    #[arg(long, short)]
    pub foreground: bool,
    /// Memory for metadata, as 2G [default: a quarter of the machine's]
    ///
    /// A volume in a bucket uses as much again, but 64M at least and 256M at most, for what it has
    /// read of the bucket.
    #[arg(long, value_name = "SIZE", value_parser = super::size)]
    pub cache: Option<u64>,
    /// Threads that read requests from the device [default: one for each processor]
    ///
    /// Rings (see io_uring below) have a thread for each processor in any case.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Change nothing on the volume
    #[arg(long, short)]
    pub read_only: bool,
    /// Show a volume in a bucket that another machine uses, and take it over when that one ends
    ///
    /// See STANDBY below.
    #[arg(long)]
    pub standby: bool,
    /// Mount although another process has a claim on the volume
    ///
    /// For a copy of a volume in use, or when the process is known to be dead. If it is not, it
    /// stops writing as soon as it notices, and loses its unsynced changes; writes that it had
    /// passed to its kernel before may still be done, and destroy the volume.
    #[arg(long)]
    pub force: bool,
    /// Offer metrics for Prometheus, and a page for people, by HTTP at this address
    ///
    /// :PORT (on 127.0.0.1), HOST:PORT, or unix:/PATH for a socket of the user who mounts. The page
    /// is at /, the metrics at /metrics. All who can connect can read them; over TCP they say
    /// nothing of anybody's files.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// File to append the log to
    ///
    /// Without it a mount in the background logs to the system log, and one in the foreground to
    /// standard error.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Least severity that is logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Form of the log's lines
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Report on standard output when the mount is usable, to the process that started this one
    #[arg(long, hide = true, requires = "foreground")]
    pub report_ready: bool,
    /// Serve for a keeper, whose socket is standard input; its standing with the kernel's killer
    #[arg(long, hide = true, requires = "foreground", value_name = "OOM_SCORE_ADJ")]
    pub kept: Option<String>,
    /// Make the volume so many bytes large, as `shoal grow` asks; 0: as its device
    #[arg(long, hide = true, requires = "kept", value_name = "BYTES")]
    pub grow: Option<u64>,
}

/// Form of the log's lines.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// Words for people
    Text,
    /// An object of JSON, with the time, for programs that collect logs
    Json,
}

/// Least severity that is logged.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogLevel {
    /// Only failures that need attention at once
    Error,
    /// Also events that may need attention
    Warn,
    /// Also mounts, recoveries and unmounts
    Info,
    /// Also checkpoints and other work in the background
    Debug,
    /// Also each request
    Trace,
}

const SERVE_AFTER: &str = "\
WHAT IT IS FOR:
  Programs that use the library work on one volume together, each in its own process and as its own
  user, at a speed that no mount has: Volume::connect with the volume or the socket. It needs no
  root, no /dev/fuse and no mount, so it works in any container.

  The socket is /run/shoal/ID.sock, of users other than root $XDG_RUNTIME_DIR/shoal/ID.sock, or that
  of --socket. Who connects is known by the kernel; every call is checked for that user. Without
  --allow-other only this user and the superuser may connect.

  It ends by SIGTERM, SIGINT or Ctrl-C, and closes the volume.

KEEPER:
  Two processes serve: the server, and a small one that keeps what must outlive it. When the server
  is killed, the keeper starts another one, and sessions go on after a pause of a fraction of a
  second: open files stay open, and each call is made exactly once. A server that dies three times
  before it serves is given up. --keeper off has none, and there is none for a volume that is
  read-only or in a bucket (--keeper on refuses these). Then, or if both processes are killed, those
  who are connected get an error, and connect anew; the next open of the volume finds every call
  that had returned, unless the machine is restarted before.

REPLICAS AND STANDBYS:
  A volume in a bucket that another process owns, here or elsewhere, can be served with --follow:
  sessions read what the owner has made durable. With --standby they do, too, until the owner ends,
  or shoal remount --promote VOLUME is called: then their sessions end, and programs that connect
  anew can change the volume (see shoal-mount(1)). Where the owner serves on this machine as well,
  one of the two needs another --socket.

WATCHING IT:
  While it is served, info, stats, top, label, orphans, trim and scrub of VOLUME ask the server.
  --metrics offers what a mount with that option offers: metrics for Prometheus, and a page.

EXIT STATUS:
  0   Was told to end; the volume is closed.
  1   Ended badly: the socket cannot be made, or the volume could not be closed.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
  Serve a volume to this user's programs:
    shoal serve vol.img

  To all users of this machine, at a place of your own:
    shoal serve vol.img --allow-other --socket /srv/vol.sock

  Stand by for the machine that serves a volume in a bucket:
    shoal serve --standby s3://bucket/home
";

/// Serve a volume to programs that use the library, without a mount
///
/// Prints the place of the socket when the volume can be used, and stays until it is told to end.
#[derive(Args, Debug)]
#[command(after_long_help = SERVE_AFTER)]
pub(crate) struct ServeArgs {
    /// The volume's file, device or place in a bucket, or LABEL= or UUID= of one on a device
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Place of the socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Let all users in; the permissions of files and directories decide what each may do
    #[arg(long)]
    pub allow_other: bool,
    /// Change nothing on the volume
    #[arg(long, short)]
    pub read_only: bool,
    /// Be a replica of a volume in a bucket that another process owns; look for changes at least
    /// each SECONDS [default: 0.5]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "", conflicts_with = "standby")]
    pub follow: Option<String>,
    /// Be a replica, and take the volume over when its owner ends, or is silent for SECONDS
    /// [default: the time that the owner has promised]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "", conflicts_with = "read_only")]
    pub standby: Option<String>,
    /// A keeper starts another server when this one is killed, and sessions go on [default: auto]
    #[arg(long, value_name = "WISH", hide_possible_values = true)]
    pub keeper: Option<WithKeeper>,
    /// Memory for metadata, as 2G [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = super::size)]
    pub cache: Option<u64>,
    /// Address to offer metrics and a page at by HTTP: :PORT, HOST:PORT or unix:/PATH
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// File to append the log to [default: standard error]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Least severity that is logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Serve for a keeper, whose socket is standard input; its standing with the kernel's killer
    #[arg(long, hide = true, value_name = "OOM_SCORE_ADJ")]
    pub kept: Option<String>,
    /// Make the volume so many bytes large, as `shoal grow` asks; 0: as its device
    #[arg(long, hide = true, requires = "kept", value_name = "BYTES")]
    pub grow: Option<u64>,
}

/// The wish for a keeper of a volume that is served.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WithKeeper {
    /// If there can be one
    Auto,
    /// Or the command fails
    On,
    /// None
    Off,
}

const REMOUNT_AFTER: &str = "\
  The server answers the requests that it has begun, writes a checkpoint and stops; this program
  then goes on with everything that it had: the connection to the kernel, the locks of the volume,
  the changes that are not on disk yet. Programs on the mount wait meanwhile, for some milliseconds.
  If this program cannot serve, the former one goes on.

EXIT STATUS:
  0   This program serves the mount.
  1   It does not: DIR is not a mount of Shoal, or one without a keeper, or is not yours. The
      mount goes on as before. With --promote: the volume was not taken over.
  2   Wrong usage.

EXAMPLES:
  After an upgrade of the package:
    shoal remount --takeover /data

  The same for a volume that shoal serve serves:
    shoal remount --takeover vol.img

  Make a standby the owner, after the other machine has unmounted the volume:
    shoal remount --promote /data
";

/// Serve a mount by this program, in place of the one that serves it
///
/// For upgrades: programs on the mount go on, and nothing is unmounted. The mount must have a
/// keeper (see shoal-mount(1)).
#[derive(Args, Debug)]
#[command(after_long_help = REMOUNT_AFTER)]
pub(crate) struct RemountArgs {
    /// Take over from the program that serves the mount or the volume
    #[arg(long, required_unless_present = "promote", conflicts_with = "promote")]
    pub takeover: bool,
    /// Have a standby take its volume over from the machine that uses it (see shoal-mount(1))
    #[arg(long)]
    pub promote: bool,
    /// Take it over although that machine works; it becomes read-only, and loses what it has not
    /// made durable
    #[arg(long, requires = "promote")]
    pub force: bool,
    /// The directory where it is mounted, or the volume, LABEL= or UUID=
    #[arg(value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub directory: PathBuf,
}

const UMOUNT_AFTER: &str = "\
OTHER MOUNTS:
  The server ends with the last mount of it. If bind mounts, or other mount namespaces such as those
  of containers, still have the volume mounted, only DIR is unmounted: a line on standard error says
  where the others are, and the volume stays in use.

EXIT STATUS:
  0   Unmounted; everything is on disk and the volume is closed, unless other mounts remain. With
      --lazy: detached.
  1   Not unmounted: DIR is not a mount of Shoal, or is busy. Or unmounted, but its server could
      not close the volume, or had ended before: the reason is printed, and synced changes are
      kept.
  2   Wrong usage.
";

/// Unmount a volume, and return when it is on disk and released
///
/// The process that serves the mount writes everything and closes the volume before this returns,
/// so the volume can be mounted, checked or copied at once.
#[derive(Args, Debug)]
#[command(after_long_help = UMOUNT_AFTER)]
pub(crate) struct UmountArgs {
    /// Detach at once also while files are in use; the volume is released when the last one is
    /// closed, and this does not wait for it
    #[arg(long, short)]
    pub lazy: bool,
    /// End the connection to the server first, which makes waiting calls fail at once: for a server
    /// that hangs; does not wait for it
    ///
    /// Fails while files are in use all the same.
    #[arg(long, short, conflicts_with = "lazy")]
    pub force: bool,
    /// The directory it is mounted on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
}
