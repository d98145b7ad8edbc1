/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer over RDMA that breaks the rules of the wire (mqr.h), or of MQTT, loses its connection, and
 * the server nothing else. The peer is a link of ours up to its endpoint: what goes is made here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "link_rdma_parts.h"
#include "rdma_ends.h"

static struct ends e;

/* ---- messages ---- */

static const struct rude {
	const char *what;
	int err; /* what the server closes with */
	/* Messages in hexadecimal, divided by blanks; "*N" repeats the last byte to N in all. */
	const char *bytes[4];
} rudes[] = {
	{"no byte of a packet", EPROTO, {""}},
	{"half a fixed header", EPROTO, {"30"}},
	{"a remaining length that goes on", EPROTO, {"30ff"}},
	{"a remaining length of five bytes", EPROTO, {"30ffffffff01"}},
	{"behind the end of a packet", EPROTO, {"c000c0"}},
	{"two packets", EPROTO, {"c000c000"}},
	{"a fragment that is short", EPROTO, {"30ff7f0001610000"}},
	{"a second fragment that is short", EPROTO, {"30ffff0700016100*5000", "00"}},
	{"behind the end in a second fragment", EPROTO, {"308827000161*5000", "00*100"}},
	{"a packet that is none", EPROTO, {"0000"}},
	{"a packet of QoS 2", EPROTO, {"50020001"}},
	{"flags that must not be", EPROTO, {"c100"}},
	{"a topic that leaves the packet", EPROTO, {"3003000561"}},
	{"a topic with a wildcard", EPROTO, {"300400012b00"}},
	{"a topic that is no UTF-8", EPROTO, {"30040001ff00"}},
	{"a CONNECT cut off", EPROTO, {"100600044d515454"}},
	{"a packet longer than is taken", EPROTO, {"30ffffff7f0001610000*5000"}},
	{"a payload longer than is taken", EMSGSIZE, {"30fcf004000161*40000", "61*40000"}},
};

enum {
	RUDES = sizeof rudes / sizeof *rudes
};

static uint8_t digit(char c)
{
	return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static size_t make(const char *text, uint8_t *bytes)
{
	size_t n = 0, all;

	for (; *text && *text != '*'; text += 2)
		bytes[n++] = (uint8_t)(digit(text[0]) << 4 | digit(text[1]));
	all = *text ? strtoul(text + 1, NULL, 10) : n;
	for (; n < all; n++)
		bytes[n] = bytes[n - 1];
	return n;
}

static void say(const char *text)
{
	struct rdma_link *l = (struct rdma_link *)e.client.link;
	struct sgp_chunk *chunk = sgp_pool_get(e.memory.pool, 65536, 0);
	const size_t n = make(text, (uint8_t *)sgp_chunk_addr(chunk) + SGP_FLOW_HEADER);
	SGP_SGL(list, 1);

	ck_assert_int_eq(sgp_sgl_append(&list, chunk, 0, SGP_FLOW_HEADER + n), 0);
	ck_assert_int_eq(sgp_flow_sendv(&l->conn.flow, &l->conn, &list, 0), 0);
}

static void say_all(struct ends *ends)
{
	const struct rude *rude = &rudes[ends->step];

	for (int i = 0; i < 4 && rude->bytes[i]; i++)
		say(rude->bytes[i]);
}

static bool both_closed(struct ends *ends)
{
	return ends->client.closed && ends->server.closed;
}

START_TEST(a_wrong_message_ends_its_connection)
{
	const struct mqr_attr attr = {0};

	ends_open(&e, &attr, 32);
	e.host.limits.payload = 66000;
	e.rdma->mqr.attr.max_packet = 66000 + MQTT_HEAD_MAX;
	e.step = _i;
	e.done = both_closed;
	e.writable = say_all;
	ends_connect(&e);
	/* It's called back once it's connected. */
	ck_assert(!ends_publish(&e, e.client.link, 1, 1));
	ends_run(&e);
	ck_assert_msg(e.server.err == rudes[_i].err, "%s: %s: %s", rudes[_i].what,
		      strerror(e.server.err), e.server.why);
	ck_assert_uint_eq(e.server.got, 0);
	ends_close(&e);
}
END_TEST

/* ---- hellos ---- */

static const struct {
	const char *what;
	uint8_t bytes[MQR_HELLO];
	uint8_t n;
} hellos[] = {
	{"nothing", {0}, 0},
	{"cut off", "MQRD\0\1\0\0SGPF\0\1\0\0\0\0\0\1\0\0\10\0", MQR_HELLO - 2},
	{"another magic", "MQRE\0\1\0\0SGPF\0\1\0\0\0\0\0\1\0\0\10\0", MQR_HELLO},
	{"another version", "MQRD\0\2\0\0SGPF\0\1\0\0\0\0\0\1\0\0\10\0", MQR_HELLO},
	{"a refusal", "MQRD\0\1\0\1SGPF\0\1\0\0\0\0\0\1\0\0\10\0", MQR_HELLO},
	{"another flow", "MQRD\0\1\0\0SGPG\0\1\0\0\0\0\0\1\0\0\10\0", MQR_HELLO},
	{"immediates", "MQRD\0\1\0\0SGPF\0\1\0\1\0\0\0\1\0\0\10\0", MQR_HELLO},
	{"no depth", "MQRD\0\1\0\0SGPF\0\1\0\0\0\0\0\0\0\0\10\0", MQR_HELLO},
	{"a depth beyond all", "MQRD\0\1\0\0SGPF\0\1\0\0\0\1\0\0\0\0\10\0", MQR_HELLO},
	{"receives of nothing", "MQRD\0\1\0\0SGPF\0\1\0\0\0\0\0\1\0\0\0\0", MQR_HELLO},
	{"receives that are too short", "MQRD\0\1\0\0SGPF\0\1\0\0\0\0\0\1\0\0\3\377", MQR_HELLO},
	{"receives beyond all", "MQRD\0\1\0\0SGPF\0\1\0\0\0\0\0\1\200\0\0\0", MQR_HELLO},
};

enum {
	HELLOS = sizeof hellos / sizeof *hellos
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static bool rejected;

static void connect_rudely(int i)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_conn_param param = {.private_data = hellos[i].bytes,
					.private_data_len = hellos[i].n};

	pd = ibv_alloc_pd(id->verbs);
	ck_assert_int_eq(rdma_create_qp(id, pd, &attr), 0);
	ck_assert_int_eq(rdma_connect(id, &param), 0);
}

static bool hello_is_refused(struct ends *ends)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	const char *why = "";

	if (rdma_get_cm_event(channel, &event))
		return false;
	type = event->event;
	if (type == RDMA_CM_EVENT_REJECTED)
		why = mqr_refusal_text(event->param.conn.private_data,
				       event->param.conn.private_data_len);
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
	} else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
		connect_rudely(ends->step);
	} else {
		ck_assert_str_eq(rdma_event_str(type), rdma_event_str(RDMA_CM_EVENT_REJECTED));
		ck_assert_str_eq(why, "it speaks another protocol, or another version of it");
		rejected = true;
	}
	return rejected;
}

START_TEST(a_wrong_hello_is_refused)
{
	const struct mqr_attr attr = {0};

	ends_open(&e, &attr, 32);
	e.step = _i;
	e.done = hello_is_refused;
	channel = rdma_create_event_channel();
	ck_assert_int_eq(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&e.addr, 1000), 0);
	ends_run(&e);
	ck_assert_msg(rejected, "%s", hellos[_i].what);
	ck_assert(!e.server.link);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	ibv_dealloc_pd(pd);
	rdma_destroy_event_channel(channel);
	ends_close(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rdma_hostile");
	TCase *tcase = tcase_create("rdma_hostile");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_wrong_message_ends_its_connection, 0, RUDES);
	tcase_add_loop_test(tcase, a_wrong_hello_is_refused, 0, HELLOS);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
