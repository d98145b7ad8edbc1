#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sgpool-broker among clients that break the rules, flood it, stop reading, or are killed: the others
notice nothing, and memory stays within its limits.

usage: trouble.py TEST [ARGUMENT]..."""
import json
import os
import random
import signal
import sys
import time

from rig import (KINDS, THREADS, Broker, Client, Raw, check, client, connect_packet, finish, length, packet, path,
                 pub, read, say, string, sub, wait)

MIB = 1 << 20

# ---- what is wrong, as the first packet, and as the second ----

GOOD = connect_packet("c")
FIRST = {
    "no packet": b"\x00\x00",
    "a type that is reserved": b"\xf0\x00",
    "a length of five bytes": b"\x10\xff\xff\xff\xff\x01",
    "a length beyond the limits": b"\x10\xff\xff\xff\x7f",
    "PINGREQ before CONNECT": b"\xc0\x00",
    "PUBLISH before CONNECT": packet(0x30, string(b"a") + b"x"),
    "SUBSCRIBE before CONNECT": packet(0x82, b"\0\1" + string(b"a") + b"\0"),
    "an empty CONNECT": packet(0x10, b""),
    "flags on CONNECT": b"\x11" + GOOD[1:],
    "another protocol": packet(0x10, string(b"MQIsdp") + b"\3\2\0\0" + string(b"c")),
    "a level to come": packet(0x10, string(b"MQTT") + b"\x63\2\0\0" + string(b"c")),
    "a reserved connect flag": packet(0x10, string(b"MQTT") + b"\4\3\0\0" + string(b"c")),
    "a will of QoS 3": packet(0x10, string(b"MQTT") + b"\4\x1e\0\0" + string(b"c") + string(b"w") * 2),
    "a will of QoS 2": packet(0x10, string(b"MQTT") + b"\4\x16\0\0" + string(b"c") + string(b"w") * 2),
    "a will's QoS without a will": packet(0x10, string(b"MQTT") + b"\4\x0a\0\0" + string(b"c")),
    "a will to a wildcard": packet(0x10, string(b"MQTT") + b"\4\6\0\0" + string(b"c") + string(b"#") * 2),
    "a password without a user": packet(0x10, string(b"MQTT") + b"\4\x42\0\0" + string(b"c") * 2),
    "a name that leaves the packet": packet(0x10, string(b"MQTT") + b"\4\2\0\0\xff\xffc"),
    "a name that is no UTF-8": packet(0x10, string(b"MQTT") + b"\4\2\0\0" + string(b"\xff")),
    "a name with a zero": packet(0x10, string(b"MQTT") + b"\4\2\0\0" + string(b"a\0b")),
    "bytes behind a CONNECT": packet(0x10, GOOD[2:] + b"x"),
    "no name, and a session to keep": packet(0x10, string(b"MQTT") + b"\4\0\0\0\0\0"),
}
SECOND = {
    "a second CONNECT": GOOD,
    "CONNACK": b"\x20\2\0\0",
    "SUBACK": b"\x90\3\0\1\0",
    "PINGRESP": b"\xd0\0",
    "PUBREC": b"\x50\2\0\1",
    "PUBLISH of QoS 3": packet(0x36, string(b"a") + b"\0\1x"),
    "PUBLISH of QoS 2": packet(0x34, string(b"a") + b"\0\1x"),
    "PUBLISH without an identifier": packet(0x32, string(b"a") + b"\0\0x"),
    "DUP at QoS 0": packet(0x38, string(b"a") + b"x"),
    "no topic": packet(0x30, string(b"") + b"x"),
    "a topic with a wildcard": packet(0x30, string(b"a/+") + b"x"),
    "a topic that leaves the packet": packet(0x30, b"\xff\xffa"),
    "a topic with a surrogate": packet(0x30, string(b"\xed\xa0\x80") + b"x"),
    "a payload beyond the limits": b"\x30\xff\xff\xff\x7f" + string(b"a"),
    "SUBSCRIBE without filters": packet(0x82, b"\0\1"),
    "SUBSCRIBE without flags": packet(0x80, b"\0\1" + string(b"a") + b"\0"),
    "SUBSCRIBE without an identifier": packet(0x82, b"\0\0" + string(b"a") + b"\0"),
    "SUBSCRIBE of QoS 3": packet(0x82, b"\0\1" + string(b"a") + b"\3"),
    "SUBSCRIBE to a#": packet(0x82, b"\0\1" + string(b"a#") + b"\0"),
    "SUBSCRIBE to #/a": packet(0x82, b"\0\1" + string(b"#/a") + b"\0"),
    "SUBSCRIBE to a+": packet(0x82, b"\0\1" + string(b"a+/b") + b"\0"),
    "SUBSCRIBE to nothing": packet(0x82, b"\0\1" + string(b"") + b"\0"),
    "half a filter": packet(0x82, b"\0\1\0\5ab"),
    "UNSUBSCRIBE without filters": packet(0xa2, b"\0\1"),
    "PUBACK of three bytes": b"\x40\3\0\1\0",
    "PINGREQ with something in it": b"\xc0\1\0",
    "DISCONNECT with flags": b"\xe1\0",
}


def works(broker, what):
    """Those who keep to the rules are served."""
    before = broker.number("subscriptions")
    subs = [sub(broker, k, "-t", "works", "-q", 1, "-C", 1) for k in KINDS]
    wait("they subscribe", lambda: broker.number("subscriptions") == before + 2)
    pub(broker, "rdma", "-t", "works", "-q", 1, "-m", what)
    for s in subs:
        s.ends()
        check(f"it works after {what}", s.output() == what.encode() + b"\n")


def hostile(broker):
    """What the standard forbids ends its connection."""
    for what, data in FIRST.items():
        raw = Raw(broker)
        raw.say(data)
        check(f"{what}: closed", raw.closed())
        raw.close()
    for what, data in SECOND.items():
        raw = Raw(broker, "rude")
        raw.say(data)
        check(f"{what}: closed", raw.closed())
        raw.close()
    raw = Raw(broker, "far")
    raw.say(packet(0x40, b"\x12\x34"))  # an answer to nothing: of no consequence
    raw.say(b"\xc0\0")
    check("PUBACK of nothing is ignored", raw.hear(2) == b"\xd0\0")
    raw.close()
    works(broker, "hostile packets")
    broker.idle("hostile")


def noise(broker):
    """Bytes at random, and good packets with bits that are wrong, cut anywhere."""
    rng = random.Random(int(os.environ.get("SGP_SEED", "11")))
    good = list(SECOND.values()) + [packet(0x32, string(b"a/b") + b"\0\1hello"), b"\xc0\0", GOOD]
    for _ in range(400):
        raw = Raw(broker)
        data = bytearray(b"".join([GOOD] * rng.randrange(2) + rng.choices(good, k=rng.randrange(1, 5))))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            raw.say(bytes(data[:rng.randrange(1, len(data) + 1)]))
        except ConnectionError:
            pass
        raw.close()
    works(broker, "noise")
    broker.idle("noise")


def floods(broker):
    """Connections that say nothing, packets that never end, filters without number."""
    before = broker.number("described_bytes")
    silent = [Raw(broker) for _ in range(200)]
    halves = [Raw(broker, f"half{i}") for i in range(50)]
    for half in halves:
        half.say(b"\x30" + length(16 * MIB) + string(b"a") + b"x" * (MIB // 4))
    works(broker, "half-open connections")
    many = Raw(broker, "many")
    granted = 0
    for i in range(0, 3000, 100):
        many.say(packet(0x82, b"\0\1" + b"".join(string(b"f/%d" % n) + b"\1" for n in range(i, i + 100))))
        answer = many.hear(4 + 100)[4:]
        granted += sum(code <= 1 for code in answer)
    check("filters are limited", granted == 1024, f"{granted} were granted")
    deep = Raw(broker, "deep")
    deep.say(packet(0x82, b"\0\2" + string(b"/" * 60000) + b"\0"))
    check("a filter of many levels is answered", deep.hear(5)[:2] == b"\x90\x03")
    works(broker, "floods")
    for raw in silent + halves + [many, deep]:
        raw.close()
    broker.idle("floods")
    wait("what described them is back", lambda: broker.number("described_bytes") <= before + 65536)


def once(broker):
    """What waits for many is in memory once."""
    n, raws = 8, [Raw(broker, f"wait{i}") for i in range(32)]
    for raw in raws:
        raw.say(packet(0x82, b"\0\1" + string(b"big") + b"\1"))
        raw.hear(5)
    with open(path("message"), "wb") as f:
        f.write(os.urandom(MIB))
    for i in range(n):
        pub(broker, KINDS[i % 2], "-t", "big", "-q", 1, "-f", path("message"))
    broker.sessions(len(raws))  # the publishers' receives are back, too
    live, queued = broker.live(), broker.number("queued_bytes")
    check("the queues refer to it many times", queued > 4 * n * MIB, f"{queued / MIB:.1f} MiB")
    check("it is in memory once", live < 1.25 * n * MIB, f"{live / MIB:.1f} MiB for {n}")
    for raw in raws:
        raw.close()
    broker.idle("once")


def crowd():
    """Receives of 1 MiB are there once, however many clients there are; a message of that is one of them,
    and one send to each."""
    n, size = 24, MIB + 4096
    broker = Broker("--memory", "256", "--receive-size", str(size))
    first = sub(broker, "rdma", "-t", "big", "-q", 1, "--receive-size", size, "--receive-depth", 1)
    broker.subscribed(1)
    works(broker, "receives of 1 MiB")  # both threads may have theirs now
    others = [sub(broker, "rdma", "-t", "big", "-q", 1, "-C", 1, "--receive-size", size,
                  "--receive-depth", 1) for _ in range(n)]
    broker.subscribed(n + 1)
    held, posted = broker.held(), broker.number("shared_receives")
    check("receives are posted", THREADS <= posted <= 32, f"{posted}")
    check("they are there once", held < (posted + 2) * (size + 65536), f"{held / MIB:.1f} MiB held")
    with open(path("message"), "wb") as f:
        f.write(os.urandom(MIB))
    before = broker.numbers()
    pub(broker, "rdma", "-t", "big", "-q", 1, "-f", path("message"))
    for s in others:
        s.ends()
        check("it is what was sent", s.output() == read("message") + b"\n")
    wait("all have acknowledged", lambda: broker.number("acknowledged_total") ==
         before["sgpool_broker_acknowledged_total"] + n + 1)
    writes = broker.number("writes_total") - before["sgpool_broker_writes_total"]
    # A send a subscriber, and to the publisher CONNACK and PUBACK.
    check("a send for each", writes == n + 3, f"{writes}")
    first.kill()
    broker.idle("crowd")
    broker.end()


def iwarp():
    """Many over RDMA on a device whose completion queues can't grow, and where nothing is shared."""
    os.environ["SGP_SOFTVERBS_DEVICES"] = "siw0=siw"
    broker = Broker()
    load = Client(os.environ["SGP_LOAD"], "--rdma", "--host", os.environ.get("SGP_BROKER_ADDR", "127.0.0.1"),
                  "--port", broker.rdma, "--subscribers", 40, "--qos", 1, "--messages", 50)
    load.ends()
    check("each has all", load.output().startswith(b"rdma, 40 subscribers"), load.errors())
    broker.idle("iwarp")
    broker.end()


def stalled():
    """Of 64 subscribers at QoS 1, 8 stop reading: the 56 lose nothing, and memory stays within."""
    memory = 256
    for kind in KINDS:
        # --queue-bytes so that the policy has something to do before the memory is used up.
        broker = Broker("--memory", str(memory), "--queue-messages", "300")
        options = ["--rdma", "--host", os.environ.get("SGP_BROKER_ADDR", "127.0.0.1"), "--port",
                   broker.rdma, "--receive-depth", 4] if kind == "rdma" else ["--port", broker.tcp]
        load = Client(os.environ["SGP_LOAD"], *options, "--subscribers", 64, "--stalled", 8, "--qos", 1,
                      "--size", 4096, "--messages", 700, "--warm-up", 50, "--window", 32, "--json",
                      "--pid", broker.process.pid)
        most = 0
        while not load.ended():
            most = max(most, broker.live())
            time.sleep(0.05)
        load.ends()
        if check("it reports", load.output().startswith(b"{"), load.errors()):
            result = json.loads(load.output())
            say(f"{kind}: 56 of 64: {result['delivered_per_s']:.0f} delivered/s, at most "
                f"{most / MIB:.1f} MiB held")
        check(f"{kind}: memory is within its limits", most <= memory * MIB)
        broker.idle("stalled")
        ended = broker.numbers()['sgpool_broker_ended_total{why="slow"}']
        check(f"{kind}: the 8 are treated by the policy", ended == 8, f"{ended} were")
        broker.end()


# ---- killed ----

LINES = 300


def make_lines(rng):
    with open(path("lines"), "wb") as f:
        for i in range(LINES):
            f.write(b"%d " % i + b"x" * rng.randrange(rng.choice((10, 3000, 40000))) + b"\n")


class Stayer:
    """A subscriber that is there all the time; what it gets is told by numbers of lines."""

    def __init__(self, broker, kind):
        self.kind, self.client, self.seen = kind, sub(broker, kind, "-t", "round/+", "-q", 1, "-v"), 0

    def news(self):
        """What has come since: (round, number) of each line."""
        lines = self.client.output().split(b"\n")[:-1]
        new, self.seen = lines[self.seen:], len(lines)
        return [(int(line.split(b" ")[0][6:]), int(line.split(b" ")[1])) for line in new]

    def has(self, what):
        return (b"round/%d end" % what) in self.client.output()


def one_round(broker, n, rng, stayers):
    """A publisher or a subscriber is killed somewhere in the middle. Returns what was done."""
    make_lines(rng)
    kind, other = rng.choice(KINDS), rng.choice(KINDS)
    before = broker.number("subscriptions")
    dying = sub(broker, other, "-t", "round/+", "-q", 1)
    wait("it subscribes", lambda: broker.number("subscriptions") == before + 1)
    with open(path("lines"), "rb") as f:
        publisher = client(broker, kind, "pub", "-t", f"round/{n}", "-q", 1, "-l", stdin=f)
    victim = rng.choice(("publisher", "subscriber"))
    time.sleep(rng.random() * 0.15)
    if victim == "publisher":
        publisher.kill()
        dying.kill(signal.SIGTERM)
    else:
        dying.kill()
        publisher.ends()
    wait("they are gone", lambda: broker.number("sessions") == len(stayers))
    complete = publisher.process.returncode == 0
    wait("all is delivered", lambda: broker.number("queued_messages") == 0)
    pub(broker, kind, "-t", f"round/{n}", "-q", 1, "-m", f"{LINES} end")
    for s in stayers:
        wait("the end comes", lambda: (b"round/%d %d end" % (n, LINES)) in s.client.output())
        got = s.news()
        numbers = [i for r, i in got if r == n]
        want = list(range(len(numbers) - 1)) + [LINES]
        good = numbers == want and len(got) == len(numbers) and (not complete or len(want) == LINES + 1)
        check(f"round {n}: {victim} killed: {s.kind} has all in order", good,
              f"{len(numbers)} lines, complete {complete}")
    return victim, kind, complete


def killed(rounds=20):
    """Clients are killed at random, and nothing is lost; then the broker is, and everybody notices."""
    seed = int(os.environ.get("SGP_SEED", "0")) or random.randrange(1 << 30)
    say(f"seed {seed}")
    rng = random.Random(seed)
    broker, done = Broker(), {}
    stayers = [Stayer(broker, k) for k in KINDS]
    broker.subscribed(2)
    for n in range(rounds):
        if n % 10 == 9:  # a stayer's output grows, and is read again and again
            for s in stayers:
                s.client.kill(signal.SIGTERM)
            broker.idle(f"round {n}")
            stayers = [Stayer(broker, k) for k in KINDS]
            broker.subscribed(2)
        what = one_round(broker, n, rng, stayers)
        done[what] = done.get(what, 0) + 1
    for s in stayers:
        s.client.kill(signal.SIGTERM)
    broker.idle("killed")
    say(f"{rounds} rounds: " + ", ".join(f"{v} x {' '.join(map(str, k))}" for k, v in sorted(done.items())))
    for _ in range(max(1, rounds // 20)):
        kill_broker(broker, rng)
        broker = Broker(tcp=broker.tcp, rdma=broker.rdma)
    works(broker, "a broker was killed")
    broker.idle("killed")
    broker.end()


def kill_broker(broker, rng):
    make_lines(rng)
    subs = [sub(broker, k, "-t", "round/+", "-q", 1) for k in KINDS]
    broker.subscribed(2)
    with open(path("lines"), "rb") as f:
        publisher = client(broker, "rdma", "pub", "-t", "round/0", "-q", 1, "-l", "--repeat-delay",
                           "0.001", stdin=f)
    wait("it publishes", lambda: broker.number("published_total") > 0)
    time.sleep(rng.random() * 0.1)
    broker.process.kill()
    broker.process.wait()
    ours = subs[KINDS.index("rdma")]
    ours.ends(1)
    check("one line says so", ours.errors().count("\n") == 1, ours.errors())
    publisher.ends(None)
    check("it ends by itself", publisher.process.returncode in (0, 1))
    for s in subs:
        if not s.ended():
            s.kill()


TESTS = {t.__name__: t for t in (hostile, noise, floods, once, crowd, iwarp, stalled, killed)}


def main():
    name, rest = sys.argv[1], sys.argv[2:]
    begin = time.monotonic()
    if name in ("crowd", "iwarp", "stalled", "killed"):
        TESTS[name](*map(int, rest))
    else:
        broker = Broker()
        TESTS[name](broker)
        broker.end()
    say(f"{name}: {time.monotonic() - begin:.1f} s")
    finish()


main()
