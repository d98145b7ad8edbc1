# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# sgpool perf on real verbs: each operation in each mode, bandwidth and latency; no registration in
# mode pool, one for each message in mode register; and a client whose server is killed ends at once.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

start_server() {
	"$SGPOOL" perf --json >server.json 2>server.err &
	server=$!
	check "the server listens" wait_until 120 has server.json '"listening"'
}

# figures NAME: the values of a field in the results, in the modes' order.
figures() {
	sed -n "s/.*\"event\": \"result\".*\"$1\": \([^,}]*\).*/\1/p" client.json | tr '\n' ' '
}

compare() { # MESSAGES SIZE OPTION...: so many messages are sent in each mode
	local status messages=$1 begun=$SECONDS

	shift
	# Three tests are open at once, and soft-iWARP counts what root locks as well: small depths.
	timeout 120 "$SGPOOL" perf --json --compare --rounds 1 -n 10 -t 16 -s "$@" "$ADDR" >client.json 2>client.err
	status=$?
	check "$*: the client ends well" [ "$status" = 0 ]
	cat client.err
	check "$*: pool registers nothing, register each message" \
		[ "$(figures registrations)" = "0 $messages 0 " ]
	say "$*: ns a message of pool, register, raw: $(figures ns_per_message)($((SECONDS - begun)) s)"
}

start_server
compare 10 16384 --events
compare 20 4096 --events --bidirectional --qp 2 --threads 2
compare 10 4096 --latency --events
compare 10 64 --op write --latency
compare 10 16384 --op read --events

"$SGPOOL" perf --events -s 4k -D 60 "$ADDR" >client.json 2>client.err &
client=$!
sleep 3
check "the server is killed" kill -KILL "$server"
check "its client ends" wait_until 120 ended "$client"
wait "$client"
status=$?
check "with status 1, not $status" [ "$status" = 1 ]
check "it says why" grep -q '^sgpool perf: ' client.err
sed 's/^/  /' client.err
finish
