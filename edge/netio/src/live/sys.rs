//! System calls of sockets, epoll and clocks, and the types that they read and write.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use weir_units::Nanos;

/// Structures that the kernel reads and writes, of which any bytes are a valid value.
///
/// # Safety
///
/// Only for types without relevant padding, references, or invalid values.
pub(crate) unsafe trait Plain: Copy {
    /// A value of zeros.
    fn zeroed() -> Self {
        // SAFETY: any bytes are a valid value, by the contract of the trait.
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
    libc::tpacket_req,
    libc::tpacket_req3,
    libc::tpacket_stats_v3,
    libc::packet_mreq,
    libc::sockaddr_xdp,
    libc::xdp_umem_reg,
    libc::xdp_mmap_offsets,
    libc::xdp_statistics,
);

/// The length of a structure, as system calls expect it.
pub(crate) fn len_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

/// Converts the result of a system call, which is negative on failure.
pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a socket that is closed on exec.
pub(crate) fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: only integers are passed.
    let fd = checked(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a socket to an address of its family.
pub(crate) fn bind<T: Plain>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `len_of::<T>()` bytes of `address`, which has that many.
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
    // SAFETY: the kernel reads `len_of::<T>()` bytes of `value`, which has that many.
    checked(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len_of::<T>())
    })?;
    Ok(())
}

/// Reads an option of a socket. Fields that an older kernel does not know are zero.
pub(crate) fn get_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<T> {
    let mut value = T::zeroed();
    let mut len = len_of::<T>();
    // SAFETY: the kernel writes at most `len` bytes, which `value` has, and any bytes are a valid `T`.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// The address that a socket of this address family is bound to.
pub(crate) fn bound_address<T: Plain>(fd: BorrowedFd<'_>) -> io::Result<T> {
    let mut address = T::zeroed();
    let mut len = len_of::<T>();
    // SAFETY: the kernel writes at most `len` bytes, which `address` has, and any bytes are a valid `T`.
    checked(unsafe {
        libc::getsockname(fd.as_raw_fd(), std::ptr::from_mut(&mut address).cast(), &raw mut len)
    })?;
    Ok(address)
}

/// Attaches a socket filter that truncates packets to `len` bytes, or refuses all packets if `len` is 0.
pub(crate) fn truncate_packets(fd: BorrowedFd<'_>, len: u32) -> io::Result<()> {
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

/// Takes the pending error of a socket, which clears it.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let code: libc::c_int = get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
}

/// An epoll instance for several descriptors. It is edge-triggered: each change is reported once.
///
/// If it were level-triggered, a packet socket would be ready as long as a block of its ring is in use, read or not.
#[derive(Debug)]
pub(crate) struct Waiter(OwnedFd);

impl Waiter {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: only an integer is passed.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just created and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    /// Adds `fd`, whose input is reported under the number `cause`.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, cause: u64) -> io::Result<()> {
        #[expect(clippy::cast_sign_loss, reason = "EPOLLET is the highest bit of a mask")]
        let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event { events, u64: cause };
        // SAFETY: the kernel reads `event`, which is alive.
        checked(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
        })?;
        Ok(())
    }

    /// Removes `fd`, which may have been closed already.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // SAFETY: no memory is passed.
        unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut());
        }
    }

    /// Waits for a change, for at most `longest`, rounded up to a millisecond. A signal ends the wait too.
    pub(crate) fn wait(&self, longest: Nanos) -> io::Result<WakeCause> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let milliseconds = longest.0.div_ceil(Nanos::MILLISECOND.0);
        let timeout = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel writes at most four events, and there is space for four.
        let done = checked(unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 4, timeout) });
        let count = match done {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            done => done.ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
        };
        let mut causes = WakeCause::default();
        for event in events.iter().take(count) {
            // Copied, because the structure is packed.
            let (cause, bits) = (event.u64, event.events);
            causes.events |= cause == WakeCause::EVENTS;
            causes.packets |= cause == WakeCause::PACKETS;
            causes.error |= cause == WakeCause::PACKETS && bits & libc::EPOLLERR.unsigned_abs() != 0;
        }
        Ok(causes)
    }
}

/// The cause of a wake-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WakeCause {
    /// The netlink socket is readable.
    pub(crate) events: bool,
    /// The packet descriptor is readable.
    pub(crate) packets: bool,
    /// The packet descriptor reports an error.
    pub(crate) error: bool,
}

impl WakeCause {
    pub(crate) const EVENTS: u64 = 1;
    pub(crate) const PACKETS: u64 = 2;
}

/// Sets by how much sleeps of the calling thread may take longer, so that the kernel can wake several threads at once.
/// With 0, this is the thread's default: 50 us unless changed.
pub(crate) fn set_timer_slack(slack: Nanos) {
    // SAFETY: only integers are passed. If it fails, sleeps are as long as before.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::try_from(slack.0).unwrap_or(0)) };
}

fn clock(which: libc::clockid_t) -> u64 {
    // Reading these clocks never fails on Linux.
    let time = weir_os::clock_time(which).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time of day in ns since 1970.
pub(crate) fn time_of_day() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// A coarse clock in ns. It advances in steps of some milliseconds, and is very cheap to read.
pub(crate) fn coarse_time() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// The monotonic clock in ns.
pub(crate) fn monotonic_time() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Writes a name into an interface request. A name that is too long is truncated, and then matches no interface.
pub(crate) fn set_interface_name(request: &mut libc::ifreq, name: &str) {
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
}

/// Repeats `act` for about a second while the resource is busy. A resource can be busy for a short time only: the kernel
/// finishes work of a closed socket or link after close(2), and a forked process has descriptors open until it calls
/// exec(2).
pub(crate) fn retry_while_busy<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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
