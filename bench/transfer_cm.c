/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections by the connection manager, with synchronous identifiers. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "transfer.h"

enum {
	RESOLVE_MS = 20000 /* emulated machines take their time */
};

static struct sockaddr_in address(const struct transfer *t)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(t->port)};

	inet_pton(AF_INET, t->addr, &sin.sin_addr);
	return sin;
}

int transfer_cm_begin(struct transfer_cm *cm, const struct transfer *t)
{
	struct sockaddr_in sin = address(t);
	struct sockaddr *sa = (struct sockaddr *)&sin;

	*cm = (struct transfer_cm){0};
	if (t->passive) {
		if (rdma_create_id(NULL, &cm->listener, NULL, RDMA_PS_TCP))
			return -1;
		if (rdma_bind_addr(cm->listener, sa) || rdma_listen(cm->listener, 1))
			goto fail;
		transfer_tell_port(t, ntohs(rdma_get_src_port(cm->listener)));
		if (rdma_get_request(cm->listener, &cm->id))
			goto fail;
		return 0;
	}
	if (rdma_create_id(NULL, &cm->id, NULL, RDMA_PS_TCP))
		return -1;
	if (rdma_resolve_addr(cm->id, NULL, sa, RESOLVE_MS) ||
	    rdma_resolve_route(cm->id, RESOLVE_MS))
		goto fail;
	return 0;
fail:
	transfer_cm_end(cm);
	return -1;
}

int transfer_cm_finish(struct transfer_cm *cm, const struct transfer *t, uint8_t *data, uint8_t n)
{
	struct rdma_conn_param param = {.private_data = data,
					.private_data_len = n,
					.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};
	const struct rdma_conn_param *got = &cm->id->event->param.conn;
	uint8_t theirs[256] = {0};

	/* The request's event is still there, the answer's is so until the id goes. */
	if (t->passive && got->private_data_len >= n)
		memcpy(theirs, got->private_data, n);
	if (t->passive ? rdma_accept(cm->id, &param) : rdma_connect(cm->id, &param))
		return -1;
	got = &cm->id->event->param.conn;
	if (!t->passive && got->private_data_len >= n)
		memcpy(theirs, got->private_data, n);
	memcpy(data, theirs, n);
	return 0;
}

void transfer_cm_end(struct transfer_cm *cm)
{
	if (cm->id)
		rdma_destroy_id(cm->id);
	if (cm->listener)
		rdma_destroy_id(cm->listener);
	*cm = (struct transfer_cm){0};
}
