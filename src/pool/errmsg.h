/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one place where errors become errno and a sentence.
 *
 * A failing function of the library returns sgp_fail() or sgp_fail_null(): errno is set, and the
 * calling thread's sentence for sgp_errmsg() is written. Nothing here allocates or locks; the
 * sentence never holds a peer's data.
 */
#ifndef SGP_ERRMSG_H
#define SGP_ERRMSG_H

#include <stddef.h>

#include "sgpool/export.h"

/* Set errno to err, a positive errno, and the thread's sentence. */
SGP_API void sgp_set_error(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* The same as a value to return: macros, so that the compiler knows it. */
#define sgp_fail(...)      (sgp_set_error(__VA_ARGS__), -1)
#define sgp_fail_null(...) (sgp_set_error(__VA_ARGS__), NULL)

/*
 * A provider's answer as a positive errno: 0 stays 0, 12 and -12 are ENOMEM, -1 is errno as the
 * provider left it (so this must be the first thing called after the provider), and -1 with errno
 * 0 is EIO. ibv_post_send(3) promises 0 or a positive errno; several providers do otherwise.
 */
int sgp_provider_errno(int ret);

#endif
