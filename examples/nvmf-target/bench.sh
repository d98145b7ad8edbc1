#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# In the machine: sgpool-nvmf-target and the kernel's own target, nvmet_rdma, side by side over the
# same RAM disk in the same boot, the kernel's host connected to both, fio by turns on one and the
# other. The table is bench.py's.
#
#	scripts/vm --timeout 3600 -- examples/nvmf-target/bench.sh \
#		build/release/examples/nvmf-target/sgpool-nvmf-target [--rounds N] [--seconds N] \
#		[--only PATTERN] [--json]
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export SGP_NVMF=$1
shift
rounds=5 seconds=4 only='' json=()
while (($#)); do
	case $1 in
	--rounds) rounds=$2 && shift ;;
	--seconds) seconds=$2 && shift ;;
	--only) only=$2 && shift ;;
	--json) json=(--json) ;;
	*) echo "there is no option $1" >&2 && exit 2 ;;
	esac
	shift
done
SGP_NVMF=$(realpath "$SGP_NVMF")
cd "$(mktemp -d)" || exit 1
# shellcheck source-path=SCRIPTDIR source=../../tests/device/nvmf-lib.sh
. "$here/../../tests/device/nvmf-lib.sh"

# Name, fio's options.
workloads=(
	"randread-4k-1 --rw=randread --bs=4k --iodepth=1"
	"randwrite-4k-1 --rw=randwrite --bs=4k --iodepth=1"
	"randread-4k-32 --rw=randread --bs=4k --iodepth=32"
	"randwrite-4k-32 --rw=randwrite --bs=4k --iodepth=32"
	"read-128k-1 --rw=read --bs=128k --iodepth=1"
	"write-128k-1 --rw=write --bs=128k --iodepth=1"
	"read-128k-32 --rw=read --bs=128k --iodepth=32"
	"write-128k-32 --rw=write --bs=128k --iodepth=32"
)
declare -A disk nqn=([ours]=$NQN [nvmet]=$NQN-kernel) port=([ours]=4420 [nvmet]=4421)

# Both targets run and both connections stay all the time; those that are not asked sleep.
# shellcheck disable=SC2034,SC2154 # nvmf-lib.sh has these variables
set_up() { # KIND
	KIND=$1 NQN=${nqn[$1]} PORT=${port[$1]}
	start_target "$ADDR" /dev/ram0 || return 1
	connect "$ADDR" --nr-io-queues=2 || return 1
	disk[$1]=$device
}

set_up_all() {
	load_host && ram_disk 256 || return 1
	# All of it is there: neither target is the first to touch it.
	dd if=/dev/zero of=/dev/ram0 bs=1M oflag=direct status=none
	set_up ours && set_up nvmet
}

# Clock ticks (of 10 ms) of the target so far: our process, or the kernel's workers, in which
# nvmet_rdma handles its completions. What rxe does in soft interrupts is in neither.
# shellcheck disable=SC2154 # target is nvmf-lib.sh's
target_ticks() { # KIND
	case $1 in
	ours) awk '{ print $14 + $15 }' "/proc/$target/stat" ;;
	nvmet) cat /proc/[0-9]*/stat 2>/dev/null | awk '/\(kworker/ { sub(/.*\) /, ""); n += $12 + $13 }
		END { print n }' ;;
	esac
}

# Clock ticks that the machine was not idle.
machine_ticks() {
	awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 }' /proc/stat
}

run() { # KIND ROUND NAME OPTION...
	local kind=$1 out=$1.$3.$2 before_target before_machine

	before_target=$(target_ticks "$kind")
	before_machine=$(machine_ticks)
	fio --filename="${disk[$kind]}" --direct=1 --ioengine=libaio --time_based \
		--runtime="$seconds" --size=256m --output="$out.fio" --output-format=json \
		"${@:4}" --name="$3" || return 1
	echo "$(($(target_ticks "$kind") - before_target))" \
		"$(($(machine_ticks) - before_machine))" >"$out.ticks"
}

rounds_of() { # NAME OPTION...
	local round kinds kind

	for ((round = 1; round <= rounds; round++)); do
		kinds="ours nvmet"
		((round % 2)) || kinds="nvmet ours"
		for kind in $kinds; do
			run "$kind" "$round" "$@" || return 1
		done
	done
}

if ! set_up_all >&2; then
	show_target >&2
	exit 1
fi
for workload in "${workloads[@]}"; do
	read -r -a words <<<"$workload"
	[[ ${words[0]} == *"$only"* ]] || continue
	rounds_of "${words[@]}" || exit 1
done
python3 "$here/bench.py" "${json[@]}" .
