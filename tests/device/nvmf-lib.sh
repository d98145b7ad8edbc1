# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For the scripts that run an NVMe over RDMA target in the machine, with the kernel's own host in
# front of it. The target is sgpool-nvmf-target (SGP_NVMF), or the kernel's nvmet_rdma for
# comparison and to try the scripts themselves: SGP_NVMF_KIND is ours (the default) or nvmet.
#
#	fio, ext4 - /dev/nvmeXnY - nvme_rdma - rxe or siw - target - RAM disk or file
#
# All of it is in one kernel. What the machine is left with is cleaned up at exit.
# shellcheck disable=SC2034 # what is set here is for the scripts
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KIND=${SGP_NVMF_KIND:-ours}
PORT=4420
device=
NQN=nqn.2025-01.org.sgpool:test
HOST_NQN=nqn.2014-08.org.nvmexpress:uuid:5e0ff5a8-4f4c-4bfb-9a0b-9c4d7c0b0001
HOST_ID=5e0ff5a8-4f4c-4bfb-9a0b-9c4d7c0b0001
NVMET=/sys/kernel/config/nvmet
target=""		# our target's process
target_runs=0
declare -a connected=()

# What was started must not be in the way of the next script.
clean_up() {
	local nqn

	mountpoint -q mnt && umount -l mnt
	for nqn in "${connected[@]}"; do
		timeout 60 nvme disconnect -n "$nqn" >/dev/null 2>&1
	done
	[[ -z $target ]] || kill -KILL "$target" 2>/dev/null
	[[ ! -d $NVMET/ports/1 ]] || nvmet_remove
}
trap clean_up EXIT

# With the time, since most of it goes by in here.
say() {
	printf '%3d s: %s\n' "$SECONDS" "$*"
}

# to FILE COMMAND...: both of its outputs in FILE.
to() {
	"${@:2}" >"$1" 2>&1
}

load_host() {
	modprobe -a nvme_rdma ext4 || return 1
	# Soft-iWARP counts what root locks as well.
	ulimit -l unlimited
}

# /dev/ram0, of that many MiB.
ram_disk() { # MIB
	[[ ! -d /sys/module/brd ]] || modprobe -r brd
	modprobe brd rd_nr=1 rd_size=$(($1 * 1024)) max_part=0 &&
		wait_until 10 test -b /dev/ram0
}

# ------------------------------------------------------------------ the target

# start_target ADDR NAMESPACE [OPTION]...: NAMESPACE as our target's --namespace takes it; more
# options are for our target only. Waits until it listens.
start_target() {
	local addr=$1 namespace=$2

	shift 2
	case $KIND in
	ours)
		target_runs=$((target_runs + 1))
		"$SGP_NVMF" --listen "$addr:$PORT" --nqn "$NQN" --namespace "$namespace" "$@" \
			>"target.$target_runs.out" 2>"target.$target_runs.err" &
		target=$!
		;;
	nvmet) nvmet_add "$addr" "${namespace%%,*}" ;;
	esac
	wait_until 120 target_listens
}

target_listens() {
	[[ -z $target ]] || kill -0 "$target" 2>/dev/null || return 1
	listens "$PORT"
}

target_is_gone() {
	! listens "$PORT"
}

# As a crash: no farewell to anybody.
kill_target() {
	case $KIND in
	ours)
		kill -KILL "$target"
		wait "$target" 2>/dev/null
		target=""
		;;
	nvmet) nvmet_remove ;;
	esac
	wait_until 120 target_is_gone
}

# The controlled end; checks that it ends with 0.
stop_target() {
	local status=0

	case $KIND in
	ours)
		kill -TERM "$target"
		wait_until 120 ended "$target" || kill -ABRT "$target"
		wait "$target"
		status=$?
		target=""
		check "the target ends with status 0, not $status" [ "$status" = 0 ]
		;;
	nvmet) nvmet_remove ;;
	esac
}

nvmet_add() { # ADDR BACKING
	local sub=$NVMET/subsystems/$NQN port=$NVMET/ports/1

	modprobe nvmet_rdma || return 1
	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
	mkdir "$sub" && echo 1 >"$sub/attr_allow_any_host" || return 1
	mkdir "$sub/namespaces/1" || return 1
	echo "$2" >"$sub/namespaces/1/device_path"
	# Else the kernel drops the device when the target is back: they would be random.
	echo 5e0ff5a8-4f4c-4bfb-9a0b-9c4d7c0b0002 >"$sub/namespaces/1/device_uuid"
	echo 5e0ff5a8-4f4c-4bfb-9a0b-9c4d7c0b0003 >"$sub/namespaces/1/device_nguid"
	echo 1 >"$sub/namespaces/1/enable" || return 1
	mkdir "$port" || return 1
	echo rdma >"$port/addr_trtype"
	echo ipv4 >"$port/addr_adrfam"
	echo "$1" >"$port/addr_traddr"
	echo "$PORT" >"$port/addr_trsvcid"
	ln -s "$sub" "$port/subsystems/$NQN"
}

nvmet_remove() {
	local sub=$NVMET/subsystems/$NQN port=$NVMET/ports/1

	rm -f "$port/subsystems/$NQN"
	rmdir "$port"
	echo 0 >"$sub/namespaces/1/enable"
	rmdir "$sub/namespaces/1" "$sub"
}

# What our target said on stderr is shown when something failed.
show_target() {
	local file

	for file in target.*.err; do
		[[ ! -s $file ]] || tail -n 20 "$file" | cut -c 1-200 | sed "s/^/  $file: /"
	done
	dmesg | grep -i nvme | tail -n 20 | sed 's/^/  kernel: /'
}

# ------------------------------------------------------------------ the kernel's host

# Is this what soft-iWARP does now and then, and did it since line LINE of the kernel's log? Its siw_accept() answers the host first and then sees to
# it that what comes in is received: what the host sends in between stays in the socket, and the host
# gives its Connect up after a minute.
siw_lost_connect() { # LINE
	[[ ${SGP_VM_DEVICES-} == siw* ]] &&
		dmesg | tail -n +"$1" | grep nvme | grep -q "Connect command failed, error wo/DNR bit: 881"
}

# persist COMMAND...: again, where that has been.
persist() {
	local turn line

	for turn in 1 2 3; do
		line=$(($(dmesg | wc -l) + 1))
		! "$@" || return 0
		siw_lost_connect "$line" || return 1
		say "soft-iWARP has lost the host's Connect ($turn)"
	done
	return 1
}

nvme_connect() { # ADDR OPTION...
	timeout 120 nvme connect -t rdma -a "$1" -s "$PORT" -n "$NQN" --hostnqn "$HOST_NQN" \
		--hostid "$HOST_ID" "${@:2}" >connect.out 2>&1
}

# connect ADDR [OPTION OF nvme connect]...: sets device, the block device, when it is there.
connect() {
	connected+=("$NQN")
	persist nvme_connect "$@" || { cat connect.out && return 1; }
	wait_until 120 find_device
}

disconnect() {
	timeout 120 nvme disconnect -n "$NQN" >disconnect.out 2>&1 && wait_until 120 no_controller
}

controllers() {
	grep -lx "$NQN" /sys/class/nvme/nvme*/subsysnqn 2>/dev/null
}

# The controller's name.
controller() {
	controllers | sed -n '1s,.*/\(nvme[0-9]*\)/subsysnqn,\1,p'
}

no_controller() {
	[[ -z $(controllers) ]]
}

controller_is() { # STATE
	[[ $(cat "/sys/class/nvme/$(controller)/state" 2>/dev/null) == "$1" ]]
}

# The namespace's block device: the one of the subsystem, not one path's.
find_device() {
	local sub name

	for sub in /sys/class/nvme-subsystem/nvme-subsys*; do
		[[ $(cat "$sub/subsysnqn" 2>/dev/null) == "$NQN" ]] || continue
		for name in "$sub"/nvme*n*; do
			name=${name##*/}
			if [[ $name =~ ^nvme[0-9]+n[0-9]+$ && -b /dev/$name ]]; then
				device=/dev/$name
				return 0
			fi
		done
	done
	return 1
}

# ------------------------------------------------------------------ what runs on the device

# fio_run NAME OPTION...: fio on the device; checks its status, that it found no error and that it
# did something. Options may begin jobs (--name=JOB), to all of which what stands before the first
# of them applies. Its report is NAME.fio.
fio_run() {
	local name=$1 status bytes errors
	local -a job=(--name="$1")

	shift
	[[ " $*" != *" --name="* ]] || job=()
	timeout 500 fio --filename="$device" --direct=1 --ioengine=libaio --output="$name.fio" \
		--output-format=json "$@" "${job[@]}" >"$name.fio.out" 2>&1
	status=$?
	bytes=$(fio_sum io_bytes "$name")
	errors=$(fio_sum error "$name")
	if check "fio $name: status $status, $bytes bytes, $errors errors" \
		[ "$status $errors $((bytes > 0))" = "0 0 1" ]; then
		return 0
	fi
	tail -n 20 "$name.fio.out" | sed 's/^/  fio: /'
	return 1
}

# fio_sum FIELD NAME: over all jobs and directions.
fio_sum() {
	awk -v field="\"$1\"" '$1 == field { n += $3 } END { printf "%.0f\n", n }' "$2.fio"
}

# Writes, reads back and checks every block: OPTION... say how.
fio_verify() { # NAME OPTION...
	fio_run "$1" --verify=crc32c --verify_fatal=1 --do_verify=1 "${@:2}"
}

# Requests that the target has answered so far; the path's, as the device in front of it does not
# count.
requests_done() {
	local file
	local -a stat=(0 0 0 0 0)

	for file in "/sys/class/nvme/$(controller)"/nvme*n*/stat; do
		read -r -a stat <"$file"
	done
	echo $((stat[0] + stat[4]))
}

# shellcheck disable=SC2317 # called by wait_until
requests_above() { # COUNT
	(($(requests_done) > $1))
}

# Requests of fio's, which runs as a background job, are answered: some more than now.
check_progress() { # WHEN
	check "$1: requests are answered" wait_until 180 requests_above $(($(requests_done) + 50))
}

unpack() { # FROM TO
	tar -C "$1" -cf - . | tar -C "$2" -xf -
}

# Trees of source of this project go into a file system on the device, and are what they were after
# it has been away.
file_system() { # FOLDER...
	local top=${BASH_SOURCE[0]%/tests/device/*} dir

	mkdir -p mnt
	check "mkfs.ext4" mkfs.ext4 -q -F "$device"
	check "mount" mount -t ext4 "$device" mnt
	for dir; do
		mkdir "mnt/$dir"
		check "unpack $dir" unpack "$top/$dir" "mnt/$dir"
	done
	check "unmount" umount mnt
	check "mount again" mount -t ext4 "$device" mnt
	for dir; do
		check "$dir is what it was" diff -r "$top/$dir" "mnt/$dir"
	done
	check "unmount again" umount mnt
	check "fsck finds nothing" fsck.ext4 -f -n "$device"
}
