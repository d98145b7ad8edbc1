# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The target is killed, stopped and started again while fio writes and checks; the host is cut off
# under load. Nothing that was acknowledged is lost, and a file system on the device is whole
# afterwards. Takes minutes.
# shellcheck source-path=SCRIPTDIR source=nvmf-lib.sh
. "$(dirname "$0")/nvmf-lib.sh"

rounds=4

start_fio() { # NAME; sets fio
	fio_verify "$1" --rw=randwrite --bsrange=512-64k --size=6m --iodepth=16 --rate=1m \
		--numjobs=2 --offset_increment=64m --verify_backlog=64 --fsync=32 \
		--group_reporting &
	fio=$!
	check_progress "fio $1"
}

# comes_back NAME: the target is started, fio goes on and ends well.
comes_back() {
	check "$1: fio was at it" kill -0 "$fio"
	sleep 1
	check "$1: the target is back" start_target "$ADDR" "$namespace"
	check "$1: the host is connected again" wait_until 180 controller_is live
	wait "$fio"
	check "$1: fio saw nothing of it" [ $? = 0 ]
}

killed() { # NAME
	start_fio "$1"
	check "$1: the target is killed" kill_target
	comes_back "$1"
}

stopped() { # NAME
	start_fio "$1"
	stop_target
	comes_back "$1"
}

# The kernel resets the controller, with requests under way.
reset_under_load() {
	start_fio reset
	check "reset: nvme reset" nvme reset "/dev/$(controller)"
	check "reset: the host is connected again" wait_until 180 controller_is live
	wait "$fio"
	check "reset: fio saw nothing of it" [ $? = 0 ]
}

# The device goes away under fio, which fails; the target serves the next host as before.
cut_off_under_load() {
	fio --name=cut --filename="$device" --direct=1 --ioengine=libaio --rw=randrw --bs=16k \
		--iodepth=32 --time_based --runtime=60 >cut.out 2>&1 &
	fio=$!
	check_progress "cut off"
	check "cut off: nvme disconnect" disconnect
	wait "$fio"
	check "cut off: fio failed" [ $? != 0 ]
	check "cut off: nvme connect" connect_again
}

connect_again() {
	connect "$ADDR" --reconnect-delay=1 --ctrl-loss-tmo=300 --nr-io-queues=2
}

# Files are synchronised one by one; the target is killed in between; they are all there.
killed_under_files() {
	local i

	check "files: mkfs.ext4" mkfs.ext4 -q -F "$device"
	mkdir -p mnt
	check "files: mount" mount -t ext4 "$device" mnt
	for ((i = 0; i < 24; i++)); do
		if ((i == 12)); then
			check "files: the target is killed" kill_target
			(sleep 2; sync "mnt/$((i - 1))") & # in the target's absence
			check "files: the target is back" start_target "$ADDR" "$namespace"
		fi
		head -c $((i * 5000 + 1)) /dev/zero | tr '\0' 'a' >"mnt/$i"
		sync "mnt/$i"
	done
	check "files: unmount" umount mnt
	check "files: fsck finds nothing" fsck.ext4 -f -n "$device"
	check "files: mount again" mount -t ext4 "$device" mnt
	for ((i = 0; i < 24; i++)); do
		[ "$(tr -d a <"mnt/$i" | wc -c) $(wc -c <"mnt/$i")" = "0 $((i * 5000 + 1))" ] ||
			check "files: $i is whole" false
	done
	check "files: unmount again" umount mnt
}

check "the host's modules" load_host
check "the RAM disk" ram_disk 192
namespace=/dev/ram0
check "the target listens" start_target "$ADDR" "$namespace"
check "nvme connect" connect_again
for ((round = 1; round <= rounds; round++)); do
	killed "killed.$round"
done
stopped stopped
reset_under_load
cut_off_under_load
killed_under_files
check "nvme disconnect" disconnect
stop_target
((failures == 0)) || show_target
finish
