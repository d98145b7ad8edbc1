/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sgpool-pub: publishes to a broker over RDMA. A message is put into chunks once, however often it is
 * sent; with -l each line of the standard input is one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

enum {
	IN_FLIGHT = 64, /* messages of QoS 1 without an answer */
	LINES_MIB = 32, /* for lines that are on their way */
	LINE_MAX_BYTES = 8 << 20,
	RETRY_MS = 2, /* without a chunk */
	OPT_REPEAT = CLIENT_OPT_OWN,
	OPT_DELAY,
};

enum source {
	SOURCE_NONE,
	SOURCE_TEXT,
	SOURCE_FILE,
	SOURCE_STDIN,
	SOURCE_LINES,
	SOURCE_EMPTY,
};

struct pub {
	struct client c;
	struct mqtt_publish publish;
	enum source source;
	const char *text; /* of -m, or the name of -f */
	uint64_t repeat, delay_ms;

	uint8_t *bytes; /* the message; of lines, what was read and not sent */
	size_t n, room;
	size_t line; /* bytes of the first line, if there is a whole one */
	bool eof;
	struct loop_fd input;
	bool watched; /* standard input is in the loop */
	struct loop_timer timer;

	struct sgp_sgl payload; /* of the message that is to go */
	bool ready;             /* it is there */
	bool waiting;           /* for the delay */
	uint64_t sent;
	uint16_t id;
	uint32_t unacked;
	uint8_t open_id[UINT16_MAX / 8 + 1]; /* identifiers without an answer */
};

static struct pub *pub_of(struct client *c)
{
	return (struct pub *)(void *)c;
}

/* ---- messages ---- */

/* Returns 0; -1 when there is not enough memory now. */
static int fill_payload(struct pub *p, const uint8_t *bytes, size_t n)
{
	while (n) {
		struct sgp_chunk *chunk = memory_chunk_for(&p->c.pool, n);
		size_t take;

		if (!chunk)
			return -1;
		take = n < sgp_chunk_size(chunk) ? n : sgp_chunk_size(chunk);
		if (mqr_list_reserve(&p->payload, p->payload.num_sge + 1,
				     p->payload.num_chunk + 1) ||
		    sgp_sgl_append(&p->payload, chunk, 0, take)) {
			sgp_chunk_put(chunk);
			return -1;
		}
		memcpy(sgp_chunk_addr(chunk), bytes, take);
		bytes += take;
		n -= take;
	}
	return 0;
}

static void clear_payload(struct pub *p)
{
	if (p->payload.sge)
		sgp_sgl_clear(&p->payload);
	p->ready = false;
}

/* Reads all there is. Returns 0; -1 with errno. */
static int read_all(struct pub *p, int fd)
{
	for (;;) {
		ssize_t got;

		if (p->n == p->room) {
			const size_t room = p->room ? 2 * p->room : 65536;
			uint8_t *bytes = realloc(p->bytes, room);

			if (!bytes)
				return -1;
			p->bytes = bytes;
			p->room = room;
		}
		got = read(fd, p->bytes + p->n, p->room - p->n);
		if (got < 0 && errno != EINTR)
			return -1;
		if (got == 0)
			return 0;
		p->n += got > 0 ? (size_t)got : 0;
		if (p->n > MQTT_REMAINING_MAX) {
			errno = EFBIG;
			return -1;
		}
	}
}

static int load(struct pub *p)
{
	const char *name = p->source == SOURCE_FILE ? p->text : "standard input";
	int fd = STDIN_FILENO, ret;

	if (p->source == SOURCE_TEXT) {
		p->n = strlen(p->text);
		p->bytes = malloc(p->n + 1);
		if (p->bytes)
			memcpy(p->bytes, p->text, p->n);
	}
	if (p->source != SOURCE_FILE && p->source != SOURCE_STDIN)
		return 0;
	if (p->source == SOURCE_FILE)
		fd = open(p->text, O_RDONLY | O_CLOEXEC);
	ret = fd < 0 ? -1 : read_all(p, fd);
	if (ret)
		client_error(&p->c, "%s: %s", name, strerror(errno));
	if (fd > STDIN_FILENO)
		close(fd);
	return ret;
}

/* ---- lines ---- */

/* Returns whether there is a whole one, in bytes[0 .. line - 1]. */
static bool find_line(struct pub *p)
{
	const uint8_t *end = p->n ? memchr(p->bytes, '\n', p->n) : NULL;

	if (end)
		p->line = (size_t)(end - p->bytes);
	else if (p->eof)
		p->line = p->n;
	return end || (p->eof && p->n);
}

static void drop_line(struct pub *p)
{
	const size_t used = p->line < p->n ? p->line + 1 : p->n;

	p->n -= used;
	memmove(p->bytes, p->bytes + used, p->n);
}

static void read_some(struct pub *p)
{
	ssize_t got;

	if (p->n == p->room) {
		const size_t room = p->room ? 2 * p->room : 65536;
		uint8_t *bytes = room > LINE_MAX_BYTES ? NULL : realloc(p->bytes, room);

		if (!bytes) {
			client_fail(&p->c, "a line of more than %zu bytes", p->room);
			return;
		}
		p->bytes = bytes;
		p->room = room;
	}
	got = read(STDIN_FILENO, p->bytes + p->n, p->room - p->n);
	if (got < 0 && errno != EINTR && errno != EAGAIN)
		client_fail(&p->c, "standard input: %s", strerror(errno));
	if (got == 0)
		p->eof = true;
	if (got > 0)
		p->n += (size_t)got;
}

static void watch(struct pub *p, bool on)
{
	if (p->watched)
		loop_modify(p->c.loop, &p->input, on ? EPOLLIN : 0);
}

/* The next line as the payload. Returns false when there's none now. */
static bool next_line(struct pub *p)
{
	while (!find_line(p)) {
		if (p->eof || p->c.ending)
			return false;
		if (p->watched) {
			watch(p, true);
			return false;
		}
		read_some(p); /* a file: it's always readable */
	}
	watch(p, false);
	if (fill_payload(p, p->bytes, p->line)) {
		clear_payload(p);
		loop_timer_set(p->c.loop, &p->timer, RETRY_MS);
		return false;
	}
	drop_line(p);
	return true;
}

/* ---- publishing ---- */

static bool all_taken(const struct pub *p)
{
	if (p->source == SOURCE_LINES)
		return p->eof && !p->n && !p->ready;
	return p->sent == p->repeat;
}

/* Have the next message in payload. Returns false when it can't be had now. */
static bool make_ready(struct pub *p)
{
	if (p->ready)
		return true;
	if (p->source == SOURCE_LINES) {
		if (!next_line(p))
			return false;
	} else if (!p->payload.num_sge && fill_payload(p, p->bytes, p->n)) {
		client_fail(&p->c, "no memory for the message: %s", sgp_errmsg());
		return false;
	}
	p->ready = true;
	return true;
}

static void next_id(struct pub *p)
{
	do {
		p->id++;
	} while (!p->id || p->open_id[p->id / 8] & 1 << p->id % 8);
}

static bool publish_one(struct pub *p)
{
	uint8_t head[MQTT_PUBLISH_HEAD(UINT16_MAX)];
	size_t n;

	if (p->publish.qos)
		next_id(p);
	n = mqtt_put_publish(head, &p->publish, p->id, (uint32_t)p->payload.length);
	if (!client_publish(&p->c, head, n, p->payload.num_sge ? &p->payload : NULL)) {
		p->id--;
		return false;
	}
	if (p->publish.qos) {
		p->open_id[p->id / 8] |= (uint8_t)(1 << p->id % 8);
		p->unacked++;
	}
	p->sent++;
	p->ready = false;
	if (p->source == SOURCE_LINES)
		clear_payload(p);
	return true;
}

static void publish(struct client *c)
{
	struct pub *p = pub_of(c);

	if (c->ending)
		return;
	while (!p->waiting && !all_taken(p) && p->unacked < IN_FLIGHT && make_ready(p) &&
	       publish_one(p))
		if (p->delay_ms && !all_taken(p)) {
			p->waiting = true;
			loop_timer_set(c->loop, &p->timer, (int64_t)p->delay_ms);
		}
	if (all_taken(p) && !p->unacked)
		client_finish(c, CLIENT_OK);
}

static void again(struct loop_timer *timer)
{
	struct pub *p = (struct pub *)(void *)((char *)timer - offsetof(struct pub, timer));

	p->waiting = false;
	publish(&p->c);
}

static void readable(struct loop_fd *fd, uint32_t events)
{
	struct pub *p = (struct pub *)(void *)((char *)fd - offsetof(struct pub, input));

	if (!(events & (EPOLLIN | EPOLLHUP)))
		return;
	read_some(p);
	if (p->eof)
		loop_remove(p->c.loop, fd);
	p->watched &= !p->eof;
	publish(&p->c);
}

static void connected(struct client *c)
{
	struct pub *p = pub_of(c);

	if (p->source == SOURCE_LINES) {
		p->input = (struct loop_fd){.ready = readable, .fd = STDIN_FILENO};
		p->watched = loop_add(c->loop, &p->input, 0) == 0;
	}
	publish(c);
}

static void packet(struct client *c, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	struct pub *p = pub_of(c);
	const uint16_t id = packet->id;

	(void)payload;
	if (packet->type != MQTT_PUBACK || !(p->open_id[id / 8] & 1 << id % 8)) {
		client_fail(c, "the broker broke the protocol: a packet that nobody asked for");
		return;
	}
	p->open_id[id / 8] &= (uint8_t) ~(1 << id % 8);
	p->unacked--;
	publish(c);
}

static void done(struct client *c)
{
	mqr_list_free(&pub_of(c)->payload);
}

/* ---- the command ---- */

static const struct option longopts[] = {
	{"message", required_argument, NULL, 'm'},
	{"file", required_argument, NULL, 'f'},
	{"stdin-file", no_argument, NULL, 's'},
	{"stdin-line", no_argument, NULL, 'l'},
	{"null-message", no_argument, NULL, 'n'},
	{"retain", no_argument, NULL, 'r'},
	{"repeat", required_argument, NULL, OPT_REPEAT},
	{"repeat-delay", required_argument, NULL, OPT_DELAY},
	{NULL, 0, NULL, 0},
};

static void set_source(struct pub *p, enum source source)
{
	if (p->source)
		client_usage(&p->c, "one of -m, -f, -s, -l and -n, not two");
	p->source = source;
	p->text = optarg;
}

static uint64_t milliseconds(const struct client *c, const char *text)
{
	char *end;
	const double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0 && seconds <= 86400))
		client_usage(c, "--repeat-delay needs seconds, not '%s'", text);
	return (uint64_t)(seconds * 1000);
}

static void parse(struct pub *p, int argc, char **argv)
{
	int opt;

	while ((opt = client_option(&p->c, argc, argv)) != -1)
		switch (opt) {
		case 't':
			p->publish.topic = client_topic(&p->c, "-t", optarg);
			break;
		case 'm':
			set_source(p, SOURCE_TEXT);
			break;
		case 'f':
			set_source(p, SOURCE_FILE);
			break;
		case 's':
			set_source(p, SOURCE_STDIN);
			break;
		case 'l':
			set_source(p, SOURCE_LINES);
			break;
		case 'n':
			set_source(p, SOURCE_EMPTY);
			break;
		case 'r':
			p->publish.retain = true;
			break;
		case OPT_REPEAT:
			p->repeat = client_number(&p->c, "--repeat", optarg, 1, UINT32_MAX);
			break;
		case OPT_DELAY:
			p->delay_ms = milliseconds(&p->c, optarg);
			break;
		}
	client_check(&p->c, argc, argv);
	if (!p->publish.topic.p)
		client_usage(&p->c, "which topic? (-t)");
	if (!p->source)
		client_usage(&p->c, "which message? (-m, -f, -s, -l or -n)");
	p->publish.qos = p->c.qos;
}

int main(int argc, char **argv)
{
	static struct pub p = {
		.c = {.name = "sgpool-pub",
		      .summary = "Publishes messages to an MQTT broker over RDMA.",
		      .usage = "-t TOPIC {-m TEXT | -f FILE | -s | -l | -n} [OPTION]...",
		      .help = "  -t, --topic TOPIC        where to\n"
			      "  -m, --message TEXT       the message\n"
			      "  -f, --file FILE          the file is the message\n"
			      "  -s, --stdin-file         all of the standard input is the "
			      "message\n"
			      "  -l, --stdin-line         each line of it is one\n"
			      "  -n, --null-message       a message of no bytes\n"
			      "  -r, --retain             the broker keeps it for those who come "
			      "later\n"
			      "      --repeat N           send it so often\n"
			      "      --repeat-delay S     wait so many seconds in between",
		      .letters = "t:m:f:slnr",
		      .longopts = longopts,
		      .connected = connected,
		      .packet = packet,
		      .writable = publish,
		      .done = done},
		.repeat = 1,
		.timer = {.fire = again},
	};
	int status = CLIENT_FAILED;

	parse(&p, argc, argv);
	if (!load(&p)) {
		p.c.memory = p.source == SOURCE_LINES ? (size_t)LINES_MIB << 20 : p.n;
		status = client_run(&p.c, 0);
	}
	free(p.bytes);
	return status;
}
