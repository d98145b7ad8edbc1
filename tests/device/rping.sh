# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The example's rping against the stock one in both directions, its rdma-server and rdma-client
# against the stock rdma_client and rdma_server, and the README's program. SGP_RPING and SGP_HELLO
# are the programs.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

pings=10

# talk WHAT PORT SERVER -- CLIENT: both end, each with status 0. Output in server.out, client.out.
talk() {
	local what=$1 port=$2 server pid status
	local -a run=()

	shift 2
	while [[ $1 != -- ]]; do
		run+=("$1")
		shift
	done
	shift
	"${run[@]}" >server.out 2>server.err &
	pid=$!
	check "$what: the server listens" wait_until 120 listens "$port"
	timeout 120 "$@" >client.out 2>client.err
	status=$?
	check "$what: the client ends with 0: $status" [ "$status" = 0 ]
	wait_until 120 ended "$pid" || kill -KILL "$pid"
	wait "$pid"
	status=$?
	check "$what: the server ends with 0: $status" [ "$status" = 0 ]
	((failures == 0)) || show_output
}

show_output() {
	local file

	for file in server.out server.err client.out client.err; do
		[[ ! -s $file ]] || cut -c 1-200 "$file" | sed "s/^/  $file: /"
	done
}

pinged() { # FILE PATTERN: it tells of all pings
	local n

	n=$(grep -ac "$2" "$1")
	check "$1 shows $pings pings: $n" [ "$n" = "$pings" ]
}

both_ways() { # BYTES
	local size=$1

	talk "our server, stock client, $size bytes" 7174 "$SGP_RPING" -s -v -a "$ADDR" -- \
		rping -c -a "$ADDR" -C "$pings" -S "$size" -v -V
	pinged server.out '^server ping data: rdma-ping-'
	pinged client.out '^ping data: rdma-ping-'
	talk "stock server, our client, $size bytes" 7174 rping -s -v -a "$ADDR" -C "$pings" \
		-S "$size" -- "$SGP_RPING" -c -a "$ADDR" -C "$pings" -S "$size" -v -V
	pinged server.out '^server ping data: rdma-ping-'
	pinged client.out '^ping data: rdma-ping-'
}

for size in 64 65535; do
	both_ways "$size"
done
talk "ours, both ends" 7174 "$SGP_RPING" -s -- "$SGP_RPING" -c -a "$ADDR" -C 100 -S 4096 -V

talk "our rdma-server" 7471 "$SGP_RPING" rdma-server -- rdma_client -s "$ADDR"
check "the stock client is content" grep -q 'end 0' client.out
talk "our rdma-client" 7471 rdma_server -- "$SGP_RPING" rdma-client -a "$ADDR"
check "the stock server is content" grep -q 'end 0' server.out
talk "our rdma-server and rdma-client" 7471 "$SGP_RPING" rdma-server -v -- \
	"$SGP_RPING" rdma-client -v -a "$ADDR"
check "the client has its message back" grep -q 'hello, server' client.out
talk "the README's program" 7471 "$SGP_RPING" rdma-server -v -- "$SGP_HELLO" "$ADDR"
check "it has its message back" grep -q 'hello, world' client.out

# What goes wrong ends with status 1 and one line.
timeout 60 "$SGP_RPING" -c -a "$ADDR" -C 1 >client.out 2>client.err
status=$?
check "without a server: it ends with 1: $status" [ "$status" = 1 ]
check "without a server: one line says so" [ "$(grep -c '^rping: ' client.err)" = 1 ]
cat client.err

"$SGP_RPING" -s -a "$ADDR" >server.out 2>server.err &
server=$!
check "a server for a client that dies: listens" wait_until 120 listens 7174
"$SGP_RPING" -c -v -a "$ADDR" >client.out 2>client.err &
client=$!
check "a client that dies: pings" wait_until 120 test -s client.out
kill -KILL "$client"
wait "$client" 2>/dev/null
check "a client that dies: the server ends too" wait_until 120 ended "$server"
kill -KILL "$server" 2>/dev/null
cat server.err
finish
