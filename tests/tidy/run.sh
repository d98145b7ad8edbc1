#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh CLANG_TIDY BUILD FOLDER...: clang-tidy has nothing to say of the folders' sources, which are
# compiled as BUILD's compile_commands.json says.
set -euo pipefail

tidy=$1 build=$2
shift 2
# What is not built here, for want of a library, is not known to BUILD either.
mapfile -t files < <(sed -n 's/^  "file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sort -u)
chosen=()
for folder; do
	for file in "${files[@]}"; do
		[[ $file != "$folder"/* ]] || chosen+=("$file")
	done
done
((${#chosen[@]})) || {
	echo "no sources below $*"
	exit 1
}
printf '%s\0' "${chosen[@]}" | xargs -0 -n 4 -P "$(nproc)" "$tidy" -p "$build" --quiet 2>/dev/null
echo "${#chosen[@]} files"
