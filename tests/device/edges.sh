# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# One pool under all devices that there are (one, or rxe and siw), and memory from elsewhere: see
# edges.c. SGP_EDGES is that program.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# soft-iWARP counts what root locks as well.
ulimit -l unlimited
echo 8 >/proc/sys/vm/nr_hugepages
addresses=("$ADDR")
[[ $SGP_VM_DEVICES != *" "* ]] || addresses+=(10.0.1.1)
check "a pool on ${SGP_VM_DEVICES}" timeout 300 "$SGP_EDGES" "${addresses[@]}"
finish
