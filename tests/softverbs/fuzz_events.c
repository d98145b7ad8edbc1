/* SPDX-License-Identifier: BSD-2-Clause */
/* The fuzzer's events and connections. Events are fetched only if there are some, and acknowledged
 * at once: everything else would be a hang that is the caller's own. */
#include <arpa/inet.h>
#include <poll.h>

#include "fuzz.h"

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

void events(void)
{
	struct ibv_comp_channel *c = PICK(ch);
	struct ibv_async_event ev;
	struct rdma_cm_event *e;
	struct ibv_cq *from;
	void *arg;

	if (c && readable(c->fd) && !ibv_get_cq_event(c, &from, &arg))
		ibv_ack_cq_events(from, 1);
	if (readable(ctx->async_fd) && !ibv_get_async_event(ctx, &ev))
		ibv_ack_async_event(&ev);
	if (!readable(ec->fd) || rdma_get_cm_event(ec, &e))
		return;
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		void **at = FREE(id);

		if (at) {
			*at = e->id;
		} else {
			struct rdma_cm_id *extra = e->id;

			rdma_ack_cm_event(e);
			rdma_destroy_id(extra);
			return;
		}
	}
	rdma_ack_cm_event(e);
}

void cm_step(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)(7000 + rnd(4)))};
	struct rdma_conn_param p = {.initiator_depth = 1, .responder_resources = 1};
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct rdma_cm_id *i = PICK(id);
	void **at;

	inet_pton(AF_INET, rnd(3) ? "127.0.0.1" : "0.0.0.0", &a.sin_addr);
	switch (rnd(11)) {
	case 0:
		if ((at = FREE(id)))
			rdma_create_id(ec, (struct rdma_cm_id **)at, NULL,
				       rnd(5) ? RDMA_PS_TCP : RDMA_PS_UDP);
		break;
	case 1:
		if (i)
			rdma_bind_addr(i, (struct sockaddr *)&a);
		break;
	case 2:
		if (i)
			rdma_listen(i, (int)rnd(3));
		break;
	case 3:
		if (i)
			rdma_resolve_addr(i, NULL, (struct sockaddr *)&a, 1);
		break;
	case 4:
		if (i && i->verbs)
			rdma_resolve_route(i, 1);
		break;
	case 5:
		if (i && i->verbs && !i->qp) {
			qa.qp_type = i->qp_type;
			rdma_create_qp(i, NULL, &qa);
		}
		break;
	case 6:
		if (i && i->verbs)
			rdma_connect(i, &p);
		break;
	case 7:
		if (i && i->verbs)
			rdma_accept(i, &p);
		break;
	case 8:
		if (i)
			rdma_reject(i, "no", 3);
		break;
	case 9:
		if (i && i->verbs)
			rdma_disconnect(i);
		break;
	default:
		if ((at = TAKEN(id))) {
			struct rdma_cm_id *gone = *at;

			if (gone->qp)
				rdma_destroy_qp(gone);
			if (!rdma_destroy_id(gone))
				*at = NULL;
		}
	}
}
