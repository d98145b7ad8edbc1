/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rping's protocol, both ends. Each arrow but the READ and the WRITE is a message of 16 bytes: an
 * advert, or a "go on" whose bytes mean nothing.
 *
 *      client                                   server
 *      text in source
 *      advert of source  ------------------->
 *                        <-------- READ ------  source's bytes
 *                        <-------------------  go on
 *      advert of sink    ------------------->
 *                        <-------- WRITE -----  the same bytes
 *                        <-------------------  go on
 *      source = sink? and again
 *
 * The client's chunks are reached by the server, without a completion here: the client holds them
 * all along. The server's chunk goes from the READ to the program to the WRITE.
 */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "link.h"
#include "rping.h"

/* An advert: where the peer's buffer is, big-endian. */
struct advert {
	uint64_t addr;
	uint32_t rkey;
	uint32_t size;
};
_Static_assert(sizeof(struct advert) == LINK_MESSAGE, "an advert is a message");

static void get_advert(const struct link *l, struct advert *ad)
{
	memcpy(ad, l->message, sizeof *ad);
	ad->addr = be64toh(ad->addr);
	ad->rkey = be32toh(ad->rkey);
	ad->size = be32toh(ad->size);
}

static int send_advert(struct link *l, const struct sgp_chunk *chunk, uint32_t size)
{
	const struct advert ad = {
		.addr = htobe64((uintptr_t)sgp_chunk_addr(chunk)),
		.rkey = htobe32(sgp_chunk_rkey(chunk)),
		.size = htobe32(size),
	};

	/* Not signalled: we hear of it only if it fails. Its chunk comes home with a later one. */
	return link_send(l, &ad, 0);
}

/* ---- the server ---- */

/* The peer's bytes into a chunk of ours, which the list data owns when it's there. */
static int read_source(struct link *l, struct sgp_pool *pool, const struct advert *ad,
		       struct sgp_sgl *data)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, ad->size, 0);

	if (!chunk || sgp_post_read(l->ep, NULL, chunk, 0, ad->size, 0, ad->addr, ad->rkey)) {
		sgp_chunk_put(chunk);
		return fail_sgp("can't READ what the client offers");
	}
	if (link_need(l, IBV_WC_RDMA_READ))
		return -1;
	return sgp_sgl_move(data, &l->wc->sgl) ? fail_sgp("list") : 0;
}

/* The same bytes into the peer's sink; the list is empty then, and the chunk on its way home. */
static int write_sink(struct link *l, const struct advert *ad, struct sgp_sgl *data)
{
	if (data->length > ad->size && sgp_sgl_trim(data, ad->size))
		return fail_sgp("list");
	if (sgp_post_writev(l->ep, NULL, data, IBV_SEND_SIGNALED, ad->addr, ad->rkey))
		return fail_sgp("can't WRITE where the client wants it");
	return link_need(l, IBV_WC_RDMA_WRITE);
}

/* Returns 1; 0 when the client has left instead; -1. */
static int serve_ping(struct link *l, struct sgp_pool *pool, bool verbose, struct sgp_sgl *data)
{
	static const char go_on[LINK_MESSAGE];
	struct advert source, sink;
	int ret = link_wait(l, IBV_WC_RECV);

	if (ret <= 0)
		return ret;
	get_advert(l, &source);
	if (read_source(l, pool, &source, data))
		return -1;
	if (verbose && data->num_sge)
		printf("server ping data: %.*s\n", (int)data->length,
		       (char *)(uintptr_t)data->sge[0].addr);
	if (link_send(l, go_on, 0) || link_need(l, IBV_WC_RECV))
		return -1;
	get_advert(l, &sink);
	if (write_sink(l, &sink, data) || link_send(l, go_on, 0))
		return -1;
	return 1;
}

static int serve(struct link *l, const struct options *opt)
{
	/* On iWARP the answer to a READ is written by the peer: READ_SINK cares for that. */
	struct sgp_pool *pool = link_add_pool(l, PING_MAX, 1, SGP_POOL_READ_SINK);
	SGP_SGL(data, 1);
	int ret;

	if (!pool || link_establish(l))
		return -1;
	do
		ret = serve_ping(l, pool, opt->verbose, &data);
	while (ret > 0);
	sgp_sgl_clear(&data); /* what a ping that failed has left in it */
	return ret;
}

/* ---- the client ---- */

/* The stock client's text: a number, then letters from another one each time. */
static void fill(char *text, uint32_t size, unsigned long ping)
{
	uint32_t i = (uint32_t)snprintf(text, size, "rdma-ping-%lu: ", ping);

	for (uint32_t letter = (uint32_t)(ping % 58); i < size - 1; i++, letter++)
		text[i] = (char)('A' + letter % 58);
	text[size - 1] = 0;
}

static int ping(struct link *l, const struct options *opt, unsigned long n,
		const struct sgp_chunk *source, const struct sgp_chunk *sink)
{
	char *sent = sgp_chunk_addr(source), *back = sgp_chunk_addr(sink);

	fill(sent, opt->size, n);
	memset(back, 0, opt->size);
	/* The server READs the source before it says go on, and then WRITEs the sink. */
	if (send_advert(l, source, opt->size) || link_need(l, IBV_WC_RECV) ||
	    send_advert(l, sink, opt->size) || link_need(l, IBV_WC_RECV))
		return -1;
	if (opt->validate && memcmp(sent, back, opt->size) != 0)
		return fail("what came back differs from what was sent");
	if (opt->verbose)
		printf("ping data: %.*s\n", (int)opt->size, back);
	return 0;
}

static int run_pings(struct link *l, const struct options *opt)
{
	/* Two pools, as a key opens its whole region: who may READ one can't WRITE it. */
	struct sgp_pool *sources = link_add_pool(l, opt->size, 1, SGP_POOL_REMOTE_READ);
	struct sgp_pool *sinks =
		sources ? link_add_pool(l, opt->size, 1, SGP_POOL_REMOTE_WRITE) : NULL;
	struct sgp_chunk *source, *sink;
	int ret;

	if (!sinks || link_establish(l))
		return -1;
	source = sgp_pool_get(sources, opt->size, 0);
	sink = sgp_pool_get(sinks, opt->size, 0);
	ret = source && sink ? 0 : fail_sgp("no chunk");
	for (unsigned long n = 0; !ret && (!opt->count || n < opt->count); n++)
		ret = ping(l, opt, n, source, sink);
	/*
	 * The queue knows nothing of what the peer does by itself: only who has left can't reach
	 * the chunks any more. So it's the connection that ends first.
	 */
	if (link_disconnect(l))
		ret = -1;
	sgp_chunk_put(source);
	sgp_chunk_put(sink);
	return ret;
}

int ping_run(const struct options *opt)
{
	struct link l;
	int ret = link_start(&l, opt->server, opt->addr, opt->port);

	if (!ret)
		ret = opt->server ? serve(&l, opt) : run_pings(&l, opt);
	return link_close(&l) ? -1 : ret;
}
