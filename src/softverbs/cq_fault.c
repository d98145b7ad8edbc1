/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completions that a rule strikes: lost, late, twice (at once, or when it's long stale), out of
 * order, with another status or opcode.
 * One that is kept back is counted in polls of its CQ, not in time, so that a run can be repeated;
 * the bell rings for it at once, since a sleeper would never poll.
 */
#include "softverbs/sw.h"

struct sw_held {
	struct sw_cqe cqe;
	uint64_t polls;  /* still to pass */
	bool after_next; /* also goes when another has gone in */
};

static bool hold(struct sw_cq *cq, const struct sw_cqe *cqe, uint64_t polls, bool after_next)
{
	struct sw_held *h = realloc(cq->held, (cq->nheld + 1) * sizeof *h);

	if (!h)
		return false;
	cq->held = h;
	h[cq->nheld++] = (struct sw_held){*cqe, polls, after_next};
	sw_cq_ring_bell(cq, true);
	return true;
}

static void release(struct sw_cq *cq, uint32_t i)
{
	struct sw_cqe cqe = cq->held[i].cqe;

	memmove(&cq->held[i], &cq->held[i + 1], (cq->nheld - i - 1) * sizeof *cq->held);
	cq->nheld--;
	sw_cq_insert(cq, &cqe);
}

void sw_cq_held(struct sw_cq *cq)
{
	for (uint32_t i = 0; i < cq->nheld;)
		if (cq->held[i].polls-- == 0)
			release(cq, i);
		else
			i++;
}

static bool struck(struct sw_cq *cq, struct sw_cqe *cqe)
{
	struct sw_strike s = SW_STRIKE(SW_COMPLETION);
	struct sw_cqe twin = *cqe;

	if (cqe->srq) { /* whose slot is given back once, and the queue pair has none for it */
		twin.srq = NULL;
		twin.qp = NULL;
	}
	switch (s.action) {
	case SW_DROP:
		return true;
	case SW_DELAY:
		return hold(cq, cqe, s.arg, false);
	case SW_SWAP:
		return hold(cq, cqe, 8, true);
	case SW_DUPLICATE:
		sw_cq_insert(cq, &twin);
		return false;
	case SW_ECHO:
		(void)hold(cq, &twin, s.arg, false);
		return false;
	case SW_STATUS:
		cqe->wc.status = (enum ibv_wc_status)s.arg;
		return false;
	case SW_OPCODE:
		cqe->wc.opcode = (enum ibv_wc_opcode)s.arg;
		return false;
	default:
		return false;
	}
}

bool sw_cq_struck(struct sw_cq *cq, struct sw_cqe *cqe)
{
	bool taken = struck(cq, cqe);

	if (taken || !cq->nheld)
		return taken;
	sw_cq_insert(cq, cqe);
	for (uint32_t i = 0; i < cq->nheld;)
		if (cq->held[i].after_next)
			release(cq, i);
		else
			i++;
	return true;
}

void sw_cq_held_forget(struct sw_cq *cq, struct sw_qp *qp, bool drop)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < cq->nheld; i++) {
		struct sw_held *h = &cq->held[i];

		if (h->cqe.qp == qp) {
			if (h->cqe.srq)
				h->cqe.srq->unpolled--;
			h->cqe.qp = NULL;
			h->cqe.srq = NULL;
			if (drop)
				continue;
		}
		cq->held[to++] = *h;
	}
	cq->nheld = to;
}

void sw_cq_held_forget_srq(struct sw_cq *cq, struct sw_srq *srq)
{
	for (uint32_t i = 0; i < cq->nheld; i++)
		if (cq->held[i].cqe.srq == srq)
			cq->held[i].cqe.srq = NULL;
}
