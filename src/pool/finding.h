/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Findings of checked mode on their way out: a sentence with the callers' names, the counts, the
 * handler, the end of the process.
 */
#ifndef SGP_FINDING_H
#define SGP_FINDING_H

#include "sgpool/sgpool.h"

#define SGP_WHO_FRAMES 6

/* Who called: return addresses, the innermost first. n 0: nobody, or not known. */
struct sgp_who {
	void *frame[SGP_WHO_FRAMES];
	int n;
};

/* Fill in who is calling the library now. errno is left alone. */
void sgp_who_calls(struct sgp_who *who);

/*
 * One that others may read while it's written: who makes a mistake does not wait for anybody. They find
 * frames of the one and of the other then, but nothing else.
 */
void sgp_who_keep(struct sgp_who *to, const struct sgp_who *from);
struct sgp_who sgp_who_kept(const struct sgp_who *from);

/* "main+0x12 < ...", "program+0x4711", or "somebody". Returns buf. */
char *sgp_who_print(const struct sgp_who *who, char *buf, size_t size);

/* What became of the findings, told by the environment: abort at the first one. */
void sgp_finding_aborts(void);

/*
 * Something was found. what: a sentence's beginning ("the chunk was put twice"), printed together with
 * the chunk and with who took and who gave it back, both kept ones, as far as that is known (NULL: not). Returns -1,
 * and errno is ESTALE.
 */
int sgp_found(enum sgp_finding_kind kind, struct sgp_pool *pool, const void *chunk,
	      const struct sgp_who *got, const struct sgp_who *put, const char *what, ...)
	__attribute__((format(printf, 6, 7), cold));

#endif
