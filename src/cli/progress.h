/* SPDX-License-Identifier: BSD-2-Clause */
/* A line that shows how far it is, on a terminal only. */
#ifndef SGP_CLI_PROGRESS_H
#define SGP_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	PROGRESS_MS = 250
};

struct progress {
	bool shown;           /* standard error is a terminal */
	bool on_line;         /* something stands there */
	uint64_t total;       /* 0: unknown */
	int64_t began, drawn; /* ms */
};

void progress_begin(struct progress *p, uint64_t total);
/* Draw it again if its time has come. */
void progress_draw(struct progress *p, uint64_t bytes);
/* Draw this text instead, if the time has come. */
void progress_say(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Wipe the line, so that another can be printed. */
void progress_end(struct progress *p);

#endif
