//! Filter expressions in libpcap's language, compiled and run by libpcap: here for whoever runs weir, and [apart] for strangers.

pub mod apart;

use pcap::{BpfProgram, Linktype};
use std::sync::OnceLock;
use weir_demux::Instruction;
use weir_wire::LinkType;

/// An expression that libpcap does not accept.
#[derive(Debug, thiserror::Error)]
#[error("filter expression `{expression}` for link type {} ({}): {error}; man 7 pcap-filter describes the language", .link_type.number(), .link_type.name())]
pub struct FilterError {
    /// The expression.
    pub expression: String,
    /// For which packets it was compiled: what an expression can say depends on that.
    pub link_type: LinkType,
    /// What libpcap says.
    pub error: pcap::Error,
}

/// A pcap-filter expression. For each link type it becomes a program of its own, compiled when the first such packet comes.
pub struct Filter {
    expression: String,
    programs: [OnceLock<Result<Program, FilterError>>; LinkType::ALL.len()],
}

/// A program of the classic BPF machine. It is never changed after it was compiled.
struct Program(BpfProgram);

// SAFETY: the only thing done with a shared program is running it, which reads its instructions and nothing else.
unsafe impl Sync for Program {}

unsafe extern "C" {
    /// libpcap's interpreter; `pcap::BpfProgram::filter` does not let us say how long the packet was on the link.
    fn bpf_filter(
        program: *const pcap::BpfInstruction,
        packet: *const u8,
        wire_len: libc::c_uint,
        captured: libc::c_uint,
    ) -> libc::c_uint;
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("expression", &self.expression).finish_non_exhaustive()
    }
}

impl Filter {
    /// Checks that the expression makes sense for at least one link type.
    ///
    /// # Errors
    ///
    /// [`FilterError`], where it does not; it tells what libpcap says about it for Ethernet.
    pub fn new(expression: &str) -> Result<Filter, FilterError> {
        let filter = Filter::unchecked(expression);
        if LinkType::ALL.iter().any(|&link_type| filter.check(link_type).is_ok()) {
            return Ok(filter);
        }
        filter.compile(LinkType::Ethernet).map(|_| filter)
    }

    fn unchecked(expression: &str) -> Filter {
        let programs = [const { OnceLock::new() }; LinkType::ALL.len()];
        Filter { expression: expression.to_owned(), programs }
    }

    /// The expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Compiles it for packets of `link_type`, if that has not been done yet.
    ///
    /// # Errors
    ///
    /// [`FilterError`], where the expression makes no sense for them, such as `ether host` without Ethernet.
    pub fn check(&self, link_type: LinkType) -> Result<(), &FilterError> {
        self.program(link_type).map(|_| ())
    }

    /// Whether it selects a packet of `wire_len` bytes on the link, of which `bytes` were captured.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn matches(&self, link_type: LinkType, wire_len: u32, bytes: &[u8]) -> Result<bool, &FilterError> {
        let program = self.program(link_type)?;
        let captured = libc::c_uint::try_from(bytes.len()).unwrap_or(libc::c_uint::MAX);
        let instructions = program.0.get_instructions();
        // SAFETY: libpcap compiled the program, so it is valid, ends, and stays inside the `captured` bytes, which are those of
        // `bytes` or the first of them.
        let verdict = unsafe { bpf_filter(instructions.as_ptr(), bytes.as_ptr(), wire_len, captured) };
        Ok(verdict != 0)
    }

    /// What it was compiled to for packets of `link_type`: this is how filters are joined with each other.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn instructions(&self, link_type: LinkType) -> Result<Vec<Instruction>, &FilterError> {
        /// `struct bpf_insn`, whose fields the crate `pcap` keeps to itself.
        #[repr(C)]
        struct Encoded {
            code: libc::c_ushort,
            jt: libc::c_uchar,
            jf: libc::c_uchar,
            k: libc::c_uint,
        }
        let compiled = self.program(link_type)?.0.get_instructions();
        let decode = |instruction: &pcap::BpfInstruction| {
            // SAFETY: `BpfInstruction` is a transparent wrapper of libpcap's `struct bpf_insn`, which has this layout.
            let Encoded { code, jt, jf, k } =
                unsafe { std::ptr::from_ref(instruction).cast::<Encoded>().read() };
            Instruction { code, jt, jf, k }
        };
        const { assert!(size_of::<Encoded>() == size_of::<pcap::BpfInstruction>()) };
        Ok(compiled.iter().map(decode).collect())
    }

    fn program(&self, link_type: LinkType) -> Result<&Program, &FilterError> {
        let index = LinkType::ALL.iter().position(|&known| known == link_type).unwrap_or(0);
        self.programs[index].get_or_init(|| self.compile(link_type)).as_ref()
    }

    fn compile(&self, link_type: LinkType) -> Result<Program, FilterError> {
        // libpcap's own numbers (DLT_…) are those of link types, but for raw IP.
        const DLT_RAW: i32 = 12;
        let number = match link_type {
            LinkType::Raw => DLT_RAW,
            other => i32::from(other.number()),
        };
        pcap::Capture::dead(Linktype(number))
            .and_then(|dead| dead.compile(&self.expression, true))
            .map(Program)
            .map_err(|error| FilterError { expression: self.expression.clone(), link_type, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.0.0.1:1000 -> 10.0.0.2:53, UDP, 8 bytes of payload.
    const IP: [u8; 36] = [
        0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x03, 0xe8, 0, 53, 0, 16, 0, 0,
        1, 2, 3, 4, 5, 6, 7, 8,
    ];

    fn with_link_header(link_type: LinkType) -> Vec<u8> {
        let header: &[u8] = match link_type {
            LinkType::Ethernet => &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0],
            LinkType::Null => &2u32.to_ne_bytes(),
            LinkType::Loop => &[0, 0, 0, 2],
            LinkType::LinuxSll => &[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0],
            LinkType::LinuxSll2 => &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0],
            _ => &[],
        };
        [header, &IP].concat()
    }

    #[test]
    fn one_expression_selects_the_same_packet_behind_every_link_header() {
        let (dns, web) = (Filter::new("udp port 53").unwrap(), Filter::new("tcp port 80").unwrap());
        for link_type in LinkType::ALL.into_iter().filter(|&l| l != LinkType::Ipv6) {
            let packet = with_link_header(link_type);
            assert!(dns.matches(link_type, 100, &packet).unwrap(), "{link_type:?}");
            assert!(!web.matches(link_type, 100, &packet).unwrap(), "{link_type:?}");
        }
    }

    #[test]
    fn the_length_on_the_link_counts_not_the_captured_one() {
        let filter = Filter::new("greater 1000").unwrap();
        let packet = with_link_header(LinkType::Ethernet);
        assert!(filter.matches(LinkType::Ethernet, 1000, &packet).unwrap());
        assert!(!filter.matches(LinkType::Ethernet, 999, &packet).unwrap());
    }

    #[test]
    fn bytes_that_were_not_captured_do_not_match() {
        let filter = Filter::new("udp[8] = 1").unwrap();
        let packet = with_link_header(LinkType::Ethernet);
        assert!(filter.matches(LinkType::Ethernet, 50, &packet).unwrap());
        assert!(!filter.matches(LinkType::Ethernet, 50, &packet[..42]).unwrap());
        assert!(!filter.matches(LinkType::Ethernet, 50, &[]).unwrap());
    }

    #[test]
    fn an_error_names_the_expression_and_says_what_libpcap_says() {
        let error = Filter::new("tcp prot 80").unwrap_err().to_string();
        assert!(error.contains("`tcp prot 80`") && error.contains("syntax error"), "{error}");
        assert!(Filter::new("port 80\0").is_err());
    }

    #[test]
    fn what_a_link_type_cannot_answer_is_an_error_for_that_link_type_only() {
        let filter = Filter::new("ether host 02:00:00:00:00:02").unwrap();
        assert!(filter.matches(LinkType::Ethernet, 50, &with_link_header(LinkType::Ethernet)).unwrap());
        let error = filter.matches(LinkType::Raw, 36, &IP).unwrap_err().to_string();
        assert!(error.contains("link type 101 (raw IP)"), "{error}");
    }
}
