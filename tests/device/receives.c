/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * receives ADDR: receives that the library keeps posted, on the device at ADDR, in one process: two
 * connections, whose passive ends are kept full by themselves or share one queue. Contents are
 * compared, and after each poll the pool has out what is posted and what the test holds.
 *
 *      out[0], out[1]  connect and send        in[0], in[1]  accept and receive
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sgpool/sgpool.h>

#define DEPTH    8
#define HEAD     64
#define BODY     4096
#define CHUNKS   3 /* of a receive: a head, and two for the body */
#define MESSAGES 400
#define MS       30000 /* for what must come, on a slow machine */

static struct rdma_event_channel *events;
static struct rdma_cm_id *listener;
static struct world {
	struct rdma_cm_id *out_id[2], *in_id[2];
	struct sgp_ep *out[2], *in[2];
	struct ibv_pd *pd;
	struct sgp_pool *pool, *out_pool;
	struct sgp_cq *cq, *out_cq;
	struct sgp_wc *wc, *out_wc;
	struct sgp_srq *srq;
} w;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("FAILED: ");
	vprintf(fmt, ap);
	va_end(ap);
	printf(" (%s; %s)\n", strerror(errno), sgp_errmsg());
	exit(1);
}

#define NEED(what)                                                                                 \
	do {                                                                                       \
		if (!(what))                                                                       \
			die("line %d: %s", __LINE__, #what);                                       \
	} while (0)

/* ---- two connections ---- */

static struct rdma_cm_event *next_event(void)
{
	struct pollfd pfd = {.fd = events->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	NEED(poll(&pfd, 1, MS) == 1);
	NEED(!rdma_get_cm_event(events, &event));
	return event;
}

/* The next event, which must be this. Returns its identifier. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event();
	struct rdma_cm_id *id = event->id;

	if (event->event != type)
		die("%s instead of %s", rdma_event_str(event->event), rdma_event_str(type));
	rdma_ack_cm_event(event);
	return id;
}

static struct sgp_pool *make_pool(size_t heads, size_t bodies)
{
	struct sgp_class_attr classes[] = {{.size = HEAD, .chunks = heads},
					   {.size = BODY, .chunks = bodies, .reserve = bodies / 2}};
	struct sgp_pool_attr attr = {.classes = classes, .nclasses = 2, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(w.pd, &attr);

	NEED(pool);
	return pool;
}

static void make_objects(struct ibv_context *verbs, bool shared)
{
	struct sgp_cq_attr cq = {.cqe = 8 * DEPTH};
	struct sgp_recv_part parts[2] = {{.size = HEAD}, {.size = BODY, .n = 2}};
	struct sgp_srq_attr srq = {
		.depth = DEPTH, .recv = parts, .num_recv = 2, .context = &w, .limit = DEPTH / 2};

	NEED(w.pd = ibv_alloc_pd(verbs));
	w.pool = make_pool(4 * DEPTH, 8 * DEPTH);
	w.out_pool = make_pool(4 * DEPTH, 8 * DEPTH);
	NEED(w.cq = sgp_cq_create(verbs, &cq));
	NEED(w.wc = sgp_wc_alloc(w.cq, DEPTH));
	NEED(w.out_cq = sgp_cq_create(verbs, &cq));
	NEED(w.out_wc = sgp_wc_alloc(w.out_cq, DEPTH));
	parts[0].pool = parts[1].pool = w.pool;
	srq.pd = w.pd;
	if (shared)
		NEED(w.srq = sgp_srq_create(&srq));
}

static struct sgp_ep *make_ep(struct rdma_cm_id *id, bool in)
{
	struct sgp_recv_part parts[2] = {{.pool = w.pool, .size = HEAD},
					 {.pool = w.pool, .size = BODY, .n = 2}};
	struct sgp_ep_attr attr = {.cq = in ? w.cq : w.out_cq,
				   .pd = w.pd,
				   .cap = {DEPTH, in ? DEPTH : 1, CHUNKS, CHUNKS, 0}};
	struct sgp_ep *ep;

	if (in && w.srq) {
		attr.srq = w.srq;
	} else if (in) {
		attr.recv = parts;
		attr.num_recv = 2;
		attr.recv_context = &w;
	}
	ep = sgp_ep_create(id, &attr);
	if (!ep)
		die("no endpoint");
	return ep;
}

static void open_pair(int i, struct sockaddr *addr, bool shared)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	int established = 0;

	NEED(!rdma_create_id(events, &w.out_id[i], NULL, RDMA_PS_TCP));
	NEED(!rdma_resolve_addr(w.out_id[i], NULL, addr, MS));
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(!rdma_resolve_route(w.out_id[i], MS));
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (!w.pd)
		make_objects(w.out_id[i]->verbs, shared);
	w.out[i] = make_ep(w.out_id[i], false);
	NEED(!rdma_connect(w.out_id[i], &param));
	w.in_id[i] = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	w.in[i] = make_ep(w.in_id[i], true);
	NEED(!rdma_accept(w.in_id[i], &param));
	while (established < 2) {
		struct rdma_cm_event *event = next_event();

		if (event->event != RDMA_CM_EVENT_ESTABLISHED)
			die("%s", rdma_event_str(event->event));
		sgp_ep_event(event->id == w.out_id[i] ? w.out[i] : w.in[i], event);
		rdma_ack_cm_event(event);
		established++;
	}
}

static void close_ep(struct sgp_ep *ep, struct sgp_cq *cq, struct sgp_wc *wc)
{
	int n;

	if (sgp_ep_close(ep, 1000))
		die("close");
	while ((n = sgp_poll(cq, DEPTH, wc)) > 0)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&wc[i].sgl);
	if (n || sgp_ep_destroy(ep))
		die("end");
}

static void close_pair(int i)
{
	close_ep(w.out[i], w.out_cq, w.out_wc);
	close_ep(w.in[i], w.cq, w.wc);
	/* Whatever the connection manager had to say about it. */
	for (struct pollfd pfd = {.fd = events->fd, .events = POLLIN}; poll(&pfd, 1, 200) == 1;)
		rdma_ack_cm_event(next_event());
	NEED(!rdma_destroy_id(w.out_id[i]));
	NEED(!rdma_destroy_id(w.in_id[i]));
}

/* Everything ends, which it does only when no chunk is out. */
static void close_all(void)
{
	close_pair(0);
	close_pair(1);
	if (w.srq && sgp_srq_destroy(w.srq))
		die("the shared queue's end");
	sgp_wc_free(w.wc);
	sgp_wc_free(w.out_wc);
	if (sgp_cq_destroy(w.cq) || sgp_cq_destroy(w.out_cq) || sgp_pool_destroy(w.pool) ||
	    sgp_pool_destroy(w.out_pool) || ibv_dealloc_pd(w.pd))
		die("the end");
	memset(&w, 0, sizeof w);
}

/* ---- messages ---- */

static uint8_t byte_at(int message, size_t i)
{
	return (uint8_t)((size_t)message * 7 + i + (i >> 8) * 3);
}

/* All lengths that matter at the chunks' edges, and others. */
static size_t length_of(int message)
{
	static const size_t edges[] = {0,
				       1,
				       HEAD - 1,
				       HEAD,
				       HEAD + 1,
				       HEAD + BODY - 1,
				       HEAD + BODY,
				       HEAD + BODY + 1,
				       HEAD + 2 * BODY};
	size_t n = sizeof edges / sizeof *edges;

	return (size_t)message % 20 < n ? edges[message % 20] : (size_t)message * 997 % 8000;
}

static void send_message(int i, int message)
{
	size_t n = length_of(message), done = 0;
	SGP_SGL(sgl, CHUNKS);

	while (done < n) {
		struct sgp_chunk *chunk = sgp_pool_get(w.out_pool, BODY, 0);
		size_t piece = n - done < BODY ? n - done : BODY;
		uint8_t *p;

		NEED(chunk);
		p = sgp_chunk_addr(chunk);
		for (size_t j = 0; j < piece; j++)
			p[j] = byte_at(message, done + j);
		NEED(!sgp_sgl_append(&sgl, chunk, 0, piece));
		done += piece;
	}
	if (sgp_post_sendv(w.out[i], NULL, &sgl, IBV_SEND_SIGNALED))
		die("post");
	NEED(sgp_wait(w.out_cq, 1, w.out_wc, MS) == 1);
	if (w.out_wc->status)
		die("send: %s", ibv_wc_status_str(w.out_wc->status));
}

/* So many receives are posted for connection i. Returns how many are in all. */
static unsigned int check_count(int i, unsigned int posted)
{
	unsigned int all = 0;

	if (w.srq) {
		struct sgp_srq_stats stats;

		NEED(!sgp_srq_stats(w.srq, &stats));
		if (stats.posted != posted || stats.lost || stats.refused)
			die("%u are posted, %u lost, %llu refused", stats.posted, stats.lost,
			    (unsigned long long)stats.refused);
		return posted;
	}
	for (int j = 0; j < 2; j++) {
		struct sgp_ep_info info;

		NEED(!sgp_ep_query(w.in[j], &info));
		all += (unsigned int)info.recv_posted;
		if (j == i && info.recv_posted != (int)posted)
			die("%d are posted instead of %u", info.recv_posted, posted);
	}
	return all;
}

/* It's full, and nothing else is out of the pool. */
static void check_full(int i)
{
	struct sgp_pool_stats pool;
	unsigned int all = check_count(i, DEPTH);

	NEED(!sgp_pool_stats(w.pool, &pool));
	if (pool.live != all * CHUNKS)
		die("%u chunks are out", (unsigned int)pool.live);
}

static void receive_message(int i, int message, struct sgp_sgl *keep)
{
	size_t n = length_of(message), done = 0;
	int chunks = n == 0 ? 0 : n <= HEAD ? 1 : n <= HEAD + BODY ? 2 : 3;
	const struct sgp_sgl *sgl = &w.wc->sgl;

	NEED(sgp_wait(w.cq, 1, w.wc, MS) == 1);
	if (w.wc->status)
		die("receive: %s", ibv_wc_status_str(w.wc->status));
	NEED(w.wc->opcode == IBV_WC_RECV && w.wc->ep == w.in[i] && w.wc->context == &w);
	NEED(w.wc->byte_len == n && sgl->length == n);
	NEED(sgl->num_chunk == chunks && sgl->num_sge == chunks);
	for (int j = 0; j < sgl->num_sge; j++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)sgl->sge[j].addr;

		NEED(j == 0 || (uintptr_t)p % 4096 == 0);
		for (uint32_t k = 0; k < sgl->sge[j].length; k++, done++)
			if (p[k] != byte_at(message, done))
				die("message %d: byte %zu", message, done);
	}
	if (keep)
		NEED(!sgp_sgl_move(keep, &w.wc->sgl));
	else
		sgp_sgl_clear(&w.wc->sgl);
}

/* ---- what is tested ---- */

static void *put_later(void *list)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	sgp_sgl_clear(list);
	return NULL;
}

/*
 * Slow consumers hold all that the pool has; one puts on another thread, and a message comes in. The
 * big chunks' last ones are taken away first, so that the pool is dry.
 */
static void dry_and_not(bool rnr)
{
	struct sgp_chunk *taken[8 * DEPTH], *chunk[4 * DEPTH * CHUNKS];
	struct ibv_sge sge[4 * DEPTH * CHUNKS];
	unsigned int n = 0, posted = DEPTH;
	struct sgp_sgl kept;
	pthread_t thread;

	sgp_sgl_init(&kept, sge, 4 * DEPTH * CHUNKS, chunk, 4 * DEPTH * CHUNKS);
	while ((taken[n] = sgp_pool_get(w.pool, BODY, SGP_GET_RESERVED)))
		n++;
	for (int m = 8; posted; posted--) { /* length_of(8) takes whole receives */
		check_count(0, posted);
		send_message(0, m);
		receive_message(0, m, &kept);
	}
	NEED(!pthread_create(&thread, NULL, put_later, &kept));
	if (!rnr) /* a message without a receive would end the connection */
		NEED(!pthread_join(thread, NULL));
	send_message(0, 8);
	receive_message(0, 8, NULL);
	if (rnr)
		NEED(!pthread_join(thread, NULL));
	while (n)
		sgp_chunk_put(taken[--n]);
	NEED(sgp_poll(w.cq, 1, w.wc) == 0);
	check_full(0);
}

/* The device has told that few receives are left, and will tell it again. */
static void take_limit_event(unsigned int nth)
{
	struct ibv_context *verbs = w.out_id[0]->verbs;
	struct pollfd pfd = {.fd = verbs->async_fd, .events = POLLIN};
	struct ibv_async_event event;
	struct sgp_srq_stats stats;
	bool reached = false;

	while (!reached) {
		NEED(poll(&pfd, 1, MS) == 1);
		NEED(!ibv_get_async_event(verbs, &event));
		reached = event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED;
		NEED(!sgp_srq_event(w.srq, &event));
		ibv_ack_async_event(&event);
	}
	NEED(!sgp_srq_stats(w.srq, &stats));
	NEED(stats.limits == nth);
}

static void run(struct sockaddr *addr, bool shared)
{
	bool iwarp;

	open_pair(0, addr, shared);
	open_pair(1, addr, shared);
	iwarp = w.out_id[0]->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	for (int m = 0; m < MESSAGES; m++) {
		check_full(m / 3 % 2);
		send_message(m / 3 % 2, m);
		receive_message(m / 3 % 2, m, NULL);
	}
	/* Several at a time. */
	for (int m = 0; m < MESSAGES; m += DEPTH) {
		for (int i = 0; i < DEPTH; i++)
			send_message(0, m + i);
		for (int i = 0; i < DEPTH; i++)
			receive_message(0, m + i, NULL);
		check_full(0);
	}
	printf("ok: %s: full after each of %d messages\n", shared ? "shared" : "own", 2 * MESSAGES);
	if (shared)
		take_limit_event(1);
	dry_and_not(!iwarp);
	if (shared) {
		take_limit_event(2);
		printf("ok: shared: the limit is told, and again\n");
	}
	printf("ok: %s: dry, and served by another thread's put\n", shared ? "shared" : "own");
	/* The other connection stays as it was. */
	send_message(1, 100);
	receive_message(1, 100, NULL);
	close_all();
	printf("ok: %s: everything came home\n", shared ? "shared" : "own");
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE};
	struct rdma_addrinfo *to;

	if (argc != 2)
		return fprintf(stderr, "Usage: receives ADDR\n"), 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	NEED(!rdma_getaddrinfo(argv[1], "7490", &hints, &to));
	NEED(events = rdma_create_event_channel());
	NEED(!rdma_create_id(events, &listener, NULL, RDMA_PS_TCP));
	NEED(!rdma_bind_addr(listener, to->ai_src_addr));
	NEED(!rdma_listen(listener, 4));
	run(to->ai_src_addr, false);
	run(to->ai_src_addr, true);
	NEED(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(events);
	rdma_freeaddrinfo(to);
	return 0;
}
