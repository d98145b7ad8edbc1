/* SPDX-License-Identifier: BSD-2-Clause */
/* A small host (see host.h). */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../asserts.h"
#include "host.h"

#define ADDR        "127.0.0.1"
#define HOST_SENDS  256 /* capsules that may be on their way */
#define RESOLVE_MS  5000
#define PATIENCE_MS 120000

int nvmf_target_main(int argc, char **argv);

/* ---- the target ---- */

static struct {
	uint16_t port; /* tests of several builds may run at once */
	pthread_t thread;
	char *argv[32];
	int argc;
	int status;
	int out[2];
} target;

static void *run_target(void *arg)
{
	(void)arg;
	target.status = nvmf_target_main(target.argc, target.argv);
	dprintf(target.out[1], "it has ended\n");
	return NULL;
}

void target_start(const char *const args[])
{
	char listen[32], line[256] = "";
	const char *const fixed[] = {"target", "--listen", listen, "--nqn", TARGET_NQN};
	sigset_t set;
	int out;

	target.port = (uint16_t)(20000 + getpid() % 10000);
	snprintf(listen, sizeof listen, "%s:%u", ADDR, target.port);
	/* Its signals are for its descriptor, in all threads. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		target.argv[target.argc++] = strdup(fixed[i]);
	for (size_t i = 0; args[i]; i++)
		target.argv[target.argc++] = strdup(args[i]);
	ck_assert_int_eq(pipe(target.out), 0);
	/* What it says first is for us. */
	fflush(stdout);
	out = dup(STDOUT_FILENO);
	ck_assert_int_eq(dup2(target.out[1], STDOUT_FILENO), STDOUT_FILENO);
	ck_assert_int_eq(pthread_create(&target.thread, NULL, run_target, NULL), 0);
	ck_assert_int_gt(read(target.out[0], line, sizeof line - 1), 0);
	ck_assert_int_eq(dup2(out, STDOUT_FILENO), STDOUT_FILENO);
	close(out);
	ck_assert_msg(!strncmp(line, "listening", 9), "the target does not start: %s", line);
}

uint16_t target_port(void)
{
	return target.port;
}

int target_stop(void)
{
	ck_assert_int_eq(kill(getpid(), SIGTERM), 0);
	ck_assert_int_eq(pthread_join(target.thread, NULL), 0);
	for (int i = 0; i < target.argc; i++)
		free(target.argv[i]);
	close(target.out[0]);
	close(target.out[1]);
	return target.status;
}

/* ---- connections ---- */

static struct rdma_cm_event *next_event(struct host *h)
{
	struct pollfd fd = {.fd = h->events->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	ck_assert_int_eq(poll(&fd, 1, PATIENCE_MS), 1);
	ck_assert_int_eq(rdma_get_cm_event(h->events, &event), 0);
	return event;
}

static void expect(struct host *h, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(h);

	ck_assert_msg(event->event == type, "%s came instead of %s", rdma_event_str(event->event),
		      rdma_event_str(type));
	rdma_ack_cm_event(event);
}

uint8_t *host_data(struct host *h)
{
	return h->memory;
}

static uint8_t *capsule_at(struct host *h, int i)
{
	return h->memory + HOST_DATA + (size_t)i * sizeof(struct wire_command);
}

static uint8_t *response_at(struct host *h, int i)
{
	return capsule_at(h, HOST_SENDS) + (size_t)i * sizeof(struct wire_response);
}

static void post_receive(struct host *h, int i)
{
	struct ibv_sge sge = {.addr = (uintptr_t)response_at(h, i),
			      .length = sizeof(struct wire_response),
			      .lkey = h->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1}, *bad;

	ck_assert_int_eq(ibv_post_recv(h->id->qp, &wr, &bad), 0);
}

static void prepare(struct host *h)
{
	const size_t bytes = HOST_DATA + HOST_SENDS * sizeof(struct wire_command) +
			     h->depth * sizeof(struct wire_response);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(target.port)};
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = HOST_SENDS,
						.max_recv_wr = h->depth,
						.max_send_sge = 2,
						.max_recv_sge = 1}};

	h->events = rdma_create_event_channel();
	ck_assert_ptr_nonnull(h->events);
	ck_assert_int_eq(rdma_create_id(h->events, &h->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(inet_pton(AF_INET, ADDR, &to.sin_addr), 1);
	ck_assert_int_eq(rdma_resolve_addr(h->id, NULL, (struct sockaddr *)&to, RESOLVE_MS), 0);
	expect(h, RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(rdma_resolve_route(h->id, RESOLVE_MS), 0);
	expect(h, RDMA_CM_EVENT_ROUTE_RESOLVED);
	h->pd = ibv_alloc_pd(h->id->verbs);
	h->cq = ibv_create_cq(h->id->verbs, HOST_SENDS + h->depth, NULL, NULL, 0);
	ck_assert(h->pd && h->cq);
	h->memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	ck_assert_ptr_nonnull(h->memory);
	memset(h->memory, 0, bytes);
	h->mr = ibv_reg_mr(h->pd, h->memory, bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE);
	ck_assert_ptr_nonnull(h->mr);
	attr.send_cq = attr.recv_cq = h->cq;
	ck_assert_int_eq(rdma_create_qp(h->id, h->pd, &attr), 0);
	for (int i = 0; i < h->depth; i++)
		post_receive(h, i);
}

int host_connect(struct host *h, const struct wire_cm_request *what)
{
	struct rdma_conn_param param = {.private_data = what,
					.private_data_len = sizeof *what,
					.responder_resources = 4,
					.retry_count = 7,
					.rnr_retry_count = 7};
	struct rdma_cm_event *event;
	struct wire_cm_reject rej = {0};
	int ret = 0;

	prepare(h);
	ck_assert_int_eq(rdma_connect(h->id, &param), 0);
	event = next_event(h);
	if (event->event != RDMA_CM_EVENT_ESTABLISHED) {
		ck_assert_int_eq(event->event, RDMA_CM_EVENT_REJECTED);
		ret = -1;
		if (event->param.conn.private_data_len >= sizeof rej) {
			memcpy(&rej, event->param.conn.private_data, sizeof rej);
			ret = le16toh(rej.status);
		}
	}
	rdma_ack_cm_event(event);
	return ret;
}

void host_open(struct host *h, uint16_t qid, uint16_t depth)
{
	const struct wire_cm_request what = {.qid = htole16(qid),
					     .hrqsize = htole16(depth),
					     .hsqsize = htole16((uint16_t)(depth - 1))};

	*h = (struct host){.depth = depth};
	ck_assert_int_eq(host_connect(h, &what), 0);
}

void host_close(struct host *h)
{
	if (h->id->qp) {
		(void)rdma_disconnect(h->id);
		rdma_destroy_qp(h->id);
	}
	ck_assert_int_eq(ibv_dereg_mr(h->mr), 0);
	ck_assert_int_eq(ibv_destroy_cq(h->cq), 0);
	ck_assert_int_eq(ibv_dealloc_pd(h->pd), 0);
	ck_assert_int_eq(rdma_destroy_id(h->id), 0);
	rdma_destroy_event_channel(h->events);
	free(h->memory);
}

/* ---- commands ---- */

struct wire_command host_command(struct host *h, uint8_t opcode, uint32_t nsid, size_t offset,
				 uint32_t length)
{
	const uint32_t key = h->mr->rkey;
	struct wire_command cmd = {
		.opcode = opcode,
		.flags = WIRE_FLAGS_SGL,
		.cid = htole16(h->next_cid++),
		.nsid = htole32(nsid),
		.sgl = {.addr = htole64((uintptr_t)h->memory + offset), .type = WIRE_SGL_KEYED}};

	for (int i = 0; i < 3; i++)
		cmd.sgl.length[i] = (uint8_t)(length >> 8 * i);
	for (int i = 0; i < 4; i++)
		cmd.sgl.key[i] = (uint8_t)(key >> 8 * i);
	return cmd;
}

struct wire_command host_blocks(struct host *h, uint8_t opcode, uint64_t lba, uint32_t blocks)
{
	struct wire_command cmd = host_command(h, opcode, 1, 0, blocks * 512);

	cmd.cdw10 = htole32((uint32_t)lba);
	cmd.cdw11 = htole32((uint32_t)(lba >> 32));
	cmd.cdw12 = htole32(blocks - 1);
	return cmd;
}

void host_send(struct host *h, const struct wire_command *cmd, size_t offset, size_t inside)
{
	uint8_t *at = capsule_at(h, h->sent++ % HOST_SENDS);
	struct ibv_sge sge[] = {
		{.addr = (uintptr_t)at, .length = sizeof *cmd, .lkey = h->mr->lkey},
		{.addr = (uintptr_t)h->memory + offset,
		 .length = (uint32_t)inside,
		 .lkey = h->mr->lkey},
	};
	struct ibv_send_wr wr = {.sg_list = sge,
				 .num_sge = inside ? 2 : 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	memcpy(at, cmd, sizeof *cmd);
	ck_assert_int_eq(ibv_post_send(h->id->qp, &wr, &bad), 0);
}

/* The target has left. */
static bool disconnected(struct host *h)
{
	struct pollfd fd = {.fd = h->events->fd, .events = POLLIN};

	if (poll(&fd, 1, 1) == 0)
		return false;
	expect(h, RDMA_CM_EVENT_DISCONNECTED);
	return true;
}

bool host_wait(struct host *h, struct wire_response *response)
{
	for (int ms = 0; ms < PATIENCE_MS;) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(h->cq, 1, &wc);

		ck_assert_int_ge(n, 0);
		if (n == 0) {
			if (disconnected(h))
				return false;
			ms++;
		} else if (wc.status != IBV_WC_SUCCESS) {
			return false;
		} else if (wc.opcode == IBV_WC_RECV) {
			ck_assert_uint_eq(wc.byte_len, sizeof *response);
			memcpy(response, response_at(h, (int)wc.wr_id), sizeof *response);
			post_receive(h, (int)wc.wr_id);
			return true;
		}
	}
	ck_abort_msg("no response came");
	return false;
}

static int status_of(const struct wire_response *response)
{
	return le16toh(response->status) >> 1 & ~NVME_SC_DNR;
}

int host_do(struct host *h, const struct wire_command *cmd, struct wire_response *response)
{
	struct wire_response own;

	response = response ? response : &own;
	host_send(h, cmd, 0, 0);
	ck_assert_msg(host_wait(h, response), "the connection ended");
	ck_assert_uint_eq(response->cid, cmd->cid);
	return status_of(response);
}

/* ---- controllers ---- */

struct wire_command host_joining(struct host *h, uint16_t qid, const char *subnqn, uint16_t cntlid)
{
	struct wire_command cmd =
		host_command(h, nvme_admin_fabrics, WIRE_FABRICS_CONNECT, 0, WIRE_CONNECT_DATA);
	struct nvmf_connect_data *data = (void *)h->memory;

	memset(data, 0, sizeof *data);
	memset(data->hostid, 7, sizeof data->hostid);
	data->cntlid = htole16(cntlid);
	strcpy(data->hostnqn, HOST_NQN);
	strcpy(data->subsysnqn, subnqn);
	cmd.cdw10 = htole32((uint32_t)qid << 16);
	cmd.cdw11 = htole32(h->depth - 1u);
	return cmd;
}

int host_join(struct host *h, uint16_t qid, const char *subnqn, uint16_t cntlid,
	      struct wire_response *response)
{
	struct wire_command cmd = host_joining(h, qid, subnqn, cntlid);

	return host_do(h, &cmd, response);
}

uint64_t host_property(struct host *h, uint32_t offset, bool eight)
{
	struct wire_command cmd =
		host_command(h, nvme_admin_fabrics, WIRE_FABRICS_PROPERTY_GET, 0, 0);
	struct wire_response response;

	cmd.cdw10 = htole32(eight);
	cmd.cdw11 = htole32(offset);
	ck_assert_int_eq(host_do(h, &cmd, &response), NVME_SC_SUCCESS);
	return le64toh(response.result);
}

void host_enable(struct host *h)
{
	struct wire_command cmd =
		host_command(h, nvme_admin_fabrics, WIRE_FABRICS_PROPERTY_SET, 0, 0);

	cmd.cdw11 = htole32(NVME_REG_CC);
	cmd.cdw12 = htole32(1 | 6 << NVME_CC_IOSQES_SHIFT | 4 << NVME_CC_IOCQES_SHIFT);
	ck_assert_int_eq(host_do(h, &cmd, NULL), NVME_SC_SUCCESS);
	ck_assert_uint_eq(host_property(h, NVME_REG_CSTS, false) & 1, 1);
}

void host_admin(struct host *h, const char *subnqn)
{
	struct wire_response response;

	host_open(h, 0, HOST_DEPTH);
	ck_assert_int_eq(host_join(h, 0, subnqn, WIRE_CNTLID_ANY, &response), NVME_SC_SUCCESS);
	h->cntlid = (uint16_t)le64toh(response.result);
	host_enable(h);
}

void host_io(struct host *h, const struct host *admin, uint16_t depth)
{
	host_open(h, 1, depth);
	ck_assert_int_eq(host_join(h, 1, TARGET_NQN, admin->cntlid, NULL), NVME_SC_SUCCESS);
}
