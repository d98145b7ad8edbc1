# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the real provider does is what tests/conformance says it does, which softverbs is held to.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

device=${SGP_VM_DEVICES%% *}
tables=$(dirname "$0")/../conformance
check "$device behaves as recorded" "$SGP_CONFORMANCE" --jobs 6 --addr "$ADDR" --device "$device" \
	--expect "$tables/expected.${device%%[0-9]*}"
finish
