# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# fio through the kernel's NVMe host over a wire that loses one packet in a hundred, and over one
# that is cut for so long that the host gives its connections up. The machine is one with a wire;
# the target is at its far end.
# shellcheck source-path=SCRIPTDIR source=nvmf-lib.sh
. "$(dirname "$0")/nvmf-lib.sh"

FAR=10.0.0.2

verify() { # NAME SIZE OPTION...; a lost packet costs seconds here
	fio_verify "$1" --rw=randwrite --bsrange=512-128k --size="$2" --iodepth=8 "${@:3}"
}

# No request is answered for five seconds.
# shellcheck disable=SC2317 # called by wait_until
stands_still() {
	local before

	before=$(requests_done)
	sleep 5
	[[ $(requests_done) == "$before" ]]
}

# With all packets lost fio stands still, but for what was on its way: so what the next steps do to the
# wire does hit.
cut_under_load() {
	local fio

	verify cut 8m --rate=1m --numjobs=2 --offset_increment=32m --group_reporting &
	fio=$!
	check_progress "before the cut"
	lose 100
	check "all is lost: fio stands still" wait_until 60 stands_still
	check "all is lost: the wire counts it" dropped_more_than 0
	check "all is lost: the host notices" wait_until 180 controller_is connecting
	lose_nothing
	check "the host is connected again" wait_until 120 controller_is live
	wait "$fio"
	check "fio saw nothing of it" [ $? = 0 ]
}

lose_some() {
	lose 1
	verify loss 3m
	check "1 % is lost: the wire counts it" dropped_more_than 0
	lose_nothing
}

check "the host's modules" load_host
check "the RAM disk" ram_disk 128
check "the target listens" start_target "$FAR" /dev/ram0
check "nvme connect" connect "$FAR" --host-traddr="$ADDR" --reconnect-delay=1 \
	--ctrl-loss-tmo=300 --nr-io-queues=2
cut_under_load
lose_some
verify afterwards 4m
check "nvme disconnect" disconnect
stop_target
((failures == 0)) || show_target
finish
