/* SPDX-License-Identifier: BSD-2-Clause */
/* The registered memory of a transfer on one device. */
#include <errno.h>
#include <string.h>

#include "cli/buffers.h"
#include "cli/cli.h"

/*
 * A header for each message with payload, one for each message without that may be posted, and one
 * for each receive of the sender.
 */
enum {
	HEADERS = TRANSFER_MESSAGES + 2 * TRANSFER_CONTROLS
};

int buffers_open(struct buffers *b, struct ibv_context *verbs, bool with_payload,
		 const char *command)
{
	const char *device = ibv_get_device_name(verbs->device);
	const struct sgp_class_attr header = {.size = WIRE_HEADER, .chunks = HEADERS};
	const struct sgp_class_attr chunk = {.size = TRANSFER_CHUNK,
					     .chunks = (size_t)TRANSFER_MESSAGES * TRANSFER_CHUNKS};
	const struct sgp_pool_attr headers = {
		.classes = &header, .nclasses = 1, .pages = SGP_PAGES_BASE};
	const struct sgp_pool_attr payload = {.classes = &chunk, .nclasses = 1};

	*b = (struct buffers){.verbs = verbs};
	b->pd = ibv_alloc_pd(verbs);
	if (!b->pd) {
		cli_error(command, "%s: no protection domain: %s; see 'rdma resource'", device,
			  strerror(errno));
		return -1;
	}
	if (with_payload)
		b->payload = sgp_pool_create(b->pd, &payload);
	if (!with_payload || b->payload)
		b->headers = sgp_pool_create(b->pd, &headers);
	if (b->headers)
		return 0;
	cli_error(command, "%s: no buffers: %s", device, sgp_errmsg());
	buffers_close(b);
	return -1;
}

void buffers_close(struct buffers *b)
{
	if (b->headers)
		sgp_pool_destroy(b->headers);
	if (b->payload)
		sgp_pool_destroy(b->payload);
	if (b->pd)
		ibv_dealloc_pd(b->pd);
	*b = (struct buffers){0};
}

uint64_t buffers_registrations(const struct buffers *b)
{
	struct sgp_pool_stats headers, payload = {0};

	sgp_pool_stats(b->headers, &headers);
	if (b->payload)
		sgp_pool_stats(b->payload, &payload);
	return headers.registrations + payload.registrations;
}
