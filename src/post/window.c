/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows of type 2.
 *
 * A window's state and hold change under the completion queue's lock, as it's completions that end
 * them; the posts take it before the send side's, in the usual order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/watch.h"
#include "post/plan.h"
#include "post/window.h"
#include "post/wr.h"

#define REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

enum state {
	FREE,
	BOUND,
	INVALIDATING, /* LOCAL_INV is posted */
	STUCK,        /* LOCAL_INV failed: the key may still be good */
};

struct sgp_window {
	struct ibv_mw *mw;
	struct sgp_ep *ep;
	struct sgp_window *next; /* of the endpoint's */
	struct sgp_chunk *chunk; /* held unless FREE */
	uint32_t rkey;
	enum state state;
	unsigned int posted; /* slots that name this window */
};

struct sgp_window *sgp_window_create(struct sgp_ep *ep)
{
	struct sgp_window *w;

	if (sgp_check_fork())
		return NULL;
	if (!ep || !ep->qp)
		return sgp_fail_null(EINVAL, "window: an open endpoint is needed");
	w = calloc(1, sizeof *w);
	if (!w)
		return sgp_fail_null(ENOMEM, "no memory for a window");
	w->ep = ep;
	errno = 0;
	w->mw = ibv_alloc_mw(ep->qp->pd, IBV_MW_TYPE_2);
	if (!w->mw) {
		int err = errno > 0 ? errno : EOPNOTSUPP;

		free(w);
		err = err == ENOSYS ? EOPNOTSUPP : err;
		return sgp_fail_null(err, "no memory window of type 2: %s", strerror(err));
	}
	w->rkey = w->mw->rkey;
	sgp_lock(&ep->cq->lock);
	w->next = ep->windows;
	ep->windows = w;
	sgp_unlock(&ep->cq->lock);
	return w;
}

int sgp_window_destroy(struct sgp_window *w)
{
	struct sgp_cq *cq;
	int err = 0;

	if (sgp_check_fork())
		return -1;
	if (!w)
		return sgp_fail(EINVAL, "no window");
	cq = w->ep->cq;
	sgp_lock(&cq->lock);
	if (w->posted) {
		sgp_unlock(&cq->lock);
		return sgp_fail(EBUSY, "a bind or an invalidation of the window is posted");
	}
	errno = 0;
	err = sgp_provider_errno(ibv_dealloc_mw(w->mw));
	if (!err)
		for (struct sgp_window **at = &w->ep->windows; *at; at = &(*at)->next)
			if (*at == w) {
				*at = w->next;
				break;
			}
	sgp_unlock(&cq->lock);
	if (err)
		return sgp_fail(err, "ibv_dealloc_mw: %s", strerror(err));
	sgp_chunk_put(w->chunk);
	free(w);
	return 0;
}

/* One request of the window's, which is filled in but for its wr_id. Both locks are held. */
static int post_locked(struct sgp_ep *ep, void *context, struct sgp_window *w,
		       const struct ibv_send_wr *wr, enum ibv_wc_opcode opcode, int flags)
{
	struct sgp_side *side = &ep->send;
	struct sgp_slot *slot;
	uint32_t seq;
	int err;

	if (sgp_ep_is_stopped(ep))
		return sgp_fail(ESHUTDOWN, "the endpoint is closing, disconnected or in error");
	if (sgp_begin(ep, 1)) {
		if (errno == EAGAIN) { /* room comes only from what the device has */
			sgp_ep_ring_locked(ep, &err);
			errno = EAGAIN;
		}
		return -1;
	}
	slot = sgp_fill_slot(
		side, context, (uint8_t)opcode,
		SGP_SLOT_SIGNALLED | SGP_SLOT_WINDOW |
			(ep->sig_all || flags & IBV_SEND_SIGNALED ? SGP_SLOT_WANTED : 0));
	slot->num_chunk = slot->num_sge = 0;
	slot->window = w;
	seq = side->head;
	sgp_add_request(ep, slot, wr, (unsigned int)flags & IBV_SEND_FENCE);
	if (seq != sgp_ep_ring_locked(ep, &err)) {
		ep->stats.posts++;
		return 0; /* taken; or gathered posts before it were not, which their wc tell */
	}
	return sgp_fail(err, "the device refused the post: %s", strerror(err));
}

static int check(struct sgp_ep *ep, struct sgp_window *w, int flags)
{
	if (sgp_check_fork())
		return -1;
	if (!ep || !w || w->ep != ep || flags & ~(IBV_SEND_SIGNALED | IBV_SEND_FENCE))
		return sgp_fail(EINVAL, "window: its own endpoint and known flags are needed");
	return 0;
}

static int check_slice(const struct sgp_ep *ep, const struct sgp_chunk *chunk, size_t offset,
		       size_t length, unsigned int access)
{
	if (!chunk || !length || access & ~(unsigned int)REMOTE)
		return sgp_fail(EINVAL, "bind: a chunk, some bytes, and remote rights are needed");
	if (sgp_refuse_stale(chunk))
		return -1;
	if (length > chunk->size || offset > chunk->size - length)
		return sgp_fail(EFAULT, "bind: %zu bytes from %zu on, of a chunk of %u", length,
				offset, chunk->size);
	if (!sgp_chunk_is_on(chunk, ep->pd_index))
		return sgp_fail(EXDEV, "bind: memory of another protection domain");
	if (!(sgp_chunk_access(chunk) & IBV_ACCESS_MW_BIND))
		return sgp_fail(EACCES, "bind: the pool was made without SGP_POOL_WINDOWS");
	return 0;
}

int sgp_post_bind(struct sgp_ep *ep, void *context, struct sgp_window *w, struct sgp_chunk *chunk,
		  size_t offset, size_t length, unsigned int access, int flags)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};
	int ret = -1;

	if (check(ep, w, flags))
		return -1;
	sgp_lock(&ep->cq->lock);
	sgp_lock(&ep->send.lock);
	if (check_slice(ep, chunk, offset, length, access))
		goto out;
	if (w->state != FREE || w->posted) {
		sgp_set_error(EBUSY, "bind: the window is bound");
		goto out;
	}
	wr.bind_mw.mw = w->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(w->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = sgp_chunk_mr_on(chunk, ep->pd_index),
							 .addr = (uintptr_t)chunk->addr + offset,
							 .length = length,
							 .mw_access_flags = access};
	/* Before the post, as another thread may poll its completion at once. */
	w->state = BOUND;
	w->chunk = chunk;
	w->posted++;
	ret = post_locked(ep, context, w, &wr, IBV_WC_BIND_MW, flags);
	if (ret) {
		w->posted--;
		w->chunk = NULL;
		w->state = FREE;
	} else {
		w->rkey = wr.bind_mw.rkey;
	}
out:
	if (ret)
		sgp_count_refusal(ep, errno);
	sgp_unlock(&ep->send.lock);
	sgp_unlock(&ep->cq->lock);
	return ret;
}

int sgp_post_invalidate(struct sgp_ep *ep, void *context, struct sgp_window *w, int flags)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV};
	int ret = -1;

	if (check(ep, w, flags))
		return -1;
	sgp_lock(&ep->cq->lock);
	sgp_lock(&ep->send.lock);
	if (w->state != BOUND) {
		sgp_set_error(EINVAL, "invalidate: the window is not bound");
		goto out;
	}
	wr.invalidate_rkey = w->rkey;
	w->state = INVALIDATING;
	w->posted++;
	ret = post_locked(ep, context, w, &wr, IBV_WC_LOCAL_INV, flags);
	if (ret) {
		w->posted--;
		w->state = BOUND;
	}
out:
	if (ret)
		sgp_count_refusal(ep, errno);
	sgp_unlock(&ep->send.lock);
	sgp_unlock(&ep->cq->lock);
	return ret;
}

static void let_go(struct sgp_window *w)
{
	sgp_chunk_put(w->chunk);
	w->chunk = NULL;
	w->state = FREE;
}

void sgp_window_ended_locked(const struct sgp_slot *slot)
{
	struct sgp_window *w = slot->window;
	bool failed = slot->done.status != IBV_WC_SUCCESS;

	w->posted--;
	if (slot->opcode == IBV_WC_LOCAL_INV && w->state == INVALIDATING) {
		if (failed)
			w->state = STUCK;
		else
			let_go(w);
	} else if (slot->opcode == IBV_WC_BIND_MW && failed && w->state != FREE) {
		/*
		 * It never became valid, unless the error is a flush of a queue pair that is gone
		 * or an answer that was lost: only the window's end is sure then.
		 */
		w->state = STUCK;
	}
}

void sgp_window_invalidated_locked(struct sgp_ep *ep, uint32_t rkey)
{
	for (struct sgp_window *w = ep->windows; w; w = w->next)
		if (w->rkey == rkey && (w->state == BOUND || w->state == INVALIDATING)) {
			let_go(w);
			return;
		}
}

uint32_t sgp_window_rkey(const struct sgp_window *w)
{
	return w ? w->rkey : 0;
}

int sgp_window_is_bound(const struct sgp_window *w)
{
	int bound;

	if (!w || sgp_check_fork())
		return 0;
	sgp_lock(&w->ep->cq->lock);
	bound = w->state != FREE;
	sgp_unlock(&w->ep->cq->lock);
	return bound;
}
