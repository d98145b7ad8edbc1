/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small NVMe over RDMA host on plain verbs, and the target beside it in a thread: for tests that
 * must be able to say anything to the target, right or wrong.
 */
#ifndef TESTS_NVMF_HOST_H
#define TESTS_NVMF_HOST_H

#include <nvme/types.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

#define HOST_NQN   "nqn.2014-08.org.example:host"
#define TARGET_NQN "nqn.2014-08.org.example:target"
#define HOST_DATA  ((size_t)4 << 20)
#define HOST_DEPTH 32

/* ---- the target ---- */

/* Start it with these arguments behind --listen and --nqn, NULL at their end; it listens on return. */
void target_start(const char *const args[]);

/* The port it listens on. */
uint16_t target_port(void);

/* SIGTERM: returns its exit status. */
int target_stop(void);

/* ---- a host's queue ---- */

struct host {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory; /* data [HOST_DATA], then capsules and responses */
	uint16_t depth;
	uint16_t next_cid;
	uint16_t cntlid;
	int sent; /* capsules posted so far */
};

/* The memory that commands move: [HOST_DATA]. */
uint8_t *host_data(struct host *h);

/*
 * Make a connection; what says the private data. Returns 0, or the status in the private data of the
 * refusal; -1: refused without.
 */
int host_connect(struct host *h, const struct wire_cm_request *what);

/* One with sound private data, for which that must work. */
void host_open(struct host *h, uint16_t qid, uint16_t depth);

void host_close(struct host *h);

/* A command that has a keyed SGL over length bytes of the data from offset on. */
struct wire_command host_command(struct host *h, uint8_t opcode, uint32_t nsid, size_t offset,
				 uint32_t length);

/* The same of blocks of 512 bytes. */
struct wire_command host_blocks(struct host *h, uint8_t opcode, uint64_t lba, uint32_t blocks);

/* Send it, and inside bytes of the data from offset on behind it. */
void host_send(struct host *h, const struct wire_command *cmd, size_t offset, size_t inside);

/* Wait for a response. Returns false when the connection ended instead. */
bool host_wait(struct host *h, struct wire_response *response);

/* Send it and wait: the status, without the order not to retry. Any other end fails the test. */
int host_do(struct host *h, const struct wire_command *cmd, struct wire_response *response);

/* Fabrics Connect with this subsystem name, for a controller or (on an I/O queue) of cntlid. */
struct wire_command host_joining(struct host *h, uint16_t qid, const char *subnqn, uint16_t cntlid);
int host_join(struct host *h, uint16_t qid, const char *subnqn, uint16_t cntlid,
	      struct wire_response *response);

uint64_t host_property(struct host *h, uint32_t offset, bool eight);
void host_enable(struct host *h);

/* An admin queue that is connected and enabled, and an I/O queue of the same controller. */
void host_admin(struct host *h, const char *subnqn);
void host_io(struct host *h, const struct host *admin, uint16_t depth);

#endif
