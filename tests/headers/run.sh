#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh CC CXX HEADERS FLAG...: each header of the folder HEADERS compiles alone, twice in a row, in the
# standards that users have, C and C++, without a warning.
set -euo pipefail

cc=$1 cxx=$2 headers=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0
# The one macro that declares something.
list='int list(void); int list(void) { SGP_SGL(sgl, 3); return sgl.num_sge; }'
for header in "$headers"/sgpool/*.h; do
	name=sgpool/${header##*/}
	[[ $name != *.in ]] || continue
	printf '#include <%s>\n#include <%s>\nint alone(int);\n' "$name" "$name" >"$work/alone.c"
	[[ $name != */sgl.h ]] || echo "$list" >>"$work/alone.c"
	cp "$work/alone.c" "$work/alone.cc"
	for standard in c11 c17; do
		"$cc" -std=$standard -fsyntax-only -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror \
			"$@" "$work/alone.c" || { echo "$name in $standard" && exit 1; }
		((++count))
	done
	for standard in c++11 c++20; do
		"$cxx" -std=$standard -fsyntax-only -Wall -Wextra -Wpedantic -Werror "$@" "$work/alone.cc" ||
			{ echo "$name in $standard" && exit 1; }
		((++count))
	done
done
((count >= 4 * 10))
echo "$count compilations: ok"
