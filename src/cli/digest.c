/* SPDX-License-Identifier: BSD-2-Clause */
/* SHA-256 by OpenSSL's libcrypto. */
#include <errno.h>
#include <stdio.h>

#include "cli/digest.h"

static int result(int good)
{
	if (good == 1)
		return 0;
	errno = EIO;
	return -1;
}

int digest_begin(struct digest *d)
{
	*d = (struct digest){.context = EVP_MD_CTX_new()};
	return result(d->context && EVP_DigestInit_ex(d->context, EVP_sha256(), NULL) == 1);
}

int digest_add(struct digest *d, const struct iovec *iov, int n)
{
	int good = 1;

	for (int i = 0; good == 1 && i < n; i++)
		good = EVP_DigestUpdate(d->context, iov[i].iov_base, iov[i].iov_len);
	return result(good);
}

int digest_end(struct digest *d)
{
	if (d->ended)
		return 0;
	d->ended = true;
	return result(EVP_DigestFinal_ex(d->context, d->value, NULL));
}

void digest_free(struct digest *d)
{
	EVP_MD_CTX_free(d->context);
	d->context = NULL;
}

struct digest_text digest_text(const uint8_t value[WIRE_DIGEST])
{
	struct digest_text t;

	for (size_t i = 0; i < WIRE_DIGEST; i++)
		snprintf(t.text + 2 * i, 3, "%02x", value[i]);
	return t;
}
