/* SPDX-License-Identifier: BSD-2-Clause */
/* What the room does to a list besides the public calls. */
#ifndef SGP_SGL_H
#define SGP_SGL_H

#include <stdbool.h>

#include "pool/region.h"
#include "sgpool/sgl.h"

/* An SGE stays below 2^31: one provider encodes a length of 0 as 0x80000000 (law 3). */
#define SGP_MAX_SGE_LENGTH INT32_MAX

/* Empty the list without dropping its holds: they have moved elsewhere. */
static inline void sgp_sgl_reset(struct sgp_sgl *sgl)
{
	sgl->num_sge = 0;
	sgl->num_chunk = 0;
	sgl->length = 0;
	sgl->pds = UINT64_MAX;
	sgl->keys = UINT64_MAX;
	sgl->access = UINT32_MAX;
	sgl->flags = 0;
}

/*
 * May memory on the protection domains a be in one list with memory on b (an empty list: all ones)?
 * What is on none goes with its like: it may come to be posted once its pool has been put on one.
 */
static inline bool sgp_sgl_meet(uint64_t a, uint64_t b)
{
	return a & b || (a + 1 <= 1 && b + 1 <= 1);
}

/* The protection domains that all of the list is on now: they may have come and gone since it was built. */
uint64_t sgp_sgl_pds_now(const struct sgp_sgl *sgl);

/* Cut the list to its first length bytes (at most all) and drop the holds that are not used then.
 */
void sgp_sgl_cut(struct sgp_sgl *sgl, uint64_t length);

int sgp_sgl_refuse_unmapped(void);

/*
 * Give the list the lkeys of another protection domain. Returns 0; -1 with EXDEV: not all of it is
 * registered there, or EFAULT: it has an SGE that is in none of its chunks.
 */
int sgp_sgl_rekey(struct sgp_sgl *sgl, int pd_index);

/*
 * See to it that the list can be posted on a protection domain: bit is its sgp_pd_bit(). 0, or -1 as
 * sgp_sgl_rekey().
 */
static inline int sgp_sgl_key(struct sgp_sgl *sgl, int pd_index, uint64_t bit)
{
	return __builtin_expect((sgl->keys & bit) != 0, 1) ? 0 : sgp_sgl_rekey(sgl, pd_index);
}

/* Can the processor reach all of the list? If not: -1 with EOPNOTSUPP. */
static inline int sgp_sgl_check_mapped(const struct sgp_sgl *sgl)
{
	return SGP_LIKELY(sgl->access & SGP_ACCESS_CPU) ? 0 : sgp_sgl_refuse_unmapped();
}

/* Copy the list's bytes to a buffer of at least sgl->length. */
void sgp_sgl_gather(const struct sgp_sgl *sgl, void *to);

#endif
