/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the connection manager waits for, and for how long: an answer to a connect request, somebody
 * who listens for it, an answer to a disconnect, and the end of the time during which late packets
 * might arrive. Each id waits for one thing at most; each end of a wait but the second is an event
 * on its channel, so a channel's timer seldom wakes anybody for nothing.
 */
#include "softverbs/cm.h"

/* The kernel's: 16 tries of 4.096 us << 20 each. */
#define ANSWER_NS   (16 * (4096ull << 20))
#define TIMEWAIT_NS (4096ull << 19)
/* Before one asks again. */
#define AGAIN_NS 10000000u

static unsigned int waits;

static void set_alarm(struct sw_id *id)
{
	struct sw_cm_chan *ch = sw_cm_chan(id->id.channel);
	uint64_t when = SW_NEVER;
	struct sw_list *l;

	sw_each (l, sw_cm_ids()) {
		struct sw_id *o = sw_outer(l, struct sw_id, link);

		if (o->await && o->id.channel == &ch->ibv && o->deadline < when)
			when = o->deadline;
	}
	sw_pollq_at(&ch->q, when);
}

void sw_cm_await(struct sw_id *id, enum sw_cm_wait what)
{
	if (id->await == what)
		return;
	waits += (what != SW_CM_NOTHING) - (id->await != SW_CM_NOTHING);
	id->await = what;
	id->deadline = sw_now() + (what == SW_CM_TIMEWAIT ? TIMEWAIT_NS
				   : what == SW_CM_AGAIN  ? AGAIN_NS
							  : ANSWER_NS);
	set_alarm(id);
}

void sw_cm_alarm_moved(struct sw_id *id)
{
	if (id->await)
		set_alarm(id);
}

static void over(struct sw_id *id)
{
	enum sw_cm_wait what = id->await;
	struct sw_event *e = NULL;

	sw_cm_await(id, SW_CM_NOTHING);
	switch (what) {
	case SW_CM_ANSWER:
		sw_cm_hangup(id);
		id->state = SW_CM_CLOSED;
		e = sw_cm_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	case SW_CM_GOODBYE:
		id->state = SW_CM_CLOSED;
		e = sw_cm_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		sw_cm_await(id, SW_CM_TIMEWAIT);
		break;
	case SW_CM_TIMEWAIT:
		e = sw_cm_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		break;
	case SW_CM_AGAIN:
		sw_cm_ask_again(id);
		return;
	case SW_CM_NOTHING:
		break;
	}
	sw_cm_event_priv(e, NULL, 0, 0);
}

void sw_cm_due(void)
{
	struct sw_list *l;
	uint64_t now;

	if (!waits)
		return;
	now = sw_now();
	sw_each (l, sw_cm_ids()) {
		struct sw_id *id = sw_outer(l, struct sw_id, link);

		if (id->await && id->deadline <= now)
			over(id);
	}
}
