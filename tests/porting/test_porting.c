/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The code of sgpool-porting(7) runs: a server that is ported, and two clients that are not, each with
 * the functions that stand in the page (CMakeLists.txt renames those of before).
 *
 *      rdma before    -- a record -->        verbs after
 *                     <-- a record --        rdma after
 *      verbs before   -- where to read -->   verbs after
 *                     <-- READ --            spdk after
 *                     <-- "done" --          verbs after
 */
#include <check.h>
#include <pthread.h>
#include <string.h>

#include <rdma/rdma_verbs.h>
#include <sgpool/sgpool.h>
#include <sgpool/softverbs.h>

#include "../suite.h"
#include "spdk_like.h"

#define UNIT  4096
#define UNITS 3

struct header {
	uint32_t kind, length;
};
struct where {
	struct header head;
	uint32_t rkey;
	uint64_t remote;
};
struct request {
	uint64_t remote;
	uint32_t rkey;
};
struct buffer {
	struct buffer *next;
	void *data;
	int receives;
};
struct link {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct buffer *free;
	uint32_t size;
	int posted, depth;
};

/* Of the page. */
int before_send_record(struct rdma_cm_id *id, struct header *head, void *body);
struct buffer *get_buffer(struct link *l);
int send_buffer(struct link *l, struct buffer *b, uint32_t length);
int receive_into(struct link *l, struct buffer *b);
int before_serve(struct link *l);
int make_record(struct sgp_sgl *record, struct sgp_pool *pool, uint32_t length,
		struct header **head, void **body);
int send_record(struct sgp_ep *ep, struct sgp_sgl *record);
struct sgp_ep *open_link(struct rdma_cm_id *id, struct ibv_pd *pd, struct sgp_cq *cq,
			 struct sgp_pool *pool);
int send_chunk(struct sgp_ep *ep, struct sgp_chunk *chunk, size_t length);
int serve(struct sgp_cq *cq, struct sgp_wc *wc);
int fetch(struct sgp_ep *ep, struct sgp_pool *pool, struct request *r, int units);
int write_out(struct sgp_wc *wc, struct disk *disk);

/* What they ask for. */
void consume(void *data, uint32_t length);
void before_consume(void *data, uint32_t length);

static char record_body[100], on_disk[UNITS * UNIT];
static struct request wanted;
static int records, done;

void consume(void *data, uint32_t length)
{
	struct header head;
	struct where where;

	memcpy(&head, data, sizeof head);
	if (head.kind == 1) {
		ck_assert_uint_eq(length, sizeof head + head.length);
		memcpy(record_body, (char *)data + sizeof head, head.length);
	} else {
		ck_assert_uint_eq(length, sizeof where);
		memcpy(&where, data, sizeof where);
		wanted = (struct request){.remote = where.remote, .rkey = where.rkey};
	}
	records++;
}

void before_consume(void *data, uint32_t length)
{
	done += length == 4 && !memcmp(data, "done", 4);
}

int disk_writev(struct disk *disk, const struct iovec *iov, int n)
{
	size_t at = 0;

	(void)disk;
	for (int i = 0; i < n; at += iov[i++].iov_len)
		memcpy(on_disk + at, iov[i].iov_base, iov[i].iov_len);
	return at != sizeof on_disk;
}

/* ---- the server, ported ---- */

static struct rdma_cm_id *listener;

/* One wait for a READ's end; whatever else comes is dropped. */
static void read_back(struct sgp_ep *ep, struct sgp_pool *pool, struct sgp_cq *cq,
		      struct sgp_wc *wc)
{
	ck_assert_msg(!fetch(ep, pool, &wanted, UNITS), "%s", sgp_errmsg());
	do
		ck_assert_int_eq(sgp_wait(cq, 1, wc, 10000), 1);
	while (wc->opcode != IBV_WC_RDMA_READ);
	ck_assert_int_eq(wc->status, IBV_WC_SUCCESS);
	ck_assert_ptr_eq(wc->context, &wanted);
	ck_assert_int_eq(write_out(wc, NULL), 0);
}

static void answer(struct sgp_ep *ep[2], struct sgp_pool *pool)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, 4, 0);
	struct header *head;
	void *body;
	SGP_SGL(record, 2);

	ck_assert_msg(!make_record(&record, pool, 6, &head, &body), "%s", sgp_errmsg());
	head->kind = 7;
	memcpy(body, "answer", 6);
	ck_assert_msg(!send_record(ep[0], &record), "%s", sgp_errmsg());
	ck_assert_int_eq(record.num_chunk, 0);
	memcpy(sgp_chunk_addr(chunk), "done", 4);
	ck_assert_msg(!send_chunk(ep[1], chunk, 4), "%s", sgp_errmsg());
}

static void *server(void *arg)
{
	struct sgp_class_attr classes = {.size = UNIT, .chunks = 256};
	struct sgp_pool_attr attr = {
		.classes = &classes, .nclasses = 1, .flags = SGP_POOL_READ_SINK};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *id[2];
	struct sgp_ep_info info;
	struct sgp_ep *ep[2];
	struct sgp_pool *pool;
	struct ibv_pd *pd;
	struct sgp_cq *cq;
	struct sgp_wc *wc;

	(void)arg;
	ck_assert_int_eq(rdma_get_request(listener, &id[0]), 0);
	pd = ibv_alloc_pd(id[0]->verbs);
	pool = sgp_pool_create(pd, &attr);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	cq = sgp_cq_create(id[0]->verbs, &(struct sgp_cq_attr){.cqe = 256});
	wc = sgp_wc_alloc(cq, 16);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(i ? rdma_get_request(listener, &id[1]) : 0, 0);
		ep[i] = open_link(id[i], pd, cq, pool);
		ck_assert_msg(ep[i] != NULL, "%s", sgp_errmsg());
		ck_assert_int_eq(rdma_accept(id[i], &param), 0);
	}
	while (records < 2)
		ck_assert_int_ge(serve(cq, wc), 0);
	read_back(ep[1], pool, cq, wc);
	answer(ep, pool);
	for (int i = 0; i < 2; i++) {
		/* What is posted has to arrive before the queue pair goes. */
		ck_assert_int_eq(sgp_ep_sync(ep[i]), 0);
		do
			ck_assert_int_ge(serve(cq, wc), 0);
		while (!sgp_ep_query(ep[i], &info) && info.send_posted);
		ck_assert_int_eq(sgp_ep_close(ep[i], 5000), 0);
		while (sgp_ep_destroy(ep[i]))
			ck_assert_int_ge(sgp_poll(cq, 16, wc), 0);
		rdma_destroy_ep(id[i]);
	}
	sgp_wc_free(wc);
	ck_assert_int_eq(sgp_cq_destroy(cq), 0);
	ck_assert_msg(!sgp_pool_destroy(pool), "%s", sgp_errmsg());
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	return NULL;
}

/* ---- the clients, as they were ---- */

static struct rdma_cm_id *client(struct ibv_qp_init_attr *attr)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *to;
	struct rdma_cm_id *id;

	ck_assert_int_eq(rdma_getaddrinfo("127.0.0.1", "7472", &hints, &to), 0);
	ck_assert_int_eq(rdma_create_ep(&id, to, NULL, attr), 0);
	rdma_freeaddrinfo(to);
	return id;
}

START_TEST(before_talks_to_after)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, *at;
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 2, 2, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	static char memory[UNITS * UNIT + 2 * UNIT], in[64];
	struct buffer buffers[2] = {{&buffers[1], memory + UNITS * UNIT, 0},
				    {NULL, memory + (UNITS + 1) * UNIT, 0}};
	struct header head = {.kind = 1, .length = 5}, *answered = (void *)in;
	struct link l = {.free = buffers, .size = UNIT, .depth = 2};
	char body[] = "hello";
	struct rdma_cm_id *id[2];
	struct buffer *b;
	struct where *where;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t thread;

	ck_assert_int_eq(rdma_getaddrinfo("127.0.0.1", "7472", &hints, &at), 0);
	ck_assert_int_eq(rdma_create_ep(&listener, at, NULL, NULL), 0);
	rdma_freeaddrinfo(at);
	ck_assert_int_eq(rdma_listen(listener, 2), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, server, NULL), 0);

	/* rdma_reg_msgs() and rdma_post_sendv() */
	id[0] = client(&attr);
	mr = rdma_reg_msgs(id[0], in, sizeof in);
	ck_assert_int_eq(rdma_post_recv(id[0], NULL, in, sizeof in, mr), 0);
	ck_assert_int_eq(rdma_connect(id[0], &param), 0);
	ck_assert_int_eq(before_send_record(id[0], &head, body), 0);

	/* ibv_post_send() and ibv_poll_cq() */
	id[1] = client(NULL);
	pd = ibv_alloc_pd(id[1]->verbs);
	l.cq = ibv_create_cq(id[1]->verbs, 8, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = l.cq;
	ck_assert_int_eq(rdma_create_qp(id[1], pd, &attr), 0);
	l.qp = id[1]->qp;
	l.mr = ibv_reg_mr(pd, memory, sizeof memory,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	for (size_t i = 0; i < UNITS * UNIT; i++)
		memory[i] = (char)(i * 7 + i / UNIT);
	ck_assert_int_eq(receive_into(&l, get_buffer(&l)), 0);
	ck_assert_int_eq(rdma_connect(id[1], &param), 0);
	b = get_buffer(&l);
	where = b->data;
	*where = (struct where){{2, 0}, l.mr->rkey, (uintptr_t)memory};
	ck_assert_int_eq(send_buffer(&l, b, sizeof *where), 0);

	while (!done || l.posted)
		ck_assert_int_ge(before_serve(&l), 0);
	ck_assert_int_eq(rdma_get_recv_comp(id[0], &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, sizeof *answered + 6);
	ck_assert_uint_eq(answered->kind, 7);
	ck_assert_uint_eq(answered->length, 6);
	ck_assert_mem_eq(in + sizeof *answered, "answer", 6);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_str_eq(record_body, "hello");
	ck_assert_mem_eq(on_disk, memory, sizeof on_disk);

	ck_assert_int_eq(rdma_dereg_mr(mr), 0);
	rdma_destroy_ep(id[0]);
	rdma_destroy_qp(id[1]);
	ck_assert_int_eq(ibv_dereg_mr(l.mr), 0);
	ck_assert_int_eq(ibv_destroy_cq(l.cq), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	rdma_destroy_ep(id[1]);
	rdma_destroy_ep(listener);
	ck_assert_int_eq(sv_live(SV_MRS), 0);
	ck_assert_int_eq(sv_live(SV_QPS), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("porting");
	TCase *tc = tcase_create("guide");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, before_talks_to_after);
	return suite_run(suite);
}
