#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# In the machine, over its wire: bench_transfer, and beside it what perftest's ib_send_bw and
# ib_send_lat find on the same link (without flow control, and with a buffer of their own).
#
#	scripts/vm --wire [--device siw] --timeout 3600 -- \
#		bench/transfer.sh build/release/bench/bench_transfer [OPTION OF bench_transfer]...
set -uo pipefail

bench=$1
shift
export SGP_BENCH_ADDR=10.0.0.2
read -r here there <<<"$SGP_VM_DEVICES"

# perf PROGRAM SIZE ITERATIONS: the line with its figures.
perf() {
	local program=$1 server
	local -a options=(-R -s "$2" -n "$3" -F)

	timeout 120 "$program" -d "$there" "${options[@]}" >/dev/null 2>&1 &
	server=$!
	sleep 2
	timeout 120 "$program" -d "$here" "${options[@]}" "$SGP_BENCH_ADDR" 2>/dev/null |
		awk -v size="$2" '$1 == size' | sed "s/^/$program /"
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
}

# soft-iWARP counts what root locks as well.
ulimit -l unlimited
"$bench" "$@" || exit
echo "ib_send_bw: bytes, iterations, MiB/s peak, MiB/s average, million messages a second"
echo "ib_send_lat: bytes, iterations, us one way: least, most, typical, average, deviation, 99 %, 99.9 %"
for size in 64 1024 4096 16384 65536 262144 1048576; do
	perf ib_send_bw "$size" $((size < 65536 ? 2000 : 200))
	perf ib_send_lat "$size" $((size < 65536 ? 1000 : 100))
done
