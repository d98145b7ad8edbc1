/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line (see options.h). */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/format.h"
#include "options.h"

#define DEFAULT_NQN "nqn.2026-01.io.sgpool:target"
#define MIB         ((uint64_t)1 << 20)

enum {
	DEFAULT_PORT = 4420,
	DEFAULT_DEPTH = 128,
	MIN_DEPTH = 2,
	MAX_DEPTH = 1024,
	DEFAULT_MEMORY = 128, /* MiB */
	MIN_MEMORY = 16,
	MAX_MEMORY = 65536,
	MAX_THREADS = 64,
	USUAL_THREADS = 4, /* at most */
	NQN_MAX = 223,     /* what the specification allows */
};

static const char usage[] =
	"Usage: sgpool-nvmf-target --listen ADDR[:PORT] --namespace PATH[,bs=512|4096][,ro]...\n"
	"                          [--nqn NQN] [--queue-depth N] [--memory MIB] [--threads N]\n"
	"                          [--stats PATH|-]\n"
	"\n"
	"Serves files and block devices to NVMe over RDMA hosts.\n"
	"\n"
	"  --listen ADDR[:PORT]  where hosts connect to; the port is 4420 if it's not given\n"
	"  --namespace PATH      a file or block device; the first one is namespace 1\n"
	"          ,bs=512|4096  its block size (512, or 4096 where the device wants that)\n"
	"          ,ro           hosts may not write to it\n"
	"  --nqn NQN             the subsystem's name (" DEFAULT_NQN ")\n"
	"  --queue-depth N       commands of an I/O queue, 2 to 1024 (128)\n"
	"  --memory MIB          bounds the memory of all hosts together, 16 to 65536 (128)\n"
	"  --threads N           that serve hosts' queues, 1 to 64, each of which has its part of\n"
	"                        the memory, 16 MiB or more (as many as there are processors, but\n"
	"                        no more than 4, or than there is memory for)\n"
	"  --stats PATH|-        statistics as JSON, into PATH every second and at the end;\n"
	"                        to stdout on SIGUSR1 and at the end\n"
	"  --help                this text\n"
	"\n"
	"SIGTERM and SIGINT end it when what is in flight is done.\n"
	"Exit status: 0 after a signal, 1 if something failed, 2 for wrong use.\n";

static int wrong(const char *what, const char *arg)
{
	fprintf(stderr, "sgpool-nvmf-target: %s %s (--help tells more)\n", what, arg);
	return 2;
}

/* Takes ",bs=4096" and ",ro" off the end of text, whatever else there is in the path. */
static int parse_namespace(const char *text, struct options *opt)
{
	struct ns_option *ns = &opt->ns[opt->nns];
	char *comma;

	if (opt->nns == MAX_NAMESPACES)
		return wrong("there are too many namespaces:", text);
	if (strlen(text) >= sizeof ns->path)
		return wrong("the path is too long:", text);
	*ns = (struct ns_option){0};
	snprintf(ns->path, sizeof ns->path, "%s", text);
	while ((comma = strrchr(ns->path, ',')) != NULL) {
		if (!strcmp(comma, ",ro"))
			ns->read_only = true;
		else if (!strcmp(comma, ",bs=512"))
			ns->block_size = 512;
		else if (!strcmp(comma, ",bs=4096"))
			ns->block_size = 4096;
		else if (!strncmp(comma, ",bs=", 4))
			return wrong("a block has 512 or 4096 bytes, not as in", text);
		else
			break;
		*comma = 0;
	}
	if (!*ns->path)
		return wrong("there is no path in", text);
	opt->nns++;
	return 0;
}

static int number(const char *what, uint64_t min, uint64_t max, uint64_t *value)
{
	return parse_number(optarg, min, max, value) ? wrong(what, optarg) : 0;
}

static int parse_one(int c, struct options *opt)
{
	uint64_t n = 0;
	int ret = 0;

	switch (c) {
	case 'l':
		return addr_parse(optarg, DEFAULT_PORT, &opt->listen)
			       ? wrong("this is no address:", optarg)
			       : 0;
	case 'n':
		return parse_namespace(optarg, opt);
	case 'q':
		opt->nqn = optarg;
		if (!*optarg || strlen(optarg) > NQN_MAX)
			return wrong("a name has 1 to 223 bytes, not as", optarg);
		return 0;
	case 'd':
		ret = number("the depth of a queue is 2 to 1024, not", MIN_DEPTH, MAX_DEPTH, &n);
		opt->depth = (uint16_t)n;
		return ret;
	case 'm':
		ret = number("--memory is 16 to 65536 MiB, not", MIN_MEMORY, MAX_MEMORY, &n);
		opt->memory = n * MIB;
		return ret;
	case 't':
		ret = number("there are 1 to 64 threads, not", 1, MAX_THREADS, &n);
		opt->threads = (uint32_t)n;
		return ret;
	case 's':
		opt->stats = optarg;
		return 0;
	case 'h':
		fputs(usage, stdout);
		return -1;
	default:
		fputs(usage, stderr);
		return 2;
	}
}

/* As many as there are processors and memory for, unless it was said. */
static int set_threads(struct options *opt)
{
	const uint64_t most = opt->memory / (MIN_MEMORY * MIB);
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (opt->threads > most)
		return wrong("each thread needs", "16 MiB of --memory");
	if (!opt->threads) {
		opt->threads = cpus < 1 ? 1 : cpus < USUAL_THREADS ? (uint32_t)cpus : USUAL_THREADS;
		if (opt->threads > most)
			opt->threads = (uint32_t)most;
	}
	return 0;
}

int options_parse(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{"listen", required_argument, NULL, 'l'},
		{"namespace", required_argument, NULL, 'n'},
		{"nqn", required_argument, NULL, 'q'},
		{"queue-depth", required_argument, NULL, 'd'},
		{"memory", required_argument, NULL, 'm'},
		{"threads", required_argument, NULL, 't'},
		{"stats", required_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int c, ret;

	*opt = (struct options){
		.nqn = DEFAULT_NQN, .depth = DEFAULT_DEPTH, .memory = DEFAULT_MEMORY * MIB};
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		ret = parse_one(c, opt);
		if (ret)
			return ret;
	}
	if (optind < argc)
		return wrong("what is", argv[optind]);
	if (!opt->listen.port || !opt->nns)
		return wrong("--listen and --namespace", "are needed");
	return set_threads(opt);
}
