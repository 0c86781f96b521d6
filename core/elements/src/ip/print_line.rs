//! The part of a line of `IPPrint` about addresses and the transport header.

use super::ip_print::addresses;
use crate::ipv4::{HEADER_BYTES, ICMP, TCP, UDP, half, header_length, word};
use std::fmt::Write;
use weir_graph::arguments::protocols::{icmp_code_name, icmp_type_name, protocol_name};
use weir_graph::engine::GraphPacket;

/// Prints addresses, ports and the transport header of a packet. Its IP header has at least 20 bytes. `swaps` is the
/// argument SWAP.
pub fn print_transport(text: &mut String, packet: &GraphPacket, header: &[u8], swaps: bool) {
    let length = usize::from(half(header, 2));
    let transport = packet.transport_bytes().unwrap_or_default();
    let transport = &transport[..transport.len().min(length.saturating_sub(header_length(header[0])))];
    let is_first = half(header, 6) & 0x1fff == 0;
    let (source, destination) = addresses(header);
    let protocol = header[9];
    let name = match protocol {
        TCP => "tcp",
        UDP => "udp",
        ICMP => {
            _ = write!(text, "{source} > {destination}: ");
            if is_first {
                print_icmp(text, transport, swaps);
            } else {
                text.push_str("icmp");
            }
            return;
        }
        _ => {
            _ = write!(text, "{source} > {destination}: ip-proto-{protocol}");
            return;
        }
    };
    if !is_first || transport.len() < 4 {
        let truncated = if is_first { "truncated-" } else { "" };
        _ = write!(text, "{source} > {destination}: {truncated}{name}");
        return;
    }
    let (from, to) = (half(transport, 0), half(transport, 2));
    _ = write!(text, "{source}.{from} > {destination}.{to}: ");
    if protocol == TCP {
        print_tcp(text, transport, packet.len(), header);
    } else if transport.len() < 8 {
        text.push_str("truncated-udp");
    } else {
        _ = write!(text, "udp {}", half(transport, 4));
    }
}

fn print_tcp(text: &mut String, segment: &[u8], packet_length: usize, header: &[u8]) {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RESET: u8 = 4;
    const PUSH: u8 = 8;
    const ACKNOWLEDGE: u8 = 16;
    if segment.len() < 14 {
        text.push_str("truncated-tcp");
        return;
    }
    let flags = segment[13];
    let has = |flag: u8| flags & flag != 0;
    let length = i64::from(half(header, 2));
    let headers = header_length(header[0]) + usize::from(segment[12] >> 4) * 4;
    // A SYN and a FIN have a sequence number each.
    let bytes = length - headers as i64 + i64::from(has(SYN)) + i64::from(has(FIN));
    for (flag, letter) in [(SYN, 'S'), (FIN, 'F'), (RESET, 'R'), (PUSH, 'P')] {
        if has(flag) {
            text.push(letter);
        }
    }
    if !has(SYN | FIN | RESET | PUSH) {
        text.push('.');
    }
    let first = word(segment, 4);
    let end = (i64::from(first) + bytes).rem_euclid(1 << 32);
    _ = write!(text, " {first}:{end}({bytes},{packet_length},{length})");
    if has(ACKNOWLEDGE) {
        _ = write!(text, " ack {}", word(segment, 8));
    }
    if segment.len() < 16 {
        text.push_str("truncated-tcp");
    } else {
        _ = write!(text, " win {}", half(segment, 14));
    }
}

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO: u8 = 8;

fn print_icmp(text: &mut String, message: &[u8], swaps: bool) {
    let &[kind, code, ..] = message else {
        text.push_str("truncated-icmp");
        return;
    };
    match kind {
        ECHO | ECHO_REPLY => {
            _ = write!(text, "icmp {} ", icmp_type_name(kind).unwrap_or_default());
            if message.len() < 8 {
                text.push_str("truncated-icmp");
                return;
            }
            let number = |at| if swaps { half(message, at) } else { half(message, at).swap_bytes() };
            _ = write!(text, "({}, {})", number(4), number(6));
        }
        UNREACHABLE => print_unreachable(text, message, code),
        _ => {
            _ = match icmp_type_name(kind) {
                Some(name) => write!(text, "icmp {name}"),
                None => write!(text, "icmp type {kind}"),
            };
            _ = match icmp_code_name(kind, code) {
                Some(name) => write!(text, " {name}"),
                None if code != 0 => write!(text, " code {code}"),
                None => Ok(()),
            };
        }
    }
}

fn print_unreachable(text: &mut String, message: &[u8], code: u8) {
    const PROTOCOL: u8 = 2;
    const PORT: u8 = 3;
    const FRAGMENT_NEEDED: u8 = 4;
    let reason = icmp_code_name(UNREACHABLE, code).map_or_else(|| format!("code {code}"), str::to_owned);
    let original = message.get(8..).unwrap_or_default();
    if original.len() < HEADER_BYTES {
        _ = write!(text, "icmp unreachable {reason} truncated-icmp");
        return;
    }
    let (_, destination) = addresses(original);
    _ = write!(text, "icmp {destination} unreachable {reason}");
    let name = protocol_name(original[9]);
    match code {
        PROTOCOL => _ = write!(text, " {}", name.map_or_else(|| original[9].to_string(), str::to_owned)),
        PORT => {
            _ = match name {
                Some(name) => write!(text, " {name}"),
                None => write!(text, " protocol {}", original[9]),
            };
            let transport = original.get(header_length(original[0])..).unwrap_or_default();
            _ = if transport.len() < 4 {
                write!(text, "truncated-icmp")
            } else {
                write!(text, "/{}", half(transport, 2))
            };
        }
        FRAGMENT_NEEDED if half(message, 6) != 0 => _ = write!(text, " (mtu {})", half(message, 6)),
        _ => {}
    }
}
