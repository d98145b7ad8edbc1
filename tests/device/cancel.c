/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cancel ADDRESS: operations that the device at ADDRESS has and is to lose: cancelled ones, and those
 * of a queue pair that is reset, on a connection and, but for iWARP, on plain queue pairs, which
 * connect a second time. Each context is told exactly once, contents are compared, and in the end
 * the pool has everything again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "pair.h"

#define SIZE   4096
#define MS     30000 /* for what must come, on a slow machine */
#define DEPTH  4
#define CHUNKS 32
#define TAGS   32

static struct sgp_pool *pool;
static char tag[TAGS]; /* contexts: their addresses */

static int tag_of(const void *context)
{
	return (int)((const char *)context - tag);
}

static void fill(void *to, unsigned int seed)
{
	for (unsigned int i = 0; i < SIZE; i++)
		((uint8_t *)to)[i] = (uint8_t)(seed * 53 + i + i / 256);
}

static void compare(const struct sgp_wc *wc, unsigned int seed)
{
	uint8_t want[SIZE];

	fill(want, seed);
	NEED(wc->sgl.num_sge == 1 && wc->byte_len == SIZE, "%llu bytes",
	     (unsigned long long)wc->byte_len);
	NEED(!memcmp((void *)(uintptr_t)wc->sgl.sge[0].addr, want, SIZE), "message %u", seed);
}

static uint64_t live(void)
{
	struct sgp_pool_stats stats;

	DO(sgp_pool_stats(pool, &stats));
	return stats.live;
}

static void receive(struct sgp_ep *ep, int n)
{
	SGP_SGL(sgl, 1);

	DO(sgp_sgl_get(&sgl, pool, SIZE, 1, 0));
	DO(sgp_post_recvv(ep, &tag[n], &sgl));
}

/* Message n; its completion has &tag[n]. */
static void send_message(struct sgp_ep *ep, int n, int flags)
{
	SGP_SGL(sgl, 1);

	DO(sgp_sgl_get(&sgl, pool, SIZE, 1, 0));
	fill(sgp_chunk_addr(sgl.chunk[0]), (unsigned int)n);
	DO(sgp_post_sendv(ep, &tag[n], &sgl, flags));
}

static void next(struct sgp_cq *cq, struct sgp_wc *wc, struct sgp_ep *ep)
{
	int n = sgp_wait(cq, 1, wc, MS);

	NEED(n == 1, "%s", n ? sgp_errmsg() : "no completion");
	NEED(wc->ep == ep, "another endpoint's");
}

static void good(struct sgp_cq *cq, struct sgp_wc *wc, struct sgp_ep *ep, int n)
{
	next(cq, wc, ep);
	NEED(wc->status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc->status));
	NEED(wc->context == &tag[n], "context %d, not %d", tag_of(wc->context), n);
}

/* So many chunks are out, soon, and nothing is told meanwhile. */
static void settle(struct sgp_cq *cq, struct sgp_wc *wc, uint64_t out)
{
	struct timespec nap = {.tv_nsec = 1000000};

	sgp_sgl_clear(&wc->sgl);
	for (int i = 0; live() != out && i < MS; i++) {
		NEED(!sgp_poll(cq, 1, wc), "context %d: %s", tag_of(wc->context),
		     ibv_wc_status_str(wc->status));
		nanosleep(&nap, NULL);
	}
	NEED(live() == out, "%llu chunks are out", (unsigned long long)live());
	NEED(!sgp_poll(cq, 1, wc), "context %d", tag_of(wc->context));
}

/* ---- cancelling ---- */

static void expect_cancelled(struct pair *p, int n, uint64_t quarantined)
{
	struct sgp_wc *wc = p->side[0].wc;
	struct sgp_ep_stats stats;

	DO(sgp_cancel(p->side[0].ep, &tag[n]));
	NEED(sgp_cancel(p->side[0].ep, &tag[n]) && errno == ENOENT, "errno %d", errno);
	next(p->side[0].cq, wc, p->side[0].ep);
	NEED(wc->context == &tag[n] && wc->status == IBV_WC_WR_FLUSH_ERR, "context %d, %s",
	     tag_of(wc->context), ibv_wc_status_str(wc->status));
	NEED(wc->error == ECANCELED && !wc->sgl.num_chunk, "error %d", wc->error);
	DO(sgp_ep_stats(p->side[0].ep, &stats));
	NEED(stats.quarantined == quarantined, "%d", (int)stats.quarantined);
}

/* A message to the other end and nothing else: the connection is as it was. */
static void still_works(struct pair *p, int n)
{
	receive(p->side[1].ep, n);
	send_message(p->side[0].ep, n, IBV_SEND_SIGNALED);
	good(p->side[0].cq, p->side[0].wc, p->side[0].ep, n);
	good(p->side[1].cq, p->side[1].wc, p->side[1].ep, n);
	compare(p->side[1].wc, (unsigned int)n);
	settle(p->side[1].cq, p->side[1].wc, 0);
	settle(p->side[0].cq, p->side[0].wc, 0);
}

/* A SEND that nobody receives yet. It is with the device, which goes on trying. */
static void cancel_send(struct pair *p)
{
	struct sgp_pool_stats stats;

	send_message(p->side[0].ep, 1, IBV_SEND_SIGNALED);
	NEED(!sgp_wait(p->side[0].cq, 1, p->side[0].wc, 200), "it does not wait");
	expect_cancelled(p, 1, 1);
	NEED(!sgp_wait(p->side[0].cq, 1, p->side[0].wc, 200), "it does not wait");
	DO(sgp_pool_stats(pool, &stats));
	NEED(stats.live == 1, "%d", (int)stats.live);
	NEED(sgp_pool_destroy(pool) && errno == EBUSY, "errno %d", errno);
	receive(p->side[1].ep, 2);
	good(p->side[1].cq, p->side[1].wc, p->side[1].ep, 2);
	compare(p->side[1].wc, 1);
	sgp_sgl_clear(&p->side[1].wc->sgl);
	settle(p->side[0].cq, p->side[0].wc, 0);
	still_works(p, 3);
	printf("ok: %s: a SEND that waits for its receive, cancelled\n", p->name);
}

/* A READ that nobody has reaped: whatever the device has done of it, its chunk waits for that. */
static void cancel_read(struct pair *p)
{
	struct sgp_chunk *far = sgp_pool_get(pool, SIZE, 0);
	uint32_t rkey;
	SGP_SGL(sgl, 1);

	NEED(far, "%s", sgp_errmsg());
	DO(sgp_chunk_keys(far, p->pd, NULL, &rkey));
	DO(sgp_sgl_get(&sgl, pool, SIZE, 1, 0));
	DO(sgp_post_readv(p->side[0].ep, &tag[4], &sgl, 0, (uintptr_t)sgp_chunk_addr(far), rkey));
	expect_cancelled(p, 4, 1);
	NEED(sgp_pool_destroy(pool) && errno == EBUSY, "errno %d", errno);
	settle(p->side[0].cq, p->side[0].wc, 1);
	sgp_chunk_put(far);
	still_works(p, 5);
	printf("ok: %s: a READ, cancelled\n", p->name);
}

/* The middle one of three that wait for the doorbell: the device gets a WRITE of nothing. */
static void cancel_gathered(struct pair *p)
{
	for (int n = 6; n <= 7; n++)
		receive(p->side[1].ep, n);
	send_message(p->side[0].ep, 6, IBV_SEND_SIGNALED | SGP_BATCH);
	send_message(p->side[0].ep, 8, IBV_SEND_SIGNALED | SGP_BATCH);
	send_message(p->side[0].ep, 7, IBV_SEND_SIGNALED | SGP_BATCH);
	expect_cancelled(p, 8, 0);
	NEED(live() == 4, "%d", (int)live());
	DO(sgp_ep_submit(p->side[0].ep));
	for (int n = 6; n <= 7; n++) {
		good(p->side[0].cq, p->side[0].wc, p->side[0].ep, n);
		good(p->side[1].cq, p->side[1].wc, p->side[1].ep, n);
		compare(p->side[1].wc, (unsigned int)n);
		sgp_sgl_clear(&p->side[1].wc->sgl);
	}
	settle(p->side[0].cq, p->side[0].wc, 0);
	still_works(p, 9);
	printf("ok: %s: one of several gathered, cancelled\n", p->name);
}

/* ---- reset ---- */

/* Each of the contexts from..to is flushed, once, in some order, and nothing else comes. */
static void flushed(struct sgp_cq *cq, struct sgp_wc *wc, struct sgp_ep *ep, int from, int to)
{
	unsigned int seen = 0;

	for (int i = from; i <= to; i++) {
		int n;

		next(cq, wc, ep);
		n = tag_of(wc->context);
		NEED(wc->status == IBV_WC_WR_FLUSH_ERR, "%s", ibv_wc_status_str(wc->status));
		NEED(n >= from && n <= to && !(seen & 1u << n), "context %d", n);
		seen |= 1u << n;
		sgp_sgl_clear(&wc->sgl);
	}
	NEED(!sgp_wait(cq, 1, wc, 100), "context %d", tag_of(wc->context));
}

/* The memory is the caller's again: what the peer sends from now on does not land in it. */
static void nothing_lands(struct pair *p)
{
	SGP_SGL(got, CHUNKS);
	SGP_SGL(sgl, 1);

	NEED(!live(), "%d", (int)live());
	DO(sgp_sgl_get(&sgl, pool, SIZE, 1, 0));
	memset(sgp_chunk_addr(sgl.chunk[0]), 1, SIZE);
	DO(sgp_sgl_get(&got, pool, SIZE, CHUNKS - 1, 0));
	for (int i = 0; i < CHUNKS - 1; i++)
		memset(sgp_chunk_addr(got.chunk[i]), 0, SIZE);
	/* A peer that knows already does not send. */
	if (!sgp_post_sendv(p->side[1].ep, &tag[20], &sgl, IBV_SEND_SIGNALED))
		(void)sgp_wait(p->side[1].cq, 1, p->side[1].wc, 300);
	for (int i = 0; i < CHUNKS - 1; i++)
		for (unsigned int j = 0; j < SIZE; j++)
			NEED(!((uint8_t *)sgp_chunk_addr(got.chunk[i]))[j], "a message landed");
	sgp_sgl_clear(&got);
	sgp_sgl_clear(&sgl);
}

/* The device refuses: the connection goes on, and what is posted is flushed by the close instead. */
static void not_reset(struct pair *p)
{
	struct sgp_ep *ep = p->side[0].ep;

	for (int n = 10; n <= 12; n++)
		receive(ep, n);
	NEED(sgp_ep_reset(ep) && errno == EOPNOTSUPP, "errno %d", errno);
	send_message(p->side[1].ep, 13, IBV_SEND_SIGNALED);
	good(p->side[1].cq, p->side[1].wc, p->side[1].ep, 13);
	good(p->side[0].cq, p->side[0].wc, ep, 10);
	compare(p->side[0].wc, 13);
	settle(p->side[0].cq, p->side[0].wc, 2);
	DO(sgp_ep_close(ep, 1000));
	flushed(p->side[0].cq, p->side[0].wc, ep, 11, 12);
	nothing_lands(p);
	printf("ok: %s: a connection, not reset and closed\n", p->name);
}

/* A connection's endpoint, whose identifier cannot connect again. */
static void reset_connected(struct pair *p)
{
	struct sgp_ep *ep = p->side[0].ep;

	for (int n = 10; n <= 12; n++)
		receive(ep, n);
	for (int n = 13; n <= 14; n++) /* nobody receives these */
		send_message(ep, n, IBV_SEND_SIGNALED);
	DO(sgp_ep_reset(ep));
	flushed(p->side[0].cq, p->side[0].wc, ep, 10, 14);
	nothing_lands(p);
	printf("ok: %s: a connection, reset\n", p->name);
}

/* Two plain queue pairs, and the life that they are in. */
struct plain {
	struct sgp_cq *cq[2];
	struct sgp_wc *wc[2];
	struct sgp_ep *ep[2]; /* [0]: the caller's receives; [1]: the library's */
	union ibv_gid gid;
	uint8_t gid_index, port;
	uint32_t psn;
};

static void find_gid(struct pair *p, const char *addr, struct plain *q)
{
	struct in_addr in;

	q->port = p->side[0].id->port_num;
	NEED(inet_pton(AF_INET, addr, &in) == 1, "%s", addr);
	while (!ibv_query_gid(p->pd->context, q->port, q->gid_index, &q->gid)) {
		/* An IPv4 address as an IPv6 one, in its last four bytes */
		if (!q->gid.global.subnet_prefix && !memcmp(q->gid.raw + 12, &in, 4))
			return;
		q->gid_index++;
	}
	NEED(false, "no index of %s", addr);
}

static void modify(struct plain *q, int end, struct ibv_qp_attr attr, int mask)
{
	int err = ibv_modify_qp(sgp_ep_qp(q->ep[end]), &attr, mask);

	NEED(!err, "state %d: errno %d", (int)attr.qp_state, err);
}

static void init(struct plain *q, int end)
{
	modify(q, end,
	       (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				    .port_num = q->port,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
	       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* From INIT on; each life with other sequence numbers. */
static void connect_plain(struct plain *q)
{
	q->psn += 10000;
	for (int end = 0; end < 2; end++)
		modify(q, end,
		       (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
					    .path_mtu = IBV_MTU_1024,
					    .dest_qp_num = sgp_ep_qp(q->ep[!end])->qp_num,
					    .rq_psn = q->psn,
					    .max_dest_rd_atomic = 1,
					    .min_rnr_timer = 12,
					    .ah_attr = {.is_global = 1,
							.port_num = q->port,
							.grh = {.dgid = q->gid,
								.sgid_index = q->gid_index,
								.hop_limit = 64}}},
		       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	for (int end = 0; end < 2; end++)
		modify(q, end,
		       (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
					    .timeout = 18,
					    .retry_cnt = 7,
					    .rnr_retry = 7,
					    .sq_psn = q->psn,
					    .max_rd_atomic = 1},
		       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void make_plain(struct pair *p, struct plain *q)
{
	struct sgp_recv_part part = {.pool = pool, .size = SIZE};

	for (int end = 0; end < 2; end++) {
		struct sgp_ep_attr attr = {.pd = p->pd,
					   .cap = {DEPTH, DEPTH, 1, 1, 0},
					   .port_num = q->port,
					   .qp_type = IBV_QPT_RC,
					   .recv = end ? &part : NULL,
					   .num_recv = end,
					   .recv_context = &tag[0]};

		q->cq[end] = sgp_cq_create(p->pd->context, &(struct sgp_cq_attr){.cqe = 4 * DEPTH});
		NEED(q->cq[end], "%s", sgp_errmsg());
		attr.cq = q->cq[end];
		q->wc[end] = sgp_wc_alloc(q->cq[end], 1);
		q->ep[end] = sgp_ep_create(NULL, &attr);
		NEED(q->wc[end] && q->ep[end], "%s", sgp_errmsg());
		init(q, end);
	}
	DO(sgp_ep_refill(q->ep[1]));
}

static void is_full(struct plain *q)
{
	struct sgp_ep_info info;

	DO(sgp_ep_query(q->ep[1], &info));
	NEED(info.recv_posted == DEPTH && !info.recv_missing, "%d, %d missing", info.recv_posted,
	     info.recv_missing);
	NEED(live() == DEPTH, "%d", (int)live());
}

/* Twice round both ends' receives. */
static void exchange(struct plain *q)
{
	for (int n = 1; n <= 2 * DEPTH; n++) {
		send_message(q->ep[0], n, IBV_SEND_SIGNALED);
		good(q->cq[0], q->wc[0], q->ep[0], n);
		good(q->cq[1], q->wc[1], q->ep[1], 0);
		compare(q->wc[1], (unsigned int)n);
		sgp_sgl_clear(&q->wc[1]->sgl);
		receive(q->ep[0], n);
		send_message(q->ep[1], n, IBV_SEND_SIGNALED);
		good(q->cq[1], q->wc[1], q->ep[1], n);
		good(q->cq[0], q->wc[0], q->ep[0], n);
		compare(q->wc[0], (unsigned int)n);
		sgp_sgl_clear(&q->wc[0]->sgl);
	}
	is_full(q);
}

/*
 * The kept end has sends that nobody receives, one of them cancelled, and its receives; then the
 * other one receives, and sends to what is in INIT.
 */
static void reset_plain(struct plain *q)
{
	for (int n = 1; n <= 3; n++)
		send_message(q->ep[1], n, IBV_SEND_SIGNALED);
	NEED(!sgp_wait(q->cq[1], 1, q->wc[1], 100), "they do not wait");
	DO(sgp_cancel(q->ep[1], &tag[3]));
	next(q->cq[1], q->wc[1], q->ep[1]);
	NEED(q->wc[1]->error == ECANCELED, "error %d", q->wc[1]->error);
	DO(sgp_ep_reset(q->ep[1]));
	flushed(q->cq[1], q->wc[1], q->ep[1], 1, 2);
	is_full(q);
	for (int n = 4; n <= 6; n++)
		receive(q->ep[0], n);
	for (int n = 7; n <= 8; n++)
		send_message(q->ep[0], n, IBV_SEND_SIGNALED);
	DO(sgp_ep_reset(q->ep[0]));
	flushed(q->cq[0], q->wc[0], q->ep[0], 4, 8);
	is_full(q);
}

static void plain_lives(struct pair *p, const char *addr)
{
	struct plain q = {.gid_index = 0};

	find_gid(p, addr, &q);
	make_plain(p, &q);
	for (int life = 0; life < 3; life++) {
		connect_plain(&q);
		exchange(&q);
		reset_plain(&q);
	}
	connect_plain(&q);
	exchange(&q);
	for (int end = 0; end < 2; end++) {
		DO(sgp_ep_close(q.ep[end], MS));
		while (sgp_poll(q.cq[end], 1, q.wc[end]) > 0)
			NEED(end && q.wc[end]->context == &tag[0], "context %d",
			     tag_of(q.wc[end]->context));
		DO(sgp_ep_destroy(q.ep[end]));
		sgp_wc_free(q.wc[end]);
		DO(sgp_cq_destroy(q.cq[end]));
	}
	NEED(!live(), "%d", (int)live());
	printf("ok: %s: plain queue pairs, reset and connected again\n", p->name);
}

int main(int argc, char **argv)
{
	const struct sgp_class_attr class = {.size = SIZE, .chunks = CHUNKS};
	const struct sgp_pool_attr attr = {.classes = &class,
					   .nclasses = 1,
					   .flags = SGP_POOL_READ_SINK | SGP_POOL_REMOTE_READ,
					   .pages = SGP_PAGES_BASE};
	struct pair p;

	if (argc != 2)
		return fprintf(stderr, "Usage: cancel ADDRESS\n"), 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	pair_resolve(&p, argv[1]);
	pool = sgp_pool_create(p.pd, &attr);
	NEED(pool, "%s", sgp_errmsg());
	pair_connect(&p);
	if (!p.iwarp) /* there, a SEND that nobody receives ends the connection */
		cancel_send(&p);
	cancel_read(&p);
	cancel_gathered(&p);
	if (p.iwarp) {
		not_reset(&p);
	} else {
		plain_lives(&p, argv[1]);
		reset_connected(&p);
	}
	/* What the peer sent last may never be flushed (soft-iWARP): no long wait for it. */
	DO(sgp_ep_close(p.side[1].ep, 1000));
	pair_close(&p);
	NEED(!live(), "%d", (int)live());
	DO(sgp_pool_destroy(pool));
	ibv_dealloc_pd(p.pd);
	printf("ok: %s: everything came home\n", p.name);
	return 0;
}
