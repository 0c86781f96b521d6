#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Takes the pictures of docs/UI.md from a live node, or measures what the page costs the browser and the node.

    sudo apps/ui/web/tests/live_node.py pictures [--weir PROGRAM] [--seconds N] [--into FOLDER]
    sudo apps/ui/web/tests/live_node.py cost [--weir PROGRAM]

The script makes a network namespace with two veth pairs, which ends with it, and sends the packets of lab/sample/sample.pcap
there. For pictures, a node has sessions, holders and refused requests; after some time pictures.mjs takes a picture of each
page. For the cost, a node has 200 sessions, and live-cost.mjs measures. Needs root, and what the browser tests need. pngquant
makes the pictures smaller, if it is there."""

import argparse
import math
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
SAMPLE = ROOT / "lab/sample/sample.pcap"
IN_NAMESPACE = "WEIR_LIVE_NODE_NAMESPACE"
NODE_ADDRESS = "127.0.0.1:7353"

NODE = """
[node]
name = "ix-1"
socket = "{folder}/node.sock"
state = "{folder}/state"
memory = "3 GiB"
{remote}
[[interface]]
name = "eth0"
outgoing = false
[[link]]
interface = "eth1"
rate = "50 Mbit/s"
"""

REMOTE = """
[remote]
listen = "{address}"
key = "{folder}/node.key"
name = "ix-1.example"
roots = ["{operator}"]
operators = ["{operator}"]
"""

# Sessions of the operator: name, options, modules. `crowded` has a slice that is too short for its module.
SESSIONS = [
    ("alarms", ["--cpu", "period=20ms,slice=1ms", "--memory", "128 MiB", "--channel", "interface=eth0"], ["scan", "syn-flood"]),
    ("crowded", ["--cpu", "period=50ms,slice=250us", "--channel", "interface=eth0,queue=128"], ["spin,interval=30us"]),
    ("flows", ["--cpu", "period=20ms,slice=3ms", "--memory", "320 MiB", "--channel", "interface=eth0"], ["flows", "talkers"]),
    ("latency", ["--cpu", "period=20ms,slice=2ms", "--memory", "128 MiB", "--channel", "interface=eth0,filter=tcp"], ["latency"]),
    ("mark", ["--cpu", "period=20ms,slice=1ms", "--channel", "interface=eth0,filter=udp,forward=up",
              "--output", "name=up,link=eth1,reserve=8Mbit/s,cap=20Mbit/s"], ["dscp-mark"]),
    ("names", ["--cpu", "period=20ms,slice=1ms", "--memory", "128 MiB", "--channel", "interface=eth0,filter=port 53"], ["dns"]),
]


def run(*words, check=True, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done


def frames():
    """The packets of the sample capture."""
    data, at, all_frames = SAMPLE.read_bytes(), 24, []
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    while at + 16 <= len(data):
        length = struct.unpack(f"{order}IIII", data[at : at + 16])[2]
        all_frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return all_frames


def send(interface, is_over):
    """Sends the packets again and again, at a rate that rises and falls."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind((interface, 0))
    packets = [frame for frame in frames() if len(frame) <= 1514]
    number, begin = 0, time.monotonic()
    while not is_over.is_set():
        rate = 1_900 + 700 * math.sin((time.monotonic() - begin) / 9)
        for _ in range(round(rate / 50)):
            sender.send(packets[number % len(packets)])
            number += 1
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=["pictures", "cost"])
    parser.add_argument("--weir", default=str(ROOT / "target/release/weir"))
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--into", default=str(ROOT / "docs/images"))
    args = parser.parse_args()
    if IN_NAMESPACE not in os.environ:
        if os.geteuid() != 0:
            sys.exit("SKIPPED: needs root, for a network namespace")
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])
    run("ip", "link", "set", "lo", "up")
    for one, other in [("eth0", "gen0"), ("eth1", "out0")]:
        run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
        for end in (one, other):
            run("ip", "link", "set", end, "addrgenmode", "none")
            run("ip", "link", "set", end, "up")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("WEIR_")}
        environment |= {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_RUNTIME_DIR": str(folder)}
        call = lambda *words, check=True: run(args.weir, *words, check=check, env=environment).stdout.strip()
        {"pictures": pictures, "cost": cost}[args.task](folder, args, environment, call)


def start_node(folder, args, environment, config):
    (folder / "node.toml").write_text(config)
    with open(folder / "log", "w") as log:
        node = subprocess.Popen([args.weir, "node", "-c", folder / "node.toml"], stderr=log, env=environment)
    deadline = time.monotonic() + 60
    while not (folder / "node.sock").exists():
        if node.poll() is not None or time.monotonic() > deadline:
            node.kill()
            sys.exit(f"the node does not run: {(folder / 'log').read_text()}")
        time.sleep(0.1)
    return node


def cost(folder, args, environment, call):
    sessions = "".join(
        f'[[session]]\nname = "s{number:03}"\nmemory = "2 MiB"\nchannel = [{{ interface = "eth0", filter = "port {7000 + number}" }}]\n'
        for number in range(199)
    )
    config = NODE.format(folder=folder, remote="") + sessions
    node = start_node(folder, args, environment, config)
    is_over = threading.Event()
    try:
        local = ["--socket", folder / "node.sock"]
        call("session", "create", "busy", "--cpu", "period=20ms,slice=4ms", "--channel", "interface=eth0", *local)
        call("load", "busy", "flows", *local)
        threading.Thread(target=send, args=("gen0", is_over), daemon=True).start()
        measured = subprocess.run(["node", HERE / "live-cost.mjs", args.weir, folder / "node.sock", str(node.pid), "busy"], env=environment)
    finally:
        is_over.set()
        node.terminate()
        node.wait()
    sys.exit(measured.returncode)


def pictures(folder, args, environment, call):
    weir = args.weir
    names = ["node", "operator", "researcher", "student", "watcher"]
    keys = {name: call("key", "new", folder / f"{name}.key") for name in names}
    remote_access = REMOTE.format(folder=folder, operator=keys["operator"], address=NODE_ADDRESS)
    node = start_node(folder, args, environment, NODE.format(folder=folder, remote=remote_access))
    is_over = threading.Event()
    pages = []
    try:
        local = ["--socket", folder / "node.sock"]
        for name, options, modules in SESSIONS:
            call("session", "create", name, *options, *local)
            for module in modules:
                call("load", name, module, *local)
        grant = ["grant", "--key", folder / "operator.key", "--until", "2027-06-01", "--at", "ix-1.example"]
        call(*grant, "--to", keys["researcher"], "--module", "rtt", "--module", "port-count", "--cpu", "20%", "--memory", "160MiB",
             "--sessions", "3", "--bandwidth", "1Mbit/s", "--delegations", "1", "--out", folder / "researcher.credential")
        call("delegate", folder / "researcher.credential", "--key", folder / "researcher.key", "--to", keys["student"],
             "--module", "port-count", "--cpu", "5%", "--memory", "48MiB", "--sessions", "1", "--bandwidth", "0bit/s",
             "--until", "2027-01-15", "--out", folder / "student.credential")
        call(*grant, "--to", keys["watcher"], "--module", "rtt", "--cpu", "5%", "--memory", "32MiB", "--out", folder / "watcher.credential")
        remote = lambda name: ["--node", f"{keys['node']}@{NODE_ADDRESS}", "--key", folder / f"{name}.key", "--credential", folder / f"{name}.credential"]
        for holder, session, slice_, memory, module in [
            ("researcher", "study", "500us", "96 MiB", "rtt"),
            ("student", "thesis", "200us", "32 MiB", "port-count,ports=53"),
            ("watcher", "watch", "100us", "24 MiB", "rtt"),
        ]:
            call("session", "create", session, "--cpu", f"period=10ms,slice={slice_}", "--memory", memory, "--records-per-second", "300", "--kept-packets", "16",
                 "--channel", "interface=eth0", *remote(holder))
            call("load", session, module, *remote(holder))
        # Requests that their holders have no right to.
        call("session", "change", "thesis", "--memory", "60 MiB", *remote("student"), check=False)
        call("load", "study", "scan", *remote("researcher"), check=False)
        call("session", "change", "study", "--output", "name=up,link=eth1,cap=2Mbit/s", *remote("researcher"), check=False)
        # So that the report of the picture tells the time of a run without compilation.
        call("run", "-r", SAMPLE, "--report", folder / "report.html")
        threading.Thread(target=send, args=("gen0", is_over), daemon=True).start()
        options = ["--node", f"{keys['node']}@{NODE_ADDRESS}", "--key", folder / "operator.key", "--revocation-list", folder / "revoked"]
        page = subprocess.Popen([weir, "ui", *options], stdout=subprocess.PIPE, text=True, env=environment)
        pages.append(page)
        address = page.stdout.readline().split()[-1]
        browser = subprocess.run(["node", HERE / "pictures.mjs", address, args.into, SAMPLE, str(args.seconds)], env=environment)
        if browser.returncode != 0:
            sys.exit("the pictures were not taken")
    finally:
        is_over.set()
        for process in [*pages, node]:
            process.terminate()
            process.wait()
    if shutil.which("pngquant"):
        for picture in sorted(pathlib.Path(args.into).glob("ui-*.png")):
            run("pngquant", "--force", "--ext", ".png", "256", picture)


main()
