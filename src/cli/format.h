/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers for people, and from them. */
#ifndef SGP_CLI_FORMAT_H
#define SGP_CLI_FORMAT_H

#include <stdint.h>

struct format {
	char text[32];
};

/* "0 B", "4095 B", "1.0 MiB", "8 EiB": at most four digits before the unit. */
struct format format_bytes(uint64_t bytes);

/* The same a second; "-" when no time has passed. */
struct format format_rate(uint64_t bytes, double seconds);

/* A decimal number of min .. max, all of text. Returns 0, or -1 with EINVAL. */
int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *number);

#endif
