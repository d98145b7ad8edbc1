/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection that MQTT packets travel over, whatever is underneath: link_tcp.c, link_rdma.c.
 *
 *      owner (broker, sgpool-pub, sgpool-sub)
 *        |  link_send, link_pause, link_resume, link_close        ^  packet, writable, closed
 *        v                                                         |
 *      link: head bytes + payload chunks  <-->  a socket, or an endpoint of sgpool
 *
 * A payload is never copied: what comes in is handed over as a list of the chunks that it arrived in,
 * and what goes out is sent from the chunks that the owner has, by reference. A message of some bytes
 * that somebody keeps should not keep a large chunk: links receive the first bytes into small ones.
 *
 * Every call and every event of a link is made in its loop's thread. No event is called from inside a
 * link_*() call: events come from the loop.
 */
#ifndef BROKER_LINK_H
#define BROKER_LINK_H

#include <sys/socket.h>

#include "loop.h"
#include "memory.h"
#include "mqtt.h"

struct link;

/* A packet to go. Only read during the call. */
struct link_packet {
	const void *head; /* all that stands before the payload */
	uint32_t head_bytes;
	const struct sgp_sgl *payload; /* NULL: none. The link takes references for what it keeps */
};

struct link_events {
	/*
	 * A packet came. payload: a PUBLISH's, else empty; what the owner does not take out of the list
	 * (sgp_sgl_move()) is dropped after the call. What the packet points to is good during the call
	 * only; it lies in chunks of the pool, so that sgp_sgl_append_addr() keeps a part of it, as the
	 * message of a will.
	 */
	void (*packet)(struct link *link, const struct mqtt_packet *packet,
		       struct sgp_sgl *payload);

	/* After link_send() took fewer than it was offered: it takes more now. */
	void (*writable)(struct link *link);

	/*
	 * It's over; called once, also after link_close(), and the last that is heard of the link, which
	 * is freed after the call. err: 0 when the peer closed the connection in good order or the owner
	 * did; EPROTO, EMSGSIZE: what came is refused by mqtt_parse(); ENOBUFS: there was no memory for
	 * what came for too long; another: of the connection.
	 */
	void (*closed)(struct link *link, int err);
};

/* What is counted, for all links of one host; by their thread only. */
struct link_stats {
	uint64_t packets_in, packets_out;
	uint64_t bytes_in, bytes_out;
	uint64_t payload_copied; /* bytes of payloads in more pieces than a message may have */
	uint64_t reads, writes;  /* calls of readv(2) and writev(2); receives and posts */
	uint64_t starved;        /* times that there was no chunk for what came */
};

/* What all links of one thread share. */
struct link_host {
	struct loop *loop;
	struct memory *memory;
	struct mqtt_limits limits;
	/* A chunk could not be had: the owner should let some go. NULL: nothing to be done. */
	void (*starved)(struct link_host *host);
	void *owner;
	struct link_stats stats; /* not atomic: others may see somewhat old numbers */
	/* What sockets without an unfinished packet are read into, by all of them in turn: link_tcp's. */
	struct sgp_chunk *in;
	size_t in_fill;
};

/* Drop what the host holds once it has no more links. */
void link_host_end(struct link_host *host);

struct link_ops {
	int (*send)(struct link *link, const struct link_packet *packets, int n);
	void (*pause)(struct link *link);
	void (*resume)(struct link *link);
	void (*close)(struct link *link, bool flush);
	uint64_t (*partial)(const struct link *link);
};

/* The part that all have; first in each kind's own. */
struct link {
	const struct link_ops *ops;
	const struct link_events *events; /* the owner's; may be changed at any time */
	void *owner;
	struct link_host *host;
	int64_t heard; /* loop_now() when the last bytes of the peer's came, of a packet or of a part */
	char peer[80]; /* its address, for people */
};

/*
 * Send packets in this order. Returns how many of the n were taken, each wholly; fewer than n: wait
 * for writable(). A link that is broken takes all of them, and closed() will tell.
 */
static inline int link_send(struct link *link, const struct link_packet *packets, int n)
{
	return link->ops->send(link, packets, n);
}

/*
 * Ask for no more packets until link_resume(): what the peer sends then waits at the peer, and
 * packet() isn't called. Pauses are not counted.
 */
static inline void link_pause(struct link *link)
{
	link->ops->pause(link);
}

static inline void link_resume(struct link *link)
{
	link->ops->resume(link);
}

/*
 * End it; closed() follows, and no other event. flush: what was taken is sent first, for at most a
 * second. A second call does nothing.
 */
static inline void link_close(struct link *link, bool flush)
{
	link->ops->close(link, flush);
}

/* Bytes that it holds of a packet that has not come to its end. */
static inline uint64_t link_partial(const struct link *link)
{
	return link->ops->partial(link);
}

/* ---- link_tcp.c ---- */

/*
 * A link over a connected stream socket, which it owns from now on; it's set not to block. peer may be
 * NULL. Returns NULL with errno, the socket is the caller's still.
 */
struct link *link_tcp_create(struct link_host *host, int fd, const struct link_events *events,
			     void *owner);

/* Connect; connection failures come by closed(). Until then nothing is sent. */
struct link *link_tcp_connect(struct link_host *host, const struct sockaddr *addr, socklen_t len,
			      const struct link_events *events, void *owner);

#endif
