/* SPDX-License-Identifier: BSD-2-Clause */
/* The broker's numbers for Prometheus, over HTTP. */
#ifndef BROKER_STATS_H
#define BROKER_STATS_H

#include "listen.h"

/* accepted() of the listener for --stats: answers one request with everything, and closes. */
void stats_client(struct listener *listener, int fd);

#endif
