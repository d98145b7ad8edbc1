/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the parts of `sgpool doctor` share: where facts are written, and the list of problems.
 *
 * Each part looks at one thing, writes what it finds, and notes what stands in the way together
 * with the command that mends it. Nothing is changed on the machine.
 */
#ifndef SGP_CLI_DOCTOR_H
#define SGP_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/out.h"
#include "pool/advice.h"

enum {
	PROBLEMS = 48
};

enum severity {
	BLOCKS,        /* RDMA can't be used here */
	BLOCKS_DEVICE, /* this device can't; another one may */
	HINT,          /* it can, but not at its best */
};

struct problem {
	enum severity severity;
	const char *code; /* for programs: a word that stays */
	char what[320];
	char mend[512];
};

struct doctor {
	struct out *out;
	int problems;
	struct problem problem[PROBLEMS];
	int devices;      /* found */
	int usable;       /* of these: opened, registers memory, and has an active port */
	const char *sudo; /* to put before commands that need root: "sudo " or "" */
};

/* Note a problem and return it, for doctor_mend(). */
struct problem *doctor_problem(struct doctor *d, enum severity severity, const char *code,
			       const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void doctor_mend(struct problem *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The first line of a file without its end. Returns 0, or -1 with errno and line empty. */
int doctor_read_line(const char *path, char *line, int size);

/* How a kernel module can be had. */
enum module {
	MODULE_MISSING,
	MODULE_AVAILABLE, /* modprobe finds it */
	MODULE_LOADED,
	MODULE_BUILTIN,
};
enum module doctor_module(const char *name);

/* Note that the limit of locked memory stands in the way of registering need bytes. */
void doctor_memlock_problem(struct doctor *d, const struct sgp_memlock *lock, uint64_t need);

void doctor_devices(struct doctor *d);
void doctor_nodes(struct doctor *d);
void doctor_limits(struct doctor *d);
void doctor_memory(struct doctor *d);
void doctor_numa(struct doctor *d);
void doctor_modules(struct doctor *d);

#endif
