//! The IP options that every router processes: record route and timestamp (RFC 791, RFC 1812 section 4.2.2.2).

use crate::ipv4::{HEADER_BYTES, Ipv4Header, header_length, set_header_checksum, word};
use core::net::Ipv4Addr;
use weir_graph::engine::{GraphPacket, ICMP_PARAMPROB, Services};
use weir_units::{Nanos, Timestamp};

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;

/// The addresses of a router.
#[derive(Clone, Debug)]
pub struct RouterAddresses {
    /// The address that packets record.
    pub own: Ipv4Addr,
    /// The further addresses.
    pub others: Vec<Ipv4Addr>,
}

/// A result of the options of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsResult {
    /// The packet can go on.
    Right,
    /// An option is wrong. The packet's annotation ICMP_PARAMPROB has the position of the wrong byte.
    Wrong,
    /// The packet has no IP header.
    NoHeader,
}

impl RouterAddresses {
    /// Processes the options of a packet. One with a wrong option keeps its bytes.
    #[inline(always)]
    pub fn process(&self, packet: &mut GraphPacket, services: &Services) -> OptionsResult {
        let header = packet.network_bytes().and_then(|bytes| bytes.first_chunk::<HEADER_BYTES>());
        if header.is_some_and(|header| header_length(header[0]) == HEADER_BYTES) {
            return OptionsResult::Right;
        }
        self.process_options(packet, services)
    }

    #[inline(never)]
    fn process_options(&self, packet: &mut GraphPacket, services: &Services) -> OptionsResult {
        let Some(header) = Ipv4Header::of(packet) else { return OptionsResult::NoHeader };
        let mut copy = [0; 60];
        let copy = &mut copy[..header.header_bytes];
        copy.copy_from_slice(header.header());
        match self.process_header(copy, services.coarse_now()) {
            Ok(false) => OptionsResult::Right,
            Ok(true) => {
                set_header_checksum(copy);
                if let Some(bytes) = packet.network_bytes_mut() {
                    bytes[..copy.len()].copy_from_slice(copy);
                }
                OptionsResult::Right
            }
            Err(position) => {
                packet.annotation_mut(ICMP_PARAMPROB)[0] = position;
                OptionsResult::Wrong
            }
        }
    }

    /// Processes the options of a header. Returns true if one has changed.
    ///
    /// # Errors
    ///
    /// Fails with the position of a wrong byte.
    fn process_header(&self, header: &mut [u8], now: Timestamp) -> Result<bool, u8> {
        let mut has_changed = false;
        let mut at = HEADER_BYTES;
        while at < header.len() {
            let wrong = |offset: usize| u8::try_from(at + offset).unwrap_or(u8::MAX);
            let length = match header[at] {
                END => break,
                NO_OPERATION => {
                    at += 1;
                    continue;
                }
                _ => usize::from(*header.get(at + 1).ok_or(wrong(1))?),
            };
            if length < 2 {
                return Err(wrong(1));
            }
            let option = header.get_mut(at..at + length).ok_or(wrong(1))?;
            has_changed |= match option[0] {
                RECORD_ROUTE => self.record_route(option).map_err(wrong)?,
                TIMESTAMP => self.timestamp(option, now).map_err(wrong)?,
                _ => false,
            };
            at += length;
        }
        Ok(has_changed)
    }

    /// Adds the address to a recorded route with a place for it. Fails with the offset of a wrong byte.
    fn record_route(&self, option: &mut [u8]) -> Result<bool, usize> {
        let length = option.len();
        // The pointer counts from 1.
        let pointer = usize::from(*option.get(2).ok_or(2_usize)?).wrapping_sub(1);
        match pointer {
            3.. if pointer.saturating_add(4) <= length => {
                option[pointer..pointer + 4].copy_from_slice(&self.own.octets());
                option[2] += 4;
                Ok(true)
            }
            _ if pointer == length => Ok(false),
            _ => Err(2),
        }
    }

    /// Adds the time to a timestamp option, or counts that there was no place. Fails with the offset of a wrong byte.
    fn timestamp(&self, option: &mut [u8], now: Timestamp) -> Result<bool, usize> {
        const TIMES: u8 = 0;
        const ADDRESSES_AND_TIMES: u8 = 1;
        const GIVEN_ADDRESSES: u8 = 3;
        let length = option.len();
        let &mut [_, _, pointer, flags, ..] = option else { return Err(2) };
        let pointer = usize::from(pointer).wrapping_sub(1);
        if !(4..=usize::from(u8::MAX)).contains(&pointer) {
            return Err(2);
        }
        let (missed, kind) = (flags >> 4, flags & 0xf);
        let time = milliseconds_of_day(now).to_be_bytes();
        let has_place = |bytes: usize| pointer + bytes <= length;
        match kind {
            TIMES if has_place(4) => {
                option[pointer..][..4].copy_from_slice(&time);
                option[2] += 4;
                Ok(true)
            }
            ADDRESSES_AND_TIMES if has_place(8) => {
                option[pointer..][..4].copy_from_slice(&self.own.octets());
                option[pointer + 4..][..4].copy_from_slice(&time);
                option[2] += 8;
                Ok(true)
            }
            TIMES | ADDRESSES_AND_TIMES if missed < 15 => {
                option[3] = (missed + 1) << 4 | kind;
                Ok(true)
            }
            GIVEN_ADDRESSES if has_place(8) => {
                let address = Ipv4Addr::from_bits(word(option, pointer));
                let is_own = address == self.own || self.others.contains(&address);
                if is_own {
                    option[pointer + 4..][..4].copy_from_slice(&time);
                    option[2] += 8;
                }
                Ok(is_own)
            }
            _ => Err(3),
        }
    }
}

/// Returns the milliseconds since midnight of a time, in UTC.
fn milliseconds_of_day(now: Timestamp) -> u32 {
    const DAY: u64 = 86_400_000;
    u32::try_from(now.0 / (Nanos::SECOND.0 / 1000) % DAY).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_option_is_reported_with_the_position_of_the_wrong_byte() {
        let addresses = RouterAddresses { own: Ipv4Addr::LOCALHOST, others: Vec::new() };
        let position = |options: &[u8]| {
            let mut header = [&[0; HEADER_BYTES], options].concat();
            addresses.process_header(&mut header, Timestamp(0)).err()
        };
        // The length is at the second byte of an option, the pointer at the third, the flags at the fourth.
        for (options, wrong) in [
            (&[7, 1, 0, 0][..], 21),
            (&[1, 7, 9, 4], 22),
            (&[1, 1, 1, 7], 24),
            (&[7, 7, 3, 0, 0, 0, 0, 0], 22),
            (&[7, 2, 0, 0], 22),
            (&[68, 8, 4, 0, 0, 0, 0, 0], 22),
            (&[68, 8, 5, 2, 0, 0, 0, 0], 23),
            (&[68, 8, 9, 0xf0, 0, 0, 0, 0], 23),
        ] {
            assert_eq!(position(options), Some(wrong), "{options:?}");
        }
        assert_eq!(position(&[0, 7, 1, 0]), None);
    }
}
