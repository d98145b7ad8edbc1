/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names: which process a queue pair number or a port leads to.
 *
 * On one machine (to be exact: in one network namespace, for one user) they are abstract Unix
 * sockets, so that nothing is left behind by a process that dies:
 *
 *	sgpool-softverbs.UID.WORLD.qpn.BLOCK     a device's queue pairs, SW_QPN_BLOCK numbers each
 *	sgpool-softverbs.UID.WORLD.cm.PS.PORT    a port of the connection manager
 *
 * Whoever binds the name has the numbers, and that is all the registry there is. The user at the
 * other end must be the same. SGP_SOFTVERBS_WORLD names worlds that don't see each other.
 *
 * With SGP_SOFTVERBS_NET=A.B.C.D, which is an address of this machine, the first device has that
 * address, and listens there too, on TCP port PORT for the connection manager, as iWARP does, and on
 * TCP port 47000 + BLOCK for its queue pairs. Nobody is asked who he is there.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "softverbs/net.h"

#define BLOCKS   1023u /* from 1: what a number has room for */
#define TCP_BASE 47000
#define BACKLOG  1024
#define ROOM     (4 << 20) /* of a socket's buffers; the system may allow less */
#define ALIVE_S  10 /* TCP: silence after which the other machine is asked whether it is there */

struct sw_listener {
	struct sw_sock s;
	struct sw_device *dev; /* NULL: the connection manager's */
};

struct sw_claim {
	struct sw_list link;
	enum rdma_port_space ps;
	uint16_t port;
	unsigned int ids;
	int fd[2]; /* Unix, TCP: bound; -1: none, or handed to the listener */
	struct sw_listener *at[2];
};
static struct sw_list claims = {&claims, &claims};

uint32_t sw_net_addr4(void)
{
	const char *env = getenv("SGP_SOFTVERBS_NET");
	struct in_addr a;

	return env && inet_pton(AF_INET, env, &a) == 1 ? a.s_addr : 0;
}

/* ---- sockets ---- */

static int name(struct sockaddr_un *un, socklen_t *len, const char *rest)
{
	const char *world = getenv("SGP_SOFTVERBS_WORLD");
	int n;

	memset(un, 0, sizeof *un);
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "sgpool-softverbs.%u.%s.%s",
		     (unsigned int)geteuid(), world ? world : "", rest);
	if (n < 0 || (size_t)n >= sizeof un->sun_path - 1)
		return ENAMETOOLONG;
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return 0;
}

void sw_net_tune(int fd, bool tcp)
{
	int room = ROOM, on = 1, idle = ALIVE_S, between = ALIVE_S / 2, tries = 4;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	if (!tcp)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	/* A machine that has lost its power closes nothing. Not TCP_USER_TIMEOUT: that would also end
	 * a peer that lives and has no receive posted. */
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

bool sw_net_trusted(int fd)
{
	struct ucred who;
	socklen_t len = sizeof who;

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) && who.uid == geteuid();
}

/* -1 with errno. */
static int bound(const struct sockaddr *addr, socklen_t len)
{
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, err;

	if (fd < 0)
		return -1;
	if (addr->sa_family == AF_INET)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (!bind(fd, addr, len))
		return fd;
	err = errno;
	close(fd);
	return sw_fail(err);
}

static int bind_both(int fd[2], const char *rest, uint16_t tcp_port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(tcp_port)};
	struct sockaddr_un un;
	socklen_t len;
	int err = name(&un, &len, rest);

	fd[0] = fd[1] = -1;
	if (err)
		return err;
	fd[0] = bound((struct sockaddr *)&un, len);
	if (fd[0] < 0)
		return errno;
	in.sin_addr.s_addr = sw_net_addr4();
	if (!in.sin_addr.s_addr)
		return 0;
	fd[1] = bound((struct sockaddr *)&in, sizeof in);
	if (fd[1] >= 0)
		return 0;
	err = errno;
	close(fd[0]);
	fd[0] = -1;
	return err;
}

static void on_connection(struct sw_sock *s, uint32_t events)
{
	(void)events;
	sw_net_accept(s->fd, sw_outer(s, struct sw_listener, s)->dev);
}

/* Takes over the sockets. */
static int listen_both(int fd[2], struct sw_listener *at[2], struct sw_device *dev)
{
	int err = 0;

	for (int i = 0; i < 2; i++) {
		if (fd[i] < 0)
			continue;
		at[i] = err ? NULL : calloc(1, sizeof *at[i]);
		if (!err && !at[i])
			err = ENOMEM;
		if (!err && listen(fd[i], BACKLOG))
			err = errno;
		if (err) {
			free(at[i]);
			at[i] = NULL;
			close(fd[i]);
		} else {
			at[i]->dev = dev;
			err = sw_sock_add(&at[i]->s, fd[i], EPOLLIN, on_connection);
		}
		fd[i] = -1;
	}
	return err;
}

static void unlisten(struct sw_listener *at[2])
{
	for (int i = 0; i < 2; i++) {
		if (at[i])
			sw_sock_close(&at[i]->s);
		at[i] = NULL;
	}
}

/* ---- queue pair numbers ---- */

int sw_net_claim_qpns(struct sw_device *dev)
{
	uint32_t first = (uint32_t)getpid() * 2654435761u, block = 0;
	int fd[2], err = sw_net_start();

	/* What a forked child has of its parent's is closed. */
	for (int i = 0; i < 2; i++) {
		free(dev->listener[i]);
		dev->listener[i] = NULL;
	}
	for (uint32_t i = 0; !err && i < BLOCKS; i++) {
		char rest[32];

		block = (first + i) % BLOCKS + 1;
		snprintf(rest, sizeof rest, "qpn.%u", block);
		err = bind_both(fd, rest, (uint16_t)(TCP_BASE + block));
		if (!err)
			break;
		err = err == EADDRINUSE && i + 1 < BLOCKS ? 0 : err;
	}
	if (err)
		return err;
	err = listen_both(fd, dev->listener, dev);
	if (err) {
		sw_net_release_qpns(dev);
		return err;
	}
	dev->block = block;
	dev->qpn_base = block * SW_QPN_BLOCK;
	return 0;
}

void sw_net_release_qpns(struct sw_device *dev)
{
	unlisten(dev->listener);
	dev->block = 0;
}

/* Whether the number belongs to a device of this process. */
static bool own_qpn(uint32_t qpn)
{
	struct sw_list *l;

	sw_each (l, sw_devices()) {
		const struct sw_device *dev = sw_outer(l, struct sw_device, link);

		if (dev->block && dev->block == qpn / SW_QPN_BLOCK)
			return true;
	}
	return false;
}

/* A name is all the registry there is, and the kernel lists the names:
 *	0000000000000000: 00000002 00000000 00010000 0001 01 12345 @sgpool-softverbs.0..qpn.7 */
unsigned int sw_net_others(uint32_t *block, unsigned int room)
{
	char line[256], want[sizeof(struct sockaddr_un)];
	FILE *f = fopen("/proc/net/unix", "re");
	struct sockaddr_un un;
	unsigned int n = 0;
	socklen_t len;

	if (!f)
		return 0;
	if (name(&un, &len, "qpn."))
		len = 0;
	snprintf(want, sizeof want, " @%.*s", (int)(len - offsetof(struct sockaddr_un, sun_path)),
		 un.sun_path + 1);
	while (len && n < room && fgets(line, sizeof line, f)) {
		const char *at = strstr(line, want);
		unsigned long b =
			at && strstr(line, " 00010000 ") ? strtoul(at + strlen(want), NULL, 10) : 0;

		if (b && b <= BLOCKS && !own_qpn((uint32_t)b * SW_QPN_BLOCK))
			block[n++] = (uint32_t)b;
	}
	fclose(f);
	return n;
}

/* ---- ports ---- */

static struct sw_claim *find(enum rdma_port_space ps, uint16_t port)
{
	struct sw_list *l;

	sw_each (l, &claims) {
		struct sw_claim *c = sw_outer(l, struct sw_claim, link);

		if (c->ps == ps && c->port == port)
			return c;
	}
	return NULL;
}

int sw_net_claim_port(struct sw_id *id)
{
	struct sw_claim *c = find(id->id.ps, id->port);
	char rest[32];
	int err;

	if (id->claim)
		return 0;
	if (!c) {
		err = sw_net_start();
		if (err)
			return err;
		c = calloc(1, sizeof *c);
		if (!c)
			return ENOMEM;
		snprintf(rest, sizeof rest, "cm.%x.%u", (unsigned int)id->id.ps, id->port);
		err = bind_both(c->fd, rest, id->port);
		if (err) {
			free(c);
			return err;
		}
		c->ps = id->id.ps;
		c->port = id->port;
		sw_list_append(&claims, &c->link);
	}
	c->ids++;
	id->claim = c;
	return 0;
}

int sw_net_listen(struct sw_id *id)
{
	return id->claim ? listen_both(id->claim->fd, id->claim->at, NULL) : 0;
}

void sw_net_release_port(struct sw_id *id)
{
	struct sw_claim *c = id->claim;

	id->claim = NULL;
	if (!c || --c->ids)
		return;
	unlisten(c->at);
	for (int i = 0; i < 2; i++)
		if (c->fd[i] >= 0)
			close(c->fd[i]);
	sw_list_del(&c->link);
	free(c);
}

/*
 * Its listeners' sockets are closed already. Their memory stays: another thread may have been in the
 * allocator at the fork, and not every allocator can be used in the child then (AddressSanitizer's).
 */
void sw_net_disown_ports(void)
{
	while (!sw_list_empty(&claims)) {
		struct sw_claim *c = sw_outer(claims.next, struct sw_claim, link);

		sw_list_del(&c->link); /* ids still point at it */
		for (int i = 0; i < 2; i++) {
			if (c->fd[i] >= 0)
				close(c->fd[i]);
			c->fd[i] = -1;
			c->at[i] = NULL;
		}
	}
}

/* ---- connections ---- */

static int to_addr(const struct sockaddr *addr, socklen_t len)
{
	bool tcp = addr->sa_family != AF_UNIX;
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return -1;
	sw_net_tune(fd, tcp);
	if (connect(fd, addr, len) && errno != EINPROGRESS)
		err = errno;
	else
		err = tcp || sw_net_trusted(fd) ? 0 : ECONNREFUSED;
	if (!err)
		return fd;
	close(fd);
	return sw_fail(err);
}

static int to_name(const char *rest)
{
	struct sockaddr_un un;
	socklen_t len;
	int err = name(&un, &len, rest);

	return err ? sw_fail(err) : to_addr((struct sockaddr *)&un, len);
}

static int to_tcp(uint32_t addr4, uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	in.sin_addr.s_addr = addr4;
	return to_addr((struct sockaddr *)&in, sizeof in);
}

/* Is it on another machine? */
static bool elsewhere(uint32_t addr4)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	int port;

	in.sin_addr.s_addr = addr4;
	return sw_net_addr4() && addr4 && !sw_port_by_addr((struct sockaddr *)&in, &port);
}

static uint32_t gid_addr4(const union ibv_gid *gid)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	uint32_t addr4 = 0;

	if (gid && !memcmp(gid, v4, sizeof v4))
		memcpy(&addr4, gid->raw + 12, sizeof addr4);
	return addr4;
}

/* Two machines may have the same numbers. */
bool sw_net_remote(const struct sw_device *dev, const union ibv_gid *gid, uint32_t qpn)
{
	return dev->block && (!own_qpn(qpn) || elsewhere(gid_addr4(gid)));
}

int sw_net_to_qpn(const union ibv_gid *gid, uint32_t qpn)
{
	uint32_t addr4 = gid_addr4(gid);
	char rest[32];

	if (elsewhere(addr4))
		return to_tcp(addr4, (uint16_t)(TCP_BASE + qpn / SW_QPN_BLOCK));
	snprintf(rest, sizeof rest, "qpn.%u", qpn / SW_QPN_BLOCK);
	return to_name(rest);
}

bool sw_net_reaches(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET &&
	       elsewhere(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr);
}

int sw_net_to_port(enum rdma_port_space ps, const struct sockaddr *addr)
{
	char rest[32];

	if (sw_net_reaches(addr))
		return to_tcp(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr,
			      sw_get_port(addr));
	snprintf(rest, sizeof rest, "cm.%x.%u", (unsigned int)ps, sw_get_port(addr));
	return to_name(rest);
}
