/* SPDX-License-Identifier: BSD-2-Clause */
/* The asynchronous events of a device. */
#include <fcntl.h>

#include "cli/async.h"

int async_open(struct ibv_context *verbs)
{
	const int flags = fcntl(verbs->async_fd, F_GETFL);

	return flags < 0 ? -1 : fcntl(verbs->async_fd, F_SETFL, flags | O_NONBLOCK);
}

const char *async_take(struct ibv_context *verbs, struct sgp_cq *const cq[], int n)
{
	struct ibv_async_event event;
	const char *ended = NULL;

	while (!ibv_get_async_event(verbs, &event)) {
		for (int i = 0; i < n; i++)
			sgp_cq_event(cq[i], &event);
		if (event.event_type == IBV_EVENT_DEVICE_FATAL)
			ended = "the RDMA device has failed";
		else if (event.event_type == IBV_EVENT_CQ_ERR)
			ended = "a completion queue has overrun";
		ibv_ack_async_event(&event);
	}
	return ended;
}
