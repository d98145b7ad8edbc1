/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The softverbs library as a file: where it is, and what it takes for a device or a fault. It is
 * loaded for these questions only, apart from all other symbols; nothing here runs on it.
 */
#ifndef SGP_CLI_SOFTLIB_H
#define SGP_CLI_SOFTLIB_H

#include <limits.h>

struct softlib {
	char path[PATH_MAX]; /* absolute, fit for LD_PRELOAD */
	char why[PATH_MAX];  /* it failed: a sentence */
	/* sv_devices and sv_faults of sgpool/softverbs.h */
	int (*devices)(const char *text, const char **wrong);
	int (*faults)(const char *text, const char **wrong);
};

/* Finds the library beside this program: where it was installed, where it was built, or where the
 * system looks for libraries. Its SGP_SOFTVERBS_* are expected to be out of the environment.
 * Returns 0, or -1 with lib->why. */
int softlib_open(struct softlib *lib);

#endif
