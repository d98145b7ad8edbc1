# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the scripts share: where the project is, and how the packages they need get onto a Debian or
# Ubuntu machine. To be sourced by bash. Everything said goes to stderr: stdout is the caller's.
set -euo pipefail

SGP_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# A build folder that lives elsewhere is used where it really is.
# shellcheck disable=SC2034 # for those who source this
SGP_BUILD=$(realpath -m "$SGP_TOP/build")

# One list of packages per purpose; scripts/demo and scripts/test install what they lack of them.
declare -A SGP_PACKAGES=(
	[build]="gcc g++ libc6-dev cmake ninja-build pkg-config
		libibverbs-dev librdmacm-dev libnuma-dev libssl-dev systemtap-sdt-dev
		libjemalloc-dev liburing-dev libnvme-dev"
	[tests]="check libsubunit-dev libfabric-dev python3 groff-base mandoc gnuplot-nox
		rdmacm-utils ibverbs-utils perftest nvme-cli fio e2fsprogs mosquitto
		mosquitto-clients"
	[full]="valgrind dpdk-dev libucx-dev clang clang-tidy gcovr"
	[vm]="qemu-system-x86 busybox-static cpio kmod xz-utils zstd iproute2 util-linux procps
		ibverbs-providers ibverbs-utils rdmacm-utils perftest"
	[abi]="git abigail-tools"
	[package]="dpkg-dev lintian mmdebstrap"
	[siw]="make gcc libelf1 xz-utils"
)

sgp_say() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
}

sgp_die() { # STATUS MESSAGE
	local status=$1

	shift
	sgp_say "$*"
	exit "$status"
}

sgp_as_root() {
	if ((EUID == 0)); then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		sgp_die 1 "'$*' has to run as root, and there is no sudo here"
	fi
}

sgp_apt_update() {
	sgp_say "apt-get update"
	sgp_as_root apt-get -qq -o DPkg::Lock::Timeout=600 update >&2
}

sgp_apt_install() {
	sgp_as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=600 \
		-o Dpkg::Use-Pty=0 install --no-install-recommends "$@" >&2
}

# sgp_need PURPOSE...: install what these purposes lack; quick and silent when all is there.
sgp_need() {
	local purpose status name
	local -a want=() lack=()
	local -A have=()

	for purpose; do
		read -r -d '' -a want < <(printf '%s\0' "${want[*]} ${SGP_PACKAGES[$purpose]}") || true
	done
	if ! command -v apt-get >/dev/null; then
		sgp_say "no apt-get here: taking for granted what Debian calls ${want[*]}"
		return
	fi
	while read -r status name; do
		[[ $status != installed ]] || have[$name]=1
	done < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${want[@]}" 2>/dev/null || true)
	for name in "${want[@]}"; do
		[[ -n ${have[$name]-} ]] || lack+=("$name")
	done
	((${#lack[@]})) || return 0
	sgp_say "installing ${lack[*]}"
	# The package lists may be missing or out of date: fetch them only when that shows.
	if ! apt-cache show "${lack[@]}" >/dev/null 2>&1 || ! sgp_apt_install "${lack[@]}"; then
		sgp_apt_update
		sgp_apt_install "${lack[@]}"
	fi
}

# sgp_apt_download DIR PACKAGE...: fetch package files, without installing them.
sgp_apt_download() {
	local dir=$1

	shift
	# As root, apt warns that its unprivileged user can't write here.
	(cd "$dir" && apt-get -qq -o APT::Sandbox::User=root download "$@") >&2
}
