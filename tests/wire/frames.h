/* SPDX-License-Identifier: BSD-2-Clause */
/* The other side of the sockets, played by the fuzzer: frames as they should be, and then not. */
#ifndef TESTS_WIRE_FRAMES_H
#define TESTS_WIRE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softverbs/net.h"

/* A generator that only depends on the seed. */
void fuzz_seed(uint64_t seed);
uint64_t fuzz(void);
/* Below n. */
uint32_t fuzz_below(uint32_t n);
bool fuzz_chance(uint32_t percent);
/* Numbers that are wrong more often than others. */
uint32_t fuzz_edge(void);

/* Changes a frame, or leaves it. */
void fuzz_mutate(void *frame, size_t n);
/* Writes in pieces of random sizes; what the socket doesn't take is lost. */
void fuzz_write(int fd, const void *b, size_t n);
/* Throws away what there is to be read; false: the other side has closed. */
bool fuzz_drain(int fd);

/* Sockets by the names of src/softverbs/net_addr.c. -1: no such. */
int fuzz_connect(const char *rest);
int fuzz_listen(const char *rest);

/* The live side, which the frames are about. */
struct fuzz_target {
	uint32_t qpn, fake_qpn;
	uint32_t rkey, readonly_rkey;
	uint64_t addr;
	uint32_t len;
	uint32_t ud_qpn;
	uint16_t port;
};
void fuzz_hello(struct sw_hello *h, enum sw_kind kind, const struct fuzz_target *t);
/* A request, and payload after it. */
void fuzz_request(int fd, const struct fuzz_target *t, uint32_t *seq);
/* An answer to one of the requests from `una` to before `next`. */
void fuzz_answer(int fd, uint32_t una, uint32_t next, uint32_t len);
void fuzz_dgram(int fd, const struct fuzz_target *t);
void fuzz_cm(int fd, enum sw_cm_kind kind, const struct fuzz_target *t, bool ud);

#endif
