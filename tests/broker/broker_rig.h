/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A broker inside the test, over TCP, and clients that say byte for byte what the test wants. Ends
 * only when every chunk is back.
 */
#ifndef BROKER_RIG_H
#define BROKER_RIG_H

#include <stdbool.h>

#include "broker.h"

/* What most tests want; change it before rig_open(). */
extern struct settings rig_settings;
extern struct broker rig_broker;
extern int rig_buffer; /* bytes of the broker's own socket buffers, 0: as usual */

void rig_setup(void); /* the default settings */
void rig_open(void);
void rig_close(void); /* also a fixture: does nothing when it isn't open */

/* A client's socket. buffer: bytes of each of its buffers, 0: as usual. */
int client_socket(int buffer);
void client_send(int fd, const void *bytes, size_t n);
#define client_say(fd, ...)                                                                        \
	client_send(fd, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

/* Read n bytes; the test fails when they don't come. */
void client_read(int fd, void *bytes, size_t n);
#define client_hear(fd, ...)                                                                       \
	client_expect(fd, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))
void client_expect(int fd, const void *bytes, size_t n);

/* The broker closes the connection, and says nothing before. Closes fd too. */
void client_expect_end(int fd);

/* Nothing has come that was not read: asks for a PINGRESP, which must be the next. */
void client_expect_nothing(int fd);

/* Connect; will: topic of a will whose message is "gone", at QoS 1, or NULL. */
int client_connect(const char *id, const char *will);
int client_connect_to(int fd, const char *id, const char *will, uint16_t keep_alive);
/* Answered by a SUBACK with that code. */
void client_subscribe(int fd, const char *filter, uint8_t qos, uint8_t code);
void client_publish(int fd, const char *topic, const void *payload, uint32_t n, uint8_t qos,
		    bool retain, uint16_t id);
void client_expect_puback(int fd, uint16_t id);

/* The next packet is this PUBLISH. Returns its identifier; at QoS 1 it's not acknowledged. */
uint16_t client_expect_publish(int fd, const char *topic, const void *payload, uint32_t n,
			       uint8_t qos, bool retain);
void client_puback(int fd, uint16_t id);

/* A number of --stats, asked for over HTTP. */
uint64_t rig_stat(const char *name);
/*
 * Wait until it's at least n, or n and nothing else; the test's time limit ends it. What happens after a
 * client's socket has ended, or in a shard that the client isn't on, is awaited and not asked for once.
 */
void rig_await(const char *name, uint64_t n);
void rig_await_exactly(const char *name, uint64_t n);

#endif
