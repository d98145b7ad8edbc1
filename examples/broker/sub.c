/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool-sub: subscribes at a broker over RDMA, and writes what comes to the standard output. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

enum {
	FILTERS = 256,
	OPT_RETAINED_ONLY = CLIENT_OPT_OWN,
	MEMORY = 64 << 20,
};

struct sub {
	struct client c;
	struct mqtt_bytes filter[FILTERS], without[FILTERS];
	uint32_t filters, withouts;
	uint64_t count, seconds;
	bool verbose, no_newline, no_stale, retained_only, only_subscribe;
	uint64_t seen;
	bool subscribed;
};

static struct sub *sub_of(struct client *c)
{
	return (struct sub *)(void *)c;
}

static void connected(struct client *c)
{
	struct sub *s = sub_of(c);
	uint8_t qos[FILTERS];
	uint8_t *bytes = malloc(mqtt_filters_bytes(s->filter, s->filters, true));

	if (!bytes) {
		client_fail(c, "no memory");
		return;
	}
	memset(qos, c->qos, sizeof qos);
	client_send(c, bytes, mqtt_put_subscribe(bytes, 1, s->filter, qos, s->filters));
	free(bytes);
}

static void got_suback(struct sub *s, struct mqtt_list list)
{
	if (s->subscribed || list.n != s->filters) {
		client_fail(&s->c, "the broker broke the protocol: a SUBACK of something else");
		return;
	}
	s->subscribed = true;
	for (uint32_t i = 0; i < list.n; i++)
		if (list.p[i] == MQTT_SUBACK_FAILURE) {
			client_fail(&s->c, "the broker refused '%.*s'", s->filter[i].n,
				    (const char *)s->filter[i].p);
			return;
		}
	if (s->only_subscribe)
		client_finish(&s->c, CLIENT_OK);
}

static bool wanted(const struct sub *s, const struct mqtt_publish *publish)
{
	if (publish->retain ? s->no_stale : s->retained_only)
		return false;
	for (uint32_t i = 0; i < s->withouts; i++)
		if (mqtt_matches(s->without[i], publish->topic))
			return false;
	return true;
}

/* Returns 0; -1, and it has failed. */
static int print(struct sub *s, const struct mqtt_publish *publish, const struct sgp_sgl *payload)
{
	if (s->verbose) {
		fwrite(publish->topic.p, 1, publish->topic.n, stdout);
		putchar(' ');
	}
	for (int i = 0; i < payload->num_sge; i++)
		fwrite((const void *)(uintptr_t)payload->sge[i].addr, 1, payload->sge[i].length,
		       stdout);
	if (!s->no_newline)
		putchar('\n');
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	client_fail(&s->c, "standard output: %s", strerror(errno));
	return -1;
}

static void got_publish(struct sub *s, const struct mqtt_packet *packet,
			const struct sgp_sgl *payload)
{
	uint8_t bytes[MQTT_ACK_BYTES];

	if (wanted(s, &packet->publish)) {
		if (print(s, &packet->publish, payload))
			return;
		s->seen++;
	}
	if (packet->publish.qos)
		client_send(&s->c, bytes, mqtt_put_ack(bytes, MQTT_PUBACK, packet->id));
	if (s->count && s->seen == s->count)
		client_finish(&s->c, CLIENT_OK);
}

static void packet(struct client *c, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	if (packet->type == MQTT_SUBACK)
		got_suback(sub_of(c), packet->list);
	else if (packet->type == MQTT_PUBLISH)
		got_publish(sub_of(c), packet, payload);
	else
		client_fail(c, "the broker broke the protocol: a packet that nobody asked for");
}

/* ---- the command ---- */

static const struct option longopts[] = {
	{"filter-out", required_argument, NULL, 'T'},
	{"retained-only", no_argument, NULL, OPT_RETAINED_ONLY},
	{"verbose", no_argument, NULL, 'v'},
	{NULL, 0, NULL, 0},
};

static void add_filter(struct sub *s, const char *what, struct mqtt_bytes *list, uint32_t *n)
{
	const struct mqtt_bytes filter = client_text(&s->c, what, optarg);

	if (!mqtt_topic_filter(filter.p, filter.n))
		client_usage(&s->c, "%s: '%s' is no topic filter", what, optarg);
	if (*n == FILTERS)
		client_usage(&s->c, "%s: more than %d", what, FILTERS);
	list[(*n)++] = filter;
}

static void parse(struct sub *s, int argc, char **argv)
{
	int opt;

	while ((opt = client_option(&s->c, argc, argv)) != -1)
		switch (opt) {
		case 't':
			add_filter(s, "-t", s->filter, &s->filters);
			break;
		case 'T':
			add_filter(s, "-T", s->without, &s->withouts);
			break;
		case 'C':
			s->count = client_number(&s->c, "-C", optarg, 1, UINT64_MAX);
			break;
		case 'W':
			s->seconds = client_number(&s->c, "-W", optarg, 1, 1000000);
			break;
		case 'v':
			s->verbose = true;
			break;
		case 'N':
			s->no_newline = true;
			break;
		case 'R':
			s->no_stale = true;
			break;
		case OPT_RETAINED_ONLY:
			s->retained_only = true;
			break;
		case 'E':
			s->only_subscribe = true;
			break;
		}
	client_check(&s->c, argc, argv);
	if (!s->filters)
		client_usage(&s->c, "which topics? (-t)");
}

int main(int argc, char **argv)
{
	static struct sub s = {
		.c = {.name = "sgpool-sub",
		      .summary = "Subscribes at an MQTT broker over RDMA, and prints the messages.",
		      .usage = "-t FILTER [-t FILTER]... [OPTION]...",
		      .help = "  -t, --topic FILTER       topics, with + and #; several are "
			      "allowed\n"
			      "  -T, --filter-out FILTER  but none of these\n"
			      "  -C COUNT                 end after so many messages\n"
			      "  -W SECONDS               end after so long, with status 27\n"
			      "  -E                       end once subscribed\n"
			      "  -v, --verbose            print the topic, too\n"
			      "  -N                       print no newline after a message\n"
			      "  -R                       print no retained messages\n"
			      "      --retained-only      print no others",
		      .exits = ", 27 if the time of -W was over",
		      .letters = "t:T:C:W:vNRE",
		      .longopts = longopts,
		      .connected = connected,
		      .packet = packet,
		      .memory = MEMORY},
	};

	parse(&s, argc, argv);
	return client_run(&s.c, s.seconds);
}
