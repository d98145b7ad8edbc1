#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""softverbs(7) says what there is: its lists are those of the source, and the command takes each of
their words and each of its examples.

usage: softverbs.py SGPOOL PAGE SOURCE
"""
import pathlib
import re
import subprocess
import sys

sgpool, page, source = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(), pathlib.Path(sys.argv[3])
failures = 0


def fail(what):
    global failures
    failures += 1
    print("FAILED:", what)


def accepted(*arguments):
    done = subprocess.run([sgpool, "softverbs", *arguments], capture_output=True, text=True)
    if done.returncode:
        fail(f"{arguments}: {done.stderr.strip()}")


def block(name):
    """The text after the comment `.\\" name`, to the end of its display or list."""
    return re.search(rf'^\.\\" {name}\n(.*?)^\.E[dl]$', page, re.S | re.M).group(1)


def same(name, documented, there):
    documented, there = set(documented), set(there)
    if documented != there or not there:
        fail(f"{name}: only in the page {documented - there}, only in the source {there - documented}")


def words(name):
    return re.findall(r"\w+", block(name))


persona = (source / "persona.c").read_text()
fault = (source / "fault.h").read_text()
parser = (source / "fault_parse.c").read_text()
everything = "".join(f.read_text() for f in source.glob("*.c"))
fields = re.findall(r'FIELD\("(\w+)", \S+, (\w+)\)', persona)

same("calls", words("calls"), re.findall(r"\bX\((\w+)\)", fault.replace("SW_CALLS(X)", "")))
same("errors", words("errors"), [n for n, kind in fields if n.startswith("err_")])
same("limits", words("limits"), [n for n, kind in fields if kind != "BOOL" and not n.startswith("err_")])
habits = re.findall(r"^\.It Li (\w+)", block("habits"), re.M)
same("habits", habits, [n for n, kind in fields if kind == "BOOL"])
personas = re.findall(r"^\.It Li (\w+)", block("personalities"), re.M)
same("personalities", personas, re.findall(r'\.name = "(\w+)"', persona))
actions = re.findall(r'^\t\t\{"(\w+)", SW_', parser, re.M)
conditions = re.findall(r'is\(w, "(\w+)"\)', parser[parser.index("static bool when"):])
items = re.findall(r"^\.It Li (\w+)", page, re.M)
same("actions", [i for i in items if i in actions], actions)
same("conditions", [i for i in items if i in conditions], [c for c in conditions if c not in ("seed", "set")])
same("environment", re.findall(r"^\.It Ev (SGP_\w+)", page, re.M), re.findall(r"SGP_SOFTVERBS_[A-Z]+", everything))

accepted("--fault", "; ".join(f"{call} fail EIO" for call in words("calls")))
accepted("--fault", "; ".join(f"set soft0 {name} 1" for name in words("limits") + words("errors") + habits))
for example in block("examples").strip().splitlines():
    accepted("--fault", example)
for name in personas:
    accepted("--like", name)

print(failures, "failures")
sys.exit(failures > 0)
