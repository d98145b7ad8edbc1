/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of a link over RDMA in one process and one loop, on softverbs. Checks by Check.
 *
 * The server's end takes packets and compares each PUBLISH's payload with what test_byte() says; with
 * echo it sends each back, out of the same chunks.
 */
#ifndef TESTS_BROKER_RDMA_ENDS_H
#define TESTS_BROKER_RDMA_ENDS_H

#include "../asserts.h"
#include "link_rdma.h"

struct end {
	struct link *link;
	uint32_t got;       /* PUBLISHes */
	uint64_t got_bytes; /* of payload */
	bool closed;
	int err;
	char why[200];
};

struct ends {
	struct loop *loop;
	struct memory memory;
	struct link_host host;
	struct link_rdma *rdma;
	struct link_rdma_listener listener;
	struct sockaddr_in addr;
	struct end client, server;
	bool echo;
	struct back *back, **last_back;
	int step;             /* the test's own */
	uint32_t piece;       /* payloads are in chunks of so many bytes; 0: in as few as hold them */
	uint32_t pause_after; /* the server asks for no more after so many; 0: never */
	/* Called at the end of each turn, or so; returns true when all is done. */
	bool (*done)(struct ends *e);
	void (*writable)(struct ends *e); /* the client's */
	struct loop_timer timer, limit;
};

/* What byte number i of a payload of n bytes is. */
uint8_t test_byte(uint32_t n, uint32_t i);

/* Memory, and neither a listener nor a connection. */
void ends_prepare(struct ends *e, const struct mqr_attr *attr, size_t mib);

/* With a listener. */
void ends_open(struct ends *e, const struct mqr_attr *attr, size_t mib);

/* Begin to connect the client's end. */
void ends_connect(struct ends *e);

/* Run until e->done() says so; fails after a while. */
void ends_run(struct ends *e);

/* Send a PUBLISH of n bytes of payload and a topic of so many. False: not now. */
bool ends_publish(struct ends *e, struct link *link, uint32_t n, uint16_t topic_bytes);

/* All links have been closed. Checks that every chunk is back. */
void ends_close(struct ends *e);

#endif
