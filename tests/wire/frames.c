/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "frames.h"

static uint64_t state;

void fuzz_seed(uint64_t seed)
{
	state = seed;
}

uint64_t fuzz(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint32_t fuzz_below(uint32_t n)
{
	return (uint32_t)(fuzz() % n);
}

bool fuzz_chance(uint32_t percent)
{
	return fuzz_below(100) < percent;
}

uint32_t fuzz_edge(void)
{
	static const uint32_t edges[] = {
		0,    1,     2,     8,      16,     255,        256,        4095,       4096,
		4097, 65535, 65536, 262144, 262145, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff};

	return edges[fuzz_below(sizeof edges / sizeof *edges)];
}

void fuzz_mutate(void *frame, size_t n)
{
	uint8_t *b = frame;
	uint32_t edge;

	while (fuzz_chance(25)) {
		switch (fuzz_below(3)) {
		case 0:
			b[fuzz_below((uint32_t)n)] ^= (uint8_t)(1u << fuzz_below(8));
			break;
		case 1:
			b[fuzz_below((uint32_t)n)] = (uint8_t)fuzz();
			break;
		default:
			edge = fuzz_edge();
			memcpy(b + fuzz_below((uint32_t)(n / 4)) * 4, &edge, sizeof edge);
			break;
		}
	}
}

void fuzz_write(int fd, const void *b, size_t n)
{
	const char *p = b;

	while (n) {
		size_t k = fuzz_chance(20) ? fuzz_below((uint32_t)n) + 1 : n;
		ssize_t sent = send(fd, p, k, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0)
			return;
		p += sent;
		n -= (size_t)sent;
		if (fuzz_chance(2))
			return; /* the rest never comes */
	}
}

bool fuzz_drain(int fd)
{
	static char sink[65536];
	ssize_t n;

	while ((n = recv(fd, sink, sizeof sink, MSG_DONTWAIT)) > 0)
		;
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* ---- names ---- */

static socklen_t name(struct sockaddr_un *un, const char *rest)
{
	const char *world = getenv("SGP_SOFTVERBS_WORLD");
	int n;

	memset(un, 0, sizeof *un);
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "sgpool-softverbs.%u.%s.%s",
		     (unsigned int)geteuid(), world ? world : "", rest);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int fuzz_connect(const char *rest)
{
	struct sockaddr_un un;
	socklen_t len = name(&un, rest);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&un, len)) {
		close(fd);
		return -1;
	}
	return fd;
}

int fuzz_listen(const char *rest)
{
	struct sockaddr_un un;
	socklen_t len = name(&un, rest);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && (bind(fd, (struct sockaddr *)&un, len) || listen(fd, 64))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* ---- frames ---- */

void fuzz_hello(struct sw_hello *h, enum sw_kind kind, const struct fuzz_target *t)
{
	*h = (struct sw_hello){
		.magic = SW_MAGIC,
		.version = SW_VERSION,
		.kind = (uint8_t)kind,
		.src_qpn = kind == SW_KIND_RC ? t->fake_qpn : 0,
		.dst_qpn = kind == SW_KIND_RC ? t->qpn : 0,
	};
	if (fuzz_chance(8))
		fuzz_mutate(h, sizeof *h);
}

static uint32_t length(void)
{
	return fuzz_chance(90) ? fuzz_below(fuzz_chance(80) ? 300 : 70000) : fuzz_edge();
}

void fuzz_request(int fd, const struct fuzz_target *t, uint32_t *seq)
{
	static uint8_t payload[70000];
	struct sw_req r = {
		.op = (uint8_t)(fuzz_below(SW_REQ_OPS - 1) + 1),
		.flags = (uint8_t)fuzz_below(2),
		.seq = (*seq)++,
		.len = length(),
		.imm = (uint32_t)fuzz(),
		.rkey = fuzz_chance(80) ? t->rkey : t->readonly_rkey,
		.raddr = t->addr + fuzz_below(t->len),
		.compare_add = fuzz(),
		.swap = fuzz(),
	};
	bool carries;

	if (r.op == SW_REQ_BYE && fuzz_chance(80))
		r.op = SW_REQ_SEND;
	if (r.op == SW_REQ_CMP_SWAP || r.op == SW_REQ_FETCH_ADD) {
		r.len = 8;
		r.raddr &= ~7ull;
	} else if (fuzz_chance(70)) {
		r.raddr = t->addr; /* so that it fits */
	}
	if (r.op == SW_REQ_WRITE && fuzz_chance(30))
		r.flags |= SW_REQ_LATE;
	if (fuzz_chance(5))
		r.seq = fuzz_edge();
	fuzz_mutate(&r, sizeof r);
	carries = r.op == SW_REQ_SEND || r.op == SW_REQ_SEND_IMM || r.op == SW_REQ_SEND_INV ||
		  r.op == SW_REQ_WRITE || r.op == SW_REQ_WRITE_IMM;
	fuzz_write(fd, &r, sizeof r);
	if (carries || fuzz_chance(3))
		fuzz_write(fd, payload, r.len < sizeof payload ? r.len : fuzz_below(5000));
}

void fuzz_answer(int fd, uint32_t una, uint32_t next, uint32_t len)
{
	static uint8_t payload[70000];
	struct sw_rsp r = {
		.kind = (uint8_t)(fuzz_below(SW_RSP_GONE) + 1),
		.seq = next == una ? una : una + fuzz_below(next - una),
	};

	if (r.kind == SW_RSP_GONE && fuzz_chance(80))
		r.kind = SW_RSP_ACK;
	if (r.kind == SW_RSP_NAK)
		r.status = fuzz_chance(80) ? IBV_WC_REM_ACCESS_ERR : (uint8_t)fuzz_below(24);
	if (r.kind == SW_RSP_RNR)
		r.status = (uint8_t)fuzz_below(34);
	if (r.kind == SW_RSP_DATA)
		r.len = fuzz_chance(70) ? len : length();
	if (fuzz_chance(5))
		r.seq = fuzz_edge();
	fuzz_mutate(&r, sizeof r);
	fuzz_write(fd, &r, sizeof r);
	if (r.kind == SW_RSP_DATA)
		fuzz_write(fd, payload, r.len < sizeof payload ? r.len : fuzz_below(5000));
}

void fuzz_dgram(int fd, const struct fuzz_target *t)
{
	static uint8_t payload[8192];
	struct sw_dgram d = {
		.len = fuzz_below(5000),
		.src_qpn = t->fake_qpn,
		.dst_qpn = fuzz_chance(90) ? t->ud_qpn : fuzz_edge(),
		.qkey = fuzz_chance(90) ? 0x11111111 : (uint32_t)fuzz(),
		.imm = (uint32_t)fuzz(),
		.sl = (uint8_t)fuzz_below(17),
		.flags = (uint8_t)fuzz_below(4),
	};

	if (fuzz_chance(50)) {
		d.sgid.raw[10] = d.sgid.raw[11] = d.dgid.raw[10] = d.dgid.raw[11] = 0xff;
		d.sgid.raw[12] = d.dgid.raw[12] = 127;
	}
	fuzz_mutate(&d, sizeof d);
	fuzz_write(fd, &d, sizeof d);
	fuzz_write(fd, payload, d.len < sizeof payload ? d.len : fuzz_below(5000));
}

void fuzz_cm(int fd, enum sw_cm_kind kind, const struct fuzz_target *t, bool ud)
{
	struct sw_cm_msg m = {
		.kind = (uint8_t)kind,
		.ud = ud,
		.priv_len = (uint16_t)fuzz_below(SW_PRIV_MAX + 1),
		.ps = ud ? RDMA_PS_UDP : RDMA_PS_TCP,
		.reason = 28,
		.qpn = t->fake_qpn,
		.initiator_depth = (uint8_t)fuzz(),
		.responder_resources = (uint8_t)fuzz(),
		.src = {.family = AF_INET, .port = htons(9999), .ip = {127, 0, 0, 1}},
		.dst = {.family = AF_INET, .port = htons(t->port), .ip = {127, 0, 0, 1}},
	};

	if (fuzz_chance(5))
		m.dst.family = m.src.family = AF_INET6;
	fuzz_mutate(&m, fuzz_chance(50) ? 92 : sizeof m);
	fuzz_write(fd, &m, sizeof m);
}
