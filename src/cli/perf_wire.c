/* SPDX-License-Identifier: BSD-2-Clause */
/* What the ends of sgpool perf say to each other. */
#include <string.h>

#include "cli/perf_wire.h"
#include "post/bytes.h"

#define DATA_MAGIC UINT32_C(0x53475044) /* "SGPD" */

enum {
	ID_SHIFT = 8,
	FLAG_LATENCY = 1 << 0,
	FLAG_BOTH = 1 << 1,
	FLAG_EVENTS = 1 << 2,
	FLAGS = FLAG_LATENCY | FLAG_BOTH | FLAG_EVENTS,
	CHUNK_BYTES = 128,
	/* About, if the depth is ours to choose; with the receives it fits into the 8 MiB that most
	 * systems let an ordinary user lock. */
	BYTES_ON_THE_WAY = 2 << 20,
	DEPTH_LEAST = 8,
	DEPTH_MOST = 128,
	/* Nobody's run takes longer, and sums of these numbers don't overflow. */
	COUNT_BITS = 48,
};

struct perf_params perf_sized(const struct perf_params *params, uint32_t size)
{
	struct perf_params p = *params;
	uint32_t depth = BYTES_ON_THE_WAY / size;

	depth = depth < DEPTH_LEAST ? DEPTH_LEAST : depth > DEPTH_MOST ? DEPTH_MOST : depth;
	p.size = size;
	p.tx = p.tx ? p.tx : depth;
	p.rx = p.rx ? p.rx : p.tx;
	return p;
}

uint64_t perf_memory(const struct perf_params *p)
{
	const uint64_t received = p->op == PERF_SEND ? p->rx : 0, more = 33;
	/* Each SGE is a chunk, which has a descriptor and may be alone in its cache line. */
	const uint64_t parts = (p->tx + more) * p->sges + received;

	return p->conns * ((p->tx + received + more) * p->size + parts * CHUNK_BYTES);
}

const char *perf_check(const struct perf_params *p)
{
	if ((unsigned int)p->op >= PERF_OPS || (unsigned int)p->mode >= PERF_MODES)
		return "an operation or mode that does not exist";
	if (p->size < PERF_SIZE_MIN || p->size > PERF_SIZE_MAX)
		return "a message has 16 bytes to 1 GiB";
	if (p->sges < 1 || p->sges > PERF_SGES_MAX)
		return "a message has 1 to 32 SGEs";
	if (p->size % p->sges || p->size / p->sges < PERF_PART_MIN)
		return "a message is cut into equal SGEs of 8 bytes at least";
	if (p->tx < PERF_DEPTH_MIN || p->tx > PERF_DEPTH_MAX || p->rx < PERF_DEPTH_MIN ||
	    p->rx > PERF_DEPTH_MAX)
		return "a queue's depth is 2 to 16384";
	if (p->conns < 1 || p->conns > PERF_CONNS_MAX)
		return "there are 1 to 256 connections";
	if (p->threads < 1 || p->threads > p->conns)
		return "there are as many threads as connections, or fewer";
	if (p->latency && p->threads != p->conns)
		return "for latency each connection needs a thread of its own";
	if (p->latency && p->both)
		return "latency is of messages to and fro as it is";
	if (p->latency && p->op == PERF_WRITE && p->events)
		return "a WRITE makes no event at its target: its latency is measured by polling";
	if (p->inlined > PERF_INLINE_MAX)
		return "at most 65536 bytes go inline";
	if (perf_memory(p) > PERF_MEMORY_MAX)
		return "it would take more than 4 GiB of memory";
	return NULL;
}

static void put_params(uint8_t *at, const struct perf_params *p)
{
	at[0] = (uint8_t)p->op;
	at[1] = (uint8_t)p->mode;
	at[2] = (uint8_t)((p->latency ? FLAG_LATENCY : 0) | (p->both ? FLAG_BOTH : 0) |
			  (p->events ? FLAG_EVENTS : 0));
	at[3] = (uint8_t)p->sges;
	put32(at + 4, p->size);
	put32(at + 8, p->tx);
	put32(at + 12, p->rx);
	put32(at + 16, p->inlined);
	put16(at + 20, (uint16_t)p->conns);
	put16(at + 22, (uint16_t)p->threads);
}

static const char *get_params(const uint8_t *at, struct perf_params *p)
{
	if (at[2] & ~FLAGS)
		return "a test with an unknown flag";
	*p = (struct perf_params){.op = at[0],
				  .mode = at[1],
				  .latency = at[2] & FLAG_LATENCY,
				  .both = at[2] & FLAG_BOTH,
				  .events = at[2] & FLAG_EVENTS,
				  .sges = at[3],
				  .size = get32(at + 4),
				  .tx = get32(at + 8),
				  .rx = get32(at + 12),
				  .inlined = get32(at + 16),
				  .conns = get16(at + 20),
				  .threads = get16(at + 22)};
	return perf_check(p);
}

void perf_put(struct wire_header *header, const struct perf_message *m)
{
	uint8_t *at = header->digest;

	*header = (struct wire_header){.type = WIRE_PERF,
				       .code = m->id << ID_SHIFT | (uint32_t)m->say};
	switch (m->say) {
	case PERF_SETUP:
		put_params(at, &m->params);
		break;
	case PERF_READY:
		put64(at, m->token);
		break;
	case PERF_RUN:
	case PERF_END:
		put64(at, m->count);
		break;
	case PERF_RESULT:
		put64(at, m->figures.sent);
		put64(at + 8, m->figures.received);
		put64(at + 16, m->figures.ns);
		put64(at + 24, m->figures.cpu_ns);
		header->offset = m->figures.registrations;
		break;
	case PERF_FAILED:
		put32(at, m->error);
		break;
	case PERF_GO:
	case PERF_CLOSE:
	case PERF_CLOSED:
		break;
	}
}

static const char *get_figures(const struct wire_header *header, struct perf_figures *f)
{
	const uint8_t *at = header->digest;

	*f = (struct perf_figures){.sent = get64(at),
				   .received = get64(at + 8),
				   .ns = get64(at + 16),
				   .cpu_ns = get64(at + 24),
				   .registrations = header->offset};
	if ((f->sent | f->received | f->registrations) >> COUNT_BITS || f->ns >> 62 ||
	    f->cpu_ns >> 62)
		return "a result that can't be";
	return NULL;
}

const char *perf_get(const struct wire_header *header, bool client, struct perf_message *m)
{
	const uint8_t *at = header->digest;
	const uint32_t say = header->code & ((1 << ID_SHIFT) - 1);

	*m = (struct perf_message){.id = header->code >> ID_SHIFT};
	if (say < PERF_SETUP || say > PERF_FAILED)
		return "a message of unknown sort";
	if (client != (say < PERF_READY))
		return "a message that is the other end's";
	m->say = (enum perf_say)say;
	switch (m->say) {
	case PERF_SETUP:
		return get_params(at, &m->params);
	case PERF_READY:
		m->token = get64(at);
		return NULL;
	case PERF_RUN:
	case PERF_END:
		m->count = get64(at);
		return m->count >> COUNT_BITS ? "more messages than there can be" : NULL;
	case PERF_RESULT:
		return get_figures(header, &m->figures);
	case PERF_FAILED:
		m->error = get32(at);
		return m->error == 0 || m->error > INT16_MAX ? "a failure without an errno" : NULL;
	case PERF_GO:
	case PERF_CLOSE:
	case PERF_CLOSED:
		break;
	}
	return NULL;
}

void perf_put_hello(uint8_t bytes[PERF_DATA_HELLO], const struct perf_hello *hello)
{
	memset(bytes, 0, PERF_DATA_HELLO);
	put32(bytes, DATA_MAGIC);
	put16(bytes + 4, WIRE_VERSION);
	put16(bytes + 6, (uint16_t)hello->index);
	put32(bytes + 8, hello->id);
	put64(bytes + 12, hello->token);
	put64(bytes + 36, hello->addr);
	put32(bytes + 44, hello->rkey);
	put32(bytes + 48, hello->bytes);
}

const char *perf_get_hello(const void *data, size_t n, struct perf_hello *hello)
{
	const uint8_t *bytes = data;

	if (n < PERF_DATA_HELLO || get32(bytes) != DATA_MAGIC)
		return "it is no connection of a test";
	if (get16(bytes + 4) != WIRE_VERSION)
		return "it speaks another version of the protocol";
	*hello = (struct perf_hello){.index = get16(bytes + 6),
				     .id = get32(bytes + 8),
				     .token = get64(bytes + 12),
				     .addr = get64(bytes + 36),
				     .rkey = get32(bytes + 44),
				     .bytes = get32(bytes + 48)};
	return NULL;
}
