#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh SOURCE TABLES GOAL ROOM...: builds the programs that test the rooms so that they count the lines
# they come by, runs them, and writes tables to the file TABLES: a room's files, how much of each was run
# and what was not. Fails if a test does, or where less than GOAL per cent of a room's lines were run.
set -euo pipefail

source=$1 tables=$2 goal=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { # COMMAND...
	"$@" >"$work/log" 2>&1 || {
		tail -n 60 "$work/log"
		exit 1
	}
}

# Lines are counted as they stand: nothing is optimised away, threads do not lose each other's counts, nor
# does a forked child that ends by _exit(2), as it should.
cc -c "$source/tests/coverage/exit.c" -o "$work/exit.o"
quietly cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DSGP_INNER_BUILD=ON \
	-DSGP_CLI=OFF -DSGP_EXAMPLES=OFF -DSGP_BENCH=OFF -DSGP_WERROR=ON -DCMAKE_C_FLAGS="--coverage -fprofile-update=atomic" \
	-DCMAKE_EXE_LINKER_FLAGS="-Wl,--wrap=_exit $work/exit.o"
quietly cmake --build "$work/build" --target unit_programs
ctest --test-dir "$work/build" -R '^(checked\.)?test_' -LE 'device|full' --no-tests=error -j 2 \
	--timeout 600 --output-on-failure
# (It leaves files where it runs if it fails.)
(cd "$work" && quietly gcovr --root "$source" --json lines.json build)

low=()
: >"$tables"
for room; do
	gcovr --root "$source" --add-tracefile "$work/lines.json" --filter "$source/$room/" --txt \
		--fail-under-line "$goal" >>"$tables" || low+=("$room")
done
cat "$tables"
if ((${#low[@]})); then
	printf 'less than %s %% of the lines were run of: %s\n' "$goal" "${low[*]}"
	exit 1
fi
