# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Receives that the library keeps posted, on endpoints and shared: see receives.c. SGP_RECEIVES is that
# program.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# soft-iWARP counts what root locks as well.
ulimit -l unlimited
check "receives kept posted" timeout 300 "$SGP_RECEIVES" "$ADDR"
finish
