#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks the Prometheus rules and the Grafana dashboard against a live node.

    sudo contrib/check.py [--weir PROGRAM] [--seconds N]

The script makes a network namespace with a veth pair, which ends with it. There it runs a node with sessions that send,
receive and lose packets, and Prometheus, which scrapes the node. Each expression of the rules and the dashboard has to
return data; an alert's expression without its comparison. Rules are also checked by promtool, with prometheus/weir.test.yml.
Without Prometheus or root it says SKIPPED. Exit status: 0 if all checks pass or are skipped, 1 if one fails."""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE / "prometheus/weir.rules.yml"
TESTS = HERE / "prometheus/weir.test.yml"
DASHBOARD = HERE / "grafana/weir.json"
IN_NAMESPACE = "WEIR_CONTRIB_NAMESPACE"
METRICS, REMOTE, PROMETHEUS = "127.0.0.1:9137", 7353, "127.0.0.1:9090"

NODE = """
[node]
socket = "{folder}/node.sock"
state = "{folder}/state"
metrics = "{metrics}"
[remote]
listen = "127.0.0.1:{remote}"
key = "{folder}/node.key"
operators = ["{operator}"]
[[interface]]
name = "right"
[[link]]
interface = "left"
rate = "50 Mbit/s"
"""

# The node's sessions: one sends, one observes and has findings, one is too slow for its short queue.
SESSIONS = [
    ["create", "traffic", "--cpu", "period=10ms,slice=500us", "--channel", "interface=right",
     "--output", "name=flood,link=left,cap=20Mbit/s"],
    ["create", "modest", "--cpu", "period=10ms,slice=2ms", "--channel", "interface=right"],
    ["create", "greedy", "--cpu", "period=10ms,slice=1ms,borrow", "--channel", "interface=right,queue=64"],
]
MODULES = [["traffic", "flood"], ["modest", "scan"], ["greedy", "spin,interval=10us"]]

SCRAPE = """
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: weir
    static_configs: [{{ targets: ["{metrics}"] }}]
"""


def command(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done


def ask(path, **arguments):
    """Asks Prometheus, and returns its data or its error."""
    url = f"http://{PROMETHEUS}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"], None
    except urllib.error.HTTPError as error:
        return None, json.load(error).get("error", str(error))


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"{what} did not happen within {seconds} s")


def without_comparison(expression):
    """The expression of an alert without its last comparison with a number."""
    value, compared = re.subn(r"\s(?:==|!=|>=|<=|>|<)\s*[0-9.e-]+\s*$", "", expression)
    if compared != 1:
        sys.exit(f"no comparison with a number at the end of: {expression}")
    return value


def expressions():
    """Pairs of a name and an expression: of all rules, as Prometheus has loaded them, and of all panels and variables."""
    groups, error = ask("rules")
    if error:
        sys.exit(f"rules: {error}")
    for group in groups["groups"]:
        for rule in group["rules"]:
            alert = rule["type"] == "alerting"
            yield f"rule {rule['name']}", without_comparison(rule["query"]) if alert else rule["query"]
            if rule["health"] != "ok":
                yield f"rule {rule['name']} is {rule['health']}: {rule.get('lastError')}", "vector(0) > 1"
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "10s")
            yield f"panel {panel['title']}", text.replace("$instance", ".*").replace("$session", ".*")
    for variable in dashboard["templating"]["list"]:
        if found := re.fullmatch(r"label_values\((.*), (\w+)\)", variable.get("definition", "")):
            yield f"variable {variable['name']}", f"count by ({found[2]}) ({found[1].replace('$instance', '.*')})"


def check(weir, seconds, folder):
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", "left", "type", "veth", "peer", "name", "right")
    command("ip", "link", "set", "left", "up")
    command("ip", "link", "set", "right", "up")
    for name in ("node", "operator"):
        command(weir, "key", "new", folder / f"{name}.key")
    operator = re.search(r"weir-key:\S+", command(weir, "key", "show", folder / "operator.key").stdout)[0]
    settings = NODE.format(folder=folder, metrics=METRICS, remote=REMOTE, operator=operator)
    (folder / "node.toml").write_text(settings)
    (folder / "prometheus.yml").write_text(SCRAPE.format(rules=RULES, metrics=METRICS))
    os.environ["WEIR_SOCKET"] = str(folder / "node.sock")
    os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = str(folder)
    logs = [open(folder / f"{name}.log", "wb") for name in ("node", "prometheus")]
    started = []
    try:
        started.append(subprocess.Popen([weir, "node", "-c", folder / "node.toml"], stdout=logs[0], stderr=logs[0]))
        wait_for("the node's start", lambda: urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=5))
        for words in SESSIONS:
            command(weir, "session", *words)
        for words in MODULES:
            command(weir, "load", *words)
        # A connection that is no handshake, so that refused connections have a series.
        with socket.create_connection(("127.0.0.1", REMOTE), timeout=5) as peer:
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                   f"--web.listen-address={PROMETHEUS}", "--log.level=warn"]
        started.append(subprocess.Popen(["prometheus", *options], stdout=logs[1], stderr=logs[1]))
        wait_for("Prometheus' start", lambda: ask("query", query='up{job="weir"} == 1')[0]["result"])
        time.sleep(seconds)
        failed = total = 0
        for name, expression in expressions():
            data, error = ask("query", query=expression)
            total += 1
            if error or not data["result"]:
                failed += 1
                print(f"FAILED  {name}: {expression}: {error or 'no data'}")
        print(f"{total} expressions, {failed} without data")
        # Traffic flows and is lost, so these are more than series of zeros.
        for expression in ("sum(rate(weir_session_received_packets_total[10s])) > 0",
                           'sum(session_cause:weir_session_dropped_packets:rate5m{session="greedy"}) > 0',
                           "sum(rate(weir_link_packets_total[10s])) > 0"):
            data, error = ask("query", query=expression)
            if error or not data["result"]:
                failed += 1
                print(f"FAILED  {expression}: {error}")
        alerts = {alert["labels"]["alertname"] for alert in ask("alerts")[0]["alerts"]}
        print(f"alerts, pending or firing: {', '.join(sorted(alerts))}")
        if "WeirSessionDropsPackets" not in alerts:
            failed += 1
            print("FAILED  no alert for the session that loses packets")
        return failed
    except SystemExit:
        print((folder / "node.log").read_text(errors="replace")[-2000:], (folder / "prometheus.log").read_text(errors="replace")[-2000:])
        raise
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in logs:
            log.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--weir", default=os.environ.get("WEIR", "weir"))
    arguments.add_argument("--seconds", type=int, default=20, help="time for which the node is scraped")
    asked = arguments.parse_args()
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            print(f"SKIPPED: {program} is not there (apt-get install prometheus)")
            return
    weir = shutil.which(asked.weir)
    if weir is None:
        sys.exit(f"{asked.weir} is not in PATH: name it with --weir")
    if IN_NAMESPACE not in os.environ:
        for words in (["promtool", "check", "rules", RULES], ["promtool", "test", "rules", TESTS]):
            print(command(*words).stdout.strip())
        if os.geteuid() != 0:
            print("SKIPPED: the live node needs root")
            return
        # The programs end with the process namespace, and the interfaces with the network namespace.
        namespaces = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        script = [sys.executable, str(HERE / "check.py"), "--weir", weir, "--seconds", str(asked.seconds)]
        sys.exit(subprocess.run([*namespaces, *script], env={**os.environ, IN_NAMESPACE: "1"}).returncode)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(1 if check(weir, asked.seconds, pathlib.Path(folder)) else 0)


if __name__ == "__main__":
    main()
