/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What sgpool send and sgpool recv say to each other. All numbers are in network byte order, and
 * every number that comes from the peer is checked here before anybody uses it.
 *
 * The hello travels as the connection's private data, both ways, so that the active side (the
 * sender) knows its first credits and is the first to send, as iWARP wants it:
 *
 *       0        4      6      8          12         16         20
 *       | magic  | ver. | role | credits  | payload  | reason   |
 *
 *   credits  receives that stand posted: messages that the peer may send
 *   payload  the most bytes after a header that such a receive takes (0: the sender takes none)
 *   reason   of a WIRE_REFUSAL: why
 *
 * Each message is a header of 64 bytes, and for DATA the payload right behind it:
 *
 *       0        4      6      8        12         16            24         28       32
 *       | magic  | ver. | type | seq    | credits  | offset      | length   | code   | digest ... |
 * 64
 *
 *   seq      counts the messages of a direction from 0, modulo 2^32
 *   credits  receives posted since the last message: so many messages more may be sent
 *   offset   START: the file's size, if code is 1; DATA: of its payload in the file; END, VERDICT:
 *            bytes in all
 *   length   bytes of payload: of DATA at least 1, else 0
 *   code     ABORT, VERDICT: enum wire_code
 *   digest   END, VERDICT: SHA-256 of the file as this end saw it
 *
 *   sender                  receiver
 *      START -------------->
 *      DATA ...------------>
 *           <-------------- CREDIT         CREDIT goes either way at any time: when a quarter of
 * the END ---------------->               credits is due, and at least once a second, so that
 * silence
 *           <-------------- VERDICT        means that the peer is gone.
 *      (either may end it with ABORT)
 *
 * Credits. A message may be sent only against a credit, so a receive always stands ready for it.
 * The last two are kept back: the last one for a CREDIT that grants some, the one before for a
 * CREDIT that grants none. With the last one spent only on granting, two ends can't both run dry:
 * each message that takes a last credit brings at least one. VERDICT and ABORT, after which their
 * sender says nothing more, may take the last one too.
 */
#ifndef SGP_CLI_WIRE_H
#define SGP_CLI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_VERSION = 1,
	WIRE_HELLO = 20,  /* bytes; an InfiniBand connect request carries 56 of ours */
	WIRE_HEADER = 64, /* bytes */
	WIRE_DIGEST = 32, /* bytes */
	WIRE_CREDITS_MIN = 4,
	WIRE_CREDITS_MAX = 1 << 16,
	WIRE_PAYLOAD_MAX = 1 << 30,
};

enum wire_role {
	WIRE_SENDER = 1,
	WIRE_RECEIVER,
	WIRE_REFUSAL, /* a receiver's, as the private data of a rejection */
};

enum wire_type {
	WIRE_START = 1,
	WIRE_DATA,
	WIRE_END,
	WIRE_CREDIT,
	WIRE_VERDICT,
	WIRE_ABORT,
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
	uint32_t credits;
	uint32_t payload;
	uint32_t reason;
};

struct wire_header {
	uint16_t type;
	uint32_t seq;
	uint32_t credits;
	uint64_t offset;
	uint32_t length;
	uint32_t code;
	uint8_t digest[WIRE_DIGEST];
};

void wire_put_hello(uint8_t bytes[WIRE_HELLO], const struct wire_hello *hello);
void wire_put_header(uint8_t bytes[WIRE_HEADER], const struct wire_header *header);

/*
 * Read a hello; n bytes came (a transport may pad it). Returns NULL, or what is wrong with it, and
 * *hello is as it was.
 */
const char *wire_get_hello(const void *bytes, size_t n, struct wire_hello *hello);

/* What is known of the peer, and thus what it may say next. */
struct wire_peer {
	enum wire_role role;
	uint32_t seq;         /* of its next message */
	uint32_t credits;     /* messages that it can take now */
	uint32_t credits_max; /* receives that it announced: it can't have more */
	uint32_t payload_max; /* that was announced to it */
	uint64_t bytes;       /* of payload that came */
	bool started, ended;  /* its START, its last message came */
};

/*
 * Read a message of n bytes, header and payload together, of which header is the beginning. Checks
 * it and moves *peer on, the credits it grants included. Returns NULL, or what is wrong with it:
 * *peer and *header are as they were then.
 */
const char *wire_get_message(struct wire_peer *peer, const void *bytes, size_t n,
			     struct wire_header *header);

/* May a message of this type go to the peer now? grants: the credits that it would carry. */
bool wire_may_send(const struct wire_peer *peer, enum wire_type type, uint32_t grants);

/* A code in words, as the reason of the other end. */
const char *wire_code_text(uint32_t code);

#endif
