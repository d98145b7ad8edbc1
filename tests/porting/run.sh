#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh PAGE EXAMPLES CC FLAG...: the page's examples of that name, each the display behind a comment
# `porting: NAME before` or `after`, compile as they stand there: both.
set -euo pipefail

page=$1 name=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for side in before after; do
	source=$work/$name-$side.c
	# What roff has escapes for is said in the page as it is; so an escape would be a mistake.
	sed -n "/^\.\\\\\" porting: $name $side\$/,/^\.Ed/{/^\./!p}" "$page" >"$source"
	(($(wc -l <"$source") > 10)) || { echo "no example $name $side in $page" && exit 1; }
	! grep -nF "\\" "$source" || exit 1
	"$@" -std=gnu11 -Wall -Wextra -Werror -c "$source" -o "$work/out.o"
	echo "$name $side: ok"
done
