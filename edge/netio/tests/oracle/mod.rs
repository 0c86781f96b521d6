//! libpcap's interpreter.

use weir_demux::Instruction;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Encoded {
    code: libc::c_ushort,
    jt: libc::c_uchar,
    jf: libc::c_uchar,
    k: libc::c_uint,
}

// Links the crate's library.
use pcap as _;

// SAFETY: the signatures are those of libpcap's header pcap/bpf.h.
unsafe extern "C" {
    /// libpcap's interpreter; `pcap::BpfProgram::filter` has no argument for a packet's length on the link.
    fn bpf_filter(
        program: *const Encoded,
        packet: *const u8,
        wire_len: libc::c_uint,
        captured: libc::c_uint,
    ) -> libc::c_uint;

    /// Validates a program.
    fn bpf_validate(program: *const Encoded, len: libc::c_int) -> libc::c_int;
}

/// A program that libpcap has validated, and whose jumps all lead forwards.
pub struct Oracle(Vec<Encoded>);

impl Oracle {
    pub fn new(instructions: &[Instruction]) -> Option<Oracle> {
        let encode = |&Instruction { code, jt, jf, k }: &Instruction| Encoded { code, jt, jf, k };
        let encoded: Vec<Encoded> = instructions.iter().map(encode).collect();
        let len = libc::c_int::try_from(encoded.len()).ok()?;
        let is_forwards = instructions.iter().all(|one| one.code != 5 || one.k < 0x8000);
        // SAFETY: the pointer and the length are those of a vector of instructions; it is only read.
        let is_valid = unsafe { bpf_validate(encoded.as_ptr(), len) } != 0;
        (is_valid && is_forwards).then_some(Oracle(encoded))
    }

    pub fn accepts(&self, wire_len: u32, bytes: &[u8]) -> bool {
        let captured = u32::try_from(bytes.len()).unwrap();
        // SAFETY: the program was validated by `bpf_validate`, ends because it has no backward jumps, and stays
        // inside the `captured` bytes of `bytes`.
        unsafe { bpf_filter(self.0.as_ptr(), bytes.as_ptr(), wire_len, captured) != 0 }
    }
}
