/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random sequences of verbs calls on live objects: nothing may crash, hang or leak, whatever the
 * order, the states and the arguments, as long as the objects exist. After each sequence everything
 * is destroyed, and nothing may be alive.
 *
 *	fuzz [--seed S] [--steps N]
 *
 * The sequence follows from the seed. Each round of a thousand steps takes another persona.
 */
#include "fuzz.h"

#define ROUND 1000

static const char *const personas[] = {"soft", "rxe", "siw", "mlx4", "mlx5", "efa", "hns", "irdma"};

static uint64_t state;
char arena[ARENA];
static char device[32];

struct ibv_context *ctx;
struct ibv_pd *pd[MAX];
struct ibv_mr *mr[MAX];
struct ibv_mw *mw[MAX];
struct ibv_ah *ah[MAX];
struct ibv_comp_channel *ch[MAX];
struct ibv_cq *cq[MAX];
struct ibv_srq *srq[MAX];
struct ibv_qp *qp[MAX];
struct rdma_event_channel *ec;
struct rdma_cm_id *id[MAX];

uint32_t rnd(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 33) % n;
}

void fail(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	exit(1);
}

/* ---- objects ---- */

static void make(void)
{
	void **at;

	switch (rnd(8)) {
	case 0:
		if ((at = FREE(pd)))
			*at = ibv_alloc_pd(ctx);
		break;
	case 1:
		if ((at = FREE(mr)) && TAKEN(pd)) {
			struct ibv_pd *p = PICK(pd);
			uint32_t off = rnd(ARENA - 1);

			*at = p ? ibv_reg_mr(p, arena + off, 1 + rnd(ARENA - off - 1), (int)rnd(32))
				: NULL;
		}
		break;
	case 2:
		if ((at = FREE(ch)))
			*at = ibv_create_comp_channel(ctx);
		break;
	case 3:
		if ((at = FREE(cq)))
			*at = ibv_create_cq(ctx, (int)rnd(40) - 1, NULL, PICK(ch), 0);
		break;
	case 4:
		if ((at = FREE(srq))) {
			struct ibv_srq_init_attr a = {.attr = {rnd(20), rnd(4), rnd(8)}};
			struct ibv_pd *p = PICK(pd);

			*at = p ? ibv_create_srq(p, &a) : NULL;
		}
		break;
	case 5:
		if ((at = FREE(mw))) {
			struct ibv_pd *p = PICK(pd);

			*at = p ? ibv_alloc_mw(p, rnd(2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2) : NULL;
		}
		break;
	case 6:
		if ((at = FREE(ah))) {
			struct ibv_ah_attr a = {.is_global = rnd(8) != 0, .port_num = 1};
			struct ibv_pd *p = PICK(pd);

			ibv_query_gid(ctx, 1, 0, &a.grh.dgid);
			if (!rnd(4))
				a.grh.dgid.raw[0] = 0xff;
			*at = p ? ibv_create_ah(p, &a) : NULL;
		}
		break;
	default:
		if ((at = FREE(qp))) {
			struct ibv_qp_init_attr a = {
				.qp_type = rnd(4) ? IBV_QPT_RC : IBV_QPT_UD,
				.send_cq = PICK(cq),
				.recv_cq = PICK(cq),
				.srq = rnd(3) ? NULL : PICK(srq),
				.cap = {rnd(20), rnd(20), rnd(4), rnd(4), rnd(64)},
				.sq_sig_all = (int)rnd(2),
			};
			struct ibv_pd *p = PICK(pd);

			*at = p && a.send_cq && a.recv_cq ? ibv_create_qp(p, &a) : NULL;
		}
	}
}

#define DESTROY(table, call)                                                                       \
	do {                                                                                       \
		void **at = TAKEN(table);                                                          \
		if (at && !call(*at))                                                              \
			*at = NULL;                                                                \
	} while (0)

static void destroy(void)
{
	switch (rnd(9)) {
	case 0:
		DESTROY(pd, ibv_dealloc_pd);
		break;
	case 1:
		DESTROY(mr, ibv_dereg_mr);
		break;
	case 2:
		DESTROY(ch, ibv_destroy_comp_channel);
		break;
	case 3:
		DESTROY(cq, ibv_destroy_cq);
		break;
	case 4:
		DESTROY(srq, ibv_destroy_srq);
		break;
	case 5:
		DESTROY(mw, ibv_dealloc_mw);
		break;
	case 6:
		DESTROY(ah, ibv_destroy_ah);
		break;
	default:
		DESTROY(qp, ibv_destroy_qp);
	}
}

/* ---- rounds ---- */

static void step(void)
{
	switch (rnd(30)) {
	case 0:
	case 1:
	case 6:
		make();
		break;
	case 2:
		destroy();
		break;
	case 3:
		events();
		break;
	case 4:
		cm_step();
		break;
	case 5:
		sv_clock_advance(rnd(100000000));
		break;
	default:
		queue_step();
	}
}

#define DESTROY_ALL(table, call)                                                                   \
	for (int i = 0; i < MAX; i++)                                                              \
		if (table[i]) {                                                                    \
			if (call(table[i]))                                                        \
				fail(#call " failed at the end");                                  \
			table[i] = NULL;                                                           \
		}

static void open_all(uint64_t round)
{
	struct ibv_device **list;

	snprintf(device, sizeof device, "dev%llu", (unsigned long long)round);
	if (sv_device_add(device, personas[rnd(sizeof personas / sizeof *personas)], 1))
		fail("device_add");
	list = ibv_get_device_list(NULL);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	ec = rdma_create_event_channel();
	if (!ctx || !ec)
		fail("open");
	if (rnd(2))
		sv_faults("any fail ENOMEM chance 0.01; completion drop chance 0.01;"
			  "completion delay 3 chance 0.02; completion swap chance 0.02;"
			  "completion duplicate chance 0.01; message kill chance 0.002; message late 1 chance 0.02;"
			  "post_send midway chance 0.01; post_send doorbell EIO chance 0.01",
			  NULL);
	sv_strict((int)rnd(2));
	if (!rnd(8))
		sv_set(device, "no_extended", 1);
}

/* Something of each kind to begin with. */
static void furnish(void)
{
	for (int i = 0; i < 8; i++) {
		pd[i] = ibv_alloc_pd(ctx);
		ch[i] = ibv_create_comp_channel(ctx);
		cq[i] = ibv_create_cq(ctx, 64, NULL, ch[i], 0);
		mr[i] = pd[i & 1] ? ibv_reg_mr(pd[i & 1], arena, ARENA, i ? 31 : 1) : NULL;
	}
	for (int i = 0; i < 10; i++) {
		struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
					     .send_cq = cq[i & 3],
					     .recv_cq = cq[rnd(4)],
					     .cap = {16, 16, 4, 4, 64}};

		if (a.send_cq && a.recv_cq && pd[i & 1])
			qp[i] = ibv_create_qp(pd[i & 1], &a);
	}
	for (int i = 0; i < 10; i += 2)
		if (qp[i] && qp[i + 1]) {
			bring_up(qp[i], qp[i + 1]);
			bring_up(qp[i + 1], qp[i]);
		}
}

static void close_all(void)
{
	sv_faults_clear();
	if (!rnd(4))
		sv_device_remove(device);
	for (int i = 0; i < MAX; i++)
		if (id[i]) {
			if (id[i]->qp)
				rdma_destroy_qp(id[i]);
			if (rdma_destroy_id(id[i]))
				fail("rdma_destroy_id");
			id[i] = NULL;
		}
	rdma_destroy_event_channel(ec);
	DESTROY_ALL(qp, ibv_destroy_qp)
	DESTROY_ALL(srq, ibv_destroy_srq)
	DESTROY_ALL(cq, ibv_destroy_cq)
	DESTROY_ALL(ch, ibv_destroy_comp_channel)
	DESTROY_ALL(mw, ibv_dealloc_mw)
	DESTROY_ALL(mr, ibv_dereg_mr)
	DESTROY_ALL(ah, ibv_destroy_ah)
	DESTROY_ALL(pd, ibv_dealloc_pd)
	if (ibv_close_device(ctx))
		fail("ibv_close_device");
	for (int i = 0; i < SV_NCOUNTERS; i++)
		if (sv_live((enum sv_counter)i)) {
			fprintf(stderr, "counter %d: %d\n", i, sv_live((enum sv_counter)i));
			fail("something is left");
		}
	sv_device_remove(device);
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, steps = 20000;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--steps"))
			steps = strtoull(argv[i + 1], NULL, 0);
		else
			return fprintf(stderr, "usage: fuzz [--seed S] [--steps N]\n"), 2;
	}
	sv_clock_advance(1);
	for (uint64_t round = 0; round * ROUND < steps; round++) {
		state = (seed + round) * 0x9e3779b97f4a7c15u | 1;
		open_all(round);
		furnish();
		for (int i = 0; i < ROUND; i++)
			step();
		close_all();
	}
	printf("%llu steps from seed %llu, %llu sends, %llu completions' polls\n",
	       (unsigned long long)steps, (unsigned long long)seed,
	       (unsigned long long)sv_calls("post_send"), (unsigned long long)sv_calls("poll_cq"));
	say_tally();
	return 0;
}
