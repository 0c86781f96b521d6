#!/usr/bin/env python3
"""Records lab/sample/sample.pcap: half a minute of traffic between real TCP/IP stacks in network namespaces.

    server 192.0.2.10  ──┐                       ┌── office  198.51.100.1-40, 2001:db8:1::/64  (untagged)
    HTTP, DNS, NTP,      ├── mirror ── delays ───┤
    syslog, telnet       │   tcpdump  and losses └── guests  203.0.113.1-12,  2001:db8:20::/64 (VLAN 20)

Every namespace has one TAP interface, and this process is the switch between them. It delays each client's packets by
that client's own round-trip time, drops a few, tags the guests' frames like a trunk port, and copies the frames on the
server's side to a mirror port, where tcpdump listens. (The kernel's netem and 802.1Q modules are not needed.)

The sent data are the same in each recording: they come from SEED. Times, port numbers and sequence numbers differ, as
the kernel chooses them. Nothing leaves the namespaces. All processes are in one PID namespace, so that they and the
network end with this process.

Needs root, Linux, iproute2, iputils-ping, tcpdump and dnsmasq:   sudo lab/sample/record.py
"""

import contextlib
import ctypes
import fcntl
import heapq
import http.server
import itertools
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

FOLDER = pathlib.Path(__file__).resolve().parent
CAPTURE = FOLDER / "sample.pcap"
CAPTURE_BYTES_MAX = 2_000_000
RUN_SECONDS_MAX = 58
TRAFFIC_SECONDS = 30.0
BURST_AT_SECONDS = 18.0
SEED = 20

LINK = "lan0"
GUESTS_VLAN = 20
SERVER_MAC, OFFICE_MAC, GUESTS_MAC = (f"00:00:5e:00:53:{host:02x}" for host in (0x10, 0x20, 0x30))
SERVER4, SERVER6 = "192.0.2.10", "2001:db8::10"
SILENT4 = "192.0.2.66"  # its frames reach the server, which does not have this address and drops them silently
OFFICE4 = [f"198.51.100.{host}" for host in range(1, 41)]
GUESTS4 = [f"203.0.113.{host}" for host in range(1, 13)]
OFFICE6 = [f"2001:db8:1::{host}" for host in range(1, 7)]
GUESTS6 = [f"2001:db8:20::{host}" for host in range(1, 3)]
CONNECTIONS_PER_CLIENT = 9
LOSS = 0.004

# The required contents of the capture, each with a filter that finds them. The README's table is made from this list.
CONTENTS = [
    ("packets", ""),
    ("TCP over IPv4", "ip and tcp"),
    ("TCP over IPv6", "ip6 and tcp"),
    ("connections asked for (SYN without ACK)", "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn or (ip6[6] == 6 and ip6[53] & 0x12 == 2)"),
    ("HTTP requests (IPv4)", "tcp dst port 80 and tcp[(tcp[12] >> 4) * 4 : 4] == 0x47455420"),
    ("resets (IPv4)", "tcp[tcpflags] & tcp-rst != 0"),
    ("SYN to the silent address", f"dst host {SILENT4} and tcp"),
    ("DNS", "udp port 53"),
    ("NTP", "udp port 123"),
    ("syslog", "udp port 514"),
    ("ICMP", "icmp"),
    ("ICMPv6", "icmp6"),
    ("ARP", "arp"),
    ("IPv4 fragments", "ip[6:2] & 0x3fff != 0"),
    ("IPv6 fragments", "ip6[6] == 44"),
    ("in VLAN 20", f"vlan {GUESTS_VLAN}"),
    ("in VLAN 20, IPv6", f"vlan {GUESTS_VLAN} and ip6"),
]

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET, CLONE_NEWPID, PR_SET_PDEATHSIG = 0x40000000, 0x20000000, 1
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


# --- namespaces: they live as long as the processes and interfaces in them ---------------------------------------------


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def ip(*lines):
    """Runs `ip` commands in this process's current namespace."""
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def new_namespace(interface, mac):
    """Moves this process to a new namespace that has one TAP interface, and returns the descriptor of its other end."""
    checked(libc.unshare(CLONE_NEWNET))
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", interface.encode(), IFF_TAP | IFF_NO_PI))
    ip("link set lo up", f"link set {interface} address {mac}")
    return tap


def start_process(work, *arguments):
    """Forks a child that runs `work` in the current namespaces and then ends."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the first process to handle
            work(*arguments)
            status = 0
        except SystemExit as error:
            print(error, file=sys.stderr)
        except BaseException as error:  # a fork must never return into its parent's code
            print(f"record.py: {work.__name__}: {error!r}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            os._exit(status)
    return child


def run_as_init(work):
    """Runs `work` as the first process of a new PID namespace: when it ends, the kernel ends all its children."""
    checked(libc.unshare(CLONE_NEWPID))

    def first():
        checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, interrupted)
        signal.alarm(RUN_SECONDS_MAX)
        work()

    init = start_process(first)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # `init` gets it too
    signal.signal(signal.SIGTERM, lambda number, _frame: os.kill(init, number))
    return os.waitstatus_to_exitcode(os.waitpid(init, 0)[1])


def interrupted(number, _frame):
    raise SystemExit(f"record.py: ended by {signal.Signals(number).name}; nothing was changed")


# --- the switch ------------------------------------------------------------------------------------------------------


def round_trips(seed):
    """Seconds of round trip for every client address: some are near, most a city away, some an ocean away."""
    draw = random.Random(seed)
    table = {}
    for address in OFFICE4 + GUESTS4 + OFFICE6 + GUESTS6:
        near = draw.random()
        milliseconds = draw.uniform(1, 4) if near < 0.25 else draw.lognormvariate(2.7, 0.35) if near < 0.75 else draw.uniform(35, 80)
        table[address] = milliseconds / 1e3
    return table


def addresses(frame):
    """The IP source and destination of a frame, or None and None."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and len(frame) >= 34:
        return socket.inet_ntop(socket.AF_INET, frame[26:30]), socket.inet_ntop(socket.AF_INET, frame[30:34])
    if kind == b"\x86\xdd" and len(frame) >= 54:
        return socket.inet_ntop(socket.AF_INET6, frame[22:38]), socket.inet_ntop(socket.AF_INET6, frame[38:54])
    return None, None


class Switch:
    """Forwards frames with a delay between the server's port and the clients' ports, and copies them to the mirror port."""

    def __init__(self, server, office, guests, mirror, show_from):
        self.server, self.mirror, self.show_from = server, mirror, show_from
        self.ports = {office: (OFFICE_MAC, None), guests: (GUESTS_MAC, GUESTS_VLAN)}
        self.round_trips = round_trips(SEED)
        self.draw = random.Random(SEED + 1)
        self.due, self.order, self.last = [], itertools.count(), {}

    def show(self, frame, vlan):
        if time.monotonic() < self.show_from:  # the namespaces greet each other
            return
        if vlan is not None:
            frame = frame[:12] + struct.pack("!HH", 0x8100, vlan) + frame[12:]
        with contextlib.suppress(BlockingIOError):
            os.write(self.mirror, frame)

    def post(self, now, frame, client, path, action):
        """Queues a frame between client and server for half a round trip, first in, first out."""
        if client is not None and self.draw.random() < LOSS:
            return
        one_way = self.round_trips.get(client, 0.0004) / 2
        at = now + one_way * (1 + min(self.draw.expovariate(20), 1.0))
        at = self.last[path, client] = max(at, self.last.get((path, client), 0.0))
        heapq.heappush(self.due, (at, next(self.order), frame, action))

    def from_server(self, now, frame):
        _, client = addresses(frame)
        for port, (mac, vlan) in self.ports.items():
            if frame[0] & 1 or frame[:6] == bytes.fromhex(mac.replace(":", "")):
                self.show(frame, vlan)
                self.post(now, frame, client, port, lambda sent, port=port: os.write(port, sent))

    def from_client(self, now, frame, port):
        client, _ = addresses(frame)
        _, vlan = self.ports[port]

        def arrive(sent):
            self.show(sent, vlan)
            os.write(self.server, sent)

        self.post(now, frame, client, -port, arrive)

    def turn(self):
        """Waits for the next frame or the next delivery, and processes it."""
        now = time.monotonic()
        wait = min(max(self.due[0][0] - now, 0), 0.05) if self.due else 0.05
        ready, _, _ = select.select([self.server, *self.ports], [], [], wait)
        now = time.monotonic()
        for port in ready:
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame = os.read(port, 65536)
                    if port == self.server:
                        self.from_server(now, frame)
                    else:
                        self.from_client(now, frame, port)
        while self.due and self.due[0][0] <= time.monotonic():
            _, _, frame, action = heapq.heappop(self.due)
            with contextlib.suppress(BlockingIOError):
                action(frame)


# --- the server's namespace --------------------------------------------------------------------------------------------


class Page(http.server.BaseHTTPRequestHandler):
    """`GET /pages/N` gives N bytes of text, anything else 404. A closed connection is the end, as in HTTP/1.0."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "sample", ""
    wbufsize = 65536
    timeout = 10

    def do_GET(self):
        number = self.path.removeprefix("/pages/")
        found = number.isdecimal() and int(number) <= 100_000
        body = random.Random(number).randbytes(int(number)).hex()[: int(number)].encode() if found else b"not here\n"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class WebServer(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 256


def answer_ntp(listener):
    """Answers client requests in the format of RFC 5905, as a stratum-2 server."""
    while True:
        request, peer = listener.recvfrom(512)
        seconds = struct.pack("!II", int(time.time()) + 2_208_988_800, 0)
        reply = struct.pack("!BBbb3I", 0x24, 2, 6, -20, 0, 0, 0x7F000001) + seconds + request[40:48] + seconds + seconds
        listener.sendto(reply, peer)


def swallow(listener):
    while True:
        listener.recvfrom(65536)


def answer_telnet(listener):
    """Greets, reads one line, refuses it."""
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            connection.sendall(b"login: ")
            connection.recv(512)
            connection.sendall(b"Login incorrect\r\n")


def udp_listener(port):
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((SERVER4, port))
    return listener


def serve():
    names = [f"--host-record=host{number}.example,{address}" for number, address in enumerate(OFFICE4)]
    dns = ["dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--user=root", "--pid-file="]
    dns += [f"--listen-address={SERVER4},{SERVER6}", "--bind-interfaces", "--local=/example/", "--log-facility=/dev/null", *names]
    dns += [f"--host-record=www.example,{SERVER4},{SERVER6}", "--cname=mail.example,www.example", "--txt-record=example,v=spf1 -all"]
    named = subprocess.Popen(dns)
    telnet = socket.create_server((SERVER4, 23))
    for work, listener in ((answer_ntp, udp_listener(123)), (swallow, udp_listener(514)), (swallow, udp_listener(9)), (answer_telnet, telnet)):
        threading.Thread(target=work, args=(listener,), daemon=True).start()
    threading.Thread(target=WebServer(("::", 80), Page).serve_forever, daemon=True).start()
    raise RuntimeError(f"dnsmasq ended with exit code {named.wait()}")


# --- the clients' namespaces -----------------------------------------------------------------------------------------


def wait_until(moment):
    time.sleep(max(moment - time.monotonic(), 0))


def connect(client, port, server=None):
    server = server or (SERVER6 if ":" in client else SERVER4)
    return socket.create_connection((server, port), timeout=8, source_address=(client, 0))


def fetch(client, paths, abort=False, host="www.example"):
    """Requests `paths` over one connection, and reads each answer whole."""
    with connect(client, 80) as connection:
        for number, path in enumerate(paths):
            last = "close" if number == len(paths) - 1 else "keep-alive"
            request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sample\r\nConnection: {last}\r\n\r\n"
            connection.sendall(request.encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(65536) or b"\r\n\r\nContent-Length: 0\r\n"
            head, _, body = answer.partition(b"\r\n\r\n")
            left = int(head.lower().partition(b"content-length: ")[2].split()[0]) - len(body)
            while left > 0 and (more := connection.recv(65536)):
                left -= len(more)
        if abort:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def browse(client, start, draw):
    """One client's visits: idle and busy times and page sizes are heavy-tailed, so that their sum is self-similar."""
    pauses = [0.9 * draw.paretovariate(1.4) if draw.random() < 0.6 else draw.uniform(0.05, 0.4) for _ in range(CONNECTIONS_PER_CLIENT + 1)]
    moments = list(itertools.accumulate(pauses))
    for moment in moments[:-1]:
        paths = [f"/pages/{int(min(200 * draw.paretovariate(1.2), 24_000))}" for _ in range(draw.choice((1, 1, 1, 2, 3)))]
        wait_until(start + moment * TRAFFIC_SECONDS / moments[-1])
        fetch(client, paths, abort=draw.random() < 0.04)


def query(client, number, name, kind):
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.settimeout(1)
        resolver.bind((client, 0))
        resolver.sendto(struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + question + struct.pack("!HH", kind, 1), (SERVER4, 53))
        with contextlib.suppress(TimeoutError):
            resolver.recv(4096)


def resolve(clients, start, draw):
    """Queries of every kind that a desktop sends: A, AAAA, PTR, TXT, and nonexistent names."""
    for number in range(150):
        wait_until(start + number * TRAFFIC_SECONDS / 160)
        name, kind = draw.choice(
            [("www.example", 1), ("www.example", 28), ("mail.example", 1), (f"host{draw.randrange(40)}.example", 1)]
            + [(f"{draw.randrange(1, 41)}.100.51.198.in-addr.arpa", 12), ("example", 16), (f"nothing{number}.example", 1)]
        )
        query(draw.choice(clients), draw.randrange(65536), name, kind)


def keep_time(clients, start, draw):
    """NTP requests, log lines, and occasionally a datagram to a closed port, or one in fragments."""
    for number in range(90):
        wait_until(start + number * TRAFFIC_SECONDS / 95)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((draw.choice(clients), 0))
            sender.settimeout(0.5)
            if number % 3 == 0:
                sender.sendto(b"\x23" + bytes(39) + draw.randbytes(8), (SERVER4, 123))
                with contextlib.suppress(TimeoutError):
                    sender.recv(512)
            else:
                sender.sendto(f"<30>sample: job {number} done in {draw.randrange(900)} ms".encode(), (SERVER4, 514))
            if number % 15 == 7:
                sender.sendto(b"anybody there?", (SERVER4, 33_434 + number))
            if number % 15 == 11:
                sender.sendto(draw.randbytes(draw.randrange(2_000, 4_000)), (SERVER4, 9))


def ping(client, start, count, size=56):
    wait_until(start)
    command = ["ping", "-q", "-n", "-c", str(count), "-i", "0.5", "-s", str(size), "-w", "20", "-I", client]
    command.append(SERVER6 if ":" in client else SERVER4)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def scan(client, start):
    """A scan of closed ports, which answer with a reset."""
    wait_until(start)
    for port in range(1000, 1060):
        with contextlib.suppress(OSError):
            connect(client, port).close()


def flood(clients, start, draw):
    """Half-open connections: 150 SYN a second to an address that does not answer."""
    for number in range(600):
        wait_until(start + number / 150)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as half_open:
            half_open.setblocking(False)
            half_open.bind((draw.choice(clients), 0))
            half_open.connect_ex((SILENT4, 443))
            half_open.close()  # so that the kernel does not repeat the SYN


def attack(clients, start):
    """Requests that match the signatures of monitors, and similar ones that do not. All get a 404 or a refusal."""
    code_red = "/default.ida?" + "N" * 224 + "%u9090%u6858%ucbd3%u7801"
    for number, path in enumerate([code_red, code_red.replace("N", "X"), "/default.ida", "/bin/sh", "/usr/local/share/bin/sh", code_red]):
        wait_until(start + number * 1.7)
        fetch(clients[number % len(clients)], [path])
    for line in (b"x; /bin/sh -i\r\n", b"nobody\r\n"):
        with connect(clients[0], 23) as connection:
            connection.recv(64)
            connection.sendall(line)
            connection.recv(64)


def forgiving(work, *arguments):
    """A connection that times out because packets were lost is part of the traffic."""
    with contextlib.suppress(OSError):
        work(*arguments)


def visit(clients4, clients6, start, seed, more):
    """The activities of one client namespace, each in its own thread."""
    jobs = [(browse, client, start, random.Random(f"{seed}{client}")) for client in clients4 + clients6]
    jobs += [(ping, clients4[0], start + 1, 24), (ping, clients6[0], start + 2, 24), *more]
    threads = [threading.Thread(target=forgiving, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- the recording ---------------------------------------------------------------------------------------------------


def record(capture):
    """Builds the network, lets the traffic run, and leaves the capture in the file `capture`."""
    start = time.monotonic() + 2.0
    server = new_namespace(LINK, SERVER_MAC)
    routes = ["198.51.100.0/24", "203.0.113.0/24", "2001:db8:1::/64", "2001:db8:20::/64"]
    ip(f"addr add {SERVER4}/24 dev {LINK}", f"addr add {SERVER6}/64 dev {LINK} nodad", f"link set {LINK} up")
    ip(*(f"route add {network} dev {LINK}" for network in routes))
    services = start_process(serve)

    ports, clients = [], set()
    for name, mac, clients4, clients6 in (("office", OFFICE_MAC, OFFICE4, OFFICE6), ("guests", GUESTS_MAC, GUESTS4, GUESTS6)):
        ports.append(new_namespace(LINK, mac))
        ip(*(f"addr add {client}/32 dev {LINK}" for client in clients4))
        ip(*(f"addr add {client}/128 dev {LINK} nodad" for client in clients6), f"link set {LINK} up")
        ip(f"route add 192.0.2.0/24 dev {LINK}", f"route add 2001:db8::/64 dev {LINK}")
        ip(f"neigh add {SILENT4} lladdr {SERVER_MAC} dev {LINK} nud permanent")
        draw = {job: random.Random(f"{SEED}{name}{job}") for job in ("dns", "time", "flood")}
        more = [(keep_time, clients4, start, draw["time"])]
        if name == "office":
            more += [(resolve, clients4, start, draw["dns"]), (flood, clients4, start + BURST_AT_SECONDS, draw["flood"])]
            more += [(ping, clients4[5], start + 6, 3, 3000), (ping, clients6[1], start + 7, 3, 3000)]
        else:
            more += [(attack, clients4[3:6], start + 5), (scan, clients4[6], start + 12)]
        clients.add(start_process(visit, clients4, clients6, start, SEED, more))

    mirror = new_namespace("mirror0", "00:00:5e:00:53:ff")
    pathlib.Path("/proc/sys/net/ipv6/conf/mirror0/disable_ipv6").write_text("1")
    ip("link set mirror0 arp off", "link set mirror0 up")
    command = ["tcpdump", "-i", "mirror0", "-Q", "in", "-s", "0", "--time-stamp-precision=nano", "-Z", "root", "-w", str(capture)]
    tcpdump = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while "listening on" not in (line := tcpdump.stderr.readline()):
        if not line:
            raise SystemExit("record.py: tcpdump did not start")
    if time.monotonic() > start:
        raise SystemExit("record.py: this machine is too busy: the network was not ready in 2 s; run it again")

    switch = Switch(server, *ports, mirror, start)
    linger_until = None
    while linger_until is None or time.monotonic() < linger_until:
        switch.turn()
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended in (services, tcpdump.pid) or (ended in clients and status != 0):
            raise SystemExit("record.py: a part of the network failed; its message is above")
        clients.discard(ended)
        if not clients and linger_until is None:
            linger_until = time.monotonic() + 1.0
    tcpdump.send_signal(signal.SIGINT)
    print(tcpdump.communicate(timeout=5)[1].strip())


def count(capture, expression):
    """Packets that match, tagged or not: in pcap-filter syntax `vlan` moves the offsets of what comes after it."""
    both = f"({expression}) or (vlan and ({expression}))" if expression and not expression.startswith("vlan") else expression
    listing = subprocess.run(["tcpdump", "-n", "-r", str(capture), both], capture_output=True, text=True, check=True)
    return sum(not line.startswith((" ", "\t")) for line in listing.stdout.splitlines())


def table(capture):
    """Counts the packets of each entry of CONTENTS, as a Markdown table. Refuses a capture without packets of an entry."""
    counts = [(what, count(capture, expression)) for what, expression in CONTENTS]
    missing = [what for what, number in counts if number == 0]
    if missing:
        raise SystemExit(f"record.py: the capture has no {', no '.join(missing)}; run it again")
    return "".join(["| traffic | packets |\n|---|---:|\n", *(f"| {what} | {number:,} |\n" for what, number in counts)])


def main():
    """Records to a temporary file, checks its contents, and then renames it to its final name."""
    unfinished = CAPTURE.with_suffix(".pcap.tmp")
    try:
        record(unfinished)
        size = unfinished.stat().st_size
        if size > CAPTURE_BYTES_MAX:
            raise SystemExit(f"record.py: the capture has {size:,} bytes, more than {CAPTURE_BYTES_MAX:,}; lower CONNECTIONS_PER_CLIENT")
        contents = table(unfinished)
        readme = FOLDER / "README.md"
        before, begin, rest = readme.read_text().partition("<!-- contents -->\n")
        _, end, after = rest.partition("<!-- end of contents -->\n")
        readme.write_text(before + begin + contents + end + after)
        os.replace(unfinished, CAPTURE)
        if "SUDO_UID" in os.environ:
            os.chown(CAPTURE, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
        print(f"{CAPTURE}: {size:,} bytes\n\n{contents}", end="")
    finally:
        unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    if os.geteuid() != 0:
        raise SystemExit("record.py: needs root, to make network namespaces; run: sudo lab/sample/record.py")
    absent = [tool for tool in ("ip", "ping", "tcpdump", "dnsmasq") if not shutil.which(tool)]
    if absent:
        raise SystemExit(f"record.py: not installed: {', '.join(absent)}; on Debian or Ubuntu: apt-get install iproute2 iputils-ping tcpdump dnsmasq-base")
    sys.exit(run_as_init(main))
