/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The owners of chunks that there are (owner.h), so that a handle that is none can be told: what it
 * says its owner is, is not among them. Asked in checked mode only; kept always, as the mode may
 * come later than a pool.
 *
 * Thread-safe.
 */
#ifndef SGP_KNOWN_H
#define SGP_KNOWN_H

#include "pool/owner.h"

/* From before the owner's first chunk is described until after its last one is gone. */
void sgp_known_add(struct sgp_owner *owner);
void sgp_known_remove(struct sgp_owner *owner);

bool sgp_known(const struct sgp_owner *owner);

#endif
