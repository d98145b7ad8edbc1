# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A fork copies nothing of a pool's memory: see fork.c. SGP_FORK is that program.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# soft-iWARP counts what root locks as well.
ulimit -l unlimited
check "forks with 256 MiB registered" timeout 200 "$SGP_FORK"
finish
