#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of rdma-core and perftest, unmodified, on softverbs: a server and a client in two
processes of a user without rights. Both must end by themselves with status 0, and their output must
show that what they did was done.

usage: programs.py SGPOOL SOFTVERBS NAME [OPTION...]
       programs.py --list

NAME is one of the table below; OPTIONs are those of `sgpool softverbs`.
"""
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

NOBODY = 65534
LIMIT = 60  # seconds for each program
TRIES = 8  # for what is not up to the device
# perftest can't tell times when the processor was taken from it while it measured the clock's rate.
NOT_MEASURED = "Correlation coefficient r^2:"
# ibv_srq_pingpong's ends post sends until 200 have completed, and so some more: what is on its way when the
# other end has all it wants and goes comes to nobody. A real device would go on trying for longer than this
# end stays; here it's told at once, and this end may see that before it has counted its own.
SURPLUS = "Failed status transport retry counter exceeded (12) for wr_id 2"
UNLUCKY = {"ibv_srq_pingpong": SURPLUS, "ibv_srq_pingpong-events": SURPLUS}
ADDRESS = "127.0.0.1"


class Program:
    """How a program is run at both ends (or alone, without a server), and what it must say."""

    def __init__(self, server, client, says, heard=None, listens="cm", like=None):
        self.server, self.client = server.split(), client.split()
        self.says, self.heard = says, heard  # by the client, by the server
        self.listens = listens  # on a port of the connection manager or of TCP, or what it says then
        self.options = ["--like", like] if like else []


def pingpong(name, options=""):
    """ibv_*_pingpong exchange what they need over TCP; -c checks the bytes where there is one."""
    run = f"ibv_{name}_pingpong -g 1 -n 200 -p {{port}} {options}"
    done = r"^200 iters in .* seconds"
    if name in ("srq", "xsrq"):
        done = r"^\d+ iters in .* seconds"
    return Program(run, f"{run} {ADDRESS}", done, done, listens="tcp")


def perftest(name, options=""):
    """A table with one line of figures, for 4096 bytes or less."""
    cm = "-R" in options.split()
    run = f"{name} -F -n 200 -p {{port}} {options}" + ("" if cm else " -x 1")
    line = r"^ *\d+\s+200\s+[0-9.]+\s+[0-9.]+\s+[0-9.]+"
    return Program(run, f"{run} {ADDRESS}", line, None, listens="cm" if cm else "tcp")


def table():
    ping = "ping data: rdma-ping-"
    t = {
        "ibv_devices": Program("", "ibv_devices", "^ *soft0 *\t *02000000feff0000$"),
        "ibv_devinfo": Program("", "ibv_devinfo -v",
                               r"(?s)^hca_id:\tsoft0$.*state:\t+PORT_ACTIVE \(4\)$.*::ffff:127\.0\.0\.1, RoCE v2$"),
        "rping": Program("rping -s -v -S 1000 -p {port} -a " + ADDRESS,
                         "rping -c -v -V -C 10 -S 1000 -p {port} -a " + ADDRESS,
                         f"^{ping}9: ", "^server " + ping + "9: "),
        "rping-persistent-qp": Program("rping -s -q -v -p {port} -a " + ADDRESS,
                                       "rping -c -q -v -V -C 10 -p {port} -a " + ADDRESS,
                                       f"^{ping}9: ", "^server " + ping + "9: "),
        "rdma_server": Program("rdma_server -s " + ADDRESS + " -p {port}",
                               "rdma_client -s " + ADDRESS + " -p {port}",
                               r"^rdma_client: end 0$", r"^rdma_server: end 0$"),
        # The client sends inline though it asked for no room: not every device has some.
        "rdma_xserver": Program("rdma_xserver -p {port} -c r",
                                "rdma_xclient -s " + ADDRESS + " -p {port} -c r",
                                r"^rdma_xclient: end 0$", r"^rdma_xserver: end 0$", like="rxe"),
        "rdma_xserver-xrc": Program("rdma_xserver -p {port} -c x",
                                    "rdma_xclient -s " + ADDRESS + " -p {port} -c x",
                                    r"^rdma_xclient: end 0$", r"^rdma_xserver: end 0$", like="mlx4"),
        "ucmatose": Program("ucmatose -b " + ADDRESS + " -p {port} -c 3 -C 10 -S 5000",
                            "ucmatose -s " + ADDRESS + " -p {port} -c 3 -C 10 -S 5000",
                            "^return status 0$", "^return status 0$"),
        "ucmatose-migrate": Program("ucmatose -m -b " + ADDRESS + " -p {port}",
                                    "ucmatose -m -s " + ADDRESS + " -p {port}",
                                    "^return status 0$", "^return status 0$"),
        "udaddy": Program("udaddy -b " + ADDRESS + " -c 2 -C 10 -S 1000",
                          "udaddy -s " + ADDRESS + " -c 2 -C 10 -S 1000",
                          "^return status 0$", "^return status 0$"),
        "mckey": Program("stdbuf -oL mckey -m 239.0.0.1 -b 127.0.0.1 -C 20 -S 500",
                         "mckey -m 239.0.0.1 -b 127.0.0.1 -C 20 -S 500 -s",
                         "^return status 0$", "^return status 0$", listens="says joined dgid"),
        "ibv_rc_pingpong": pingpong("rc", "-c"),
        "ibv_rc_pingpong-events": pingpong("rc", "-c -e -s 100000"),
        "ibv_uc_pingpong": pingpong("uc", "-c"),
        "ibv_ud_pingpong": pingpong("ud", "-c"),
        "ibv_srq_pingpong": pingpong("srq", "-c"),
        "ibv_srq_pingpong-events": pingpong("srq", "-c -e"),
    }
    t["ibv_xsrq_pingpong"] = Program("ibv_xsrq_pingpong -g 1 -p {port}",
                                     "ibv_xsrq_pingpong -g 1 -p {port} " + ADDRESS,
                                     "", "", listens="tcp")
    for name in ("ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw",
                 "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat"):
        t[name] = perftest(name)
        t[name + "-R"] = perftest(name, "-R")
    t["ib_send_bw-events"] = perftest("ib_send_bw", "-e -s 65536")
    t["ib_send_bw-UD"] = perftest("ib_send_bw", "-c UD -s 1024")
    t["ib_send_bw-UC"] = perftest("ib_send_bw", "-c UC")
    t["ib_send_bw-XRC"] = perftest("ib_send_bw", "-c XRC")
    t["ib_write_bw-XRC"] = perftest("ib_write_bw", "-c XRC")
    t["ib_write_bw-UC"] = perftest("ib_write_bw", "-c UC")
    t["ib_write_bw-both-ways"] = perftest("ib_write_bw", "-b -s 1000000")
    return t


def demote():
    if os.geteuid() == 0:
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    return {}


def installed(sgpool, softverbs, folder):
    """Both in a place that everybody may read, as they are in a build: the build may not be."""
    for source, to in (sgpool, "src/cli/sgpool"), (softverbs, "src/softverbs/" + pathlib.Path(softverbs).name):
        to = folder / to
        to.parent.mkdir(parents=True)
        shutil.copy(os.path.realpath(source), to)
    for path in folder, *folder.rglob("*"):
        path.chmod(0o755)
    return str(folder / "src/cli/sgpool")


def free_port():
    """Below those that the kernel hands out by itself."""
    while True:
        port = random.randrange(10000, 30000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("0.0.0.0", port))
                return port
            except OSError:
                pass


def listening(server, kind, port, world):
    if kind.startswith("says "):
        return kind[5:] in server.output()
    if kind == "tcp":
        for name in "/proc/net/tcp", "/proc/net/tcp6":
            for line in open(name).readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    return True
        return False
    accepts = re.compile(rf" 00010000 .*@sgpool-softverbs\.\d+\.{world}\.cm\.[0-9a-f]+\.\d+")
    return any(accepts.search(line) for line in open("/proc/net/unix"))


class Run:
    """One end, its output in a file."""

    def __init__(self, name, argv, environment, folder):
        self.name, self.argv, self.path = name, argv, folder / name
        with open(self.path, "w") as out:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            cwd="/", env=environment, start_new_session=True,
                                            **demote())

    def output(self):
        return self.path.read_text(errors="replace")

    def end(self, seconds):
        """What is wrong with how it ended, or None."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return f"the {self.name} did not end"
        return f"the {self.name} ended with {status}" if status else None


def converse(sgpool, program, options, folder):
    """Runs both ends; returns what went wrong."""
    port, world = free_port(), f"test{os.getpid()}"
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SGP_SOFTVERBS_WORLD": world, "LC_ALL": "C"}

    def run(name, words):
        argv = [sgpool, "softverbs", *(options or program.options), "--", *(w.format(port=port) for w in words)]
        return Run(name, argv, environment, folder)

    runs, wrong = [], []
    try:
        if program.server:
            runs.append(run("server", program.server))
            deadline = time.monotonic() + LIMIT
            while not listening(runs[0], program.listens, port, world):
                if runs[0].process.poll() is not None or time.monotonic() > deadline:
                    return ["the server does not listen"], runs
                time.sleep(0.02)
        runs.append(run("client", program.client))
        for end, pattern in zip(reversed(runs), (program.says, program.heard)):
            wrong.append(end.end(LIMIT))
            if pattern and not re.search(pattern, end.output(), re.M):
                wrong.append(f"the {end.name} does not say {pattern!r}")
    finally:
        for end in runs:
            if end.process.poll() is None:
                os.killpg(end.process.pid, signal.SIGKILL)
                end.process.wait()
    return [w for w in wrong if w], runs


def main():
    if sys.argv[1:] == ["--list"]:
        print(";".join(table()), end="")
        return False
    sgpool, softverbs, name, *options = sys.argv[1:]
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    try:
        sgpool = installed(sgpool, softverbs, folder / "built")
        for _ in range(TRIES):
            wrong, runs = converse(sgpool, table()[name], options, folder)
            unlucky = UNLUCKY.get(name, NOT_MEASURED)
            if not wrong or not any(unlucky in end.output() for end in runs):
                break
        for what in wrong:
            print("FAILED:", name, *options, what)
        for end in runs if wrong else ():
            print("$", *end.argv)
            print(end.output()[-3000:])
    finally:
        shutil.rmtree(folder)
    print(name, *options, "failed" if wrong else "passed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
