/* SPDX-License-Identifier: BSD-2-Clause */
/* SIGINT and SIGTERM as a descriptor, so that a poll loop sees them; SIGPIPE as EPIPE. */
#ifndef SGP_CLI_SIGNALS_H
#define SGP_CLI_SIGNALS_H

/* Call before threads are made: they inherit the mask. Returns the descriptor; -1 with errno. */
int signals_open(void);

/* The number of a signal that came, or 0. A signal is told once. */
int signals_next(int fd);

#endif
