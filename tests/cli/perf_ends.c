/* SPDX-License-Identifier: BSD-2-Clause */
/* Both ends of sgpool perf in one process, see perf_ends.h. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../asserts.h"
#include "ends.h"
#include "perf_ends.h"

static void *run_server(void *arg)
{
	struct perf_end *e = arg;

	e->status = perf_server_run(&e->server);
	fclose(e->server.out);
	return NULL;
}

static void *run_client(void *arg)
{
	struct perf_end *e = arg;

	e->status = perf_client_run(&e->client);
	fclose(e->client.out);
	return NULL;
}

static FILE *open_results(struct perf_end *e)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	e->results = fds[0];
	return fdopen(fds[1], "w");
}

bool perf_read_line(const struct perf_end *e, char *line, size_t size)
{
	const struct end as_end = {.results = e->results};

	return end_read_line(&as_end, line, size);
}

uint16_t perf_start_server(struct perf_end *e, int timeout_ms)
{
	char line[512];
	const char *port;

	e->server = (struct perf_server_options){.name = "perf",
						 .addr = {.host = "127.0.0.1"},
						 .once = true,
						 .timeout_ms =
							 timeout_ms ? timeout_ms : CONN_SILENCE_MS,
						 .json = true,
						 .out = open_results(e)};
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_server, e), 0);
	ck_assert(perf_read_line(e, line, sizeof line));
	port = strstr(line, "\"port\": ");
	ck_assert_ptr_nonnull(port);
	return (uint16_t)atoi(port + 8);
}

struct perf_client_options perf_options(const struct perf_params *p, uint32_t size)
{
	return (struct perf_client_options){.name = "perf",
					    .addr = {.host = "127.0.0.1"},
					    .params = *p,
					    .sizes = {size},
					    .nsizes = 1,
					    .iterations = 100,
					    .rounds = 3,
					    .timeout_ms = CONN_SILENCE_MS,
					    .json = true};
}

void perf_start_client(struct perf_end *e, const struct perf_client_options *o, uint16_t port)
{
	e->client = *o;
	e->client.addr.port = port;
	e->client.out = open_results(e);
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_client, e), 0);
}

int perf_finish(struct perf_end *e)
{
	pthread_join(e->thread, NULL);
	close(e->results);
	return e->status;
}

int perf_impatience(void)
{
	const char *times = getenv("CK_TIMEOUT_MULTIPLIER"); /* 5, and 20 under valgrind */
	const int ms = times ? 1000 * atoi(times) : 0;

	return ms > 5000 ? ms : 5000;
}

void perf_await(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
		struct cm_event *event)
{
	ck_assert_int_eq(cm_wait(channel, -1, 60000, event), 1);
	ck_assert_msg(event->type == type, "%s instead of %s", rdma_event_str(event->type),
		      rdma_event_str(type));
}

struct rdma_cm_id *perf_resolve(struct rdma_event_channel *channel, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	struct rdma_cm_id *id;
	struct cm_event event;

	ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&sin, 1000), 0);
	perf_await(channel, RDMA_CM_EVENT_ADDR_RESOLVED, &event);
	ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
	perf_await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, &event);
	return id;
}

void perf_send_bytes(struct perf_link *l, uint32_t n)
{
	SGP_SGL(sgl, 1);
	struct ibv_sge sge = {(uintptr_t)sgp_chunk_addr(l->fence), n, sgp_chunk_lkey(l->fence)};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	struct sgp_chunk *chunk;

	if (!l->worker->test->pool) {
		ck_assert_int_eq(ibv_post_send(l->id->qp, &wr, &bad), 0);
		return;
	}
	chunk = sgp_pool_get(l->worker->test->pool, n, 0);
	ck_assert_ptr_nonnull(chunk);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, n), 0);
	ck_assert_int_eq(sgp_flow_sendv(&l->flow, l, &sgl, 0), 0);
}
