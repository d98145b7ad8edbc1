/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A completion queue that can't be armed: nothing would wake the loop any more, so the connections on
 * it end, with a reason, and every chunk comes back. Once it can be armed again, others are served.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../suite.h"
#include "link_rdma_parts.h"
#include "rdma_ends.h"
#include "sgpool/softverbs.h"

enum {
	PACKETS = 60,
	ARMS = 12,  /* each of the first ones fails */
	QUIET = 20, /* looks at nothing, before others connect */
};

/* A connection, and what is sent over it. */
struct phase {
	uint32_t cut;      /* once the server has got so many, and nobody sends ... */
	const char *fault; /* ... this is said, and one more is sent */
	bool clear;        /* no fault is left at its beginning */
	void (*check)(void);
};

static struct ends e;
static const struct phase *phase;  /* the last one has no check */
static uint32_t sent, most, looks; /* most: that are sent */

static void send_packets(struct ends *ends)
{
	while (sent < most && ends_publish(ends, ends->client.link, 3000 * sent, 5))
		sent++;
}

static void begin(void)
{
	if (phase->clear)
		sv_faults_clear();
	e.client = e.server = (struct end){0};
	most = phase->cut ? phase->cut : PACKETS;
	sent = looks = 0;
	ends_connect(&e);
	send_packets(&e);
}

static bool phases_done(struct ends *ends)
{
	if (phase->cut && most == phase->cut && ends->server.got == most) {
		ck_assert_int_eq(sv_faults(phase->fault, NULL), 0);
		most++;
		send_packets(ends);
	}
	if (ends->server.got == PACKETS && ends->client.link)
		link_close(ends->client.link, true);
	/* Nobody is left, nor asks: the listener is the only identifier. */
	if (!ends->client.closed || ends->rdma->links || sv_live(SV_CM_IDS) > 1 || ++looks < QUIET)
		return false;
	phase->check();
	if (!(++phase)->check)
		return true;
	begin();
	return false;
}

static void prepare(void)
{
	const struct mqr_attr attr = {.receive = 4104, .depth = 4};

	ends_prepare(&e, &attr, 64);
	e.done = phases_done;
	e.writable = send_packets;
}

static int listen_there(void)
{
	return link_rdma_listen(e.rdma, &e.listener, (struct sockaddr *)&e.addr);
}

static void go_through(const struct phase *phases)
{
	phase = phases;
	begin();
	ends_run(&e);
	ends_close(&e);
}

/* ---- how one ends ---- */

static void well(void)
{
	ck_assert_int_eq(e.client.err, 0);
	ck_assert_int_eq(e.server.err, 0);
	ck_assert_uint_eq(e.server.got, PACKETS);
}

static void end_failed(const struct end *end)
{
	ck_assert_int_eq(end->err, EIO);
	ck_assert_msg(strstr(end->why, "the completion queue failed: ibv_req_notify_cq: ") != NULL,
		      "%s", end->why);
}

/* Both ends are on the one queue of the device. */
static void both_failed(void)
{
	end_failed(&e.client);
	end_failed(&e.server);
	ck_assert_uint_lt(sent, PACKETS);
}

/* As long as there is always something to do, nobody sleeps. */
static void ended(void)
{
	if (!e.client.err)
		ck_assert_uint_eq(e.server.got, PACKETS);
}

static void no_queues(void)
{
	ck_assert_int_eq(e.client.err, EIO);
	ck_assert_str_eq(e.client.why, "no queues or no memory for the connection");
	ck_assert(!e.server.closed);
}

/*
 * The queue was not armed so often; or all had come, and the client was about to go; or the client was up
 * by then, and the server may have been.
 */
static void well_or_failed(void)
{
	if (e.client.err)
		end_failed(&e.client);
	else
		ck_assert_uint_eq(e.server.got, PACKETS);
	if (e.client.err && e.server.closed)
		ck_assert_int_ne(e.server.err, 0);
}

/* ---- the tests ---- */

/* When the first one listens on the device: it doesn't, and can be told to again. */
START_TEST(at_listen)
{
	const struct phase phases[] = {{.check = well}, {0}};

	prepare();
	ck_assert_int_eq(sv_faults("req_notify_cq fail EIO times 1", NULL), 0);
	ck_assert_int_eq(listen_there(), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(listen_there(), 0);
	go_through(phases);
}
END_TEST

/* When the first one connects over it. */
START_TEST(at_connect)
{
	const struct phase phases[] = {{.check = no_queues}, {.check = well}, {0}};

	prepare();
	e.addr.sin_addr.s_addr = htonl(INADDR_ANY); /* which leads to no device yet */
	ck_assert_int_eq(listen_there(), 0);
	e.addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(sv_faults("req_notify_cq fail EIO times 1", NULL), 0);
	go_through(phases);
}
END_TEST

/* At each of the first times that anybody goes to sleep. */
START_TEST(at_sleep)
{
	const struct phase phases[] = {
		{.check = well_or_failed}, {.clear = true, .check = well}, {0}};
	char fault[64];

	prepare();
	ck_assert_int_eq(listen_there(), 0);
	snprintf(fault, sizeof fault, "req_notify_cq fail EIO at %d", _i);
	ck_assert_int_eq(sv_faults(fault, NULL), 0);
	go_through(phases);
}
END_TEST

/* In the middle of it, once: those that come then don't notice. */
START_TEST(once)
{
	const struct phase phases[] = {{.cut = 1 + 10 * (uint32_t)_i,
					.fault = "req_notify_cq fail EIO times 1",
					.check = both_failed},
				       {.check = well},
				       {0}};

	prepare();
	ck_assert_int_eq(listen_there(), 0);
	go_through(phases);
}
END_TEST

/* For good: who comes then is not kept waiting either. And it can be armed again. */
START_TEST(lasting)
{
	const struct phase phases[] = {{.cut = 1 + 10 * (uint32_t)_i,
					.fault = "req_notify_cq fail EIO",
					.check = both_failed},
				       {.check = ended},
				       {.clear = true, .check = well},
				       {0}};

	prepare();
	ck_assert_int_eq(listen_there(), 0);
	go_through(phases);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arming");
	TCase *tcase = tcase_create("arming");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, at_listen);
	tcase_add_test(tcase, at_connect);
	tcase_add_loop_test(tcase, at_sleep, 0, ARMS);
	tcase_add_loop_test(tcase, once, 0, 4);
	tcase_add_loop_test(tcase, lasting, 0, 4);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
