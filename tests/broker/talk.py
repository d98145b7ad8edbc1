#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sgpool-broker between Debian's mosquitto_pub and mosquitto_sub over TCP and sgpool-pub and
sgpool-sub over RDMA: every message arrives as it was sent, at everybody it is for.

usage: talk.py TEST..."""
import os
import random
import sys
import time

from rig import (KINDS, LIMIT, Broker, Raw, check, client, finish, path, packet, pub, say, string, sub,
                 wait)

MIB = 1 << 20
SIZES = [0, 1, 126, 127, 128, 505, 4096, 16383, 65535, 65536, 65537, MIB, 16 * MIB]


def exchange(broker):
    """Each size, from each kind of publisher to each kind of subscriber, at QoS 0 and 1."""
    for i, size in enumerate(SIZES):
        qos = i % 2
        content = random.Random(size).randbytes(size)
        with open(path("message"), "wb") as f:
            f.write(content)
        subs = [sub(broker, k, "-t", f"size/{size}", "-q", qos, "-C", 2, "-N") for k in KINDS]
        broker.subscribed(2)
        for kind in KINDS:
            what = ("-f", path("message")) if size else ("-n",)
            pub(broker, kind, "-t", f"size/{size}", "-q", qos, *what)
        for kind, s in zip(KINDS, subs):
            s.ends()
            got = s.output()
            check(f"{size} bytes to {kind}", got == content * 2, f"{len(got)} bytes came")
        broker.sessions(0)
    check("no payload was copied", broker.number("payload_bytes_copied_total") == 0)
    check("no memory was registered", broker.number("data_path_registrations_total") == 0)
    broker.idle("exchange")


TOPICS = ["a", "a/b", "a/b/c", "a/c", "/a", "a/", "b", "b/b/b", "$x/a", "ä/€", "a//b"]
FILTERS = {
    "#": ["a", "a/b", "a/b/c", "a/c", "/a", "a/", "b", "b/b/b", "ä/€", "a//b"],
    "+": ["a", "b"],
    "a/#": ["a", "a/b", "a/b/c", "a/c", "a/", "a//b"],
    "a/+": ["a/b", "a/c", "a/"],
    "+/+": ["a/b", "a/c", "/a", "a/", "ä/€"],
    "+/b/+": ["a/b/c", "b/b/b"],
    "/+": ["/a"],
    "$x/#": ["$x/a"],
    "a/+/b": ["a//b"],
    "ä/€": ["ä/€"],
}


def wildcards(broker):
    """Topics reach those whose filters match, and nobody else."""
    subs = [(f, k, sub(broker, k, "-t", f, "-t", "end/end/end/end", "-v", "-C", len(want) + 1))
            for f, want in FILTERS.items() if f != "#" for k in KINDS]
    # '#' also gets the end, once or twice.
    subs += [("#", k, sub(broker, k, "-t", "#", "-v", "-C", len(FILTERS["#"]) + 1)) for k in KINDS]
    broker.subscribed(2 * len(subs) - 2)
    for i, topic in enumerate(TOPICS):
        pub(broker, KINDS[i % 2], "-t", topic, "-m", f"to {topic}")
    pub(broker, "tcp", "-t", "end/end/end/end", "-m", "end")
    for f, kind, s in subs:
        s.ends()
        want = [f"{t} to {t}" for t in FILTERS[f]] + ["end/end/end/end end"]
        got = s.output().decode().splitlines()
        check(f"filter {f} over {kind}", sorted(got) == sorted(want), f"{got}")
    broker.idle("wildcards")


def retained(broker):
    """The last retained message is there for who comes later, until an empty one takes it away."""
    big = random.Random(1).randbytes(300000)
    with open(path("message"), "wb") as f:
        f.write(big)
    for kind in KINDS:
        pub(broker, kind, "-t", f"kept/{kind}", "-r", "-m", "old")
        broker.sessions(0)  # the next comes by another connection: it must not overtake this one
        pub(broker, kind, "-t", f"kept/{kind}", "-r", "-q", 1, "-f", path("message"))
    pub(broker, "rdma", "-t", "not/kept", "-m", "gone")
    wait("two are retained", lambda: broker.number("retained_messages") == 2)
    for kind in KINDS:
        s = sub(broker, kind, "-t", "kept/#", "-t", "not/#", "-C", 2, "-N")
        s.ends()
        check(f"both come to {kind}", s.output() == big * 2, f"{len(s.output())} bytes came")
        s = sub(broker, kind, "-t", "kept/tcp", "--retained-only", "-C", 1, "-N")
        s.ends()
        check(f"it is flagged to {kind}", s.output() == big)
    for kind in KINDS:
        pub(broker, kind, "-t", f"kept/{kind}", "-r", "-n")
    wait("none is retained", lambda: broker.number("retained_messages") == 0)
    for kind in KINDS:
        s = sub(broker, kind, "-t", "kept/#", "-C", 1, "-W", 1)
        s.ends(27)
        check(f"nothing comes to {kind}", s.output() == b"")
    broker.idle("retained")


def wills(broker):
    """A client that is killed leaves its will, one that disconnects does not."""
    watchers = [sub(broker, k, "-t", "will/#", "-v", "-C", 3) for k in KINDS]
    broker.subscribed(2)
    for kind in KINDS:
        dying = sub(broker, kind, "-t", "x", "--will-topic", f"will/{kind}", "--will-payload",
                    f"{kind} is gone", "--will-qos", 1, "--will-retain")
        leaving = sub(broker, kind, "-t", "x", "--will-topic", f"will/{kind}/never",
                      "--will-payload", "never")
        broker.subscribed(4)
        leaving.kill(15)
        broker.sessions(3)
        dying.kill()
        broker.sessions(2)
    pub(broker, "rdma", "-t", "will/end", "-m", "end")
    for kind, w in zip(KINDS, watchers):
        w.ends()
        got = sorted(w.output().decode().splitlines())
        check(f"wills to {kind}", got == ["will/end end", "will/rdma rdma is gone",
                                          "will/tcp tcp is gone"], f"{got}")
    check("both wills are retained", broker.number("retained_messages") == 2)
    for kind in KINDS:
        pub(broker, kind, "-t", f"will/{kind}", "-r", "-n")
    broker.idle("wills")


def keep_alive(broker):
    """Who says nothing for half as much again as he promised is gone, and leaves his will."""
    watcher = sub(broker, "rdma", "-t", "will/#", "-v", "-C", 1)
    # One that keeps its promise, over RDMA; it has a second and a half for each half of its time.
    lively = sub(broker, "rdma", "-t", "x", "-k", 3, "-C", 1)
    broker.subscribed(2)
    begin = time.monotonic()
    silent = Raw(broker, "silent", 1, ("will/silent", "silence"))
    check("the silent one is disconnected", silent.closed())
    check("but not before its time", time.monotonic() - begin > 1)
    silent.close()
    watcher.ends()
    check("its will comes", watcher.output() == b"will/silent silence\n")
    time.sleep(5)
    pub(broker, "tcp", "-t", "x", "-m", "still there")
    lively.ends()
    check("one that pings stays", lively.output() == b"still there\n")
    broker.idle("keep_alive")


def qos(broker):
    """A SUBSCRIBE at 2 is granted 1, a PUBLISH at 2 ends the connection, session 0 is refused."""
    raw = Raw(broker, "two")
    raw.say(packet(0x82, b"\0\7" + string(b"q") + b"\2"))
    check("2 is granted as 1", raw.hear(5) == b"\x90\x03\0\7\1")
    pub(broker, "rdma", "-t", "q", "-q", 1, "-m", "once")
    check("it comes at QoS 1", raw.hear(11)[:2] == b"\x32\x09")
    raw.say(packet(0x34, string(b"q") + b"\0\1two"))
    check("a PUBLISH at 2 closes", raw.closed())
    raw.close()
    raw = Raw(broker)
    raw.say(packet(0x10, string(b"MQTT") + b"\4\0\0\0" + string(b"stay")))
    check("CleanSession 0 gets 3", raw.hear(4) == b"\x20\x02\0\3" and raw.closed())
    raw.close()
    # A message that is not acknowledged stays in flight; when it is, the next ones come.
    raw = Raw(broker, "slow")
    raw.say(packet(0x82, b"\0\1" + string(b"q") + b"\1"))
    raw.hear(5)
    with open(path("lines"), "wb") as f:
        f.write(b"".join(b"%d\n" % i for i in range(1000)))
    with open(path("lines"), "rb") as f:
        pub(broker, "rdma", "-t", "q", "-q", 1, "-l", stdin=f)
    for i in range(1000):
        head = raw.hear(2)
        body = raw.hear(head[1])
        if not check("in order", body[5:] == b"%d" % i, f"{body} is not {i}"):
            break
        raw.say(b"\x40\x02" + body[3:5])
    raw.close()
    broker.idle("qos")


def lines(broker):
    """Many messages in a row, all four ways, none lost and in order."""
    n = 5000
    text = b"".join(b"%d %s\n" % (i, b"x" * (i * 7919 % 3000)) for i in range(n))
    with open(path("lines"), "wb") as f:
        f.write(text)
    for kind in KINDS:
        subs = [sub(broker, k, "-t", "lines", "-q", 1, "-C", n) for k in KINDS]
        broker.subscribed(2)
        with open(path("lines"), "rb") as f:
            pub(broker, kind, "-t", "lines", "-q", 1, "-l", stdin=f)
        for k, s in zip(KINDS, subs):
            s.ends()
            check(f"lines from {kind} to {k}", s.output() == text, f"{len(s.output())} bytes came")
        broker.sessions(0)
    broker.idle("lines")


def usage(broker):
    """What is asked wrongly, or can't be, ends with one line and its status."""
    def one(kind, what, status, *options):
        c = client(broker, kind, what, *options)
        c.ends(status)
        text = c.errors()
        check(f"one line: {options}", text.count("\n") == 1 and text.startswith(f"sgpool-{what}: "),
              text)
    one("rdma", "pub", 2, "-t", "a")
    one("rdma", "pub", 2, "-m", "a")
    one("rdma", "pub", 2, "-t", "a/#", "-m", "a")
    one("rdma", "pub", 2, "-t", "a", "-m", "a", "-n")
    one("rdma", "pub", 2, "-t", "a", "-m", "a", "-q", 2)
    one("rdma", "pub", 2, "-t", "a", "-m", "a", "--nothing")
    one("rdma", "pub", 2, "-t", "a", "-m")
    one("rdma", "pub", 1, "-t", "a", "-f", path("is not there"))
    one("rdma", "pub", 1, "-t", "a", "-m", "a", "-p", 1)
    one("rdma", "pub", 1, "-t", "a", "-m", "a", "-h", "no such host")
    one("rdma", "sub", 2)
    one("rdma", "sub", 2, "-t", "a+")
    one("rdma", "sub", 2, "-t", "a", "-C", 0)
    one("rdma", "sub", 1, "-t", "a", "-p", 1)
    for what in ("pub", "sub"):
        c = client(broker, "rdma", what, "--help")
        c.ends()
        check("help", c.output().startswith(b"usage: sgpool-"), c.output())
    broker.idle("usage")


def few(broker):
    """A little of everything with few processes: where each takes a second to begin."""
    sizes = [0, 1, 505, 4096, 65537, MIB, 16 * MIB]
    contents = [random.Random(size).randbytes(size) for size in sizes]
    subs = [sub(broker, k, "-t", "few/+", "-q", 1, "-C", len(sizes) + 2, "-N") for k in KINDS]
    broker.subscribed(2)
    for i, content in enumerate(contents):
        with open(path("message"), "wb") as f:
            f.write(content)
        what = ("-f", path("message")) if content else ("-n",)
        pub(broker, KINDS[i % 2], "-t", f"few/{i}", "-q", 1, "-r", *what)
    dying = sub(broker, "rdma", "-t", "x", "--will-topic", "few/will", "--will-payload", "gone")
    broker.subscribed(3)
    dying.kill()
    broker.sessions(2)
    pub(broker, "rdma", "-t", "few/end", "-m", "end")
    for kind, s in zip(KINDS, subs):
        s.ends()
        got = s.output()
        check(f"all comes to {kind}", got == b"".join(contents) + b"goneend", f"{len(got)} bytes came")
    s = sub(broker, "rdma", "-t", "few/5", "-C", 1, "-N")
    s.ends()
    check("it was retained", s.output() == contents[5], f"{len(s.output())} bytes came")
    check("no payload was copied", broker.number("payload_bytes_copied_total") == 0)
    check("no memory was registered", broker.number("data_path_registrations_total") == 0)
    broker.sessions(0)


TESTS = {t.__name__: t for t in (exchange, wildcards, retained, wills, keep_alive, qos, lines, usage, few)}


def main():
    for name in sys.argv[1:] or TESTS:
        broker = Broker()
        begin = time.monotonic()
        TESTS[name](broker)
        broker.end()
        say(f"{name}: {time.monotonic() - begin:.1f} s")
    finish()


main()
