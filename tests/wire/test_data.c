/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes send each other messages of all sizes, write into each other's memory and read it
 * back, read what is there, and add to a counter; every byte that arrives is looked at, as is the
 * order, and in the end nothing is left. Both directions are busy all the time, so that neither may
 * wait for the other to read first.
 *
 *	test_data [--srq] [--sleep] [--late] [--messages N] [--seed N] [--over ADDRESS listens|asks]
 *
 * With --late the process has used the device before it forks. With --over it is one of the two, and meets the other, on the machine with that address, over TCP.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../plain.h"
#include "sgpool/softverbs.h"

#define DEPTH   8 /* operations under way */
#define RECVS   6 /* fewer, so that senders are made to wait */
#define SLOT    (256u << 10)
#define SCRATCH (128u << 10)

/* recv slots, one per operation, what peers read, what peers write, the counter */
#define AT_SEND    ((size_t)RECVS * SLOT)
#define AT_CONST   (AT_SEND + (size_t)DEPTH * SLOT)
#define AT_SCRATCH (AT_CONST + SLOT)
#define AT_COUNTER (AT_SCRATCH + (size_t)DEPTH * SCRATCH)
#define TOTAL      (AT_COUNTER + 4096)

enum kind {
	SEND,
	WRITE_READ,
	READ,
	ADD,
};

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	struct {
		uint64_t addr;
		uint32_t rkey, qpn;
	} mine, there;
	int with;          /* socket to the other process */
	union ibv_gid gid; /* the other's device */
	uint64_t seed, added;
	struct {
		enum kind kind;
		uint32_t len;
		uint64_t seq;
	} op[DEPTH];
	uint32_t sent, arrived;
} w;

static void die(const char *what)
{
	fprintf(stderr, "%d: %s\n", getpid(), what);
	exit(1);
}

static uint64_t draw(void)
{
	w.seed ^= w.seed << 13;
	w.seed ^= w.seed >> 7;
	w.seed ^= w.seed << 17;
	return w.seed;
}

static uint8_t byte(uint64_t seq, uint32_t i)
{
	return (uint8_t)(seq * 31 + i * 7 + (i >> 8) * 13 + (i >> 16));
}

static void fill(uint8_t *p, uint64_t seq, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = byte(seq, i);
}

static void look(const uint8_t *p, uint64_t seq, uint32_t n, const char *what)
{
	for (uint32_t i = 0; i < n; i++)
		if (p[i] != byte(seq, i)) {
			fprintf(stderr, "%s: byte %u of %u of number %llu is wrong\n", what, i, n,
				(unsigned long long)seq);
			exit(1);
		}
}

/* The length of message number seq, which both sides know. */
static uint32_t length(uint64_t seq)
{
	uint64_t h = (seq + 1) * 0x9e3779b97f4a7c15u;

	h ^= h >> 29;
	return (uint32_t)(h % 4 == 0 ? h / 4 % 200000 : h % 4 == 1 ? h / 4 % 5000 : h / 4 % 65);
}

/* ---- receives ---- */

static void post_recv(uint32_t slot)
{
	uint64_t at = (uintptr_t)w.mem + (size_t)slot * SLOT;
	/* Three pieces, the middle one too small for most. */
	struct ibv_sge s[3] = {{at, 20, w.mr->lkey},
			       {at + 20, 1000, w.mr->lkey},
			       {at + 1020, SLOT - 1020, w.mr->lkey}};
	struct ibv_recv_wr *bad, wr = {.wr_id = 1000 + slot, .sg_list = s, .num_sge = 3};

	if (w.srq ? ibv_post_srq_recv(w.srq, &wr, &bad) : ibv_post_recv(w.qp, &wr, &bad))
		die("post_recv");
}

static void arrived(const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id - 1000;

	if (wc->byte_len != length(w.arrived))
		die("a message has another length");
	look(w.mem + (size_t)slot * SLOT, w.arrived, wc->byte_len, "message");
	w.arrived++;
	post_recv(slot);
}

/* ---- operations ---- */

static void post(uint32_t slot, enum ibv_wr_opcode op, size_t off, uint32_t len, uint64_t raddr,
		 uint64_t add, bool last)
{
	uint64_t at = (uintptr_t)w.mem + AT_SEND + (size_t)slot * SLOT + off;
	uint32_t cut = len / 3;
	struct ibv_sge s[2] = {{at, len - cut, w.mr->lkey}, {at + len - cut, cut, w.mr->lkey}};
	struct ibv_send_wr *bad, wr = {.wr_id = slot,
				       .sg_list = s,
				       .num_sge = cut && op != IBV_WR_ATOMIC_FETCH_AND_ADD ? 2 : 1,
				       .opcode = op,
				       .send_flags = last ? IBV_SEND_SIGNALED : 0};

	if (wr.num_sge == 1)
		s[0].length = len;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = raddr;
		wr.wr.atomic.rkey = w.there.rkey;
		wr.wr.atomic.compare_add = add;
	} else {
		wr.wr.rdma.remote_addr = raddr;
		wr.wr.rdma.rkey = w.there.rkey;
	}
	if (op == IBV_WR_SEND && len <= 64)
		wr.send_flags |= IBV_SEND_INLINE;
	if (ibv_post_send(w.qp, &wr, &bad))
		die("post_send");
}

static void begin(uint32_t slot)
{
	uint8_t *mem = w.mem + AT_SEND + (size_t)slot * SLOT;
	uint64_t r = draw(), to = w.there.addr + AT_SCRATCH + (uint64_t)slot * SCRATCH;
	uint32_t len = (uint32_t)(r >> 8) % (r & 1 ? 300 : SCRATCH) + 1;

	w.op[slot].kind = r / 2 % 10 < 6 ? SEND : (enum kind)(r / 2 % 10 - 6 + (r / 2 % 10 == 6));
	w.op[slot].seq = r;
	w.op[slot].len = len;
	switch (w.op[slot].kind) {
	case SEND:
		fill(mem, w.sent, length(w.sent));
		post(slot, IBV_WR_SEND, 0, length(w.sent), 0, 0, true);
		w.sent++;
		break;
	case WRITE_READ:
		fill(mem, r, len);
		memset(mem + SCRATCH, 0, SCRATCH);
		post(slot, IBV_WR_RDMA_WRITE, 0, len, to, 0, false);
		post(slot, IBV_WR_RDMA_READ, SCRATCH, len, to, 0, true);
		break;
	case READ:
		memset(mem, 0, len);
		post(slot, IBV_WR_RDMA_READ, 0, len, w.there.addr + AT_CONST, 0, true);
		break;
	case ADD:
		w.added += len;
		post(slot, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, w.there.addr + AT_COUNTER, len, true);
		break;
	}
}

static void ended(uint32_t slot)
{
	uint8_t *mem = w.mem + AT_SEND + (size_t)slot * SLOT;

	if (w.op[slot].kind == WRITE_READ)
		look(mem + SCRATCH, w.op[slot].seq, w.op[slot].len, "write and read");
	else if (w.op[slot].kind == READ)
		look(mem, 77, w.op[slot].len, "read");
}

#define ALL ((1u << DEPTH) - 1)

/* Returns the slots that have become free. */
static uint32_t reap(void)
{
	uint32_t slots = 0;
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(w.cq, 8, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			die(ibv_wc_status_str(wc[i].status));
		if (wc[i].wr_id >= 1000) {
			arrived(&wc[i]);
		} else {
			ended((uint32_t)wc[i].wr_id);
			slots |= 1u << wc[i].wr_id;
		}
	}
	return n ? slots | (ALL + 1) : 0;
}

static void run(uint32_t messages, bool sleeps)
{
	uint32_t slots = ALL, got;
	struct ibv_cq *cq;
	void *user;

	while (w.arrived < messages || w.sent < messages || slots != ALL) {
		for (uint32_t i = 0; i < DEPTH; i++)
			if (slots & 1u << i && w.sent < messages) {
				slots &= ~(1u << i);
				begin(i);
			}
		got = reap();
		if (!got && sleeps) {
			ibv_req_notify_cq(w.cq, 0);
			got = reap();
			if (!got && ibv_get_cq_event(w.ch, &cq, &user))
				die("get_cq_event");
			if (!got)
				ibv_ack_cq_events(cq, 1);
		}
		slots |= got & ALL;
	}
}

/* ---- both ends ---- */

/* By the peer's GID, which is made of its address. */
static int join(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = w.there.qpn,
				   .max_dest_rd_atomic = 4,
				   .min_rnr_timer = 1};
	int err;

	if (!w.gid.raw[10])
		return plain_join(w.qp, w.there.qpn, 7, 1);
	attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = w.gid;
	attr.ah_attr.grh.sgid_index = 1;
	err = ibv_modify_qp(w.qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	return err ? err
		   : ibv_modify_qp(w.qp, &attr,
				   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The way to tell the other what a program tells its peer beforehand. */
static void meet(const char *address, bool listens)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(4711)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (inet_pton(AF_INET, address, &a.sin_addr) != 1)
		die(address);
	w.gid.raw[10] = w.gid.raw[11] = 0xff;
	memcpy(w.gid.raw + 12, &a.sin_addr, 4);
	if (listens) {
		a.sin_addr.s_addr = INADDR_ANY;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 1))
			die("listen");
		w.with = accept(fd, NULL, NULL);
		return;
	}
	w.with = fd;
	for (int i = 0; connect(fd, (struct sockaddr *)&a, sizeof a); i++) {
		if (i == 1200) /* a minute */
			die("connect");
		usleep(50000);
	}
}

static void set_up(bool srq)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {2 * DEPTH, RECVS, 2, 3, 64}};
	struct ibv_srq_init_attr s = {.attr = {.max_wr = RECVS, .max_sge = 3}};

	w.ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!w.ctx)
		die("open_device");
	ibv_free_device_list(list);
	w.pd = ibv_alloc_pd(w.ctx);
	w.ch = ibv_create_comp_channel(w.ctx);
	w.cq = ibv_create_cq(w.ctx, 64, NULL, w.ch, 0);
	w.mem = aligned_alloc(4096, TOTAL);
	if (!w.mem)
		die("memory");
	memset(w.mem, 0, TOTAL);
	fill(w.mem + AT_CONST, 77, SLOT);
	w.mr = ibv_reg_mr(w.pd, w.mem, TOTAL,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	a.send_cq = a.recv_cq = w.cq;
	a.srq = w.srq = srq ? ibv_create_srq(w.pd, &s) : NULL;
	w.qp = ibv_create_qp(w.pd, &a);
	if (!w.qp || !w.mr || plain_init(w.qp))
		die("create_qp");
	w.mine.addr = (uintptr_t)w.mem;
	w.mine.rkey = w.mr->rkey;
	w.mine.qpn = w.qp->qp_num;
	if (write(w.with, &w.mine, sizeof w.mine) != sizeof w.mine ||
	    read(w.with, &w.there, sizeof w.there) != sizeof w.there)
		die("the other process");
	for (uint32_t i = 0; i < RECVS; i++)
		post_recv(i);
	if (join())
		die("RTS");
}

static void together(void)
{
	char x = 0;

	if (write(w.with, &x, 1) != 1 || read(w.with, &x, 1) != 1)
		die("the other process has gone");
}

static int side(bool srq, bool sleeps, uint32_t messages, uint64_t seed)
{
	uint64_t sum = 0, counter;
	int left = 0;

	w.seed = seed;
	set_up(srq);
	run(messages, sleeps);
	together();
	if (write(w.with, &w.added, sizeof sum) != sizeof sum ||
	    read(w.with, &sum, sizeof sum) != sizeof sum)
		die("the other process has gone");
	memcpy(&counter, w.mem + AT_COUNTER, sizeof counter);
	if (counter != sum)
		die("the counter is not what was added");
	together();
	if (ibv_destroy_qp(w.qp) || (w.srq && ibv_destroy_srq(w.srq)) || ibv_destroy_cq(w.cq) ||
	    ibv_destroy_comp_channel(w.ch) || ibv_dereg_mr(w.mr) || ibv_dealloc_pd(w.pd) ||
	    ibv_close_device(w.ctx))
		die("destroying");
	free(w.mem);
	for (int i = 0; i < SV_NCOUNTERS; i++)
		left += sv_live((enum sv_counter)i);
	return left != 0;
}

/* Its thread runs and its sockets are open when it forks. */
static void use_the_device(void)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_qp *qp;

	if (!pd)
		die("open_device");
	a.send_cq = a.recv_cq = ibv_create_cq(ctx, 2, NULL, NULL, 0);
	qp = ibv_create_qp(pd, &a);
	if (!qp || ibv_destroy_qp(qp) || ibv_destroy_cq(a.send_cq) || ibv_dealloc_pd(pd) ||
	    ibv_close_device(ctx))
		die("create_qp");
	ibv_free_device_list(list);
}

int main(int argc, char **argv)
{
	bool srq = false, sleeps = false, late = false, listens = false;
	const char *over = NULL;
	uint32_t messages = 2000;
	uint64_t seed = 20261129;
	int fd[2], status, bad;
	char world[32];
	pid_t pid = -1;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--srq"))
			srq = true;
		else if (!strcmp(argv[i], "--sleep"))
			sleeps = true;
		else if (!strcmp(argv[i], "--late"))
			late = true;
		else if (i + 1 < argc && !strcmp(argv[i], "--messages"))
			messages = (uint32_t)strtoul(argv[++i], NULL, 10);
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			seed = strtoull(argv[++i], NULL, 10);
		else if (i + 2 < argc && !strcmp(argv[i], "--over")) {
			over = argv[++i];
			listens = !strcmp(argv[++i], "listens");
		}
	if (over) {
		meet(over, listens);
		return side(srq, sleeps, messages, seed + listens);
	}
	snprintf(world, sizeof world, "data%d", getpid());
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	if (late)
		use_the_device();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) || (pid = fork()) < 0)
		die("fork");
	w.with = fd[pid == 0];
	close(fd[pid != 0]);
	bad = side(srq, sleeps, messages, seed + (pid == 0));
	if (!pid)
		return bad;
	if (waitpid(pid, &status, 0) != pid || status)
		bad = 1;
	printf("%u messages each way: %s\n", messages, bad ? "FAILED" : "as they were sent");
	return bad;
}
