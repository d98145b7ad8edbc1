/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sizes of a file transfer, in one place.
 *
 * A message is a header chunk of 64 bytes and up to four payload chunks of 64 KiB: five SGEs at
 * most, which soft-iWARP (six) takes too. 24 messages are 6 MiB, so that either end fits into the
 * 8 MiB that most systems let an ordinary user lock.
 */
#ifndef SGP_CLI_TRANSFER_H
#define SGP_CLI_TRANSFER_H

enum {
	TRANSFER_PORT = 18520, /* unless another one is asked for */
	TRANSFER_CHUNK = 64 * 1024,
	TRANSFER_CHUNKS = 4, /* of a message, at most */
	TRANSFER_PAYLOAD = TRANSFER_CHUNK * TRANSFER_CHUNKS,
	TRANSFER_MESSAGES = 24, /* with payload, at each end */
	TRANSFER_CONTROLS = 8,  /* without, towards the sender */
	TRANSFER_LOCKED =
		TRANSFER_MESSAGES * TRANSFER_PAYLOAD + 64 * 1024, /* bytes registered, about */
};

#endif
