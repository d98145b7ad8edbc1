# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Commands that a file system seldom sends, by nvme-cli through the kernel's host: compare, write
# zeroes, discard, flush, features, log pages; namespaces that are files, have blocks of 4096 bytes,
# or can't be written; and what is wrong gets the right status and harms nothing.
# shellcheck source-path=SCRIPTDIR source=nvmf-lib.sh
. "$(dirname "$0")/nvmf-lib.sh"

# fails WHAT TEXT COMMAND...: the command fails, and says TEXT.
fails() {
	local what=$1 text=$2

	shift 2
	if to fails.out "$@"; then
		check "$what fails" false
	else
		check "$what: $text" grep -qi -- "$text" fails.out || sed 's/^/  /' fails.out
	fi
}

same_as() { # FILE BLOCK BYTES: what the device has there
	dd if="$device" bs=512 skip="$2" count=$(($3 / 512)) iflag=direct of=read.out status=none &&
		cmp -n "$3" "$1" read.out
}

plain_commands() {
	head -c 65536 /dev/urandom >data
	head -c 65536 /dev/zero >zeroes
	check "nvme write" to w.out nvme write "$device" -s 64 -c 127 -z 65536 -d data
	check "it was written" same_as data 64 65536
	check "nvme read" to r.out nvme read "$device" -s 64 -c 127 -z 65536 -d got
	check "it was read" cmp data got
	check "nvme compare" to c.out nvme compare "$device" -s 64 -c 127 -z 65536 -d data
	fails "nvme compare with other data" "compare fail" \
		nvme compare "$device" -s 63 -c 127 -z 65536 -d data
	check "nvme write-zeroes" to z.out nvme write-zeroes "$device" -s 72 -c 7
	check "zeroes are there" same_as zeroes 72 4096
	check "what is before stays" same_as data 64 4096
	tail -c +8193 data >rest
	check "what is behind stays" same_as rest 80 57344
	check "nvme flush" to f.out nvme flush "$device" -n 1
	check "nvme dsm" to d.out nvme dsm "$device" -n 1 -d -s 64 -b 128
	check "blkdiscard" blkdiscard -o 32768 -l 1048576 "$device"
	check "blkdiscard -z" blkdiscard -z -o 32768 -l 1048576 "$device"
	check "zeroes are there" same_as zeroes 64 65536
}

wrong_commands() {
	local blocks

	blocks=$(blockdev --getsz "$device")
	fails "a write behind the end" "LBA" nvme write "$device" -s "$blocks" -c 0 -z 512 -d data
	fails "a read over the end" "LBA" \
		nvme read "$device" -s $((blocks - 1)) -c 1 -z 1024 -d got
	fails "a far read" "LBA" nvme read "$device" -s 0xffffffffffffffff -c 0 -z 512 -d got
	fails "zeroes behind the end" "LBA" nvme write-zeroes "$device" -s $((blocks - 1)) -c 1
	fails "a discard behind the end" "LBA" \
		nvme dsm "$device" -n 1 -d -s $((blocks - 1)) -b 2
	fails "an opcode of nobody's" "INVALID_OPCODE\|Invalid Command Opcode" \
		nvme io-passthru "$device" --opcode=0xc7 -n 1
	fails "an admin opcode of nobody's" "INVALID_OPCODE\|Invalid Command Opcode" \
		nvme admin-passthru "/dev/$(controller)" --opcode=0xc7
	fails "a length that is not the blocks'" "SGL\|DATA_SGL_LEN_INVALID\|Data SGL Length" \
		nvme io-passthru "$device" --opcode=2 -n 1 --cdw10=0 --cdw12=7 -l 512 -r
	check "the device still answers, and is what it was" same_as zeroes 64 65536
}

admin_commands() {
	local ctl

	ctl=/dev/$(controller)
	check "nvme list-ns" to ns.out nvme list-ns "$ctl"
	check "nvme ns-descs" to descs.out nvme ns-descs "$device" -n 1
	check "nvme ns-descs: a UUID" grep -q '^uuid' descs.out
	check "nvme smart-log" to smart.out nvme smart-log "$ctl"
	check "nvme error-log" to error.out nvme error-log "$ctl" -e 1
	check "nvme fw-log" to fw.out nvme fw-log "$ctl"
	check "nvme get-feature: queues" to feature.out nvme get-feature "$ctl" -f 7
	check "nvme get-feature: keep-alive" to feature.out nvme get-feature "$ctl" -f 15
	fails "a log page of nobody's" "INVALID\|Invalid" nvme get-log "$ctl" -i 0xc9 -l 512
	fails "an identify of nobody's" "INVALID\|Invalid" \
		nvme admin-passthru "$ctl" --opcode=6 --cdw10=0xee -l 4096 -r
}

# Other kinds of namespaces, each with a target of its own.
a_file() {
	truncate -s 64M file
	check "a file: the target listens" start_target "$ADDR" "$PWD/file,bs=4096"
	check "a file: nvme connect" connect "$ADDR" --nr-io-queues=2
	check "a file: blocks of 4096 bytes" [ "$(blockdev --getss "$device")" = 4096 ]
	fio_verify file --rw=randwrite --bsrange=4k-256k --size=24m --iodepth=16 --fsync=16
	check "a file: nvme disconnect" disconnect
	stop_target
}

read_only() {
	head -c 1048576 /dev/urandom >file
	cp file before
	check "read-only: the target listens" start_target "$ADDR" "$PWD/file,ro"
	check "read-only: nvme connect" connect "$ADDR" --nr-io-queues=1
	check "read-only: the data" same_as before 0 1048576
	fails "read-only: nvme write" "protect" \
		nvme write "$device" -s 0 -c 0 -z 512 -d zeroes
	fails "read-only: nvme write-zeroes" "protect" nvme write-zeroes "$device" -s 0 -c 0
	check "read-only: nvme disconnect" disconnect
	stop_target
	check "read-only: the file is what it was" cmp file before
}

check "the host's modules" load_host
check "the RAM disk" ram_disk 32
check "the target listens" start_target "$ADDR" /dev/ram0
check "nvme connect" connect "$ADDR" --nr-io-queues=2
plain_commands
wrong_commands
admin_commands
check "nvme disconnect" disconnect
stop_target
if [ "$KIND" = ours ]; then
	a_file
	read_only
fi
((failures == 0)) || show_target
finish
