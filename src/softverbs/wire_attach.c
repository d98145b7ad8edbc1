/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which queue pair answers on an accepted connection, and when it stops: a connection waits till its
 * queue pair is ready to receive and has the one that asks as its peer; when that is over the asker
 * is told, and what it still sends is thrown away.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "softverbs/wire_recv.h"

#define WAITING 4096 /* connections for queue pairs that don't answer yet */

static struct sw_list waiting = {&waiting, &waiting};
static struct sw_list attached = {&attached, &attached};
static unsigned int nwaiting;

static bool answers(const struct sw_qp *qp)
{
	return qp->ibv.qp_base.qp_type != IBV_QPT_UD &&
	       qp->ibv.qp_base.qp_type != IBV_QPT_XRC_SEND && qp->remote && !qp->dev->removed &&
	       (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) &&
	       sw_link_up(qp);
}

void sw_rx_drop(struct sw_rx *rx)
{
	if (rx->qp) {
		sw_rx_give_back(rx, true);
		rx->qp->rx = NULL;
		rx->qp = NULL;
	} else if (rx->state == SW_RX_WAITING) {
		nwaiting--;
	}
	sw_list_del(&rx->link);
	sw_net_open--;
	sw_sock_close(&rx->s);
}

static void on_event(struct sw_sock *s, uint32_t events)
{
	struct sw_rx *rx = sw_outer(s, struct sw_rx, s);

	if (rx->state == SW_RX_WAITING) {
		sw_rx_drop(rx);
		return;
	}
	if (rx->state == SW_RX_STALLED && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		rx->state = SW_RX_SKIP;
	sw_rx_work(rx);
}

/* ---- the queue pair ---- */

static void attach(struct sw_rx *rx, struct sw_qp *qp)
{
	nwaiting--;
	sw_list_del(&rx->link);
	sw_list_append(&attached, &rx->link);
	rx->qp = qp;
	qp->rx = rx;
	rx->state = SW_RX_IDLE;
	sw_rx_say(rx, SW_RSP_READY, 0, 0);
	sw_rx_work(rx);
}

static bool meant(const struct sw_rx *rx, const struct sw_qp *qp)
{
	return rx->hello.dst_qpn == qp->ibv.qp_base.qp_num &&
	       rx->hello.src_qpn == qp->attr.dest_qp_num;
}

void sw_wire_rx_end(struct sw_qp *qp)
{
	struct sw_rx *rx = qp->rx;

	if (!rx || !sw_rx_alive(rx))
		return;
	if (rx->head_left || rx->seg_left) {
		sw_rx_drop(rx); /* in the middle of a DATA there is no way to say it */
		return;
	}
	sw_rx_give_back(rx, qp->state == IBV_QPS_ERR);
	qp->rx = NULL;
	rx->qp = NULL;
	rx->state = SW_RX_DRAIN;
	if (rx->ack)
		sw_rx_say(rx, SW_RSP_ACK, rx->upto, 0);
	sw_rx_say(rx, SW_RSP_GONE, 0, 0);
	sw_rx_flush(rx);
	sw_sock_want(&rx->s, sw_rx_wants(rx, false));
}

void sw_wire_rx_state(struct sw_qp *qp)
{
	struct sw_list *l;

	if (!answers(qp)) {
		sw_wire_rx_end(qp);
		return;
	}
	for (l = waiting.next; l != &waiting && !qp->rx; l = l->next)
		if (meant(sw_outer(l, struct sw_rx, link), qp)) {
			attach(sw_outer(l, struct sw_rx, link), qp);
			return;
		}
}

static void resume(struct sw_rx *rx)
{
	struct pollfd p = {.fd = rx->s.fd, .events = POLLRDHUP};

	/* Nobody waits for it any more. */
	if (poll(&p, 1, 0) > 0)
		rx->state = SW_RX_SKIP;
	sw_rx_work(rx);
}

void sw_wire_kick(struct sw_qp *qp)
{
	if (qp->rx && sw_rx_alive(qp->rx) && qp->rx->state == SW_RX_STALLED)
		resume(qp->rx);
}

static struct sw_rx *next_stalled(const struct sw_srq *srq)
{
	struct sw_list *l;

	sw_each (l, &attached) {
		struct sw_rx *rx = sw_outer(l, struct sw_rx, link);

		if (sw_rx_alive(rx) && rx->qp && rx->qp->srq == srq && rx->state == SW_RX_STALLED)
			return rx;
	}
	return NULL;
}

void sw_wire_kick_srq(struct sw_srq *srq)
{
	struct sw_rx *rx;

	while (srq->rq.q.next != srq->rq.q.head && (rx = next_stalled(srq)))
		resume(rx);
}

void sw_wire_srq_gone(struct sw_qp *qp)
{
	if (qp->rx && qp->rx->took)
		sw_qp_error(qp);
}

void sw_wire_rx_drain(struct sw_qp *qp)
{
	while (qp->rx && sw_rx_alive(qp->rx) && qp->rx->state != SW_RX_STALLED &&
	       sw_rx_work(qp->rx))
		;
}

void sw_wire_accepted(int fd, const struct sw_hello *h)
{
	struct sw_rx *rx = nwaiting < WAITING ? calloc(1, sizeof *rx) : NULL;
	struct sw_list *l;

	if (!rx) {
		close(fd);
		return;
	}
	rx->hello = *h;
	if (sw_sock_add(&rx->s, fd, EPOLLRDHUP, on_event)) {
		free(rx);
		return;
	}
	sw_net_open++;
	nwaiting++;
	sw_list_append(&waiting, &rx->link);
	sw_each (l, sw_devices()) {
		struct sw_qp *qp = sw_qp_find(sw_outer(l, struct sw_device, link), h->dst_qpn);

		if (qp && !qp->rx && answers(qp) && meant(rx, qp)) {
			attach(rx, qp);
			return;
		}
	}
}
