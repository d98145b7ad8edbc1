# SPDX-License-Identifier: BSD-2-Clause
"""What bench.sh measured, as a table for README.md or as JSON.

Usage: bench.py [--json] DIR, where DIR has WORKLOAD.fio (fio's JSON, its jobs named
WORKLOAD.KIND.ROUND) and of each job JOB.prerun.txt and JOB.postrun.txt, what ticks.awk said before
and after it. Medians over the rounds; the ratio is the median of the ratios within a round.
"""
import glob
import json
import os
import statistics
import sys

TICK_US = 10000


def read_ticks(path):
    with open(path, encoding="utf-8") as f:
        words = f.read().splitlines()[-1].split()
    return dict(zip(("ours", "nvmet", "machine"), map(int, words)))


def read_job(folder, job, kind):
    side = job["read"] if job["read"]["total_ios"] else job["write"]
    name = os.path.join(folder, job["jobname"])
    before, after = read_ticks(name + ".prerun.txt"), read_ticks(name + ".postrun.txt")

    def cpu(what):
        return (after[what] - before[what]) * TICK_US / side["total_ios"]

    return {
        "iops": side["iops"],
        "latency_us": side["lat_ns"]["mean"] / 1000,
        "p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1000,
        "target_us": cpu(kind),
        "machine_us": cpu("machine"),
    }


def read_all(folder):
    runs = {}
    for path in glob.glob(os.path.join(folder, "*.fio")):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for job in json.loads(text[text.index("{"):])["jobs"]:
            workload, kind, number = job["jobname"].split(".")
            rounds = runs.setdefault(workload, {})
            rounds.setdefault(int(number), {})[kind] = read_job(folder, job, kind)
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
    depth, _, jobs = depth.partition("x")
    return size != "4k", int(depth), int(jobs or 1), pattern


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
