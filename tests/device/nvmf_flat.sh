# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# While fio runs, the target registers nothing, copies no payload and takes no more memory: told by
# its own statistics and by the kernel. Two namespaces, one of a file, under one bound of memory
# that is too little for what two hosts' queues ask for at once. For our target only.
# shellcheck source-path=SCRIPTDIR source=nvmf-lib.sh
. "$(dirname "$0")/nvmf-lib.sh"

# stat NAME: a number of the target's statistics, 0 if it is not there.
stat_of() {
	sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" stats.json
}

resident() { # KiB
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$target/status"
}

# Statistics come every second: those after the next.
fresh_stats() {
	local before

	before=$(stat -c %i stats.json)
	wait_until 120 inode_differs "$before"
	before=$(stat -c %i stats.json)
	wait_until 120 inode_differs "$before"
}

# shellcheck disable=SC2317 # called by wait_until
inode_differs() { # INODE
	[[ $(stat -c %i stats.json) != "$1" ]]
}

run_fio() { # NAME SECONDS
	fio_run "$1" --rw=randrw --bsrange=512-1m --iodepth=32 --numjobs=2 --time_based \
		--runtime="$2" --size=64m --offset_increment=64m --group_reporting
}

measure() {
	local -A before=() after=()
	local name

	for name in registrations registered payload_copied; do
		before[$name]=$(stat_of "$name")
	done
	before[rss]=$(resident)
	before[read]=$(stat_of_bytes read)
	before[written]=$(stat_of_bytes written)
	run_fio measured 25 &
	sleep 15
	check "the statistics go on" fresh_stats
	after[rss]=$(resident)
	wait $!
	check "fio ran well" [ $? = 0 ]
	check "the statistics go on" fresh_stats
	for name in registrations registered payload_copied; do
		after[$name]=$(stat_of "$name")
	done
	say "registered: ${after[registered]} bytes in ${after[registrations]} registrations"
	check "no registration: ${after[registrations]} after ${before[registrations]}" \
		[ "${after[registrations]}" = "${before[registrations]}" ]
	check "no memory more is registered" [ "${after[registered]}" = "${before[registered]}" ]
	check "no payload was copied: ${after[payload_copied]}" [ "${after[payload_copied]}" = 0 ]
	check "$(($(stat_of_bytes read) - before[read])) bytes were read" \
		[ "$(stat_of_bytes read)" -gt "${before[read]}" ]
	check "$(($(stat_of_bytes written) - before[written])) bytes were written" \
		[ "$(stat_of_bytes written)" -gt "${before[written]}" ]
	check "$(stat_of_bytes in_capsule) bytes came in capsules, not all" \
		[ $(($(stat_of_bytes in_capsule) > 0 &&
			$(stat_of_bytes in_capsule) < $(stat_of_bytes written))) = 1 ]
	check "memory is flat: ${before[rss]}, ${after[rss]}, $(resident) KiB" \
		[ $((after[rss] - before[rss] < 1024 && $(resident) - before[rss] < 1024)) = 1 ]
}

# "read" and "written" of the bytes, not the counts of commands.
stat_of_bytes() {
	sed -n "s/.*\"bytes\":{[^}]*\"$1\":\([0-9]*\).*/\1/p" stats.json
}

check "the host's modules" load_host
check "the RAM disk" ram_disk 192
check "the target listens" start_target "$ADDR" /dev/ram0 --memory 16 --stats stats.json
check "nvme connect" connect "$ADDR" --nr-io-queues=2
run_fio warm_up 5
check "there are statistics" fresh_stats
measure
check "nvme disconnect" disconnect
stop_target
check "all that was taken was answered: $(stat_of in_flight)" [ "$(stat_of in_flight)" = 0 ]
((failures == 0)) || show_target
finish
