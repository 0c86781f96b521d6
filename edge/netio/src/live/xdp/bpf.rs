//! Calls of bpf(2): for a map of sockets, programs at an interface, and their links to it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const ATTACH_TCX_INGRESS: u32 = 46;

/// The place of a program at an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProgramPlace {
    /// In the driver, before packet sockets.
    Driver,
    /// Behind packet sockets, before the host's own network (tcx, since Linux 6.6).
    Host,
}

impl ProgramPlace {
    /// The type of the program, and of its attachment.
    fn types(self) -> (u32, u32) {
        match self {
            Self::Driver => (PROG_TYPE_XDP, ATTACH_XDP),
            Self::Host => (PROG_TYPE_SCHED_CLS, ATTACH_TCX_INGRESS),
        }
    }
}

/// The size of the largest `bpf_attr`. Fields that a kernel does not know have to be zero.
const ATTRIBUTE_BYTES: u32 = 128;

/// The argument of bpf(2): numbers at offsets.
#[repr(C, align(8))]
struct Attribute([u8; ATTRIBUTE_BYTES as usize]);

impl Attribute {
    fn new() -> Self {
        Self([0; ATTRIBUTE_BYTES as usize])
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn address<T>(mut self, at: usize, value: *const T) -> Self {
        self.0[at..at + 8].copy_from_slice(&(value.addr() as u64).to_ne_bytes());
        self
    }

    fn fd(self, at: usize, fd: BorrowedFd<'_>) -> Self {
        self.u32(at, fd.as_raw_fd().unsigned_abs())
    }
}

/// Calls bpf(2).
///
/// # Safety
///
/// The memory that the attribute's addresses point to must be alive, and as long as the command expects.
unsafe fn bpf(command: libc::c_int, attribute: &Attribute) -> io::Result<libc::c_int> {
    // SAFETY: by the caller's contract; the kernel reads the attribute's own bytes.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), ATTRIBUTE_BYTES) };
    libc::c_int::try_from(result).ok().filter(|&result| result >= 0).ok_or_else(io::Error::last_os_error)
}

/// Calls bpf(2) for a command that returns a file descriptor.
///
/// # Safety
///
/// As for [`bpf`]; and the command must return a descriptor.
unsafe fn bpf_fd(command: libc::c_int, attribute: &Attribute) -> io::Result<OwnedFd> {
    // SAFETY: by the caller's contract; the descriptor was just created and has no other owner.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, attribute)?)) }
}

/// Creates a map from queues to sockets.
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    let attribute = Attribute::new().u32(0, MAP_TYPE_XSKMAP).u32(4, 4).u32(8, 4).u32(12, queues);
    // SAFETY: the attribute has no addresses.
    unsafe { bpf_fd(MAP_CREATE, &attribute) }
}

/// Adds a socket to the map. The kernel removes the socket when it is closed.
pub(super) fn insert_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let attribute = Attribute::new().fd(0, map).address(8, &raw const queue).address(16, &raw const value);
    // SAFETY: key and value are alive and have four bytes each, as the map was created with.
    unsafe { bpf(MAP_UPDATE_ELEM, &attribute) }.map(|_| ())
}

/// Encodes an instruction (Linux, Documentation/bpf/standardization/instruction-set.rst).
const fn instruction(opcode: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    let ([o0, o1], [i0, i1, i2, i3]) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
    u64::from_ne_bytes([opcode, from << 4 | to, o0, o1, i0, i1, i2, i3])
}

/// The XDP program. It passes a packet to the socket of its queue, or to the host if the queue has none.
///
/// The kernel allows neither a packet to go to a socket of another queue, nor two sockets of one queue with separate
/// memory (`xsk_rcv_check`, `xp_assign_dev`). So traffic with its own memory needs its own queue, to which the card
/// steers it (`ethtool -N`); the program then needs only more map entries.
pub(super) fn program(map: BorrowedFd<'_>) -> [u64; 6] {
    const PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    const QUEUE: i16 = 16;
    const PSEUDO_MAP_FD: u8 = 1;
    [
        // r2 = context->rx_queue_index
        instruction(0x61, 2, 1, QUEUE, 0),
        // r1 = map
        instruction(0x18, 1, PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        // r3 = the result if there is no socket
        instruction(0xb7, 3, 0, 0, PASS),
        // return redirect_map(r1, r2, r3)
        instruction(0x85, 0, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ]
}

/// The program that drops each packet.
pub(crate) const DROP_ALL: [u64; 2] = {
    /// TCX_DROP.
    const DROP: i32 = 2;
    // return DROP
    [instruction(0xb7, 0, 0, 0, DROP), instruction(0x95, 0, 0, 0, 0)]
};

/// Loads a program.
pub(crate) fn load(place: ProgramPlace, program: &[u64]) -> io::Result<OwnedFd> {
    let (program_type, attach_type) = place.types();
    let license = c"Apache-2.0";
    let attribute = Attribute::new()
        .u32(0, program_type)
        .u32(4, u32::try_from(program.len()).unwrap_or(0))
        .address(8, program.as_ptr())
        .address(16, license.as_ptr())
        .u32(68, attach_type);
    // SAFETY: the stated number of instructions, and a zero-terminated string, all alive.
    unsafe { bpf_fd(PROG_LOAD, &attribute) }
}

/// Attaches a program to an interface as long as the link's descriptor is open, so it is detached even if the process
/// is killed.
pub(crate) fn attach(place: ProgramPlace, program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    let (_, attach_type) = place.types();
    let attribute = Attribute::new().fd(0, program).u32(4, interface).u32(8, attach_type);
    // SAFETY: the attribute has no addresses.
    unsafe { bpf_fd(LINK_CREATE, &attribute) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_the_kernel_documents() {
        assert_eq!(instruction(0xb7, 3, 0, 0, 2).to_ne_bytes(), [0xb7, 3, 0, 0, 2, 0, 0, 0]);
        assert_eq!(instruction(0x61, 2, 1, 16, 0).to_ne_bytes(), [0x61, 0x12, 16, 0, 0, 0, 0, 0]);
    }
}
