/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams to and from other processes: one connection for each process that is sent to, shared by
 * all queue pairs. While it has no room their requests wait, as they would for a slow wire; what
 * arrives for nobody, or finds no receive, is dropped.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "softverbs/net.h"

#define BUDGET 64

/* The way to one process. */
struct out {
	struct sw_sock s;
	struct sw_list link;
	struct sw_list busy; /* queue pairs that wait for room */
	uint32_t block;
	union ibv_gid gid;
	uint32_t at, end; /* of a datagram's rest in b */
	uint8_t b[sizeof(struct sw_hello) + sizeof(struct sw_dgram) + SW_MTU];
};
static struct sw_list outs = {&outs, &outs};

struct in {
	struct sw_sock s;
	bool have; /* the header */
	struct sw_dgram d;
	uint64_t got;
	uint8_t payload[SW_MTU];
	struct sw_inbuf in;
};

/* ---- out ---- */

static void run_waiting(struct out *o)
{
	struct sw_list mine;

	/* Those that have to wait again go to the list anew. */
	sw_list_init(&mine);
	while (!sw_list_empty(&o->busy)) {
		struct sw_list *l = o->busy.next;

		sw_list_del(l);
		sw_list_append(&mine, l);
	}
	while (!sw_list_empty(&mine)) {
		struct sw_qp *qp = sw_outer(mine.next, struct sw_qp, busy);

		sw_list_del(&qp->busy);
		sw_run(qp);
	}
}

static void drop_out(struct out *o)
{
	sw_net_open--;
	sw_list_del(&o->link);
	sw_sock_close(&o->s);
	run_waiting(o);
}

static enum sw_io flush(struct out *o)
{
	while (o->at != o->end) {
		ssize_t n =
			send(o->s.fd, o->b + o->at, o->end - o->at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? SW_IO_AGAIN : SW_IO_END;
		o->at += (uint32_t)n;
	}
	o->at = o->end = 0;
	return SW_IO_OK;
}

static void on_out(struct sw_sock *s, uint32_t events)
{
	struct out *o = sw_outer(s, struct out, s);
	enum sw_io io = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? SW_IO_END : flush(o);

	/* Nothing is ever said there: it's the end. */
	if (io == SW_IO_END) {
		drop_out(o);
	} else if (io == SW_IO_OK) {
		sw_sock_want(s, EPOLLIN);
		run_waiting(o);
	}
}

static struct out *way_to(const struct sw_qp *qp, const union ibv_gid *gid, uint32_t qpn)
{
	struct sw_hello h;
	struct sw_list *l;
	struct out *o;
	int fd;

	sw_each (l, &outs) {
		o = sw_outer(l, struct out, link);
		if (o->s.fd >= 0 && o->block == qpn / SW_QPN_BLOCK &&
		    !memcmp(&o->gid, gid, sizeof *gid))
			return o;
	}
	fd = sw_net_to_qpn(gid, qpn);
	o = fd < 0 ? NULL : calloc(1, sizeof *o);
	if (!o) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	if (sw_sock_add(&o->s, fd, EPOLLIN | EPOLLOUT, on_out)) {
		free(o);
		return NULL;
	}
	sw_net_open++;
	o->block = qpn / SW_QPN_BLOCK;
	o->gid = *gid;
	sw_list_init(&o->busy);
	sw_list_append(&outs, &o->link);
	sw_hello_fill(&h, SW_KIND_UD, qp->dev->p.transport == IBV_TRANSPORT_IWARP, 0, 0);
	memcpy(o->b, &h, sizeof h);
	o->end = sizeof h;
	if (flush(o) == SW_IO_OK)
		sw_sock_want(&o->s, EPOLLIN);
	return o;
}

int sw_wire_dgram(struct sw_qp *qp, const struct sw_dgram *d, const struct sw_piece *src,
		  uint32_t n)
{
	struct out *o = way_to(qp, &d->dgid, d->dst_qpn);
	struct sw_piece p[SW_MAX_SGE];
	uint32_t total = sizeof *d, hn;
	enum sw_io io;
	uint64_t k = 0;

	if (!o || o->s.fd < 0)
		return IBV_WC_SUCCESS; /* nobody is there, and nobody is told */
	memcpy(p, src, n * sizeof *p);
	io = o->at == o->end ? sw_out_memory(o->s.fd, d, sizeof *d, p, n, &k) : SW_IO_AGAIN;
	if (io == SW_IO_END || io == SW_IO_OK)
		return IBV_WC_SUCCESS; /* an end is seen by who reads */
	sw_sock_want(&o->s, EPOLLIN | EPOLLOUT);
	if (!k) {
		sw_list_del(&qp->busy);
		sw_list_append(&o->busy, &qp->busy);
		return SW_WAITING;
	}
	/* What has begun must be ended, whatever becomes of the memory. */
	hn = k < sizeof *d ? (uint32_t)(sizeof *d - k) : 0;
	memcpy(o->b, (const uint8_t *)d + sizeof *d - hn, hn);
	total = hn;
	n = sw_skip(p, n, hn ? 0 : k - sizeof *d);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(o->b + total, p[i].p, p[i].n);
		total += p[i].n;
	}
	o->end = total;
	return IBV_WC_SUCCESS;
}

/* ---- in ---- */

static bool sane(const struct sw_dgram *d)
{
	return d->len <= SW_MTU && !d->zero && d->flags <= (SW_UD_IMM | SW_UD_SOLICITED) &&
	       d->sl < 16 && d->flow <= 0xfffff;
}

static void deliver(const struct in *in)
{
	struct sw_piece p = {(uint8_t *)(uintptr_t)in->payload, in->d.len}; /* only read */
	struct sw_list *l;

	if (in->d.dgid.raw[0] == 0xff) {
		sw_ud_group(&in->d, &p, in->d.len != 0);
		return;
	}
	sw_each (l, sw_devices()) {
		struct sw_qp *qp = sw_qp_find(sw_outer(l, struct sw_device, link), in->d.dst_qpn);

		if (qp) {
			sw_ud_deliver(qp, &in->d, &p, in->d.len != 0);
			return;
		}
	}
}

static enum sw_io step(struct in *in)
{
	struct sw_piece p = {in->payload, 0};
	enum sw_io io;
	uint64_t k;

	if (!in->have) {
		io = sw_in_need(in->s.fd, &in->in, sizeof in->d);
		if (io != SW_IO_OK)
			return io;
		memcpy(&in->d, sw_in_take(&in->in, sizeof in->d), sizeof in->d);
		if (!sane(&in->d))
			return SW_IO_END;
		in->have = true;
		in->got = 0;
	}
	p.p += in->got;
	p.n = in->d.len - (uint32_t)in->got;
	io = sw_in_memory(in->s.fd, &in->in, &p, 1, &k);
	in->got += k;
	if (in->got < in->d.len)
		return io;
	in->have = false;
	deliver(in);
	return SW_IO_OK;
}

static void on_in(struct sw_sock *s, uint32_t events)
{
	struct in *in = sw_outer(s, struct in, s);
	enum sw_io io = SW_IO_OK;

	(void)events;
	for (int i = 0; i < BUDGET && io == SW_IO_OK; i++)
		io = step(in);
	if (io == SW_IO_END) {
		sw_net_open--;
		sw_sock_close(s);
		return;
	}
	/* A socket that takes bytes is reported at once: that gives it another turn. */
	sw_sock_want(s, io == SW_IO_OK ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void sw_wire_ud_accepted(int fd)
{
	struct in *in = calloc(1, sizeof *in);

	if (!in) {
		close(fd);
		return;
	}
	if (sw_sock_add(&in->s, fd, EPOLLIN, on_in))
		free(in);
	else
		sw_net_open++;
}
