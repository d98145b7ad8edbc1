/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What sgpool-pub and sgpool-sub have in common: options named like mosquitto_pub's, the connection
 * to a broker over RDMA, its keep-alive, and errors as one line.
 *
 * A program fills in the calls, parses its command line with client_option(), and runs it:
 *
 *      client_run():  resolve, connect, CONNECT -> CONNACK -> connected() -> packet(), writable() ...
 *                     until client_finish() or client_fail()
 */
#ifndef BROKER_CLIENT_H
#define BROKER_CLIENT_H

#include <getopt.h>

#include "link_rdma.h"

enum client_exit {
	CLIENT_OK = 0,
	CLIENT_FAILED = 1,
	CLIENT_USAGE = 2,
	CLIENT_TIMEOUT = 27, /* as mosquitto_sub -W */
};

enum {
	CLIENT_PORT = 1883,
	CLIENT_KEEP_ALIVE = 60,
	/* Values of long options; the programs' own begin at CLIENT_OPT_OWN. */
	CLIENT_OPT_COMMON = 0x100,
	CLIENT_OPT_OWN = 0x200,
};

struct client {
	/* The program's. */
	const char *name;    /* "sgpool-pub" */
	const char *summary; /* of --help */
	const char *usage;   /* what stands behind the name */
	const char *help;    /* its own options, a line each */
	const char *exits;   /* what its exit status may be besides; NULL: nothing */
	const char *letters; /* its own, as getopt(3)'s */
	const struct option *longopts;
	void (*connected)(struct client *c);
	void (*packet)(struct client *c, const struct mqtt_packet *packet, struct sgp_sgl *payload);
	void (*writable)(struct client *c);
	void (*done)(struct client *c); /* let go of all memory; NULL: nothing to be done */
	size_t memory;                  /* bytes of payload that are held at once */

	/* What was asked for. */
	const char *host, *port;
	struct mqtt_connect connect;
	uint8_t qos;
	bool quiet;
	struct mqr_attr rdma;

	/* Ours. */
	struct loop *loop;
	struct memory pool;
	struct link_host links;
	struct link_rdma *link_rdma;
	struct link *link;
	struct loop_timer alive, limit;
	struct loop_fd signals;
	struct client_out *out, **last_out; /* packets that could not go yet */
	bool up, pinged;
	bool finishing; /* what waits, DISCONNECT, and out */
	bool ending;    /* the link is closed, or closing */
	bool said;      /* something since the last look */
	int status;
	char made_id[24];
};

/*
 * The next option of the program's own; -1 after the last. Those of all clients are dealt with here;
 * --help and --version, and wrong use, end the process.
 */
int client_option(struct client *c, int argc, char **argv);

/* After the last: is what was asked for complete, and without leftovers? Wrong use ends the process. */
void client_check(struct client *c, int argc, char **argv);

/* A number from min to max as an option's value; wrong use ends the process. */
uint64_t client_number(const struct client *c, const char *what, const char *text, uint64_t min,
		       uint64_t max);

/* A string, and a topic name, as an option's value; what: the option. Wrong use ends the process. */
struct mqtt_bytes client_text(const struct client *c, const char *what, const char *text);
struct mqtt_bytes client_topic(const struct client *c, const char *what, const char *text);

/* One line on stderr, and the end of the process with CLIENT_USAGE. */
_Noreturn void client_usage(const struct client *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* One line on stderr. */
void client_error(const struct client *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Returns the process's exit status. seconds: end with CLIENT_TIMEOUT after so long; 0: never. */
int client_run(struct client *c, uint64_t seconds);

/* Send a packet without payload, now or as soon as it can go. */
void client_send(struct client *c, const void *bytes, size_t n);

/* Send one with; false: not now, writable() comes. */
bool client_publish(struct client *c, const void *head, size_t n, const struct sgp_sgl *payload);

/* DISCONNECT, and out. Or: a line, and out without. */
void client_finish(struct client *c, int status);
void client_fail(struct client *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
