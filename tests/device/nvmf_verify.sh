# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every block that fio writes through the kernel's NVMe host comes back as it was: sizes from 512
# bytes, which travel in the capsule, to 1 MiB, one request at a time to 64, several jobs, one and
# two queues, and a queue of its own for writes. Takes minutes.
# shellcheck source-path=SCRIPTDIR source=nvmf-lib.sh
. "$(dirname "$0")/nvmf-lib.sh"

MIB=256

# sizes NAME DEPTH JOBS: requests of each size at once, from JOBS jobs each.
sizes() {
	fio_verify "$1" --rw=randwrite --iodepth="$2" --numjobs="$3" --group_reporting \
		--offset_increment=16m \
		--name=512 --bs=512 --size=256k \
		--name=4k --offset=64m --bs=4k --size=2m \
		--name=64k --offset=128m --bs=64k --size=6m \
		--name=1m --offset=192m --bs=1m --size=12m
}

matrix() { # NAME OPTION OF nvme connect...
	check "nvme connect ${*:2}" connect "$ADDR" "${@:2}" || return
	sizes "$1.1" 1 1
	sizes "$1.8" 8 4
	sizes "$1.64" 64 2
	fio_verify "$1.mixed" --rw=randrw --bsrange=512-1m --size=16m --iodepth=32 --numjobs=4 \
		--offset_increment=64m --group_reporting
	check "nvme disconnect" disconnect
}

check "the host's modules" load_host
check "the RAM disk" ram_disk "$MIB"
check "the target listens" start_target "$ADDR" /dev/ram0
matrix one --nr-io-queues=1
matrix two --nr-io-queues=2 --queue-size=16
matrix apart --nr-io-queues=1 --nr-write-queues=1
stop_target
((failures == 0)) || show_target
finish
