/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams: they arrive or they don't, and the sender never learns which. A receive takes 40 bytes
 * of header before the payload.
 */
#include "softverbs/net.h"

struct member {
	struct sw_list link;
	union ibv_gid gid;
	struct sw_qp *qp;
};
static struct sw_list members = {&members, &members};

/* The header of what the request sends, in this world's terms and between processes. */
static void address(const struct sw_qp *from, const struct sw_swqe *w, struct sw_dgram *d)
{
	const struct ibv_ah_attr *av = &w->ud.av;
	const struct sw_port *port = &from->dev->port[av->port_num];
	bool own = w->ud.qkey & 0x80000000 && !from->dev->p.no_qkey_own;

	*d = (struct sw_dgram){
		.len = w->len,
		.src_qpn = from->ibv.qp_base.qp_num,
		.dst_qpn = w->ud.qpn,
		.qkey = own ? from->attr.qkey : w->ud.qkey,
		.imm = w->imm,
		.slid = port->lid,
		.sl = av->sl & 15,
		.tclass = av->grh.traffic_class,
		.flow = av->grh.flow_label & 0xfffff,
		.hop = av->grh.hop_limit,
		.flags = (uint8_t)((w->op == IBV_WR_SEND_WITH_IMM ? SW_UD_IMM : 0) |
				   (w->flags & IBV_SEND_SOLICITED ? SW_UD_SOLICITED : 0)),
		.sgid = port->gid[av->grh.sgid_index],
		.dgid = av->grh.dgid,
	};
}

void sw_ud_deliver(struct sw_qp *to, const struct sw_dgram *d, const struct sw_piece *src,
		   uint32_t nsrc)
{
	const struct ibv_global_route r = {
		.traffic_class = d->tclass, .flow_label = d->flow, .hop_limit = d->hop};
	struct sw_piece pieces[SW_MAX_SGE + 1];
	uint8_t grh[SW_GRH];
	enum ibv_wc_status st;
	struct sw_taken t;

	if (to->ibv.qp_base.qp_type != IBV_QPT_UD || to->attr.qkey != d->qkey || to->dev->removed ||
	    (to->state != IBV_QPS_RTR && to->state != IBV_QPS_RTS && to->state != IBV_QPS_SQD) ||
	    !sw_take(to, &t))
		return;
	sw_grh_fill(grh, &d->sgid, &d->dgid, &r, d->len);
	pieces[0] = (struct sw_piece){grh, SW_GRH};
	memcpy(pieces + 1, src, nsrc * sizeof *src);
	st = sw_scatter(to, &t, pieces, nsrc + 1, (uint64_t)d->len + SW_GRH);
	if (st != IBV_WC_SUCCESS) {
		sw_receive_failed(to, &t, st);
		return;
	}

	struct ibv_wc wc = {
		.wr_id = t.wqe->wr_id,
		.opcode = IBV_WC_RECV,
		.byte_len = d->len + SW_GRH,
		.src_qp = d->src_qpn,
		.wc_flags = IBV_WC_GRH,
		.slid = d->slid,
		.sl = d->sl,
	};

	if (d->flags & SW_UD_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = d->imm;
	}
	sw_complete_recv(to, &wc, t.upto, (d->flags & SW_UD_SOLICITED) != 0);
}

/* To the group's members of this process; block: on that device only, or 0. */
static void to_members(const struct sw_dgram *d, const struct sw_piece *src, uint32_t nsrc,
		       uint32_t block)
{
	struct sw_list *l;

	sw_each (l, &members) {
		struct member *m = sw_outer(l, struct member, link);

		if (!memcmp(&m->gid, &d->dgid, sizeof m->gid) &&
		    (!block || m->qp->dev->block == block))
			sw_ud_deliver(m->qp, d, src, nsrc);
	}
}

void sw_ud_group(const struct sw_dgram *d, const struct sw_piece *src, uint32_t nsrc)
{
	to_members(d, src, nsrc, d->dst_qpn / SW_QPN_BLOCK);
}

/* Who is in a group is known where the members are: every other device is sent to. */
static void to_group(struct sw_qp *qp, struct sw_dgram *d, const struct sw_piece *src,
		     uint32_t nsrc)
{
	uint32_t block[64];
	unsigned int n;

	to_members(d, src, nsrc, 0);
	n = qp->dev->block ? sw_net_others(block, sizeof block / sizeof *block) : 0;
	for (unsigned int i = 0; i < n; i++) {
		d->dst_qpn = block[i] * SW_QPN_BLOCK;
		sw_wire_dgram(qp, d, src, nsrc); /* one that would have to wait is lost */
	}
}

int sw_op_ud(struct sw_qp *qp, uint32_t at)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	const struct ibv_ah_attr *av = &w->ud.av;
	struct sw_piece src[SW_MAX_SGE];
	enum ibv_wc_status st;
	struct sw_device *dev;
	struct sw_dgram d;
	struct sw_qp *to;
	uint32_t n;
	int port;

	st = sw_gather(qp, at, src, &n);
	if (st != IBV_WC_SUCCESS)
		return sw_local_status(qp, st);
	if (w->op != IBV_WR_SEND && w->op != IBV_WR_SEND_WITH_IMM)
		return IBV_WC_LOC_QP_OP_ERR;
	if (w->len > SW_MTU)
		return qp->dev->p.ud_any_length ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
	address(qp, w, &d);
	if (av->is_global && av->grh.dgid.raw[0] == 0xff) {
		to_group(qp, &d, src, n);
		return IBV_WC_SUCCESS;
	}
	if (sw_net_remote(qp->dev, av->is_global ? &av->grh.dgid : NULL, w->ud.qpn))
		return sw_wire_dgram(qp, &d, src, n);
	dev = av->is_global ? sw_port_by_gid(&av->grh.dgid, &port)
			    : sw_port_by_lid(av->dlid, &port);
	to = dev ? sw_qp_find(dev, w->ud.qpn) : NULL;
	if (to)
		sw_ud_deliver(to, &d, src, n);
	return IBV_WC_SUCCESS;
}

static struct member *find(const struct sw_qp *qp, const union ibv_gid *gid)
{
	struct sw_list *l;

	sw_each (l, &members) {
		struct member *m = sw_outer(l, struct member, link);

		if (m->qp == qp && !memcmp(&m->gid, gid, sizeof *gid))
			return m;
	}
	return NULL;
}

int ibv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct sw_qp *qp = sw_qp(ibv);
	struct member *m;
	int err = SW_FAULT(attach_mcast);

	(void)lid;
	if (!err && (ibv->qp_type != IBV_QPT_UD || gid->raw[0] != 0xff))
		err = EINVAL;
	if (err)
		return err;
	sw_lock();
	m = find(qp, gid) ? NULL : calloc(1, sizeof *m);
	if (m) {
		m->gid = *gid;
		m->qp = qp;
		qp->mcast++;
		sw_list_append(&members, &m->link);
	} else if (!find(qp, gid)) {
		err = ENOMEM;
	}
	sw_unlock();
	return err;
}

int ibv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct sw_qp *qp = sw_qp(ibv);
	struct member *m;

	(void)lid;
	sw_lock();
	m = find(qp, gid);
	if (m) {
		sw_list_del(&m->link);
		qp->mcast--;
	}
	sw_unlock();
	free(m);
	return m ? 0 : EINVAL;
}
