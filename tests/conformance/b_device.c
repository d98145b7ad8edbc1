/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices, ports, PDs, regions, completion queues: what can be asked, made and refused. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "behaviours.h"

void b_dev_identity(void)
{
	say(" transport=%d node=%d ports=%d vectors=%d", cf.ctx->device->transport_type,
	    cf.ctx->device->node_type, cf.dev.phys_port_cnt, cf.ctx->num_comp_vectors > 0);
}

void b_dev_limits(void)
{
	say(" sge=%d sge_rd=%d qp_wr=%d cqe=%d srq_sge=%d rd_atom=%d init_rd_atom=%d",
	    cf.dev.max_sge, cf.dev.max_sge_rd, cf.dev.max_qp_wr, cf.dev.max_cqe, cf.dev.max_srq_sge,
	    cf.dev.max_qp_rd_atom, cf.dev.max_qp_init_rd_atom);
}

void b_dev_counts(void)
{
	say(" qp=%d cq=%d mr=%d pd=%d mw=%d ah=%d srq=%d srq_wr=%d", cf.dev.max_qp, cf.dev.max_cq,
	    cf.dev.max_mr, cf.dev.max_pd, cf.dev.max_mw, cf.dev.max_ah, cf.dev.max_srq,
	    cf.dev.max_srq_wr);
}

void b_dev_caps(void)
{
	say(" flags=%#x atomic=%d max_mr_size=%#llx pages=%#llx", cf.dev.device_cap_flags,
	    cf.dev.atomic_cap, (unsigned long long)cf.dev.max_mr_size,
	    (unsigned long long)cf.dev.page_size_cap);
}

void b_dev_port(void)
{
	say(" state=%d max_mtu=%d max_msg=%u link=%d pkeys=%d lid=%d", cf.port.state,
	    cf.port.max_mtu, cf.port.max_msg_sz, cf.port.link_layer, cf.port.pkey_tbl_len,
	    cf.port.lid);
}

void b_dev_port_range(void)
{
	struct ibv_port_attr a;

	say_ret("port0", ibv_query_port(cf.ctx, 0, &a));
	say_ret("port2", ibv_query_port(cf.ctx, 2, &a));
}

void b_dev_gids(void)
{
	struct ibv_gid_entry e;
	union ibv_gid gid;

	say_ret("gid0", ibv_query_gid(cf.ctx, 1, 0, &gid));
	say_ret("table_end", ibv_query_gid(cf.ctx, 1, cf.port.gid_tbl_len, &gid));
	say_ret("port2", ibv_query_gid(cf.ctx, 2, 0, &gid));
	say_ret("ex0", ibv_query_gid_ex(cf.ctx, 1, 0, &e, 0));
	say(" type=%u", e.gid_type);
}

void b_dev_pkeys(void)
{
	__be16 pkey = 0;

	say_ret("pkey0", ibv_query_pkey(cf.ctx, 1, 0, &pkey));
	say(" value=%#x", pkey);
	say_ret("pkey1", ibv_query_pkey(cf.ctx, 1, 1, &pkey));
}

void b_dev_extended(void)
{
	struct ibv_device_attr_ex ex;
	struct verbs_context *v = verbs_get_ctx(cf.ctx);

	say(" extended=%d", v != NULL);
	say_ret("device_ex", ibv_query_device_ex(cf.ctx, NULL, &ex));
	say(" same=%d", ex.orig_attr.max_sge == cf.dev.max_sge);
}

void b_dev_close_in_use(void)
{
	struct ibv_context *ctx = cf_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);

	cf_need(pd != NULL, "pd");
	say_ret("dealloc", ibv_dealloc_pd(pd));
	say_ret("close", ibv_close_device(ctx));
}

/* ---- regions ---- */

static void *pages(size_t n, int prot)
{
	void *p = mmap(NULL, n * 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cf_need(p != MAP_FAILED, "mmap");
	return p;
}

void b_mr_sizes(void)
{
	char *p = pages(4, PROT_READ | PROT_WRITE);
	struct ibv_mr *one, *odd;

	say_ptr("zero", ibv_reg_mr(cf.pd, p, 0, IBV_ACCESS_LOCAL_WRITE));
	one = ibv_reg_mr(cf.pd, p + 1, 1, IBV_ACCESS_LOCAL_WRITE);
	say_ptr("one_byte", one);
	odd = ibv_reg_mr(cf.pd, p + 5, 5000, IBV_ACCESS_LOCAL_WRITE);
	say_ptr("unaligned", odd);
	say(" length=%zu addr=%d", odd ? odd->length : 0, odd && odd->addr == p + 5);
}

void b_mr_keys(void)
{
	char *p = pages(1, PROT_READ | PROT_WRITE);
	struct ibv_mr *local = ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *remote =
		ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);

	cf_need(local && remote, "reg_mr");
	say(" distinct=%d local_rkey=%s remote_rkey=%s", local->lkey != remote->lkey,
	    !local->rkey                 ? "0"
	    : local->rkey == local->lkey ? "lkey"
					 : "other",
	    remote->rkey == remote->lkey ? "lkey" : "other");
}

void b_mr_access(void)
{
	char *p = pages(1, PROT_READ | PROT_WRITE);

	say_ptr("none", ibv_reg_mr(cf.pd, p, 4096, 0));
	say_ptr("remote_write", ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_REMOTE_WRITE));
	say_ptr("remote_atomic", ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_REMOTE_ATOMIC));
	say_ptr("remote_read", ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_REMOTE_READ));
	say_ptr("mw_bind", ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	say_ptr("unknown", ibv_reg_mr(cf.pd, p, 4096, 1 << 15));
}

void b_mr_optional_access(void)
{
	char *p = pages(1, PROT_READ | PROT_WRITE);
	unsigned int relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;

	say_ptr("relaxed", ibv_reg_mr_iova2(cf.pd, p, 4096, (uintptr_t)p, relaxed));
	say_ptr("on_demand",
		ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
}

void b_mr_memory(void)
{
	char *ro = pages(1, PROT_READ), *none = pages(1, PROT_NONE);
	char *gone = pages(1, PROT_READ | PROT_WRITE);

	munmap(gone, 4096);
	say_ptr("readonly", ibv_reg_mr(cf.pd, ro, 4096, 0));
	say_ptr("readonly_lw", ibv_reg_mr(cf.pd, ro, 4096, IBV_ACCESS_LOCAL_WRITE));
	say_ptr("noaccess", ibv_reg_mr(cf.pd, none, 4096, 0));
	say_ptr("unmapped", ibv_reg_mr(cf.pd, gone, 4096, IBV_ACCESS_LOCAL_WRITE));
	say_ptr("null", ibv_reg_mr(cf.pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE));
}

void b_mr_half_mapped(void)
{
	char *p = pages(2, PROT_READ | PROT_WRITE);

	munmap(p + 4096, 4096);
	say_ptr("over_the_edge", ibv_reg_mr(cf.pd, p, 8192, IBV_ACCESS_LOCAL_WRITE));
	say_ptr("up_to_the_edge", ibv_reg_mr(cf.pd, p, 4096, IBV_ACCESS_LOCAL_WRITE));
}

/* Law 5: a shared file mapping that can't be written. */
void b_mr_readonly_file(void)
{
	int fd = memfd_create("ro", 0);
	char *p;

	cf_need(fd >= 0 && !ftruncate(fd, 4096), "memfd");
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	cf_need(p != MAP_FAILED, "mmap");
	say_ptr("shared_ro", ibv_reg_mr(cf.pd, p, 4096, 0));
	p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	say_ptr("private_ro", ibv_reg_mr(cf.pd, p, 4096, 0));
}

void b_mr_rereg(void)
{
	char *p = pages(1, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = ibv_reg_mr(cf.pd, p, 4096, 0);
	int ret;

	cf_need(mr != NULL, "reg_mr");
	ret = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE);
	say(" access=%d errno=%s", ret, ret ? cf_err(errno) : "0");
	ret = ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0);
	say(" nothing=%d", ret);
}

void b_mr_dmabuf(void)
{
	say_ptr("bad_fd", ibv_reg_dmabuf_mr(cf.pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
}

void b_pd_in_use(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(cf.ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, pages(1, PROT_READ | PROT_WRITE), 4096, 0);

	cf_need(mr != NULL, "reg_mr");
	say_ret("with_mr", ibv_dealloc_pd(pd));
	say_ret("dereg", ibv_dereg_mr(mr));
	say_ret("without", ibv_dealloc_pd(pd));
}

/* ---- completion queues ---- */

void b_cq_sizes(void)
{
	struct ibv_cq *cq = ibv_create_cq(cf.ctx, 10, NULL, NULL, 0);

	say_ptr("ten", cq);
	say(" at_least=%d", cq && cq->cqe >= 10);
	say_ptr("zero", ibv_create_cq(cf.ctx, 0, NULL, NULL, 0));
	say_ptr("negative", ibv_create_cq(cf.ctx, -1, NULL, NULL, 0));
	say_ptr("too_many", ibv_create_cq(cf.ctx, cf.dev.max_cqe + 1, NULL, NULL, 0));
}

void b_cq_given(void)
{
	static const int sizes[] = {1, 2, 10, 63, 64, 100};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct ibv_cq *cq = ibv_create_cq(cf.ctx, sizes[i], NULL, NULL, 0);

		say(" %d=%d", sizes[i], cq ? cq->cqe : -1);
	}
}

void b_cq_vector(void)
{
	say_ptr("beyond", ibv_create_cq(cf.ctx, 4, NULL, NULL, cf.ctx->num_comp_vectors));
	say_ptr("negative", ibv_create_cq(cf.ctx, 4, NULL, NULL, -1));
}

void b_cq_resize(void)
{
	struct ibv_cq *cq = ibv_create_cq(cf.ctx, 10, NULL, NULL, 0);

	cf_need(cq != NULL, "create_cq");
	say_ret("up", ibv_resize_cq(cq, 100));
	say_ret("down", ibv_resize_cq(cq, 20));
	say_ret("zero", ibv_resize_cq(cq, 0));
	say_ret("too_many", ibv_resize_cq(cq, cf.dev.max_cqe + 1));
}

void b_cq_empty(void)
{
	struct ibv_cq *cq = ibv_create_cq(cf.ctx, 4, NULL, NULL, 0);
	struct ibv_wc wc;

	cf_need(cq != NULL, "create_cq");
	say(" poll=%d poll0=%d", ibv_poll_cq(cq, 1, &wc), ibv_poll_cq(cq, 0, &wc));
	say_ret("notify_without_channel", ibv_req_notify_cq(cq, 0));
	say_ret("destroy", ibv_destroy_cq(cq));
}

void b_channel_in_use(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(cf.ctx);
	struct ibv_cq *cq = ibv_create_cq(cf.ctx, 4, NULL, ch, 0), *got;
	void *ctx;

	cf_need(cq != NULL, "create_cq");
	say_ret("destroy", ibv_destroy_comp_channel(ch));
	say_ret("nonblock", fcntl(ch->fd, F_SETFL, O_NONBLOCK));
	say_ret("get", ibv_get_cq_event(ch, &got, &ctx));
	say_ret("destroy_cq", ibv_destroy_cq(cq));
	say_ret("destroy", ibv_destroy_comp_channel(ch));
}

void b_cq_ex(void)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 8};
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(cf.ctx, &a);

	say_ptr("create", cq);
	if (cq)
		say_ret("start_poll", ibv_start_poll(cq, &poll));
	a.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	say_ptr("timestamps", ibv_create_cq_ex(cf.ctx, &a));
}

void b_thread_domain(void)
{
	struct ibv_td_init_attr a = {0};
	struct ibv_td *td = ibv_alloc_td(cf.ctx, &a);
	struct ibv_parent_domain_init_attr p = {.pd = cf.pd};

	say_ptr("td", td);
	say_ptr("parent", ibv_alloc_parent_domain(cf.ctx, &p));
}

void b_ah(void)
{
	struct ibv_ah_attr a = {.port_num = 1};

	say_ptr("no_grh", ibv_create_ah(cf.pd, &a));
	a.is_global = 1;
	ibv_query_gid(cf.ctx, 1, 0, &a.grh.dgid);
	say_ptr("own_gid", ibv_create_ah(cf.pd, &a));
	a.port_num = 2;
	say_ptr("port2", ibv_create_ah(cf.pd, &a));
}

void b_mw_alloc(void)
{
	struct ibv_mw *mw1 = ibv_alloc_mw(cf.pd, IBV_MW_TYPE_1), *mw2;

	say_ptr("type1", mw1);
	mw2 = ibv_alloc_mw(cf.pd, IBV_MW_TYPE_2);
	say_ptr("type2", mw2);
	if (mw2)
		say_ret("dealloc", ibv_dealloc_mw(mw2));
}
