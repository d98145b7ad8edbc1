# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every operation that the device has, between two processes: see ops.c. SGP_OPS is that program.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# soft-iWARP counts what root locks as well.
ulimit -l unlimited
check "all operations" timeout 300 "$SGP_OPS" "$ADDR"
if [[ $SGP_VM_DEVICES == rxe* ]]; then # soft-iWARP has no windows
	check "a window for WRITEs only" timeout 60 "$SGP_OPS" "$ADDR" 2
	check "behind a window's time" timeout 60 "$SGP_OPS" "$ADDR" 3
fi
finish
