//! The names of IP protocols and of ICMP types and codes, and their numbers, as in Click.

/// IP protocols.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("sctp", 132),
];

/// An ICMP type.
struct IcmpType {
    number: u8,
    name: &'static str,
    /// The names of its codes, from 0 on.
    codes: &'static [&'static str],
}

const fn icmp(number: u8, name: &'static str, codes: &'static [&'static str]) -> IcmpType {
    IcmpType { number, name, codes }
}

/// ICMP types.
const ICMP_TYPES: &[IcmpType] = &[
    icmp(0, "echo-reply", &[]),
    icmp(
        3,
        "unreachable",
        &[
            "net",
            "host",
            "protocol",
            "port",
            "needfrag",
            "srcroutefail",
            "netunknown",
            "hostunknown",
            "isolated",
            "netprohibited",
            "hostprohibited",
            "tosnet",
            "toshost",
            "filterprohibited",
            "hostprecedence",
            "precedencecutoff",
        ],
    ),
    icmp(4, "sourcequench", &[]),
    icmp(5, "redirect", &["net", "host", "tosnet", "toshost"]),
    icmp(8, "echo", &[]),
    icmp(9, "routeradvert", &[]),
    icmp(10, "routersolicit", &[]),
    icmp(11, "timeexceeded", &["transit", "reassembly"]),
    icmp(12, "parameterproblem", &["erroratptr", "missingopt", "length"]),
    icmp(13, "timestamp", &[]),
    icmp(14, "timestamp-reply", &[]),
    icmp(15, "inforeq", &[]),
    icmp(16, "inforeq-reply", &[]),
    icmp(17, "maskreq", &[]),
    icmp(18, "maskreq-reply", &[]),
];

/// Returns the number of an IP protocol.
pub fn protocol_number(name: &str) -> Option<u8> {
    PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// Returns the name of an IP protocol.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

fn icmp_type(number: u8) -> Option<&'static IcmpType> {
    ICMP_TYPES.iter().find(|known| known.number == number)
}

/// Returns the number of an ICMP type.
pub fn icmp_type_number(name: &str) -> Option<u8> {
    ICMP_TYPES.iter().find(|known| known.name == name).map(|known| known.number)
}

/// Returns the name of an ICMP type.
pub fn icmp_type_name(number: u8) -> Option<&'static str> {
    icmp_type(number).map(|known| known.name)
}

/// Returns the number of a code of an ICMP type.
pub fn icmp_code_number(type_number: u8, name: &str) -> Option<u8> {
    let place = icmp_type(type_number)?.codes.iter().position(|known| *known == name)?;
    u8::try_from(place).ok()
}

/// Returns the name of a code of an ICMP type.
pub fn icmp_code_name(type_number: u8, code: u8) -> Option<&'static str> {
    icmp_type(type_number)?.codes.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        for number in 0..=u8::MAX {
            if let Some(name) = protocol_name(number) {
                assert_eq!(protocol_number(name), Some(number));
            }
            if let Some(name) = icmp_type_name(number) {
                assert_eq!(icmp_type_number(name), Some(number));
            }
            for code in 0..=u8::MAX {
                if let Some(name) = icmp_code_name(number, code) {
                    assert_eq!(icmp_code_number(number, name), Some(code));
                }
            }
        }
        // Each name stands in its table once.
        assert_eq!((0..=u8::MAX).filter_map(protocol_name).count(), PROTOCOLS.len());
        assert_eq!((0..=u8::MAX).filter_map(icmp_type_name).count(), ICMP_TYPES.len());
        assert_eq!((icmp_code_name(3, 4), icmp_code_number(12, "net")), (Some("needfrag"), None));
    }
}
