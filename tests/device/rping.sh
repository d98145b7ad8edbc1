# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The example's rping against the stock one in both directions, its rdma-server and rdma-client
# against the stock rdma_client and rdma_server, and the README's program. SGP_RPING and SGP_HELLO
# are the programs.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

pings=10

# Soft-iWARP loses a client's first message now and then: its siw_accept() answers the client and only then
# sees to it that what comes in is received; what the client sends in between stays in the socket until
# something else comes. watch PORT: leaves a file "lost" when bytes stay in one of the port's sockets.
watch() {
	local port n=0 line
	local -a field

	[[ $SGP_VM_DEVICES == siw* ]] || return
	printf -v port ':%04X' "$1"
	while sleep 0.2; do
		while read -ra field; do
			[[ ${field[1]} != *"$port" || ${field[4]} == *:00000000 ]] || line=${field[4]}
		done < <(cat /proc/net/tcp)
		[[ ${line-} ]] && n=$((n + 1)) || n=0
		line=
		((n < 10)) || : >lost
	done
}

# converse PORT SERVER -- CLIENT: until both have ended. Sets listened and each one's status.
converse() {
	local port=$1 pid watcher
	local -a run=()

	shift
	while [[ $1 != -- ]]; do
		run+=("$1")
		shift
	done
	shift
	rm -f lost
	listened=1
	"${run[@]}" >server.out 2>server.err &
	pid=$!
	wait_until 120 listens "$port" || listened=0
	watch "$port" &
	watcher=$!
	timeout 120 "$@" >client.out 2>client.err
	client_status=$?
	kill "$watcher"
	wait "$watcher" 2>/dev/null
	wait_until 120 ended "$pid" || kill -KILL "$pid"
	wait "$pid"
	server_status=$?
}

# talk WHAT PORT SERVER -- CLIENT: both end, each with status 0. Output in server.out, client.out.
talk() {
	local what=$1 turn

	shift
	for turn in 1 2 3; do
		converse "$@"
		if ((client_status == 0 && server_status == 0)) || [[ ! -e lost ]]; then
			break
		fi
		say "soft-iWARP has lost the client's first message ($turn)"
	done
	check "$what: the server listens" [ "$listened" = 1 ]
	check "$what: the client ends with 0: $client_status" [ "$client_status" = 0 ]
	check "$what: the server ends with 0: $server_status" [ "$server_status" = 0 ]
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
