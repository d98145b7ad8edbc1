/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The completion queue: it wraps an ibv_cq wholly, so every completion on it belongs to an endpoint
 * of ours, or to one that is gone.
 *
 * Locking: everything below the public calls runs under the queue's lock, which is the poller's
 * role (queue.h). It's never held while sleeping.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "pool/errmsg.h"
#include "pool/served.h"
#include "pool/thread.h"
#include "post/ep.h"

/* How long a wait sleeps at most while a receive is to be posted again. */
#define RETRY_MS 10

/*
 * How long a sleeper leaves an unsignalled tail alone. To retire it costs a message and wakes the
 * sleeper up once more; the next send mostly does it for nothing.
 */
#define TAIL_NS 1000000

/* ---- the inbox ---- */

void sgp_cq_send_back(struct sgp_cq *cq, struct sgp_slot *slot)
{
	sgp_lock(&cq->inbox_lock);
	slot->untaken = NULL;
	*cq->untaken_end = slot;
	cq->untaken_end = &slot->untaken;
	atomic_store_explicit(&cq->inbox, true, memory_order_release);
	sgp_unlock(&cq->inbox_lock);
	sgp_cq_wake(cq);
}

void sgp_cq_list(struct sgp_cq *cq, struct sgp_ep *ep)
{
	if (ep->listed)
		return;
	ep->listed = true;
	sgp_lock(&cq->inbox_lock);
	ep->next = cq->attention;
	cq->attention = ep;
	atomic_store(&cq->inbox, true);
	sgp_unlock(&cq->inbox_lock);
}

/* Either this sees that the queue is armed, or sgp_cq_arm() that there is something in the inbox.
 */
void sgp_cq_rouse(struct sgp_cq *cq)
{
	if (atomic_load(&cq->armed) && atomic_exchange(&cq->armed, false))
		sgp_cq_wake(cq);
}

static void unlist(struct sgp_cq *cq, struct sgp_ep *ep)
{
	sgp_lock(&cq->inbox_lock);
	for (struct sgp_ep **at = &cq->attention; *at; at = &(*at)->next)
		if (*at == ep) {
			*at = ep->next;
			break;
		}
	sgp_unlock(&cq->inbox_lock);
}

/* ---- places ---- */

void sgp_cq_renew_locked(struct sgp_cq *cq, struct sgp_ep *ep)
{
	struct sgp_place *place = &cq->place[ep->index];

	place->generation =
		place->generation == SGP_WR_GENERATION ? 1 : (uint16_t)(place->generation + 1);
	ep->send.wr_base = (uint64_t)place->generation << 48 | (uint64_t)ep->index << 32;
	ep->recv.wr_base = ep->send.wr_base | SGP_WR_RECV;
}

int sgp_cq_reserve_locked(struct sgp_cq *cq, unsigned int room)
{
	unsigned int entries = cq->reserved + room;

	if (cq->failed)
		return sgp_fail(EIO, "the completion queue has failed: make another one");
	if (entries > (unsigned int)cq->cq->cqe) {
		int err;

		errno = 0;
		err = sgp_provider_errno(ibv_resize_cq(cq->cq, (int)entries));
		if (!err && entries > (unsigned int)cq->cq->cqe)
			err = ENOSPC;
		if (err)
			return sgp_fail(
				err,
				"the completion queue has %d entries, %u are taken and %u more "
				"needed, and the device cannot resize it: create it with more",
				cq->cq->cqe, cq->reserved, room);
	}
	cq->reserved = entries;
	return 0;
}

int sgp_cq_attach(struct sgp_cq *cq, struct sgp_ep *ep, unsigned int room)
{
	struct sgp_place *place;
	unsigned int i;

	sgp_lock(&cq->lock);
	if (sgp_cq_reserve_locked(cq, room))
		goto out;
	sgp_lock(&cq->places_lock);
	for (i = 0; i < cq->nplaces; i++)
		if (!cq->place[i].ep && !cq->place[i].awaits_empty)
			break;
	if (i == SGP_MAX_ENDPOINTS) {
		sgp_set_error(ENOSPC, "a completion queue serves at most %d endpoints",
			      SGP_MAX_ENDPOINTS);
		goto no_place;
	}
	if (i == cq->nplaces) {
		unsigned int n = cq->nplaces ? 2 * cq->nplaces : 8;
		struct sgp_place *grown = realloc(cq->place, n * sizeof *grown);

		if (!grown) {
			sgp_set_error(ENOMEM, "no memory for %u endpoints", n);
			goto no_place;
		}
		memset(grown + cq->nplaces, 0, (n - cq->nplaces) * sizeof *grown);
		cq->place = grown;
		cq->nplaces = n;
	}
	place = &cq->place[i];
	place->ep = ep;
	sgp_unlock(&cq->places_lock);
	place->room = room;
	cq->neps++;
	ep->index = i;
	sgp_cq_renew_locked(cq, ep);
	sgp_unlock(&cq->lock);
	return 0;

no_place:
	sgp_unlock(&cq->places_lock);
	cq->reserved -= room;
out:
	sgp_unlock(&cq->lock);
	return -1;
}

void sgp_cq_await_empty_locked(struct sgp_cq *cq, struct sgp_ep *ep)
{
	cq->place[ep->index].awaits_empty = true;
	cq->nawaiting++;
}

void sgp_cq_forgo_room(struct sgp_cq *cq, const struct sgp_ep *ep)
{
	sgp_lock(&cq->lock);
	cq->place[ep->index].room = 0;
	sgp_unlock(&cq->lock);
}

void sgp_cq_detach(struct sgp_cq *cq, struct sgp_ep *ep)
{
	struct sgp_place *place;

	sgp_lock(&cq->lock);
	unlist(cq, ep);
	place = &cq->place[ep->index];
	sgp_lock(&cq->places_lock);
	place->ep = NULL;
	sgp_unlock(&cq->places_lock);
	cq->neps--;
	if (!place->awaits_empty) {
		cq->reserved -= place->room;
		place->room = 0;
	}
	sgp_unlock(&cq->lock);
}

/* ---- the public calls ---- */

static int open_wakeups(struct sgp_cq *cq, struct ibv_context *verbs)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int flags;

	errno = 0;
	cq->channel = ibv_create_comp_channel(verbs);
	if (!cq->channel)
		return sgp_fail(errno > 0 ? errno : EIO, "no completion channel on this device");
	cq->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	cq->tail_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	cq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	flags = fcntl(cq->channel->fd, F_GETFL);
	if (cq->wake_fd < 0 || cq->tail_fd < 0 || cq->epoll_fd < 0 || flags < 0 ||
	    fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK) ||
	    epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, cq->channel->fd, &ev) ||
	    epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, cq->wake_fd, &ev) ||
	    epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, cq->tail_fd, &ev))
		return sgp_fail(errno, "no descriptor to wait on: %s", strerror(errno));
	return 0;
}

static void close_wakeups(struct sgp_cq *cq)
{
	int err = errno;

	if (cq->epoll_fd >= 0)
		close(cq->epoll_fd);
	if (cq->wake_fd >= 0)
		close(cq->wake_fd);
	if (cq->tail_fd >= 0)
		close(cq->tail_fd);
	if (cq->channel)
		ibv_destroy_comp_channel(cq->channel);
	errno = err;
}

static int make(struct sgp_cq *cq, struct ibv_context *verbs, const struct sgp_cq_attr *attr)
{
	if (attr->flags & SGP_CQ_TIMESTAMPS)
		return sgp_cq_make_ex(cq, verbs, attr);
	errno = 0;
	cq->cq = ibv_create_cq(verbs, attr->cqe, cq, cq->channel, attr->comp_vector);
	if (!cq->cq)
		return sgp_fail(errno > 0 ? errno : EIO, "no completion queue of %d entries: %s",
				attr->cqe, strerror(errno));
	return 0;
}

static int end(struct sgp_cq *cq)
{
	int err;

	errno = 0;
	err = sgp_provider_errno(ibv_destroy_cq(cq->cq));
	if (err)
		return sgp_fail(err, "ibv_destroy_cq: %s", strerror(err));
	free(cq->stamp);
	cq->stamp = NULL;
	return 0;
}

/*
 * Whether a device resizes its queues, only the attempt tells. One that does not gets the queue anew,
 * as long as it will ever be; and if the short one can't be ended, that is it.
 */
static int make_long_if_fixed(struct sgp_cq *cq, struct ibv_context *verbs,
			      const struct sgp_cq_attr *attr)
{
	struct sgp_cq_attr whole = *attr;
	struct ibv_device_attr dev;
	int err;

	if (attr->cqe_fixed <= attr->cqe)
		return make(cq, verbs, attr);
	errno = 0;
	err = sgp_provider_errno(ibv_query_device(verbs, &dev));
	if (err)
		return sgp_fail(err, "completion queue: the device does not answer: %s",
				strerror(err));
	if (attr->cqe_fixed > dev.max_cqe)
		whole.cqe = dev.max_cqe;
	else
		whole.cqe = attr->cqe_fixed;
	if (make(cq, verbs, attr))
		return -1;
	if (cq->cq->cqe >= whole.cqe)
		return 0;
	errno = 0;
	err = sgp_provider_errno(ibv_resize_cq(cq->cq, cq->cq->cqe + 1));
	/* Any other error is one of now: the queue may grow when it needs to. */
	if ((err != EOPNOTSUPP && err != ENOSYS) || end(cq))
		return 0;
	return make(cq, verbs, &whole);
}

struct sgp_cq *sgp_cq_create(struct ibv_context *verbs, const struct sgp_cq_attr *attr)
{
	struct sgp_cq *cq;

	sgp_threads_init();
	if (sgp_check_fork())
		return NULL;
	if (!verbs || !attr || attr->comp_mask ||
	    attr->flags & ~(SGP_CQ_SINGLE_THREADED | SGP_CQ_TIMESTAMPS) || attr->cqe < 1 ||
	    attr->cqe_fixed < 0 || attr->max_sge < 0 || attr->max_chunk < 0 ||
	    attr->max_sge > UINT16_MAX || attr->max_chunk > UINT16_MAX)
		return sgp_fail_null(EINVAL, "completion queue: a device, attributes with at least "
					     "one entry, and known flags are needed");
	cq = calloc(1, sizeof *cq);
	if (!cq)
		return sgp_fail_null(ENOMEM, "no memory for a completion queue");
	cq->epoll_fd = cq->wake_fd = cq->tail_fd = -1;
	cq->single_threaded = attr->flags & SGP_CQ_SINGLE_THREADED;
	cq->max_sge = attr->max_sge ? attr->max_sge : 16;
	cq->max_chunk = attr->max_chunk ? attr->max_chunk : cq->max_sge;
	cq->pending_end = &cq->pending;
	cq->untaken_end = &cq->untaken;
	sgp_lock_init(&cq->lock, cq->single_threaded);
	sgp_lock_init(&cq->places_lock, cq->single_threaded);
	sgp_lock_init(&cq->inbox_lock, cq->single_threaded);
	if (open_wakeups(cq, verbs))
		goto fail;
	if (make_long_if_fixed(cq, verbs, attr))
		goto fail;
	return cq;
fail:
	close_wakeups(cq);
	sgp_lock_destroy(&cq->inbox_lock);
	sgp_lock_destroy(&cq->places_lock);
	sgp_lock_destroy(&cq->lock);
	free(cq);
	return NULL;
}

int sgp_cq_destroy(struct sgp_cq *cq)
{
	if (sgp_check_fork())
		return -1;
	if (!cq)
		return sgp_fail(EINVAL, "no completion queue");
	if (cq->neps)
		return sgp_fail(EBUSY,
				"%u endpoints are on the completion queue: close and destroy "
				"them first",
				cq->neps);
	if (end(cq))
		return -1;
	close_wakeups(cq);
	sgp_lock_destroy(&cq->inbox_lock);
	sgp_lock_destroy(&cq->places_lock);
	sgp_lock_destroy(&cq->lock);
	sgp_cq_free_seats_locked(cq);
	free(cq->place);
	free(cq);
	return 0;
}

int sgp_poll(struct sgp_cq *cq, int n, struct sgp_wc *wc)
{
	int got;

	if (sgp_refuse_child())
		return -1;
	if (!cq || !wc || n < 1)
		return sgp_fail(EINVAL, "poll: a queue and room for a completion are needed");
	if (wc->sgl.max_sge < cq->max_sge || wc->sgl.max_chunk < cq->max_chunk)
		return sgp_fail(EINVAL, "poll: the completions' lists are too small for this "
					"queue: make them with its sgp_wc_alloc()");
	sgp_served_hold();
	sgp_lock(&cq->lock);
	got = sgp_cq_reap_locked(cq, n, wc);
	sgp_unlock(&cq->lock);
	sgp_served_release();
	return got;
}

/* ---- waiting ---- */

int sgp_cq_fd(const struct sgp_cq *cq)
{
	return cq ? cq->epoll_fd : sgp_fail(EINVAL, "no completion queue");
}

void sgp_cq_wake(struct sgp_cq *cq)
{
	/* It can only fail when the counter is full, and then the descriptor is readable already.
	 */
	(void)!write(cq->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	/* Afterwards: whoever finds it set finds something to read. Set too late, it costs a wake-up. */
	atomic_store_explicit(&cq->roused, true, memory_order_release);
}

/*
 * Take what made the descriptor readable, acknowledging the event (law 2.14). There is one for each
 * time that the queue was armed; a second one, of an arming that crossed an event, wakes once more.
 */
static void take_wakeups_locked(struct sgp_cq *cq)
{
	struct ibv_cq *event_cq;
	void *event_context;
	uint64_t count;

	if (!ibv_get_cq_event(cq->channel, &event_cq, &event_context))
		ibv_ack_cq_events(cq->cq, 1);
	if (atomic_exchange_explicit(&cq->roused, false, memory_order_acquire))
		(void)!read(cq->wake_fd, &count, sizeof count);
}

/*
 * See to the endpoints before somebody sleeps: what is gathered goes out, and tails that have waited
 * long enough are retired. For the others the timer wakes the sleeper.
 */
static void attend_to_sleep_locked(struct sgp_cq *cq)
{
	const struct itimerspec soon = {.it_value.tv_nsec = TAIL_NS};
	uint64_t count;
	bool over = cq->tail_waits && read(cq->tail_fd, &count, sizeof count) > 0;

	if (over)
		cq->tail_waits = false;
	if (!atomic_load(&cq->inbox))
		return;
	sgp_cq_attend_locked(cq, over);
	if (cq->tail_waits || !atomic_load(&cq->inbox))
		return;
	cq->tail_waits = !timerfd_settime(cq->tail_fd, 0, &soon, NULL);
	if (!cq->tail_waits)
		sgp_cq_attend_locked(cq, true);
}

int sgp_cq_arm(struct sgp_cq *cq)
{
	bool more;
	int err;

	if (sgp_check_fork())
		return -1;
	if (!cq)
		return sgp_fail(EINVAL, "no completion queue");
	sgp_lock(&cq->lock);
	take_wakeups_locked(cq);
	/* Whoever sleeps waits for completions: gathered posts and tails must give theirs. */
	atomic_store(&cq->armed, true);
	attend_to_sleep_locked(cq);
	errno = 0;
	err = sgp_provider_errno(ibv_req_notify_cq(cq->cq, 0));
	sgp_lock(&cq->inbox_lock);
	more = cq->pending || cq->untaken || atomic_load(&cq->served);
	sgp_unlock(&cq->inbox_lock);
	if (more)
		sgp_cq_wake(cq);
	sgp_unlock(&cq->lock);
	return err ? sgp_fail(err, "ibv_req_notify_cq: %s", strerror(err)) : 0;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Whether the device has refused receives that are to be posted again: no event will tell when it
 * would take them. */
static bool owes_receives(struct sgp_cq *cq)
{
	bool owes;

	sgp_lock(&cq->lock);
	owes = cq->listed;
	sgp_unlock(&cq->lock);
	return owes;
}

int sgp_wait(struct sgp_cq *cq, int n, struct sgp_wc *wc, int timeout_ms)
{
	int64_t end = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;

	for (;;) {
		struct pollfd pfd = {.events = POLLIN};
		int64_t left;
		int got = sgp_poll(cq, n, wc);

		if (got)
			return got;
		/* Arm, then look again: what came in between rings no bell (law 2.14). */
		if (sgp_cq_arm(cq))
			return -1;
		got = sgp_poll(cq, n, wc);
		if (got == n) /* another may sleep whose event was taken here, and there is more */
			sgp_cq_wake(cq);
		if (got)
			return got;
		left = timeout_ms < 0 ? -1 : end - now_ms();
		if (timeout_ms >= 0 && left <= 0)
			return 0;
		if (owes_receives(cq) && (left < 0 || left > RETRY_MS))
			left = RETRY_MS;
		pfd.fd = cq->epoll_fd;
		if (poll(&pfd, 1, (int)left) < 0)
			return sgp_fail(errno, "waiting for a completion: %s", strerror(errno));
	}
}
