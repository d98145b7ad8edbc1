/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a transfer in one process, each in a thread, on softverbs: for tests of the command.
 * They fail the test on what must not happen.
 */
#ifndef ENDS_H
#define ENDS_H

#include <pthread.h>

#include "cli/client.h"
#include "cli/server.h"

/* One end in its thread: what it was asked, what it wrote, and how it ended. */
struct end {
	struct server_options server;
	struct client_options client;
	pthread_t thread;
	int results; /* what it writes can be read here */
	int status;
};

/* A directory of the test's own, the file that is sent, and the one that is received. */
extern char ends_directory[], ends_in[64], ends_out[64];

/* A fixture: make the directory; see that nothing is left in it, or of the device. */
void ends_setup(void);
void ends_teardown(void);

/* Start a receiver. Returns the port that it listens on; 0 if it failed before. */
uint16_t end_start_server(struct end *e, bool once);
void end_start_client(struct end *e, uint16_t port);

/* Read one line of results. Returns false at their end. */
bool end_read_line(const struct end *e, char *line, size_t size);

/* Wait for its end. Returns its exit status. */
int end_finish(struct end *e);

/* A file of size bytes, each size's its own. */
void ends_write_file(const char *path, size_t size);
bool ends_same_file(const char *a, const char *b);

/* Nothing but the two files is in the directory: nothing half-written. */
bool ends_clean(void);

/* Nothing of the device is alive. */
void ends_check_no_leak(void);

#endif
