/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes in and out of a stream socket, never waiting. Payload goes between the socket and the
 * memory it is meant for in one copy; only headers, and what the kernel hands over along with them,
 * pass through a buffer.
 *
 *	read for memory:  [ piece ][ piece ] ... [ what comes next: the buffer ]
 */
#include "softverbs/net.h"

static enum sw_io failed(ssize_t n)
{
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? SW_IO_AGAIN : SW_IO_END;
}

enum sw_io sw_in_need(int fd, struct sw_inbuf *in, uint32_t n)
{
	ssize_t got;

	if (in->end - in->at >= n)
		return SW_IO_OK;
	memmove(in->b, in->b + in->at, in->end - in->at);
	in->end -= in->at;
	in->at = 0;
	got = recv(fd, in->b + in->end, SW_INBUF - in->end, MSG_DONTWAIT);
	if (got <= 0)
		return failed(got);
	in->dry = (uint32_t)got < SW_INBUF - in->end;
	in->end += (uint32_t)got;
	return in->end >= n ? SW_IO_OK : SW_IO_AGAIN;
}

uint32_t sw_skip(struct sw_piece *p, uint32_t n, uint64_t bytes)
{
	uint32_t i = 0;

	while (i < n && bytes >= p[i].n)
		bytes -= p[i++].n;
	memmove(p, p + i, (n - i) * sizeof *p);
	if (i < n) {
		p->p += bytes;
		p->n -= (uint32_t)bytes;
	}
	return n - i;
}

uint32_t sw_cut(struct sw_piece *p, uint32_t n, uint64_t bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		if (bytes <= p[i].n) {
			p[i].n = (uint32_t)bytes;
			return bytes ? i + 1 : i;
		}
		bytes -= p[i].n;
	}
	return n;
}

/* What the buffer has goes first. */
static uint64_t from_buffer(struct sw_inbuf *in, const struct sw_piece *to, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n && in->at != in->end; i++) {
		uint32_t have = in->end - in->at, k = have < to[i].n ? have : to[i].n;

		memcpy(to[i].p, in->b + in->at, k);
		in->at += k;
		sum += k;
	}
	return sum;
}

enum sw_io sw_in_memory(int fd, struct sw_inbuf *in, const struct sw_piece *to, uint32_t n,
			uint64_t *got)
{
	struct iovec v[SW_MAX_SGE + 1];
	struct msghdr m = {.msg_iov = v};
	uint64_t want = 0, from;
	ssize_t k;

	*got = from_buffer(in, to, n);
	from = *got;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t skip = from < to[i].n ? from : to[i].n;

		from -= skip;
		if (skip == to[i].n)
			continue;
		v[m.msg_iovlen].iov_base = to[i].p + skip;
		v[m.msg_iovlen++].iov_len = to[i].n - skip;
		want += to[i].n - skip;
	}
	if (!want)
		return SW_IO_OK;
	in->at = in->end = 0;
	v[m.msg_iovlen].iov_base = in->b;
	v[m.msg_iovlen++].iov_len = SW_INBUF;
	k = recvmsg(fd, &m, MSG_DONTWAIT);
	if (k <= 0)
		return failed(k);
	in->dry = (uint64_t)k < want + SW_INBUF;
	if ((uint64_t)k > want) {
		in->end = (uint32_t)((uint64_t)k - want);
		k = (ssize_t)want;
	}
	*got += (uint64_t)k;
	return (uint64_t)k == want ? SW_IO_OK : SW_IO_AGAIN;
}

/* ---- out ---- */

bool sw_out_room(const struct sw_outbuf *out, uint32_t n)
{
	return SW_OUTBUF - (out->end - out->at) >= n;
}

void sw_out_put(struct sw_outbuf *out, const void *frame, uint32_t n)
{
	if (SW_OUTBUF - out->end < n) {
		memmove(out->b, out->b + out->at, out->end - out->at);
		out->end -= out->at;
		out->at = 0;
	}
	memcpy(out->b + out->end, frame, n);
	out->end += n;
}

enum sw_io sw_out_flush(int fd, struct sw_outbuf *out)
{
	while (out->at != out->end) {
		ssize_t n =
			send(fd, out->b + out->at, out->end - out->at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return failed(n);
		out->at += (uint32_t)n;
	}
	out->at = out->end = 0;
	return SW_IO_OK;
}

enum sw_io sw_out_memory(int fd, const void *head, uint32_t hn, const struct sw_piece *p,
			 uint32_t n, uint64_t *sent)
{
	struct iovec v[SW_MAX_SGE + 1];
	struct msghdr m = {.msg_iov = v};
	uint64_t want = hn;
	ssize_t k;

	if (hn) {
		v[0].iov_base = (void *)(uintptr_t)head;
		v[m.msg_iovlen++].iov_len = hn;
	}
	for (uint32_t i = 0; i < n; i++) {
		v[m.msg_iovlen].iov_base = p[i].p;
		v[m.msg_iovlen++].iov_len = p[i].n;
		want += p[i].n;
	}
	*sent = 0;
	if (!want)
		return SW_IO_OK;
	k = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (k < 0)
		return failed(k);
	*sent = (uint64_t)k;
	return *sent == want ? SW_IO_OK : SW_IO_AGAIN;
}
