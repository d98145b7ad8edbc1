/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What sgpool send and sgpool recv say to each other. All numbers are in network byte order, and
 * every number that comes from the peer is checked before anybody uses it: here, or where credits are
 * concerned by the library's flow control (sgpool/flow.h), whose hello and header these contain.
 *
 * The hello travels as the connection's private data, both ways, so that the active side (the
 * sender) knows its first credits and is the first to send, as iWARP wants it:
 *
 *       0        4      6      8        12                28
 *       | "SGPH" | ver. | role | reason | the flow's hello |
 *
 *   reason   of a WIRE_REFUSAL: why; it has no flow (zeros)
 *
 * Each message is a header of 64 bytes, and for DATA the payload right behind it:
 *
 *       0               8        12     14     16       24       28     32           64
 *       | flow's header | "SGPM" | ver. | type | offset | length | code | digest ... |
 *
 *   offset   START: the file's size, if code is 1; DATA: of its payload in the file; END, VERDICT:
 *            bytes in all
 *   length   bytes of payload: of DATA at least 1, else 0
 *   code     ABORT, VERDICT: enum wire_code
 *   digest   END, VERDICT: SHA-256 of the file as this end saw it
 *
 *   sender                  receiver
 *      START -------------->
 *      DATA ...------------>
 *      END ---------------->
 *           <-------------- VERDICT
 *      (either may end it with ABORT)
 *
 * The ends of sgpool perf, client and server, say PERF and ABORT only; perf_wire.h has what is in a
 * PERF's offset, code and digest.
 *
 * VERDICT and ABORT are their sender's last messages. Updates of the flow go either way at any time,
 * and at least once in a few seconds, so that silence means that the peer is gone.
 */
#ifndef SGP_CLI_WIRE_H
#define SGP_CLI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_VERSION = 2,
	WIRE_FLOW = 12,   /* where the flow's hello begins */
	WIRE_HELLO = 28,  /* bytes; an InfiniBand connect request carries 56 of ours */
	WIRE_HEADER = 64, /* bytes */
	WIRE_BEGIN = 8,   /* where our part of it begins */
	WIRE_DIGEST = 32, /* bytes */
};

enum wire_role {
	WIRE_SENDER = 1,
	WIRE_RECEIVER,
	WIRE_REFUSAL, /* a receiver's or server's, as the private data of a rejection */
	WIRE_CLIENT,  /* of sgpool perf */
	WIRE_SERVER,
};

enum wire_type {
	WIRE_START = 1,
	WIRE_DATA,
	WIRE_END,
	WIRE_VERDICT,
	WIRE_ABORT,
	WIRE_PERF,
};

/* Why an end gave up, or refused. */
enum wire_code {
	WIRE_OK = 0,
	WIRE_INTERRUPTED,
	WIRE_READ_FAILED,
	WIRE_WRITE_FAILED,
	WIRE_DIGEST_DIFFERS,
	WIRE_BAD_MESSAGE, /* the peer broke these rules */
	WIRE_NO_RESOURCES,
	WIRE_BUSY,
};

struct wire_hello {
	uint16_t role;
	uint32_t reason;
};

struct wire_header {
	uint16_t type;
	uint64_t offset;
	uint32_t length;
	uint32_t code;
	uint8_t digest[WIRE_DIGEST];
};

/* Write them, with zeros for the flow's part. */
void wire_put_hello(uint8_t bytes[WIRE_HELLO], const struct wire_hello *hello);
void wire_put_header(uint8_t bytes[WIRE_HEADER], const struct wire_header *header);

/*
 * Read a hello, but for the flow's; n bytes came (a transport may pad it). Returns NULL, or what is
 * wrong with it, and *hello is as it was.
 */
const char *wire_get_hello(const void *bytes, size_t n, struct wire_hello *hello);

/* What is known of the peer, and thus what it may say next. */
struct wire_peer {
	enum wire_role role;
	uint32_t payload_max; /* that its messages may carry */
	uint64_t bytes;       /* of payload that came */
	bool started, ended;  /* its START, its last message came */
};

/*
 * Read a message of n bytes, header and payload together, of which header is the beginning. Checks
 * it and moves *peer on. Returns NULL, or what is wrong with it: *peer and *header are as they were
 * then.
 */
const char *wire_get_message(struct wire_peer *peer, const void *bytes, size_t n,
			     struct wire_header *header);

/* A code in words, as the reason of the other end. */
const char *wire_code_text(uint32_t code);

#endif
