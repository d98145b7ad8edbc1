/* SPDX-License-Identifier: BSD-2-Clause */
/* SHA-256 of a file as it passes. */
#ifndef SGP_CLI_DIGEST_H
#define SGP_CLI_DIGEST_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "cli/wire.h"

struct digest {
	EVP_MD_CTX *context;
	bool ended;
	uint8_t value[WIRE_DIGEST]; /* when ended */
};

struct digest_text {
	char text[2 * WIRE_DIGEST + 1];
};

/* All return 0, or -1 with EIO: libcrypto has no SHA-256, or no memory. */
int digest_begin(struct digest *d);
int digest_add(struct digest *d, const struct iovec *iov, int n);
int digest_end(struct digest *d); /* once; later calls do nothing */

/* Safe on what was zeroed. */
void digest_free(struct digest *d);

struct digest_text digest_text(const uint8_t value[WIRE_DIGEST]);

#endif
