/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The peer of the stock rdma_client and rdma_server: the client sends 16 bytes, the server sends 16
 * back. Here the server sends back what it got. The active side speaks first, as iWARP wants it.
 */
#include <stdio.h>
#include <string.h>

#include "link.h"
#include "rping.h"

static int receive(struct link *l, const struct options *opt)
{
	if (link_need(l, IBV_WC_RECV))
		return -1;
	if (opt->verbose)
		printf("received: %.*s\n", LINK_MESSAGE, l->message);
	return 0;
}

/* A disconnect may overtake what was posted: the end waits until the message has arrived. */
static int send_and_wait(struct link *l, const char message[LINK_MESSAGE])
{
	return link_send(l, message, IBV_SEND_SIGNALED) || link_need(l, IBV_WC_SEND) ? -1 : 0;
}

static int serve(struct link *l, const struct options *opt)
{
	return receive(l, opt) || send_and_wait(l, l->message) ? -1 : 0;
}

static int ask(struct link *l, const struct options *opt)
{
	static const char greeting[LINK_MESSAGE] = "hello, server";

	/* The answer may be polled before the send it answers: that one is not signalled. */
	return link_send(l, greeting, 0) || receive(l, opt) ? -1 : 0;
}

int hello_run(const struct options *opt)
{
	struct link l;
	int ret = link_start(&l, opt->server, opt->addr, opt->port) || link_establish(&l);

	if (!ret)
		ret = opt->server ? serve(&l, opt) : ask(&l, opt);
	return link_close(&l) || ret ? -1 : 0;
}
