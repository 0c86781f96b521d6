//! The interface of weir for modules in Zig. It states the same as `weir.h` for modules in C.
//!
//! A module exports the functions that weir calls. `weir_packet` is mandatory, the others are optional:
//!
//!     export fn weir_start() weir.Start
//!     export fn weir_packet(p: *const weir.Packet) weir.Verdict
//!     export fn weir_tick(now: u64, periods: u64) void
//!     export fn weir_lost(cause: i32) void
//!     export fn weir_stop(now: u64) void
//!     export fn weir_rest(now: u64) i32
//!
//! weir makes a constant of each parameter whose index is a constant, so reading it costs nothing.
// SPDX-License-Identifier: Apache-2.0 OR MIT

/// Result of `weir_start`.
pub const Start = enum(i32) { ok = 0, refuse = 1 };

/// Result of `weir_packet`.
pub const Verdict = enum(i32) { pass = 0, drop = 1 };

/// Codes of host functions; a result from 0 on is a success.
pub const ok: i32 = 0;
pub const full: i32 = -1;
pub const range: i32 = -2;
pub const denied: i32 = -3;
pub const when: i32 = -4;
pub const unknown: i32 = -5;
pub const forged: i32 = -6;

/// Bits of `Packet.flags`.
pub const flag = struct {
    pub const ipv4: u32 = 1 << 0;
    pub const ipv6: u32 = 1 << 1;
    pub const tcp: u32 = 1 << 2;
    pub const udp: u32 = 1 << 3;
    pub const icmp: u32 = 1 << 4;
    pub const l4: u32 = 1 << 5;
    pub const fragment: u32 = 1 << 6;
    pub const later_fragment: u32 = 1 << 7;
    pub const vlan: u32 = 1 << 8;
    pub const mpls: u32 = 1 << 9;
    pub const pppoe: u32 = 1 << 10;
    pub const cut: u32 = 1 << 11;
    pub const malformed: u32 = 1 << 12;
    pub const options: u32 = 1 << 13;
};

/// The descriptor of a packet: 128 bytes, read in place. It is valid for one call.
pub const Packet = extern struct {
    ts_ns: u64,
    data: u32,
    cap_len: u32,
    wire_len: u32,
    flags: u32,
    flow_hash: u64,
    l3_offset: u16,
    l4_offset: u16,
    payload_offset: u16,
    ether_type: u16,
    payload_len: u32,
    src_port: u16,
    dst_port: u16,
    ip_proto: u8,
    tcp_flags: u8,
    ttl: u8,
    tos: u8,
    vlan_tci: u16,
    interface: u16,
    link_type: u16,
    vlan_count: u8,
    mpls_count: u8,
    number: u32,
    inner_flow_hash: u64,
    stream: u32,
    annotation: u32,
    inner_offset: u16,
    tunnel: u8,
    tunnel_count: u8,
    inner_flags: u32,
    inner_l4_offset: u16,
    inner_payload_offset: u16,
    inner_payload_len: u32,
    inner_src_port: u16,
    inner_dst_port: u16,
    inner_ip_proto: u8,
    inner_tcp_flags: u8,
    inner_ttl: u8,
    inner_tos: u8,
    spare: [6]u32,

    comptime {
        if (@sizeOf(Packet) != 128 or @offsetOf(Packet, "payload_len") != 40 or @offsetOf(Packet, "number") != 60 or
            @offsetOf(Packet, "inner_flags") != 84 or @offsetOf(Packet, "spare") != 104)
            @compileError("the layout of the descriptor is not that of weir.h");
    }

    /// Returns true if all of these flags are set.
    pub fn has(p: *const Packet, flags: u32) bool {
        return p.flags & flags == flags;
    }

    /// The captured bytes.
    pub fn bytes(p: *const Packet) []const u8 {
        return at(p.data)[0..p.cap_len];
    }

    /// The bytes from the IP header on; null without IP.
    pub fn l3(p: *const Packet) ?[]const u8 {
        return if (p.flags & (flag.ipv4 | flag.ipv6) != 0) p.bytes()[p.l3_offset..] else null;
    }

    /// The bytes from the header above IP on; null without one that is captured whole.
    pub fn l4(p: *const Packet) ?[]const u8 {
        return if (p.has(flag.l4)) p.bytes()[p.l4_offset..] else null;
    }

    /// The bytes above TCP, UDP or ICMP, without padding of the link; null without a header above IP.
    pub fn payload(p: *const Packet) ?[]const u8 {
        return if (p.has(flag.l4)) p.bytes()[p.payload_offset..][0..p.payload_len] else null;
    }
};

fn at(address: u32) [*]const u8 {
    return @ptrFromInt(address);
}

/// Loads a number in network byte order; null behind the end of the bytes.
pub fn be16(bytes: []const u8, offset: usize) ?u16 {
    if (offset > bytes.len or bytes.len - offset < 2) return null;
    return @as(u16, bytes[offset]) << 8 | bytes[offset + 1];
}

/// A stream of the manifest, by its place there. `Row` is an `extern struct` with the stream's fields in their order.
pub fn Stream(comptime Row: type, comptime index: u32) type {
    return struct {
        /// Emits a row, which weir copies. Returns `ok`, or `full` if a limit is reached.
        pub fn emit(row: *const Row) i32 {
            return host.emit(index, row, @sizeOf(Row));
        }
    };
}

/// Parameters of the manifest, by their place there.
pub const parameter = struct {
    /// A parameter of type u64 or i64.
    pub fn Integer(comptime T: type, comptime index: u32) type {
        return struct {
            pub inline fn get() T {
                return @bitCast(host.param_int(index));
            }
        };
    }

    /// A parameter of type duration, in ns.
    pub fn Duration(comptime index: u32) type {
        return Integer(u64, index);
    }

    /// A parameter of type bool.
    pub fn Bool(comptime index: u32) type {
        return struct {
            pub inline fn get() bool {
                return host.param_int(index) != 0;
            }
        };
    }

    /// A parameter of type f64.
    pub fn Float(comptime index: u32) type {
        return struct {
            pub inline fn get() f64 {
                return host.param_float(index);
            }
        };
    }

    /// A parameter of type string, prefix, u64-list (`T` is u64) or string-list, whose value is copied.
    pub fn Copied(comptime T: type, comptime index: u32) type {
        return struct {
            /// Copies the value into a buffer, and returns its part of it; null if the buffer is too small.
            pub inline fn get(buffer: []T) ?[]T {
                const len: u32 = @bitCast(host.param_bytes(index, @ptrCast(buffer.ptr), @intCast(buffer.len * @sizeOf(T))));
                return if (len <= buffer.len * @sizeOf(T)) buffer[0 .. len / @sizeOf(T)] else null;
            }
        };
    }
};

/// Levels of messages.
pub const Level = enum(u32) { err = 0, warning = 1, info = 2 };

/// Logs a line for the operator.
pub fn log(level: Level, text: []const u8) void {
    _ = host.log(@intFromEnum(level), text.ptr, @intCast(text.len));
}

/// The host functions. A module imports only those that it calls.
pub const host = struct {
    pub extern "weir" fn emit(stream: u32, row: *const anyopaque, len: u32) i32;
    pub extern "weir" fn patch(descriptor: *const Packet, offset: u32, bytes: [*]const u8, len: u32) i32;
    pub extern "weir" fn send(output: u32, bytes: [*]const u8, len: u32) i32;
    pub extern "weir" fn keep(descriptor: *const Packet) i32;
    pub extern "weir" fn release(handle: i32) i32;
    pub extern "weir" fn find_compile(list: [*]const u8, len: u32, flags: u32) i32;
    pub extern "weir" fn find(handle: i32, bytes: [*]const u8, len: u32) i64;
    pub extern "weir" fn hash(bytes: [*]const u8, len: u32, seed: u64) u64;
    pub extern "weir" fn digest(algorithm: u32, bytes: [*]const u8, len: u32, destination: [*]u8) i32;
    pub extern "weir" fn log(level: u32, text: [*]const u8, len: u32) i32;
    pub extern "weir" fn param_int(index: u32) i64;
    pub extern "weir" fn param_float(index: u32) f64;
    pub extern "weir" fn param_bytes(index: u32, destination: ?[*]u8, room: u32) i32;
    pub extern "weir" fn reserve(bytes: i64) i64;
    pub extern "weir" fn call(service: u32, bytes: [*]const u8, len: u32, deadline: u64) i64;
    pub extern "weir" fn message(destination: [*]u8, room: u32) i32;
    pub extern "weir" fn reply(call: u64, bytes: [*]const u8, len: u32) i32;
    pub extern "weir" fn publish(table: u32, bytes: [*]const u8, len: u32) i32;
};
