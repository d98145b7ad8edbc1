/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding the softverbs library, and asking it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/softlib.h"

/* The folder of this program's file, with a '/' at its end; empty: unknown. */
static void own_folder(char *dir, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", dir, size - 1);

	dir[n > 0 ? n : 0] = '\0';
	dir[strrchr(dir, '/') ? strrchr(dir, '/') - dir + 1 : 0] = '\0';
}

/* dlopen(3) with a name without a '/' searches; with one it takes that file. */
static void *load(const char *dir, const char *sub)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s%s%s", dir, sub, SGP_SOFTVERBS_FILE);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* LD_PRELOAD divides its entries by these, and there is no way to quote them. */
static int preloadable(const char *path)
{
	return !strpbrk(path, ": \t\n");
}

int softlib_open(struct softlib *lib)
{
	char dir[PATH_MAX];
	Dl_info info;
	void *so = NULL;

	own_folder(dir, sizeof dir);
	if (*dir)
		so = load(dir, SGP_SOFTVERBS_INSTALLED);
	if (*dir && !so)
		so = load(dir, SGP_SOFTVERBS_BUILT);
	if (!so)
		so = load("", "");
	if (!so) {
		snprintf(lib->why, sizeof lib->why,
			 "%s is not there: %s; it is installed with the library sgpool",
			 SGP_SOFTVERBS_FILE, dlerror());
		return -1;
	}
	*(void **)&lib->devices = dlsym(so, "sv_devices");
	*(void **)&lib->faults = dlsym(so, "sv_faults");
	if (!lib->devices || !lib->faults || !dladdr(*(void **)&lib->faults, &info) ||
	    !realpath(info.dli_fname, lib->path)) {
		snprintf(lib->why, sizeof lib->why, "%s is not what it should be; install it anew",
			 SGP_SOFTVERBS_FILE);
		return -1;
	}
	if (!preloadable(lib->path)) {
		snprintf(lib->why, sizeof lib->why,
			 "'%.200s' can't be preloaded: there is a space or a colon in its name; "
			 "move "
			 "it elsewhere",
			 lib->path);
		return -1;
	}
	return 0;
}
