/* SPDX-License-Identifier: BSD-2-Clause */
/* The operations of ops_table.c that have steps of their own. */
#include <errno.h>
#include <string.h>

#include "ops.h"

/* ---- foreign memory, inline ---- */

const char *act_foreign(struct side *s, const struct op *op)
{
	uint8_t payload[OPS_INLINE];
	SGP_SGL(sgl, 2);

	fill(payload, sizeof payload, ops_seed(op), 0);
	if (sgp_sgl_append_foreign(&sgl, payload, 20) ||
	    sgp_sgl_append_foreign(&sgl, payload + 20, sizeof payload - 20) ||
	    sgp_post_sendv(s->ep, s, &sgl, IBV_SEND_INLINE | IBV_SEND_SIGNALED))
		return wrong("post: %s", sgp_errmsg());
	memset(payload, 0, sizeof payload); /* ours again as soon as the post returns */
	return reap(s, s->ep, IBV_WC_SEND);
}

/* ---- many, and few completions ---- */

#define MANY      100
#define MANY_SIZE 200

const char *act_unsignalled(struct side *s, const struct op *op)
{
	for (int i = 0; i < MANY; i++) {
		SGP_SGL(sgl, 1);
		struct sgp_wr wr = {.context = s,
				    .sgl = &sgl,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .remote_addr = s->told.addr + (size_t)i * MANY_SIZE,
				    .rkey = s->told.rkey};

		get_list(s, &sgl, 1, MANY_SIZE, 0);
		fill(sgp_chunk_addr(sgl.chunk[0]), MANY_SIZE, ops_seed(op), (size_t)i * MANY_SIZE);
		while (sgp_post(s->ep, &wr, NULL)) {
			if (errno != EAGAIN)
				return wrong("post: %s", sgp_errmsg());
			if (sgp_poll(s->cq, 1, s->wc))
				return "a completion that nobody asked for";
		}
	}
	if (sgp_ep_sync(s->ep) && errno != EAGAIN)
		return wrong("sync: %s", sgp_errmsg());
	TRY(all_home(s, 0));
	return send_done(s);
}

const char *check_unsignalled(struct side *s, const struct op *op)
{
	TRY(receive_done(s));
	return compare(sgp_chunk_addr(s->shared), (size_t)MANY * MANY_SIZE, ops_seed(op), 0);
}

#define BATCH 8

const char *prepare_batch(struct side *s, const struct op *op)
{
	for (int i = 0; i < BATCH; i++)
		TRY(post_receive(s, s->ep, 1, op->size));
	return NULL;
}

const char *act_batch(struct side *s, const struct op *op)
{
	struct sgp_ep_stats before, after;

	sgp_ep_stats(s->ep, &before);
	for (int i = 0; i < BATCH; i++) {
		SGP_SGL(sgl, 1);

		get_list(s, &sgl, 1, op->size, ops_seed(op) + (unsigned int)i);
		if (sgp_post_sendv(s->ep, s, &sgl,
				   SGP_BATCH | (i == BATCH - 1 ? IBV_SEND_SIGNALED : 0)))
			return wrong("post: %s", sgp_errmsg());
	}
	if (sgp_ep_submit(s->ep))
		return wrong("submit: %s", sgp_errmsg());
	sgp_ep_stats(s->ep, &after);
	if (after.doorbells - before.doorbells != 1)
		return wrong("%d doorbells", (int)(after.doorbells - before.doorbells));
	return reap(s, s->ep, IBV_WC_SEND);
}

const char *check_batch(struct side *s, const struct op *op)
{
	for (int i = 0; i < BATCH; i++) {
		TRY(reap(s, s->ep, IBV_WC_RECV));
		TRY(compare_list(&s->wc->sgl, op->size, ops_seed(op) + (unsigned int)i));
	}
	return NULL;
}

/* A WRITE, a READ of the same ops_bytes, and a fenced SEND, in one chain. */
const char *act_chain(struct side *s, const struct op *op)
{
	SGP_SGL(out, 4);
	SGP_SGL(in, 4);
	SGP_SGL(done, 1);
	struct sgp_wr send = {
		.context = s, .sgl = &done, .opcode = IBV_WR_SEND, .flags = IBV_SEND_FENCE};
	struct sgp_wr read = {.next = &send,
			      .context = s,
			      .sgl = &in,
			      .opcode = IBV_WR_RDMA_READ,
			      .remote_addr = s->told.addr,
			      .rkey = s->told.rkey};
	struct sgp_wr write = {.next = &read,
			       .context = s,
			       .sgl = &out,
			       .opcode = IBV_WR_RDMA_WRITE,
			       .remote_addr = s->told.addr,
			       .rkey = s->told.rkey};

	get_list(s, &out, op->sges, op->size, ops_seed(op));
	get_list(s, &in, op->sges, op->size, 0);
	get_list(s, &done, 1, 16, 1);
	TRY(post(s, &write));
	TRY(reap(s, s->ep, IBV_WC_RDMA_READ));
	return compare_list(&s->wc->sgl, ops_bytes(s, op), ops_seed(op));
}

/* ---- atomics ---- */

#define FIRST  1000u
#define ADDED  7u
#define SECOND 0x1122334455667788u

const char *prepare_atomic(struct side *s, const struct op *op)
{
	*(uint64_t *)sgp_chunk_addr(s->shared) = FIRST;
	return ops_prepare(s, op);
}

static const char *atomic(struct side *s, enum ibv_wr_opcode opcode, uint64_t compare_add,
			  uint64_t swap, uint64_t expected)
{
	SGP_SGL(sgl, 1);
	struct sgp_wr wr = {.context = s,
			    .sgl = &sgl,
			    .opcode = opcode,
			    .remote_addr = s->told.addr,
			    .rkey = s->told.rkey,
			    .compare_add = compare_add,
			    .swap = swap};
	uint64_t was;

	get_list(s, &sgl, 1, sizeof was, 0);
	TRY(post(s, &wr));
	TRY(reap(s, s->ep, ops_wc_opcode(opcode)));
	if (s->wc->sgl.length != sizeof was)
		return "an atomic operation that does not return 8 bytes";
	memcpy(&was, (void *)(uintptr_t)s->wc->sgl.sge[0].addr, sizeof was);
	return was == expected ? NULL
			       : wrong("it was %llu instead of %llu", (unsigned long long)was,
				       (unsigned long long)expected);
}

const char *act_atomic(struct side *s, const struct op *op)
{
	(void)op;
	TRY(atomic(s, IBV_WR_ATOMIC_FETCH_AND_ADD, ADDED, 0, FIRST));
	TRY(atomic(s, IBV_WR_ATOMIC_CMP_AND_SWP, FIRST, 1, FIRST + ADDED)); /* not equal: no swap */
	TRY(atomic(s, IBV_WR_ATOMIC_CMP_AND_SWP, FIRST + ADDED, SECOND, FIRST + ADDED));
	return send_done(s);
}

const char *check_atomic(struct side *s, const struct op *op)
{
	uint64_t is;

	(void)op;
	TRY(receive_done(s));
	memcpy(&is, sgp_chunk_addr(s->shared), sizeof is);
	return is == SECOND ? NULL : wrong("the server has %llx", (unsigned long long)is);
}

/* ---- what iWARP lacks ---- */

const char *act_lacking(struct side *s, const struct op *op)
{
	static const enum ibv_wr_opcode lacking[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_CMP_AND_SWP};

	(void)op;
	for (int i = 0; i < 4; i++) {
		SGP_SGL(sgl, 1);
		struct sgp_wr wr = {.context = s,
				    .sgl = &sgl,
				    .opcode = lacking[i],
				    .remote_addr = s->told.addr,
				    .rkey = s->told.rkey};

		get_list(s, &sgl, 1, 8, 0);
		if (!sgp_post(s->ep, &wr, NULL) || errno != EOPNOTSUPP || sgl.num_chunk != 1)
			return wrong("opcode %d is not refused as it should be", (int)lacking[i]);
		sgp_sgl_clear(&sgl);
	}
	return NULL;
}

/* ---- memory windows: the slice [SLICE, 2 * SLICE) of the shared chunk, for WRITEs ---- */

#define SLICE 4096u

static const char *open_window(struct side *s)
{
	s->window = sgp_window_create(s->ep);
	if (!s->window)
		return wrong("window: %s", sgp_errmsg());
	sgp_chunk_ref(s->shared); /* the window's */
	if (sgp_post_bind(s->ep, s, s->window, s->shared, SLICE, SLICE, IBV_ACCESS_REMOTE_WRITE,
			  IBV_SEND_SIGNALED)) {
		sgp_chunk_put(s->shared);
		return wrong("bind: %s", sgp_errmsg());
	}
	TRY(reap(s, s->ep, IBV_WC_BIND_MW));
	s->told.window_rkey = sgp_window_rkey(s->window);
	return NULL;
}

static const char *invalidate(struct side *s)
{
	if (sgp_post_invalidate(s->ep, s, s->window, IBV_SEND_SIGNALED))
		return wrong("invalidate: %s", sgp_errmsg());
	return reap(s, s->ep, IBV_WC_LOCAL_INV);
}

static const char *end_window(struct side *s)
{
	return sgp_window_destroy(s->window) ? wrong("window: %s", sgp_errmsg()) : NULL;
}

const char *prepare_window(struct side *s, const struct op *op)
{
	TRY(open_window(s));
	return ops_prepare(s, op);
}

const char *act_window(struct side *s, const struct op *op)
{
	SGP_SGL(sgl, 1);

	get_list(s, &sgl, 1, SLICE, ops_seed(op));
	if (sgp_post_writev(s->ep, s, &sgl, IBV_SEND_SIGNALED, s->told.addr + SLICE,
			    s->told.window_rkey))
		return wrong("post: %s", sgp_errmsg());
	TRY(reap(s, s->ep, IBV_WC_RDMA_WRITE));
	return send_done(s);
}

const char *check_window(struct side *s, const struct op *op)
{
	const uint8_t *shared = sgp_chunk_addr(s->shared);

	TRY(receive_done(s));
	TRY(compare(shared + SLICE, SLICE, ops_seed(op), 0));
	TRY(invalidate(s));
	return sgp_window_is_bound(s->window) ? "the window is still bound" : end_window(s);
}

/* The peer's SEND has invalidated it. */
const char *check_invalidated(struct side *s, const struct op *op)
{
	TRY(ops_check(s, op));
	return sgp_window_is_bound(s->window) ? "the window is still bound" : end_window(s);
}

/*
 * What must fail, and the connection does not survive. (A WRITE beside the slice is not among it:
 * rxe looks at the rights of the window, but at the bounds of its region.)
 */
static const char *dead(struct side *s, const struct op *op, enum ibv_wr_opcode opcode)
{
	SGP_SGL(sgl, 1);
	struct sgp_wr wr = {.context = s,
			    .sgl = &sgl,
			    .opcode = opcode,
			    .flags = IBV_SEND_SIGNALED,
			    .remote_addr = s->told.addr + SLICE,
			    .rkey = s->told.window_rkey};

	get_list(s, &sgl, 1, op->size, ops_seed(op));
	if (sgp_post(s->ep, &wr, NULL))
		return wrong("post: %s", sgp_errmsg());
	if (sgp_wait(s->cq, 1, s->wc, OPS_MS) != 1)
		return "no completion";
	return s->wc->status == IBV_WC_REM_ACCESS_ERR
		       ? NULL
		       : wrong("the completion says %s", ibv_wc_status_str(s->wc->status));
}

const char *act_read_window(struct side *s, const struct op *op)
{
	return dead(s, op, IBV_WR_RDMA_READ);
}

const char *prepare_after(struct side *s, const struct op *op)
{
	(void)op;
	TRY(open_window(s));
	return invalidate(s);
}

const char *act_after(struct side *s, const struct op *op)
{
	return dead(s, op, IBV_WR_RDMA_WRITE);
}

const char *check_untouched(struct side *s, const struct op *op)
{
	const uint8_t *shared = sgp_chunk_addr(s->shared);

	for (size_t i = 0; i < 2 * SLICE + op->size; i++)
		if (shared[i])
			return "the WRITE has been there";
	return end_window(s);
}

const char *prepare_window_only(struct side *s, const struct op *op)
{
	(void)op;
	return open_window(s);
}

/* ---- datagrams ---- */

#define GRH 40 /* bytes in front of a datagram: ibv_create_ah(3) */

static const char *open_ud(struct side *s)
{
	struct sgp_ep_attr attr = {.cq = s->cq,
				   .pd = s->pd,
				   .cap = {4, 4, 1, 1, 0},
				   .qp_type = IBV_QPT_UD,
				   .port_num = s->id->port_num};
	struct ibv_qp_attr qp = {
		.qp_state = IBV_QPS_INIT, .port_num = s->id->port_num, .qkey = RDMA_UDP_QKEY};

	s->ud = sgp_ep_create(NULL, &attr);
	if (!s->ud)
		return wrong("UD endpoint: %s", sgp_errmsg());
	if (ibv_modify_qp(sgp_ep_qp(s->ud), &qp,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		return wrong("INIT: %s", strerror(errno));
	qp.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(sgp_ep_qp(s->ud), &qp, IBV_QP_STATE))
		return wrong("RTR: %s", strerror(errno));
	qp.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(sgp_ep_qp(s->ud), &qp, IBV_QP_STATE | IBV_QP_SQ_PSN))
		return wrong("RTS: %s", strerror(errno));
	return NULL;
}

static const char *close_ud(struct side *s)
{
	if (sgp_ep_close(s->ud, 1000))
		return wrong("UD endpoint: %s", sgp_errmsg());
	if (sgp_poll(s->cq, 1, s->wc))
		return "the UD endpoint had something left";
	return sgp_ep_destroy(s->ud) ? wrong("UD endpoint: %s", sgp_errmsg()) : NULL;
}

const char *prepare_ud(struct side *s, const struct op *op)
{
	TRY(open_ud(s));
	s->told.ud_qpn = sgp_ep_qp(s->ud)->qp_num;
	s->told.ud_gid = s->id->route.addr.addr.ibaddr.sgid;
	return post_receive(s, s->ud, 1, GRH + op->size);
}

static struct ibv_ah *make_ah(struct side *s)
{
	struct ibv_ah_attr attr = {.is_global = 1,
				   .port_num = s->id->port_num,
				   .grh = {.dgid = s->told.ud_gid, .hop_limit = 64}};
	union ibv_gid gid;

	/* Both processes are on the same address. */
	while (!ibv_query_gid(s->id->verbs, s->id->port_num, attr.grh.sgid_index, &gid)) {
		if (!memcmp(&gid, &s->told.ud_gid, sizeof gid))
			return ibv_create_ah(s->pd, &attr);
		attr.grh.sgid_index++;
	}
	return NULL;
}

const char *act_ud(struct side *s, const struct op *op)
{
	struct ibv_ah *ah = make_ah(s);
	SGP_SGL(sgl, 1);

	if (!ah)
		return "no address handle";
	TRY(open_ud(s));
	get_list(s, &sgl, 1, op->size, ops_seed(op));
	if (sgp_post_ud_sendv(s->ud, s, &sgl, IBV_SEND_SIGNALED, ah, s->told.ud_qpn))
		return wrong("post: %s", sgp_errmsg());
	TRY(reap(s, s->ud, IBV_WC_SEND));
	if (ibv_destroy_ah(ah))
		return "the address handle does not end";
	return close_ud(s);
}

const char *check_ud(struct side *s, const struct op *op)
{
	const struct sgp_wc *wc = s->wc;
	struct ibv_ah *ah;

	TRY(reap(s, s->ud, IBV_WC_RECV));
	if (wc->byte_len != op->size)
		return wrong("%llu bytes arrived", (unsigned long long)wc->byte_len);
	TRY(compare_list(&wc->sgl, op->size, ops_seed(op)));
	if (!wc->grh || !wc->src_qp)
		return "the datagram does not say where it came from";
	ah = sgp_create_ah_from_wc(s->pd, wc, s->id->port_num);
	if (!ah || ibv_destroy_ah(ah))
		return wrong("an address for the answer: %s", sgp_errmsg());
	return close_ud(s);
}

/* ---- memory that the peer has not opened; the connection does not survive it ---- */

const char *prepare_refused(struct side *s, const struct op *op)
{
	fill(sgp_chunk_addr(s->secret), op->size, ops_seed(op), 0);
	return NULL;
}

const char *act_refused(struct side *s, const struct op *op)
{
	const struct sgp_wc *wc = s->wc;
	const uint8_t *sink;
	SGP_SGL(sgl, 1);

	get_list(s, &sgl, 1, op->size, 0);
	if (sgp_post_readv(s->ep, s, &sgl, 0, s->told.secret_addr, s->told.secret_rkey))
		return wrong("post: %s", sgp_errmsg());
	if (sgp_wait(s->cq, 1, s->wc, OPS_MS) != 1)
		return "no completion";
	if (wc->status != IBV_WC_REM_ACCESS_ERR)
		return wrong("the READ's completion says %s", ibv_wc_status_str(wc->status));
	if (wc->opcode != IBV_WC_RDMA_READ || wc->sgl.length != op->size)
		return "the READ's list does not come back";
	sink = (uint8_t *)(uintptr_t)wc->sgl.sge[0].addr;
	for (uint32_t i = 0; i < op->size; i++)
		if (sink[i] != OPS_EMPTY)
			return "the secret got out";
	return NULL;
}

/*
 * The same for iWARP. A WRITE, as soft-iWARP sends what a READ asks for without looking at the
 * rights. The WRITE itself counts as done when TCP has it; then the connection goes.
 */
const char *act_refused_write(struct side *s, const struct op *op)
{
	SGP_SGL(sgl, 1);

	TRY(post_receive(s, s->ep, 1, 16));
	get_list(s, &sgl, 1, op->size, ops_seed(op) + 1);
	if (sgp_post_writev(s->ep, s, &sgl, IBV_SEND_SIGNALED, s->told.secret_addr,
			    s->told.secret_rkey))
		return wrong("post: %s", sgp_errmsg());
	TRY(reap(s, s->ep, IBV_WC_RDMA_WRITE));
	if (sgp_wait(s->cq, 1, s->wc, OPS_MS) != 1 || s->wc->opcode != IBV_WC_RECV ||
	    s->wc->status == IBV_WC_SUCCESS)
		return "the connection still stands";
	return NULL;
}

const char *check_refused(struct side *s, const struct op *op)
{
	return compare(sgp_chunk_addr(s->secret), op->size, ops_seed(op), 0);
}
