//! The checksum option: the Internet checksum (RFC 1071) over the packet, with zeros in place of the checksum.

use crate::{AnepError, AnepOption, AnepPacket, OptionKind};
use weir_wire::checksum::internet_checksum;

/// Adds a checksum to a packet without one.
///
/// # Errors
/// Fails if the bytes are no packet, the packet has a checksum, or it would be too long.
pub fn add_checksum(packet: &[u8]) -> Result<Vec<u8>, AnepError> {
    let read = AnepPacket::read(packet)?;
    let kind = OptionKind::Checksum;
    if read.value(kind).is_some() {
        return Err(AnepError::Value(kind.number()));
    }
    let option = AnepOption { discards: false, ..AnepOption::known(kind, &[0; 4]) };
    let options: Vec<AnepOption<'_>> = read.options().chain([option]).collect();
    let mut packet = read.header().write(&options, read.payload())?;
    let checksum = internet_checksum(&packet);
    let at = AnepPacket::read(&packet)?.offset(kind).ok_or(AnepError::Value(kind.number()))?;
    if let Some(field) = packet.get_mut(at..at + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
    Ok(packet)
}

/// Checks the checksum of a packet, if it has one.
///
/// # Errors
/// Fails if the bytes are no packet, or the checksum is wrong.
pub fn check_checksum(packet: &[u8]) -> Result<(), AnepError> {
    let read = AnepPacket::read(packet)?;
    match read.value(OptionKind::Checksum) {
        // The sum over the packet with the right checksum is zero.
        Some([_, _, 0, 0]) if internet_checksum(packet) == 0 => Ok(()),
        Some(_) => Err(AnepError::Checksum),
        None => Ok(()),
    }
}
