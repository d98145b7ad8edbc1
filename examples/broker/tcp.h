/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of link_tcp share: see link.h for what it does. */
#ifndef BROKER_TCP_H
#define BROKER_TCP_H

#include "link.h"

enum {
	TCP_SPACES = 4, /* chunks that are ready for a payload */
};

struct tcp {
	struct link link;
	struct loop_fd fd;
	struct loop_task task;   /* goes on with what was paused, or tells of the end */
	struct loop_timer timer; /* tries again for memory; ends a flush */
	uint32_t events;         /* that the loop looks for */
	bool connecting, paused, starving, want_writable, broken, closing, flushing;
	int err;            /* why it ended */
	int64_t starved_at; /* since when there is no memory */

	/*
	 * Bytes that were read and not taken yet, part of a head or whole packets while it's paused:
	 * in[start .. fill). NULL: there are none.
	 */
	struct sgp_chunk *in;
	size_t start, fill;

	/* A PUBLISH whose payload is still coming. */
	bool in_message;
	struct mqtt_packet packet; /* points into head */
	struct sgp_chunk *head;    /* a reference to the chunk with the head */
	struct sgp_sgl payload;    /* what came; its arrays are as long as the message needs */
	uint32_t missing;          /* bytes that are not here yet */
	struct sgp_chunk *space[TCP_SPACES]; /* where they go */
	int spaces;
	size_t space_fill; /* of space[0] */

	/* A packet of which a part was written. */
	uint8_t *rest_head; /* malloc'ed, NULL: none left */
	size_t rest_head_bytes, rest_head_done;
	struct sgp_sgl rest; /* its payload, in arrays of its own */
	uint64_t rest_done;  /* bytes of the payload that went */
};

/* tcp_in.c. Read what there is, and tell of the packets. */
void tcp_read(struct tcp *tcp);
/* Go on with bytes that are here, then the socket is looked at again. */
void tcp_continue(struct tcp *tcp);
void tcp_in_end(struct tcp *tcp);

/* tcp_out.c */
int tcp_send(struct link *link, const struct link_packet *packets, int n);
bool tcp_pending(const struct tcp *tcp); /* part of a packet is to be sent still */
void tcp_flush(struct tcp *tcp);         /* as far as the socket takes it */
void tcp_out_end(struct tcp *tcp);

/* link_tcp.c. The link has failed: closed() follows. */
void tcp_fail(struct tcp *tcp, int err);
/* No memory for what comes: reading waits for some. */
void tcp_starve(struct tcp *tcp);
void tcp_update_events(struct tcp *tcp);

/* Arrays for a list of n SGEs and chunks, empty; to be freed by tcp_sgl_free(). -1: ENOMEM. */
int tcp_sgl_alloc(struct sgp_sgl *sgl, int sges, int chunks);
void tcp_sgl_free(struct sgp_sgl *sgl);

#endif
