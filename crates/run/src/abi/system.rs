//! `syscall`, by which runtimes ask for what their C library may not have; and the variants of
//! `exec` that a function of this language cannot have.

use super::{attributes, contents, dirs, names, process};
use std::ffi::{c_char, c_int, c_long};
use std::sync::atomic::AtomicPtr;

interpose! {
    fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long {
        if crate::state::is_inside() {
            return next::syscall(number, a, b, c, d, e, f);
        }
        if let Some(result) = of_files(number, [a, b, c, d, e, f]) {
            return result;
        }
        if becomes_another(number) {
            process::becomes_another();
        }
        match number {
            libc::SYS_clone | libc::SYS_clone3 => contents::settle_below(c_int::MAX),
            libc::SYS_execve | libc::SYS_execveat => process::replaced_by(false),
            libc::SYS_exit | libc::SYS_exit_group => process::report(),
            _ => {}
        }
        // Any of them may be a descriptor.
        for argument in [a, b, c, d, e] {
            if let Ok(fd) = c_int::try_from(argument) {
                super::settle(fd);
            }
        }
        next::syscall(number, a, b, c, d, e, f)
    }
}

/// Makes a system call on files, if it is one that has a function here.
unsafe fn of_files(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_open => {
            return Some(names::open(a as *const c_char, b as c_int, c as u32).into());
        }
        libc::SYS_stat => {
            return Some(attributes::stat(a as *const c_char, b as *mut libc::stat).into());
        }
        libc::SYS_lstat => {
            return Some(attributes::lstat(a as *const c_char, b as *mut libc::stat).into());
        }
        libc::SYS_dup2 => return Some(contents::dup2(a as c_int, b as c_int).into()),
        libc::SYS_fork | libc::SYS_vfork => return Some(process::fork().into()),
        _ => {}
    }
    Some(match number {
        libc::SYS_openat => {
            names::openat(a as c_int, b as *const c_char, c as c_int, d as u32).into()
        }
        libc::SYS_read => contents::read(a as c_int, b as *mut _, c as usize) as c_long,
        libc::SYS_write => contents::write(a as c_int, b as *const _, c as usize) as c_long,
        libc::SYS_close => contents::close(a as c_int).into(),
        libc::SYS_close_range => contents::close_range(a as u32, b as u32, c as c_int).into(),
        libc::SYS_dup => contents::dup(a as c_int).into(),
        libc::SYS_dup3 => contents::dup3(a as c_int, b as c_int, c as c_int).into(),
        libc::SYS_fstat => attributes::fstat(a as c_int, b as *mut libc::stat).into(),
        libc::SYS_newfstatat => {
            let into = c as *mut libc::stat;
            attributes::fstatat(a as c_int, b as *const c_char, into, d as c_int).into()
        }
        libc::SYS_statx => {
            let (path, into) = (b as *const c_char, e as *mut libc::statx);
            attributes::statx(a as c_int, path, c as c_int, d as u32, into).into()
        }
        libc::SYS_copy_file_range => {
            let (from_at, to_at) = (b as *mut i64, d as *mut i64);
            let (from, to) = (a as c_int, c as c_int);
            contents::copy_file_range(from, from_at, to, to_at, e as usize, f as u32) as c_long
        }
        libc::SYS_mmap => {
            let (protection, flags, fd) = (c as c_int, d as c_int, e as c_int);
            contents::mmap(a as *mut _, b as usize, protection, flags, fd, f) as c_long
        }
        libc::SYS_prlimit64 => {
            process::prlimit(a as i32, b as c_int, c as *const _, d as *mut _).into()
        }
        libc::SYS_umask => process::umask(a as u32).into(),
        libc::SYS_chdir => dirs::chdir(a as *const c_char).into(),
        libc::SYS_fchdir => dirs::fchdir(a as c_int).into(),
        _ => return None,
    })
}

/// Returns whether a system call makes the process somebody else, or lets it go elsewhere.
fn becomes_another(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_capset
            | libc::SYS_seccomp
            | libc::SYS_chroot
            | libc::SYS_unshare
            | libc::SYS_setns
            | libc::SYS_pivot_root
            | libc::SYS_io_uring_setup
    )
}

// All arguments are kept, as their number is not known; those beyond the sixth lie on the stack.
#[cfg(target_arch = "x86_64")]
macro_rules! any_number_of_arguments {
    ($name:ident, $before:path, $which:literal) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            "sub rsp, 128",
            "movups [rsp], xmm0",
            "movups [rsp + 16], xmm1",
            "movups [rsp + 32], xmm2",
            "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4",
            "movups [rsp + 80], xmm5",
            "movups [rsp + 96], xmm6",
            "movups [rsp + 112], xmm7",
            "mov rsi, rdi",
            concat!("mov edi, ", $which),
            "call {before}",
            "mov r11, rax",
            "movups xmm0, [rsp]",
            "movups xmm1, [rsp + 16]",
            "movups xmm2, [rsp + 32]",
            "movups xmm3, [rsp + 48]",
            "movups xmm4, [rsp + 64]",
            "movups xmm5, [rsp + 80]",
            "movups xmm6, [rsp + 96]",
            "movups xmm7, [rsp + 112]",
            "add rsp, 128",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp r11",
            before = sym $before,
        )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! any_number_of_arguments {
    ($name:ident, $before:path, $which:literal) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
        std::arch::naked_asm!(
            "stp x29, x30, [sp, #-208]!",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "stp q0, q1, [sp, #80]",
            "stp q2, q3, [sp, #112]",
            "stp q4, q5, [sp, #144]",
            "stp q6, q7, [sp, #176]",
            "mov w1, w0",
            concat!("mov w0, #", $which),
            "bl {before}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldp q0, q1, [sp, #80]",
            "ldp q2, q3, [sp, #112]",
            "ldp q4, q5, [sp, #144]",
            "ldp q6, q7, [sp, #176]",
            "ldp x29, x30, [sp], #208",
            "br x16",
            before = sym $before,
        )
        }
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod any_number {
    use super::{contents, process};

    any_number_of_arguments!(execl, process::before_exec, "0");
    any_number_of_arguments!(execlp, process::before_exec, "1");
    any_number_of_arguments!(execle, process::before_exec, "2");
    any_number_of_arguments!(dprintf, contents::before_print, "0");
    any_number_of_arguments!(__dprintf_chk, contents::before_print, "1");
}
