//! The names of link types, with their numbers in captures.

const LINK_TYPES: &[(&str, u32)] = &[("ETHER", ETHERNET), ("IP", 101), ("NULL", 0), ("SLL", 113)];

/// The link type of Ethernet.
pub const ETHERNET: u32 = 1;

/// Returns the number of a link type.
///
/// # Errors
///
/// Fails with a reason that lists the names.
pub fn link_type_number(name: &str) -> Result<u32, String> {
    let known = LINK_TYPES.iter().find(|(known, _)| *known == name);
    known.map(|(_, number)| *number).ok_or_else(|| {
        let names: Vec<&str> = LINK_TYPES.iter().map(|(name, _)| *name).collect();
        format!("no link type is named '{name}'; there are {}", names.join(", "))
    })
}

/// Returns the name of a link type, or its number behind `#`.
pub fn link_type_name(number: u32) -> String {
    // Other numbers of packets that begin with the IP header, on some systems.
    let number = if matches!(number, 12 | 14) { 101 } else { number };
    let known = LINK_TYPES.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| format!("#{number}"), |(name, _)| (*name).to_owned())
}
