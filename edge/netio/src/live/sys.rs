//! System calls, with the memory that goes in and out of them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use weir_units::Nanos;

/// Structures that the kernel reads and writes: any bytes are a value of them.
///
/// # Safety
///
/// Only for types without padding that matters, references or values that are not allowed.
pub(crate) unsafe trait Plain: Copy {
    /// All bytes zero.
    fn zeroed() -> Self {
        // SAFETY: any bytes are a value, by the promise of the implementation.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {
        $(
            // SAFETY: integers and structures of integers, as the kernel's headers define them.
            unsafe impl Plain for $t {}
        )*
    };
}

plain!(
    libc::c_int,
    u32,
    libc::sockaddr_ll,
    libc::sockaddr_nl,
    libc::tpacket_req3,
    libc::tpacket_stats_v3,
    libc::packet_mreq,
    libc::sockaddr_xdp,
    libc::xdp_umem_reg,
    libc::xdp_mmap_offsets,
    libc::xdp_statistics,
);

/// The length of a structure, as system calls want it.
pub(crate) fn len_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

/// The result of a system call that gives a negative number where it fails.
pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new socket, closed on exec.
pub(crate) fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    let fd = checked(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: a descriptor that was just made for us, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a socket to an address of its family.
pub(crate) fn bind<T: Plain>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `len_of::<T>()` bytes of `address`, and those are its bytes.
    checked(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), len_of::<T>()) })?;
    Ok(())
}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `len_of::<T>()` bytes of `value`, and those are its bytes.
    checked(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len_of::<T>())
    })?;
    Ok(())
}

/// Reads an option of a socket. What an older kernel does not fill in is zero.
pub(crate) fn option<T: Plain>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = T::zeroed();
    let mut len = len_of::<T>();
    // SAFETY: the kernel writes at most `len` bytes, which `value` has, and any bytes are a `T`.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// Attaches a socket filter that cuts packets after `len` bytes; with 0, it takes none.
pub(crate) fn cut_after(fd: BorrowedFd<'_>, len: u32) -> io::Result<()> {
    /// BPF_RET | BPF_K.
    const RETURN: u16 = 0x06;
    let mut program = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: len };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut program };
    // SAFETY: the kernel reads `filter` and the one instruction that it points to, both alive here.
    checked(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            len_of::<libc::sock_fprog>(),
        )
    })?;
    Ok(())
}

/// Takes the pending error of a socket, which is none afterwards.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let code: libc::c_int = option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
}

/// Several descriptors to wait for, edge-triggered: each change is told once.
///
/// Level-triggered, a packet socket would always be ready while a block of its ring is in use, read or not.
#[derive(Debug)]
pub(crate) struct Waiter(OwnedFd);

impl Waiter {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: an integer only.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: a descriptor that was just made for us, owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    /// Waits for input of `fd` too, and tells it as `what`.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, what: u64) -> io::Result<()> {
        #[expect(clippy::cast_sign_loss, reason = "EPOLLET is the highest bit of a mask")]
        let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event { events, u64: what };
        // SAFETY: the kernel reads `event`, which is alive.
        checked(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
        })?;
        Ok(())
    }

    /// Waits no longer for `fd`. It may have been closed already.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // SAFETY: no memory is passed.
        unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut());
        }
    }

    /// Waits until something changes, at most so long, rounded up to a millisecond. A signal ends it too.
    pub(crate) fn wait(&self, longest: Nanos) -> io::Result<Waked> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let milliseconds = longest.0.div_ceil(Nanos::MILLISECOND.0);
        let timeout = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel writes at most four events, and there is room for four.
        let done = checked(unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 4, timeout) });
        let count = match done {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            done => done.ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
        };
        let mut waked = Waked::default();
        for event in events.iter().take(count) {
            // Copied, since the structure is packed.
            let (what, bits) = (event.u64, event.events);
            waked.news |= what == Waked::NEWS;
            waked.packets |= what == Waked::PACKETS;
            waked.error |= what == Waked::PACKETS && bits & libc::EPOLLERR.unsigned_abs() != 0;
        }
        Ok(waked)
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waked {
    /// The socket for news has something.
    pub(crate) news: bool,
    /// The one for packets has something.
    pub(crate) packets: bool,
    /// The same reports an error.
    pub(crate) error: bool,
}

impl Waked {
    pub(crate) const NEWS: u64 = 1;
    pub(crate) const PACKETS: u64 = 2;
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// The time of day in ns since 1970.
pub(crate) fn now() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// A clock that goes on in steps of some milliseconds, and takes next to no time to read. In ns.
pub(crate) fn coarse() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// A clock that never goes back, in ns.
pub(crate) fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Puts a name into a request about an interface; one that is too long is cut, and then found by nobody.
pub(crate) fn put_name(request: &mut libc::ifreq, name: &str) {
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
}

/// What is in use can be free a little later: the kernel ends the work of a closed socket or link after the call that closes it,
/// and a process that was just forked has them open until it runs another program.
pub(crate) fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const TRIES: u32 = 100;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
    for _ in 1..TRIES {
        match act() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    act()
}
