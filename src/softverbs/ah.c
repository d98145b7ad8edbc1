/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles, and addresses made of what a datagram's header says. */
#include <arpa/inet.h>

#include "softverbs/ops.h"

/* The GRH of RoCE over IPv4: twenty bytes of nothing, then an IP header. */
struct ip4 {
	uint8_t version_ihl, tos;
	uint16_t len, id, frag;
	uint8_t ttl, proto;
	uint16_t sum;
	uint32_t src, dst;
};
_Static_assert(sizeof(struct ip4) == 20, "an IPv4 header without options");

struct ibv_ah *ibv_create_ah(struct ibv_pd *ibv, struct ibv_ah_attr *attr)
{
	struct sw_device *dev = sw_dev(ibv->context);
	struct sw_ah *ah = NULL;
	int err = SW_FAULT(create_ah);

	if (!err && !dev->p.attr.max_ah)
		err = EOPNOTSUPP;
	if (!err && (attr->port_num < 1 || attr->port_num > dev->nports))
		err = EINVAL;
	/* RoCE has no LIDs: the address is a GID. */
	if (!err && dev->p.link_layer == IBV_LINK_LAYER_ETHERNET && !attr->is_global)
		err = EINVAL;
	if (!err && attr->is_global && attr->grh.sgid_index >= dev->port[attr->port_num].ngid)
		err = EINVAL;
	if (!err && !(ah = calloc(1, sizeof *ah)))
		err = ENOMEM;
	if (err)
		return sw_null(err);
	ah->pd = sw_outer(ibv, struct sw_pd, ibv);
	ah->attr = *attr;
	ah->ibv.context = ibv->context;
	ah->ibv.pd = ibv;
	sw_lock();
	if (dev->removed)
		err = EIO;
	else if (dev->count[SV_AHS] >= dev->p.attr.max_ah)
		err = ENOMEM;
	if (err) {
		sw_unlock();
		free(ah);
		return sw_null(err);
	}
	ah->ibv.handle = (uint32_t)dev->count[SV_AHS]++;
	ah->pd->refs++;
	sw_ctx(ibv->context)->objects++;
	sw_count(SV_AHS, 1);
	sw_unlock();
	return &ah->ibv;
}

int ibv_destroy_ah(struct ibv_ah *ibv)
{
	struct sw_ah *ah = sw_outer(ibv, struct sw_ah, ibv);
	int err = SW_FAULT(destroy_ah);

	if (err)
		return err;
	sw_lock();
	ah->pd->refs--;
	sw_dev(ibv->context)->count[SV_AHS]--;
	sw_ctx(ibv->context)->objects--;
	sw_count(SV_AHS, -1);
	sw_unlock();
	free(ah);
	return 0;
}

static bool is_v4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, prefix, sizeof prefix);
}

static uint16_t ip_sum(const struct ip4 *ip)
{
	const uint8_t *b = (const uint8_t *)ip;
	uint32_t sum = 0;

	for (size_t i = 0; i < sizeof *ip; i += 2)
		sum += (uint32_t)b[i] << 8 | b[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

void sw_grh_fill(uint8_t grh[SW_GRH], const union ibv_gid *src, const union ibv_gid *dst,
		 const struct ibv_global_route *r, uint32_t len)
{
	memset(grh, 0, SW_GRH);
	if (is_v4(src) && is_v4(dst)) {
		struct ip4 ip = {.version_ihl = 0x45,
				 .tos = r->traffic_class,
				 .len = htons((uint16_t)(len + sizeof ip)),
				 .ttl = r->hop_limit,
				 .proto = IPPROTO_UDP};

		memcpy(&ip.src, src->raw + 12, 4);
		memcpy(&ip.dst, dst->raw + 12, 4);
		ip.sum = htons(ip_sum(&ip));
		memcpy(grh + 20, &ip, sizeof ip);
		return;
	}
	struct ibv_grh g = {
		.version_tclass_flow = htonl(6u << 28 | (uint32_t)r->traffic_class << 20 |
					     (r->flow_label & IB_GRH_FLOWLABEL_MASK)),
		.paylen = htons((uint16_t)len),
		.next_hdr = 0x1b,
		.hop_limit = r->hop_limit,
		.sgid = *src,
		.dgid = *dst,
	};
	memcpy(grh, &g, sizeof g);
}

/* What the header says, whichever it is. */
static bool parse(const struct ibv_grh *grh, union ibv_gid *src, union ibv_gid *dst,
		  uint8_t *tclass, uint32_t *flow)
{
	struct ip4 ip;

	memcpy(&ip, (const uint8_t *)grh + 20, sizeof ip);
	if (ip.version_ihl == 0x45 && !ip_sum(&ip)) {
		memset(src, 0, sizeof *src);
		src->raw[10] = src->raw[11] = 0xff;
		*dst = *src;
		memcpy(src->raw + 12, &ip.src, 4);
		memcpy(dst->raw + 12, &ip.dst, 4);
		*tclass = ip.tos;
		*flow = 0;
		return true;
	}
	if (ntohl(grh->version_tclass_flow) >> 28 != 6)
		return false;
	*src = grh->sgid;
	*dst = grh->dgid;
	*tclass = (uint8_t)(ntohl(grh->version_tclass_flow) >> 20);
	*flow = ntohl(grh->version_tclass_flow) & IB_GRH_FLOWLABEL_MASK;
	return true;
}

int ibv_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *attr)
{
	struct sw_device *dev = sw_dev(c);
	union ibv_gid to;

	memset(attr, 0, sizeof *attr);
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	if (port < 1 || port > dev->nports ||
	    !parse(grh, &attr->grh.dgid, &to, &attr->grh.traffic_class, &attr->grh.flow_label))
		return sw_fail(EINVAL);
	attr->is_global = 1;
	attr->grh.hop_limit = 0xff;
	for (int i = 0; i < dev->port[port].ngid; i++)
		if (!memcmp(&dev->port[port].gid[i], &to, sizeof to)) {
			attr->grh.sgid_index = (uint8_t)i;
			return 0;
		}
	return sw_fail(ENOENT);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *c, struct ibv_ah_attr *attr, uint8_t mac[6],
				uint16_t *vid)
{
	int port;
	struct sw_device *dev;

	(void)c;
	sw_lock();
	dev = sw_port_by_gid(&attr->grh.dgid, &port);
	if (dev) {
		const uint8_t *g = dev->port[port].gid[0].raw;
		const uint8_t m[6] = {g[8] ^ 2, g[9], g[10], g[13], g[14], g[15]};

		memcpy(mac, m, sizeof m);
	}
	sw_unlock();
	if (!dev)
		return sw_fail(EHOSTUNREACH);
	*vid = 0xffff; /* none */
	return 0;
}
