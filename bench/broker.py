#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Brokers side by side: Debian's mosquitto and sgpool-broker over TCP, and sgpool-broker over RDMA, each
with the same load of broker-load, in interleaved rounds. Told are medians over the rounds, and the
medians of the ratios to mosquitto in the same round.

usage: broker.py [--rounds N] [--json] [--fan-out | --instructions | --stalled] BUILD
"""
import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# subscribers, bytes, messages, window
SIDE_BY_SIDE = [(1, 256, 40000, 64), (1, 65536, 4000, 16), (64, 256, 1000, 64), (64, 65536, 200, 16)]
# The window is two: what is queued is not what is asked for.
FAN_OUT = [(n, size, messages // n, 2) for size, messages in ((4096, 6400), (1 << 20, 640))
           for n in (1, 8, 64)]
# Bytes of a receive that takes a message of 1 MiB with its head.
RECEIVE = (1 << 20) + 4096
ADDR = os.environ.get("SGP_BROKER_ADDR", "127.0.0.1")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Broker:
    """One that runs; name: mosquitto, tcp or rdma."""

    def __init__(self, name, build, env, *options, under=()):
        self.tcp, self.rdma = free_port(), free_port()
        if name == "mosquitto":
            self.config = tempfile.NamedTemporaryFile("w", suffix=".conf")
            self.config.write(f"listener {self.tcp} 127.0.0.1\nallow_anonymous true\n"
                              "set_tcp_nodelay true\n")
            self.config.flush()
            command = ["mosquitto", "-c", self.config.name]
        else:
            command = [*under, build / "examples/broker/sgpool-broker", "--threads", "1", "--memory", "512",
                       "--tcp", f"127.0.0.1:{self.tcp}", "--rdma", f"{ADDR}:{self.rdma}",
                       *options, *os.environ.get("SGP_BROKER_OPTIONS", "").split()]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for _ in range(1000):
            try:
                socket.create_connection(("127.0.0.1", self.tcp)).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.01)
        sys.exit(f"{name} does not listen")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def run(name, case, build, env, *options, broker_options=(), under=()):
    subscribers, size, messages, window = case
    broker = Broker(name, build, env, *broker_options, under=under)
    command = [build / "examples/broker/broker-load", "--json", "--pid", broker.process.pid,
               "--subscribers", subscribers, "--size", size, "--messages", messages, "--window", window,
               "--warm-up", max(10, messages // 10), "--memory", 1024, *options]
    if name == "rdma":
        command += ["--rdma", "--host", ADDR, "--port", broker.rdma]
    else:
        command += ["--port", broker.tcp]
    try:
        out = subprocess.run([str(c) for c in command], env=env, check=True, stdout=subprocess.PIPE)
    finally:
        broker.end()
    return json.loads(out.stdout)


def median(rows, key):
    return statistics.median(r[key] for r in rows)


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", text)
    return f"{os.cpu_count()} x {model.group(1) if model else 'unknown'}, Linux {os.uname().release}"


def side_by_side(args, build, env):
    print(f"{machine()}; {args.rounds} rounds\n\n"
          "| subscribers | bytes | QoS | broker | delivered/s | us CPU a delivery | rate ratio | CPU ratio |\n"
          "|---|---|---|---|---|---|---|---|", file=args.out)
    for case, qos in ((case, qos) for case in SIDE_BY_SIDE for qos in (0, 1)):
        rows = {name: [] for name in ("mosquitto", "tcp", "rdma")}
        for _ in range(args.rounds):
            for name in rows:
                rows[name].append(run(name, case, build, env, "--qos", qos))
        for name, mine in rows.items():
            pair = lambda key: statistics.median(
                r[key] / m[key] for r, m in zip(mine, rows["mosquitto"]))
            result = {"subscribers": case[0], "bytes": case[1], "qos": qos, "broker": name,
                      "delivered_per_s": median(mine, "delivered_per_s"),
                      "cpu_us_per_delivery": median(mine, "cpu_us_per_delivery"),
                      "rate_ratio": pair("delivered_per_s"),
                      "cpu_ratio": pair("cpu_us_per_delivery")}
            if args.json:
                print(json.dumps(result))
            print("| {subscribers} | {bytes} | {qos} | {broker} | {delivered_per_s:.0f} | "
                  "{cpu_us_per_delivery:.1f} | {rate_ratio:.2f} | {cpu_ratio:.2f} |".format(**result),
                  file=args.out, flush=True)


def fan_out(args, build, env):
    options = ["--receive-size", RECEIVE, "--receive-depth", 2]
    print(f"{machine()}; {args.rounds} rounds\n\n"
          "| subscribers | bytes | delivered/s | us CPU a delivery | of these in user mode |\n"
          "|---|---|---|---|---|", file=args.out)
    for case in FAN_OUT:
        rows = [run("rdma", case, build, env, *options, broker_options=["--receive-size", str(RECEIVE)])
                for _ in range(args.rounds)]
        result = {"subscribers": case[0], "bytes": case[1], "broker": "rdma"}
        for key in ("delivered_per_s", "cpu_us_per_delivery", "user_us_per_delivery"):
            result[key] = median(rows, key)
        if args.json:
            print(json.dumps(result))
        print("| {subscribers} | {bytes} | {delivered_per_s:.0f} | {cpu_us_per_delivery:.1f} | "
              "{user_us_per_delivery:.1f} |".format(**result), file=args.out, flush=True)


def not_the_device(path):
    """Instructions in a file of callgrind's, but for those in softverbs and in what it calls."""
    names, total, device = {}, 0, 0
    inside = target_inside = call = False

    def is_device(text):
        number, _, name = text.partition(" ")
        if name:
            names[number] = "softverbs" in name
        return names[number]

    for line in pathlib.Path(path).read_text(errors="replace").splitlines():
        if line.startswith("ob="):
            inside = target_inside = is_device(line[3:])
        elif line.startswith("cob="):
            target_inside = is_device(line[4:])
        elif line.startswith("calls="):
            call = True
        elif re.match(r"[+*0-9-]", line):
            cost = int((line.split() + ["0"])[1])
            if call:
                device += cost if inside and not target_inside else 0
                call, target_inside = False, inside
            else:
                total += cost
                device += cost if inside else 0
    return total - device


def instructions(args, build, env):
    """By callgrind, the difference of two runs: what begins and ends is not counted."""
    options = ["--receive-size", RECEIVE, "--receive-depth", 2, "--seconds", 600]
    print("| subscribers | bytes | instructions a delivery | of a message, for all |\n|---|---|---|---|",
          file=args.out)
    for subscribers, size, _, window in FAN_OUT:
        counts = []
        for messages in (20, 60):
            with tempfile.TemporaryDirectory() as folder:
                run("rdma", (subscribers, size, messages, window), build, env, *options,
                    broker_options=["--receive-size", str(RECEIVE)],
                    under=["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"])
                counts.append(not_the_device(f"{folder}/out"))
        message = (counts[1] - counts[0]) / 40
        result = {"subscribers": subscribers, "bytes": size, "instructions_per_message": message,
                  "instructions_per_delivery": message / subscribers}
        if args.json:
            print(json.dumps(result))
        print("| {subscribers} | {bytes} | {instructions_per_delivery:.0f} | "
              "{instructions_per_message:.0f} |".format(**result), file=args.out, flush=True)


def stalled(args, build, env):
    """What the 56 get beside 8 that stop reading, and without them."""
    case = (64, 4096, 2000, 32)
    for name in ("tcp", "rdma"):
        ratios = []
        for _ in range(args.rounds):
            with_8 = run(name, case, build, env, "--stalled", 8, "--qos", 1, "--receive-depth", 4)
            without = run(name, (56, *case[1:]), build, env, "--qos", 1, "--receive-depth", 4)
            ratios.append(with_8["delivered_per_s"] / without["delivered_per_s"])
        result = {"broker": name, "stalled": 8, "readers": 56, "rate_ratio": statistics.median(ratios)}
        print(json.dumps(result) if args.json else
              f"{name}: beside 8 that stop reading, 56 subscribers get {result['rate_ratio']:.2f} of "
              f"what they get without ({args.rounds} rounds, median)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fan-out", action="store_true", help="RDMA alone: 1, 8 and 64 subscribers")
    parser.add_argument("--instructions", action="store_true", help="the same, counted by callgrind")
    parser.add_argument("--stalled", action="store_true", help="56 subscribers beside 8 that stop reading")
    parser.add_argument("--real", action="store_true", help="on the machine's own RDMA devices")
    parser.add_argument("build", type=pathlib.Path, help="the build's folder")
    args = parser.parse_args()
    args.out = sys.stderr if args.json else sys.stdout
    build, env = args.build.resolve(), dict(os.environ)
    if not args.real:
        env["LD_PRELOAD"] = str(build / "src/softverbs/libsgpool-softverbs.so")
        env["SGP_SOFTVERBS_WORLD"] = f"bench.{os.getpid()}"
    what = (fan_out if args.fan_out else instructions if args.instructions else stalled if args.stalled
            else side_by_side)
    what(args, build, env)


main()
