#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# softverbs over TCP: two network namespaces, which are two machines to it, and a wire between them.
#
#	tcp.sh DATA-TEST RUDE-TEST
#
# Making namespaces takes rights: without them the test is skipped (77).
set -eu
if [ "${1-}" != inside ]; then
	unshare -n true 2>/dev/null || { echo "no right to make a network namespace"; exit 77; }
	exec unshare -n "$0" inside "$@"
fi
shift
unshare -n sleep 1000 &
other=$!
trap 'kill $other 2>/dev/null' EXIT
# It is there when its namespace is another one.
for _ in $(seq 1200); do
	[ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ] || break
	sleep 0.05
done
there() { nsenter -t $other -n "$@"; }
ip link add wire0 type veth peer name wire1 netns $other
ip addr add 10.77.0.1/24 dev wire0
there ip addr add 10.77.0.2/24 dev wire1
for link in lo wire0; do ip link set $link up; done
for link in lo wire1; do there ip link set $link up; done

SGP_SOFTVERBS_NET=10.77.0.1 "$1" --over 10.77.0.2 listens "${@:3}" &
first=$!
SGP_SOFTVERBS_NET=10.77.0.2 there "$1" --over 10.77.0.1 asks "${@:3}"
wait $first
SGP_SOFTVERBS_NET=10.77.0.1 "$2" --nobody 10.77.0.2
