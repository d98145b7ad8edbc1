/* SPDX-License-Identifier: BSD-2-Clause */
/* What the client of sgpool perf found out: a table like perftest's, or one JSON object a line. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/out.h"
#include "cli/perf_report.h"

const char *const perf_op_names[PERF_OPS] = {"send", "write", "read"};
const char *const perf_mode_names[PERF_MODES] = {"pool", "register", "raw"};

static const char rule[] = "-----------------------------------------------------------------------"
			   "----------------------\n";

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double perf_median(double *v, uint32_t n)
{
	qsort(v, n, sizeof *v, by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* The median over all rounds of how much longer other takes for a message. */
static double paired(const struct perf_series *ours, const struct perf_series *other)
{
	double x[PERF_ROUNDS_MAX];

	for (uint32_t i = 0; i < ours->rounds; i++)
		x[i] = other->ns[i] / ours->ns[i];
	return perf_median(x, ours->rounds);
}

static double median_ns(const struct perf_series *s)
{
	double v[PERF_ROUNDS_MAX];

	memcpy(v, s->ns, s->rounds * sizeof *v);
	return perf_median(v, s->rounds);
}

static double mib(const struct perf_series *s)
{
	return (double)s->p.size / median_ns(s) * 1e9 / PERF_UNITS;
}

static double us(uint64_t ns)
{
	return (double)ns / 1000;
}

/* ---- the table ---- */

static void print_heading(const struct perf_report *r, const struct perf_params *p)
{
	fputs(rule, r->out);
	fprintf(r->out, " RDMA %s %s, %s to %s over %s\n", perf_op_names[p->op],
		p->latency ? "latency"
		: p->both  ? "bidirectional bandwidth"
			   : "bandwidth",
		r->compare ? "pool, register and raw" : perf_mode_names[p->mode], r->peer,
		r->device);
	fprintf(r->out,
		" connections: %-4" PRIu32 " threads: %-4" PRIu32 " SGEs: %-4" PRIu32
		" inline: %-6" PRIu32 " %s\n",
		p->conns, p->threads, p->sges, p->inlined, p->events ? "events" : "polling");
	fputs(rule, r->out);
	if (r->compare && p->latency)
		fprintf(r->out, " #bytes       pool   register        raw  t_median[usec]    "
				"x register   x raw   p99: pool  register       raw\n");
	else if (r->compare)
		fprintf(r->out, " #bytes       pool   register        raw  BW median[MiB/sec]    "
				"x register   x raw\n");
	else if (p->latency)
		fprintf(r->out,
			" #bytes  #iterations    t_min    t_p50    t_avg    t_p99  t_p99.9  "
			"  t_max  t_stdev [usec]\n");
	else
		fprintf(r->out, " #bytes  #iterations  tx depth   BW average[MiB/sec]   "
				"MsgRate[Mpps]   CPU[usec/message]: here, there\n");
}

static void print_latency(const struct perf_report *r, const struct perf_series *s)
{
	const struct histogram *h = &s->latency;

	fprintf(r->out, " %-8" PRIu32 "%11" PRIu64 " %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n",
		s->p.size, s->messages, us(h->min), us(histogram_percentile(h, 50)),
		histogram_mean(h) / 1000, us(histogram_percentile(h, 99)),
		us(histogram_percentile(h, 99.9)), us(h->max), histogram_deviation(h) / 1000);
}

static void print_bandwidth(const struct perf_report *r, const struct perf_series *s)
{
	const double n = (double)s->messages * 1000;

	fprintf(r->out, " %-8" PRIu32 "%11" PRIu64 " %9" PRIu32 " %21.2f %15.6f %21.3f %10.3f\n",
		s->p.size, s->messages, s->p.tx, mib(s), 1000 / median_ns(s), (double)s->cpu_ns / n,
		(double)s->peer_cpu_ns / n);
}

static void print_compared(const struct perf_report *r, const struct perf_series *s, int n)
{
	const bool latency = s->p.latency;

	fprintf(r->out, " %-8" PRIu32, s->p.size);
	for (int i = 0; i < n; i++)
		fprintf(r->out, "%s%8.2f ", i ? "  " : "",
			latency ? median_ns(&s[i]) / 1000 : mib(&s[i]));
	fprintf(r->out, "%15s", "");
	for (int i = 1; i < n; i++)
		fprintf(r->out, i == 1 ? "%15.3f" : "%8.3f", paired(s, &s[i]));
	for (int i = 0; i < n && latency; i++)
		fprintf(r->out, "%10.2f", us(histogram_percentile(&s[i].latency, 99)));
	fputc('\n', r->out);
}

/* ---- JSON ---- */

static void json_latency(struct out *out, const struct histogram *h)
{
	out_group(out, "latency_us", NULL);
	out_double(out, "min", NULL, us(h->min));
	out_double(out, "p50", NULL, us(histogram_percentile(h, 50)));
	out_double(out, "p99", NULL, us(histogram_percentile(h, 99)));
	out_double(out, "p99.9", NULL, us(histogram_percentile(h, 99.9)));
	out_double(out, "max", NULL, us(h->max));
	out_double(out, "mean", NULL, histogram_mean(h) / 1000);
	out_double(out, "deviation", NULL, histogram_deviation(h) / 1000);
	out_end(out);
}

static void json_result(const struct perf_report *r, const struct perf_series *s)
{
	const struct perf_params *p = &s->p;
	const double ns = median_ns(s), n = (double)s->messages;
	struct out out;

	out_open(&out, r->out, true);
	out_str(&out, "event", NULL, "result");
	out_str(&out, "test", NULL, p->latency ? "latency" : "bandwidth");
	out_str(&out, "op", NULL, perf_op_names[p->op]);
	out_str(&out, "mode", NULL, perf_mode_names[p->mode]);
	out_u64(&out, "size", NULL, p->size);
	out_u64(&out, "messages", NULL, s->messages);
	out_u64(&out, "rounds", NULL, s->rounds);
	out_double(&out, "seconds", NULL, s->seconds);
	out_double(&out, "ns_per_message", NULL, ns);
	out_double(&out, "bytes_per_second", NULL, (double)p->size / ns * 1e9);
	out_double(&out, "messages_per_second", NULL, 1e9 / ns);
	out_double(&out, "cpu_ns_per_message", NULL, (double)s->cpu_ns / n);
	out_double(&out, "peer_cpu_ns_per_message", NULL, (double)s->peer_cpu_ns / n);
	out_u64(&out, "registrations", NULL, s->registrations);
	out_u64(&out, "peer_registrations", NULL, s->peer_registrations);
	out_bool(&out, "bidirectional", NULL, p->both);
	out_bool(&out, "events", NULL, p->events);
	out_u64(&out, "connections", NULL, p->conns);
	out_u64(&out, "threads", NULL, p->threads);
	out_u64(&out, "sges", NULL, p->sges);
	out_u64(&out, "inline", NULL, p->inlined);
	out_u64(&out, "tx_depth", NULL, p->tx);
	out_u64(&out, "rx_depth", NULL, p->rx);
	if (p->latency)
		json_latency(&out, &s->latency);
	out_close(&out);
}

static void json_compared(const struct perf_report *r, const struct perf_series *s, int n)
{
	struct out out;

	out_open(&out, r->out, true);
	out_str(&out, "event", NULL, "comparison");
	out_str(&out, "test", NULL, s->p.latency ? "latency" : "bandwidth");
	out_str(&out, "op", NULL, perf_op_names[s->p.op]);
	out_u64(&out, "size", NULL, s->p.size);
	out_u64(&out, "rounds", NULL, s->rounds);
	for (int i = 1; i < n; i++)
		out_double(&out, i == 1 ? "x_register" : "x_raw", NULL, paired(s, &s[i]));
	out_close(&out);
}

int perf_report_begin(struct perf_report *r, const struct perf_params *p)
{
	struct out out;

	if (r->plot) {
		r->points = open_memstream(&r->data, &r->length);
		if (!r->points)
			return -1;
	}
	if (!r->json) {
		print_heading(r, p);
		fflush(r->out);
		return 0;
	}
	out_open(&out, r->out, true);
	out_str(&out, "event", NULL, "connected");
	out_str(&out, "to", NULL, r->peer);
	out_str(&out, "device", NULL, r->device);
	out_close(&out);
	return 0;
}

void perf_report_size(struct perf_report *r, struct perf_series *s, int n)
{
	for (int i = 0; i < n && r->json; i++)
		json_result(r, &s[i]);
	if (r->json && r->compare)
		json_compared(r, s, n);
	else if (!r->json && r->compare)
		print_compared(r, s, n);
	else if (!r->json && s->p.latency)
		print_latency(r, s);
	else if (!r->json)
		print_bandwidth(r, s);
	fflush(r->out);
	if (!r->points)
		return;
	fprintf(r->points, "%" PRIu32, s->p.size);
	for (int i = 0; i < n; i++)
		fprintf(r->points, " %.6f", s->p.latency ? median_ns(&s[i]) / 1000 : mib(&s[i]));
	fputc('\n', r->points);
}
