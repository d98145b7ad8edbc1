#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh BUILD README VERSION: installs the build into an empty folder and builds the README's program
# against what is there: by pkg-config in C and (the headers) in C++, and by CMake's find_package,
# with the shared library and the static one.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
build=$1 readme=$2 version=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/usr" >"$work/install.log"
# shellcheck disable=SC2016
sed -n '/^```c$/,/^```$/{/^```/!p}' "$readme" >"$work/hello.c"

pc=$(find "$work/usr" -name sgpool.pc)
export PKG_CONFIG_PATH=${pc%/*}
[[ $(pkg-config --modversion sgpool) == "$version" ]]
# The prefix is another than it was configured with: the file goes by where it lies.
flags=$(pkg-config --cflags --libs sgpool)
# shellcheck disable=SC2086 # they are several
cc -std=c11 -Wall -Wextra -Werror "$work/hello.c" -o "$work/hello" $flags
# (Not by grep -q in a pipe: it leaves at the first match, and ldd, killed by SIGPIPE, fails the pipe.)
[[ $(ldd "$work/hello") == *libsgpool.so* ]]
# The static library, with what --static says that it needs; the system's own libraries stay shared.
static=$(pkg-config --static --cflags --libs sgpool)
# shellcheck disable=SC2086 # they are several
cc -std=c11 "$work/hello.c" -o "$work/hello-static" ${static/-lsgpool/-Wl,-Bstatic -lsgpool -Wl,-Bdynamic}
[[ $(ldd "$work/hello-static") != *libsgpool* ]]
# libsgpool-heap is of the same kind, where it was built.
if [[ -e ${pc%/*}/sgpool-heap.pc ]]; then
	# shellcheck disable=SC2046
	cc -std=c11 -Wall -Wextra -Werror "$here/project/heap.c" -o "$work/heap" \
		$(pkg-config --cflags --libs sgpool-heap)
	LD_LIBRARY_PATH=${pc%/pkgconfig/*} "$work/heap"
fi
printf '#include <sgpool/sgpool.h>\nint main() { return sgp_version()[0] != %s; }\n' "'0'" >"$work/hello.cc"
# shellcheck disable=SC2086
c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror "$work/hello.cc" -o "$work/hellocc" $flags
LD_LIBRARY_PATH=${pc%/pkgconfig/*} "$work/hellocc"
echo "pkg-config: ok"

cmake -S "$here/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/usr" -DHELLO="$work/hello.c" \
	-DHELLO_CXX="$work/hello.cc" -DVERSION="$version" >"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/build" >"$work/make.log" || { cat "$work/make.log"; exit 1; }
for program in shared static; do
	# No argument: it says how it's used, which takes the library.
	LD_LIBRARY_PATH=${pc%/pkgconfig/*} "$work/build/$program" 2>"$work/said" && exit 1
	grep -q 'hello ADDRESS' "$work/said"
done
LD_LIBRARY_PATH=${pc%/pkgconfig/*} "$work/build/cxx"
[[ ! -e ${pc%/*}/sgpool-heap.pc ]] || LD_LIBRARY_PATH=${pc%/pkgconfig/*} "$work/build/heap"
[[ $(ldd "$work/build/static") != *libsgpool* ]]
echo "find_package: ok"

# softverbs in place of the two libraries, for a program that knows only verbs.
cat >"$work/device.c" <<'END'
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	printf("%d %s\n", n, ibv_get_device_name(list[0]));
	ibv_free_device_list(list);
	return 0;
}
END
# shellcheck disable=SC2046 # they are several
cc "$work/device.c" -o "$work/device" $(pkg-config --cflags --libs sgpool-softverbs)
[[ $(LD_LIBRARY_PATH=${pc%/pkgconfig/*} "$work/device") == "1 soft0" ]]

# The command finds the library that was installed with it, where it was built.
if grep -q '^SGP_CLI:BOOL=ON' "$build/CMakeCache.txt"; then
	bin=$work/usr/bin/sgpool
	eval "$("$bin" softverbs --like siw)"
	[[ $LD_PRELOAD == "$work/usr/"*/libsgpool-softverbs.so.* && -f $LD_PRELOAD ]]
	unset LD_PRELOAD SGP_SOFTVERBS_DEVICES
	[[ $("$bin" softverbs --like siw -- "$bin" doctor) == *'RDMA can be used here: yes'* ]]
fi
[[ -f $work/usr/share/man/man7/softverbs.7 ]]
echo "softverbs: ok"
