/* SPDX-License-Identifier: BSD-2-Clause */
/* broker-load: its command line. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/format.h"
#include "load.h"
#include "memory.h"

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
	uint64_t n;

	if (parse_number(text, min, max, &n)) {
		fprintf(stderr, "broker-load: a number from %llu to %llu, not '%s'\n",
			(unsigned long long)min, (unsigned long long)max, text);
		exit(2);
	}
	return n;
}

static const char help[] =
	"usage: broker-load [OPTION]...\n\n"
	"Publishes messages to subscribers of its own, and tells what they cost the broker.\n\n"
	"  --rdma             over RDMA, not TCP\n"
	"  --host HOST        the broker (127.0.0.1)\n"
	"  --port PORT        (1883)\n"
	"  --subscribers N    (1)\n"
	"  --stalled N        so many of these stop reading\n"
	"  --size BYTES       of a message (256)\n"
	"  --qos QOS          0 or 1 (0)\n"
	"  --messages N       to measure (10000)\n"
	"  --warm-up N        to send before (1000)\n"
	"  --window N         messages that the slowest may be behind (64)\n"
	"  --pid PID          the broker's process, to measure\n"
	"  --receive-size N   bytes of a receive over RDMA\n"
	"  --receive-depth N  messages on the way to each client over RDMA\n"
	"  --memory MIB       for messages (256)\n"
	"  --seconds N        give up then (120)\n"
	"  --json             the result as JSON\n"
	"  --help             this text\n";

void load_parse(struct load_options *want, int argc, char **argv)
{
	static const struct option options[] = {
		{"rdma", 0, NULL, 'R'},          {"host", 1, NULL, 'h'},
		{"port", 1, NULL, 'p'},          {"subscribers", 1, NULL, 's'},
		{"stalled", 1, NULL, 'x'},       {"size", 1, NULL, 'b'},
		{"qos", 1, NULL, 'q'},           {"messages", 1, NULL, 'n'},
		{"warm-up", 1, NULL, 'w'},       {"window", 1, NULL, 'W'},
		{"pid", 1, NULL, 'P'},           {"receive-size", 1, NULL, 'r'},
		{"receive-depth", 1, NULL, 'd'}, {"memory", 1, NULL, 'm'},
		{"seconds", 1, NULL, 't'},       {"json", 0, NULL, 'j'},
		{"help", 0, NULL, 'H'},          {NULL, 0, NULL, 0},
	};

	for (int opt; (opt = getopt_long_only(argc, argv, "", options, NULL)) != -1;)
		switch (opt) {
		case 'R':
			want->rdma = true;
			break;
		case 'h':
			want->host = optarg;
			break;
		case 'p':
			want->port = optarg;
			break;
		case 's':
			want->subscribers = (uint32_t)number(optarg, 1, 100000);
			break;
		case 'x':
			want->stalled = (uint32_t)number(optarg, 0, 100000);
			break;
		case 'b':
			want->size = (uint32_t)number(optarg, LOAD_SEQ, 1 << 28);
			break;
		case 'q':
			want->qos = (uint8_t)number(optarg, 0, 1);
			break;
		case 'n':
			want->messages = number(optarg, 1, UINT32_MAX);
			break;
		case 'w':
			want->warmup = number(optarg, 0, UINT32_MAX);
			break;
		case 'W':
			want->window = number(optarg, 1, 60000);
			break;
		case 'P':
			want->pid = (long)number(optarg, 1, INT32_MAX);
			break;
		case 'r':
			want->attr.receive = (uint32_t)number(optarg, MQR_RECEIVE_MIN, 1 << 23);
			break;
		case 'd':
			want->attr.depth = (uint32_t)number(optarg, 1, 4096);
			break;
		case 'm':
			want->mib = number(optarg, MEMORY_MIN_MIB, 1 << 20);
			break;
		case 't':
			want->seconds = number(optarg, 1, 86400);
			break;
		case 'j':
			want->json = true;
			break;
		case 'H':
			fputs(help, stdout);
			exit(0);
		default:
			fputs("see broker-load --help\n", stderr);
			exit(2);
		}
	if (optind < argc || want->stalled >= want->subscribers) {
		fputs("broker-load: fewer stalled than subscribers, and no arguments\n", stderr);
		exit(2);
	}
}
