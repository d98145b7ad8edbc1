/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of mistakes share. A mistake that a program can make is a function, with what checked
 * mode has to say of it. Each runs in a process of its own, against the shared library, as programs do;
 * main() exports its symbols, so that the culprits have names.
 */
#ifndef MISTAKES_RIG_H
#define MISTAKES_RIG_H

#include "../asserts.h"
#include "rig.h"

#define SIZE   4096
#define CHUNKS 16

extern struct rig rig;
extern struct sgp_pool *pool; /* of one size, SIZE, CHUNKS of it */

/* What was found: how often, and the first time what. */
struct found {
	int n;
	enum sgp_finding_kind kind;
	const void *chunk;
	struct sgp_pool *pool;
	char sentence[512];
};
extern struct found found;

/* A rig whose pools are checked, and whose findings come to `found`. */
void setup(void);

void *memory(struct sgp_chunk *chunk);

/* A get and a put, by functions of their own, so that the sentences can name them. */
struct sgp_chunk *taker(void);
int giver(struct sgp_chunk *chunk);

/* A chunk that was put; one that was put twice. */
struct sgp_chunk *put_once(void);
void put_twice(void);

/* The call was refused as a mistake. */
int refused(int ret);

/* Another checked pool, of 4 chunks. */
struct sgp_pool *another_pool(void);

struct mistake {
	const char *name;
	void (*make)(void);
	enum sgp_finding_kind kind;
	const char *says[4];
};

#define M(function, kind, ...)                                                                     \
	{                                                                                          \
#function, function, SGP_FOUND_##kind,                                             \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

/* A case, and in it a test for each of n mistakes, if any: it is found, once, and told as it should be. */
TCase *mistakes_case(const char *name, const struct mistake *table, int n);

#endif
