/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Client and server of sgpool perf in one process, each in a thread, on softverbs: for tests of the
 * command. They fail the test on what must not happen.
 */
#ifndef PERF_ENDS_H
#define PERF_ENDS_H

#include <pthread.h>

#include "cli/perf_client.h"
#include "cli/perf_server.h"
#include "cli/perf_session.h"

#define PARAMS(...)                                                                                \
	{                                                                                          \
		.sges = 1, .conns = 1, .threads = 1, __VA_ARGS__                                   \
	}

/* One end in its thread: what it was asked, what it wrote, and how it ended. */
struct perf_end {
	struct perf_server_options server;
	struct perf_client_options client;
	pthread_t thread;
	int results; /* what it writes can be read here */
	int status;
};

/* Start a server of one client, patient for so long; 0: as ever. Returns its port. */
uint16_t perf_start_server(struct perf_end *e, int timeout_ms);

/* 100 messages of this size, in JSON, patient as ever. */
struct perf_client_options perf_options(const struct perf_params *p, uint32_t size);
void perf_start_client(struct perf_end *e, const struct perf_client_options *o, uint16_t port);

/* Read one line of results. Returns false at their end. */
bool perf_read_line(const struct perf_end *e, char *line, size_t size);

/* Wait for its end. Returns its exit status. */
int perf_finish(struct perf_end *e);

/* The short patience of tests where something does not come; longer where all is slow. */
int perf_impatience(void);

/* An end's connection to a port of this host: its device found, its route resolved. */
struct rdma_cm_id *perf_resolve(struct rdma_event_channel *channel, uint16_t port);

/* The next event is one of this type. */
void perf_await(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
		struct cm_event *event);

/* Send n bytes of the link's own memory over a connection, whose queues are nobody's meanwhile. */
void perf_send_bytes(struct perf_link *l, uint32_t n);

#endif
