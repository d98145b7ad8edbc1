# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Files of all kinds of sizes arrive as they were, without a registration on the way. SGP_LARGE_MIB is
# the largest one's (24): an emulated device takes a minute for a hundred.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

transfer() { # BYTES
	local bytes=$1 sent received sum file

	rm -f in out
	head -c "$bytes" /dev/urandom >in
	start_receiver out || say "the receiver does not listen"
	start_sender in
	wait "$sender"
	sent=$?
	wait "$receiver"
	received=$?
	check "$bytes bytes: send ends well" [ "$sent" = 0 ]
	check "$bytes bytes: recv ends well" [ "$received" = 0 ]
	sum=$(sha256sum <in)
	check "$bytes bytes: the file is the same" cmp in out
	for file in send.json recv.json; do
		check "$bytes bytes: $file has the count" [ "$(field bytes $file)" = "$bytes" ]
		check "$bytes bytes: $file has the SHA-256" [ "$(field sha256 $file)" = "${sum%% *}" ]
		check "$bytes bytes: $file has no registrations" [ "$(field registrations $file)" = 0 ]
	done
	say "$bytes bytes: $(field bytes_per_second recv.json) bytes a second"
	((failures == 0)) || show_errors
}

for bytes in 0 1 4095 4096 4097 $((1024 * 1024 + 1)) $((${SGP_LARGE_MIB-24} * 1024 * 1024)); do
	transfer "$bytes"
done
finish
