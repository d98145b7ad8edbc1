#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# In the machine: sgpool-nvmf-target and the kernel's own target, nvmet_rdma, side by side over the
# same RAM disk in the same boot, the kernel's host connected to both, fio by turns on one and the
# other. The table is bench.py's.
#
#	scripts/vm --timeout 3600 -- examples/nvmf-target/bench.sh \
#		build/release/examples/nvmf-target/sgpool-nvmf-target [--rounds N] [--seconds N] \
#		[--only REGEX] [--json]
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export SGP_NVMF=$1
shift
rounds=9 seconds=2 only='' json=()
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
	"randread-4k-32 --rw=randread --bs=4k --iodepth=32"
	"randwrite-4k-32 --rw=randwrite --bs=4k --iodepth=32"
	"read-128k-32 --rw=read --bs=128k --iodepth=32"
	"write-128k-32 --rw=write --bs=128k --iodepth=32"
	# Two jobs, on two queues.
	"read-128k-32x2 --rw=read --bs=128k --iodepth=32 --numjobs=2"
	"write-128k-32x2 --rw=write --bs=128k --iodepth=32 --numjobs=2"
	"randread-4k-1 --rw=randread --bs=4k --iodepth=1"
	"randwrite-4k-1 --rw=randwrite --bs=4k --iodepth=1"
	"read-128k-1 --rw=read --bs=128k --iodepth=1"
	"write-128k-1 --rw=write --bs=128k --iodepth=1"
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
	dd if=/dev/zero of=/dev/ram0 bs=1M count=256 oflag=direct status=none || return 1
	set_up ours && set_up nvmet
}

# All rounds of a workload are one fio, whose jobs follow each other: to start it takes longer, in
# emulation, than a job does. It runs ticks.awk before and after each.
measure() { # NAME OPTION...
	local round kinds kind ticks
	local -a jobs=()

	# shellcheck disable=SC2154 # nvmf-lib.sh has it
	ticks="cat /proc/stat /proc/[0-9]*/stat 2>/dev/null | awk -v pid=$target -f $here/ticks.awk"
	for ((round = 1; round <= rounds; round++)); do
		kinds="ours nvmet"
		((round % 2)) || kinds="nvmet ours"
		for kind in $kinds; do
			jobs+=(--name="$1.$kind.$round" --filename="${disk[$kind]}" --stonewall)
		done
	done
	fio --direct=1 --ioengine=libaio --group_reporting \
		--time_based --runtime="$seconds" --size=192m \
		--exec_prerun="$ticks" --exec_postrun="$ticks" --output="$1.fio" \
		--output-format=json "${@:2}" "${jobs[@]}" >&2 || { cat "$1.fio" >&2 && return 1; }
	# One can see how far it is.
	echo "$SECONDS s: $1" >&2
	python3 "$here/bench.py" . >&2
}

if ! set_up_all >&2; then
	show_target >&2
	exit 1
fi
for workload in "${workloads[@]}"; do
	read -r -a words <<<"$workload"
	[[ ${words[0]} =~ $only ]] || continue
	measure "${words[@]}" || exit 1
done
python3 "$here/bench.py" "${json[@]}" .
