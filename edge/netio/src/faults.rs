//! Pages that a mapped file has lost.
//!
//! Touching a page of a mapping whose file is no longer that long raises SIGBUS, which ends the process. The handler here
//! puts zeros there instead, remembers which offset of the file it was, and lets the access go on.
//!
//! A file that has lost a page has lost all behind it too. So the zeros take the place of everything from the lost page to
//! the end of the watched range, as one mapping: were it a mapping for each page, whoever touches every second page of a
//! large file would reach the kernel's limit of mappings (`vm.max_map_count`), and the handler could not help any more.
//! [`WATCHED_MAX`] ranges of at most two mappings each are far below that limit.
//!
//! What is behind the page reads as zeros from then on, also where the file grows again, or where only that one page could
//! not be read from its disk: the capture counts as truncated at that page in any case.

use crate::window::PacketWindow;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

/// How many mappings can be watched at once.
const WATCHED_MAX: usize = 4096;

/// The lowest offset of a file that was found missing.
#[derive(Debug)]
pub(crate) struct Faults {
    lowest: AtomicU64,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self { lowest: AtomicU64::new(u64::MAX) }
    }

    /// The lowest offset that could not be read so far: a page's begin.
    pub(crate) fn lowest(&self) -> Option<u64> {
        Some(self.lowest.load(Ordering::Acquire)).filter(|&offset| offset != u64::MAX)
    }

    fn record(&self, offset: u64) {
        self.lowest.fetch_min(offset, Ordering::AcqRel);
    }
}

/// A watched mapping. Written under the lock of `FREE`, read by the signal handler without any lock.
///
/// `version` is odd while the entry is being changed. The handler runs on a thread that is using the range it looks for,
/// so that range's entry is complete and stays so; entries that change meanwhile are others, and are passed over.
struct Entry {
    version: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    file_offset: AtomicU64,
    faults: AtomicPtr<Faults>,
    /// From here to `end` there are zeros already. Lowered by the handler, after they are there.
    zeros_from: AtomicUsize,
}

/// What an entry says of an address.
struct Found<'a> {
    start: usize,
    end: usize,
    file_offset: u64,
    faults: *const Faults,
    zeros_from: &'a AtomicUsize,
}

impl Entry {
    const fn empty() -> Entry {
        Entry {
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

    /// The range around `address`, what of the file it shows and where to note losses, if this entry covers it.
    fn find(&self, address: usize) -> Option<Found<'_>> {
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
        Some(Found { start, end, file_offset, faults, zeros_from: &self.zeros_from })
    }
}

static WATCHED: [Entry; WATCHED_MAX] = [const { Entry::empty() }; WATCHED_MAX];
/// Entries below this have been used; those above were never.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Entries below `USED` that are free.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A mapping is not watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Too many mappings at once.
    #[error("more than {WATCHED_MAX} mappings of capture files at once: run fewer modules or threads")]
    Full,
    /// The kernel refused the signal handler.
    #[error(
        "cannot install a handler for SIGBUS, which is raised when a capture file is cut short while it is read: {0}"
    )]
    Handler(std::io::Error),
}

/// Keeps a mapping watched. Drop it when nobody reads the mapping any more, and before its addresses are used for another:
/// as long as it lives, a lost page has everything from there to the end of the range replaced.
#[derive(Debug)]
pub struct WatchGuard {
    /// Nothing where the window cannot lose pages.
    entry: Option<usize>,
    /// What the entry points to.
    _faults: Option<Arc<Faults>>,
}

impl WatchGuard {
    /// Returns true if reads of this very mapping saw zeros in place of a page that its file has lost.
    pub fn has_lost(&self) -> bool {
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

/// Watches another mapping of `window`, such as a sandbox's: `addresses` show the window from its first byte on, and nothing
/// else; what reaches beyond the window's length is not watched.
///
/// Where the window's file loses a page, reads in that range see zeros from that page on, also if the file grows again, and
/// the capture counts as truncated there.
///
/// # Errors
///
/// [`WatchError`], where too many mappings are watched or the handler cannot be installed.
pub fn watch(addresses: Range<usize>, window: &PacketWindow) -> Result<WatchGuard, WatchError> {
    match window.faults() {
        Some(faults) => {
            let longest = addresses.start.saturating_add(window.mapping().len());
            register(addresses.start..addresses.end.min(longest), window.file_offset(), faults)
        }
        // A sealed memory file keeps its pages.
        None => Ok(WatchGuard { entry: None, _faults: None }),
    }
}

/// Watches `addresses`, which show a file from `file_offset` on.
pub(crate) fn register(
    addresses: Range<usize>,
    file_offset: u64,
    faults: &Arc<Faults>,
) -> Result<WatchGuard, WatchError> {
    install()?;
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

/// What handled SIGBUS before us. Written once, before our handler is installed.
struct Previous(UnsafeCell<Option<libc::sigaction>>);
// SAFETY: written inside `Once`, before the only reader (the handler) can run; never written again.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new(None));
static PAGE: AtomicUsize = AtomicUsize::new(4096);

fn install() -> Result<(), WatchError> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicU32 = AtomicU32::new(0);
    ONCE.call_once(|| {
        PAGE.store(usize::try_from(crate::memory::page_bytes()).unwrap_or(4096), Ordering::SeqCst);
        // SAFETY: sigaction is a plain C struct for which all zeros are a value; the first call only reads the present
        // action into it, the second installs ours. PREVIOUS is written before our handler can run.
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

/// Only async-signal-safe things are done here: atomics, and system calls.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    /// "Nonexistent physical address": what the kernel says for a page that a file does not have.
    const BUS_ADRERR: libc::c_int = 2;
    // SAFETY: the kernel passes a valid siginfo, since we asked for it with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == BUS_ADRERR && replace_rest(address) {
        return;
    }
    // SAFETY: written before this handler was installed, and never since.
    let previous = unsafe { *PREVIOUS.0.get() };
    // SAFETY: the previous action is called the way it asked for, with the kernel's arguments; or, where there is none,
    // the default is put back, and the access that we return to raises the signal again and ends the process.
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

/// Puts zeros from the page of `address` to the end of the watched mapping that it is in, if it is in one.
///
/// Several threads may do this at once, in one range: zeros replace zeros.
fn replace_rest(address: usize) -> bool {
    let page = address & !(PAGE.load(Ordering::SeqCst) - 1);
    let used = USED.load(Ordering::SeqCst).min(WATCHED_MAX);
    let Some(found) = WATCHED.iter().take(used).find_map(|entry| entry.find(address)) else {
        return false;
    };
    let distance = u64::try_from(page.saturating_sub(found.start)).unwrap_or(u64::MAX);
    // Noted before the zeros are there, so that no thread sees zeros of which nothing is known.
    // SAFETY: the entry covers an address that is in use, so its guard lives, and with it the `Faults`.
    unsafe { (*found.faults).record(found.file_offset.saturating_add(distance)) };
    // Up to the zeros that are there already, with which the kernel merges these: replacing them each time would take time
    // that is quadratic in the length, where pages are touched from the last to the first. Where they are not merged,
    // and the limit of mappings is reached, replacing them all is what makes room.
    let zeros_from = found.zeros_from.load(Ordering::SeqCst);
    let upto = if page < zeros_from { zeros_from } else { found.end };
    let replaced = put_zeros(page..upto) || put_zeros(page..found.end);
    if replaced {
        found.zeros_from.fetch_min(page, Ordering::SeqCst);
    }
    replaced
}

/// Puts zeros in `range`, which is part of a watched mapping, and as such begins at a page; its last page is replaced as a
/// whole.
fn put_zeros(range: Range<usize>) -> bool {
    // SAFETY: the range belongs to a watched mapping, whose owner keeps it mapped while it is accessed, as it just was;
    // read-only private zeros take the place of pages that cannot be read, or are given up with those that cannot: their
    // readers allow for any change of the bytes. No memory is reserved for pages that nobody can write. errno is kept for
    // the interrupted code.
    unsafe {
        let errno = *libc::__errno_location();
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = ptr::without_provenance_mut(range.start);
        let at = libc::mmap(at, range.len(), libc::PROT_READ, flags, -1, 0);
        *libc::__errno_location() = errno;
        at != libc::MAP_FAILED
    }
}

/// Has a write past the file-size limit (`ulimit -f`) fail with an error, which says which file and what to do, instead of ending the process
/// without a word. For programs that write captures or records, at their start.
pub fn make_file_size_limit_an_error() {
    // SAFETY: ignoring a signal installs no handler; no other code of this process waits for this one.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
