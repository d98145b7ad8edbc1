/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A link over a TCP socket, see link.h: its life and its events. Reading is tcp_in.c's, writing
 * tcp_out.c's.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"

enum {
	FLUSH_MS = 1000,     /* for what is to go before the end */
	HUNGRY_MS = 10,      /* between two attempts to get memory ... */
	STARVED_MS = 5000,   /* ... and until the link gives up */
	DISCARD = 16 * 1024, /* bytes that are thrown away a turn while it ends */
};

int tcp_sgl_alloc(struct sgp_sgl *sgl, int sges, int chunks)
{
	struct ibv_sge *sge = malloc((size_t)sges * sizeof *sge + (size_t)chunks * sizeof(void *));

	if (!sge)
		return -1;
	sgp_sgl_init(sgl, sge, sges, (struct sgp_chunk **)(sge + sges), chunks);
	return 0;
}

void tcp_sgl_free(struct sgp_sgl *sgl)
{
	if (!sgl->sge)
		return;
	sgp_sgl_clear(sgl);
	free(sgl->sge);
	*sgl = (struct sgp_sgl){0};
}

/* ---- events ---- */

void tcp_update_events(struct tcp *tcp)
{
	const bool in = tcp->flushing || (!tcp->paused && !tcp->starving && !tcp->connecting);
	const bool out = tcp->connecting || tcp->want_writable || tcp_pending(tcp);
	const uint32_t events = (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0);

	if (tcp->broken || events == tcp->events)
		return;
	if (loop_modify(tcp->link.host->loop, &tcp->fd, events))
		tcp_fail(tcp, errno);
	tcp->events = events;
}

void tcp_fail(struct tcp *tcp, int err)
{
	if (tcp->broken)
		return;
	tcp->broken = true;
	if (!tcp->closing)
		tcp->err = err;
	/* An end that is told by a socket without a flag would be told for ever. */
	loop_remove(tcp->link.host->loop, &tcp->fd);
	loop_timer_stop(tcp->link.host->loop, &tcp->timer);
	loop_defer(tcp->link.host->loop, &tcp->task);
}

void tcp_starve(struct tcp *tcp)
{
	struct link_host *host = tcp->link.host;

	host->stats.starved++;
	if (!tcp->starved_at)
		tcp->starved_at = loop_now(host->loop);
	tcp->starving = true;
	if (loop_timer_set(host->loop, &tcp->timer, HUNGRY_MS))
		tcp_fail(tcp, ENOMEM);
	tcp_update_events(tcp);
	if (host->starved)
		host->starved(host);
}

static struct tcp *of_timer(struct loop_timer *timer)
{
	return (struct tcp *)((char *)timer - offsetof(struct tcp, timer));
}

static void timer_fired(struct loop_timer *timer)
{
	struct tcp *tcp = of_timer(timer);

	if (tcp->flushing) {
		tcp_fail(tcp, 0);
		return;
	}
	tcp->starving = false;
	if (tcp->starved_at && loop_now(tcp->link.host->loop) - tcp->starved_at > STARVED_MS)
		tcp_fail(tcp, ENOBUFS);
	else
		tcp_read(tcp);
	tcp_update_events(tcp);
}

static void end(struct tcp *tcp)
{
	loop_timer_stop(tcp->link.host->loop, &tcp->timer);
	tcp_in_end(tcp);
	tcp_out_end(tcp);
	close(tcp->fd.fd);
	tcp->link.events->closed(&tcp->link, tcp->err);
	free(tcp);
}

static void task_runs(struct loop_task *task)
{
	struct tcp *tcp = (struct tcp *)((char *)task - offsetof(struct tcp, task));

	if (!tcp->broken && !tcp->paused && !tcp->closing) {
		tcp_continue(tcp);
		tcp_update_events(tcp);
	}
	if (tcp->broken) {
		loop_defer_cancel(tcp->link.host->loop, task);
		end(tcp);
	}
}

/* What is to go has gone: say so, and wait for the peer's end, so that it reads the last packet. */
static void finish(struct tcp *tcp)
{
	uint8_t discard[DISCARD];

	if (!tcp_pending(tcp))
		shutdown(tcp->fd.fd, SHUT_WR);
	if (read(tcp->fd.fd, discard, sizeof discard) == 0)
		tcp_fail(tcp, 0);
}

static void connected(struct tcp *tcp)
{
	socklen_t n = sizeof(int);
	int err = 0;

	if (getsockopt(tcp->fd.fd, SOL_SOCKET, SO_ERROR, &err, &n))
		err = errno;
	tcp->connecting = false;
	tcp->want_writable = true;
	if (err)
		tcp_fail(tcp, err);
}

static void ready(struct loop_fd *fd, uint32_t events)
{
	struct tcp *tcp = (struct tcp *)((char *)fd - offsetof(struct tcp, fd));

	if (tcp->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
		connected(tcp);
	if (events & EPOLLOUT && !tcp->broken) {
		tcp_flush(tcp);
		if (tcp->want_writable && !tcp_pending(tcp) && !tcp->broken && !tcp->closing) {
			tcp->want_writable = false;
			tcp->link.events->writable(&tcp->link);
		}
	}
	if (tcp->flushing)
		finish(tcp);
	else if (events & (EPOLLIN | EPOLLERR | EPOLLHUP) && !tcp->paused && !tcp->starving)
		tcp_read(tcp);
	else if (events & (EPOLLERR | EPOLLHUP)) /* it can't wait: these are told all the time */
		tcp_fail(tcp, ECONNRESET);
	tcp_update_events(tcp);
}

/* ---- the owner's calls ---- */

static void pause_reading(struct link *link)
{
	struct tcp *tcp = (struct tcp *)link;

	tcp->paused = true;
	tcp_update_events(tcp);
}

static void resume_reading(struct link *link)
{
	struct tcp *tcp = (struct tcp *)link;

	if (!tcp->paused)
		return;
	tcp->paused = false;
	loop_defer(link->host->loop, &tcp->task);
	tcp_update_events(tcp);
}

static void close_link(struct link *link, bool flush)
{
	struct tcp *tcp = (struct tcp *)link;

	if (tcp->broken || (tcp->closing && flush))
		return;
	tcp->closing = true;
	tcp->want_writable = false;
	if (!flush || tcp->connecting || loop_timer_set(link->host->loop, &tcp->timer, FLUSH_MS)) {
		tcp_fail(tcp, 0);
		return;
	}
	tcp->flushing = true;
	if (!tcp_pending(tcp))
		shutdown(tcp->fd.fd, SHUT_WR);
	tcp_update_events(tcp);
}

static uint64_t partial(const struct link *link)
{
	const struct tcp *tcp = (const struct tcp *)link;

	return tcp->in_message ? tcp->packet.payload - tcp->missing : tcp->fill - tcp->start;
}

static const struct link_ops tcp_ops = {
	.send = tcp_send,
	.pause = pause_reading,
	.resume = resume_reading,
	.close = close_link,
	.partial = partial,
};

/* ---- beginnings ---- */

static void name_peer(struct tcp *tcp, const struct sockaddr *addr, socklen_t len)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getnameinfo(addr, len, host, sizeof host, port, sizeof port,
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(tcp->link.peer, sizeof tcp->link.peer, "unknown");
	else
		snprintf(tcp->link.peer, sizeof tcp->link.peer, "%.60s port %.8s", host, port);
}

static struct tcp *create(struct link_host *host, int fd, const struct link_events *events,
			  void *owner, bool connecting)
{
	const int one = 1, flags = fcntl(fd, F_GETFL);
	struct tcp *tcp;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return NULL;
	/* What is to go is gathered here: it need not wait for more. It's no harm where it fails. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	tcp = calloc(1, sizeof *tcp);
	if (!tcp)
		return NULL;
	tcp->link = (struct link){.ops = &tcp_ops,
				  .events = events,
				  .owner = owner,
				  .host = host,
				  .heard = loop_now(host->loop)};
	tcp->fd = (struct loop_fd){.ready = ready, .fd = fd};
	tcp->task.run = task_runs;
	tcp->timer.fire = timer_fired;
	tcp->connecting = connecting;
	tcp->events = connecting ? EPOLLOUT : EPOLLIN;
	if (loop_add(host->loop, &tcp->fd, tcp->events)) {
		free(tcp);
		return NULL;
	}
	return tcp;
}

struct link *link_tcp_create(struct link_host *host, int fd, const struct link_events *events,
			     void *owner)
{
	struct tcp *tcp = create(host, fd, events, owner, false);
	struct sockaddr_storage addr;
	socklen_t len = sizeof addr;

	if (!tcp)
		return NULL;
	if (getpeername(fd, (struct sockaddr *)&addr, &len))
		len = 0;
	name_peer(tcp, (struct sockaddr *)&addr, len);
	return &tcp->link;
}

struct link *link_tcp_connect(struct link_host *host, const struct sockaddr *addr, socklen_t len,
			      const struct link_events *events, void *owner)
{
	const int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct tcp *tcp = NULL;
	int err;

	if (fd < 0)
		return NULL;
	if (!connect(fd, addr, len) || errno == EINPROGRESS)
		tcp = create(host, fd, events, owner, true);
	if (!tcp) {
		err = errno;
		close(fd);
		errno = err;
		return NULL;
	}
	name_peer(tcp, addr, len);
	return &tcp->link;
}
