/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that come in: accepted, and given to whom their first frame says. Of those who say
 * nothing only the latest few are kept.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "softverbs/net.h"

#define SILENT 256

struct guest {
	struct sw_sock s;
	struct sw_list link;   /* the longest silent first */
	struct sw_device *dev; /* whose listener it came to; NULL: the connection manager's */
	uint32_t block;        /* the device's then */
	uint32_t n;
	union {
		struct sw_hello hello;
		uint8_t b[sizeof(struct sw_hello)];
	};
};
static struct sw_list silent = {&silent, &silent};
static unsigned int guests;

static void leave(struct guest *g)
{
	sw_list_del(&g->link);
	guests--;
}

void sw_hello_fill(struct sw_hello *h, enum sw_kind kind, bool iwarp, uint32_t src, uint32_t dst)
{
	*h = (struct sw_hello){
		.magic = SW_MAGIC,
		.version = SW_VERSION,
		.kind = (uint8_t)kind,
		.transport = iwarp,
		.src_qpn = src,
		.dst_qpn = dst,
	};
}

/* The device may have gone since. */
static bool there(const struct guest *g)
{
	struct sw_list *l;

	sw_each (l, sw_devices())
		if (sw_outer(l, struct sw_device, link) == g->dev)
			return g->dev->block == g->block;
	return false;
}

static bool welcome(const struct guest *g)
{
	const struct sw_hello *h = &g->hello;

	if (h->magic != SW_MAGIC || h->version != SW_VERSION || h->zero || h->transport > 1)
		return false;
	if (h->kind == SW_KIND_CM)
		return !g->dev;
	return (h->kind == SW_KIND_RC || h->kind == SW_KIND_UD) && g->dev && there(g) &&
	       h->transport == (g->dev->p.transport == IBV_TRANSPORT_IWARP);
}

static void on_hello(struct sw_sock *s, uint32_t events)
{
	struct guest *g = sw_outer(s, struct guest, s);
	ssize_t n = recv(s->fd, g->b + g->n, sizeof g->b - g->n, MSG_DONTWAIT);
	int fd;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && (g->n += (uint32_t)n) < sizeof g->b)
		return;
	leave(g);
	if (n <= 0 || !welcome(g)) {
		sw_sock_close(s);
		return;
	}
	fd = sw_sock_release(s);
	if (g->hello.kind == SW_KIND_CM)
		sw_cm_wire_accepted(fd);
	else if (g->hello.kind == SW_KIND_RC)
		sw_wire_accepted(fd, &g->hello);
	else
		sw_wire_ud_accepted(fd);
}

static void invite(int fd, struct sw_device *dev)
{
	struct sockaddr_storage who = {.ss_family = AF_UNIX};
	socklen_t len = sizeof who;
	bool tcp = !getsockname(fd, (struct sockaddr *)&who, &len) && who.ss_family != AF_UNIX;
	struct guest *g;

	if ((!tcp && !sw_net_trusted(fd)) || !(g = calloc(1, sizeof *g))) {
		close(fd);
		return;
	}
	sw_net_tune(fd, tcp);
	g->dev = dev;
	g->block = dev ? dev->block : 0;
	if (sw_sock_add(&g->s, fd, EPOLLIN, on_hello)) {
		free(g);
		return;
	}
	sw_list_append(&silent, &g->link);
	guests++;
	on_hello(&g->s, EPOLLIN); /* mostly it is there already */
	if (guests > SILENT) {
		g = sw_outer(silent.next, struct guest, link);
		leave(g);
		sw_sock_close(&g->s);
	}
}

/* Out of descriptors: whoever waits at the door would keep the thread awake, so he is let in and out
 * by one that is kept for this. */
static bool turn_away(int listener)
{
	static int spare = -1;
	int fd = -1;

	if (spare >= 0) {
		close(spare);
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
	}
	spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd >= 0;
}

void sw_net_accept(int listener, struct sw_device *dev)
{
	static bool ready;
	int fd;

	if (!ready)
		ready = !turn_away(listener); /* the spare one is opened while there are some */
	do {
		while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
			invite(fd, dev);
	} while ((errno == EMFILE || errno == ENFILE) && turn_away(listener));
}
