#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# dlopen.sh HOST LIBSGPOOL LIBHEAP PROGRAM JEMALLOC: libsgpool can be loaded by dlopen(3). libsgpool-heap
# either, or the loader says why not, and loading it first (LD_PRELOAD) or more room for TLS is the way
# out. Nowhere does the program's malloc change: it is the C library's, or jemalloc's if that is preloaded.
set -euo pipefail

host=$1 sgpool=$2 heap=$3 program=$4 jemalloc=$5

fail() {
	printf 'dlopen.sh: %s\n' "$*" >&2
	exit 1
}

said=$("$host" "$sgpool") || fail "libsgpool: $said"
[[ $said == *"malloc is "*libc.so* ]] || fail "libsgpool: $said"

# glibc has about 1.6 KiB for those who come later, unless told otherwise; jemalloc needs more.
status=0
said=$("$host" "$heap") || status=$?
case $status in
0) [[ $said == *"malloc is "*libc.so* ]] || fail "libsgpool-heap: $said" ;;
3) [[ $said == *"static TLS"* ]] || fail "libsgpool-heap: $said" ;;
*) fail "libsgpool-heap: $said" ;;
esac
printf 'dlopen of libsgpool-heap: %s\n' "$said"
said=$(GLIBC_TUNABLES=glibc.rtld.optional_static_tls=8192 "$host" "$heap") || fail "with room: $said"
[[ $said == *"malloc is "*libc.so* ]] || fail "with room: $said"
said=$(LD_PRELOAD=$heap "$host" "$heap") || fail "loaded first: $said"
[[ $said == *"malloc is "*libc.so* ]] || fail "loaded first: $said"

# A program whose malloc is another jemalloc.
said=$(LD_PRELOAD="$jemalloc $heap" "$host" "$sgpool") || fail "with jemalloc: $said"
[[ $said == *"malloc is "*libjemalloc* ]] || fail "with jemalloc: $said"
LD_PRELOAD=$jemalloc CK_FORK=no "$program" >/dev/null || fail "the heap's test fails with jemalloc"
# Settings that are for the other one.
said=$(MALLOC_CONF=abort_conf:true,no_such_option:1 LD_PRELOAD=$heap "$host" 2>&1) ||
	fail "MALLOC_CONF: $said"
[[ $said != *"Invalid conf"* ]] || fail "MALLOC_CONF: $said"

# Nothing of jemalloc is to be seen.
! nm -D --defined-only "$heap" | grep -v ' sgp_\| SGPOOL_' || fail "libsgpool-heap exports more than sgp_*"
