//! Filter expressions in tcpdump's language, compiled by [`weir_filter`] and run by [`weir_demux`].

mod names;

pub use names::SystemNames;

use std::sync::OnceLock;
use weir_demux::{FilterProgram, Packet};
use weir_filter::{FixedNames, Names};
use weir_wire::LinkType;

/// The longest expression in bytes.
pub const EXPRESSION_BYTES_MAX: usize = weir_filter::TEXT_BYTES_MAX;
/// The most characters of an expression that an error quotes.
const SHOWN_MAX: usize = 200;

/// The reason why an expression is not a filter for packets of a link type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "filter expression `{expression}` for link type {} ({}): {error}; man 7 pcap-filter describes the language",
    .link_type.number(), .link_type.name()
)]
pub struct CaptureFilterError {
    /// The beginning of the expression, without control characters.
    pub expression: String,
    /// The link type that it was compiled for. Some tests are possible for some link types only.
    pub link_type: LinkType,
    /// The error, with its place in the whole expression.
    pub error: weir_filter::FilterError,
}

/// Compiles an expression for packets of a link type. Host names are refused, and nothing is looked up.
///
/// # Errors
///
/// [`CaptureFilterError`] if the expression is invalid, or tests something that such packets do not have.
pub fn compile_filter(expression: &str, link_type: LinkType) -> Result<FilterProgram, CaptureFilterError> {
    compile(expression, link_type, &FixedNames)
}

fn compile(
    expression: &str,
    link_type: LinkType,
    names: &dyn Names,
) -> Result<FilterProgram, CaptureFilterError> {
    weir_filter::compile(expression, link_type, u32::MAX, names).map_err(|error| {
        let shown: String = expression.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
        let more = if expression.chars().nth(SHOWN_MAX).is_some() { "..." } else { "" };
        CaptureFilterError { expression: shown + more, link_type, error }
    })
}

/// A filter expression. It is compiled to one program for each link type, when the first packet of that type is filtered.
#[derive(Debug)]
pub struct CaptureFilter {
    expression: String,
    /// True if hosts and ports are looked up with the system's resolver.
    resolves_names: bool,
    programs: [OnceLock<Result<FilterProgram, CaptureFilterError>>; LinkType::ALL.len()],
}

impl CaptureFilter {
    /// Creates a filter that can be compiled for at least one link type. Host names are refused.
    ///
    /// # Errors
    ///
    /// [`CaptureFilterError`] for Ethernet, if the filter can be compiled for no link type.
    pub fn new(expression: &str) -> Result<CaptureFilter, CaptureFilterError> {
        Self::with_resolver(expression, false)
    }

    /// Creates a filter from the text of the user who runs weir. The system's resolver looks up names of hosts and
    /// ports.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_name_lookup(expression: &str) -> Result<CaptureFilter, CaptureFilterError> {
        Self::with_resolver(expression, true)
    }

    fn with_resolver(expression: &str, resolves_names: bool) -> Result<CaptureFilter, CaptureFilterError> {
        let programs = [const { OnceLock::new() }; LinkType::ALL.len()];
        let filter = CaptureFilter { expression: expression.to_owned(), resolves_names, programs };
        if LinkType::ALL.iter().any(|&link_type| filter.check(link_type).is_ok()) {
            return Ok(filter);
        }
        filter.check(LinkType::Ethernet).map_err(CaptureFilterError::clone)?;
        Ok(filter)
    }

    /// The expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Compiles the filter for packets of `link_type`, if necessary.
    ///
    /// # Errors
    ///
    /// [`CaptureFilterError`] if the filter cannot be compiled for this link type, such as `ether host` without
    /// Ethernet.
    pub fn check(&self, link_type: LinkType) -> Result<(), &CaptureFilterError> {
        self.program(link_type).map(|_| ())
    }

    /// Returns true if the filter selects a packet of `wire_len` bytes on the link, of which `bytes` were captured.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn matches(
        &self,
        link_type: LinkType,
        wire_len: u32,
        bytes: &[u8],
    ) -> Result<bool, &CaptureFilterError> {
        let program = self.program(link_type)?;
        let cap_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        // All captured bytes are there, so the program cannot ask for more.
        Ok(program.accepts(&Packet { head: bytes, cap_len, wire_len }).unwrap_or(false))
    }

    /// The program for packets of `link_type`, for callers that join filters.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn program(&self, link_type: LinkType) -> Result<&FilterProgram, &CaptureFilterError> {
        let index = LinkType::ALL.iter().position(|&known| known == link_type).unwrap_or(0);
        let names: &dyn Names = if self.resolves_names { &SystemNames } else { &FixedNames };
        self.programs[index].get_or_init(|| compile(&self.expression, link_type, names)).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.0.0.1:1000 to 10.0.0.2:53, UDP, 8 bytes of payload.
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
        let (dns, web) =
            (CaptureFilter::new("udp port 53").unwrap(), CaptureFilter::new("tcp port 80").unwrap());
        for link_type in LinkType::ALL.into_iter().filter(|&l| l != LinkType::Ipv6) {
            let packet = with_link_header(link_type);
            assert!(dns.matches(link_type, 100, &packet).unwrap(), "{link_type:?}");
            assert!(!web.matches(link_type, 100, &packet).unwrap(), "{link_type:?}");
        }
    }

    #[test]
    fn filters_read_the_length_on_the_link() {
        let filter = CaptureFilter::new("greater 1000").unwrap();
        let packet = with_link_header(LinkType::Ethernet);
        assert!(filter.matches(LinkType::Ethernet, 1000, &packet).unwrap());
        assert!(!filter.matches(LinkType::Ethernet, 999, &packet).unwrap());
    }

    #[test]
    fn bytes_that_were_not_captured_do_not_match() {
        let filter = CaptureFilter::new("udp[8] = 1").unwrap();
        let packet = with_link_header(LinkType::Ethernet);
        assert!(filter.matches(LinkType::Ethernet, 50, &packet).unwrap());
        assert!(!filter.matches(LinkType::Ethernet, 50, &packet[..42]).unwrap());
        assert!(!filter.matches(LinkType::Ethernet, 50, &[]).unwrap());
    }

    #[test]
    fn an_error_names_the_expression_and_the_place_of_the_fault() {
        let error = CaptureFilter::new("tcp prot 80").unwrap_err();
        assert_eq!((error.error.at, error.error.len), (4, 4));
        let shown = error.to_string();
        assert!(shown.contains("`tcp prot 80`") && shown.contains("at byte 4: syntax error"), "{shown}");
        assert!(CaptureFilter::new("port 80\0").is_err());
        let long = CaptureFilter::new(&"udp or \u{1b}".repeat(1000)).unwrap_err().to_string();
        assert!(long.len() < 1000 && !long.contains(char::is_control), "{long}");
    }

    #[test]
    fn a_test_that_a_link_type_does_not_have_is_an_error_for_that_link_type_only() {
        let filter = CaptureFilter::new("ether host 02:00:00:00:00:02").unwrap();
        assert!(filter.matches(LinkType::Ethernet, 50, &with_link_header(LinkType::Ethernet)).unwrap());
        let error = filter.matches(LinkType::Raw, 36, &IP).unwrap_err().to_string();
        assert!(error.contains("link type 101 (raw IP)"), "{error}");
    }

    #[test]
    fn host_names_are_looked_up_only_on_request() {
        assert!(
            CaptureFilter::new("host localhost").unwrap_err().to_string().contains("names are not looked up")
        );
        assert!(compile_filter("host localhost", LinkType::Ethernet).is_err());
        let filter = CaptureFilter::with_name_lookup("src host localhost").unwrap();
        let mut packet = with_link_header(LinkType::Ethernet);
        assert!(!filter.matches(LinkType::Ethernet, 50, &packet).unwrap());
        packet[26..30].copy_from_slice(&[127, 0, 0, 1]);
        assert!(filter.matches(LinkType::Ethernet, 50, &packet).unwrap());
    }
}
