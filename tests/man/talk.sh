#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The program of sgpool(7): one listens, and what the other sends is what it prints. Both end well.
# usage: talk.sh PROGRAM
set -eu
program=$1
export SGP_SOFTVERBS_NET=local SGP_SOFTVERBS_WORLD="talk.$$" SGP_CHECK=abort
out=$(mktemp)
trap 'rm -f "$out"' EXIT
timeout 300 "$program" >"$out" &
listener=$!
# A client that is too early waits for half a second only.
i=0
until timeout 300 "$program" 127.0.0.1 'what was sent'; do
	i=$((i + 1))
	[ $i -lt 200 ] || { kill $listener; exit 1; }
done
wait $listener
cat "$out"
[ "$(sed 's/[0-9][0-9]*/N/' "$out")" = 'pid N: what was sent' ]
