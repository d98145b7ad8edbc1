#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The manual pages are well-formed for both formatters that people have.
# usage: lint.sh PAGE...
set -eu
status=0
for page; do
	said=$(groff -mandoc -rLL=100n -ww -z -Tutf8 "$page" 2>&1; mandoc -T lint -W warning "$page" 2>&1) || :
	[ -z "$said" ] || { echo "$said"; status=1; }
done
exit $status
