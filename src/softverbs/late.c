/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * WRITEs whose bytes come late, for the fault `message late N`: the requester has its completion, and
 * the last bytes of what it wrote are still on their way (law 2.4). They are kept at the responder's
 * queue pair, at most one WRITE's there, and go where they belong
 *
 *	- before anything that its peer sends behind them is looked at, so that nothing overtakes them,
 *	- when their time has come, for whoever polls or waits, or for the thread of net.c,
 *	- or when either queue pair ends, as what TCP had taken still arrives. (Of a writer in another
 *	  process nothing more is heard then, or what it sends last: that is the first case.)
 *
 * Keys are looked at when the WRITE arrives, by the callers, and here anew. A forked child drops what
 * it has of its parent's. All under sw_lock.
 */
#include <unistd.h>

#include "softverbs/net.h"

#define LATE_BYTES (64u << 10) /* the last ones of a WRITE: a peer can't have more kept */
#define LONGEST_MS 60000       /* of a sleep; who wakes early sleeps again */

struct sw_late {
	struct sw_list link; /* on `late`, once all is here */
	struct sw_qp *qp;
	uint64_t raddr, when;
	uint32_t rkey, n;
	pid_t pid; /* whose memory it is for: MADV_DONTFORK leaves a child without */
	uint8_t bytes[];
};

static struct sw_list late = {&late, &late};

uint32_t sw_late_begin(struct sw_qp *qp, uint32_t rkey, uint64_t raddr, uint32_t len,
		       struct sw_piece *dst)
{
	const uint32_t n = len < LATE_BYTES ? len : LATE_BYTES;
	struct sw_late *l = n ? malloc(sizeof *l + n) : NULL;

	dst[0].n = len;
	if (!l)
		return len != 0; /* without memory it is in time */
	*l = (struct sw_late){
		.qp = qp, .raddr = raddr + (len - n), .rkey = rkey, .n = n, .pid = getpid()};
	sw_list_init(&l->link);
	qp->late = l;
	return sw_late_pieces(qp, dst, len);
}

uint32_t sw_late_pieces(const struct sw_qp *qp, struct sw_piece *dst, uint32_t len)
{
	struct sw_late *l = qp->late;
	uint32_t n = 0;

	if (len > l->n)
		dst[n++].n = len - l->n;
	dst[n++] = (struct sw_piece){l->bytes, l->n};
	return n;
}

void sw_late_wait(struct sw_qp *qp, uint32_t ms)
{
	struct sw_late *l = qp->late;

	l->when = sw_now() + ms * UINT64_C(1000000);
	sw_list_append(&late, &l->link);
	sw_net_alarm();
}

/* Returns whether its peer still may. */
static bool place(struct sw_qp *qp)
{
	struct sw_late *l = qp->late;
	bool whole = !sw_list_empty(&l->link) && l->pid == getpid(), may = true;
	uint8_t *to;

	qp->late = NULL;
	sw_list_del(&l->link);
	if (whole)
		may = sw_remote(qp, l->rkey, l->raddr, l->n, IBV_ACCESS_REMOTE_WRITE, &to);
	if (whole && may)
		memcpy(to, l->bytes, l->n);
	free(l);
	return may;
}

bool sw_late_place(struct sw_qp *qp)
{
	const uint32_t rkey = qp->late ? qp->late->rkey : 0;

	if (!qp->late || place(qp))
		return true;
	sw_refusal(qp, IBV_WC_REM_ACCESS_ERR, rkey);
	sw_qp_error(qp);
	return false;
}

void sw_late_sent(const struct sw_qp *qp)
{
	struct sw_qp *peer = sw_peer(qp);

	if (peer)
		sw_late_place(peer);
}

void sw_late_end(struct sw_qp *qp)
{
	if (qp->late)
		place(qp);
}

static struct sw_late *first(void)
{
	struct sw_late *first = NULL;
	struct sw_list *at;

	sw_each (at, &late) {
		struct sw_late *l = sw_outer(at, struct sw_late, link);

		if (!first || l->when < first->when)
			first = l;
	}
	return first;
}

void sw_late_due(void)
{
	struct sw_late *l;

	if (sw_list_empty(&late))
		return;
	while ((l = first()) && l->when <= sw_now())
		sw_late_place(l->qp);
}

int sw_late_ms(void)
{
	const struct sw_late *l = sw_clock_runs() ? first() : NULL;
	uint64_t now, ms;

	if (!l)
		return -1;
	now = sw_now();
	ms = l->when <= now ? 0 : (l->when - now) / 1000000 + 1;
	return ms < LONGEST_MS ? (int)ms : LONGEST_MS; /* a peer may say more than an int holds */
}
