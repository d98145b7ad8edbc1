/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers for people, and from them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/format.h"

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

struct format format_bytes(uint64_t bytes)
{
	struct format f;
	unsigned int unit = 0;
	double value = (double)bytes;

	if (bytes < 10240) {
		snprintf(f.text, sizeof f.text, "%" PRIu64 " B", bytes);
		if (bytes && bytes % 1024 == 0)
			snprintf(f.text, sizeof f.text, "%" PRIu64 " KiB", bytes / 1024);
		return f;
	}
	while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
		value /= 1024;
		unit++;
	}
	if ((bytes & ((UINT64_C(1) << 10 * unit) - 1)) == 0)
		snprintf(f.text, sizeof f.text, "%.0f %s", value, units[unit]);
	else
		snprintf(f.text, sizeof f.text, "%.1f %s", value, units[unit]);
	return f;
}

struct format format_rate(uint64_t bytes, double seconds)
{
	struct format f = {"-"};

	if (seconds > 0) {
		const double rate = (double)bytes / seconds;

		f = format_bytes(rate < 0x1p63 ? (uint64_t)rate : UINT64_C(1) << 63);
		const size_t len = strnlen(f.text, sizeof f.text);

		snprintf(f.text + len, sizeof f.text - len, "/s");
	}
	return f;
}

int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *number)
{
	uint64_t n = 0;

	if (!*text)
		goto wrong;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			goto wrong;
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
			goto wrong;
	}
	if (n < min || n > max)
		goto wrong;
	*number = n;
	return 0;
wrong:
	errno = EINVAL;
	return -1;
}
