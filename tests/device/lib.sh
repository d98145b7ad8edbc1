# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For the scripts that run in the machine: transfers with the sgpool command, and checks. A script
# runs in an empty folder of its own; SGPOOL is the command.
# shellcheck disable=SC2034 # receiver and sender are for the scripts
set -uo pipefail

ADDR=10.0.0.1
failures=0

say() {
	echo "$*"
}

# check WHAT COMMAND...: counts a failure unless COMMAND succeeds, and returns which it was.
check() {
	local what=$1

	shift
	if "$@"; then
		say "ok: $what"
		return 0
	fi
	say "FAILED: $what"
	failures=$((failures + 1))
	return 1
}

finish() {
	((failures == 0)) || say "$failures checks failed"
	exit $((failures > 0))
}

# wait_until SECONDS COMMAND...: a limit for what must happen, however slow the machine is.
wait_until() {
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}

# Is TEXT in the file? (In emulation the start of a program takes longer than what most are started for, from
# the time of those that are waited for: what is done often is done by the shell.)
has() { # FILE TEXT
	local -a lines

	[[ -s $1 ]] || return 1
	mapfile lines <"$1"
	[[ "${lines[*]}" == *"$2"* ]]
}

# Does a program of this machine listen there?
listens() { # PORT
	local line

	while IFS= read -r line; do
		[[ $line != *LISTEN* || $line != *":$1 "* ]] || return 0
	done <<<"$(rdma resource show cm_id 2>/dev/null)"
	return 1
}

ended() { # PID
	! kill -0 "$1" 2>/dev/null
}

# Starts a receiver of one file in the background, and waits until it listens; sets receiver.
start_receiver() { # FILE
	: >recv.json # what an earlier one said would count
	"$SGPOOL" recv --once --json -o "$1" >recv.json 2>recv.err &
	receiver=$!
	wait_until 120 has recv.json '"listening"'
}

start_sender() { # FILE; sets sender
	"$SGPOOL" send --json "$ADDR" "$1" >send.json 2>send.err &
	sender=$!
}

# field NAME FILE: the value of a field of the last line of JSON in FILE.
field() {
	local -a lines

	mapfile -t lines <"$2"
	[[ ${lines[*]: -1} =~ \"$1\":\ \"?([^,\"}]*) ]] && echo "${BASH_REMATCH[1]}"
}

show_errors() {
	local file

	for file in recv.json recv.err send.json send.err; do
		[[ ! -s $file ]] || sed "s/^/  $file: /" "$file"
	done
}

# For a machine with a wire (scripts/vm --wire).
lose() { # PERCENT
	local dev

	for dev in v0 v1; do
		tc qdisc replace dev "$dev" root netem loss "$1%" limit 10000
	done
}

lose_nothing() {
	tc qdisc del dev v0 root
	tc qdisc del dev v1 root
}

# shellcheck disable=SC2317 # called by wait_until
dropped() {
	local dev

	for dev in v0 v1; do
		tc -s qdisc show dev "$dev"
	done | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}

# shellcheck disable=SC2317 # called by wait_until
dropped_more_than() { # COUNT
	(($(dropped) > $1))
}
