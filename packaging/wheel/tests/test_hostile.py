# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Texts of packets in records: bytes that are not UTF-8, markup, control characters."""

import html.parser
import struct

import weir

HOSTILE = b"/\xff\xfe<script>alert(1)</script>\x1b[31m&quot;'\"%00"


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(source, destination, ports, flags, sequence, acknowledgement, payload=b""):
    """A TCP segment in IPv4 and Ethernet."""
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence, acknowledgement, 0x50, flags, 65535, 0, 0) + payload
    pseudo = source + destination + struct.pack(">HH", 6, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp + b"\0" * (len(tcp) % 2))) + tcp[18:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source + destination
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0" + ip + tcp


def capture():
    """A connection with an HTTP request for HOSTILE."""
    a, b = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
    out, back = (40000, 80), (80, 40000)
    request = b"GET " + HOSTILE + b" HTTP/1.1\r\nHost: \xc3\x28<b>\r\n\r\n"
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    frames = [
        frame(a, b, out, 0x02, 99, 0),
        frame(b, a, back, 0x12, 499, 100),
        frame(a, b, out, 0x10, 100, 500),
        frame(a, b, out, 0x18, 100, 500, request),
        frame(b, a, back, 0x18, 500, 100 + len(request), response),
        frame(a, b, out, 0x11, 100 + len(request), 500 + len(response)),
        frame(b, a, back, 0x11, 500 + len(response), 101 + len(request)),
    ]
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(struct.pack("<IIII", 1_700_000_000, at, len(f), len(f)) + f for at, f in enumerate(frames))


def test_texts_are_valid_utf8_in_tables():
    result = weir.run(capture(), "http")
    table = result.table
    table.validate(full=True)
    (row,) = table.select(["method", "path", "host", "status"]).to_pylist()
    assert row["method"] == "GET" and row["status"] == 200
    assert "<script>alert(1)</script>" in row["path"]
    assert "\N{REPLACEMENT CHARACTER}" in row["path"] or "\\xff" in row["path"]


def test_notebooks_show_texts_escaped():
    result = weir.run(capture(), "http")
    shown = result._repr_html_()

    class Tags(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags, self.texts = set(), []

        def handle_starttag(self, tag, attributes):
            self.tags.add(tag)
            assert not attributes

        def handle_data(self, data):
            self.texts.append(data)

    tags = Tags()
    tags.feed(shown)
    assert tags.tags == {"div", "p", "strong", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert any("<script>alert(1)</script>" in text for text in tags.texts)
    assert "\x1b" not in shown


def test_a_notebook_shows_the_first_rows(sample):
    results = weir.run(sample, ["rtt", "flows"])
    assert results._repr_html_().count("<tr>") == 1 + 10 + 1 + 1 + 10
    shown = results["rtt"]._repr_html_()
    assert "… 538 more rows" in shown
    ns = results["rtt"].table["time"][0].value
    assert f".{ns % 10**9:09}</td>" in shown
