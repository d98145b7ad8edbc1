/* SPDX-License-Identifier: BSD-2-Clause */
/* Shrinking, as far as other files need it. */
#ifndef SGP_TRIM_H
#define SGP_TRIM_H

#include "pool/centre.h"

/*
 * Give the class's free regions back, keep chunks staying at least; the threads' caches are emptied
 * first. Returns 0, or -1 with the errno of ibv_dereg_mr(3).
 */
int sgp_trim_class(struct sgp_class *cls, size_t keep);

#endif
