/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that nobody wrote in good faith: it connects with any private data, and says any messages.
 * The receiver refuses it, says why, and keeps nothing of it.
 */
#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "ends.h"

#include "cli/cli.h"
#include "cli/conn.h"
#include "cli/digest.h"
#include "sgpool/softverbs.h"

struct hostile {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct buffers buffers;
	struct conn conn;
	bool has_verdict;
};

static void hear_nothing(void *arg, const struct wire_header *header, struct sgp_sgl *sgl)
{
	struct hostile *h = arg;

	h->has_verdict |= header->type == WIRE_VERDICT;
	sgp_sgl_clear(sgl);
	conn_repost(&h->conn);
}

static void await_event(struct hostile *h, enum rdma_cm_event_type type, struct cm_event *event)
{
	ck_assert_int_eq(cm_wait(h->channel, -1, 10000, event), 1);
	ck_assert_msg(event->type == type, "%s instead of %s", rdma_event_str(event->type),
		      rdma_event_str(type));
}

static void hostile_connect(struct hostile *h, uint16_t port, const void *data, uint8_t length,
			    enum rdma_cm_event_type answer)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	struct rdma_conn_param param;
	uint8_t hello[WIRE_HELLO];
	struct cm_event event;

	*h = (struct hostile){.channel = cm_open(), .conn = {.received = hear_nothing, .arg = h}};
	ck_assert_int_eq(rdma_create_id(h->channel, &h->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(h->id, NULL, (struct sockaddr *)&sin, 1000), 0);
	await_event(h, RDMA_CM_EVENT_ADDR_RESOLVED, &event);
	ck_assert_int_eq(rdma_resolve_route(h->id, 1000), 0);
	await_event(h, RDMA_CM_EVENT_ROUTE_RESOLVED, &event);
	ck_assert_int_eq(buffers_open(&h->buffers, h->id->verbs, true, "hostile"), 0);
	ck_assert_int_eq(conn_open(&h->conn, h->id, &h->buffers, WIRE_SENDER), 0);
	conn_param(&h->conn, hello, &param);
	if (data) {
		param.private_data = data;
		param.private_data_len = length;
	}
	ck_assert_int_eq(rdma_connect(h->id, &param), 0);
	await_event(h, answer, &event);
	if (answer == RDMA_CM_EVENT_ESTABLISHED) {
		ck_assert_ptr_null(conn_greet(&h->conn, event.data, event.length));
		conn_event(&h->conn, &event);
		h->conn.up = true;
	}
}

static void hostile_end(struct hostile *h)
{
	conn_close(&h->conn);
	rdma_destroy_id(h->id);
	buffers_close(&h->buffers);
	rdma_destroy_event_channel(h->channel);
}

START_TEST(hostile_hello)
{
	static const char nonsense[] = "GET / HTTP/1.1";
	struct wire_hello hello = {.role = WIRE_RECEIVER};
	/* As many credits as there are numbers. */
	static const uint8_t flow[SGP_FLOW_HELLO + 1] = "SGPF\0\1\0\0\xff\xff\xff\xff\0\0\0\x40";
	uint8_t bytes[WIRE_HELLO];
	struct hostile h;
	struct end s, c;
	uint16_t port;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	ends_write_file(ends_in, 1000);
	port = end_start_server(&s, true);
	hostile_connect(&h, port, nonsense, sizeof nonsense, RDMA_CM_EVENT_REJECTED);
	hostile_end(&h);
	hostile_connect(&h, port, "", 0, RDMA_CM_EVENT_REJECTED);
	hostile_end(&h);
	wire_put_hello(bytes, &hello); /* a receiver does not send */
	hostile_connect(&h, port, bytes, sizeof bytes, RDMA_CM_EVENT_REJECTED);
	hostile_end(&h);
	hello = (struct wire_hello){.role = WIRE_SENDER};
	wire_put_hello(bytes, &hello); /* without a flow */
	hostile_connect(&h, port, bytes, sizeof bytes, RDMA_CM_EVENT_REJECTED);
	hostile_end(&h);
	memcpy(bytes + WIRE_FLOW, flow, SGP_FLOW_HELLO);
	hostile_connect(&h, port, bytes, sizeof bytes, RDMA_CM_EVENT_REJECTED);
	hostile_end(&h);
	/* None of them was a transfer: the first sender is served. */
	end_start_client(&c, port);
	ck_assert_int_eq(end_finish(&c), CLI_OK);
	ck_assert_int_eq(end_finish(&s), CLI_OK);
	ck_assert(ends_same_file(ends_in, ends_out));
}
END_TEST

/* What the peer says after its START, and which reason the receiver gives. */
static const struct {
	struct wire_header header;
	const char *why;
} lies[] = {
	{{.type = 99}, "unknown type"},
	{{.type = WIRE_START}, "a start out of place"},
	{{.type = WIRE_DATA}, "data of a wrong length"},
	{{.type = WIRE_DATA, .length = 1}, "not what arrived"},
	{{.type = WIRE_DATA, .length = UINT32_MAX}, "not what arrived"},
	{{.type = WIRE_END, .offset = 1}, "counts other bytes"},
	{{.type = WIRE_VERDICT}, "a verdict out of place"},
	{{.type = WIRE_ABORT}, "without a reason"},
	{{.type = WIRE_ABORT, .code = 12345}, "it did not say why"},
	{{.type = WIRE_END, .digest = "wrong"}, "another SHA-256"},
};

START_TEST(hostile_messages)
{
	const struct wire_header first = {.type = WIRE_START, .offset = UINT64_MAX, .code = 1};
	struct hostile h;
	struct end s;
	char line[1024];

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	hostile_connect(&h, end_start_server(&s, true), NULL, 0, RDMA_CM_EVENT_ESTABLISHED);
	ck_assert_int_eq(conn_post(&h.conn, &first, NULL), 0);
	ck_assert_int_eq(conn_post(&h.conn, &lies[_i].header, NULL), 0);
	ck_assert(end_read_line(&s, line, sizeof line));
	ck_assert_msg(strstr(line, lies[_i].why) != NULL, "%s", line);
	hostile_end(&h);
	ck_assert_int_eq(end_finish(&s), CLI_FAILED);
	ck_assert_int_ne(access(ends_out, F_OK), 0);
	ck_assert(ends_clean());
}
END_TEST

/* A sender that has all it wanted and does not go, and the next one: that is not refused. */
START_TEST(a_sender_that_lingers_keeps_no_other_out)
{
	const struct wire_header start = {.type = WIRE_START, .code = 1};
	struct wire_header end = {.type = WIRE_END};
	struct digest digest;
	struct hostile h;
	struct end s, c;
	uint64_t connects;
	uint16_t port;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	ends_write_file(ends_in, 1000);
	port = end_start_server(&s, false);
	hostile_connect(&h, port, NULL, 0, RDMA_CM_EVENT_ESTABLISHED);
	ck_assert_int_eq(digest_begin(&digest), 0);
	ck_assert_int_eq(digest_end(&digest), 0);
	memcpy(end.digest, digest.value, WIRE_DIGEST);
	digest_free(&digest);
	ck_assert_int_eq(conn_post(&h.conn, &start, NULL), 0);
	ck_assert_int_eq(conn_post(&h.conn, &end, NULL), 0);
	while (!h.has_verdict && !h.conn.over) {
		conn_reap(&h.conn);
		usleep(1000);
	}
	ck_assert(h.has_verdict);
	connects = sv_calls("connect");
	end_start_client(&c, port);
	while (sv_calls("connect") == connects)
		usleep(1000);
	usleep(200000); /* for the receiver to be asked before it hears that the first has gone */
	hostile_end(&h);
	ck_assert_int_eq(end_finish(&c), CLI_OK);
	ck_assert(ends_same_file(ends_in, ends_out));
	pthread_kill(s.thread, SIGTERM);
	ck_assert_int_eq(end_finish(&s), CLI_OK);
	ck_assert(ends_clean());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile");
	TCase *tc = tcase_create("hostile");

	tcase_add_checked_fixture(tc, ends_setup, ends_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, hostile_hello);
	tcase_add_loop_test(tc, hostile_messages, 0, sizeof lies / sizeof *lies);
	tcase_add_test(tc, a_sender_that_lingers_keeps_no_other_out);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
