/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From packets into a socket, see link.h and tcp.h: one writev(2) for many packets, straight from
 * their chunks. Of a packet that the socket took a part of, the link keeps the rest of the head and
 * references to the payload.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "tcp.h"

enum {
	IOVECS = 256, /* a call */
};

struct vector {
	struct iovec iov[IOVECS];
	int n;
	size_t bytes;
};

static bool put(struct vector *v, const void *base, size_t bytes)
{
	if (!bytes)
		return true;
	if (v->n == IOVECS)
		return false;
	v->iov[v->n++] = (struct iovec){.iov_base = (void *)(uintptr_t)base, .iov_len = bytes};
	v->bytes += bytes;
	return true;
}

/* What follows the first skip bytes of the list, as far as there is room. False: not all. */
static bool put_payload(struct vector *v, const struct sgp_sgl *sgl, uint64_t skip)
{
	for (int i = 0; i < sgl->num_sge; i++) {
		const struct ibv_sge *sge = &sgl->sge[i];

		if (skip >= sge->length) {
			skip -= sge->length;
			continue;
		}
		if (!put(v, (const uint8_t *)(uintptr_t)sge->addr + skip, sge->length - skip))
			return false;
		skip = 0;
	}
	return true;
}

/* Returns how many bytes went; 0 when it takes none now, or has failed. */
static size_t write_out(struct tcp *tcp, const struct vector *v)
{
	ssize_t n;

	do
		n = writev(tcp->fd.fd, v->iov, v->n);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		if (errno != EAGAIN)
			tcp_fail(tcp, errno);
		return 0;
	}
	tcp->link.host->stats.writes++;
	tcp->link.host->stats.bytes_out += (uint64_t)n;
	return (size_t)n;
}

/* ---- the rest of a packet ---- */

bool tcp_pending(const struct tcp *tcp)
{
	return tcp->rest_head || tcp->rest_done < tcp->rest.length;
}

void tcp_out_end(struct tcp *tcp)
{
	free(tcp->rest_head);
	tcp->rest_head = NULL;
	tcp_sgl_free(&tcp->rest);
	tcp->rest_done = 0;
}

/* Keep what follows the packet's first done bytes. */
static void keep(struct tcp *tcp, const struct link_packet *packet, size_t done)
{
	const size_t head = done < packet->head_bytes ? packet->head_bytes - done : 0;
	const struct sgp_sgl *payload = packet->payload;

	if (head) {
		tcp->rest_head = malloc(head);
		if (!tcp->rest_head)
			goto failed;
		memcpy(tcp->rest_head, (const uint8_t *)packet->head + done, head);
		tcp->rest_head_bytes = head;
		tcp->rest_head_done = 0;
	}
	tcp->rest_done = head ? 0 : done - packet->head_bytes;
	if (payload && tcp->rest_done < payload->length &&
	    (tcp_sgl_alloc(&tcp->rest, payload->num_sge, payload->num_chunk) ||
	     sgp_sgl_clone(&tcp->rest, payload)))
		goto failed;
	return;
failed:
	tcp_out_end(tcp);
	tcp_fail(tcp, ENOMEM);
}

/* n bytes of the rest went. */
static void advance(struct tcp *tcp, size_t n)
{
	if (tcp->rest_head) {
		const size_t head = tcp->rest_head_bytes - tcp->rest_head_done;

		if (n < head) {
			tcp->rest_head_done += n;
			return;
		}
		n -= head;
		free(tcp->rest_head);
		tcp->rest_head = NULL;
	}
	tcp->rest_done += n;
	if (tcp->rest_done == tcp->rest.length)
		tcp_out_end(tcp);
}

void tcp_flush(struct tcp *tcp)
{
	while (tcp_pending(tcp) && !tcp->broken) {
		struct vector v = {.n = 0};
		size_t went;

		if (tcp->rest_head)
			put(&v, tcp->rest_head + tcp->rest_head_done,
			    tcp->rest_head_bytes - tcp->rest_head_done);
		put_payload(&v, &tcp->rest, tcp->rest_done);
		went = write_out(tcp, &v);
		advance(tcp, went);
		if (went < v.bytes)
			return;
	}
}

/* ---- packets ---- */

/* Describe as many packets as there is room for; of the last, a part at least. */
static int describe(struct vector *v, const struct link_packet *packets, int n)
{
	for (int i = 0; i < n; i++) {
		/* A whole head at least, so that a packet is not begun in vain. */
		if (v->n + 2 > IOVECS)
			return i;
		put(v, packets[i].head, packets[i].head_bytes);
		if (packets[i].payload && !put_payload(v, packets[i].payload, 0))
			return i + 1;
	}
	return n;
}

static size_t packet_bytes(const struct link_packet *packet)
{
	return packet->head_bytes + (packet->payload ? packet->payload->length : 0);
}

int tcp_send(struct link *link, const struct link_packet *packets, int n)
{
	struct tcp *tcp = (struct tcp *)link;
	int done = 0;

	while (done < n && !tcp->connecting && !tcp->broken && !tcp_pending(tcp)) {
		struct vector v = {.n = 0};
		const int some = describe(&v, packets + done, n - done);
		size_t went = write_out(tcp, &v);
		const bool full = went < v.bytes;

		for (int i = 0; i < some; i++) {
			const size_t bytes = packet_bytes(&packets[done]);

			if (went < bytes) {
				if (went)
					keep(tcp, &packets[done++], went);
				break;
			}
			went -= bytes;
			done++;
		}
		if (tcp_pending(tcp) && !full)
			tcp_flush(tcp); /* there was not room for all of it in one vector */
		if (full)
			break;
	}
	if (tcp->broken)
		done = n;
	tcp->link.host->stats.packets_out += (uint64_t)done;
	tcp->want_writable = done < n;
	tcp_update_events(tcp);
	return done;
}
