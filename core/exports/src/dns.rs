//! DNS: the numbers of names, and the records of an answer.

/// Types of records with their numbers (IANA's registry of resource record types).
const TYPES: &[(&str, u16)] = &[
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("NULL", 10),
    ("WKS", 11),
    ("PTR", 12),
    ("HINFO", 13),
    ("MINFO", 14),
    ("MX", 15),
    ("TXT", 16),
    ("RP", 17),
    ("AFSDB", 18),
    ("SIG", 24),
    ("KEY", 25),
    ("AAAA", 28),
    ("LOC", 29),
    ("SRV", 33),
    ("NAPTR", 35),
    ("KX", 36),
    ("CERT", 37),
    ("DNAME", 39),
    ("OPT", 41),
    ("APL", 42),
    ("DS", 43),
    ("SSHFP", 44),
    ("IPSECKEY", 45),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("DHCID", 49),
    ("NSEC3", 50),
    ("NSEC3PARAM", 51),
    ("TLSA", 52),
    ("SMIMEA", 53),
    ("HIP", 55),
    ("CDS", 59),
    ("CDNSKEY", 60),
    ("OPENPGPKEY", 61),
    ("CSYNC", 62),
    ("ZONEMD", 63),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("SPF", 99),
    ("NID", 104),
    ("L32", 105),
    ("L64", 106),
    ("LP", 107),
    ("EUI48", 108),
    ("EUI64", 109),
    ("TKEY", 249),
    ("TSIG", 250),
    ("IXFR", 251),
    ("AXFR", 252),
    ("ANY", 255),
    ("URI", 256),
    ("CAA", 257),
];

/// Response codes in the order of their numbers (IANA's registry of DNS RCODEs).
const CODES: &[&str] = &[
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
    "NOTAUTH", "NOTZONE",
];

/// The separator of the records in a text of answers.
const SEPARATOR: &str = "; ";

/// Returns the number of a record type; `TYPE64` has the number 64 (RFC 3597).
pub(crate) fn type_number(name: &str) -> Option<u16> {
    let known = TYPES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    known.or_else(|| name.strip_prefix("TYPE")?.parse().ok())
}

/// Returns the number of a response code.
pub(crate) fn code_number(name: &str) -> Option<usize> {
    CODES.iter().position(|known| *known == name)
}

/// Splits the text of answers into records, each with its type, if it has one, and its data.
pub(crate) fn answers(text: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    text.split(SEPARATOR).filter(|record| !record.is_empty()).map(|record| match record.split_once(' ') {
        Some((name, data)) if type_number(name).is_some() => (Some(name), data),
        _ => (None, record),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_split_into_types_and_data() {
        let split = |text| answers(text).collect::<Vec<_>>();
        assert_eq!(
            split("CNAME www.example; A 192.0.2.10; TYPE700 \\# 1 00; ..."),
            [
                (Some("CNAME"), "www.example"),
                (Some("A"), "192.0.2.10"),
                (Some("TYPE700"), "\\# 1 00"),
                (None, "...")
            ]
        );
        assert_eq!(split(""), []);
        assert_eq!(split("192.0.2.1; some text"), [(None, "192.0.2.1"), (None, "some text")]);
    }

    #[test]
    fn names_have_the_numbers_of_the_registry() {
        assert_eq!(
            ["A", "AAAA", "HTTPS", "TYPE65", "TYPE70000", "a"].map(type_number),
            [Some(1), Some(28), Some(65), Some(65), None, None]
        );
        assert_eq!(
            ["NOERROR", "NXDOMAIN", "NOTZONE", "x"].map(code_number),
            [Some(0), Some(3), Some(10), None]
        );
    }
}
