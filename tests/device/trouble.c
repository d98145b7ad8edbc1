/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trouble serve|send ADDR PORT [--seconds N] [--depth N] [--bytes N] [--spare N]: traffic that never
 * gives up. When a connection breaks, or nothing moves for too long, they connect anew and go on
 * where they were:
 *
 *      client                                   server
 *        hello: run, first unanswered -------->
 *             <----------------------- hello: run, the message that it wants
 *        message n, n + 1 ... ---------------->   each compared, byte by byte; none missing, none
 *             <---------------- the same again    twice; sent back from where it landed
 *
 *       0             8     12      16       24
 *       | flow header | run | bytes | number | what the run and the number give ... |
 *
 * Whatever happens, every chunk is home after each connection, nothing is registered anew, and the
 * memory does not grow. Prints the messages that came back (or went back) every half second, and at
 * its end, with status 0, one line of JSON.
 */
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trouble.h"

enum {
	HEADER = 24,
	BATCH = 16,
	TICK_MS = 500,
	PAUSE_MS = 200,   /* between tries to connect */
	WARM = 100,       /* messages, before memory is measured */
	GROWTH_KB = 1024, /* of memory: libraries and their heaps take a little */
};

static volatile sig_atomic_t stop;

int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "trouble: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

void end_connection(struct end *e, const char *why)
{
	if (!e->over)
		e->why = why;
	e->over = true;
}

/* ---- messages ---- */

static uint64_t mix(uint64_t x)
{
	return x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

static uint32_t message_bytes(const struct end *e, uint64_t number)
{
	return HEADER + (uint32_t)((mix(number) >> 33) % (e->bytes - HEADER + 1));
}

/* Fill in, or compare. Returns whether they are the same. */
static bool contents(uint8_t *at, uint32_t bytes, uint64_t seed, bool fill)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		const uint32_t n = bytes - i < 8 ? bytes - i : 8;

		seed = mix(seed);
		if (fill)
			memcpy(at + i, &seed, n);
		else if (memcmp(at + i, &seed, n) != 0)
			return false;
	}
	return true;
}

static void make_message(const struct end *e, uint8_t *at, uint64_t number)
{
	const uint32_t bytes = message_bytes(e, number);
	const uint32_t run = htobe32(e->run), length = htobe32(bytes);
	const uint64_t be = htobe64(number);

	memcpy(at + 8, &run, 4);
	memcpy(at + 12, &length, 4);
	memcpy(at + 16, &be, 8);
	contents(at + HEADER, bytes - HEADER, number ^ (uint64_t)e->run << 32, true);
}

static void check_message(const struct end *e, const struct sgp_wc *wc, uint64_t number)
{
	uint8_t *at = (uint8_t *)(uintptr_t)wc->sgl.sge[0].addr;
	uint32_t run, length;
	uint64_t got;

	if (wc->byte_len < HEADER)
		die("a message of %llu bytes", (unsigned long long)wc->byte_len);
	memcpy(&run, at + 8, 4);
	memcpy(&length, at + 12, 4);
	memcpy(&got, at + 16, 8);
	if (be32toh(run) != e->run || be64toh(got) != number)
		die("message %llu of run %x came, %llu of %x was to come",
		    (unsigned long long)be64toh(got), be32toh(run), (unsigned long long)number,
		    e->run);
	if (be32toh(length) != wc->byte_len || wc->byte_len != message_bytes(e, number))
		die("message %llu has %llu bytes", (unsigned long long)number,
		    (unsigned long long)wc->byte_len);
	if (!contents(at + HEADER, message_bytes(e, number) - HEADER,
		      number ^ (uint64_t)e->run << 32, false))
		die("message %llu has other contents", (unsigned long long)number);
}

/* ---- traffic ---- */

/* A message that can't go now goes later; what else is wrong shows as the connection's end. */
static void refused(struct end *e)
{
	if (errno != EAGAIN && errno != ENOBUFS && errno != ENOTCONN)
		end_connection(e, "a post was refused");
}

/* The server: back it goes, from the memory where it landed. */
static void send_echoes(struct end *e)
{
	while (!e->over && e->echo_first != e->echo_last) {
		struct sgp_sgl *sgl = &e->echo[e->echo_first % TROUBLE_DEPTH].sgl;
		const uint64_t bytes = sgl->length;

		if (sgp_flow_sendv(&e->flow, NULL, sgl, IBV_SEND_SIGNALED)) {
			refused(e);
			return;
		}
		e->echo_first++;
		e->messages++;
		e->bytes_moved += bytes;
	}
}

/* The client: as many as there are credits, room and chunks for. */
static void send_new(struct end *e, bool more)
{
	while (more && !e->over && e->next - e->answered < e->depth) {
		const uint32_t bytes = message_bytes(e, e->next);
		struct sgp_chunk *chunk = sgp_pool_get(e->pool, e->bytes, 0);
		SGP_SGL(sgl, 1);

		if (!chunk)
			return;
		make_message(e, sgp_chunk_addr(chunk), e->next);
		if (sgp_sgl_append(&sgl, chunk, 0, bytes))
			die("append: %s", sgp_errmsg());
		if (sgp_flow_sendv(&e->flow, NULL, &sgl, IBV_SEND_SIGNALED)) {
			const int err = errno;

			sgp_sgl_clear(&sgl);
			errno = err;
			refused(e);
			return;
		}
		e->next++;
	}
}

static void receive(struct end *e, struct sgp_wc *wc)
{
	const int kind = sgp_flow_received(&e->flow, wc);
	struct echo *echo = &e->echo[e->echo_last % TROUBLE_DEPTH];

	if (kind < 0)
		die("flow: %s", sgp_errmsg());
	e->lacking++;
	if (kind == 0) { /* its own chunk serves */
		sgp_sgl_clear(&wc->sgl);
		link_post_receives(e);
		return;
	}
	e->moved = now_ms();
	if (e->serves) {
		check_message(e, wc, e->next++);
		if (sgp_sgl_move(&echo->sgl, &wc->sgl))
			die("more messages than there are receives");
		e->echo_last++;
	} else {
		check_message(e, wc, e->answered++);
		e->messages++;
		e->bytes_moved += wc->byte_len;
	}
}

static void reap(struct end *e)
{
	int n;

	while ((n = sgp_poll(e->cq, BATCH, e->wc)) > 0)
		for (int i = 0; i < n; i++) {
			struct sgp_wc *wc = &e->wc[i];

			if (wc->status != IBV_WC_SUCCESS)
				end_connection(e, ibv_wc_status_str(wc->status));
			else if (wc->opcode == IBV_WC_RECV && !e->over)
				receive(e, wc);
			sgp_sgl_clear(&wc->sgl);
		}
	if (n < 0)
		die("the completion queue: %s", sgp_errmsg());
}

/* One look at everything; then sleep until there is something new. */
static void turn(struct end *e, bool more)
{
	struct pollfd fds[] = {{.fd = e->channel->fd, .events = POLLIN},
			       {.fd = sgp_cq_fd(e->cq), .events = POLLIN}};

	if (sgp_cq_arm(e->cq))
		die("arm: %s", sgp_errmsg());
	link_events(e);
	reap(e);
	if (e->id && !e->over) {
		link_post_receives(e);
		if (e->serves)
			send_echoes(e);
		else
			send_new(e, more);
		if (sgp_flow_update(&e->flow, NULL, IBV_SEND_SIGNALED) < 0)
			refused(e);
		if (now_ms() - e->moved > TROUBLE_SILENCE_MS)
			end_connection(e, "nothing moves");
	}
	if (!e->over)
		poll(fds, 2, PAUSE_MS);
}

/* ---- the program ---- */

static long memory_kb(void)
{
	long pages = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
		die("/proc/self/statm can't be read");
	fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static uint32_t number(const char *text, uint32_t most)
{
	char *end;
	const unsigned long n = strtoul(text, &end, 10);

	if (*end || n == 0 || n > most)
		die("'%s' is not a number of 1 to %u", text, most);
	return (uint32_t)n;
}

static void parse(struct end *e, int argc, char **argv)
{
	static const struct option options[] = {{"seconds", required_argument, NULL, 's'},
						{"depth", required_argument, NULL, 'd'},
						{"bytes", required_argument, NULL, 'b'},
						{"spare", required_argument, NULL, 'c'},
						{0}};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			e->seconds = (int)number(optarg, 100000);
			break;
		case 'd':
			e->depth = number(optarg, TROUBLE_DEPTH);
			break;
		case 'b':
			e->bytes = number(optarg, 1 << 20);
			break;
		case 'c':
			e->spare = number(optarg, 1000);
			break;
		default:
			exit(2);
		}
	}
	if (argc - optind != 3 || e->bytes <= HEADER ||
	    (strcmp(argv[optind], "serve") && strcmp(argv[optind], "send")))
		die("usage: trouble serve|send ADDR PORT [--seconds N] [--depth N] [--bytes N] "
		    "[--spare N]");
	e->serves = !strcmp(argv[optind], "serve");
	e->addr = argv[optind + 1];
	e->port = argv[optind + 2];
}

static void report(const struct end *e, long before_kb)
{
	const long after_kb = memory_kb();

	printf("{\"role\": \"%s\", \"messages\": %llu, \"bytes\": %llu, \"connections\": %llu, "
	       "\"refused\": %llu, \"resumed\": %llu, \"kb_before\": %ld, \"kb_after\": %ld}\n",
	       e->serves ? "server" : "client", (unsigned long long)e->messages,
	       (unsigned long long)e->bytes_moved, (unsigned long long)e->connections,
	       (unsigned long long)e->refused, (unsigned long long)e->resumed, before_kb, after_kb);
	if (before_kb && after_kb > before_kb + GROWTH_KB)
		die("the memory grew from %ld to %ld KiB", before_kb, after_kb);
}

/* Until all is done: the client leaves no message unanswered. */
static void loop(struct end *e, long *before_kb)
{
	const int64_t end = e->seconds ? now_ms() + (int64_t)e->seconds * 1000 : INT64_MAX;
	int64_t told = 0;

	for (;;) {
		const bool more = !stop && now_ms() < end;

		if (!more && (e->serves || e->answered == e->next))
			return;
		if (!e->serves && !e->id && !link_connect(e)) {
			poll(NULL, 0, PAUSE_MS);
			continue;
		}
		turn(e, more);
		if (e->over) {
			if (e->id)
				fprintf(stderr, "%s: connection %llu: %s\n",
					e->serves ? "server" : "client",
					(unsigned long long)e->connections, e->why);
			link_close(e);
			e->over = false;
		}
		if (!*before_kb && e->messages >= WARM)
			*before_kb = memory_kb();
		if (now_ms() - told >= TICK_MS) {
			told = now_ms();
			printf("%llu\n", (unsigned long long)e->messages);
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	static struct end e = {.depth = 8, .bytes = 16384, .spare = 8};
	long before_kb = 0;

	parse(&e, argc, argv);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	e.run = (uint32_t)getpid() << 16 ^ (uint32_t)time(NULL);
	link_open(&e);
	loop(&e, &before_kb);
	link_close(&e);
	report(&e, before_kb);
	link_end(&e);
	return 0;
}
