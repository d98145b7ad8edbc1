/* SPDX-License-Identifier: BSD-2-Clause */
/* Where connections come from, see listen.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "listen.h"
#include "session.h"

enum {
	BACKLOG = 512,
	ACCEPTS = 64, /* a turn */
	LATER_MS = 100,
};

/* ---- a client for a shard ---- */

struct arrival {
	struct loop_message message;
	struct shard *shard;
	int fd;
};

static void refuse(struct shard *shard, int fd)
{
	shard->counters.refused++;
	close(fd);
}

static void arrived(struct loop_message *message)
{
	struct arrival *arrival = (struct arrival *)message;
	struct shard *shard = arrival->shard;
	const int fd = arrival->fd;
	struct session *session = shard->stopping ? NULL : session_create(shard);
	struct link *link;

	free(arrival);
	if (!session) {
		atomic_fetch_sub_explicit(&shard->broker->connections, 1, memory_order_relaxed);
		refuse(shard, fd);
		return;
	}
	link = link_tcp_create(&shard->host, fd, &session_events, session);
	if (link) {
		session_attach(session, link);
		return;
	}
	session_discard(session);
	refuse(shard, fd);
}

void listener_client(struct listener *listener, int fd)
{
	struct shard *shard = broker_next(listener->broker);
	struct arrival *arrival = shard ? malloc(sizeof *arrival) : NULL;
	const int one = 1;

	if (!arrival) {
		if (shard)
			atomic_fetch_sub_explicit(&listener->broker->connections, 1,
						  memory_order_relaxed);
		refuse(&listener->broker->shards[0], fd);
		return;
	}
	/* For clients that ask for no keep-alive and go without a word. */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	*arrival = (struct arrival){.message.run = arrived, .shard = shard, .fd = fd};
	loop_post(shard->loop, &arrival->message);
}

/* ---- the socket ---- */

static void ready(struct loop_fd *fd, uint32_t events)
{
	struct listener *l = (struct listener *)((char *)fd - offsetof(struct listener, fd));
	struct loop *loop = l->broker->shards[0].loop;

	(void)events;
	for (int i = 0; i < ACCEPTS; i++) {
		const int client = accept4(fd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (client >= 0) {
			l->accepted(l, client);
			continue;
		}
		if (errno == ECONNABORTED || errno == EINTR)
			continue;
		/* Without descriptors it would be ready for ever. */
		if (errno != EAGAIN && !loop_timer_set(loop, &l->timer, LATER_MS))
			loop_modify(loop, fd, 0);
		return;
	}
}

static void again(struct loop_timer *timer)
{
	struct listener *l = (struct listener *)((char *)timer - offsetof(struct listener, timer));

	loop_modify(l->broker->shards[0].loop, &l->fd, EPOLLIN);
}

static int listen_at(const struct addrinfo *ai)
{
	const int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	const int one = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (!bind(fd, ai->ai_addr, ai->ai_addrlen) && !listen(fd, BACKLOG))
		return fd;
	close(fd);
	return -1;
}

static void say(int fd, const char *what)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;

	if (!getsockname(fd, (struct sockaddr *)&sa, &len))
		fprintf(stderr, "sgpool-broker: listening on %s (%s)\n",
			addr_text((struct sockaddr *)&sa).text, what);
}

int listener_open(struct listener *listener, struct broker *broker, const struct addr *addr,
		  const char *what, void (*accepted)(struct listener *, int))
{
	struct addrinfo *list = NULL;
	const char *why = addr_resolve(addr, AI_PASSIVE, &list);

	*listener = (struct listener){.fd.ready = ready,
				      .fd.fd = -1,
				      .timer.fire = again,
				      .broker = broker,
				      .accepted = accepted};
	if (!why) {
		errno = 0;
		for (struct addrinfo *ai = list; ai && listener->fd.fd < 0; ai = ai->ai_next)
			listener->fd.fd = listen_at(ai);
		freeaddrinfo(list);
		if (listener->fd.fd >= 0 &&
		    loop_add(broker->shards[0].loop, &listener->fd, EPOLLIN) == 0) {
			say(listener->fd.fd, what);
			return 0;
		}
		why = strerror(errno);
	}
	fprintf(stderr, "sgpool-broker: %s port %u: can't listen: %s\n", addr->host, addr->port,
		why);
	if (listener->fd.fd >= 0)
		close(listener->fd.fd);
	listener->broker = NULL;
	return -1;
}

void listener_close(struct listener *listener)
{
	struct loop *loop;

	if (!listener->broker)
		return;
	loop = listener->broker->shards[0].loop;
	loop_timer_stop(loop, &listener->timer);
	loop_remove(loop, &listener->fd);
	close(listener->fd.fd);
	listener->broker = NULL;
}
