/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool-broker's options, see options.h. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/format.h"
#include "mqr.h"
#include "options.h"

enum {
	TCP = 1,
	RDMA,
	MEMORY,
	MAX_MESSAGE,
	RECEIVE_SIZE,
	STATS,
	THREADS,
	CONNECTIONS,
	SUBSCRIPTIONS,
	QUEUE_MESSAGES,
	QUEUE_BYTES,
	SLOW,
	PATIENCE,
	HELP,
	VERSION,
};

enum {
	MQTT_PORT = 1883,
	STATS_PORT = 9883,
};

static const struct option longopts[] = {
	{"tcp", required_argument, NULL, TCP},
	{"rdma", required_argument, NULL, RDMA},
	{"memory", required_argument, NULL, MEMORY},
	{"max-message", required_argument, NULL, MAX_MESSAGE},
	{"receive-size", required_argument, NULL, RECEIVE_SIZE},
	{"stats", required_argument, NULL, STATS},
	{"threads", required_argument, NULL, THREADS},
	{"connections", required_argument, NULL, CONNECTIONS},
	{"subscriptions", required_argument, NULL, SUBSCRIPTIONS},
	{"queue-messages", required_argument, NULL, QUEUE_MESSAGES},
	{"queue-bytes", required_argument, NULL, QUEUE_BYTES},
	{"slow", required_argument, NULL, SLOW},
	{"patience", required_argument, NULL, PATIENCE},
	{"help", no_argument, NULL, HELP},
	{"version", no_argument, NULL, VERSION},
	{NULL, 0, NULL, 0},
};

static const char help[] =
	"usage: sgpool-broker [OPTION]...\n\n"
	"An MQTT 3.1.1 broker whose messages stay in the memory that they came in.\n\n"
	"  --tcp ADDR[:PORT]     listen for TCP (1883); the default is 127.0.0.1, if --rdma is "
	"not\n"
	"                        given\n"
	"  --rdma ADDR[:PORT]    listen for RDMA (1883)\n"
	"  --stats ADDR[:PORT]   numbers for Prometheus over HTTP (9883)\n"
	"  --memory MIB          for all messages, queued and retained, and what describes them\n"
	"                        (256)\n"
	"  --max-message BYTES   the longest payload (16777216, or an eighth of the memory)\n"
	"  --receive-size BYTES  of a message over RDMA, its head included: a longer packet comes "
	"in\n"
	"                        several (65536; at most a 128th of the memory)\n"
	"  --threads N           event loops (as many as processors, at most 4)\n"
	"  --connections N       clients at once (10000)\n"
	"  --subscriptions N     filters a client (1024)\n"
	"  --queue-messages N    messages that may wait for a subscriber (10000), and\n"
	"  --queue-bytes BYTES   their bytes (an eighth of the memory)\n"
	"  --slow POLICY         above that:\n"
	"                        drop        the oldest of QoS 0 go; where there are none, the\n"
	"                                    subscriber is disconnected (the default)\n"
	"                        pause       who publishes to it waits\n"
	"                        disconnect  it is disconnected\n"
	"  --patience MS         with pause: a subscriber that takes nothing for so long is\n"
	"                        disconnected (2000)\n"
	"  --help, --version\n\n"
	"It ends in good order on SIGINT and SIGTERM. Exit status: 0; 1 when it could not run, or\n"
	"when memory of messages was still held at its end; 2 for wrong use.\n";

__attribute__((noreturn, format(printf, 1, 2))) static void wrong_use(const char *format, ...)
{
	va_list ap;

	fputs("sgpool-broker: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputs("; see 'sgpool-broker --help'\n", stderr);
	exit(2);
}

static uint64_t number(const char *name, const char *text, uint64_t min, uint64_t max)
{
	uint64_t n;

	if (parse_number(text, min, max, &n))
		wrong_use("--%s '%s' is no number of %llu to %llu", name, text,
			  (unsigned long long)min, (unsigned long long)max);
	return n;
}

/* As addr_parse(), but port 0 may be asked for: one that is free, which is told on stderr. */
static void address(const char *name, const char *text, uint16_t port, struct addr *addr)
{
	const size_t n = strlen(text);
	char host[sizeof addr->host + 2];
	const bool any = n > 2 && n - 2 < sizeof host && !strcmp(text + n - 2, ":0") &&
			 (text[0] != '[' ? !memchr(text, ':', n - 2) : text[n - 3] == ']');

	if (any) {
		memcpy(host, text, n - 2);
		host[n - 2] = 0;
		port = 0;
	}
	if (addr_parse(any ? host : text, port, addr))
		wrong_use("--%s '%s' is no address", name, text);
}

static enum policy policy(const char *text)
{
	static const char *const names[] = {[POLICY_DROP] = "drop",
					    [POLICY_PAUSE] = "pause",
					    [POLICY_DISCONNECT] = "disconnect"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(text, names[i]))
			return (enum policy)i;
	wrong_use("--slow '%s' is none of drop, pause, disconnect", text);
}

static void read_one(struct options *o, int opt, const char *name)
{
	struct settings *s = &o->settings;

	switch (opt) {
	case TCP:
		o->tcp = true;
		address(name, optarg, MQTT_PORT, &o->tcp_addr);
		break;
	case RDMA:
		o->rdma = true;
		address(name, optarg, MQTT_PORT, &o->rdma_addr);
		break;
	case STATS:
		o->stats = true;
		address(name, optarg, STATS_PORT, &o->stats_addr);
		break;
	case MEMORY:
		s->memory_mib = number(name, optarg, 16, 1 << 24);
		break;
	case MAX_MESSAGE:
		s->max_message = (uint32_t)number(name, optarg, 1, MQTT_REMAINING_MAX);
		break;
	case RECEIVE_SIZE:
		s->receive = (uint32_t)number(name, optarg, MQR_RECEIVE_MIN, 1 << 23);
		break;
	case THREADS:
		s->threads = (unsigned int)number(name, optarg, 1, SHARDS_MAX);
		break;
	case CONNECTIONS:
		s->max_connections = number(name, optarg, 1, 1 << 20);
		break;
	case SUBSCRIPTIONS:
		s->max_subscriptions = (uint32_t)number(name, optarg, 1, 1 << 20);
		break;
	case QUEUE_MESSAGES:
		s->queue.messages = number(name, optarg, 1, 1 << 24);
		break;
	case QUEUE_BYTES:
		s->queue.bytes = number(name, optarg, 1, SIZE_MAX / 4);
		break;
	case SLOW:
		s->policy = policy(optarg);
		break;
	case PATIENCE:
		s->patience_ms = (int64_t)number(name, optarg, 1, UINT64_C(3600) * 1000);
		break;
	case HELP:
		fputs(help, stdout);
		exit(fflush(stdout) ? 1 : 0);
	case VERSION:
		printf("sgpool-broker %s\n", sgp_version());
		exit(fflush(stdout) ? 1 : 0);
	default:
		wrong_use("an option is unknown, or lacks its value");
	}
}

static unsigned int processors(void)
{
	const long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 4 ? 4 : (unsigned int)n;
}

/* What depends on other options. */
static void complete(struct options *o)
{
	struct settings *s = &o->settings;
	const size_t memory = s->memory_mib << 20;

	if (!s->max_message)
		s->max_message = memory / 8 < 16 << 20 ? (uint32_t)(memory / 8) : 16 << 20;
	/* The pool's large chunks are half of all memory: two of the longest must fit. */
	if (s->max_message > memory / 4)
		wrong_use("--max-message %u is more than a quarter of --memory", s->max_message);
	if (s->receive > memory / 128)
		wrong_use("--receive-size %u is more than a 128th of --memory", s->receive);
	if (!s->queue.bytes)
		s->queue.bytes = memory / 8;
	if (!o->tcp && !o->rdma) {
		o->tcp = true;
		address("tcp", "127.0.0.1", MQTT_PORT, &o->tcp_addr);
	}
}

void options_read(struct options *options, int argc, char **argv)
{
	int opt, index = 0;

	*options = (struct options){.settings = {.memory_mib = 256,
						 .receive = MQR_RECEIVE,
						 .threads = processors(),
						 .max_connections = 10000,
						 .max_subscriptions = 1024,
						 .queue = {.messages = 10000},
						 .policy = POLICY_DROP,
						 .patience_ms = 2000,
						 .unread_ms = 60000}};
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", longopts, &index)) != -1)
		read_one(options, opt, opt == '?' ? "" : longopts[index].name);
	if (optind < argc)
		wrong_use("'%s' is too much", argv[optind]);
	complete(options);
}
