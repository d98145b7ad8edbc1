/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "sgpool/softverbs.h"

#define RECV 1000 /* wr_ids of receives begin here */
#define MSG  65536

uint64_t peer_random(struct peer *p)
{
	p->seed ^= p->seed << 13;
	p->seed ^= p->seed >> 7;
	p->seed ^= p->seed << 17;
	return p->seed;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return -1;
}

static int nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int begin(struct peer *p, struct rdma_cm_id **id)
{
	p->ec = rdma_create_event_channel();
	if (!p->ec || nonblocking(p->ec->fd) || rdma_create_id(p->ec, id, NULL, RDMA_PS_TCP))
		return fail("create_id");
	return 0;
}

static struct sockaddr_in local(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

int peer_listen(struct peer *p, uint16_t port)
{
	struct sockaddr_in a = local(port);

	if (begin(p, &p->listener))
		return -1;
	if (rdma_bind_addr(p->listener, (struct sockaddr *)&a) || rdma_listen(p->listener, 4))
		return fail("listen");
	return 0;
}

int peer_ask(struct peer *p, uint16_t port)
{
	struct sockaddr_in a = local(port);

	if (begin(p, &p->id))
		return -1;
	if (rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&a, 1000))
		return fail("resolve_addr");
	return 0;
}

/* ---- connecting ---- */

static void post_recv(struct peer *p, uint64_t i)
{
	struct ibv_sge s = {(uintptr_t)p->buf + i * MSG % PEER_BUF, MSG, p->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = RECV + i, .sg_list = &s, .num_sge = 1};

	if (ibv_post_recv(p->id->qp, &wr, &bad))
		p->ended = true;
}

static int objects(struct peer *p)
{
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {PEER_DEPTH, PEER_DEPTH, 2, 2, 0},
	};

	p->pd = ibv_alloc_pd(p->id->verbs);
	p->ch = ibv_create_comp_channel(p->id->verbs);
	p->cq = ibv_create_cq(p->id->verbs, 4 * PEER_DEPTH, NULL, p->ch, 0);
	p->buf = aligned_alloc(4096, PEER_BUF);
	memset(p->buf, 0, PEER_BUF);
	p->mr = ibv_reg_mr(p->pd, p->buf, PEER_BUF,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	a.send_cq = a.recv_cq = p->cq;
	if (!p->mr || nonblocking(p->ch->fd) || rdma_create_qp(p->id, p->pd, &a))
		return fail("create_qp");
	for (uint64_t i = 0; i < PEER_DEPTH; i++)
		post_recv(p, i);
	return 0;
}

static void say_hello(const struct peer *p, struct peer_hello *h, struct rdma_conn_param *c)
{
	*h = (struct peer_hello){(uintptr_t)p->buf, p->mr->rkey};
	*c = (struct rdma_conn_param){
		.private_data = h,
		.private_data_len = sizeof *h,
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

static void event(struct peer *p, struct rdma_cm_event *e)
{
	const void *priv = e->param.conn.private_data;
	struct rdma_conn_param c;
	struct peer_hello h;

	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		p->ended |= rdma_resolve_route(p->id, 1000) != 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		p->ended |= objects(p) != 0;
		say_hello(p, &h, &c);
		p->ended |= rdma_connect(p->id, &c) != 0;
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		p->id = e->id;
		memcpy(&p->there, priv, sizeof p->there);
		p->ended |= objects(p) != 0;
		say_hello(p, &h, &c);
		/* It may have gone already: then this says so. */
		p->ended |= rdma_accept(p->id, &c) != 0;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (priv && e->param.conn.private_data_len >= sizeof p->there)
			memcpy(&p->there, priv, sizeof p->there);
		p->connected = true;
		break;
	default:
		p->ended = true;
		break;
	}
}

void peer_events(struct peer *p)
{
	struct rdma_cm_event *e;

	while (!rdma_get_cm_event(p->ec, &e)) {
		event(p, e);
		rdma_ack_cm_event(e);
	}
}

/* ---- traffic ---- */

static void post(struct peer *p)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
						 IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD};
	/* There is no flow control here, and iWARP doesn't wait for a receive. */
	bool iwarp = p->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	uint64_t r = peer_random(p);
	enum ibv_wr_opcode op = ops[r % (iwarp ? 2 : 5)];
	uint32_t len = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : (uint32_t)(r >> 8) % MSG + 1;
	struct ibv_sge s = {(uintptr_t)p->buf + PEER_BUF - MSG, len, p->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &s, .num_sge = 1, .opcode = op};

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = p->there.addr;
		wr.wr.atomic.rkey = p->there.rkey;
	} else if (op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_READ) {
		wr.wr.rdma.remote_addr = p->there.addr;
		wr.wr.rdma.rkey = p->there.rkey;
	}
	if (ibv_post_send(p->id->qp, &wr, &bad))
		p->ended = true;
	else
		p->sending++;
}

void peer_traffic(struct peer *p)
{
	struct ibv_wc wc[8];
	int n;

	while (p->connected && !p->ended && p->sending < PEER_DEPTH)
		post(p);
	n = p->cq ? ibv_poll_cq(p->cq, 8, wc) : 0;
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			p->ended = true;
		else
			p->done++;
		if (wc[i].wr_id < RECV)
			p->sending--;
		else if (!p->ended)
			post_recv(p, wc[i].wr_id - RECV);
	}
}

void peer_sleep(struct peer *p, int ms)
{
	struct pollfd f[2] = {{.fd = p->ec->fd, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
	struct ibv_cq *cq;
	void *context;

	if (p->cq) {
		ibv_req_notify_cq(p->cq, 0);
		f[1].fd = p->ch->fd;
		peer_traffic(p); /* what came before it was armed */
	}
	if (p->ended)
		return;
	poll(f, 2, ms);
	while (p->cq && !ibv_get_cq_event(p->ch, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

int peer_close(struct peer *p)
{
	int left = 0;

	if (p->id && p->id->qp)
		rdma_destroy_qp(p->id);
	if (p->mr)
		ibv_dereg_mr(p->mr);
	if (p->cq)
		ibv_destroy_cq(p->cq);
	if (p->ch)
		ibv_destroy_comp_channel(p->ch);
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	if (p->id)
		rdma_destroy_id(p->id);
	if (p->listener)
		rdma_destroy_id(p->listener);
	if (p->ec)
		rdma_destroy_event_channel(p->ec);
	free(p->buf);
	for (int i = 0; i < SV_NCOUNTERS; i++)
		left += sv_live((enum sv_counter)i);
	return left;
}
