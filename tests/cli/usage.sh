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

for option in --size -I -m; do
	wrong perf host $option
	wrong perf host $option ''
	wrong perf host $option -1
	wrong perf host $option 1x
done
wrong perf ''
wrong perf :18521
wrong perf host:0
wrong perf -p 0 host
wrong perf host -p 65536
wrong perf -s 64
wrong perf -l
wrong perf --bind ''
wrong perf --bind 0.0.0.0 host
wrong perf --once host
wrong perf host -s 15
wrong perf host -s 64,
wrong perf host -s ,64
wrong perf host -s 64:
wrong perf host -s 64:32
wrong perf host -s 1025M
wrong perf host -s 1G
wrong perf host -s 16777216M
wrong perf host -a -s 64
wrong perf host -n 1 -D 1
wrong perf host -n 0
wrong perf host -D 0
wrong perf host -t 1
grep -q -- '--tx-depth' "$out/err" || fail 'perf host -t 1: does not name the option'
wrong perf host -q 257
wrong perf host --threads 2
wrong perf host -l -q 2
wrong perf host -l -b
wrong perf host -l -e --op write
wrong perf host -c -m raw
wrong perf host --rounds 3
wrong perf host -c --rounds 0
wrong perf host --timeout 2
wrong perf --timeout 86401
wrong perf host --sges 3
wrong perf host --sges 33
wrong perf host -s 64 --sges 16
wrong perf host -s 512M -t 128
wrong perf host -m nothing
wrong perf host --op nothing

wrong softverbs --
wrong softverbs ls
wrong softverbs --strict ls
wrong softverbs ls -- ls
wrong softverbs --json -- ls
wrong softverbs --like nothing -- ls
wrong softverbs --like '' -- ls
wrong softverbs --like rxe:5 -- ls
wrong softverbs --like -- ls
wrong softverbs --devices a -- ls
wrong softverbs --devices a=soft,a=rxe -- ls
wrong softverbs --fault nonsense -- ls
wrong softverbs --fault 'reg_mr fail EIO' --fault 'reg_mr fail' -- ls
wrong softverbs --fault 'set soft1 max_mr 1' -- ls
wrong softverbs --net there -- ls
wrong softverbs --net 1.2.3 -- ls
wrong softverbs --net 192.0.2.1 -- ls # of a documentation network
grep -q 'no address of this machine' "$out/err" || fail 'softverbs --net 192.0.2.1: does not say what is wrong'
wrong softverbs --world "$(printf %049d 0)" -- ls

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

# The command that runs others on softverbs: its status is theirs, and they get what was asked for.
on_softverbs() { # STATUS PATTERN ARGUMENTS: PATTERN in the output or the one line of error
	wanted=$1 pattern=$2
	shift 2
	run softverbs "$@"
	if [ $status -ne "$wanted" ] || ! grep -q -- "$pattern" "$out/out" "$out/err"; then
		fail "softverbs $*: status $status, wanted $wanted and '$pattern'"
	fi
}

if [ -n "$softverbs" ]; then
	on_softverbs 0 '"soft0"' -- "$sgpool" doctor --json
	on_softverbs 0 '"two".*"siw"' --devices two=rxe:2,siw=siw -- "$sgpool" doctor --json
	on_softverbs 1 'Operation not permitted' --fault 'get_device_list fail EPERM' \
		--fault 'open_device fail EACCES' -- "$sgpool" doctor
	on_softverbs 0 'set soft0 max_sge 7; seed 1, 1$' --fault 'set soft0 max_sge 7' --fault 'seed 1' --strict \
		-- sh -c 'echo "$SGP_SOFTVERBS_FAULTS, $SGP_SOFTVERBS_STRICT"'
	on_softverbs 0 '^127.0.0.1 w$' --net 127.0.0.1 --world w \
		-- sh -c 'echo "$SGP_SOFTVERBS_NET $SGP_SOFTVERBS_WORLD"'
	on_softverbs 7 '^ran' -- sh -c 'echo ran; exit 7'
	on_softverbs 127 'No such file' -- "$out/none"
	on_softverbs 126 'Permission denied' -- "$out"
	personas=$("$sgpool" softverbs --help | tr '\n' ' ' | sed 's/.*the default), \([a-z0-9, ]*\)  *--devices.*/soft \1/; s/,//g')
	[ "$(echo "$personas" | wc -w)" -ge 8 ] || fail "softverbs --help: the personas: $personas"
	for persona in $personas; do
		on_softverbs 0 '^RDMA can be used here: yes' --like "$persona" -- "$sgpool" doctor
	done
	# Printed instead of run, it's the same.
	quoted="seed 1; # it's"
	(eval "$("$sgpool" softverbs --like siw --fault "$quoted")" && [ "$SGP_SOFTVERBS_FAULTS" = "$quoted" ] &&
		"$sgpool" doctor --json) >"$out/out" 2>"$out/err" || fail 'eval "$(sgpool softverbs)"'
	grep -q '"max_sge": 6' "$out/out" || fail 'eval "$(sgpool softverbs --like siw)"'
	run softverbs --like siw --json
	"$python" -c 'import json, sys; o = json.load(open(sys.argv[1]))
assert o["SGP_SOFTVERBS_DEVICES"] == "soft0=siw" and o["LD_PRELOAD"].startswith("/"), o' "$out/out" ||
		fail softverbs --json
	mkdir -p "$out/a b/src/cli" "$out/a b/src/softverbs"
	cp "$sgpool" "$out/a b/src/cli/"
	cp "$(dirname "$softverbs")"/libsgpool-softverbs.so.* "$out/a b/src/softverbs/" # by all its names
	status=0
	"$out/a b/src/cli/sgpool" softverbs -- true >"$out/out" 2>"$out/err" || status=$?
	[ $status -eq 1 ] && grep -q "can't be preloaded" "$out/err" || fail "softverbs in 'a b': status $status"
fi

if [ -w /dev/full ]; then
	status=0
	"$sgpool" --help >/dev/full 2>"$out/err" || status=$?
	[ $status -eq 1 ] || fail "--help >/dev/full: status $status, wanted 1"
fi

echo "$failures failures"
[ $failures -eq 0 ]
