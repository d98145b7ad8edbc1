/* SPDX-License-Identifier: BSD-2-Clause */
/* What the client of sgpool perf found out, as a table, as JSON, and as a plot. */
#ifndef SGP_CLI_PERF_REPORT_H
#define SGP_CLI_PERF_REPORT_H

#include <stdio.h>

#include "cli/histogram.h"
#include "cli/perf_wire.h"

enum {
	PERF_ROUNDS_MAX = 1001
}; /* odd, so that a median was measured */

/* One mode at one size, over all rounds. */
struct perf_series {
	struct perf_params p;
	uint32_t rounds;
	double ns[PERF_ROUNDS_MAX]; /* a message, in each round; of latency: one way */
	uint64_t messages;          /* in all, both ways */
	double seconds;
	uint64_t cpu_ns, peer_cpu_ns, registrations, peer_registrations;
	struct histogram latency;
};

struct perf_report {
	FILE *out;
	bool json, compare;
	const char *plot; /* file for an SVG; NULL: none */
	const char *peer, *device;
	FILE *points; /* for the plot: writes into the next two */
	char *data;
	size_t length;
};

enum {
	PERF_UNITS = 1024 * 1024 /* bytes of a MiB */
};

extern const char *const perf_op_names[PERF_OPS], *const perf_mode_names[PERF_MODES];

/* Median of v[0 .. n - 1], which is sorted. */
double perf_median(double *v, uint32_t n);

/* Begin: the heading. p: the first test. Returns 0; -1 with errno (the plot's data can't be kept). */
int perf_report_begin(struct perf_report *r, const struct perf_params *p);

/* One size: series[0 .. n - 1] are pool alone, or with compare all modes. */
void perf_report_size(struct perf_report *r, struct perf_series *series, int n);

/* End: the plot is drawn. Returns NULL, or what failed. */
const char *perf_report_end(struct perf_report *r, const struct perf_params *p);

/* Why file can't be drawn; NULL: it can. A new file is made, and stays empty until then. */
const char *perf_plot_impossible(const char *file);

#endif
