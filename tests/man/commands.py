#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The pages of section 1 say what --help says: each command has a page, and each page has that
command's options, no more and no fewer, and takes them as --help does: with a value, or without.

usage: commands.py SGPOOL PAGES
"""
import pathlib
import re
import subprocess
import sys

sgpool, pages = sys.argv[1], pathlib.Path(sys.argv[2])
# What each command takes besides its own.
COMMON = ("--json", "--help", "--version")
failures = 0


def fail(what):
    global failures
    failures += 1
    print("FAILED:", what)


def help_of(*arguments):
    return subprocess.run([sgpool, *arguments, "--help"], capture_output=True, text=True, check=True).stdout


def by_help(text):
    """Options as --help lists them, each with whether it takes a value: a line `  -o, --output FILE  ...`."""
    options = {}
    for letter, name, value in re.findall(r"^  (?:(-\w), )?(--[\w-]+)(?: ([A-Z][\w.:]*))?(?:  |$)", text, re.M):
        options[name] = bool(value)
        if letter:
            options[letter] = bool(value)
    return options


def by_page(text):
    """The same of the page's lists: `.It Fl o , Fl -output Ar FILE`."""
    options = {}
    for item in re.findall(r"^\.It (Fl .*)$", text, re.M):
        for name in re.findall(r"Fl (\S+)", item):
            options["-" + name] = " Ar " in item
    return options


def in_synopsis(text):
    text = re.search(r"^\.Sh SYNOPSIS\n(.*?)^\.Sh ", text, re.M | re.S).group(1)
    return {"-" + name for name in re.findall(r"Fl (-?\w[\w-]*)", text)}


commands = re.findall(r"^  ([a-z]+) ", help_of(), re.M)
assert len(commands) >= 4, commands
main = (pages / "sgpool.1").read_text()
if sorted(re.findall(r"^\.It Cm (\S+)$", main, re.M)) != sorted(commands):
    fail("sgpool.1 lists other commands than sgpool --help")
for command in commands:
    path = pages / f"sgpool-{command}.1"
    if not path.exists():
        fail(f"there is no {path.name}")
        continue
    page, said = path.read_text(), by_help(help_of(command))
    if by_page(page) != said or not set(COMMON) <= set(said):
        fail(f"{path.name}: {by_page(page)}\n  --help: {said}")
    # Of one with a letter, either name stands there.
    letters = re.findall(r"^  (-\w), (--[\w-]+)", help_of(command), re.M)
    there = in_synopsis(page)
    there |= {name for pair in letters for name in pair if there & set(pair)}
    missing = set(said) - {"--help", "--version"} - there
    if missing or in_synopsis(page) - set(said):
        fail(f"{path.name}: SYNOPSIS lacks {missing} or has {in_synopsis(page) - set(said)}")
for path in pages.glob("sgpool-*.1"):
    if path.stem.removeprefix("sgpool-") not in commands:
        fail(f"{path.name} is of no command")
print(failures, "failures")
sys.exit(failures > 0)
