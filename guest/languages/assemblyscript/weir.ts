// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The interface of weir for modules in AssemblyScript. It states the same as weir.h for modules in C.
//
// A module exports the functions that weir calls. weir_packet is mandatory, the others are optional:
//
//     export function weir_start(): i32                 // 0; anything else refuses to run
//     export function weir_packet(p: Packet): i32       // PASS or DROP
//     export function weir_tick(now: u64, periods: u64): void
//     export function weir_lost(cause: i32): void
//     export function weir_stop(now: u64): void
//     export function weir_rest(now: u64): i32
//
// Objects, arrays and strings are for global constants and weir_start only: the compiler's stub runtime never frees them.
// So views of memory are @unmanaged classes, and bytes are read by functions.

/** Results of weir_packet. */
export const PASS: i32 = 0;
export const DROP: i32 = 1;

/** Codes of host functions; a result from 0 on is a success. */
export const OK: i32 = 0;
export const FULL: i32 = -1;
export const RANGE: i32 = -2;
export const DENIED: i32 = -3;
export const WHEN: i32 = -4;
export const UNKNOWN: i32 = -5;
export const FORGED: i32 = -6;

/** Bits of Packet.flags. */
export const IPV4: u32 = 1 << 0;
export const IPV6: u32 = 1 << 1;
export const TCP: u32 = 1 << 2;
export const UDP: u32 = 1 << 3;
export const ICMP: u32 = 1 << 4;
export const L4: u32 = 1 << 5;
export const FRAGMENT: u32 = 1 << 6;
export const LATER_FRAGMENT: u32 = 1 << 7;
export const VLAN: u32 = 1 << 8;
export const MPLS: u32 = 1 << 9;
export const PPPOE: u32 = 1 << 10;
export const CUT: u32 = 1 << 11;
export const MALFORMED: u32 = 1 << 12;
export const OPTIONS: u32 = 1 << 13;

/** The descriptor of a packet: 128 bytes, read in place. It is valid for one call. */
@unmanaged
export class Packet {
  ts_ns: u64;
  data: u32;
  cap_len: u32;
  wire_len: u32;
  flags: u32;
  flow_hash: u64;
  l3_offset: u16;
  l4_offset: u16;
  payload_offset: u16;
  ether_type: u16;
  payload_len: u32;
  src_port: u16;
  dst_port: u16;
  ip_proto: u8;
  tcp_flags: u8;
  ttl: u8;
  tos: u8;
  vlan_tci: u16;
  interface: u16;
  link_type: u16;
  vlan_count: u8;
  mpls_count: u8;
  number: u32;
  inner_flow_hash: u64;
  stream: u32;
  annotation: u32;
  inner_offset: u16;
  tunnel: u8;
  tunnel_count: u8;
  inner_flags: u32;
  inner_l4_offset: u16;
  inner_payload_offset: u16;
  inner_payload_len: u32;
  inner_src_port: u16;
  inner_dst_port: u16;
  inner_ip_proto: u8;
  inner_tcp_flags: u8;
  inner_ttl: u8;
  inner_tos: u8;
  spare0: u64;
  spare1: u64;
  spare2: u64;

  /** Returns true if all of these flags are set. */
  @inline
  has(flags: u32): bool {
    return (this.flags & flags) == flags;
  }

  /** Loads a byte from an offset; traps behind the captured bytes. */
  @inline
  u8(offset: u32): u8 {
    if (offset >= this.cap_len) unreachable();
    return load<u8>(this.data + offset);
  }

  /** Loads a number in network byte order from an offset; traps behind the captured bytes. */
  @inline
  be16(offset: u32): u16 {
    if (this.cap_len < 2 || offset > this.cap_len - 2) unreachable();
    return bswap<u16>(load<u16>(this.data + offset));
  }
}

if (offsetof<Packet>() != 128 || offsetof<Packet>("payload_len") != 40 || offsetof<Packet>("number") != 60) {
  ERROR("the layout of the descriptor is not that of weir.h");
}

/** Emits a row of a stream, by its place in the manifest. T is an @unmanaged class with the stream's fields in their order.
 *  `align` is the size of the row's largest field: weir wants the size of a C struct, and offsetof has no padding at the end. */
@inline
export function emit<T>(stream: u32, row: T, align: u32 = 8): i32 {
  return host_emit(stream, changetype<usize>(row), (offsetof<T>() + align - 1) & ~(align - 1));
}

/** Reads a parameter of type u64, i64, duration (ns) or bool (0, 1), by its place in the manifest. It costs nothing: weir makes it a constant. */
@inline
export function param(index: u32): u64 {
  return host_param_int(index);
}

/** Logs a line for the operator. Call it in weir_start only: it allocates memory that is never freed. */
export function log(level: u32, text: string): void {
  const bytes = String.UTF8.encode(text);
  host_log(level, changetype<usize>(bytes), bytes.byteLength);
}

export const ERROR_LEVEL: u32 = 0;
export const WARNING_LEVEL: u32 = 1;
export const INFO_LEVEL: u32 = 2;

/** Stands for the compiler's `env.abort` (option --use abort=weir/abort): a failed check traps. weir has no such import. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}

// The host functions. A module imports only those that it calls.
@external("weir", "emit") export declare function host_emit(stream: u32, row: usize, len: u32): i32;
@external("weir", "patch") export declare function host_patch(descriptor: Packet, offset: u32, bytes: usize, len: u32): i32;
@external("weir", "send") export declare function host_send(output: u32, bytes: usize, len: u32): i32;
@external("weir", "keep") export declare function host_keep(descriptor: Packet): i32;
@external("weir", "release") export declare function host_release(handle: i32): i32;
@external("weir", "find_compile") export declare function host_find_compile(list: usize, len: u32, flags: u32): i32;
@external("weir", "find") export declare function host_find(handle: i32, bytes: usize, len: u32): i64;
@external("weir", "hash") export declare function host_hash(bytes: usize, len: u32, seed: u64): u64;
@external("weir", "digest") export declare function host_digest(algorithm: u32, bytes: usize, len: u32, destination: usize): i32;
@external("weir", "log") export declare function host_log(level: u32, text: usize, len: u32): i32;
@external("weir", "param_int") export declare function host_param_int(index: u32): i64;
@external("weir", "param_float") export declare function host_param_float(index: u32): f64;
@external("weir", "param_bytes") export declare function host_param_bytes(index: u32, destination: usize, room: u32): i32;
@external("weir", "reserve") export declare function host_reserve(bytes: i64): i64;
@external("weir", "call") export declare function host_call(service: u32, bytes: usize, len: u32, deadline: u64): i64;
@external("weir", "message") export declare function host_message(destination: usize, room: u32): i32;
@external("weir", "reply") export declare function host_reply(call: u64, bytes: usize, len: u32): i32;
@external("weir", "publish") export declare function host_publish(table: u32, bytes: usize, len: u32): i32;
