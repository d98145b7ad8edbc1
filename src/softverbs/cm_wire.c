/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager between processes: each connection has a socket of its own, and the
 * messages that two ids of one process hand to each other (cm_msg.c, cm_end.c) go over it as they
 * stand. That it is closed says that the id at the other end has gone, or its process.
 *
 *	active                        passive
 *	hello, REQ ------------------>
 *	           <------------------ REP or REJ
 *	RTU ------------------------->            (not on iWARP, nor for datagrams)
 *	DREQ ------------------------>            either side
 *	           <------------------ DREP
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "softverbs/net.h"

#define BUDGET 64

struct sw_cm_wire {
	struct sw_sock s;
	struct sw_id *id; /* NULL: its request hasn't come */
	uint32_t n;       /* bytes of `in` */
	bool ending;      /* it is closed when what was said is out */
	bool unheard;     /* TCP: nobody listens there */
	struct sw_cm_msg in;
	struct {
		uint32_t at, end;
		uint8_t b[4 * sizeof(struct sw_cm_msg)];
	} out;
};

static void drop(struct sw_cm_wire *w)
{
	if (w->id)
		w->id->wire = NULL;
	w->id = NULL;
	sw_net_open--;
	sw_sock_close(&w->s);
}

/* false: it is closed. */
static bool flush(struct sw_cm_wire *w)
{
	while (w->out.at != w->out.end) {
		ssize_t n = send(w->s.fd, w->out.b + w->out.at, w->out.end - w->out.at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			sw_sock_want(&w->s, EPOLLIN | EPOLLOUT);
			return true;
		}
		if (n < 0) {
			w->unheard = errno == ECONNREFUSED;
			break; /* what has come before is still read */
		}
		w->out.at += (uint32_t)n;
	}
	w->out.at = w->out.end = 0;
	sw_sock_want(&w->s, EPOLLIN);
	if (!w->ending)
		return true;
	drop(w);
	return false;
}

static void put(struct sw_cm_wire *w, const void *frame, size_t n)
{
	if (sizeof w->out.b - w->out.end < n)
		return; /* a message that is lost, with a peer that reads none */
	memcpy(w->out.b + w->out.end, frame, n);
	w->out.end += (uint32_t)n;
}

void sw_cm_wire_say(struct sw_id *id, enum sw_cm_kind kind, int reason, const void *priv,
		    size_t len)
{
	struct sw_cm_msg m;

	if (id->wire->s.fd < 0)
		return;
	sw_cm_say(id, kind, priv, len, &m);
	m.reason = reason;
	put(id->wire, &m, sizeof m);
	flush(id->wire);
}

void sw_cm_wire_end(struct sw_id *id)
{
	struct sw_cm_wire *w = id->wire;

	id->wire = NULL;
	if (!w || w->s.fd < 0)
		return;
	w->id = NULL;
	w->ending = true;
	flush(w);
}

/* ---- what comes in ---- */

static bool good_addr(const struct sw_cm_addr *a)
{
	return a->family == AF_INET || a->family == AF_INET6;
}

static bool sane(const struct sw_cm_msg *m)
{
	return m->kind && m->kind < SW_CM_KINDS && m->ud <= 1 && m->priv_len <= SW_PRIV_MAX &&
	       !m->zero[0] && !m->zero[1] && m->qpn <= 0xffffff && good_addr(&m->src) &&
	       good_addr(&m->dst) && m->src.family == m->dst.family;
}

static void reject(struct sw_cm_wire *w, int reason)
{
	struct sw_cm_msg m = w->in;

	m.kind = SW_CM_REJ;
	m.reason = reason;
	m.src = w->in.dst;
	m.dst = w->in.src;
	m.priv_len = 0;
	put(w, &m, sizeof m);
	w->ending = true;
	flush(w);
}

/* The first message; false: it isn't one. */
static bool request(struct sw_cm_wire *w)
{
	struct sockaddr_storage dst;
	struct sw_id *listener, *id;
	int reason;

	if (w->in.kind != SW_CM_REQ)
		return false;
	sw_cm_addr_get(&w->in.dst, &dst);
	listener = sw_cm_listener(w->in.ps, (struct sockaddr *)&dst);
	if (listener && sw_cm_ud(listener) != w->in.ud)
		return false;
	reason = listener ? sw_cm_take_request(listener, &w->in, &id) : SW_REJ_INVALID_SID;
	if (reason > 0) {
		reject(w, reason);
		return true;
	}
	if (reason < 0)
		return true; /* dropped: nobody will answer */
	id->wire = w;
	w->id = id;
	return true;
}

static bool accepted(struct sw_id *id, const struct sw_cm_msg *m)
{
	bool ud = sw_cm_ud(id);

	if (id->state != SW_CM_CONNECT || m->ud != ud || (sw_cm_iwarp(id) && !sw_cm_qp(id)))
		return false;
	sw_cm_take_reply(id, m);
	if (ud)
		sw_cm_wire_end(id);
	return true;
}

static void turned_down(struct sw_id *id, int reason, const void *priv, size_t len)
{
	if (reason != SW_REJ_INVALID_SID || sw_cm_iwarp(id) || !sw_cm_nobody(id))
		sw_cm_refused(id, reason, priv, len);
}

static bool refused(struct sw_id *id, const struct sw_cm_msg *m)
{
	if (id->state != SW_CM_CONNECT || m->reason <= 0)
		return false;
	sw_cm_wire_end(id);
	turned_down(id, m->reason, m->priv, m->priv_len);
	return true;
}

/* false: it makes no sense. */
static bool message(struct sw_cm_wire *w)
{
	const struct sw_cm_msg *m = &w->in;
	struct sw_id *id = w->id;

	if (!sane(m))
		return false;
	if (!id)
		return request(w);
	switch (m->kind) {
	case SW_CM_REP:
		return accepted(id, m);
	case SW_CM_REJ:
		return refused(id, m);
	case SW_CM_RTU:
		if (id->asked)
			return false; /* whoever asks is the one who says so */
		sw_cm_take_rtu(id);
		return true;
	case SW_CM_DREQ:
		/* What it had sent before has arrived before. */
		if (id->qp)
			sw_wire_drain(id->qp);
		sw_cm_take_goodbye(id);
		return true;
	case SW_CM_DREP:
		sw_cm_take_answer(id);
		return true;
	default:
		return false;
	}
}

/* The peer, or its process, has gone; or talks nonsense. */
static void hung_up(struct sw_cm_wire *w)
{
	struct sw_id *id = w->id;

	drop(w);
	if (!id)
		return;
	if (w->unheard && id->state == SW_CM_CONNECT) {
		turned_down(id, SW_REJ_INVALID_SID, NULL, 0);
		return;
	}
	/* What it had sent before it went has arrived before. */
	if (id->qp)
		sw_wire_drain(id->qp);
	sw_cm_take_hangup(id);
}

static void on_event(struct sw_sock *s, uint32_t events)
{
	struct sw_cm_wire *w = sw_outer(s, struct sw_cm_wire, s);
	ssize_t n;

	if (events & EPOLLOUT && !flush(w))
		return;
	/* Others want their turn too, however much one says. */
	for (int i = 0; i < BUDGET && s->fd >= 0; i++) {
		n = recv(s->fd, (char *)&w->in + w->n, sizeof w->in - w->n, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			w->unheard = w->unheard || (n < 0 && errno == ECONNREFUSED);
			hung_up(w);
			return;
		}
		w->n += (uint32_t)n;
		if (w->n < sizeof w->in && !w->ending)
			continue;
		w->n = 0;
		if (!w->ending && !message(w) && s->fd >= 0)
			hung_up(w);
	}
}

static struct sw_cm_wire *new_wire(int fd)
{
	struct sw_cm_wire *w = calloc(1, sizeof *w);

	if (!w) {
		close(fd);
		return NULL;
	}
	if (sw_sock_add(&w->s, fd, EPOLLIN, on_event)) {
		free(w);
		return NULL;
	}
	sw_net_open++;
	return w;
}

void sw_cm_wire_accepted(int fd)
{
	new_wire(fd);
}

int sw_cm_wire_request(struct sw_id *id, const struct sw_cm_msg *m)
{
	int err = sw_net_start(), fd;
	struct sw_hello h;

	if (err)
		return err;
	fd = sw_net_to_port(id->id.ps, &id->id.route.addr.dst_addr);
	if (fd < 0)
		return errno;
	id->wire = new_wire(fd);
	if (!id->wire)
		return ENOMEM;
	id->wire->id = id;
	sw_hello_fill(&h, SW_KIND_CM, sw_cm_iwarp(id), m->qpn, 0);
	put(id->wire, &h, sizeof h);
	put(id->wire, m, sizeof *m);
	flush(id->wire);
	return 0;
}
