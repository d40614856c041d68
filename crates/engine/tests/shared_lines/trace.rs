//! A trace of every access of a thread to the heap and to static variables.
//!
//! Problem: a reference count, the word of a lock and a plain field all cost a cache miss if two
//! threads write to one line, and no counter in the code sees all of them.
//!
//! Method: the heap is an arena of this module. While a trace runs, no page of the arena, nor of
//! the program's static variables, is accessible. Each access ends in the handler of SIGSEGV, which
//! records its address, its kind and its instruction, opens the page, and lets the processor
//! execute this one instruction (trap flag). The handler of SIGTRAP closes the page again. So the
//! trace has every access, by whatever instruction, and the call stack of each write.
//!
//! Limits: x86-64 Linux. Threads must take turns: while a page is open for one thread, accesses of
//! others are not seen. A system call that uses traced memory fails with `EFAULT`. An access across
//! the end of a line counts for the first one. Stacks and thread-local variables are not traced.

use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::alloc::{GlobalAlloc, Layout};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const PAGE: usize = 4096;
/// Address of the arena: nothing else is mapped there.
const ARENA: usize = 0x6100_0000_0000;
const ARENA_BYTES: usize = 64 << 30;
/// Memory for the handlers' allocations, which is not traced.
const QUIET: usize = 0x6200_0000_0000;
const QUIET_BYTES: usize = 16 << 30;
/// Bytes that a thread takes from the arena at a time, so that threads share no line by accident.
const CHUNK: usize = 256 << 10;
/// Maximum number of pages that one instruction and its handler open.
const OPEN_MAX: usize = 1024;
/// Bit of the page fault's error code: the access was a write.
const FAULT_WRITE: i64 = 2;
/// Bit of the flags register: the processor stops after one instruction.
const TRAP_FLAG: i64 = 0x100;

/// A traced access.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    /// Address / 64.
    pub line: usize,
    pub write: bool,
    /// Address of the instruction.
    code: usize,
}

/// Ends of the allocated parts, and which of the two areas is in use.
struct Memory {
    arena: AtomicUsize,
    quiet: AtomicUsize,
    is_quiet: AtomicBool,
}

struct Trace {
    on: Cell<bool>,
    /// The handler is running: its own accesses are not recorded.
    handling: Cell<bool>,
    /// Pages that the current instruction and its handler have opened.
    open: [Cell<usize>; OPEN_MAX],
    opened: Cell<usize>,
    /// Address ranges that are closed while a trace runs.
    closed: [Cell<(usize, usize)>; 8],
    log: RefCell<Vec<Access>>,
    /// Call stacks of writes, by instruction and line; not resolved yet.
    stacks: RefCell<BTreeMap<(usize, usize), Backtrace>>,
}

/// A static variable on separate pages, which are never closed.
#[repr(align(4096))]
struct Apart<T>(T);

// SAFETY: used only by the thread that traces; others wait meanwhile.
unsafe impl Sync for Trace {}

static MEMORY: Apart<Memory> = Apart(Memory {
    arena: AtomicUsize::new(0),
    quiet: AtomicUsize::new(QUIET),
    is_quiet: AtomicBool::new(false),
});

static TRACE: Apart<Trace> = Apart(Trace {
    on: Cell::new(false),
    handling: Cell::new(false),
    open: [const { Cell::new(0) }; OPEN_MAX],
    opened: Cell::new(0),
    closed: [const { Cell::new((0, 0)) }; 8],
    log: RefCell::new(Vec::new()),
    stacks: RefCell::new(BTreeMap::new()),
});

/// The thread whose turn it is.
static TURN: Apart<AtomicUsize> = Apart(AtomicUsize::new(0));

thread_local! {
    /// The part of the arena that this thread allocates from.
    static PART: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// The allocator: never reuses memory, so that an address identifies one object.
pub(crate) struct Arena;

impl Arena {
    /// Allocates `bytes` from the rest of the arena, in whole pages.
    fn take(bytes: usize) -> usize {
        if MEMORY.0.arena.load(Ordering::Acquire) == 0 {
            let map = |at: usize, bytes: usize| {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE
                    | libc::MAP_ANONYMOUS
                    | libc::MAP_NORESERVE
                    | libc::MAP_FIXED_NOREPLACE;
                // SAFETY: a new mapping that replaces no other.
                unsafe { libc::mmap(at as *mut c_void, bytes, protection, flags, -1, 0) }
            };
            // The first allocation of the process: there is only one thread.
            assert!(map(ARENA, ARENA_BYTES) as usize == ARENA, "no address space");
            assert!(map(QUIET, QUIET_BYTES) as usize == QUIET, "no address space");
            MEMORY.0.arena.store(ARENA, Ordering::Release);
        }
        MEMORY.0.arena.fetch_add(bytes.next_multiple_of(PAGE), Ordering::Relaxed)
    }
}

// SAFETY: every byte of the arena is allocated once, with the requested alignment.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align().max(16));
        let start = if MEMORY.0.is_quiet.load(Ordering::Relaxed) {
            let at = MEMORY.0.quiet.fetch_add(size + align, Ordering::Relaxed);
            at.next_multiple_of(align)
        } else if size + align > CHUNK / 4 {
            Arena::take(size + align).next_multiple_of(align)
        } else {
            let (mut at, mut end) = PART.get();
            if at.next_multiple_of(align) + size > end {
                at = Arena::take(CHUNK);
                end = at + CHUNK;
            }
            let start = at.next_multiple_of(align);
            PART.set((start + size, end));
            start
        };
        start as *mut u8
    }
    // SAFETY: does nothing; memory is never reused.
    unsafe fn dealloc(&self, _at: *mut u8, _layout: Layout) {}
    // SAFETY: as `alloc`, whose memory is fresh from the system and therefore zero.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.alloc(layout) }
    }
}

impl Trace {
    fn covers(&self, at: usize) -> bool {
        self.closed.iter().any(|range| (range.get().0..range.get().1).contains(&at))
    }

    fn protect_all(&self, protection: c_int) {
        for range in &self.closed {
            let (start, end) = range.get();
            protect(start, end - start, protection);
        }
    }

    fn record(&self, access: Access) {
        self.log.borrow_mut().push(access);
        let mut stacks = self.stacks.borrow_mut();
        if access.write {
            stacks.entry((access.code, access.line)).or_insert_with(Backtrace::force_capture);
        }
    }
}

fn protect(start: usize, bytes: usize, protection: c_int) {
    if bytes > 0 {
        // SAFETY: pages of the arena or of static variables; accesses to them while they are
        // closed come back from the handler.
        let done = unsafe { libc::mprotect(start as *mut c_void, bytes, protection) };
        assert!(done == 0, "mprotect of {start:x}");
    }
}

/// Handles an access to a closed page.
extern "C" fn on_fault(_signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, valid during the call.
    let (at, registers) = unsafe {
        let context = &mut *context.cast::<ucontext_t>();
        ((*info).si_addr() as usize, &mut context.uc_mcontext.gregs)
    };
    let trace = &TRACE.0;
    if !trace.on.get() || !trace.covers(at) {
        // A defect of the program: it ends as without the handler.
        // SAFETY: sets the default action.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    }
    let write = registers[libc::REG_ERR as usize] & FAULT_WRITE != 0;
    let nested = trace.handling.get();
    let (page, opened) = (at / PAGE * PAGE, trace.opened.get());
    // An instruction may read and write: after a read the page stays closed for writes.
    let writable = if write || nested { libc::PROT_WRITE } else { 0 };
    protect(page, PAGE, libc::PROT_READ | writable);
    trace.open[opened].set(page);
    trace.opened.set(opened + 1);
    if nested {
        return;
    }
    registers[libc::REG_EFL as usize] |= TRAP_FLAG;
    trace.handling.set(true);
    MEMORY.0.is_quiet.store(true, Ordering::Relaxed);
    let code = registers[libc::REG_RIP as usize] as usize;
    trace.record(Access { line: at / 64, write, code });
    MEMORY.0.is_quiet.store(false, Ordering::Relaxed);
    trace.handling.set(false);
}

/// Handles the trap after the instruction.
extern "C" fn on_trap(_signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes it, valid during the call.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
    let trace = &TRACE.0;
    for page in &trace.open[..trace.opened.replace(0)] {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        protect(page.get(), PAGE, if trace.on.get() { libc::PROT_NONE } else { protection });
    }
}

/// Installs the handlers and finds the static variables.
pub(crate) fn prepare() {
    for (signal, handler) in [(libc::SIGSEGV, on_fault as *const ()), (libc::SIGTRAP, on_trap as _)]
    {
        // SAFETY: all zero is an empty mask; the handlers are as SA_SIGINFO requires.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(signal, &action, null_mut())
        };
        assert_eq!(done, 0);
    }
    // The program's writable mapping from its file, and the zeroed one after it.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let program = std::env::current_exe().unwrap();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        let (start, end) = (number(start), number(end));
        let follows = ranges.last().is_some_and(|last| last.1 == start) && !line.contains('/');
        if line.ends_with(program.to_str().unwrap()) || follows {
            ranges.push((start, end));
        }
    }
    for (start, end) in [own_pages(&MEMORY), own_pages(&TRACE), own_pages(&TURN)] {
        let cut =
            |range: &(usize, usize)| [(range.0, range.1.min(start)), (range.0.max(end), range.1)];
        ranges = ranges.iter().flat_map(cut).filter(|range| range.0 < range.1).collect();
    }
    assert!(!ranges.is_empty() && ranges.len() < TRACE.0.closed.len(), "{ranges:x?}");
    for (place, range) in TRACE.0.closed.iter().skip(1).zip(&ranges) {
        place.set(*range);
    }
}

fn own_pages<T>(place: &'static Apart<T>) -> (usize, usize) {
    let start = std::ptr::from_ref(place) as usize;
    (start, (start + size_of::<Apart<T>>()).next_multiple_of(PAGE))
}

/// Ends the process if a thread panics: the others would wait forever for their turn.
struct EndOfAll;

impl Drop for EndOfAll {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Runs `f` when it is the turn of thread `me` of `count`, then passes the turn on. A waiting
/// thread uses no traced memory.
pub(crate) fn in_turn<R>(me: usize, count: usize, f: impl FnOnce() -> R) -> R {
    while TURN.0.load(Ordering::Acquire) != me {
        std::thread::sleep(Duration::from_micros(20));
    }
    let ends = EndOfAll;
    let result = f();
    std::mem::forget(ends);
    TURN.0.store((me + 1) % count, Ordering::Release);
    result
}

/// Runs `f` on this thread, which must be the only running one, and returns its accesses.
pub(crate) fn traced<R>(f: impl FnOnce() -> R) -> (R, Vec<Access>) {
    let trace = &TRACE.0;
    trace.closed[0].set((ARENA, MEMORY.0.arena.load(Ordering::Relaxed)));
    trace.on.set(true);
    trace.protect_all(libc::PROT_NONE);
    let result = f();
    trace.protect_all(libc::PROT_READ | libc::PROT_WRITE);
    trace.on.set(false);
    let log = trace.log.borrow().clone();
    trace.log.borrow_mut().clear();
    (result, log)
}

/// A function of a call stack.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Frame {
    /// Its name, without generic arguments; of an inlined one only the last part.
    pub name: String,
    /// The source file, as given to the compiler, and the line.
    pub place: String,
}

/// Returns the functions that lead to a write, innermost first.
pub(crate) fn stack(access: &Access) -> Vec<Frame> {
    let stacks = TRACE.0.stacks.borrow();
    let Some(stack) = stacks.get(&(access.code, access.line)) else { return Vec::new() };
    let mut frames: Vec<Frame> = Vec::new();
    for line in stack.to_string().lines() {
        let line = line.trim_start();
        if let Some(place) = line.strip_prefix("at ")
            && let Some(frame) = frames.last_mut()
        {
            frame.place = place.to_string();
        } else if let Some((number, name)) = line.split_once(": ")
            && number.parse::<u32>().is_ok()
        {
            frames.push(Frame { name: plain(name), place: String::new() });
        }
    }
    // The first ones are the handler's; after it comes the function to which the kernel returns.
    let handler = frames.iter().rposition(|frame| frame.name.contains("on_fault"));
    frames.drain(..handler.map_or(0, |at| at + 2));
    frames
}

/// Returns a function's name without generic arguments and hash.
fn plain(name: &str) -> String {
    let mut depth = 0;
    let mut out = String::new();
    for c in name.strip_prefix('<').unwrap_or(name).chars() {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '>' => {}
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    match out.rfind("::h") {
        Some(at) if out.len() == at + 19 => out.truncate(at),
        _ => {}
    }
    out.replace("::::", "::")
}
