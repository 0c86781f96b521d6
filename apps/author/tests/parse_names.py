"""The results of dnspython for the names that apps/author/tests/parse.rs makes: a line for each, as parse.c prints it."""
import sys

import dns.exception
import dns.name

for line in sys.stdin:
    _, digits, offset = line.split(" ")
    try:
        name, length = dns.name.from_wire(bytes.fromhex(digits), int(offset))
        text = b".".join(label for label in name.labels if label)
        print(text.hex(), int(offset) + length)
    except (dns.exception.DNSException, ValueError):
        print("failed")
