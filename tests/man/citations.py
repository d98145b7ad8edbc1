#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each "law N" and "case N" that the sources cite is in doc/laws.md or doc/cases.md.

usage: citations.py PROJECT
"""
import pathlib
import re
import sys

project = pathlib.Path(sys.argv[1])
ROOMS = ["src", "include", "tests", "bench", "examples", "scripts", "man"]
NUMBER = r"\d+(?:\.\d+)?[a-z]?(?![a-z0-9])"
CITED = re.compile(rf"\b(law|case)s?[ _]({NUMBER}(?:(?:, | and )(?:\1 )?{NUMBER})*)", re.I)
LABELS = re.compile(r"^\s*(?:case \d+(?: \.\.\. \d+)?:\s*)+", re.M)  # C's


def there_are(name, pattern):
    numbers = re.findall(pattern, (project / "doc" / name).read_text(), re.M)
    if not numbers or len(numbers) != len(set(numbers)):
        sys.exit(f"FAILED: doc/{name} has no numbers, or one twice")
    return set(numbers)


def citations(text):
    """Pairs of the kind and a number, with the number of the line."""
    for found in CITED.finditer(LABELS.sub(" ", text)):
        for number in re.findall(NUMBER, found[2].replace("_", " ")):
            yield found[1].lower(), number


# Law 2's paragraphs have numbers of their own; of the others the whole section is meant.
known = {
    "law": there_are("laws.md", r"^(?:## |\*\*)(\d+(?:\.\d+)?)(?: |\*\*)"),
    "case": there_are("cases.md", r"^- \*\*(\d+[a-z]?)\*\* \("),
}
cited = {"law": set(), "case": set()}
failures = 0
for room in ROOMS:
    for path in sorted((project / room).rglob("*")):
        if not path.is_file() or path == pathlib.Path(__file__).resolve():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:  # a picture, a seed
            continue
        for kind, number in citations(text):
            cited[kind].add(number)
            if number not in known[kind]:
                failures += 1
                print(f"FAILED: {path.relative_to(project)} cites {kind} {number}")
for kind, numbers in cited.items():
    print(f"{kind}s: {len(known[kind])}, of which {len(numbers)} cited")
    failures += not numbers
for number in sorted(known["case"] - cited["case"]):
    failures += 1
    print(f"FAILED: no test says case {number}")
sys.exit(failures != 0)
