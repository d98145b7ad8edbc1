/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The centre of a size class: the stack of its free chunks that all threads share.
 *
 *      free[0 .. nfree - 1]   pointers to descriptors; the last one put is the first one got
 *
 * The stack's addresses are reserved for max_chunks at the beginning, so that neither a put nor
 * growth has to enlarge it.
 *
 * Locking: lock protects the members below it. It is the innermost lock of the pool.
 */
#ifndef SGP_CENTRE_H
#define SGP_CENTRE_H

#include <pthread.h>
#include <stdbool.h>

#include "pool/slab.h"

struct sgp_class {
	struct sgp_cut cut;
	size_t max_chunks;
	struct sgp_slab *slabs; /* changed under the pool's growth lock */

	_Alignas(64) pthread_mutex_t lock;
	struct sgp_chunk **free; /* [max_chunks] */
	size_t nfree;
	size_t made; /* chunks of the class */
};

/* Set up a class without chunks. Returns 0, or -1 with EINVAL or ENOMEM. */
int sgp_centre_init(struct sgp_class *cls, const struct sgp_class_attr *attr);
void sgp_centre_fini(struct sgp_class *cls);

/* Take n chunks: all or none. Returns true when they were taken. */
bool sgp_centre_get(struct sgp_class *cls, struct sgp_chunk *chunks[], size_t n);

/* Return n chunks without references. */
void sgp_centre_put(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n);

/* Put n more chunks of a slab into use. The slab has the room and is published. */
void sgp_centre_add(struct sgp_class *cls, struct sgp_slab *slab, size_t n);

/* The class has no chunks any more: what there is of it is about to be taken apart. */
void sgp_centre_retire(struct sgp_class *cls);

/* Chunks made and free, at one moment. */
void sgp_centre_count(struct sgp_class *cls, size_t *made, size_t *nfree);

#endif
