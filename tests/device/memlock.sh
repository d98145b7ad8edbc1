# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Too little lockable memory ends in a sentence that says what to do about it. CAP_IPC_LOCK is
# dropped as well: with it, rxe registers whatever it's asked to.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

limited() {
	prlimit --memlock=65536:65536 \
		setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$@"
}

limited timeout 60 "$SGPOOL" recv --once --bind "$ADDR" -o out >recv.out 2>recv.err
status=$?
cat recv.out recv.err
check "recv's status is 1, not $status" [ "$status" = 1 ]
check "it names the limit" grep -q RLIMIT_MEMLOCK recv.err
check "it says how to raise it" grep -q 'ulimit -l' recv.err
check "it leaves no file" [ ! -e out ]
limited "$SGPOOL" doctor >doctor.out 2>&1
check "doctor says so too" grep 'ulimit -l' doctor.out
finish
