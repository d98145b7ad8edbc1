# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The kernel's NVMe over RDMA host on sgpool-nvmf-target, in a minute: discovered, connected and
# described by nvme-cli, a file system that lives through unmounting, fio that checks what it wrote,
# the target killed under fio and started again.
# shellcheck source-path=SCRIPTDIR source=nvmf-lib.sh
. "$(dirname "$0")/nvmf-lib.sh"

# A line of nvme-cli's answer, with any number of blanks between its words.
has_line() { # FILE TEXT
	local -a words

	while read -r -a words; do
		[[ "${words[*]}" != "$2" ]] || return 0
	done <"$1"
	return 1
}

discovers() {
	local line

	check "nvme discover" persist discover
	for line in "trtype: rdma" "subtype: nvme subsystem" "subnqn: $NQN" "traddr: $ADDR" \
		"trsvcid: $PORT"; do
		check "nvme discover: $line" has_line discover.out "$line"
	done
	check "nvme discover: no controller is left" no_nvme_at_all
}

discover() {
	to discover.out nvme discover -t rdma -a "$ADDR" -s "$PORT" --hostnqn "$HOST_NQN" \
		--hostid "$HOST_ID"
}

no_nvme_at_all() {
	! compgen -G '/sys/class/nvme/nvme*' >/dev/null
}

describes() { # MIB
	check "nvme id-ctrl" to id-ctrl.out nvme id-ctrl "/dev/$(controller)"
	check "nvme id-ctrl: the subsystem" has_line id-ctrl.out "subnqn : $NQN"
	check "nvme id-ns" to id-ns.out nvme id-ns "$device"
	check "nvme id-ns: the size" has_line id-ns.out "nsze : $(printf '0x%x' $(($1 * 2048)))"
	check "nvme list" to list.out nvme list
	check "nvme list: the device" grep -q "^$device " list.out
	check "the device's size" [ "$(blockdev --getsize64 "$device")" = $(($1 * 1048576)) ]
}

# Killed while fio writes, which then checks; the host connects again by itself.
killed_under_fio() {
	local fio

	fio_verify killed --rw=randwrite --bs=4k --size=8m --iodepth=16 --rate_iops=400 &
	fio=$!
	check "fio writes" wait_until 120 requests_above $(($(requests_done) + 300))
	check "the target is killed" kill_target
	check "fio was at it" kill -0 "$fio"
	sleep 1
	check "the target is back" start_target "$ADDR" /dev/ram0 --memory 32
	check "the host is connected again" wait_until 120 controller_is live
	wait "$fio"
	check "fio saw nothing of it" [ $? = 0 ]
}

check "the host's modules" load_host
check "the RAM disk" ram_disk 64
# The less memory the target has, the sooner it has started: seconds, in emulation.
check "the target listens" start_target "$ADDR" /dev/ram0 --memory 32
discovers
check "nvme connect" connect "$ADDR" --reconnect-delay=1 --ctrl-loss-tmo=120 --nr-io-queues=2
describes 64
file_system src include
fio_verify mixed --iodepth=16 --size=4m --offset_increment=32m --rw=randwrite --bsrange=512-128k \
	--numjobs=2 --group_reporting
killed_under_fio
check "nvme disconnect" disconnect
stop_target
((failures == 0)) || show_target
finish
