# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The broker between mosquitto's clients and its own on a real device. SGP_BROKER, SGP_PUB and SGP_SUB
# are the programs, SGP_BROKER_TESTS the folder of the tests.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# Soft-iWARP counts against the limit whoever one is.
ulimit -l unlimited
export SGP_BROKER_ADDR=$ADDR SGP_BROKER_LIMIT=200
check "messages of all sizes, retained, wills" python3 -B "$SGP_BROKER_TESTS/talk.py" few
finish
