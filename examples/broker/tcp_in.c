/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a socket into chunks, see link.h and tcp.h.
 *
 * One readv(2) goes into what the payload that is coming needs, and then into a small chunk, where
 * whatever follows is parsed: heads, and the payloads of small messages, which are slices of that
 * chunk. The small chunk is the host's, shared by its sockets in turn
 *
 *      | taken: slices of messages ... | free: the next readv |
 *                                      in_fill
 *
 * until one of them is left with a part of a head: that one takes it over.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "tcp.h"

enum {
	ROOM_MIN = 1024, /* bytes that are worth a read */
	READS = 16,      /* calls a turn, so that the others have theirs */
};

/* ---- room to read into ---- */

static struct sgp_chunk *get(struct tcp *tcp, size_t size, int flags)
{
	struct sgp_chunk *chunk = sgp_pool_get(tcp->link.host->memory->pool, size, flags);

	if (!chunk)
		tcp_starve(tcp);
	return chunk;
}

/* The host's chunk with some room. Returns 0; -1, and it waits. */
static int room_of_host(struct tcp *tcp)
{
	struct link_host *host = tcp->link.host;

	if (host->in && MEMORY_SMALL - host->in_fill >= ROOM_MIN)
		return 0;
	sgp_chunk_put(host->in);
	host->in_fill = 0;
	host->in = get(tcp, MEMORY_SMALL, SGP_GET_RESERVED);
	return host->in ? 0 : -1;
}

/* A part of a head at the end of its chunk goes to the front of another; it is no payload. */
static int room_of_own(struct tcp *tcp)
{
	const size_t n = tcp->fill - tcp->start;
	struct sgp_chunk *chunk;

	if (sgp_chunk_size(tcp->in) > tcp->fill)
		return 0;
	chunk = get(tcp, n < MEMORY_SMALL / 2 ? MEMORY_SMALL : MEMORY_LARGE, SGP_GET_RESERVED);
	if (!chunk)
		return -1;
	memcpy(sgp_chunk_addr(chunk), (uint8_t *)sgp_chunk_addr(tcp->in) + tcp->start, n);
	sgp_chunk_put(tcp->in);
	tcp->in = chunk;
	tcp->start = 0;
	tcp->fill = n;
	return 0;
}

/* Chunks for the payload that is missing, as far as one read goes. */
static int room_of_payload(struct tcp *tcp)
{
	size_t room = 0;

	for (int i = 0; i < tcp->spaces; i++)
		room += sgp_chunk_size(tcp->space[i]);
	room -= tcp->space_fill;
	while (room < tcp->missing && tcp->spaces < TCP_SPACES) {
		struct sgp_chunk *chunk =
			memory_chunk_for(tcp->link.host->memory, tcp->missing - room);

		if (!chunk) {
			if (tcp->spaces)
				break;
			tcp_starve(tcp);
			return -1;
		}
		tcp->space[tcp->spaces++] = chunk;
		room += sgp_chunk_size(chunk);
	}
	return 0;
}

/* ---- packets ---- */

static void end_message(struct tcp *tcp)
{
	tcp_sgl_free(&tcp->payload);
	sgp_chunk_put(tcp->head);
	tcp->head = NULL;
	tcp->in_message = false;
}

static void tell(struct tcp *tcp)
{
	tcp->link.host->stats.packets_in++;
	tcp->link.events->packet(&tcp->link, &tcp->packet, &tcp->payload);
}

/* n bytes of the payload are in the spaces. */
static void take_payload(struct tcp *tcp, size_t n)
{
	tcp->missing -= (uint32_t)n;
	tcp->space_fill += n;
	while (tcp->spaces) {
		const size_t size = sgp_chunk_size(tcp->space[0]);
		const size_t used = tcp->space_fill < size ? tcp->space_fill : size;

		if (used < size && tcp->missing)
			return;
		/* The list was made as long as this can get, and what it takes is all in the pool. */
		if (used == 0 || sgp_sgl_append(&tcp->payload, tcp->space[0], 0, used))
			sgp_chunk_put(tcp->space[0]);
		tcp->space_fill -= used;
		memmove(tcp->space, tcp->space + 1, (size_t)--tcp->spaces * sizeof *tcp->space);
	}
}

/*
 * A PUBLISH's head, and after it here bytes of its payload, are in chunk: its payload begins with a
 * slice of that. Returns 0; -1, and the link has failed.
 */
static int begin_message(struct tcp *tcp, struct sgp_chunk *chunk, size_t offset, uint32_t here)
{
	const uint32_t missing = tcp->packet.payload - here;
	const int n = 1 + (int)((missing + MEMORY_LARGE - 1) / MEMORY_LARGE);

	if (tcp_sgl_alloc(&tcp->payload, n, n)) {
		tcp_fail(tcp, ENOMEM);
		return -1;
	}
	if (here) {
		sgp_chunk_ref(chunk);
		if (sgp_sgl_append(&tcp->payload, chunk, offset, here)) {
			tcp_fail(tcp, errno);
			sgp_chunk_put(chunk);
			tcp_sgl_free(&tcp->payload);
			return -1;
		}
	}
	sgp_chunk_ref(chunk);
	tcp->head = chunk;
	tcp->missing = missing;
	tcp->in_message = true;
	return 0;
}

static void finish_message(struct tcp *tcp)
{
	tell(tcp);
	end_message(tcp);
}

/*
 * Tell of the packets in chunk[start .. fill). Returns where the first byte stands that was not taken.
 * *kept: something may point into the chunk from now on.
 */
static size_t parse(struct tcp *tcp, struct sgp_chunk *chunk, size_t start, size_t fill, bool *kept)
{
	const uint8_t *bytes = sgp_chunk_addr(chunk);

	while (start < fill && !tcp->paused && !tcp->closing && !tcp->broken) {
		const int ret = mqtt_parse(bytes + start, fill - start, &tcp->link.host->limits,
					   &tcp->packet);
		size_t left;
		uint32_t here;

		if (ret < 0)
			tcp_fail(tcp, errno);
		if (ret <= 0)
			break;
		start += tcp->packet.head;
		if (tcp->packet.type != MQTT_PUBLISH) {
			*kept |= tcp->packet.type == MQTT_CONNECT;
			tell(tcp);
			continue;
		}
		left = fill - start;
		here = left < tcp->packet.payload ? (uint32_t)left : tcp->packet.payload;
		*kept = true;
		if (begin_message(tcp, chunk, start, here))
			break;
		start += here;
		if (tcp->missing)
			break;
		finish_message(tcp);
	}
	return start;
}

/* Packets in the link's own chunk. */
static void parse_own(struct tcp *tcp)
{
	bool kept = false;

	tcp->start = parse(tcp, tcp->in, tcp->start, tcp->fill, &kept);
	if (tcp->start == tcp->fill) {
		sgp_chunk_put(tcp->in);
		tcp->in = NULL;
	}
}

/* n bytes were read into the host's chunk. What can't be taken now makes it the link's own. */
static void parse_host(struct tcp *tcp, size_t n)
{
	struct link_host *host = tcp->link.host;
	struct sgp_chunk *chunk = host->in;
	const size_t start = host->in_fill, fill = start + n;
	bool kept = false;
	size_t taken;

	/* The callbacks don't read: nobody else uses the chunk meanwhile. */
	taken = parse(tcp, chunk, start, fill, &kept);
	if (taken < fill && !tcp->broken) {
		tcp->in = chunk;
		tcp->start = taken;
		tcp->fill = fill;
		host->in = NULL;
	} else if (kept) {
		host->in_fill = fill;
	}
}

/* ---- reading ---- */

/* Describe where the next bytes go; -1: there is no room now. */
static int describe(struct tcp *tcp, struct iovec iov[TCP_SPACES + 1], size_t *payload)
{
	size_t want = tcp->in_message ? tcp->missing : 0, skip = tcp->space_fill;
	struct sgp_chunk *tail;
	size_t from;
	int n = 0;

	*payload = want;
	if (want && room_of_payload(tcp))
		return -1;
	for (int i = 0; i < tcp->spaces && want; i++) {
		const size_t room = sgp_chunk_size(tcp->space[i]) - skip;

		iov[n] = (struct iovec){.iov_base = (uint8_t *)sgp_chunk_addr(tcp->space[i]) + skip,
					.iov_len = room < want ? room : want};
		want -= iov[n++].iov_len;
		skip = 0;
	}
	if (want)
		return n;
	/* Without room for what follows, the payload alone is read. */
	if (tcp->in ? room_of_own(tcp) : room_of_host(tcp))
		return n ? n : -1;
	tail = tcp->in ? tcp->in : tcp->link.host->in;
	from = tcp->in ? tcp->fill : tcp->link.host->in_fill;
	iov[n++] = (struct iovec){.iov_base = (uint8_t *)sgp_chunk_addr(tail) + from,
				  .iov_len = sgp_chunk_size(tail) - from};
	return n;
}

static void take(struct tcp *tcp, size_t n, size_t payload)
{
	const size_t here = n < payload ? n : payload;

	if (here)
		take_payload(tcp, here);
	if (tcp->in_message && !tcp->missing)
		finish_message(tcp);
	n -= here;
	if (!n)
		return;
	if (tcp->in) {
		tcp->fill += n;
		parse_own(tcp);
	} else {
		parse_host(tcp, n);
	}
}

void tcp_read(struct tcp *tcp)
{
	for (int i = 0; i < READS; i++) {
		struct iovec iov[TCP_SPACES + 1];
		size_t asked = 0, payload;
		int n = tcp->paused || tcp->closing || tcp->broken ? -1
								   : describe(tcp, iov, &payload);
		ssize_t got;

		if (n < 0)
			return;
		for (int k = 0; k < n; k++)
			asked += iov[k].iov_len;
		got = readv(tcp->fd.fd, iov, n);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			/* An end in the middle of a packet is none in good order. */
			tcp_fail(tcp, got < 0                      ? errno
				      : tcp->in_message || tcp->in ? ECONNRESET
								   : 0);
			return;
		}
		tcp->link.host->stats.reads++;
		tcp->link.host->stats.bytes_in += (uint64_t)got;
		tcp->starved_at = 0;
		tcp->link.heard = loop_now(tcp->link.host->loop);
		take(tcp, (size_t)got, payload);
		if ((size_t)got < asked)
			return;
	}
}

void tcp_continue(struct tcp *tcp)
{
	if (tcp->in && !tcp->in_message)
		parse_own(tcp);
}

void tcp_in_end(struct tcp *tcp)
{
	if (tcp->in_message)
		end_message(tcp);
	sgp_chunk_put_bulk(tcp->space, (size_t)tcp->spaces);
	tcp->spaces = 0;
	sgp_chunk_put(tcp->in);
	tcp->in = NULL;
}

void link_host_end(struct link_host *host)
{
	sgp_chunk_put(host->in);
	host->in = NULL;
}
