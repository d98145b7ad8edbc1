#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# sgpool perf between two processes on softverbs: its table and its JSON, and that an end whose peer is
# killed ends at once and says why.
# usage: perf.sh SGPOOL PYTHON
set -eu
sgpool=$1 python=$2
out=$(mktemp -d)
SGP_SOFTVERBS_WORLD=perf$$ SGP_SOFTVERBS_NET=local
export SGP_SOFTVERBS_WORLD SGP_SOFTVERBS_NET
server='' client=''
trap 'kill -9 $server $client 2>/dev/null || :; rm -rf "$out"' EXIT
failures=0

fail() {
	echo "FAILED: $*"
	for file in "$out"/*; do
		sed "s|^|  ${file##*/}: |" "$file"
	done
	failures=$((failures + 1))
}

# until_so COMMAND...: within a minute
until_so() {
	left=1200
	while ! "$@"; do
		left=$((left - 1))
		[ $left -gt 0 ] || return 1
		sleep 0.05
	done
}

ended() { # PID
	! kill -0 "$1" 2>/dev/null
}

has_failed() { # TIMES
	[ "$(grep -c failed "$out/server")" -eq "$1" ]
}

# exec: what is killed then is the command itself
start_server() {
	: >"$out/server" # what the one before said
	(eval "$("$sgpool" softverbs)" && exec "$sgpool" perf --json --port 0 --bind 127.0.0.1) \
		>"$out/server" 2>"$out/server.err" &
	server=$!
	until_so grep -q listening "$out/server" || fail "the server does not listen"
	port=$(sed -n 's/.*"port": \([0-9]*\).*/\1/p' "$out/server")
}

start_client() { # OPTION...
	: >"$out/client" # what the one before said
	(eval "$("$sgpool" softverbs)" && exec "$sgpool" perf "$@" "127.0.0.1:$port") \
		>"$out/client" 2>"$out/client.err" &
	client=$!
}

connected() { # the client of now
	until_so grep -q '#bytes' "$out/client" || fail "the client does not connect"
}

measures() { # OPTION...: both ends end well
	start_client "$@"
	status=0
	wait $client || status=$?
	[ $status -eq 0 ] && [ ! -s "$out/client.err" ] || fail "perf $*: status $status"
}

# A table has a heading, and a line for each size.
start_server
measures -n 200 -s 64,4k
grep -q '^ #bytes  *#iterations .*BW average\[MiB/sec\]  *MsgRate\[Mpps\]' "$out/client" || fail "bandwidth: the heading"
[ "$(grep -Ec '^ (64|4096) +200 +[0-9]+ +[0-9]+\.[0-9]{2} +[0-9]\.[0-9]{6} +[0-9.]+ +[0-9.]+$' "$out/client")" -eq 2 ] ||
	fail "bandwidth: the lines"
measures -n 200 -s 64:256 --latency --op write
grep -q '^ #bytes .*t_p50 .*t_p99 .*t_p99.9 .*t_max' "$out/client" || fail "latency: the heading"
[ "$(grep -Ec '^ (64|128|256) +200( +[0-9]+\.[0-9]{2}){7}$' "$out/client")" -eq 3 ] || fail "latency: the lines"
measures -n 100 -s 64 --compare --rounds 3 --timeout 60
[ "$(grep -Ec '^ 64( +[0-9]+\.[0-9]{2}){3}( +[0-9]+\.[0-9]{3}){2}$' "$out/client")" -eq 1 ] || fail "compare: the line"
measures -n 100 -s 64,128 --compare --rounds 3 --json --latency
"$python" - "$out/client" <<'PYTHON' || fail "JSON"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [l["event"] for l in lines] == ["connected"] + 2 * (3 * ["result"] + ["comparison"]), lines
for size, (*results, compared) in ((64, lines[1:5]), (128, lines[5:9])):
    assert [r["mode"] for r in results] == ["pool", "register", "raw"]
    for r in results:
        t = r["latency_us"]
        assert r["size"] == size and r["messages"] == 300 and r["rounds"] == 3, r
        assert 0 < t["min"] <= t["p50"] <= t["p99"] <= t["p99.9"] <= t["max"], t
        assert t["min"] <= t["mean"] <= t["max"], t
        assert abs(r["bytes_per_second"] * r["ns_per_message"] / size / 1e9 - 1) < 1e-3, r
    assert [r["registrations"] for r in results] == [0, 300, 0], results
    assert compared["size"] == size and compared["x_register"] > 0 and compared["x_raw"] > 0
PYTHON
kill $server
wait $server || fail "the server's end on a signal: status $?"
[ "$(grep -c served "$out/server")" -eq 4 ] && [ ! -s "$out/server.err" ] || fail "the server"

# A plot, by gnuplot; the want of it, or of the place for it, is said before anything is measured.
start_server
measures -n 20 -s 64:1k --compare --rounds 1 --plot "$out/it's.svg"
"$python" -c 'import sys, xml.dom.minidom as m
text = m.parse(sys.argv[1]).toxml()
assert "register" in text and "MiB/s" in text' "$out/it's.svg" || fail "the plot"
rm -f "$out/it's.svg"
status=0
(PATH=/nowhere && "$sgpool" perf --plot "$out/plot.svg" 127.0.0.1) >"$out/client" 2>"$out/client.err" || status=$?
[ $status -eq 1 ] && grep -q gnuplot "$out/client.err" && [ ! -s "$out/client" ] || fail "without gnuplot: status $status"
status=0
"$sgpool" perf --plot "$out/no/plot.svg" 127.0.0.1 >"$out/client" 2>"$out/client.err" || status=$?
[ $status -eq 1 ] && grep -q 'plot.svg: No such file' "$out/client.err" && [ ! -s "$out/client" ] || fail "a plot that can't be written: status $status"

# The server goes on after a client that was killed in the middle of it.
killed=0
for signal in KILL INT; do
	start_client -D 60 -s 4k
	connected
	kill -$signal $client
	killed=$((killed + 1))
	until_so has_failed $killed || fail "client, $signal: the server has not noticed"
	status=0
	wait $client || status=$?
	[ $signal = KILL ] || [ $status -eq 1 ] || fail "client, $signal: status $status"
	measures -n 100 -s 64
done
# A second client meanwhile is told so.
start_client -D 60 -s 4k
first=$client
connected
start_client -n 10
status=0
wait $client || status=$?
[ $status -eq 1 ] && grep -q busy "$out/client.err" || fail "a second client: status $status"
# And the other way round.
client=$first
kill -KILL $server
until_so ended $client || fail "the server was killed, the client goes on"
status=0
wait $client || status=$?
[ $status -eq 1 ] || fail "the server was killed: the client's status is $status"
start_client -n 10
status=0
wait $client || status=$?
[ $status -eq 1 ] && grep -q "start 'sgpool perf'" "$out/client.err" || fail "without a server: status $status"

echo "$failures failures"
[ $failures -eq 0 ]
