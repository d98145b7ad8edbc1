#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# How the command is asked: help and version on the standard output with status 0, wrong use one
# line on the standard error stream with status 2, and JSON that is JSON.
# usage: usage.sh SGPOOL VERSION PYTHON
set -eu
sgpool=$1 version=$2 python=$3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failures=0

fail() {
	echo "FAILED: sgpool $*"
	sed 's/^/  out: /' "$out/out"
	sed 's/^/  err: /' "$out/err"
	failures=$((failures + 1))
}

run() {
	status=0
	"$sgpool" "$@" >"$out/out" 2>"$out/err" || status=$?
}

one_line() {
	[ "$(wc -l <"$out/err")" -eq 1 ] && grep -q '^sgpool' "$out/err"
}

# wrong ARGUMENTS: status 2, exactly one line of error that starts with the command's name
wrong() {
	run "$@"
	if [ $status -ne 2 ] || [ -s "$out/out" ] || ! one_line; then
		fail "$*: status $status, wanted 2 and one line"
	fi
}

# says PATTERN ARGUMENTS: status 0, PATTERN on the standard output, no error
says() {
	pattern=$1
	shift
	run "$@"
	if [ $status -ne 0 ] || [ -s "$out/err" ] || ! grep -q -- "$pattern" "$out/out"; then
		fail "$*: status $status, wanted 0 and '$pattern'"
	fi
}

wrong
wrong nonsense
wrong --nonsense
wrong "$(printf 'two\nlines')"
says '^usage: sgpool' --help
says "^sgpool $version\$" --version

commands=$("$sgpool" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || fail "--help: names no command"
for command in $commands; do
	says "^usage: sgpool $command" "$command" --help
	says '--json' "$command" --help
	says "^sgpool $version\$" "$command" --version
	wrong "$command" --nonsense
	wrong "$command" -Z
	wrong "$command" --json=1
	wrong "$command" too many arguments
done

run doctor
if [ $status -gt 1 ] || ! grep -q '^RDMA can be used here: ' "$out/out"; then
	fail "doctor: status $status"
fi
run doctor --json
said=$status
"$python" - "$out/out" "$version" "$said" <<'PYTHON' || fail doctor --json
import json, sys
report = json.load(open(sys.argv[1]))
assert report["version"] == sys.argv[2], report["version"]
assert report["usable"] == (sys.argv[3] == "0")
assert report["usable"] == (not any(p["blocks"] for p in report["problems"]))
assert all(p["what"] and p["mend"] for p in report["problems"])
assert report["usable"] or report["problems"]
assert report["memory"]["page_size"] > 0
for key in "devices", "files", "modules", "rights", "numa_nodes", "rdma_cm", "fork":
    assert key in report, key
PYTHON

if [ -w /dev/full ]; then
	status=0
	"$sgpool" --help >/dev/full 2>"$out/err" || status=$?
	[ $status -eq 1 ] || fail "--help >/dev/full: status $status, wanted 1"
fi

echo "$failures failures"
[ $failures -eq 0 ]
