/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_transfer's messages by sockets: the kernel's TCP on the same link, and librdmacm's rsockets,
 * which copy into registered memory of their own. Both block where there is nothing to do, rsockets
 * after polling a moment.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "transfer.h"

struct calls {
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int fd, const struct sockaddr *addr, socklen_t n);
	int (*listen)(int fd, int backlog);
	int (*accept)(int fd, struct sockaddr *addr, socklen_t *n);
	int (*connect)(int fd, const struct sockaddr *addr, socklen_t n);
	int (*setsockopt)(int fd, int level, int name, const void *value, socklen_t n);
	int (*getsockname)(int fd, struct sockaddr *addr, socklen_t *n);
	ssize_t (*send)(int fd, const void *data, size_t n, int flags);
	ssize_t (*recv)(int fd, void *data, size_t n, int flags);
	int (*close)(int fd);
};

static const struct calls tcp = {socket,     bind,        listen, accept, connect,
				 setsockopt, getsockname, send,   recv,   close};
static const struct calls rs = {rsocket,     rbind,        rlisten, raccept, rconnect,
				rsetsockopt, rgetsockname, rsend,   rrecv,   rclose};

struct end {
	const struct calls *calls;
	int fd, listener;
	bool passive;
	size_t size;
	char *out, *in;
};

static void end_close(void *arg)
{
	struct end *e = arg;

	if (e->fd >= 0)
		e->calls->close(e->fd);
	if (e->listener >= 0)
		e->calls->close(e->listener);
	free(e->out);
	free(e->in);
	free(e);
}

static int listen_and_accept(struct end *e, const struct transfer *t, struct sockaddr_in *sin)
{
	socklen_t n = sizeof *sin;

	e->listener = e->calls->socket(AF_INET, SOCK_STREAM, 0);
	if (e->listener < 0 || e->calls->bind(e->listener, (struct sockaddr *)sin, n) ||
	    e->calls->listen(e->listener, 1) ||
	    e->calls->getsockname(e->listener, (struct sockaddr *)sin, &n))
		return -1;
	transfer_tell_port(t, ntohs(sin->sin_port));
	return e->calls->accept(e->listener, NULL, NULL);
}

static void *open_end(const struct transfer *t, const struct calls *calls)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(t->port)};
	struct end *e = calloc(1, sizeof *e);
	const int one = 1;
	int err;

	if (!e)
		return NULL;
	*e = (struct end){.calls = calls,
			  .fd = -1,
			  .listener = -1,
			  .passive = t->passive,
			  .size = t->size,
			  .out = calloc(1, t->size),
			  .in = calloc(1, t->size)};
	inet_pton(AF_INET, t->addr, &sin.sin_addr);
	if (t->passive)
		e->fd = listen_and_accept(e, t, &sin);
	else
		e->fd = calls->socket(AF_INET, SOCK_STREAM, 0);
	if (e->out && e->in && e->fd >= 0 &&
	    (t->passive || !calls->connect(e->fd, (struct sockaddr *)&sin, sizeof sin)) &&
	    !calls->setsockopt(e->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
		return e;
	err = errno;
	end_close(e);
	errno = err;
	return NULL;
}

static void send_message(struct end *e)
{
	for (size_t done = 0; done < e->size;) {
		const ssize_t n = e->calls->send(e->fd, e->out + done, e->size - done, 0);

		if (n <= 0)
			transfer_die("send");
		done += (size_t)n;
	}
}

static void recv_message(struct end *e)
{
	for (size_t done = 0; done < e->size;) {
		const ssize_t n = e->calls->recv(e->fd, e->in + done, e->size - done, 0);

		if (n <= 0)
			transfer_die("recv");
		done += (size_t)n;
	}
}

/* What was sent has arrived when the peer says so, on the control socket. */
static void stream(void *arg, size_t n)
{
	struct end *e = arg;

	for (; n; n--)
		e->passive ? recv_message(e) : send_message(e);
}

static void pingpong(void *arg, size_t n)
{
	struct end *e = arg;

	for (; n; n--) {
		e->passive ? recv_message(e) : send_message(e);
		e->passive ? send_message(e) : recv_message(e);
	}
}

static void *open_rsocket(const struct transfer *t)
{
	return open_end(t, &rs);
}

static void *open_tcp(const struct transfer *t)
{
	return open_end(t, &tcp);
}

const struct transfer_way transfer_rsocket = {.name = "rsockets",
					      .open = open_rsocket,
					      .stream = stream,
					      .pingpong = pingpong,
					      .close = end_close};
const struct transfer_way transfer_tcp = {.name = "tcp",
					  .open = open_tcp,
					  .stream = stream,
					  .pingpong = pingpong,
					  .close = end_close};
