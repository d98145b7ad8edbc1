# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# When one end of a transfer is killed midway, the other one ends soon, says why, with status 1, and
# nothing is there under the final name but what was there before.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

size=$((512 * 1024 * 1024))

# Data has arrived, as the receiver's file shows, whatever it's called before it's whole.
# shellcheck disable=SC2317 # called by wait_until
data_arrives() {
	local file

	for file in dir/* dir/.[!.]*; do
		[[ $file != dir/out && -f $file ]] && (($(stat -c %b "$file") > 2048)) && return 0
	done
	return 1
}

kill_midway() { # send|recv SIGNAL
	local who=$1 signal=$2 victim other status

	rm -rf dir
	mkdir dir
	echo before >dir/out
	start_receiver dir/out || say "the receiver does not listen"
	start_sender in
	if [[ $who == send ]]; then
		victim=$sender other=$receiver file=recv.err
	else
		victim=$receiver other=$sender file=send.err
	fi
	check "$who, $signal: the transfer runs" wait_until 120 data_arrives
	check "$who, $signal: is killed midway" kill "-$signal" "$victim"
	# Seconds, on a machine that is many times slower than any real one.
	check "$who, $signal: the other end ends" wait_until 120 ended "$other"
	kill -KILL "$other" 2>/dev/null
	wait "$victim" 2>/dev/null
	wait "$other" 2>/dev/null
	status=$?
	check "$who, $signal: the other end's status is 1, not $status" [ "$status" = 1 ]
	check "$who, $signal: it says why" grep -q '^sgpool' "$file"
	check "$who, $signal: the old file is still there" [ "$(cat dir/out)" = before ]
	sed 's/^/  /' "$file"
	((failures == 0)) || show_errors
}

truncate -s "$size" in
for signal in KILL TERM; do
	kill_midway send "$signal"
	kill_midway recv "$signal"
done
finish
