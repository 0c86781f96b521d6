// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// dns-sizes: sizes of DNS messages over UDP, queries and answers apart, in each interval.

import { ERROR_LEVEL, L4, PASS, Packet, UDP, emit, host_param_bytes, log, param } from "./weir";

// ---- The manifest: parameters and streams in its order ---------------------------------------------------------------

const PORTS: u32 = 0;
const INTERVAL: u32 = 1;

@unmanaged
class Row {
  time: u64;
  messages: u64;
  truncated: u64;
  bytes: u64;
  bytes_min: u32;
  bytes_max: u32;
  name_bytes_max: u16;
  is_answer: bool;
}
const SIZES: u32 = 0;

// ---- The module -----------------------------------------------------------------------------------------------------

const PORTS_MAX: u32 = 64;
const UDP_HEADER_BYTES: u32 = 8;
const DNS_HEADER_BYTES: u32 = 12;
const NAME_BYTES_MOST: u32 = 255;
/** Sizes have 16 bits, so their numbers of bits are 0 to 16. */
const RANGES: u32 = 17;

/** Messages of one direction whose sizes have the same number of bits. */
@unmanaged
class Messages {
  count: u64;
  truncated: u64;
  bytes: u64;
  name_bytes_max: u64;
}

/** Static memory, zeroed: the ranges of queries, then those of answers; a byte for each port; a row; the list of ports. */
const ranges = memory.data(2 * 17 * 32, 8);
const isListed = memory.data(65536);
const ports = memory.data(64 * 8, 8);
const row = changetype<Row>(memory.data(48, 8));

@inline
function rangeOf(isAnswer: u32, bits: u32): Messages {
  return changetype<Messages>(ranges + (isAnswer * RANGES + bits) * offsetof<Messages>());
}

export function weir_start(): i32 {
  const len = <u32>host_param_bytes(PORTS, ports, PORTS_MAX * 8);
  if (len > PORTS_MAX * 8) {
    log(ERROR_LEVEL, "ports: at most 64");
    return 1;
  }
  for (let i: u32 = 0; i < len / 8; i++) store<u8>(isListed + load<u16>(ports + i * 8), 1);
  return 0;
}

/** The encoded length of the name at the begin of the question; 0 if it does not end in the bytes, or is no plain name. */
function nameBytes(p: Packet): u32 {
  let at = DNS_HEADER_BYTES;
  // A name has at most 127 labels, so the counter ends this loop for any bytes.
  for (let labels: u32 = 0; labels < 128; labels++) {
    if (at >= p.payload_len || at >= DNS_HEADER_BYTES + NAME_BYTES_MOST) return 0;
    const label = <u32>p.u8(p.payload_offset + at);
    if (label == 0) return at + 1 - DNS_HEADER_BYTES;
    if (label > 63) return 0;
    at += 1 + label;
  }
  return 0;
}

export function weir_packet(p: Packet): i32 {
  if (!p.has(UDP | L4)) return PASS;
  if (!(load<u8>(isListed + p.src_port) | load<u8>(isListed + p.dst_port))) return PASS;
  const message = <u32>p.payload_offset;
  const udpLen = <u32>p.be16(p.l4_offset + 4);
  if (p.payload_len < DNS_HEADER_BYTES || udpLen < UDP_HEADER_BYTES + DNS_HEADER_BYTES) return PASS;

  const size = udpLen - UDP_HEADER_BYTES;
  const range = rangeOf(p.u8(message + 2) >> 7, 32 - clz(size));
  range.count++;
  range.bytes += size;
  range.truncated += (p.u8(message + 2) >> 1) & 1;
  if (p.be16(message + 4) != 0) range.name_bytes_max = max<u64>(range.name_bytes_max, nameBytes(p));
  return PASS;
}

/** Emits the rows of the interval that began at this time, and begins another. */
function report(begin: u64): void {
  for (let isAnswer: u32 = 0; isAnswer < 2; isAnswer++) {
    for (let bits: u32 = 0; bits < RANGES; bits++) {
      const range = rangeOf(isAnswer, bits);
      if (range.count == 0) continue;
      row.time = begin;
      row.messages = range.count;
      row.truncated = range.truncated;
      row.bytes = range.bytes;
      row.bytes_min = 1 << (bits - 1);
      row.bytes_max = (1 << bits) - 1;
      row.name_bytes_max = <u16>range.name_bytes_max;
      row.is_answer = isAnswer == 1;
      emit<Row>(SIZES, row);
      memory.fill(changetype<usize>(range), 0, offsetof<Messages>());
    }
  }
}

export function weir_tick(now: u64, periods: u64): void {
  report(now - periods * param(INTERVAL));
}

export function weir_stop(now: u64): void {
  report(now - (now % param(INTERVAL)));
}
