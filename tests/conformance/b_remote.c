/* SPDX-License-Identifier: BSD-2-Clause */
/* READ, WRITE, atomics, windows: what is moved, what is refused, and who learns of it. */
#include "behaviours.h"

static void states(struct pair *p)
{
	say_state("a", p->a.qp);
	say_state("b", p->b.qp);
	say_async("b_async", p->b.id->verbs, 100);
}

void b_write(void)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_connect(&p);
	strcpy(p.a.buf, "written");
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_WRITE, &p.b, 100, 8));
	say(" done=%d", next_wc(p.a.scq, &wc, 2000));
	/* On iWARP that says that it is on its way, not that it is there. */
	for (int ms = 0; ms < 2000 && !*(volatile char *)(p.b.buf + 106); ms++)
		cf_sleep(1);
	say(" %s op=%s got=%s", cf_status(wc.status), cf_opcode(wc.opcode), p.b.buf + 100);
	say_all("b", p.b.rcq, 100);
}

void b_write_imm(void)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_connect(&p);
	post_recv(&p.b, 5, 0, 4); /* its size doesn't matter */
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_WRITE_WITH_IMM, &p.b, 100, 8));
	if (next_wc(p.b.rcq, &wc, 1000))
		say(" %s op=%s len=%u flags=%#x", cf_status(wc.status), cf_opcode(wc.opcode),
		    wc.byte_len, wc.wc_flags);
}

void b_read(void)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_connect(&p);
	strcpy(p.b.buf + 100, "was read");
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_READ, &p.b, 100, 9));
	say(" done=%d", next_wc(p.a.scq, &wc, 2000));
	say(" %s op=%s len=%u got=%s", cf_status(wc.status), cf_opcode(wc.opcode), wc.byte_len,
	    p.a.buf);
}

void b_read_sges(void)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_connect(&p);
	strcpy(p.b.buf, "abcdefgh");
	struct ibv_sge s[2] = {at(&p.a, 0, 4), at(&p.a, 100, 5)};
	struct ibv_send_wr wr = {.sg_list = s,
				 .num_sge = 2,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	say_post("post", post_wr(&p.a, &wr));
	if (next_wc(p.a.scq, &wc, 1500))
		say(" %s first=%.4s second=%.5s", cf_status(wc.status), p.a.buf, p.a.buf + 100);
}

void b_remote_bad_rkey(void)
{
	struct pair p = {0};
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};

	pair_connect(&p);
	post_recv(&p.b, 9, 0, 64);
	s = at(&p.a, 0, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf;
	wr.wr.rdma.rkey = p.b.mr->rkey ^ 0x00ffff00;
	say_post("post", post_wr(&p.a, &wr));
	say_all("write", p.a.scq, 1000);
	say_all("b_recv", p.b.rcq, 300);
	states(&p);
}

void b_remote_out_of_bounds(void)
{
	struct pair p = {0};

	pair_connect(&p);
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_WRITE, &p.b, CF_BUF - 4, 8));
	say_all("write", p.a.scq, 1000);
	states(&p);
}

void b_write_refused(void)
{
	struct pair p = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};

	pair_connect(&p);
	strcpy(p.a.buf, "spoilt");
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_WRITE, &p.b, 0, 8));
	say_all("write", p.a.scq, 1000);
	say(" moved=%d", !strcmp(p.b.buf, "spoilt"));
	states(&p);
}

void b_read_refused(void)
{
	struct pair p = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};

	pair_connect(&p);
	strcpy(p.b.buf, "secret");
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_READ, &p.b, 0, 8));
	say_all("read", p.a.scq, 1000);
	say(" moved=%d", !strcmp(p.a.buf, "secret"));
	states(&p);
}

/* Law 5: what a READ's sink must allow. */
void b_read_sink(void)
{
	struct pair p = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};

	pair_connect(&p);
	say_post("local_write", post_rdma(&p.a, 1, IBV_WR_RDMA_READ, &p.b, 0, 8));
	say_all("read", p.a.scq, 1000);
}

void b_read_sink_readonly(void)
{
	struct pair p = {.access = IBV_ACCESS_REMOTE_READ};

	pair_connect(&p);
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_READ, &p.b, 0, 8));
	say_all("read", p.a.scq, 1000);
	states(&p);
}

void b_remote_zero_length(void)
{
	struct pair p = {0};
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};

	pair_connect(&p);
	wr.wr.rdma.rkey = 0x12345600; /* nobody's */
	say_post("write", post_wr(&p.a, &wr));
	say_all("wc", p.a.scq, 1000);
	wr.opcode = IBV_WR_RDMA_READ;
	say_post("read", post_wr(&p.a, &wr));
	say_all("wc", p.a.scq, 1000);
}

void b_read_no_resources(void)
{
	struct pair p = {.no_rd = true};

	pair_connect(&p);
	say_post("post", post_rdma(&p.a, 1, IBV_WR_RDMA_READ, &p.b, 0, 8));
	say_all("read", p.a.scq, 1500);
}

void b_many_reads(void)
{
	struct pair p = {0};

	pair_connect(&p);
	for (int i = 0; i < 12; i++)
		say("%s%s",
		    i ? "," : " posts=", cf_err(post_rdma(&p.a, i, IBV_WR_RDMA_READ, &p.b, 0, 64)));
	say_all("reads", p.a.scq, 1000);
}

void b_read_then_send(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.b, 3, 0, 64);
	post_rdma(&p.a, 1, IBV_WR_RDMA_READ, &p.b, 0, 4096);
	post_send(&p.a, 2, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	say_all("fenced", p.a.scq, 800);
}

/* ---- atomics ---- */

static int atomic(struct pair *p, enum ibv_wr_opcode op, size_t off, uint32_t len, uint64_t x,
		  uint64_t y)
{
	struct ibv_sge s = at(&p->a, 0, len);
	struct ibv_send_wr wr = {
		.sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED};

	wr.wr.atomic.remote_addr = (uintptr_t)p->b.buf + off;
	wr.wr.atomic.rkey = p->b.mr->rkey;
	wr.wr.atomic.compare_add = x;
	wr.wr.atomic.swap = y;
	return post_wr(&p->a, &wr);
}

static uint64_t value(const char *buf)
{
	uint64_t v;

	memcpy(&v, buf, sizeof v);
	return v;
}

void b_atomics(void)
{
	struct pair p = {0};
	uint64_t v = 40;
	struct ibv_wc wc;

	pair_connect(&p);
	memcpy(p.b.buf, &v, sizeof v);
	say_post("add", atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 2, 0));
	if (next_wc(p.a.scq, &wc, 1000))
		say(" %s op=%s len=%u", cf_status(wc.status), cf_opcode(wc.opcode), wc.byte_len);
	say(" old=%d new=%d", (int)value(p.a.buf), (int)value(p.b.buf));
	say_post("swap", atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, 42, 7));
	if (next_wc(p.a.scq, &wc, 1000))
		say(" %s op=%s", cf_status(wc.status), cf_opcode(wc.opcode));
	say(" old=%d new=%d", (int)value(p.a.buf), (int)value(p.b.buf));
	say_post("no_swap", atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, 42, 9));
	say_wc("wc", p.a.scq, 1000);
	say(" new=%d", (int)value(p.b.buf));
}

void b_atomic_unaligned(void)
{
	struct pair p = {0};

	pair_connect(&p);
	say_post("post", atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 8, 2, 0));
	say_all("wc", p.a.scq, 1000);
	states(&p);
}

void b_atomic_refused(void)
{
	struct pair p = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE};

	pair_connect(&p);
	say_post("post", atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 2, 0));
	say_all("wc", p.a.scq, 1000);
	states(&p);
}

/* ---- windows ---- */

static int bind_window(struct end *e, struct ibv_mw *mw, uint32_t rkey, size_t off, uint64_t len,
		       unsigned int access)
{
	struct ibv_send_wr wr = {
		.wr_id = 70, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info.mr = e->mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)e->buf + off;
	wr.bind_mw.bind_info.length = len;
	wr.bind_mw.bind_info.mw_access_flags = access;
	return post_wr(e, &wr);
}

static int write_key(struct pair *p, uint32_t rkey, size_t off, uint32_t len)
{
	struct ibv_sge s = at(&p->a, 0, len);
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = (uintptr_t)p->b.buf + off;
	wr.wr.rdma.rkey = rkey;
	return post_wr(&p->a, &wr);
}

/* b binds a window of type 2 over bytes 1000 to 1100; the new rkey. */
static uint32_t window(struct pair *p, struct ibv_mw **mw, unsigned int access)
{
	uint32_t rkey;

	pair_connect(p);
	*mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_2);
	cf_need(*mw != NULL, "alloc_mw");
	rkey = ibv_inc_rkey((*mw)->rkey);
	say_post("bind", bind_window(&p->b, *mw, rkey, 1000, 100, access));
	say_wc("wc", p->b.scq, 1000);
	return rkey;
}

void b_window_write(void)
{
	struct pair p = {0};
	struct ibv_mw *mw;
	uint32_t rkey = window(&p, &mw, IBV_ACCESS_REMOTE_WRITE);

	say_post("post", write_key(&p, rkey, 1000, 100));
	say_wc("inside", p.a.scq, 1000);
	p.a.buf[50] = 'x';
	write_key(&p, rkey, 1050, 51);
	say_wc("past", p.a.scq, 1000);
	say(" moved=%d", p.b.buf[1100] == 'x');
	states(&p);
}

void b_window_invalidated(void)
{
	struct pair p = {0};
	struct ibv_mw *mw;
	uint32_t rkey = window(&p, &mw, IBV_ACCESS_REMOTE_WRITE);
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV,
				 .invalidate_rkey = rkey,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	say_post("inv", post_wr(&p.b, &wr));
	if (next_wc(p.b.scq, &wc, 1000))
		say(" %s op=%s", cf_status(wc.status), cf_opcode(wc.opcode));
	write_key(&p, rkey, 1000, 8);
	say_wc("write", p.a.scq, 1000);
}

void b_window_send_inv(void)
{
	struct pair p = {0};
	struct ibv_mw *mw;
	uint32_t rkey = window(&p, &mw, IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge s = at(&p.a, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_INV,
				 .invalidate_rkey = rkey};
	struct ibv_wc wc;

	post_recv(&p.b, 5, 0, 64);
	say_post("send", post_wr(&p.a, &wr));
	if (next_wc(p.b.rcq, &wc, 1000))
		say(" %s flags=%#x same=%d", cf_status(wc.status), wc.wc_flags,
		    wc.invalidated_rkey == rkey);
	write_key(&p, rkey, 1000, 8);
	say_wc("write", p.a.scq, 1000);
}

void b_window_bound_twice(void)
{
	struct pair p = {0};
	struct ibv_mw *mw;
	uint32_t rkey = window(&p, &mw, IBV_ACCESS_REMOTE_WRITE);

	say_post("again",
		 bind_window(&p.b, mw, ibv_inc_rkey(rkey), 1000, 100, IBV_ACCESS_REMOTE_WRITE));
	say_wc("wc", p.b.scq, 1000);
	say_state("b", p.b.qp);
}

void b_window_dereg(void)
{
	struct pair p = {0};
	struct ibv_mw *mw;

	window(&p, &mw, IBV_ACCESS_REMOTE_WRITE);
	say_ret("dereg", ibv_dereg_mr(p.b.mr));
	say_ret("dealloc", ibv_dealloc_mw(mw));
}

void b_window_no_right(void)
{
	struct pair p = {.access = IBV_ACCESS_LOCAL_WRITE};
	struct ibv_mw *mw;

	window(&p, &mw, IBV_ACCESS_REMOTE_WRITE); /* the region has no MW_BIND */
	say_state("b", p.b.qp);
}

void b_window_bad_rkey(void)
{
	struct pair p = {0};
	struct ibv_mw *mw;

	pair_connect(&p);
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
	cf_need(mw != NULL, "alloc_mw");
	say_post("same_rkey", bind_window(&p.b, mw, mw->rkey, 1000, 100, IBV_ACCESS_REMOTE_WRITE));
	say_wc("wc", p.b.scq, 1000);
}

void b_local_inv_of_region(void)
{
	struct pair p = {0};
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};

	pair_connect(&p);
	wr.invalidate_rkey = p.a.mr->rkey;
	say_post("post", post_wr(&p.a, &wr));
	say_wc("wc", p.a.scq, 1000);
	say_state("a", p.a.qp);
}
