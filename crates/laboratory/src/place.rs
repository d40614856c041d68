//! Filesystems that are measured, each made afresh for each measurement and removed after it.

use crate::error::{LabError, Result};
use crate::experiments::Measure;
use crate::machine::fuse_rings;
use crate::process;
use crate::systems::System;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for a mount to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Beginning of the names of the folders, and the name of the mount point in them: short, because
/// fs_mark takes no path of 40 bytes, and overruns a buffer with some that are shorter.
const PREFIX: &str = "shoal-lab.";
const MOUNT: &str = "m";
/// Beginning of the names of images on a disk.
const IMAGE: &str = "shoal-lab-image.";

/// The place of all filesystems of a run.
#[derive(Debug)]
pub(crate) struct Place {
    /// Folder of images and mount points, removed at the end.
    pub scratch: PathBuf,
    /// Folder on a disk.
    disk: PathBuf,
    /// Device that is overwritten, instead of an image in the folder.
    pub device: Option<PathBuf>,
    /// Bytes of an image.
    pub size: u64,
    /// FUSE requests go through io_uring, as at the start of the run.
    rings: bool,
    /// The command `shoal`.
    pub shoal: PathBuf,
}

impl Place {
    /// Makes a folder for this process.
    pub(crate) fn new(above: &Path, disk: &Path, shoal: PathBuf) -> Result<Place> {
        let scratch = above.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(scratch.join(MOUNT))
            .map_err(|e| LabError::failed("making folder", scratch.display(), e))?;
        fs::create_dir_all(disk)
            .map_err(|e| LabError::failed("making folder", disk.display(), e))?;
        let disk = disk.to_owned();
        Ok(Place { scratch, disk, device: None, size: 16 << 30, rings: fuse_rings(), shoal })
    }

    /// The reason why a system cannot be measured here, if there is one.
    pub(crate) fn why_not(&self, system: System) -> Option<String> {
        if matches!(system, System::Library | System::Memory) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            return Some("only root can mount it".to_owned());
        }
        if system.has_server() && !Path::new("/dev/fuse").exists() {
            return Some("there is no /dev/fuse".to_owned());
        }
        let maker = system.maker()?;
        (!process::is_installed(maker)).then(|| format!("{maker} is not installed"))
    }

    /// The image of a measurement's filesystem.
    fn image(&self, measure: &Measure) -> PathBuf {
        match (&self.device, measure.on_disk) {
            (_, true) => self.disk.join(format!("{IMAGE}{}", std::process::id())),
            (Some(device), _) => device.clone(),
            (None, _) => self.scratch.join("image"),
        }
    }

    fn mount_point(&self) -> PathBuf {
        self.scratch.join(MOUNT)
    }

    /// Makes the filesystem of a measurement, and mounts it.
    pub(crate) fn up(&self, measure: &Measure) -> Result<Ready<'_>> {
        let system = measure.system;
        let image = self.image(measure);
        let is_file = self.device.as_deref() != Some(&*image);
        let size = measure.size.unwrap_or(self.size);
        let in_background = system == System::Default;
        let (mounted, server) = (false, None);
        let mut ready = Ready { place: self, image, is_file, mounted, server, in_background };
        if is_file && !matches!(system, System::Tmpfs | System::Memory | System::Library) {
            let image = fs::File::create(&ready.image).and_then(|file| file.set_len(size));
            image.map_err(|e| LabError::failed("making", ready.image.display(), e))?;
        }
        match system {
            System::Library | System::Memory => {}
            _ if system.has_server() => ready.serve(size)?,
            System::Tmpfs => {
                let options = format!("size={size},nr_inodes=0");
                ready.mount(&["-t", "tmpfs", "-o", &options, "tmpfs"])?;
            }
            _ => {
                let image = ready.image.to_string_lossy().into_owned();
                make_kernel(system, &image, size)?;
                match is_file {
                    false => ready.mount(&[&image])?,
                    true => ready.mount(&["-o", "loop", &image])?,
                }
            }
        }
        Ok(ready)
    }
}

/// Runs the program that makes a filesystem of the kernel in the first `size` bytes of an image or
/// device. The geometry of XFS is that of the published measurements of parent pointers, for a
/// machine of this size.
fn make_kernel(system: System, image: &str, size: u64) -> Result<()> {
    let run = |line: &str| command(line, &[image]);
    let kib = format!("{}k", size / 1024);
    let ext4 = |line: &str| command(line, &[image, &kib]);
    let log = if size < 4 << 30 { "64m" } else { "512m" };
    let xfs = format!(
        "mkfs.xfs -q -f -m crc=1,finobt=1,reflink=1,rmapbt=1,bigtime=1,inobtcount=1 \
         -d agcount=4,size={size} -l size={log}"
    );
    // One for each 3 KiB, as empty files are many.
    let inodes = size / 3072;
    match system {
        System::Xfs => run(&xfs),
        System::XfsParent => {
            run(&format!("{xfs} -n parent=1")).or_else(|_| run(&xfs).and_then(|()| parents(image)))
        }
        System::Ext4 => ext4(&format!("mkfs.ext4 -q -F -N {inodes} -O ^orphan_file")),
        System::Ext4Orphan => ext4(&format!("mkfs.ext4 -q -F -N {inodes} -O orphan_file")),
        _ => run(&format!("mkfs.btrfs -q -f -m single -b {size}")),
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove_unmounted(&self.scratch);
        // Of a program that was stopped.
        process::remove_scratches();
    }
}

/// Removes what killed processes left: their mounts, then their folders, and images on the disk.
pub(crate) fn remove_old(above: &Path, disk: &Path) {
    for folder in process::leftovers(above, PREFIX) {
        // An error says that nothing is mounted there, or that it is busy and stays.
        let _none = command("umount", &["-i", &folder.join(MOUNT).to_string_lossy()]);
        remove_unmounted(&folder);
    }
    process::remove_scratches();
    for image in process::leftovers(disk, IMAGE) {
        let _left = fs::remove_file(image);
    }
}

/// Removes a folder, unless something is mounted in it: that is left to its owner.
fn remove_unmounted(folder: &Path) {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    if device(folder) == device(&folder.join(MOUNT)) {
        let _left = fs::remove_dir_all(folder);
    }
}

/// Sets the feature bit of parent pointers in an empty XFS: its mkfs may be too old for them.
fn parents(image: &str) -> Result<()> {
    const PARENT: u64 = 0x80;
    let field = Command::new("xfs_db")
        .args(["-c", "sb 0", "-c", "p features_incompat", image])
        .output()
        .map_err(|e| LabError::failed("starting", "xfs_db", e))?;
    let text = String::from_utf8_lossy(&field.stdout).into_owned();
    let value = text.trim().rsplit("0x").next();
    let value = value.and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let value = value.ok_or_else(|| LabError::failed("xfs_db of", image, text.trim()))?;
    let write = format!("write -d features_incompat {:#x}", value | PARENT);
    command("xfs_db -x -c", &["sb 0", "-c", &write, image])
}

/// A filesystem that is there until this is dropped.
#[derive(Debug)]
pub(crate) struct Ready<'p> {
    place: &'p Place,
    image: PathBuf,
    /// The image is a file, which is removed in the end.
    is_file: bool,
    mounted: bool,
    server: Option<Child>,
    /// The server is no child: whoever unmounts waits for it.
    in_background: bool,
}

impl Ready<'_> {
    /// The target as `shoal bench` names it.
    pub(crate) fn target(&self) -> String {
        match self.mounted {
            true => format!("dir:{}", self.place.mount_point().display()),
            false => format!("vol:{}", self.image.display()),
        }
    }

    /// Processor time in seconds that the server of the mount has used, if that is a child; 0
    /// without one.
    pub(crate) fn server_seconds(&self) -> f64 {
        self.server.as_ref().map_or(0.0, |server| process::processor_seconds(server.id())[0])
    }

    fn mount(&mut self, args: &[&str]) -> Result<()> {
        let point = self.place.mount_point();
        let point = point.to_string_lossy();
        let args: Vec<&str> = args.iter().copied().chain([&*point]).collect();
        command("mount", &args)?;
        self.mounted = true;
        Ok(())
    }

    /// Makes a volume and mounts it by a process of its own.
    fn serve(&mut self, size: u64) -> Result<()> {
        if fuse_rings() != self.place.rings {
            let why = "FUSE over io_uring was switched on or off since the run began";
            return Err(LabError::failed("mounting", "Shoal", why));
        }
        let (image, point) = (self.image.clone(), self.place.mount_point());
        let mut mkfs = Command::new(&self.place.shoal);
        mkfs.args(["mkfs", "--force", "--size", &size.to_string()]).arg(&image);
        process::text_of(&mut mkfs)?;
        let before = fs::metadata(&point).map(|found| found.dev()).unwrap_or(0);
        if self.in_background {
            // As users mount: in a session of its own, which the scheduler takes for a group.
            process::text_of(Command::new(&self.place.shoal).arg("mount").args([&image, &point]))?;
            self.mounted = true;
            return Ok(());
        }
        let server = Command::new(&self.place.shoal)
            // Rings where the kernel has them; one process, whose time is the server's.
            .args(["mount", "--foreground", "-o", "keeper=off"])
            .args([&image, &point])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the run, which ends its program first, and unmounts then.
            .process_group(0)
            .spawn()
            .map_err(|e| LabError::failed("starting", self.place.shoal.display(), e))?;
        let server = self.server.insert(server);
        let end = Instant::now() + PATIENCE;
        while fs::metadata(&point).map_or(true, |found| found.dev() == before) {
            let ended = server.try_wait().ok().flatten();
            if Instant::now() > end || ended.is_some() {
                let why = format!("it did not come up (server: {ended:?})");
                return Err(LabError::failed("mounting on", point.display(), why));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.mounted = true;
        Ok(())
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        let point = self.place.mount_point();
        let mut unmount = match self.in_background {
            true => Command::new(&self.place.shoal),
            false => Command::new("umount"),
        };
        unmount.arg(if self.in_background { "umount" } else { "-i" }).arg(&point);
        if self.mounted && process::text_of(&mut unmount).is_err() {
            eprintln!("laboratory: {} stays mounted", point.display());
        }
        if let Some(server) = &mut self.server {
            if !self.mounted {
                let _ended = server.kill();
            }
            let _status = server.wait();
        }
        if self.is_file {
            let _none = fs::remove_file(&self.image);
        }
    }
}

/// Runs a program, its first words in a line.
fn command(line: &str, args: &[&str]) -> Result<()> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).args(args);
    process::text_of(&mut command).map(drop)
}
