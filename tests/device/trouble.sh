# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Traffic over a wire that loses packets, goes down and up, and between programs that are killed and
# come back: nothing is lost, nothing is stuck, the memory stays flat; trouble.c looks at all of that
# from inside. SGP_TROUBLE is that program, SGP_TROUBLE_SECONDS the time to go on for (60). The
# machine is one with a wire: v0 and v1, 10.0.0.1 and 10.0.0.2; v0p is the far end of v0.
#
#	a	eight messages deep, and memory that is too little for it
#	b	a queue depth of 1
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

declare -A port=([a]=7491 [b]=7492) server=() client=() out=()
declare -A options=([a]="--depth 8 --spare 1" [b]="--depth 1 --spare 1")
starts=0

start_one() { # serve|send PAIR
	local who=$1 pair=$2

	out[$who.$pair]=$who.$pair.$((++starts))
	# shellcheck disable=SC2086 # several words
	"$SGP_TROUBLE" "$who" 10.0.0.2 "${port[$pair]}" ${options[$pair]} --bytes 16384 \
		>"${out[$who.$pair]}" 2>"${out[$who.$pair]}.err" &
	if [[ $who == serve ]]; then server[$pair]=$!; else client[$pair]=$!; fi
}

# Messages that have come back to a pair's client.
count() { # PAIR
	local -a lines
	local i

	mapfile -t lines <"${out[send.$1]}"
	for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
		[[ ${lines[i]} =~ ^[0-9]+$ ]] && break
	done
	((i < 0)) && echo 0 || echo "${lines[i]}"
}

# shellcheck disable=SC2317 # called by wait_until
more_than() { # PAIR COUNT
	(($(count "$1") > $2))
}

# Some more messages of each pair come back. A lost packet costs seconds here.
check_traffic() { # WHEN
	local pair

	for pair in a b; do
		check "$1: $pair goes on" wait_until 120 more_than "$pair" $(($(count "$pair") + 2))
	done
	# What is stuck now stays so.
	((failures == 0)) || stop
}

# Nothing comes back for four seconds.
# shellcheck disable=SC2317 # called by wait_until
stands_still() { # PAIR
	local before

	before=$(count "$1")
	sleep 4
	[[ $(count "$1") == "$before" ]]
}

# With all packets lost nothing comes back, but what was on its way: so what the next steps do to the
# wire does hit.
show_that_loss_hits() {
	lose 100
	check "all is lost: a stands still" wait_until 60 stands_still a
	check "all is lost: b stands still" stands_still b
	check "all is lost: the wire counts it" dropped_more_than 0
	lose_nothing
	check_traffic "after all was lost"
}

lose_some() {
	lose 1
	check_traffic "1 % is lost"
	sleep 4
	check "1 % is lost: the wire counts it" wait_until 120 dropped_more_than 0
	check_traffic "1 % is lost, still"
	lose_nothing
}

# Short, so that connections may live through it, and too long for that.
link_down_and_up() { # SECONDS
	ip link set v0p down
	sleep "$1"
	check "the link is down" grep -q 0 /sys/class/net/v0/carrier
	ip link set v0p up
	check_traffic "the link was down for $1 s"
}

# Of each pair one end lives through all of it.
kill_and_restart() {
	kill -KILL "${server[a]}" "${client[b]}"
	wait "${server[a]}" "${client[b]}" 2>/dev/null
	start_one serve a
	start_one send b
	check_traffic "killed and back"
}

ends_well() { # WHO PID
	local status

	kill -TERM "$2"
	wait_until 120 ended "$2" || kill -ABRT "$2"
	wait "$2"
	status=$?
	check "$1 ends with status 0, not $status" [ "$status" = 0 ]
}

stop() {
	local pair file

	for pair in a b; do
		ends_well "client $pair" "${client[$pair]}"
		ends_well "server $pair" "${server[$pair]}"
	done
	for file in serve.* send.*; do
		tail -n 20 "$file" | grep -v '^[0-9]*$' | sed "s/^/  $file: /"
	done
	finish
}

# soft-iWARP counts what root locks as well.
ulimit -l unlimited
end=$((SECONDS + ${SGP_TROUBLE_SECONDS:-60}))
for pair in a b; do
	start_one serve "$pair"
	start_one send "$pair"
done
check_traffic "at first"
show_that_loss_hits
# All of it once, however slow the machine is.
while :; do
	lose_some
	link_down_and_up 2
	link_down_and_up 10
	kill_and_restart
	((SECONDS < end)) || stop
done
