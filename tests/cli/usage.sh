#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# How the command is asked: help and version on the standard output with status 0, wrong use one
# line on the standard error stream with status 2, and JSON that is JSON.
# usage: usage.sh SGPOOL VERSION PYTHON [SOFTVERBS]
# SOFTVERBS is the library to preload for a device that is known; sanitizers don't let one preload.
set -eu
sgpool=$1 version=$2 python=$3 softverbs=${4-}
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

# fails PATTERN ARGUMENTS: status 1, exactly one line of error with PATTERN in it
fails() {
	pattern=$1
	shift
	run "$@"
	if [ $status -ne 1 ] || [ -s "$out/out" ] || ! one_line || ! grep -q -- "$pattern" "$out/err"; then
		fail "$*: status $status, wanted 1 and one line with '$pattern'"
	fi
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

wrong send
wrong send 10.0.0.1
wrong send '' file
wrong send :18520 file
wrong send 10.0.0.1: file
wrong send 10.0.0.1:0 file
wrong send 10.0.0.1:65536 file
wrong send 10.0.0.1:80x file
wrong send '[::1' file
wrong send '[]' file
wrong send '[::1]x' file
wrong recv
wrong recv -o
wrong recv -o ''
wrong recv --output
wrong recv -o "$out/file" extra
wrong recv -o "$out/file" --port
wrong recv -o "$out/file" --port ''
wrong recv -o "$out/file" --port -1
wrong recv -o "$out/file" --port 65536
wrong recv -o "$out/file" --port 1e3
wrong recv -o "$out/file" --bind ''
wrong recv -o "$out/file" --once=1
fails "$out/none: can't be opened: No such file" send 10.0.0.1 "$out/none"
fails "$out/no/file: can't be written: No such file" recv -o "$out/no/file"
fails "can't be written: Is a directory" recv -o "$out"
fails "can't be written: Is a directory" recv -o "$out/new/"
fails "can't be written: it is no regular file" recv -o /dev/null
ln -s nowhere "$out/dangling"
fails "can't be written: it is no regular file" recv -o "$out/dangling"
left=$(find "$out" -name '.sgpool*' -o -name file)
[ -z "$left" ] || fail "recv: left $left behind"

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

if [ -n "$softverbs" ]; then
	status=0
	LD_PRELOAD=$softverbs "$sgpool" doctor --json >"$out/out" 2>"$out/err" || status=$?
	"$python" - "$out/out" "$status" <<'PYTHON' || fail doctor on softverbs
import json, sys
report = json.load(open(sys.argv[1]))
assert sys.argv[2] == "0" and report["usable"] and report["rdma_cm"], report
(device,) = report["devices"]
assert device["name"] == "soft0" and device["registers"], device
assert device["max_sge"] == 32 and device["max_inline"] == 1024, device
(port,) = device["ports"]
assert port["state"] == "active" and port["link_layer"] == "Ethernet", port
PYTHON
fi

if [ -w /dev/full ]; then
	status=0
	"$sgpool" --help >/dev/full 2>"$out/err" || status=$?
	[ $status -eq 1 ] || fail "--help >/dev/full: status $status, wanted 1"
fi

echo "$failures failures"
[ $failures -eq 0 ]
