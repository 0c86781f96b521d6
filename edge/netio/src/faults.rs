//! Handling of pages that a mapped file has lost.
//!
//! Accessing a page of a mapping beyond the end of its file raises SIGBUS, which would end the process. The signal
//! handler here maps zeros in place of the lost page, records the file offset, and lets the access continue.
//!
//! A file that has lost a page has lost all pages behind it too. So the handler maps zeros from the lost page to the
//! end of the watched range, as one mapping. With one mapping for each page, a reader that accesses every second page
//! of a large file would reach the kernel's limit of mappings (`vm.max_map_count`), and the handler would fail.
//! [`WATCHED_MAX`] ranges of at most two mappings each are far below that limit.
//!
//! The range behind the lost page then stays zero, even if the file grows again, or if only that page could not be read
//! from disk. In both cases the capture counts as truncated at that page.

use crate::window::PacketWindow;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

/// The most mappings that can be watched at once.
const WATCHED_MAX: usize = 4096;

/// The lowest offset of a file at which a page was missing.
#[derive(Debug)]
pub(crate) struct Faults {
    lowest: AtomicU64,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self { lowest: AtomicU64::new(u64::MAX) }
    }

    /// The lowest offset that could not be read so far, at the start of a page.
    pub(crate) fn lowest(&self) -> Option<u64> {
        Some(self.lowest.load(Ordering::Acquire)).filter(|&offset| offset != u64::MAX)
    }

    fn record(&self, offset: u64) {
        self.lowest.fetch_min(offset, Ordering::AcqRel);
    }
}

/// A watched mapping. Written under the lock of `FREE`; the signal handler reads it without a lock.
///
/// `version` is odd while the entry is being changed. The handler runs on a thread that accesses the range that it looks
/// for, so the entry of that range does not change. Entries that change meanwhile have other ranges, and are skipped.
struct WatchEntry {
    version: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    file_offset: AtomicU64,
    faults: AtomicPtr<Faults>,
    /// Zeros are mapped already from this address to `end`. The handler lowers the address after it has mapped zeros.
    zeros_from: AtomicUsize,
}

/// The fields of an entry that the handler needs.
struct WatchedRange<'a> {
    start: usize,
    end: usize,
    file_offset: u64,
    faults: *const Faults,
    zeros_from: &'a AtomicUsize,
}

impl WatchEntry {
    const fn empty() -> WatchEntry {
        WatchEntry {
            version: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            file_offset: AtomicU64::new(0),
            faults: AtomicPtr::new(ptr::null_mut()),
            zeros_from: AtomicUsize::new(0),
        }
    }

    fn set(&self, range: Range<usize>, file_offset: u64, faults: *const Faults) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.start.store(range.start, Ordering::SeqCst);
        self.end.store(range.end, Ordering::SeqCst);
        self.zeros_from.store(range.end, Ordering::SeqCst);
        self.file_offset.store(file_offset, Ordering::SeqCst);
        self.faults.store(faults.cast_mut(), Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The range of this entry, if it contains `address`.
    fn find(&self, address: usize) -> Option<WatchedRange<'_>> {
        let version = self.version.load(Ordering::SeqCst);
        let (start, end) = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        let file_offset = self.file_offset.load(Ordering::SeqCst);
        let faults = self.faults.load(Ordering::SeqCst);
        if !version.is_multiple_of(2)
            || self.version.load(Ordering::SeqCst) != version
            || !(start..end).contains(&address)
        {
            return None;
        }
        Some(WatchedRange { start, end, file_offset, faults, zeros_from: &self.zeros_from })
    }
}

static WATCHED: [WatchEntry; WATCHED_MAX] = [const { WatchEntry::empty() }; WATCHED_MAX];
/// The number of entries that were ever used. Entries above are unused.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Free entries below `USED`.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The reason why a mapping cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Too many mappings are watched.
    #[error("there are more than {WATCHED_MAX} mappings of capture files: run fewer modules or threads")]
    Full,
    /// The kernel refused the signal handler.
    #[error(
        "cannot install a handler for SIGBUS, which is raised when a capture file is cut short while it is read: {0}"
    )]
    Handler(std::io::Error),
}

/// The guard of a watched mapping. Drop the guard when the mapping is no longer read, and before its addresses are reused:
/// while the guard lives, zeros can be mapped over the range from a lost page on.
#[derive(Debug)]
pub struct WatchGuard {
    /// The entry; `None` if the window cannot lose pages.
    entry: Option<usize>,
    /// Keeps the entry's pointer valid.
    _faults: Option<Arc<Faults>>,
}

impl WatchGuard {
    /// Returns true if reads of this mapping saw zeros in place of a lost page.
    pub fn has_lost_pages(&self) -> bool {
        self.entry.is_some_and(|index| {
            let entry = &WATCHED[index];
            entry.zeros_from.load(Ordering::SeqCst) < entry.end.load(Ordering::SeqCst)
        })
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(index) = self.entry {
            WATCHED[index].set(0..0, 0, ptr::null());
            FREE.lock().unwrap_or_else(|e| e.into_inner()).push(index);
        }
    }
}

/// Watches another mapping of `window`, such as a sandbox's. `addresses` must map exactly the window, from its first
/// byte on; addresses beyond the window's length are not watched.
///
/// If the window's file loses a page, reads of that range return zeros from that page on, even if the file grows
/// again. The capture then counts as truncated there.
///
/// # Errors
///
/// [`WatchError`] if too many mappings are watched, or the handler cannot be installed.
pub fn watch(addresses: Range<usize>, window: &PacketWindow) -> Result<WatchGuard, WatchError> {
    match window.faults() {
        Some(faults) => {
            let longest = addresses.start.saturating_add(window.mapping().len());
            register(addresses.start..addresses.end.min(longest), window.file_offset(), faults)
        }
        // A sealed memory file cannot lose pages.
        None => Ok(WatchGuard { entry: None, _faults: None }),
    }
}

/// Watches `addresses`, which map a file from `file_offset` on.
pub(crate) fn register(
    addresses: Range<usize>,
    file_offset: u64,
    faults: &Arc<Faults>,
) -> Result<WatchGuard, WatchError> {
    install_handler()?;
    let mut free = FREE.lock().unwrap_or_else(|e| e.into_inner());
    let index = match free.pop() {
        Some(index) => index,
        None => {
            let index = USED.load(Ordering::SeqCst);
            if index == WATCHED_MAX {
                return Err(WatchError::Full);
            }
            USED.store(index + 1, Ordering::SeqCst);
            index
        }
    };
    WATCHED[index].set(addresses, file_offset, Arc::as_ptr(faults));
    Ok(WatchGuard { entry: Some(index), _faults: Some(Arc::clone(faults)) })
}

/// The previous action of SIGBUS. Written once, before the handler is installed.
struct Previous(UnsafeCell<Option<libc::sigaction>>);
// SAFETY: written inside `Once`, before the only reader (the handler) can run, and never again.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new(None));
/// The size of a page in bytes. It is stored here, because the signal handler must not ask the system for it.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

/// Installs the signal handler, once for the process.
fn install_handler() -> Result<(), WatchError> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicU32 = AtomicU32::new(0);
    ONCE.call_once(|| {
        PAGE_BYTES.store(weir_os::memory::page_bytes(), Ordering::SeqCst);
        // SAFETY: sigaction is a plain C struct for which all zeros are valid. The first call only reads the present
        // action into it, the second installs the handler. PREVIOUS is written before the handler can run.
        let done = unsafe {
            let mut previous: libc::sigaction = std::mem::zeroed();
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_sigbus as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut ours.sa_mask);
            libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) == 0 && {
                *PREVIOUS.0.get() = Some(previous);
                libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut()) == 0
            }
        };
        if !done {
            let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
            FAILED.store(code.unsigned_abs(), Ordering::SeqCst);
        }
    });
    match FAILED.load(Ordering::SeqCst) {
        0 => Ok(()),
        code => Err(WatchError::Handler(std::io::Error::from_raw_os_error(
            i32::try_from(code).unwrap_or(libc::EINVAL),
        ))),
    }
}

/// The signal handler. It uses only async-signal-safe operations: atomics and system calls.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    /// "Nonexistent physical address": the code for a page beyond the end of a file.
    const BUS_ADRERR: libc::c_int = 2;
    // SAFETY: the kernel passes a valid siginfo, because the handler is installed with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == BUS_ADRERR && replace_rest(address) {
        return;
    }
    // SAFETY: written before this handler was installed, and never again.
    let previous = unsafe { *PREVIOUS.0.get() };
    // SAFETY: the previous action is called as it was registered, with the kernel's arguments. If there was none, the
    // default is restored; the repeated access then raises the signal again and ends the process.
    unsafe {
        match previous {
            Some(action) if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN => {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(action.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(action.sa_sigaction);
                    handler(signal);
                }
            }
            _ => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(libc::SIGBUS, &default, ptr::null_mut());
            }
        }
    }
}

/// Maps zeros from the page of `address` to the end of the watched range that contains it, if there is one.
///
/// Several threads may do this at once in one range, since zeros replace zeros.
fn replace_rest(address: usize) -> bool {
    let page = address & !(PAGE_BYTES.load(Ordering::SeqCst) - 1);
    let used = USED.load(Ordering::SeqCst).min(WATCHED_MAX);
    let Some(found) = WATCHED.iter().take(used).find_map(|entry| entry.find(address)) else {
        return false;
    };
    let distance = u64::try_from(page.saturating_sub(found.start)).unwrap_or(u64::MAX);
    // Recorded before the zeros are mapped, so that no thread reads zeros that are not recorded yet.
    // SAFETY: the entry covers an address in use, so its guard lives, and with it the `Faults`.
    unsafe { (*found.faults).record(found.file_offset.saturating_add(distance)) };
    // Zeros are mapped only up to those that are mapped already, and the kernel merges the two mappings. Replacing the
    // old zeros each time would take quadratic time if pages are accessed from last to first. If the kernel does not merge
    // and the limit of mappings is reached, all zeros are replaced by one mapping, which frees mappings.
    let zeros_from = found.zeros_from.load(Ordering::SeqCst);
    let upto = if page < zeros_from { zeros_from } else { found.end };
    let replaced = map_zeros(page..upto) || map_zeros(page..found.end);
    if replaced {
        found.zeros_from.fetch_min(page, Ordering::SeqCst);
    }
    replaced
}

/// Maps zeros over `range`, a page-aligned part of a watched mapping. The last page is replaced as a whole.
fn map_zeros(range: Range<usize>) -> bool {
    // SAFETY: the range belongs to a watched mapping, whose owner keeps it mapped during the access. Private
    // read-only zeros replace pages that cannot be read, and pages behind them; their readers allow for any change of
    // the bytes. MAP_NORESERVE is safe as the pages are never written. errno is preserved for the interrupted code.
    unsafe {
        let errno = *libc::__errno_location();
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = ptr::without_provenance_mut(range.start);
        let at = libc::mmap(at, range.len(), libc::PROT_READ, flags, -1, 0);
        *libc::__errno_location() = errno;
        at != libc::MAP_FAILED
    }
}

/// Makes a write beyond the file-size limit (`ulimit -f`) fail with an error that names the file, instead of ending
/// the process silently. Programs that write captures or records call this at their start.
pub fn make_file_size_limit_an_error() {
    // SAFETY: ignoring a signal installs no handler, and no other code of this process waits for this one.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
