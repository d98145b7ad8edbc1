/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels. An event is a CQ on the channel's ready list; a CQ that owes several stands
 * there once and goes back to the end after each, so nothing is allocated when a completion comes.
 */
#include "softverbs/net.h"

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct sw_channel *ch;
	int err = SW_FAULT(create_comp_channel);

	if (err)
		return sw_null(err);
	ch = calloc(1, sizeof *ch);
	if (!ch)
		return sw_null(ENOMEM);
	if (sw_pollq_init(&ch->q)) {
		err = errno;
		free(ch);
		return sw_null(err);
	}
	sw_list_init(&ch->ready);
	ch->ibv.context = c;
	ch->ibv.fd = ch->q.ep;
	sw_lock();
	sw_ctx(c)->objects++;
	sw_count(SV_CHANNELS, 1);
	sw_unlock();
	return &ch->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct sw_channel *ch = sw_outer(channel, struct sw_channel, ibv);
	int err = SW_FAULT(destroy_comp_channel);

	if (err)
		return err;
	sw_lock();
	if (channel->refcnt) {
		sw_strict("ibv_destroy_comp_channel: %d completion queues still use it",
			  channel->refcnt);
		sw_unlock();
		return EBUSY;
	}
	sw_ctx(channel->context)->objects--;
	sw_count(SV_CHANNELS, -1);
	sw_unlock();
	sw_pollq_fini(&ch->q);
	free(ch);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct sw_channel *ch = sw_outer(channel, struct sw_channel, ibv);
	int err = SW_FAULT(get_cq_event);
	struct sw_cq *c;

	if (err)
		return sw_fail(err);
	sw_lock();
	while (sw_net_progress(), sw_due(), sw_list_empty(&ch->ready)) {
		sw_unlock();
		if (sw_pollq_wait(&ch->q))
			return -1;
		sw_lock();
	}
	c = sw_outer(ch->ready.next, struct sw_cq, ready);
	sw_list_del(&c->ready);
	if (--c->pending)
		sw_list_append(&ch->ready, &c->ready);
	sw_pollq_sub(&ch->q);
	c->comp_got++;
	*cq = ibv_cq_ex_to_cq(&c->ibv);
	*cq_context = c->ibv.cq_context;
	sw_unlock();
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	sw_lock();
	cq->comp_events_completed += n;
	sw_wake();
	sw_unlock();
}
