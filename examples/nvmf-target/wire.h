/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What travels between host and target and <nvme/types.h> does not have: the two sides of a command,
 * and the connection manager's private data. All numbers are little-endian.
 *
 *      command capsule   0       8        24       40           64
 *                        | head  | unused | SGL    | cdw10..15  | data in the capsule ...
 *
 *      response capsule  0          8         10        12    14       16
 *                        | result   | SQ head | SQ id   | cid | status |
 *
 * (NVM Express over Fabrics 1.1: 2.1 and 2.2, the RDMA transport: 7.3; NVM Express 1.4: 4.4, 4.6.)
 */
#ifndef NVMF_WIRE_H
#define NVMF_WIRE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* A scatter-gather descriptor: of a data block, which has a length of 4 bytes and no key ... */
struct wire_sgl {
	uint64_t addr;
	uint8_t length[3]; /* of a keyed one; the fourth byte of a data block is key[0] */
	uint8_t key[4];
	uint8_t type;
};
_Static_assert(sizeof(struct wire_sgl) == 16, "a descriptor has 16 bytes");

enum {
	WIRE_SGL_OFFSET = 0x01,           /* data block, an offset in the capsule */
	WIRE_SGL_KEYED = 0x40,            /* keyed data block: the host's memory */
	WIRE_SGL_KEYED_INVALIDATE = 0x4f, /* and its key is to be invalidated by the response */
	WIRE_FLAGS_FUSED = 0x03,
	WIRE_FLAGS_PSDT = 0xc0,
	WIRE_FLAGS_SGL = 0x40, /* the only value of PSDT over fabrics */
};

struct wire_command {
	uint8_t opcode;
	uint8_t flags;
	uint16_t cid;
	uint32_t nsid; /* its first byte is the type of a fabrics command */
	uint32_t cdw2, cdw3;
	uint64_t metadata;
	struct wire_sgl sgl;
	uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
_Static_assert(sizeof(struct wire_command) == 64, "a command has 64 bytes");

struct wire_response {
	uint64_t result;
	uint16_t sq_head;
	uint16_t sq_id;
	uint16_t cid;
	uint16_t status; /* shifted left by one */
};
_Static_assert(sizeof(struct wire_response) == 16, "a response has 16 bytes");

enum {
	WIRE_FABRICS_PROPERTY_SET = 0x00,
	WIRE_FABRICS_CONNECT = 0x01,
	WIRE_FABRICS_PROPERTY_GET = 0x04,
	WIRE_CONNECT_DATA = 1024,    /* bytes that a Connect brings */
	WIRE_CATTR_NO_SQFLOW = 0x04, /* Connect: no flow control by the SQ head */
	WIRE_CNTLID_ANY = 0xffff,
	WIRE_IDENTIFY = 4096, /* bytes of every Identify structure */
	WIRE_DSM_RANGE = 16,
	WIRE_RW_FUA = 1 << 30,
	WIRE_ZEROES_DEALLOCATE = 1 << 25,
	WIRE_DSM_DEALLOCATE = 1 << 2,
	WIRE_ALL_NAMESPACES = 0xffffffff,
};

/* Private data of a connect request, an accept and a reject. */
struct wire_cm_request {
	uint16_t recfmt;
	uint16_t qid;
	uint16_t hrqsize; /* entries of the host's receive queue */
	uint16_t hsqsize; /* of its send queue, less one */
	uint8_t reserved[24];
};
struct wire_cm_accept {
	uint16_t recfmt;
	uint16_t crqsize;
	uint8_t reserved[28];
};
struct wire_cm_reject {
	uint16_t recfmt;
	uint16_t status; /* enum wire_cm_status */
};
enum wire_cm_status {
	WIRE_CM_INVALID_LENGTH = 1,
	WIRE_CM_INVALID_RECFMT = 2,
	WIRE_CM_INVALID_QID = 3,
	WIRE_CM_INVALID_HSQSIZE = 4,
	WIRE_CM_INVALID_HRQSIZE = 5,
	WIRE_CM_NO_RESOURCES = 6,
};
_Static_assert(sizeof(struct wire_cm_request) == 32, "private data of a request");
_Static_assert(sizeof(struct wire_cm_accept) == 32, "private data of an accept");

/* A status as the response has it before it is shifted: type, code, and the order not to retry. */
#define WIRE_STATUS(type, code) ((uint16_t)((type) << 8 | (code)))

/* Text that is no NQN is padded with spaces, and has no 0 at its end. */
static inline void wire_text(char *field, size_t size, const char *text)
{
	const size_t n = strlen(text);

	memset(field, ' ', size);
	memcpy(field, text, n < size ? n : size);
}

static inline uint32_t wire_keyed_length(const struct wire_sgl *sgl)
{
	return (uint32_t)(sgl->length[0] | sgl->length[1] << 8 | sgl->length[2] << 16);
}

static inline uint32_t wire_length(const struct wire_sgl *sgl)
{
	return wire_keyed_length(sgl) | (uint32_t)sgl->key[0] << 24;
}

static inline uint32_t wire_key(const struct wire_sgl *sgl)
{
	return (uint32_t)(sgl->key[0] | sgl->key[1] << 8 | sgl->key[2] << 16) |
	       (uint32_t)sgl->key[3] << 24;
}

#endif
