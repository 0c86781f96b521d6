#!/usr/bin/env python3
"""Writes the seed inputs of the fuzz targets into fuzz/seeds. Every byte is generated here; none is from a capture.

The target `module` begins with the shipped modules instead: lab/fuzz copies them.
"""

import base64
import hashlib
import gzip
import struct
from pathlib import Path

FOLDER = Path(__file__).parent / "seeds"

# Packets, from the inside out.

TCP = struct.pack(">HHIIBBHHH", 40000, 80, 1, 2, 7 << 4, 0x18, 1000, 0, 0) + bytes([2, 4, 5, 180, 1, 1, 4, 2]) + b"GET /"
UDP = struct.pack(">HHHH", 53, 40000, 12, 0) + b"weir"
ICMP = struct.pack(">BBHHH", 8, 0, 0, 1, 2) + b"ping"


def ipv4(protocol, payload, fragment=0, options=b""):
    words = 5 + len(options) // 4
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0xB8, 4 * words + len(payload), 7, fragment, 64, protocol, 0)
    return head + bytes([192, 0, 2, 1, 198, 51, 100, 2]) + options + payload


def ipv6(following, payload):
    address = bytes.fromhex("20010db8000000000000000000000001")
    return struct.pack(">IHBB", 6 << 28, len(payload), following, 64) + address + address[::-1] + payload


def ethernet(ether_type, payload):
    return bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]) + struct.pack(">H", ether_type) + payload


def tag(tci, ether_type, payload):
    return struct.pack(">HH", tci, ether_type) + payload


def checked_ipv4(protocol, payload):
    """With a correct checksum, without which a packet inside a tunnel over UDP is not recognised."""
    packet = bytearray(ipv4(protocol, payload))
    words = sum(struct.unpack(">10H", packet[:20]))
    words = (words & 0xFFFF) + (words >> 16)
    packet[10:12] = struct.pack(">H", ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF)
    return bytes(packet)


def datagram(src, dst, payload):
    return struct.pack(">HHHH", src, dst, 8 + len(payload), 0) + payload


V4 = checked_ipv4(6, TCP)
V6 = ipv6(6, TCP)

# A header of each tunnel in front of a packet: the IP protocol, and the bytes.
TUNNELS = {
    "ip-in-ip": (4, V4),
    "6in4": (41, V6),
    "mpls-in-ip": (137, bytes([0, 1, 1, 64]) + V4),
    "gre": (47, struct.pack(">HH", 0, 0x0800) + V4),
    "gre-all": (47, struct.pack(">HHHHII", 0xB000, 0x6558, 0, 0, 7, 1) + ethernet(0x0800, V4)),
    "vxlan": (17, datagram(9000, 4789, bytes([8, 0, 0, 0, 0, 1, 2, 0]) + ethernet(0x86DD, V6))),
    "geneve": (17, datagram(9000, 6081, bytes([2, 0, 0x65, 0x58, 0, 1, 2, 0, 0, 9, 0x42, 1, 1, 2, 3, 4]) + ethernet(0x0800, V4))),
    "gtp-u": (17, datagram(9000, 2152, struct.pack(">BBHI", 0x30, 255, len(V4), 9) + V4)),
    "gtp-u-all": (17, datagram(2152, 2152, struct.pack(">BBHIHBB", 0x37, 255, 12 + len(V6), 9, 5, 1, 0x85) + bytes([1, 16, 9, 0xC0, 1, 1, 2, 0]) + V6)),
    "teredo": (17, datagram(3544, 40000, V6)),
    "teredo-all": (17, datagram(40000, 3544, bytes([0, 1, 2, 3]) + bytes(14) + bytes([0, 0, 0x12, 0x34, 203, 0, 113, 7]) + V6)),
}

PACKETS = {
    # name: (link type, packet)
    "tcp": (1, ethernet(0x0800, ipv4(6, TCP))),
    "udp": (1, ethernet(0x0800, ipv4(17, UDP))),
    "icmp": (1, ethernet(0x0800, ipv4(1, ICMP))),
    "options": (1, ethernet(0x0800, ipv4(6, TCP, options=bytes([7, 7, 4, 0, 0, 0, 0, 0])))),
    "first-fragment": (1, ethernet(0x0800, ipv4(17, UDP, fragment=0x2000))),
    "later-fragment": (1, ethernet(0x0800, ipv4(17, UDP, fragment=0x0003))),
    "ipv6": (1, ethernet(0x86DD, ipv6(6, TCP))),
    "ipv6-extensions": (1, ethernet(0x86DD, ipv6(0, bytes([43, 0, 1, 4, 0, 0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 1]) + UDP))),
    "vlan": (1, ethernet(0x8100, tag(20, 0x0800, ipv4(6, TCP)))),
    "qinq": (1, ethernet(0x88A8, tag(20, 0x8100, tag(30, 0x86DD, ipv6(17, UDP))))),
    "mpls": (1, ethernet(0x8847, bytes([0, 1, 0, 64, 0, 2, 1, 64]) + ipv4(6, TCP))),
    "pppoe": (1, ethernet(0x8864, bytes([0x11, 0, 0, 1, 0, 50, 0, 0x21]) + ipv4(17, UDP))),
    "arp": (1, ethernet(0x0806, bytes([0, 1, 8, 0, 6, 4, 0, 1]) + bytes(20))),
    "null": (0, struct.pack("<I", 2) + ipv4(6, TCP)),
    "loop": (108, struct.pack(">I", 24) + ipv6(17, UDP)),
    "raw": (101, ipv4(6, TCP)),
    "sll": (113, bytes([0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]) + struct.pack(">H", 0x0800) + ipv4(17, UDP)),
    "sll2": (276, struct.pack(">HHIHBB", 0x86DD, 0, 1, 1, 0, 6) + bytes(8) + ipv6(6, TCP)),
}

for name, (protocol, above) in TUNNELS.items():
    PACKETS[name] = (1, ethernet(0x0800, checked_ipv4(protocol, above)))
PACKETS["gre-in-gtp-u"] = (1, ethernet(0x86DD, ipv6(17, datagram(9000, 2152, struct.pack(">BBHI", 0x30, 255, 0, 9) + checked_ipv4(*TUNNELS["gre"])))))

# The order of weir_wire::LinkType::ALL, from which the first byte of an input of `classify` selects.
LINK_TYPES = [0, 1, 101, 108, 113, 228, 229, 276]


def classify_inputs():
    for name, (link_type, packet) in PACKETS.items():
        # A patch of two bytes at offset 30.
        yield name, bytes([LINK_TYPES.index(link_type), 0, 0, 0, 0, 0, 0, 30, 2, 1, 2, 3, 4, 5, 6, 7]) + packet


# Captures.


def pcap(order, magic, link_type, packets):
    out = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, link_type)
    for i, packet in enumerate(packets):
        out += struct.pack(order + "IIII", 1_600_000_000 + i, i, len(packet), len(packet)) + packet
    return out


def pcapng(order):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        length = struct.pack(order + "I", 12 + len(body))
        return struct.pack(order + "I", kind) + length + body + length

    packet = PACKETS["udp"][1]
    out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack(order + "HHI", 1, 0, 0) + struct.pack(order + "HHB3x", 9, 1, 9) + bytes(4))
    out += block(1, struct.pack(order + "HHI", 101, 0, 30))
    out += block(6, struct.pack(order + "IIIII", 0, 0x17000000, 5, len(packet), len(packet)) + packet)
    out += block(6, struct.pack(order + "IIIII", 1, 0x00050000, 6, 30, 60) + PACKETS["raw"][1][:30])
    out += block(3, struct.pack(order + "I", len(packet)) + packet)
    out += block(2, struct.pack(order + "HHIIII", 0, 0, 0, 7, len(packet), len(packet)) + packet)
    return out + block(0xBAD, b"nothing")


def zstd(contents):
    """One frame with one block, stored as it is (RFC 8878)."""
    head = bytes.fromhex("28b52ffd") + bytes([0x60]) + struct.pack("<H", len(contents) - 256)
    return head + struct.pack("<I", len(contents) << 3 | 1)[:3] + contents


def capture_inputs():
    two = [PACKETS["tcp"][1], PACKETS["qinq"][1]]
    micro, nano = 0xA1B2C3D4, 0xA1B23C4D
    yield "micro-little.pcap", pcap("<", micro, 1, two)
    yield "micro-big.pcap", pcap(">", micro, 1, two)
    yield "nano-little.pcap", pcap("<", nano, 1, two)
    yield "nano-big.pcap", pcap(">", nano, 1, two)
    for name in ["null", "loop", "raw", "sll", "sll2"]:
        link_type, packet = PACKETS[name]
        yield f"{name}.pcap", pcap("<", micro, link_type, [packet])
    yield "empty.pcap", pcap("<", micro, 1, [])
    yield "cut.pcap", pcap("<", micro, 1, two)[:-20]
    yield "little.pcapng", pcapng("<")
    yield "big.pcapng", pcapng(">")
    yield "sections.pcapng", pcapng("<") + pcapng(">")
    yield "pcap.gz", gzip.compress(pcap("<", micro, 1, two), mtime=0)
    yield "pcapng.gz", gzip.compress(pcapng(">"), mtime=0)
    yield "pcapng.zst", zstd(pcapng("<"))


def handshake_inputs():
    """The first byte selects the recipient of the rest (fuzz_targets/handshake.rs): the responder, the initiator, and so on; or edits of an honest handshake."""
    first = b"weir\x01\x01" + bytes(range(32)) + bytes(155)
    yield "first", b"\x00" + first
    yield "first-of-zeros", b"\x00weir\x01\x01" + bytes(187)
    yield "later-version", b"\x00weir\x02\x03" + bytes(100)
    yield "second", b"\x01\x01" + bytes(range(192))
    yield "third", b"\x02" + bytes(range(171))
    yield "fourth", b"\x03" + bytes(range(23))
    yield "stream", b"\x04" + struct.pack(">H", 17) + bytes(17) + struct.pack(">H", 16401) + bytes(40)
    yield "not-edited", b"\x05"
    for message, at in [(0, 5), (0, 20), (1, 0), (1, 60), (2, 10), (2, 160), (3, 3)]:
        yield f"edited-{message}-{at}", b"\x05" + struct.pack(">BHB", message, at, 1)


def datagrams_inputs():
    """The first byte selects edits of the datagrams of a handshake, or datagrams to insert (fuzz_targets/datagrams.rs)."""
    yield "not-edited", b"\x00"
    for number in range(8):
        yield f"flipped-{number}", b"\x00" + struct.pack(">BBHB", number, 0, 13 * number + 5, 1)
        yield f"lost-{number}", b"\x00" + struct.pack(">BBHB", number, 3, 0, 0)
    yield "cut", b"\x00" + struct.pack(">BBHB", 4, 1, 100, 0)
    yield "longer", b"\x00" + struct.pack(">BBHB", 3, 2, 100, 0)
    yield "reflected", b"\x00" + struct.pack(">BBHB", 2, 4, 0, 0)
    yield "repeated", b"\x00" + struct.pack(">BBHB", 4, 5, 0, 0)
    head = lambda kind, index: b"weir" + bytes([kind, 0, 0, 0]) + struct.pack(">I", index)
    datagrams = {
        "hello": (0, head(1, 7) + bytes(16) + b"weir\x01\x01" + bytes(range(32)) + bytes(155)),
        "cookie": (1, head(2, 7) + bytes(32)),
        "versions": (1, head(3, 7) + b"\x02\x03" + bytes(16)),
        "reply": (1, head(4, 7) + struct.pack(">I", 9) + bytes(193)),
        "third": (0, head(5, 7) + bytes(160)),
        "sealed": (0, head(6, 7) + struct.pack(">Q", 1) + bytes(40)),
    }
    for name, (to, datagram) in datagrams.items():
        yield name, b"\x01" + bytes([to, 20, len(datagram)]) + datagram


def anep_packet(options, payload, flags=0x80):
    """Options are pairs of the first two bytes and the value."""
    coded = b"".join(struct.pack(">HH", kind, 1 + len(value) // 4) + value for kind, value in options)
    return struct.pack(">BBHHH", 1, flags, 7, 2 + len(coded) // 4, 8 + len(coded) + len(payload)) + coded + payload


def anep_inputs():
    yield "plain", anep_packet([], b"code")
    yield "forwarded", anep_packet([], b"", flags=0)
    yield "addresses", anep_packet([(0x4001, bytes([0, 0, 0, 1, 192, 0, 2, 1])), (0x4002, bytes(20))], b"code")
    yield "checksum", anep_packet([(3, bytes(4))], b"code")
    yield "unknown", anep_packet([(0x4384, b"four"), (0x8005, b""), (0xC005, bytes(8))], b"code")
    yield "sealed", anep_packet([(0x4012, bytes(8)), (0x4010, bytes(range(28)))], b"code")


def authentication_inputs():
    """The first byte selects a datagram, edits of a sealed packet, or fragments to seal (fuzz_targets/authentication.rs)."""
    yield "datagram", b"\x00" + anep_packet([(0x4010, struct.pack(">IQ", 7, 1) + bytes(16))], b"code")
    yield "encrypted", b"\x00" + anep_packet([(0x4011, struct.pack(">IQ", 7, 1) + bytes(16))], b"code")
    yield "not-edited", b"\x01"
    for at in (1, 3, 10, 13, 20, 30, 45):
        yield f"edited-{at}", b"\x01" + bytes([at, 1])
    fragments = lambda *places: b"\x02" + b"".join(struct.pack(">BHHH", *place) for place in places)
    yield "whole", fragments((1, 600, 0, 600))
    yield "in-order", fragments((1, 1500, 0, 800), (1, 1500, 800, 700))
    yield "reordered", fragments((1, 1500, 800, 700), (1, 1500, 0, 800))
    yield "overlap", fragments((1, 1500, 0, 800), (1, 1500, 700, 800))
    yield "other-length", fragments((1, 1500, 0, 800), (1, 1501, 800, 700))
    yield "many", fragments(*((number, 65535, 0, 600) for number in range(8)))


# Views.


def view_inputs():
    """Each packet under an anonymising view, without payload and with all of it, and further packets with inner addresses; and in pseudowires."""
    inner = ipv4(6, TCP)
    # Behind MPLS labels only a correct checksum identifies IPv4.
    total = sum(struct.unpack(">10H", inner[:20]))
    summed = inner[:10] + struct.pack(">H", 0xFFFF - (total % 0xFFFF)) + inner[12:]
    labels = bytes([0, 1, 0, 64, 0, 2, 1, 64])
    nested = {
        "ip-in-ip": ethernet(0x0800, ipv4(4, inner)),
        "gre": ethernet(0x0800, ipv4(47, bytes([0, 0, 8, 0]) + inner)),
        "vxlan": ethernet(0x0800, ipv4(17, struct.pack(">HHHH", 9, 4789, 30 + len(inner), 0) + bytes([8, 0, 0, 0, 0, 0, 1, 0]) + ethernet(0x0800, inner))),
        "unreachable": ethernet(0x0800, ipv4(1, bytes([3, 1, 0, 0, 0, 0, 0, 0]) + inner)),
        "neighbour": ethernet(0x86DD, ipv6(58, bytes([135, 0, 0, 0, 0, 0, 0, 0]) + bytes(range(16)) + bytes([1, 1, 2, 3, 4, 5, 6, 7]))),
        "listener": ethernet(0x86DD, ipv6(58, bytes([143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0]) + bytes(range(16)))),
        "labelled": ethernet(0x8847, labels + summed),
        "labelled-ipv6": ethernet(0x8847, labels + ipv6(6, TCP)),
        "labels-in-gre": ethernet(0x0800, ipv4(47, bytes([0, 0, 0x88, 0x47]) + labels + summed)),
    }
    packets = PACKETS | {name: (1, packet) for name, packet in nested.items()}
    for name, (link_type, packet) in packets.items():
        for payload in range(2):
            yield f"{name}-{payload}", bytes([LINK_TYPES.index(link_type), payload, 0, 2]) + bytes(12) + packet
    # Each outer header, each beginning of the frame, and each content once.
    for number in range(8):
        wire = bytes([number, [0x01, 0x81, 0x19, 0x99][number % 4], number % 5 | number << 7 & 0x80])
        yield f"pseudowire-{number}", bytes([1, number % 2, 0, 2, 0, 0, 0, 0]) + wire + bytes(5) + PACKETS["udp"][1]


# Credentials.


def control_inputs():
    """Requests of clients, a line and perhaps a file, and responses of nodes (apps/node/src/control/protocol.rs)."""
    file = "0011223344556677" * 4
    module = '{"session":"s","module":{"module":"m","set":{"a":[1,"b"]}}}'
    said = {
        "show": '{"weir":1,"request":"show"}\n',
        "create": '{"weir":1,"request":{"create":{"name":"s","memory":"1 MiB","cpu":[{"period":"10ms","slice":"1ms"}],'
        '"channel":[{"interface":"b","filter":"udp"}]}}}\n',
        "change": '{"weir":1,"request":{"change":{"session":"s","memory":"2 MiB"}}}\n',
        "load": '{"weir":1,"request":{"load":%s},"body":4}\nabcd' % module,
        "load-sent": '{"weir":1,"request":{"load":%s},"file":"%s"}\n' % (module, file),
        "upload": '{"weir":1,"request":{"upload":{"file":"%s","bytes":9,"from":0}},"body":5}\n12345' % file,
        "table": '{"weir":1,"request":{"put-table":{"table":"t"}},"body":1}\n1',
        "ledger": '{"weir":1,"request":{"ledger":{"part":"usage","session":"s","since_ns":1,"until_ns":2}}}\n',
        "entries": '{"weir":1,"reply":{"entries":{"entries":[{"seq":1,"node":"n","begin":"2026-11-21T12:10:05.000000000Z",'
        '"end":"2026-11-21T12:10:06.000000000Z","kind":"node-stop"}]}}}\n',
        "two": '{"weir":1,"request":{"close":{"session":"s"}}}\n{"weir":1,"request":"reload"}\n',
        "answer": '{"weir":1,"reply":{"done":{"notes":["a"]}}}\n',
        "other-version": '{"weir":2,"request":"show"}\n',
    }
    for name, text in said.items():
        yield name, text.encode()


def filter_inputs():
    """Filter expressions that together use every part of the language, and some truncated ones."""
    expressions = {
        "empty": "",
        "host": "host 192.0.2.1 and not src host 198.51.100.2",
        "network": "net 192.0.2.0/24 or dst net 198.51.100 mask 255.255.255.0 or ip6 net 2001:db8::/32",
        "ports": "tcp src port 80 or udp dst port 53 or portrange 6000-6008 or sctp port 5060",
        "protocols": "arp or rarp or icmp or icmp6 or igmp or ip proto 47 or ip6 proto 6 or ether proto 0x88cc",
        "carriers": "vlan 20 and (mpls 1024 and pppoes 7 and ip)",
        "ethernet": "ether host 02:00:00:00:00:01 or ether broadcast or ether multicast or ip multicast",
        "length": "less 64 or greater 1500 or len - 14 > 100",
        "arithmetic": "tcp[tcpflags] & (tcp-syn|tcp-ack) = tcp-syn and (ip[2:2] - ((ip[0] & 0xf) << 2)) / 4 % 7 != 0",
        "icmp-fields": "icmp[icmptype] == icmp-echo and icmp6[0] == 128 and ether[0] & 1 = 0",
        "repeated": "port 80 or 443 or 8080 and src or dst net 10",
        "nested": "(" * 20 + "udp" + ")" * 20,
        "ends-in-operator": "tcp and",
        "ends-in-brackets": "ip[",
        "number-too-large": "port 65536",
        "name": "host example.org",
    }
    for name, text in expressions.items():
        yield name, text.encode()


def arguments_inputs():
    """Arguments of every type, alone and as those of an element."""
    texts = [
        "0x10, B -3, C 10ms, D 1.5Mbps, E 64KiB, F -1e3, G 0.25, H 10/8, I 2001:db8::/32, J 0:1:2:3:4:5,"
        " K \"\\n\\x41\", L word, M /a//b, N PAINT, O tcp 17, P https, Q x",
        "true", "0b101", "017", "1_000", "18446744073709551615", "-128", "1.5", "-2e3", "10ms", "1day", "1.5Gbps", "100kBps",
        "64KiB", "192.0.2.1", "192.0.2.0/24", "10.0.0.0/255.0.0.0", "2001:db8::1", "::ffff:1.2.3.4/96", "00:a0:c9:9c:fd:9c",
        "AGGREGATE", "12", "https", "tcp", "1 2 3", "'a, b' /* c */ \\<41 42> // d", "\"\\\\ \\t \\0 $x\"", "FLAG true, B 1, B 2",
    ]
    for index, text in enumerate(texts):
        yield f"{index:02}", text.encode()


def elements_inputs():
    """Elements with a configuration and packets: whole ones, cut ones, and ones with options, fragments and errors."""
    addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])

    def ip(protocol, body, fragment=0, options=b""):
        length = 20 + len(options) + len(body)
        first = 0x40 | (20 + len(options)) // 4
        head = struct.pack(">BBHHHBBH", first, 0, length, 7, fragment, 64, protocol, 0)
        return head + addresses + options + body

    def packet(content, kind=1, at=0, header=20, stripped=0, truncated=0, annotation=16, value=1):
        return bytes([kind, at, header, stripped, truncated, annotation, value, len(content)]) + content

    udp = struct.pack(">HHHH", 53, 5353, 12, 0) + b"data"
    tcp = struct.pack(">HHIIBBHHH", 1000, 80, 1, 2, 0x60, 2, 512, 0, 0) + bytes([2, 4, 5, 180])
    ethernet = bytes(12) + b"\x08\x00"
    arp = bytes(12) + b"\x08\x06" + bytes([0, 1, 8, 0, 6, 4, 0, 1]) + bytes(20)
    packets = b"".join([
        packet(ip(17, udp)),
        packet(ip(6, tcp)),
        packet(ip(17, udp, 0x2000)),
        packet(ip(17, b"fragment", 2)),
        packet(ip(1, b"\3\3" + bytes(6) + ip(17, udp))),
        packet(ip(17, udp, options=bytes([7, 7, 4, 0, 0, 0, 0, 0]))),
        packet(ethernet + ip(17, udp), at=14),
        packet(ethernet + ip(17, udp), kind=0),
        packet(arp, kind=0),
        packet(ip(6, tcp), kind=7, stripped=4, truncated=10),
        packet(b"", kind=9),
    ])
    elements = {
        "ARPPrint": "ETHER true",
        "ARPQuerier": "10.0.0.1, 0:1:2:3:4:5",
        "ARPResponder": "10/8 0:1:2:3:4:5",
        "AggregateCounter": "BYTES true, AGGREGATE_FREEZE 2, CAPACITY 3",
        "AggregateIP": "tcp[12:4] & 0xf0",
        "AggregateIPFlows": "ICMP true, CAPACITY 2",
        "CheckIPHeader": "OFFSET 0, VERBOSE true",
        "CheckLength": "40",
        "CheckTCPHeader": "",
        "CheckUDPHeader": "",
        "Classifier": "0/45 9/11, 0/40%f0, -",
        "Clipboard": "0/4, 12/8",
        "DecIPTTL": "",
        "DelayUnqueue": "1ms",
        "EtherEncap": "0x800, 1:1:1:1:1:1, 2:2:2:2:2:2",
        "FromIPSummaryDump": "DATA \"!data ip_src sport tcp_flags\n1.2.3.4 5 SA\n\"",
        "HashSwitch": "12, 8",
        "ICMPError": "10.0.0.1, unreachable, host",
        "ICMPPingRewriter": "pattern 1.0.0.1 7-8 - - 0 1",
        "IPAddrPairRewriter": "pattern 1.0.0.0/29 9.9.9.9 0 1, MAPPING_CAPACITY 2",
        "IPAddrRewriter": "pattern 1.0.0.1-1.0.0.2# - 0 1",
        "IPClassifier": "tcp port 80 and syn, udp, ip frag, -",
        "IPEncap": "udp, 1.0.0.1, 1.0.0.2",
        "IPFilter": "allow src net 10/8 and ttl > 3, deny all",
        "IPFragmenter": "28, HONOR_DF false",
        "IPGWOptions": "10.0.0.9",
        "IPInputCombo": "1",
        "IPOutputCombo": "1, 10.0.0.1, 40",
        "IPPrint": "CONTENTS hex, ID true",
        "IPRateMonitor": "BYTES, 0.5, 0, 100",
        "IPReassembler": "",
        "IPRewriter": "pattern 1.0.0.1 1024-1025? - - 0 1, TCP_GUARANTEE 0, REPLY_ANNO PAINT",
        "LinkUnqueue": "1ms, 1000",
        "Print": "x, CONTENTS ascii",
        "Queue": "3",
        "RED": "0, 2, 0.5, STABILITY 1",
        "RadixIPLookup": "10/8 0, 0/0 1.2.3.4 1",
        "Resize": "-4, 7",
        "Script": "set x 1, goto l $(lt $x 3), label l, print $(add $x 2)",
        "SetTCPChecksum": "",
        "SetUDPChecksum": "",
        "StoreIPAddress": "9.9.9.9, src",
        "StrideSwitch": "1, 3",
        "StripToNetworkHeader": "",
        "TCPRewriter": "keep 0 1, MAPPING_CAPACITY 1",
        "Tee": "",
        "TimeFilter": "START_AFTER 1, INTERVAL 3, END_CALL stop",
        "ToIPSummaryDump": "-, FIELDS timestamp ip_src sport tcp_opt ip_opt payload",
        "UDPRewriter": "pattern - - 9.9.9.9 53 0 1",
        "UDPIPEncap": "1.0.0.1, 1, 1.0.0.2, 2",
        "WebGen": "10/8, 10.0.0.1, 1000",
    }
    for name, configuration in elements.items():
        yield name, f"{name}\n{configuration}\0".encode() + packets


def graph_language_inputs():
    """Configurations that together use every part of the language, an archive, and arguments of every type."""
    texts = {
        "empty": "",
        "declarations": "a, b :: A(1, 'x y'); c :: C; a -> b [1] -> [2] c; A(\\<41 /* > */ 42>) -> c // end",
        "lists": "a [0-2, 4] => b :: B, c :: C, d :: D, [1-] e :: E; a => b, c; b, c => [0-] e",
        "groups": "x :: X => ( [0] -> [0]; [1] -> P(1) -> output ) -> (->) -> y :: Y",
        "compound": "elementclass B { $a, K $k, __REST__ $r | -> Q($a, ${k}, $r) -> || -> T -> || ... } S -> B(1, K 2, 3) -> D",
        "scopes": "define($v 1, $w ${x-2}); elementclass A B; c :: { elementclass A C; A($v \"$w\") ; -> ; [1] -> [1] }",
        "nested": "{ -> { -> { -> X -> } -> } -> }" + "(" * 5,
        "requirements": "require(package \"a b\", compact_config, c, library d); provide(e);",
        "lines": "# 12 \"other\"\na :: A(\n#line 4\n);\n/* open",
        "index": "define($l a b c); A(${l[1]}, $(l), '$l', \"$l\", ${$l-${m-n}})",
        "errors": "a -> ; b :: ; C [x] -> A; elementclass ; { $a $b | ; D -> input }",
    }
    for name, text in texts.items():
        yield name, text.encode()
    config = b"a :: A -> B;"
    header = b"%-16s%-12d%-6d%-6d%-8d%-10d`\n"
    yield "archive", (
        b"!<arch>\n" + header % (b"config/", 0, 0, 0, 644, len(config)) + config + header % (b"#1/4", 0, 0, 0, 644, 7) + b"name123\n"
    )


def graph_control_inputs():
    """Commands of the protocol of control sockets. The first byte states the pieces in which they come."""
    texts = {
        "empty": "",
        "lines": "READ a.b c d\r\nWRITE abcd.efgh 1\rCHECKREAD x\nCHECKWRITE y z\nHELP\n\nGET four\nQUIT\nREAD x\n",
        "data": "READDATA a.bc 5\r\n1\r\n23WRITEDATA b 0\nSETDATA c 3\rxyz",
        "until": "READUNTIL a.bc END\n x\r\nEND \nWRITEUNTIL b\rline\r\r\nWRITEUNTIL c X\nopen",
        "wrong": "NOTHING\nREAD\nWRITEDATA a -1\nLLRPC a#80000001 4\n1234\nREADDATA a 99999999999999999999\n",
    }
    for name, text in texts.items():
        yield name, b"\x03" + text.encode()


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, value):
    """A field of a protocol buffer: a number, or bytes after their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


class Date(int):
    """A time in seconds, to distinguish it from numbers."""


def payload(*facts):
    """A block with these facts, each a name and its terms, encoded as by weir (core/trust/src/credential/template.rs)."""
    symbols = []

    def symbol(text):
        # Default symbols are not repeated; this is the only one needed here.
        if text == "node":
            return 24
        if text not in symbols:
            symbols.append(text)
        return 1024 + symbols.index(text)

    def term(value):
        if value is None:
            return field(8, b"")
        if isinstance(value, Date):
            return field(4, int(value))
        if isinstance(value, int):
            return field(2, value)
        if isinstance(value, str):
            return field(3, symbol(value))
        if isinstance(value, bytes):
            return field(5, value)
        return field(9, b"".join(field(1, term(item)) for item in value))

    def fact(name, *terms):
        return field(4, field(1, field(1, symbol(name)) + b"".join(field(2, term(value)) for value in terms)))

    written = b"".join(fact(*each) for each in facts)
    return b"".join(field(1, text.encode()) for text in symbols) + field(3, 6) + written


def payload_inputs():
    """Blocks that the last holder of the chain in fuzz_targets/credential.rs may sign, by one part or by all of them; and some that exceed the grant a little."""
    # RFC 8032, section 7.1, test 1.
    key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    begin = [("weir", "credential", 1, None), ("holder", key)]
    parts = [
        ("profile", "research"),
        ("modules", [bytes([7] * 32)], []),
        ("filter", "udp port 53"),
        ("interfaces", ["eth0", "eth1"]),
        ("view", "payload=none,addresses=anonymised,macs=zeroed"),
        ("writes", ["ttl"]),
        ("cpu", 99_999),
        ("memory", 1 << 20),
        ("bandwidth", 500_000),
        ("records", 1000),
        ("kept", 99),
        ("sessions", 2),
        ("nodes", ["node", "*.a.example.org"]),
        ("not_before", Date(0)),
        ("expires", Date(2_999_999_999)),
        ("delegations", 2),
    ]
    yield "payload", payload(*begin)
    yield "payload-all", payload(*begin, *parts)
    for part in parts:
        yield f"payload-{part[0]}", payload(*begin, part)
    for name, part in {"memory": ("memory", (1 << 20) + 1), "view": ("view", "all"), "delegations": ("delegations", 3)}.items():
        yield f"payload-more-{name}", payload(*begin, part)


def credential_inputs():
    """A chain of two, as bytes and as text as in the tests; and blocks signed for a delegation."""
    text = (FOLDER.parent.parent / "core/trust/tests/credential-1.txt").read_bytes()
    digits = text.strip().split(b":")[1].upper()
    yield "chain", base64.b32decode(digits + b"=" * (-len(digits) % 8))
    yield "text", text
    yield from payload_inputs()


def parser_inputs():
    """Conversations with the modules dns, tls, http and quic."""
    def messages(module, *each):
        return bytes([module]) + b"".join(
            struct.pack("<H", len(message) << 1 | from_server) + message for from_server, message in each)

    name = b"\x03www\x07example\x03org\x00"
    query = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + name + b"\0\1\0\1"
    answer = (struct.pack(">6H", 7, 0x8180, 1, 2, 0, 0) + name + b"\0\1\0\1"
              + b"\xc0\x0c\0\5\0\1\0\0\0\x3c\0\2\xc0\x10" + b"\xc0\x10\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\1")
    loop = struct.pack(">6H", 8, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1"
    yield "dns", messages(0, (0, query), (1, answer))
    yield "dns-loop", messages(0, (0, loop), (1, loop))
    framed = [struct.pack(">H", len(message)) + message for message in (query, answer)]
    yield "dns-tcp", messages(1, (0, framed[0][:5]), (0, framed[0][5:]), (1, framed[1]))

    def extension(kind, body):
        return struct.pack(">HH", kind, len(body)) + body

    host = b"www.example.org"
    server_name = extension(0, struct.pack(">HBH", len(host) + 3, 0, len(host)) + host)
    extensions = b"".join([
        server_name, extension(0x0A0A, b""), extension(16, b"\0\x0c\2h2\x08http/1.1"), extension(13, b"\0\4\4\3\x08\4"),
        extension(43, b"\4\3\4\3\3")])
    hello = (b"\3\3" + 32 * b"r" + b"\0" + b"\0\6\x0a\x0a\x13\1\xc0\x2f" + b"\1\0"
             + struct.pack(">H", len(extensions)) + extensions)
    hello = b"\1" + struct.pack(">I", len(hello))[1:] + hello
    chosen = b"\3\3" + 32 * b"s" + b"\0\xc0\x2f\0\0\0"
    chosen = b"\2" + struct.pack(">I", len(chosen))[1:] + chosen

    def record(kind, body):
        return bytes([kind, 3, 1]) + struct.pack(">H", len(body)) + body

    yield "tls", messages(2, (0, record(22, hello)), (1, record(22, chosen)), (1, record(21, b"\2\x28")))
    yield "tls-fragments", messages(
        2, *[(0, record(22, hello[at : at + 20])) for at in range(0, len(hello), 20)], (1, record(22, chosen)), (1, b""), (1, record(23, 9 * b"d")))
    request = b"GET /index.html?q=1 HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: seed/1\r\n\r\n"
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: a\r\n folded\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    yield "http", messages(3, (0, request), (1, response))
    yield "http-pipelined", messages(3, (0, request + request), (1, response), (1, chunked))
    yield "http-smuggling", messages(
        3, (0, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + request), (1, response))
    yield "http-h2c", messages(3, (0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + 9 * b"\0"))
    # The client's Initial packet of RFC 9001, A.2, without its ciphertext; and one of an unknown version.
    initial = bytes.fromhex("c000000001088394c8f03e5157080000449e7b9aec34")
    # Frames that the target seals: a CRYPTO frame with the hello, and the hello in two frames of two packets, the later one first.
    crypto = lambda at, part: b"\6" + struct.pack(">HH", 0x4000 | at, 0x4000 | len(part)) + part
    yield "quic-hello", messages(5, (0, crypto(0, hello)))
    yield "quic-split", messages(5, (0, crypto(40, hello[40:]) + b"\1"), (0, b"\0" + crypto(0, hello[:40])))
    yield "quic", messages(4, (0, initial + 1178 * b"p"))
    yield "quic-version", messages(4, (0, b"\xc0\xba\xba\xba\xba" + initial[5:] + 1178 * b"p"), (1, b"\xc0\0\0\0\0" + initial[5:16] + b"\0\0\0\1"))


def search_inputs():
    """Patterns, each with its length, and a text."""
    def search(text, *patterns):
        return bytes([len(patterns)]) + b"".join(bytes([len(p)]) + p for p in patterns) + text

    yield "two-patterns", search(b"GET /bin/sh?cmd HTTP/1.1 and some more text to fill a step", b"/bin", b"cmd")
    yield "one-byte", search(40 * b"a" + b"b", b"b")
    yield "at-the-end", search(b"b" + 37 * b"c" + b"ab", b"ab")
    yield "without-a-match", search(bytes(range(1, 100)), b"weir", b"weird", b"trust")


def stream_inputs():
    """Steps of eight bytes each: segments of few connections, and of many."""
    def steps(count, connections):
        mixed = hashlib.sha256(bytes([connections])).digest()
        return b"".join(hashlib.sha256(mixed + bytes([step])).digest()[:8] for step in range(count))

    yield "few", steps(40, 2)
    yield "many", steps(200, 32)


def object_inputs():
    """Changes of object files, each a position of three bytes and the new byte; and images, behind a byte of 64 or more."""
    def changes(which, *changed):
        return bytes([which]) + b"".join(struct.pack("<I", at)[:3] + bytes([byte]) for at, byte in changed)

    yield "unchanged", changes(0)
    yield "code", changes(0, (0x80, 0x90), (0x101, 0xcc))
    yield "header", changes(1, (18, 183))
    yield "several", changes(1, *((at, at % 251) for at in range(0x40, 0x4000, 0x333)))
    # add rax, gs:[rdi]; ret; padding; and a second function that calls the first one.
    yield "image", bytes([128]) + bytes.fromhex("89ff6548030731c0c3cccccccccccccc") + bytes.fromhex("50e8eaffffff59c3")


def tar_member(name, contents):
    """A member as weir writes it: POSIX ustar, with fixed mode, owner and time."""
    head = bytearray(512)
    for at, text in [(0, name), (100, "0000644"), (108, "0000000"), (116, "0000000"), (124, f"{len(contents):011o}"),
                     (136, "0" * 11), (148, " " * 8), (156, "0"), (257, "ustar\x0000")]:
        head[at:at + len(text)] = text.encode()
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return bytes(head) + contents + bytes(-len(contents) % 512)


# The signature of the payload {} by the key whose 32 secret bytes are all 1.
ENVELOPE_KEY = "weir-key:rkeohxlubhyzl7ks3mwtzos5olfgocn7dwkbeg7toseadnapn5opcowp"
ENVELOPE_SIGNATURE = "veLg0e+f4poyS3YRJakfMGqcWCOKpK/odygGjhTkwZv0V+Om/OfLlEQ57kTgEM0N02igz2ne/YdGZ1SOWajECA=="


def envelope(payload, signatures=""):
    encoded = base64.b64encode(payload).decode()
    return f'{{"payload":"{encoded}","payloadType":"application/vnd.in-toto+json","signatures":[{signatures}]}}\n'.encode()


def statement(predicate_type, predicate):
    digest = '{"sha256":"' + "07" * 32 + '"}'
    return ('{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"node.o","digest":' + digest
            + f'}}],"predicateType":"{predicate_type}","predicate":{predicate}}}').encode()


def bundle_inputs():
    """Bundles (first byte 0), envelopes (1) and statements (2)."""
    digest = '{"sha256":"' + "01" * 32 + '"}'
    inputs = ('{"module":{"name":"m 1","digest":' + digest + '},"parameters":{"ports":["53"]},"customisationType":' + digest
              + ',"customisationInstance":' + digest + ',"tier":"proved","calls":"suspendable","backEnd":"llvm","costTable":3,'
              '"nanosecondsPer1000Fuel":250,"target":"x86_64-unknown-linux-gnu","features":"x86-64-v3",'
              '"isolatedAccesses":{"at":[7]},"text":' + digest + "}")
    compilation = statement("https://slsa.dev/provenance/v1", '{"buildDefinition":{"buildType":"urn:weir:compilation:1",'
                            f'"externalParameters":{inputs},"resolvedDependencies":[{{"name":"weir","digest":{digest}}}]}},'
                            '"runDetails":{"builder":{"id":"urn:weir:0.1.0"}}}')
    bounds = statement("urn:weir:bounds:1", '{"costTable":3,"tier":"proved","calls":{"weir_packet":{"constant":80,"perKib":3}},'
                       '"stackBytes":160,"memoryBytes":65536}')
    signed = envelope(b"{}", f'{{"keyid":"{ENVELOPE_KEY}","sig":"{ENVELOPE_SIGNATURE}"}}')
    module = tar_member("module.wasm", b"\0asm\1\0\0\0")
    yield "module", bytes([0]) + module + bytes(1024)
    yield "whole", bytes([0]) + module + tar_member("node.o", b"\x7fELF") + tar_member(
        "node.intoto.json", envelope(compilation)) + tar_member("node.bounds.intoto.json", envelope(bounds)) + bytes(1024)
    yield "signed", bytes([1]) + signed
    yield "other-program", bytes([1]) + envelope(bounds, '{"keyid":"abc","sig":"AAAA"}')
    yield "compilation", bytes([2]) + compilation
    yield "bounds", bytes([2]) + bounds


def page_inputs():
    def request(line, *fields, body=b""):
        head = [line, "Host: 127.0.0.1:7380", *fields]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    yield "asset", request("GET /app.js HTTP/1.1")
    yield "open", request("POST /api/open HTTP/1.1", "Content-Length: 16", body=b'{"token":"0123"}')
    yield "chunked", request("POST /api/open HTTP/1.1", "Transfer-Encoding: chunked", body=b"5\r\n{}   \r\n0\r\n\r\n")
    yield "rows", request("GET /api/rows?session=alice&module=rtt HTTP/1.1", "Authorization: Bearer 00")
    yield "other-origin", request("POST /api/request HTTP/1.1", "Origin: http://other.example", "Sec-Fetch-Site: cross-site")
    yield "report", request("GET /report/0123 HTTP/1.0")


def main():
    targets = {
        "anep": anep_inputs(),
        "arguments": arguments_inputs(),
        "authentication": authentication_inputs(),
        "bundle": bundle_inputs(),
        "capture": capture_inputs(),
        "classify": classify_inputs(),
        "control": control_inputs(),
        "credential": credential_inputs(),
        "datagrams": datagrams_inputs(),
        "elements": elements_inputs(),
        "filter": filter_inputs(),
        "graph-control": graph_control_inputs(),
        "graph-language": graph_language_inputs(),
        "handshake": handshake_inputs(),
        "object": object_inputs(),
        "page": page_inputs(),
        "parser": parser_inputs(),
        "search": search_inputs(),
        "stream": stream_inputs(),
        "view": view_inputs(),
    }
    for target, inputs in targets.items():
        folder = FOLDER / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in inputs:
            (folder / name).write_bytes(contents)


if __name__ == "__main__":
    main()
