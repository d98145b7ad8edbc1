/* SPDX-License-Identifier: BSD-2-Clause */
/* A server of sgpool perf that lies, see perf_liar.h. */
#include <netinet/in.h>
#include <string.h>

#include "../asserts.h"
#include "perf_liar.h"

/* ---- the honest part ---- */

/* A connection asks to be one of the test's. */
static void on_event(void *arg, const struct cm_event *event)
{
	struct liar *l = arg;
	struct perf_hello hello;
	struct rdma_conn_param param;
	uint8_t bytes[PERF_DATA_HELLO];
	struct perf_link *link;

	if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	if (l->lie->trick == REFUSE) {
		conn_refuse(event->id, WIRE_BUSY);
		return;
	}
	if (l->lie->trick == IGNORE) {
		l->ignored = event->id;
		return;
	}
	ck_assert_ptr_null(perf_get_hello(event->data, event->length, &hello));
	link = &perf_session_find(&l->session, hello.id)->link[hello.index];
	ck_assert_int_eq(perf_link_open(link->worker->test, hello.index, event->id), 0);
	ck_assert_ptr_null(perf_link_greet(link, event->data, event->length));
	perf_link_param(link, bytes, &param);
	if (l->lie->twist_hello)
		l->lie->twist_hello(bytes);
	ck_assert_int_eq(rdma_accept(event->id, &param), 0);
}

/* Takes a question, and makes no room for another. */
static void keep_receive(void *arg, const struct wire_header *header, struct sgp_sgl *sgl)
{
	struct perf_session *s = arg;

	sgp_sgl_clear(sgl);
	ck_assert_ptr_null(perf_get(header, true, &s->message));
	s->has_message = true;
}

static struct perf_test *set_up(struct liar *l, const struct perf_message *asked)
{
	struct perf_test *t;
	char why[200];
	int i = 0;

	t = perf_test_open(&asked->params, asked->id, false, l->session.buffers.pd, why,
			   sizeof why);
	ck_assert_msg(t != NULL, "%s", why);
	t->token = 0x123456789abcdef;
	while (l->session.test[i])
		i++;
	l->session.test[i] = t;
	return t;
}

/* What an honest server would say now. Returns whether it would say anything. */
static bool answer(struct liar *l, struct perf_message *m)
{
	struct perf_session *s = &l->session;
	const struct perf_message asked = s->message;
	struct perf_test *t = perf_session_find(s, asked.id);
	const bool has_asked = s->has_message;

	s->has_message = false;
	*m = (struct perf_message){.id = asked.id};
	if (has_asked && asked.say == PERF_SETUP) {
		m->say = PERF_READY;
		m->token = set_up(l, &asked)->token;
	} else if (has_asked && asked.say == PERF_RUN) {
		m->say = PERF_GO;
		s->running = t;
		if (l->lie->trick != IDLE && l->lie->trick != OTHER_LENGTH)
			perf_test_run(t, asked.count);
	} else if (has_asked && asked.say == PERF_END) {
		perf_test_finish(t, asked.count);
		perf_test_enough(t);
		l->ending = true;
	} else if (has_asked) {
		m->say = PERF_CLOSED;
		perf_session_drop(s, t);
	} else if (l->ending && perf_test_done(s->running)) {
		m->say = PERF_RESULT;
		m->id = s->running->id;
		m->figures = perf_test_figures(s->running, NULL);
		s->running = NULL;
		l->ending = false;
	}
	return m->say != 0;
}

/* ---- the lie ---- */

static void say_half(struct perf_session *s)
{
	struct sgp_chunk *chunk = sgp_pool_get(s->buffers.headers, WIRE_HEADER, 0);
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, WIRE_HEADER / 2), 0);
	ck_assert_int_eq(sgp_flow_sendv(&s->conn.flow, NULL, &sgl, 0), 0);
}

/* Say it, or something else. Returns whether it goes on. */
static bool say(struct liar *l, struct perf_message *m)
{
	struct perf_session *s = &l->session;
	const enum trick trick = l->lie->at == m->say ? l->lie->trick : TWIST;

	if (l->lie->at == m->say && l->lie->twist)
		l->lie->twist(m);
	switch (trick) {
	case MUTE:
		return true;
	case LEAVE:
	case SILENT:
		return false;
	case HALF:
		say_half(s);
		return true;
	case OTHER_LENGTH:
		perf_send_bytes(&s->running->link[0], 32);
		break;
	case TWICE:
		perf_session_say(s, m);
		break;
	default:
		break;
	}
	return perf_session_say(s, m) == 0;
}

static void accept_client(struct liar *l)
{
	struct rdma_conn_param param;
	uint8_t hello[WIRE_HELLO];
	struct cm_event event;

	perf_await(l->channel, RDMA_CM_EVENT_CONNECT_REQUEST, &event);
	l->id = event.id;
	l->session = (struct perf_session){.channel = l->channel,
					   .signal_fd = -1,
					   .timeout_ms = 60000,
					   .others = on_event,
					   .arg = l};
	ck_assert_int_eq(perf_session_open(&l->session, l->id, "liar"), 0);
	if (l->lie->trick == KEEP_RECEIVES)
		l->session.conn.received = keep_receive;
	ck_assert_ptr_null(conn_greet(&l->session.conn, event.data, event.length));
	conn_param(&l->session.conn, hello, &param);
	ck_assert_int_eq(rdma_accept(l->id, &param), 0);
}

static void *lie(void *arg)
{
	struct liar *l = arg;
	struct perf_message m;
	bool goes_on = true;

	accept_client(l);
	while (goes_on && perf_session_turn(&l->session, l->ending ? 10 : 1000) == 0)
		if (answer(l, &m))
			goes_on = say(l, &m);
	return NULL;
}

void liar_start(struct liar *l, const struct lie *what)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};

	*l = (struct liar){.lie = what, .channel = cm_open()};
	ck_assert_ptr_nonnull(l->channel);
	ck_assert_int_eq(rdma_create_id(l->channel, &l->listener, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(l->listener, (struct sockaddr *)&sin), 0);
	ck_assert_int_eq(rdma_listen(l->listener, 4), 0);
	l->port = ntohs(rdma_get_src_port(l->listener));
	ck_assert_int_eq(pthread_create(&l->thread, NULL, lie, l), 0);
}

void liar_end(struct liar *l)
{
	pthread_join(l->thread, NULL);
	perf_session_close(&l->session);
	rdma_destroy_id(l->id);
	if (l->ignored)
		rdma_destroy_id(l->ignored);
	rdma_destroy_id(l->listener);
	rdma_destroy_event_channel(l->channel);
}
