# SPDX-License-Identifier: BSD-2-Clause
"""What bench.sh measured, as a table for README.md or as JSON.

Usage: bench.py [--json] DIR, where DIR has KIND.WORKLOAD.ROUND.fio (fio's JSON) and .ticks ("TARGET
MACHINE": clock ticks of 10 ms that the target and the whole machine were busy). Medians over the
rounds; the ratio is the median of the ratios within a round.
"""
import glob
import json
import os
import statistics
import sys

TICK_US = 10000


def read_run(path):
    with open(path, encoding="ascii") as f:
        text = f.read()
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = job["read"] if job["read"]["total_ios"] else job["write"]
    with open(path[: -len("fio")] + "ticks", encoding="ascii") as f:
        target, machine = (int(word) * TICK_US for word in f.read().split())
    return {
        "iops": side["iops"],
        "latency_us": side["lat_ns"]["mean"] / 1000,
        "p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1000,
        "target_us": target / side["total_ios"],
        "machine_us": machine / side["total_ios"],
    }


def read_all(folder):
    runs = {}
    for path in glob.glob(os.path.join(folder, "*.fio")):
        kind, workload, number, _ = os.path.basename(path).split(".")
        runs.setdefault(workload, {}).setdefault(int(number), {})[kind] = read_run(path)
    return runs


def summary(rounds):
    out = {"rounds": len(rounds)}
    for kind in ("ours", "nvmet"):
        out[kind] = {
            name: statistics.median(r[kind][name] for r in rounds.values())
            for name in next(iter(rounds.values()))[kind]
        }
    ratios = [r["ours"]["iops"] / r["nvmet"]["iops"] for r in rounds.values()]
    out["ratio"] = statistics.median(ratios)
    out["ratio_least"], out["ratio_most"] = min(ratios), max(ratios)
    return out


def order(name):
    pattern, size, depth = name.split("-")
    return size != "4k", int(depth), pattern


def main():
    as_json = "--json" in sys.argv
    results = {name: summary(rounds) for name, rounds in read_all(sys.argv[-1]).items()}
    if as_json:
        print(json.dumps(results, indent=1))
        return
    print("| workload | IOPS | nvmet | ratio (least - most) | latency us | nvmet "
          "| target CPU us | nvmet | machine CPU us | nvmet |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in sorted(results, key=order):
        r, a, b = results[name], results[name]["ours"], results[name]["nvmet"]
        print(f"| {name} | {a['iops']:.0f} | {b['iops']:.0f} "
              f"| {r['ratio']:.2f} ({r['ratio_least']:.2f} - {r['ratio_most']:.2f}) "
              f"| {a['latency_us']:.0f} | {b['latency_us']:.0f} "
              f"| {a['target_us']:.0f} | {b['target_us']:.0f} "
              f"| {a['machine_us']:.0f} | {b['machine_us']:.0f} |")


main()
