/* SPDX-License-Identifier: BSD-2-Clause */
/* A line that shows how far it is, on a terminal only. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/format.h"
#include "cli/progress.h"

void progress_begin(struct progress *p, uint64_t total)
{
	*p = (struct progress){.shown = isatty(STDERR_FILENO), .total = total, .began = clock_ms()};
	p->drawn = p->began;
}

/* Is it time to draw again? */
static bool due(struct progress *p)
{
	const int64_t now = clock_ms();

	if (!p->shown || now - p->drawn < PROGRESS_MS)
		return false;
	p->drawn = now;
	p->on_line = true;
	return true;
}

void progress_say(struct progress *p, const char *fmt, ...)
{
	va_list ap;

	if (!due(p))
		return;
	fputc('\r', stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\033[K", stderr);
	fflush(stderr);
}

void progress_draw(struct progress *p, uint64_t bytes)
{
	if (!due(p))
		return;
	fprintf(stderr, "\r%s", format_bytes(bytes).text);
	if (p->total)
		fprintf(stderr, " of %s, %.0f %%", format_bytes(p->total).text,
			100 * (double)bytes / (double)p->total);
	fprintf(stderr, ", %s\033[K",
		format_rate(bytes, (double)(p->drawn - p->began) / 1000).text);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->on_line)
		fputs("\r\033[K", stderr);
	p->on_line = false;
}
