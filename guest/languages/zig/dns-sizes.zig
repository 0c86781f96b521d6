//! dns-sizes: sizes of DNS messages over UDP, queries and answers apart, in each interval.
// SPDX-License-Identifier: Apache-2.0 OR MIT

const std = @import("std");
const weir = @import("weir.zig");

/// A failed check traps. The default handler formats a message, for whose code weir finds no bound.
pub const panic = std.debug.no_panic;

// ---- The manifest: parameters and streams in its order ----------------------------------------------------------------

const ports = weir.parameter.Copied(u64, 0);
const interval = weir.parameter.Duration(1);

const Row = extern struct {
    time: u64,
    messages: u64,
    truncated: u64,
    bytes: u64,
    bytes_min: u32,
    bytes_max: u32,
    name_bytes_max: u16,
    is_answer: bool,
};
const sizes = weir.Stream(Row, 0);

// ---- The module ------------------------------------------------------------------------------------------------------

const ports_max = 64;
const udp_header_bytes = 8;
const dns_header_bytes = 12;
const name_bytes_most = 255;

/// Messages of one direction whose sizes have the same number of bits.
const Messages = struct {
    count: u64 = 0,
    truncated: u64 = 0,
    bytes: u64 = 0,
    name_bytes_max: u16 = 0,
};

/// Of queries, and of answers; by the number of bits of the size, which has 16 bits.
var ranges: [2][17]Messages = @splat(@splat(.{}));
var is_listed: [65536]bool = @splat(false);

export fn weir_start() weir.Start {
    var buffer: [ports_max]u64 = undefined;
    const list = ports.get(&buffer) orelse {
        weir.log(.err, "ports: at most 64");
        return .refuse;
    };
    for (list) |port| is_listed[@as(u16, @truncate(port))] = true;
    return .ok;
}

/// The encoded length of the name at the begin of the question; 0 if it does not end in the bytes, or is no plain name.
fn nameBytes(message: []const u8) u16 {
    var at: usize = dns_header_bytes;
    // A name has at most 127 labels, so the counter ends this loop for any bytes.
    for (0..128) |_| {
        if (at >= message.len or at >= dns_header_bytes + name_bytes_most) return 0;
        const label = message[at];
        if (label == 0) return @intCast(at + 1 - dns_header_bytes);
        if (label > 63) return 0;
        at += 1 + @as(usize, label);
    }
    return 0;
}

export fn weir_packet(p: *const weir.Packet) weir.Verdict {
    if (!p.has(weir.flag.udp | weir.flag.l4)) return .pass;
    if (!is_listed[p.src_port] and !is_listed[p.dst_port]) return .pass;
    const message = p.payload() orelse return .pass;
    const udp_len = weir.be16(p.l4() orelse return .pass, 4) orelse return .pass;
    if (message.len < dns_header_bytes or udp_len < udp_header_bytes + dns_header_bytes) return .pass;

    const size = udp_len - udp_header_bytes;
    const is_answer = message[2] >> 7;
    const range = &ranges[is_answer][16 - @as(usize, @clz(size))];
    range.count += 1;
    range.bytes += size;
    range.truncated += message[2] >> 1 & 1;
    if (message[4] != 0 or message[5] != 0) range.name_bytes_max = @max(range.name_bytes_max, nameBytes(message));
    return .pass;
}

/// Emits the rows of the interval that began at this time, and begins another.
fn report(begin: u64) void {
    for (&ranges, 0..) |*direction, is_answer| {
        for (direction, 0..) |*range, bits| {
            if (range.count == 0) continue;
            const row: Row = .{
                .time = begin,
                .messages = range.count,
                .truncated = range.truncated,
                .bytes = range.bytes,
                .bytes_min = @as(u32, 1) << @intCast(bits - 1),
                .bytes_max = (@as(u32, 1) << @intCast(bits)) - 1,
                .name_bytes_max = range.name_bytes_max,
                .is_answer = is_answer == 1,
            };
            _ = sizes.emit(&row);
            range.* = .{};
        }
    }
}

export fn weir_tick(now: u64, periods: u64) void {
    report(now -% periods *% interval.get());
}

export fn weir_stop(now: u64) void {
    report(now - now % interval.get());
}
