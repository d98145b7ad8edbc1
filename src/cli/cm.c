/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection manager events. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "cli/clock.h"
#include "cli/cm.h"
#include "cli/signals.h"

struct rdma_event_channel *cm_open(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	int flags;

	if (!channel)
		return NULL;
	flags = fcntl(channel->fd, F_GETFL);
	if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK)) {
		const int err = errno;

		rdma_destroy_event_channel(channel);
		errno = err;
		return NULL;
	}
	return channel;
}

int cm_next(struct rdma_event_channel *channel, struct cm_event *event)
{
	struct rdma_cm_event *got;

	if (rdma_get_cm_event(channel, &got))
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	*event = (struct cm_event){.type = got->event, .id = got->id, .status = got->status};
	if (got->param.conn.private_data) {
		event->length = got->param.conn.private_data_len;
		memcpy(event->data, got->param.conn.private_data, event->length);
	}
	rdma_ack_cm_event(got);
	return 1;
}

int cm_wait(struct rdma_event_channel *channel, int signal_fd, int timeout_ms,
	    struct cm_event *event)
{
	const int64_t end = clock_ms() + timeout_ms;
	struct pollfd fds[] = {{.fd = channel->fd, .events = POLLIN},
			       {.fd = signal_fd, .events = POLLIN}};

	for (;;) {
		const int got = cm_next(channel, event);
		const int64_t left = end - clock_ms();

		if (got)
			return got;
		if (left <= 0)
			return 0;
		if (poll(fds, 2, (int)left) < 0 && errno != EINTR)
			return -1;
		if (signals_next(signal_fd)) {
			errno = EINTR;
			return -1;
		}
	}
}
