//! Processes: what is begun, replaced and ended, and who it is.

use super::contents::settle_below;
use crate::{files, kernel, mounts, place, state};
use libc::{gid_t, mode_t, pid_t, sighandler_t, siginfo_t, size_t, uid_t};
use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Makes a child. All files become the mount's before: parent and child share positions and flags
/// from then on, as the kernel does it. The child's calls are made by the kernel until it has a
/// session of its own.
unsafe fn forked(fork: impl FnOnce() -> pid_t) -> pid_t {
    let Some(inside) = state::enter() else {
        // What interrupted this thread may hold locks, which the child would wait for.
        settle_below(c_int::MAX);
        let pid = fork();
        if pid == 0 {
            state::switch_off();
        }
        return pid;
    };
    let _ = files::settle_all();
    let own = mounts::own_descriptors();
    let (mounts_held, place_held) = (mounts::hold(), place::hold());
    let pid = fork();
    let errno = kernel::KeepErrno::here();
    drop((mounts_held, place_held));
    if pid == 0 {
        place::forget_of_parent();
        mounts::forget(&own);
        drop(state::take_counts());
    }
    drop(inside);
    drop(errno);
    pid
}

/// After a call that may have mounted something, or has waited for a program that may have.
fn waited(result: c_int) -> c_int {
    mounts::look_soon();
    result
}

/// Before this program is replaced by another one, or starts one.
pub(super) fn replaced_by(all: bool) {
    if files::any() {
        let inside = state::enter();
        let _ = if all { files::settle_all() } else { files::settle_inherited() };
        drop(inside);
    }
    report();
}

/// Before the process becomes somebody else, or goes elsewhere: the session is that of who it was,
/// and paths are those of where it was.
pub(super) fn becomes_another() {
    let inside = state::enter();
    let _ = files::settle_all();
    drop(inside);
    state::switch_off();
}

/// Appends what has been counted to the file of `--stats`.
pub(super) fn report() {
    let Some(_inside) = state::enter() else { return };
    let errno = kernel::KeepErrno::here();
    if let Some(file) = std::env::var_os(state::STATISTICS)
        && let Ok(path) = std::ffi::CString::new(file.as_bytes())
    {
        let counts = state::take_counts();
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC;
        if !counts.is_empty()
            && let Ok(fd) = kernel::open(&path, flags)
        {
            let _ = kernel::write(fd, counts.as_bytes());
            kernel::close(fd);
        }
    }
    drop(errno);
}

/// Runs when the library is loaded: finds what must not be looked for later, in a signal handler or
/// in a child.
extern "C" fn begin() {
    kernel::system_call();
    // The program's output is its own. A panic here is a call that the kernel answers.
    std::panic::set_hook(Box::new(|_| {}));
}

/// Runs when the program ends.
extern "C" fn end() {
    report();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Handlers of signals, as the program has given them, and whether each was given with
/// `SA_SIGINFO`.
static HANDLERS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];
static WITH_INFO: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];

/// In the place of the program's handlers: marks that the thread is in one.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let handler = HANDLERS.get(signal as usize).map_or(0, |it| it.load(Ordering::Acquire));
    if handler != 0 {
        let frame = 0u8;
        let Some(marked) = state::handler(signal, (&raw const frame).addr()) else { return };
        // SAFETY: the program's handler, which has one argument or three: the others are ignored.
        unsafe {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        }
        drop(marked);
    }
}

fn place_of_handler() -> sighandler_t {
    handle as *const () as sighandler_t
}

unsafe fn set_handler(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    let at = usize::try_from(signal).ok().filter(|at| *at < HANDLERS.len());
    let (Some(at), true) = (at, state::is_on()) else {
        return next::sigaction(signal, action, before);
    };
    let was = (HANDLERS[at].load(Ordering::Acquire), WITH_INFO[at].load(Ordering::Acquire));
    let mut changed = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    let mut given = action;
    if !action.is_null() && !matches!((*action).sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        let with_info = usize::from((*action).sa_flags & libc::SA_SIGINFO != 0);
        HANDLERS[at].store((*action).sa_sigaction, Ordering::Release);
        WITH_INFO[at].store(with_info, Ordering::Release);
        changed.write(*action);
        let changed = &mut *changed.as_mut_ptr();
        changed.sa_sigaction = place_of_handler();
        changed.sa_flags |= libc::SA_SIGINFO;
        given = changed;
    }
    let result = next::sigaction(signal, given, before);
    if result == 0 && !before.is_null() && (*before).sa_sigaction == place_of_handler() {
        (*before).sa_sigaction = was.0;
        if was.1 == 0 {
            (*before).sa_flags &= !libc::SA_SIGINFO;
        }
    }
    result
}

interpose! {
    fn fork() -> pid_t {
        forked(|| next::fork())
    }
    fn _Fork() -> pid_t {
        forked(|| next::_Fork())
    }
    fn vfork() -> pid_t {
        // A child that shares this process's memory would change the table of its files.
        forked(|| next::fork())
    }
    fn __vfork() -> pid_t {
        forked(|| next::fork())
    }
    fn forkpty(
        terminal: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void
    ) -> pid_t {
        forked(|| next::forkpty(terminal, name, settings, size))
    }
    fn daemon(stays: c_int, keeps_streams: c_int) -> c_int {
        // The child alone returns.
        forked(|| next::daemon(stays, keeps_streams))
    }
    fn clone(
        function: *mut c_void, stack: *mut c_void, flags: c_int, arg: *mut c_void,
        parent: *mut c_void, tls: *mut c_void, child: *mut c_void
    ) -> c_int {
        // Its memory is its own, or its files are: then the table is not its.
        if flags & libc::CLONE_VM == 0 || flags & libc::CLONE_FILES == 0 {
            settle_below(c_int::MAX);
        }
        next::clone(function, stack, flags, arg, parent, tls, child)
    }
    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int {
        replaced_by(true);
        next::posix_spawn(pid, path, actions, attributes, arguments, environment)
    }
    fn posix_spawnp(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int {
        replaced_by(true);
        next::posix_spawnp(pid, path, actions, attributes, arguments, environment)
    }
    fn popen(command: *const c_char, kind: *const c_char) -> *mut c_void {
        replaced_by(false);
        next::popen(command, kind)
    }
    fn system(command: *const c_char) -> c_int {
        replaced_by(false);
        next::system(command)
    }
    fn execve(
        path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int {
        replaced_by(false);
        next::execve(path, arguments, environment)
    }
    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
        replaced_by(false);
        next::execv(path, arguments)
    }
    fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
        replaced_by(false);
        next::execvp(file, arguments)
    }
    fn execvpe(
        file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int {
        replaced_by(false);
        next::execvpe(file, arguments, environment)
    }
    fn fexecve(
        fd: c_int, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int {
        replaced_by(false);
        next::fexecve(super::settled(fd), arguments, environment)
    }
    fn execveat(
        dir: c_int, path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char, flags: c_int
    ) -> c_int {
        replaced_by(false);
        next::execveat(super::settled(dir), path, arguments, environment, flags)
    }
    fn wait(status: *mut c_int) -> pid_t {
        waited(next::wait(status))
    }
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
        waited(next::waitpid(pid, status, options))
    }
    fn wait3(status: *mut c_int, options: c_int, usage: *mut c_void) -> pid_t {
        waited(next::wait3(status, options, usage))
    }
    fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut c_void) -> pid_t {
        waited(next::wait4(pid, status, options, usage))
    }
    fn waitid(kind: c_int, id: libc::id_t, info: *mut siginfo_t, options: c_int) -> c_int {
        waited(next::waitid(kind, id, info, options))
    }
    fn mount(
        source: *const c_char, target: *const c_char, kind: *const c_char, flags: c_ulong,
        data: *const c_void
    ) -> c_int {
        waited(next::mount(source, target, kind, flags, data))
    }
    fn umount(target: *const c_char) -> c_int {
        waited(next::umount(target))
    }
    fn umount2(target: *const c_char, flags: c_int) -> c_int {
        waited(next::umount2(target, flags))
    }
    fn move_mount(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
        flags: std::ffi::c_uint
    ) -> c_int {
        let (from_dir, to_dir) = (super::settled(from_dir), super::settled(to_dir));
        waited(next::move_mount(from_dir, from, to_dir, to, flags))
    }
    fn open_tree(dir: c_int, path: *const c_char, flags: std::ffi::c_uint) -> c_int {
        next::open_tree(super::settled(dir), path, flags)
    }
    fn fspick(dir: c_int, path: *const c_char, flags: std::ffi::c_uint) -> c_int {
        next::fspick(super::settled(dir), path, flags)
    }
    fn mount_setattr(
        dir: c_int, path: *const c_char, flags: std::ffi::c_uint, attributes: *mut c_void,
        len: libc::size_t
    ) -> c_int {
        waited(next::mount_setattr(super::settled(dir), path, flags, attributes, len))
    }
    fn _exit | _Exit (status: c_int) -> ! {
        report();
        next::_exit(status)
    }

    fn umask(mask: mode_t) -> mode_t {
        mounts::set_umask(mask);
        next::umask(mask)
    }
    fn setuid(uid: uid_t) -> c_int { becomes_another(); next::setuid(uid) }
    fn seteuid(uid: uid_t) -> c_int { becomes_another(); next::seteuid(uid) }
    fn setreuid(real: uid_t, effective: uid_t) -> c_int {
        becomes_another();
        next::setreuid(real, effective)
    }
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        becomes_another();
        next::setresuid(real, effective, saved)
    }
    fn setgid(gid: gid_t) -> c_int { becomes_another(); next::setgid(gid) }
    fn setegid(gid: gid_t) -> c_int { becomes_another(); next::setegid(gid) }
    fn setregid(real: gid_t, effective: gid_t) -> c_int {
        becomes_another();
        next::setregid(real, effective)
    }
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        becomes_another();
        next::setresgid(real, effective, saved)
    }
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int {
        becomes_another();
        next::setgroups(count, groups)
    }
    fn initgroups(user: *const c_char, gid: gid_t) -> c_int {
        becomes_another();
        next::initgroups(user, gid)
    }
    fn setfsuid(uid: uid_t) -> c_int { becomes_another(); next::setfsuid(uid) }
    fn setfsgid(gid: gid_t) -> c_int { becomes_another(); next::setfsgid(gid) }
    fn capset(header: *mut c_void, data: *const c_void) -> c_int {
        becomes_another();
        next::capset(header, data)
    }
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        // A filter may forbid what sessions need; a capability may go.
        if matches!(option,
        libc::PR_SET_SECCOMP | libc::PR_CAPBSET_DROP | libc::PR_SET_SECUREBITS) {
            becomes_another();
        }
        next::prctl(option, a, b, c, d)
    }
    fn chroot(path: *const c_char) -> c_int { becomes_another(); next::chroot(path) }
    fn unshare(flags: c_int) -> c_int { becomes_another(); next::unshare(flags) }
    fn setns(fd: c_int, kind: c_int) -> c_int { becomes_another(); next::setns(fd, kind) }
    fn setrlimit | setrlimit64 (resource: c_int, limit: *const c_void) -> c_int {
        // Of a file's size: the kernel keeps it.
        if resource == libc::RLIMIT_FSIZE as c_int {
            settle_below(c_int::MAX);
        }
        let result = next::setrlimit(resource, limit);
        kernel::forget_size_max();
        result
    }
    fn prlimit | prlimit64 (
        pid: pid_t, resource: c_int, new: *const c_void, old: *mut c_void
    ) -> c_int {
        if resource == libc::RLIMIT_FSIZE as c_int && !new.is_null() {
            settle_below(c_int::MAX);
        }
        let result = next::prlimit(pid, resource, new, old);
        kernel::forget_size_max();
        result
    }
    fn io_uring_queue_init(
        entries: std::ffi::c_uint, ring: *mut c_void, flags: std::ffi::c_uint
    ) -> c_int {
        becomes_another();
        next::io_uring_queue_init(entries, ring, flags)
    }
    fn io_uring_queue_init_params(
        entries: std::ffi::c_uint, ring: *mut c_void, params: *mut c_void
    ) -> c_int {
        becomes_another();
        next::io_uring_queue_init_params(entries, ring, params)
    }

    fn sigaction | __sigaction (
        signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction
    ) -> c_int {
        set_handler(signal, action, before)
    }
    fn signal | bsd_signal (number: c_int, handler: sighandler_t) -> sighandler_t {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        match set_handler(number, &raw const action, &raw mut before) {
            0 => before.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// The variants of `exec` with any number of arguments: they go on to the C library's with all of
/// them, after this.
pub(super) extern "C" fn before_exec(which: c_int, _: c_int) -> *mut c_void {
    static NEXT: [AtomicPtr<c_void>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];
    replaced_by(false);
    let (at, name) = match which {
        0 => (&NEXT[0], c"execl"),
        1 => (&NEXT[1], c"execlp"),
        _ => (&NEXT[2], c"execle"),
    };
    kernel::resolve(at, name)
}
