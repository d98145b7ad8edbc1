/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Seats: what a completion queue knows of the receive queues that it keeps full (refill.h). The
 * poller lists those whose receives it has handed out, and sees to them before the poll returns. A
 * put on any thread that has chunks for one which it could not post itself puts it on a stack that
 * the next poll takes, and wakes who sleeps.
 */
#include <errno.h>
#include <stdlib.h>

#include "post/ep.h"
#include "post/refill.h"

void sgp_seat_rouse(struct sgp_seat *seat)
{
	struct sgp_cq *cq = seat->cq;
	struct sgp_seat *top;

	if (atomic_exchange(&seat->served, true))
		return;
	top = atomic_load(&cq->served);
	do
		seat->next_served = top;
	while (!atomic_compare_exchange_weak(&cq->served, &top, seat));
	sgp_cq_wake(cq);
}

static void take_served_locked(struct sgp_cq *cq)
{
	struct sgp_seat *seat = atomic_exchange(&cq->served, NULL), *next;

	for (; seat; seat = next) {
		next = seat->next_served;
		atomic_store(&seat->served, false);
		sgp_seat_list_locked(cq, seat);
	}
}

__attribute__((noinline)) void sgp_cq_refill_locked(struct sgp_cq *cq)
{
	struct sgp_seat *seat, *next;
	int err = errno;

	take_served_locked(cq);
	seat = cq->listed;
	cq->listed = NULL;
	for (; seat; seat = next) {
		struct sgp_refill *r = seat->refill;
		bool again;

		next = seat->next_listed;
		seat->listed = false;
		sgp_lock(&r->side->lock);
		again = sgp_refill_locked(r, NULL);
		sgp_unlock(&r->side->lock);
		if (again)
			sgp_seat_list_locked(cq, seat);
	}
	errno = err;
}

void sgp_cq_free_seats_locked(struct sgp_cq *cq)
{
	struct sgp_seat **at = &cq->seats, *seat;

	while ((seat = *at)) {
		if (seat->srq) {
			at = &seat->next_on_cq;
			continue;
		}
		*at = seat->next_on_cq;
		cq->reserved -= seat->room;
		cq->nleft--;
		free(seat);
	}
}

void sgp_seat_forget_locked(struct sgp_cq *cq, struct sgp_seat *seat)
{
	struct sgp_seat **at = &cq->listed;

	take_served_locked(cq);
	while (*at && *at != seat)
		at = &(*at)->next_listed;
	if (*at)
		*at = seat->next_listed;
}
