/* SPDX-License-Identifier: BSD-2-Clause */
/* What sgpool-pub and sgpool-sub have in common: their options. See client.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/format.h"
#include "client.h"

enum {
	OPT_WILL_TOPIC = CLIENT_OPT_COMMON,
	OPT_WILL_PAYLOAD,
	OPT_WILL_QOS,
	OPT_WILL_RETAIN,
	OPT_QUIET,
	OPT_RECEIVE,
	OPT_DEPTH,
	OPT_HELP,
	OPT_VERSION,
	OPTIONS = 32,
};

static const struct option common[] = {
	{"host", required_argument, NULL, 'h'},
	{"port", required_argument, NULL, 'p'},
	{"topic", required_argument, NULL, 't'},
	{"qos", required_argument, NULL, 'q'},
	{"id", required_argument, NULL, 'i'},
	{"keepalive", required_argument, NULL, 'k'},
	{"username", required_argument, NULL, 'u'},
	{"pw", required_argument, NULL, 'P'},
	{"will-topic", required_argument, NULL, OPT_WILL_TOPIC},
	{"will-payload", required_argument, NULL, OPT_WILL_PAYLOAD},
	{"will-qos", required_argument, NULL, OPT_WILL_QOS},
	{"will-retain", no_argument, NULL, OPT_WILL_RETAIN},
	{"quiet", no_argument, NULL, OPT_QUIET},
	{"receive-size", required_argument, NULL, OPT_RECEIVE},
	{"receive-depth", required_argument, NULL, OPT_DEPTH},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
};

enum {
	COMMON = sizeof common / sizeof *common
};

static const char letters[] = "h:p:q:i:k:u:P:";

static void print_help(const struct client *c)
{
	printf("usage: %s %s\n\n%s\n\n%s\n"
	       "  -h, --host HOST          the broker's address (127.0.0.1)\n"
	       "  -p, --port PORT          its port for RDMA (%d)\n"
	       "  -q, --qos QOS            0 (the default) or 1\n"
	       "  -i, --id ID              the client identifier; made up if not given\n"
	       "  -k, --keepalive SECONDS  so often something is said at least (%d); 0: need not "
	       "be\n"
	       "  -u, --username USER      -P, --pw PASSWORD\n"
	       "      --will-topic TOPIC   the broker publishes a will when this client breaks "
	       "off:\n"
	       "      --will-payload TEXT  its message\n"
	       "      --will-qos QOS       0 or 1\n"
	       "      --will-retain        it is retained\n"
	       "      --quiet              no errors are printed\n"
	       "      --receive-size N     bytes of the longest message of RDMA to be taken (%d)\n"
	       "      --receive-depth N    messages that may be on the way here (%d)\n"
	       "      --help               this text\n"
	       "      --version            the version\n\n"
	       "Exit status: 0 if all went well, 1 if not, 2 for wrong use%s.\n",
	       c->name, c->usage, c->summary, c->help, CLIENT_PORT, CLIENT_KEEP_ALIVE, MQR_RECEIVE,
	       MQR_DEPTH, c->exits ? c->exits : "");
}

void client_usage(const struct client *c, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	client_error(c, "%s; see '%s --help'", line, c->name);
	exit(CLIENT_USAGE);
}

uint64_t client_number(const struct client *c, const char *what, const char *text, uint64_t min,
		       uint64_t max)
{
	uint64_t n;

	if (parse_number(text, min, max, &n))
		client_usage(c, "%s needs a number from %llu to %llu, not '%s'", what,
			     (unsigned long long)min, (unsigned long long)max, text);
	return n;
}

struct mqtt_bytes client_text(const struct client *c, const char *what, const char *text)
{
	const size_t n = strlen(text);

	if (n > UINT16_MAX || !mqtt_utf8((const uint8_t *)text, n))
		client_usage(c, "%s takes UTF-8 of at most %d bytes", what, UINT16_MAX);
	return (struct mqtt_bytes){.p = (const uint8_t *)text, .n = (uint16_t)n};
}

struct mqtt_bytes client_topic(const struct client *c, const char *what, const char *text)
{
	const struct mqtt_bytes topic = client_text(c, what, text);

	if (!mqtt_topic_name(topic.p, topic.n))
		client_usage(c, "%s: '%s' is no topic to publish to", what, text);
	return topic;
}

static uint8_t get_qos(const struct client *c, const char *what, const char *text)
{
	return (uint8_t)client_number(c, what, text, 0, 1);
}

/* Returns false when it is none of the common ones. */
static bool take(struct client *c, int opt)
{
	struct mqtt_connect *connect = &c->connect;

	switch (opt) {
	case 'h':
		c->host = optarg;
		return true;
	case 'p':
		client_number(c, "-p", optarg, 1, UINT16_MAX);
		c->port = optarg;
		return true;
	case 'q':
		c->qos = get_qos(c, "-q", optarg);
		return true;
	case 'i':
		connect->client_id = client_text(c, "-i", optarg);
		return true;
	case 'k':
		connect->keep_alive = (uint16_t)client_number(c, "-k", optarg, 0, UINT16_MAX);
		return true;
	case 'u':
		connect->user = client_text(c, "-u", optarg);
		return true;
	case 'P':
		connect->password = client_text(c, "-P", optarg);
		return true;
	case OPT_WILL_TOPIC:
		connect->has_will = true;
		connect->will_topic = client_topic(c, "--will-topic", optarg);
		return true;
	case OPT_WILL_PAYLOAD:
		connect->will_message = client_text(c, "--will-payload", optarg);
		return true;
	case OPT_WILL_QOS:
		connect->will_qos = get_qos(c, "--will-qos", optarg);
		return true;
	case OPT_WILL_RETAIN:
		connect->will_retain = true;
		return true;
	case OPT_QUIET:
		c->quiet = true;
		return true;
	case OPT_RECEIVE:
		c->rdma.receive = (uint32_t)client_number(c, "--receive-size", optarg,
							  MQR_RECEIVE_MIN, 1 << 23);
		return true;
	case OPT_DEPTH:
		c->rdma.depth = (uint32_t)client_number(c, "--receive-depth", optarg, 1, 4096);
		return true;
	case OPT_HELP:
		print_help(c);
		exit(fflush(stdout) ? CLIENT_FAILED : CLIENT_OK);
	case OPT_VERSION:
		printf("%s %s\n", c->name, sgp_version());
		exit(fflush(stdout) ? CLIENT_FAILED : CLIENT_OK);
	default:
		return false;
	}
}

static void set_defaults(struct client *c)
{
	c->host = "127.0.0.1";
	c->port = "1883";
	c->rdma = (struct mqr_attr){.receive = MQR_RECEIVE, .depth = MQR_DEPTH};
	c->connect = (struct mqtt_connect){
		.level = MQTT_LEVEL, .clean_session = true, .keep_alive = CLIENT_KEEP_ALIVE};
}

int client_option(struct client *c, int argc, char **argv)
{
	struct option all[OPTIONS + COMMON] = {0};
	char short_ones[80];
	size_t n = 0;

	if (!c->host)
		set_defaults(c);
	while (c->longopts[n].name && n + 1 < OPTIONS)
		n++;
	memcpy(all, c->longopts, n * sizeof *all);
	memcpy(all + n, common, sizeof common);
	snprintf(short_ones, sizeof short_ones, ":%s%s", letters, c->letters);
	opterr = 0;
	for (;;) {
		const int opt = getopt_long(argc, argv, short_ones, all, NULL);

		if (opt == ':')
			client_usage(c, "option %s needs a value", argv[optind - 1]);
		if (opt == '?' && optopt && optopt < CLIENT_OPT_COMMON)
			client_usage(c, "there is no option -%c", optopt);
		if (opt == '?')
			client_usage(c, "option %s is unknown or used wrongly", argv[optind - 1]);
		if (!take(c, opt))
			return opt;
	}
}

void client_check(struct client *c, int argc, char **argv)
{
	const struct mqtt_connect *connect = &c->connect;

	if (optind < argc)
		client_usage(c, "what is '%s' for?", argv[optind]);
	if (!connect->has_will &&
	    (connect->will_message.p || connect->will_qos || connect->will_retain))
		client_usage(c, "a will needs --will-topic");
	if (connect->password.p && !connect->user.p)
		client_usage(c, "-P needs -u");
	if (!connect->client_id.p) {
		snprintf(c->made_id, sizeof c->made_id, "%s-%d", c->name + strlen("sgpool-"),
			 (int)getpid());
		c->connect.client_id = client_text(c, "-i", c->made_id);
	}
}
