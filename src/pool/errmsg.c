/* SPDX-License-Identifier: BSD-2-Clause */
/* The calling thread's last error as a sentence, and a provider's answer as an errno. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "pool/errmsg.h"
#include "sgpool/sgpool.h"

static _Thread_local char message[768];

void sgp_set_error(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof message, fmt, ap);
	va_end(ap);
	errno = err;
}

int sgp_provider_errno(int ret)
{
	if (ret == -1)
		return errno > 0 ? errno : EIO;
	return ret < 0 ? -ret : ret;
}

const char *sgp_errmsg(void)
{
	return message;
}

const char *sgp_version(void)
{
	return SGP_VERSION;
}
