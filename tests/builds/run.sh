#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh SOURCE TESTS TARGET... -- OPTION...: configures the source with the options, builds the targets
# (none: everything) without a warning, and runs the tests whose names match the expression TESTS, of
# which there must be some.
set -euo pipefail

source=$1 tests=$2
shift 2
targets=()
while [[ $1 != -- ]]; do
	targets+=("$1")
	shift
done
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake -G Ninja -S "$source" -B "$work" -DCMAKE_BUILD_TYPE=Debug -DSGP_WERROR=ON "$@" >"$work/log" || {
	cat "$work/log"
	exit 1
}
cmake --build "$work" ${targets[0]+--target "${targets[@]}"} >"$work/log" || {
	grep -A 20 'FAILED\|error' "$work/log" || tail -n 50 "$work/log"
	exit 1
}
ctest --test-dir "$work" -R "$tests" -LE 'device|full' --no-tests=error -j 2 --timeout 300 \
	--output-on-failure
