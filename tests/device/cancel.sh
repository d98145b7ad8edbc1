# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the device has and is to lose: cancelled operations, and queue pairs that are reset: see
# cancel.c. SGP_CANCEL is that program.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# soft-iWARP counts what root locks as well.
ulimit -l unlimited
check "cancel and reset" timeout 120 "$SGP_CANCEL" "$ADDR"
finish
