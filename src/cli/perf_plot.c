/* SPDX-License-Identifier: BSD-2-Clause */
/* The plot of sgpool perf: gnuplot draws it, if there is one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/perf_report.h"

const char *perf_plot_impossible(const char *file)
{
	int fd;

	if (system("command -v gnuplot >/dev/null 2>&1") != 0)
		return "it needs gnuplot; install it (package gnuplot-nox)";
	/* Where gnuplot can't open it, it draws to the standard output. */
	fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
	return fd >= 0 && !close(fd) ? NULL : strerror(errno);
}

/* A string of gnuplot's: in single quotes, where one is two. */
static void put_string(FILE *f, const char *s)
{
	fputc('\'', f);
	for (; *s; s++) {
		if (*s == '\'')
			fputc('\'', f);
		fputc(*s == '\n' ? ' ' : *s, f);
	}
	fputc('\'', f);
}

static void write_script(FILE *f, const struct perf_report *r, const struct perf_params *p)
{
	fprintf(f, "$points << END\n%sEND\n", r->data);
	fputs("set terminal svg size 720,420 font 'sans-serif,13' background '#ffffff'\nset "
	      "output ",
	      f);
	put_string(f, r->plot);
	fprintf(f, "\nset title 'RDMA %s %s over %s'\n", perf_op_names[p->op],
		p->latency ? "latency"
		: p->both  ? "bandwidth, both ways"
			   : "bandwidth",
		r->device);
	fputs("set xlabel 'bytes a message'\nset logscale x 2\nset format x '%.0b%B'\n", f);
	/* Ratios look the same everywhere. */
	fprintf(f, "set ylabel '%s'\nset logscale y 10\nset grid\nset key left top\n",
		p->latency ? "microseconds, median" : "MiB/s, median");
	fputs("plot", f);
	for (int i = 0; i < (r->compare ? PERF_MODES : 1); i++) {
		fprintf(f, "%s $points using 1:%d with linespoints lw 2 title '%s'", i ? "," : "",
			i + 2, perf_mode_names[r->compare ? (enum perf_mode)i : p->mode]);
	}
	fputc('\n', f);
}

static const char *draw(const struct perf_report *r, const struct perf_params *p)
{
	FILE *gnuplot = popen("exec gnuplot", "w");
	int status;

	if (!gnuplot)
		return strerror(errno);
	write_script(gnuplot, r, p);
	status = pclose(gnuplot);
	return status ? "gnuplot failed" : NULL;
}

const char *perf_report_end(struct perf_report *r, const struct perf_params *p)
{
	const char *why;

	if (!r->points)
		return NULL;
	why = fclose(r->points) ? strerror(errno) : draw(r, p);
	free(r->data);
	r->points = NULL;
	return why;
}
