#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh SOURCE: scripts/abi lets through what programs of old don't notice, and nothing else. A copy of
# the source is released and then changed, in turn in each of some ways.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
tar -C "$1" --exclude=./build --exclude=./.git -cf - . | tar -C "$work/tree" -xf -
cd "$work/tree"
git() {
	command git -c user.name=test -c user.email=test@sgpool.example "$@"
}
git init -q .
git add -A
git commit -qm release

# verdict STATUS WORDS: what scripts/abi says of the tree as it is; then the tree is as it was.
verdict() {
	local status=0

	scripts/abi >"$work/said" 2>&1 || status=$?
	if ((status != $1)) || ! grep -q -- "$2" "$work/said"; then
		echo "not status $1 and '$2', but status $status and:"
		cat "$work/said"
		exit 1
	fi
	git checkout -q .
	echo "$2: ok"
}

# change FILE SED: a change that does change something.
change() {
	sed -i "$2" "$1"
	! git diff --quiet -- "$1" || { echo "nothing changed in $1: $2" && exit 1; }
}

verdict 3 "nothing has been released"
git tag v0.1.0
verdict 0 "still there"

# A function more; a structure that programs don't see.
change src/post/ep.h 's/^\tstruct ibv_cq_ex \*ex;/\tuint64_t more;\n&/'
change src/post/window.c '$ a SGP_API int sgp_window_more(void);\nint sgp_window_more(void)\n{\n\treturn 1;\n}'
verdict 0 "still there"

# An argument that is wider, a result that is, a function that went, a member and a constant that moved.
change include/sgpool/pool.h 's/size_t nchunks);$/uint32_t nchunks);/'
change src/pool/grow.c 's/^\(int sgp_pool_grow(.*\)size_t nchunks)/\1uint32_t nchunks)/'
verdict 1 sgp_pool_grow
change include/sgpool/window.h 's/^SGP_API uint32_t sgp_window_rkey/SGP_API uint64_t sgp_window_rkey/'
change src/post/window.c 's/^uint32_t sgp_window_rkey/uint64_t sgp_window_rkey/'
change src/post/lacking.c 's/^uint32_t sgp_window_rkey/uint64_t sgp_window_rkey/'
verdict 1 sgp_window_rkey
change src/post/window.c 's/^\(int \)\(sgp_window_is_bound\)/__attribute__((visibility("hidden"))) \1\2/'
change include/sgpool/window.h 's/^SGP_API \(int sgp_window_is_bound\)/\1/'
verdict 1 sgp_window_is_bound
change include/sgpool/post.h 's/^\tuint64_t byte_len; .*/\tuint32_t between;\n&/'
verdict 1 sgp_wc
change include/sgpool/pool.h 's/^\tSGP_PAGES_REQUIRE_2M,/\tSGP_PAGES_NEW,\n&/'
verdict 1 SGP_PAGES_REQUIRE_2M

# The same is allowed with another soname.
change include/sgpool/window.h 's/^SGP_API uint32_t sgp_window_rkey/SGP_API uint64_t sgp_window_rkey/'
change src/post/window.c 's/^uint32_t sgp_window_rkey/uint64_t sgp_window_rkey/'
change src/post/lacking.c 's/^uint32_t sgp_window_rkey/uint64_t sgp_window_rkey/'
change CMakeLists.txt 's/^\(project(sgpool VERSION 0\.\)[0-9]*/\199/'
verdict 0 "nothing has to stay"
