# SPDX-License-Identifier: BSD-2-Clause
"""What the broker's tests between processes stand on: the broker, its clients, its numbers, and a
client of MQTT over TCP that says anything. The programs' paths come in the environment:
SGP_BROKER, SGP_PUB, SGP_SUB, SGP_LOAD; SGP_BROKER_ADDR is the address for RDMA (127.0.0.1)."""
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

LIMIT = float(os.environ.get("SGP_BROKER_LIMIT", "60"))  # seconds, for what must happen
ADDR = os.environ.get("SGP_BROKER_ADDR", "127.0.0.1")
WORK = tempfile.mkdtemp(prefix="sgpool-broker.")
KINDS = ("tcp", "rdma")
THREADS = 2
failures = 0


def say(what):
    print(what, flush=True)


def check(what, good, detail=""):
    global failures
    if not good:
        failures += 1
        say(f"FAILED: {what} {detail}")
    return good


def wait(what, condition, limit=None):
    """Until condition() holds; it is a failure if it never does."""
    end = time.monotonic() + (limit or LIMIT)
    while not condition():
        if time.monotonic() > end:
            return check(what, False, f"(not after {limit or LIMIT} s)")
        time.sleep(0.01)
    return True


def path(name):
    return os.path.join(WORK, name)


def read(name):
    with open(path(name), "rb") as f:
        return f.read()


# ---- the broker ----

class Broker:
    def __init__(self, *options, tcp=0, rdma=0):
        if not rdma:
            rdma = 18000 + os.getpid() % 1000
        self.err = path(f"broker.{time.monotonic_ns()}.err")
        with open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [os.environ["SGP_BROKER"], "--tcp", f"127.0.0.1:{tcp}", "--rdma", f"{ADDR}:{rdma}",
                 "--stats", "127.0.0.1:0", "--threads", str(THREADS), *options], stdin=subprocess.DEVNULL, stderr=err)
        if not wait("the broker listens", lambda: self.text().count("listening on") == 3
                    or self.process.poll() is not None) or self.process.poll() is not None:
            say(self.text())
            sys.exit("the broker did not begin")
        find = lambda what: int(re.search(rf"port (\d+) \({what}\)", self.text()).group(1))
        self.tcp, self.rdma, self.web = find("MQTT"), find("MQTT over RDMA"), find("statistics")

    def text(self):
        with open(self.err, errors="replace") as f:
            return f.read()

    def port(self, kind):
        return self.tcp if kind == "tcp" else self.rdma

    def numbers(self):
        """All of --stats, by name and labels."""
        with socket.create_connection(("127.0.0.1", self.web), timeout=LIMIT) as s:
            s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            data = b""
            while more := s.recv(65536):
                data += more
        numbers = {}
        for line in data.decode().split("\r\n\r\n", 1)[1].splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                numbers[name] = float(value)
        return numbers

    def number(self, name):
        return self.numbers()["sgpool_broker_" + name]

    def live(self, size=None):
        """Chunks of the pool that somebody holds, but for the receives that stand posted for all, each of
        one chunk of each size: their bytes, or how many if size is 1."""
        numbers = self.numbers()
        return sum((v - numbers["sgpool_broker_shared_receives"]) * (size or int(m.group(1)))
                   for k, v in numbers.items()
                   if (m := re.match(r'sgpool_live{pool="broker",size="(\d+)"}', k)))

    def held(self):
        """Bytes of all chunks that are not free."""
        return sum(v * int(m.group(1)) for k, v in self.numbers().items()
                   if (m := re.match(r'sgpool_live{pool="broker",size="(\d+)"}', k)))

    def sessions(self, n):
        return wait(f"{n} sessions", lambda: self.number("sessions") == n)

    def subscribed(self, n):
        return wait(f"{n} subscriptions", lambda: self.number("subscriptions") == n)

    def idle(self, what):
        """All clients are gone, and every chunk that is not retained is back, but for the one that a
        thread keeps to read into. (At its end the broker tells by its status.)"""
        self.sessions(0)
        wait(f"{what}: every chunk is back", lambda: self.live(1) <= THREADS)

    def end(self, status=0):
        self.process.send_signal(signal.SIGTERM)
        try:
            got = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            got = "no end"
            self.process.kill()
        if not check("the broker ends in good order", got == status, f"status {got}"):
            say(self.text())


# ---- clients ----

class Client:
    """A program that runs; its output goes to a file."""
    count = 0

    def __init__(self, *command, stdin=None):
        Client.count += 1
        self.name = f"client.{Client.count}"
        self.command = [str(c) for c in command]
        with open(path(self.name), "wb") as out, open(path(self.name + ".err"), "wb") as err:
            self.process = subprocess.Popen(self.command, stdin=stdin or subprocess.DEVNULL,
                                            stdout=out, stderr=err)

    def output(self):
        return read(self.name)

    def errors(self):
        return read(self.name + ".err").decode(errors="replace")

    def ended(self):
        return self.process.poll() is not None

    def ends(self, status=0):
        """Waits for its end with this status (None: any)."""
        try:
            got = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            got = "no end"
        name = os.path.basename(self.command[0])
        return check(f"{name} ends with {status}", status is None or got == status,
                     f"{got}: {' '.join(self.command)[:200]}: {self.errors()}")

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        try:
            self.process.wait(LIMIT / 4)
        except subprocess.TimeoutExpired:
            # mosquitto_sub's handler calls its library, and waits for ever for a lock that it holds.
            self.process.kill()
            self.process.wait()
            name = os.path.basename(self.command[0])
            if not name.startswith("mosquitto_"):
                check(f"{name} ends when it is told to", False, self.errors())


def client(broker, kind, what, *options, stdin=None):
    """what: pub or sub."""
    if kind == "tcp":
        command = [f"mosquitto_{what}", "-h", "127.0.0.1", "-p", broker.tcp]
    else:
        command = [os.environ["SGP_" + what.upper()], "-h", ADDR, "-p", broker.rdma]
    return Client(*command, *options, stdin=stdin)


def sub(broker, kind, *options):
    return client(broker, kind, "sub", *options)


def pub(broker, kind, *options, status=0, stdin=None):
    """Publishes, to the end."""
    c = client(broker, kind, "pub", *options, stdin=stdin)
    c.ends(status)
    return c


# ---- a client that says anything, over TCP ----

def length(n):
    out = b""
    while True:
        n, digit = n >> 7, n & 0x7f
        out += bytes([digit | (0x80 if n else 0)])
        if not n:
            return out


def string(b):
    return struct.pack(">H", len(b)) + b


def packet(first, body):
    return bytes([first]) + length(len(body)) + body


def connect_packet(name, keep_alive=0, will=None):
    body = string(b"MQTT") + bytes([4, 0x06 if will else 0x02]) + struct.pack(">H", keep_alive)
    body += string(name.encode())
    if will:
        body += string(will[0].encode()) + string(will[1].encode())
    return packet(0x10, body)


class Raw:
    def __init__(self, broker, *connect):
        self.socket = socket.create_connection(("127.0.0.1", broker.tcp), timeout=LIMIT)
        if connect:
            self.say(connect_packet(*connect))
            check("CONNACK", self.hear(4) == b"\x20\x02\0\0")

    def say(self, data):
        self.socket.sendall(data)

    def hear(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                break
            data += more
        return data

    def closed(self):
        """Whatever comes: in the end the broker closes."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.socket.close()


def finish():
    shutil.rmtree(WORK, ignore_errors=True)
    say(f"{failures} failures" if failures else "all well")
    sys.exit(failures > 0)
