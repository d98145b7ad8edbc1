#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The manual pages are well-formed for both formatters that people have. (Prototypes may be wider than a
# screen.)
# usage: lint.sh PAGE...
set -eu
said=$(mandoc -T lint -W warning "$@" 2>&1) || :
for page; do
	said=$said$(groff -mandoc -rLL=100n -ww -z -Tutf8 "$page" 2>&1) || :
done
[ -z "$said" ] || { echo "$said"; exit 1; }
