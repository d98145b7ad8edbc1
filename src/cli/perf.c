/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool perf: its options. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/conn.h"
#include "cli/format.h"
#include "cli/perf_client.h"
#include "cli/perf_report.h"
#include "cli/perf_server.h"

enum {
	PORT_DEFAULT = 18521,
	ITERATIONS = 1000,
	ROUNDS = 21,
	SIZE_DEFAULT = 65536,
	ALL_MOST = 8 << 20, /* perftest's */
	SECONDS_MOST = 86400,
	TIMEOUT_LEAST = 3, /* signs of life come once a second */
};

/* Options without a letter. */
enum {
	BIND = 1,
	ONCE,
	OP,
	SGES,
	THREADS,
	ROUND_COUNT,
	PLOT,
	TIMEOUT,
};

static const char letters[] = "p:s:an:D:t:r:q:bI:lem:c";
static const struct option options[] = {
	{"port", required_argument, NULL, 'p'},
	{"bind", required_argument, NULL, BIND},
	{"once", no_argument, NULL, ONCE},
	{"op", required_argument, NULL, OP},
	{"mode", required_argument, NULL, 'm'},
	{"compare", no_argument, NULL, 'c'},
	{"rounds", required_argument, NULL, ROUND_COUNT},
	{"latency", no_argument, NULL, 'l'},
	{"size", required_argument, NULL, 's'},
	{"all", no_argument, NULL, 'a'},
	{"iters", required_argument, NULL, 'n'},
	{"duration", required_argument, NULL, 'D'},
	{"tx-depth", required_argument, NULL, 't'},
	{"rx-depth", required_argument, NULL, 'r'},
	{"qp", required_argument, NULL, 'q'},
	{"threads", required_argument, NULL, THREADS},
	{"bidirectional", no_argument, NULL, 'b'},
	{"inline", required_argument, NULL, 'I'},
	{"sges", required_argument, NULL, SGES},
	{"events", no_argument, NULL, 'e'},
	{"plot", required_argument, NULL, PLOT},
	{"timeout", required_argument, NULL, TIMEOUT},
	{NULL, 0, NULL, 0},
};

/* What was asked for, of both kinds. */
struct asked {
	struct perf_server_options server;
	struct perf_client_options client;
	uint64_t port;
	const char *of_server, *of_client; /* an option that only one of them takes */
	bool all, rounds, mode;
};

static const char *option_name(int opt)
{
	const struct option *o = options;

	while (o->name && o->val != opt)
		o++;
	return o->name;
}

/* The argument of option opt. */
static uint32_t number(const struct cli_command *self, int opt, uint64_t min, uint64_t max)
{
	uint64_t n;

	if (parse_number(optarg, min, max, &n))
		cli_usage(self, "--%s: '%s' is no number from %llu to %llu", option_name(opt),
			  optarg, (unsigned long long)min, (unsigned long long)max);
	return (uint32_t)n;
}

static unsigned int name(const struct cli_command *self, const char *text,
			 const char *const names[], unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (!strcmp(text, names[i]))
			return i;
	cli_usage(self, "'%s' is not one of %s, %s, %s", text, names[0], names[1], names[2]);
}

/* "64", "4k" or "1M", of length n. */
static uint32_t size(const struct cli_command *self, const char *text, size_t n)
{
	char digits[24] = "";
	uint64_t value, unit = 1;

	if (n > 0 && n < sizeof digits) {
		memcpy(digits, text, n);
		if (digits[n - 1] == 'k' || digits[n - 1] == 'K')
			unit = 1 << 10;
		else if (digits[n - 1] == 'm' || digits[n - 1] == 'M')
			unit = 1 << 20;
		if (unit > 1)
			digits[n - 1] = 0;
	}
	if (parse_number(digits, 1, PERF_SIZE_MAX / unit, &value) || value * unit < PERF_SIZE_MIN)
		cli_usage(self, "'%.*s' is no size from %d bytes to 1024M", (int)n, text,
			  PERF_SIZE_MIN);
	return (uint32_t)(value * unit);
}

static void add_size(const struct cli_command *self, struct perf_client_options *c, uint32_t bytes)
{
	if (c->nsizes == PERF_SIZES_MAX)
		cli_usage(self, "these are more than %d sizes", PERF_SIZES_MAX);
	c->sizes[c->nsizes++] = bytes;
}

/* "64,4k,1M": these; "64:1M": each power of two times 64. */
static void sizes(const struct cli_command *self, struct perf_client_options *c, const char *text)
{
	const char *colon = strchr(text, ':');

	c->nsizes = 0;
	if (colon) {
		const uint64_t last = size(self, colon + 1, strlen(colon + 1));
		uint64_t n = size(self, text, (size_t)(colon - text));

		if (n > last)
			cli_usage(self, "'%s' begins above its end", text);
		for (; n <= last; n *= 2)
			add_size(self, c, (uint32_t)n);
		return;
	}
	for (;;) {
		const size_t n = strcspn(text, ",");

		add_size(self, c, size(self, text, n));
		if (!text[n])
			return;
		text += n + 1;
	}
}

static void all_sizes(const struct cli_command *self, struct perf_client_options *c)
{
	uint32_t n = PERF_SIZE_MIN;

	while (n < PERF_PART_MIN * c->params.sges)
		n *= 2;
	for (c->nsizes = 0; n <= ALL_MOST; n *= 2)
		add_size(self, c, n);
}

/* Returns whether it was one of the server's. */
static bool server_option(const struct cli_command *self, struct asked *a, int opt)
{
	switch (opt) {
	case BIND:
		if (strchr(optarg, ' ') || !*optarg || strlen(optarg) >= sizeof a->server.addr.host)
			cli_usage(self, "'%s' is no address", optarg);
		snprintf(a->server.addr.host, sizeof a->server.addr.host, "%s", optarg);
		a->of_server = "--bind";
		return true;
	case ONCE:
		a->server.once = true;
		a->of_server = "--once";
		return true;
	default:
		return false;
	}
}

static void client_option(const struct cli_command *self, struct asked *a, int opt)
{
	struct perf_client_options *c = &a->client;
	struct perf_params *p = &c->params;

	a->of_client = "an option of the client's";
	switch (opt) {
	case OP:
		p->op = (enum perf_op)name(self, optarg, perf_op_names, PERF_OPS);
		break;
	case 'm':
		p->mode = (enum perf_mode)name(self, optarg, perf_mode_names, PERF_MODES);
		a->mode = true;
		break;
	case 'c':
		c->compare = true;
		break;
	case ROUND_COUNT:
		c->rounds = number(self, opt, 1, PERF_ROUNDS_MAX);
		a->rounds = true;
		break;
	case 'l':
		p->latency = true;
		break;
	case 's':
		sizes(self, c, optarg);
		break;
	case 'a':
		a->all = true;
		break;
	case 'n':
		c->iterations = number(self, opt, 1, UINT32_MAX);
		break;
	case 'D':
		c->duration_ns = number(self, opt, 1, SECONDS_MOST) * UINT64_C(1000000000);
		break;
	case 't':
		p->tx = number(self, opt, PERF_DEPTH_MIN, PERF_DEPTH_MAX);
		break;
	case 'r':
		p->rx = number(self, opt, PERF_DEPTH_MIN, PERF_DEPTH_MAX);
		break;
	case 'q':
		p->conns = number(self, opt, 1, PERF_CONNS_MAX);
		break;
	case THREADS:
		p->threads = number(self, opt, 1, PERF_CONNS_MAX);
		break;
	case 'b':
		p->both = true;
		break;
	case 'I':
		p->inlined = number(self, opt, 0, PERF_INLINE_MAX);
		break;
	case SGES:
		p->sges = number(self, opt, 1, PERF_SGES_MAX);
		break;
	case 'e':
		p->events = true;
		break;
	case PLOT:
		c->plot = optarg;
		break;
	}
}

/* See that the options go together, as far as they can be seen to. */
static void check_client(const struct cli_command *self, struct asked *a)
{
	struct perf_client_options *c = &a->client;

	if (a->of_server)
		cli_usage(self, "%s is the server's", a->of_server);
	if (c->compare && a->mode)
		cli_usage(self, "--compare runs all modes: --mode goes without it");
	if (a->rounds && !c->compare)
		cli_usage(self, "--rounds goes with --compare");
	if (c->iterations && c->duration_ns)
		cli_usage(self, "-n and -D exclude each other");
	if (a->all && c->nsizes)
		cli_usage(self, "-a and -s exclude each other");
	if (a->all)
		all_sizes(self, c);
	if (!c->nsizes)
		add_size(self, c, SIZE_DEFAULT);
	if (!c->iterations && !c->duration_ns && !c->compare)
		c->iterations = ITERATIONS;
	for (uint32_t i = 0; i < c->nsizes; i++) {
		const struct perf_params p = perf_sized(&c->params, c->sizes[i]);
		const char *wrong = perf_check(&p);

		if (wrong)
			cli_usage(self, "of %u bytes: %s", (unsigned int)p.size, wrong);
	}
}

static int run(const struct cli_command *self, int argc, char **argv)
{
	struct asked a = {
		.server = {.addr = {.host = "0.0.0.0"}},
		.client = {.params = {.sges = 1, .conns = 1, .threads = 1}, .rounds = ROUNDS},
		.port = PORT_DEFAULT};
	int timeout_ms = CONN_SILENCE_MS, opt;
	bool json = false;

	while ((opt = cli_option(self, argc, argv, letters, options, &json)) != -1) {
		if (opt == 'p')
			a.port = number(self, opt, 0, UINT16_MAX);
		else if (opt == TIMEOUT)
			timeout_ms = (int)number(self, opt, TIMEOUT_LEAST, SECONDS_MOST) * 1000;
		else if (!server_option(self, &a, opt))
			client_option(self, &a, opt);
	}
	a.server.name = a.client.name = self->name;
	a.server.json = a.client.json = json;
	a.server.timeout_ms = a.client.timeout_ms = timeout_ms;
	a.server.out = a.client.out = stdout;
	if (argc - optind > 1)
		cli_usage(self, "'%s' is too much", argv[optind + 1]);
	if (optind == argc) {
		if (a.of_client)
			cli_usage(self, "without a HOST it's the server, which is told by its "
					"client what to do");
		a.server.addr.port = (uint16_t)a.port;
		return cli_finish(self->name, perf_server_run(&a.server));
	}
	check_client(self, &a);
	if (!a.port || addr_parse(argv[optind], (uint16_t)a.port, &a.client.addr))
		cli_usage(self, "'%s' is no HOST or HOST:PORT, or the port is 0", argv[optind]);
	return cli_finish(self->name, perf_client_run(&a.client));
}

const struct cli_command cli_perf = {
	.name = "perf",
	.summary = "measure bandwidth and latency, with sgpool and without",
	.usage = "[--bind ADDR] [-p PORT] [--once] [--timeout S] [--json]\n"
		 "       sgpool perf [OPTION ...] HOST[:PORT]",
	.help = "Without HOST it's the server, which serves one client after the other; with HOST\n"
		"the client, which tells the server what to do and prints a table. sgpool-perf(1)\n"
		"tells more.\n\n"
		"  -p, --port P          listen on, or connect to, this port (default 18521)\n"
		"  --timeout S           give up on an other end that brings nothing on for so\n"
		"                        many seconds (default 15)\n"
		"  --bind ADDR           server: listen on this address (default 0.0.0.0)\n"
		"  --once                server: end after one client, with its status\n\n"
		"  --op OP               send (default), write or read\n"
		"  -l, --latency         one message at a time, to and fro: percentiles\n"
		"  -m, --mode MODE       pool (default): sgpool; register: verbs, each message is\n"
		"                        registered; raw: verbs, memory registered beforehand\n"
		"  -c, --compare         all three in turn: medians, and the median of the ratio\n"
		"  --rounds N            of --compare (default 21)\n"
		"  -s, --size SIZES      bytes, as 4096 or 4k; 64,4k,1M: these; 64:1M: each "
		"double\n"
		"                        of 64 (default 64k)\n"
		"  -a, --all             each power of two from 16 to 8M\n"
		"  -n, --iters N         messages of each connection (default 1000), in a round\n"
		"  -D, --duration S      for so many seconds a size instead\n"
		"  -t, --tx-depth N      messages on the way (default: 2 MiB of them, 8 to 128)\n"
		"  -r, --rx-depth N      receives posted (default: as -t)\n"
		"  -q, --qp N            connections (default 1)\n"
		"  --threads N           at each end, which share them (default 1)\n"
		"  -b, --bidirectional   both ends send\n"
		"  -I, --inline N        room for so many bytes inline (default 0)\n"
		"  --sges N              a message is cut into so many SGEs (default 1)\n"
		"  -e, --events          sleep when there is nothing to do, instead of polling\n"
		"  --plot FILE           draw an SVG with gnuplot\n",
	.run = run,
};
