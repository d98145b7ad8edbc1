/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softverbs between processes: what its files share. All of it is under sw_lock.
 *
 *	net.c         the epoll, the thread that drives it while nobody polls, forks
 *	net_sock.c    one socket: small frames out, bytes in, waiting for room
 *	net_addr.c    names: which process a port or a queue pair number leads to
 *	net_hello.c   what comes in first, on a connection that was accepted
 *	wire_send.c   the requester's end of a connection between two queue pairs
 *	wire_attach.c the responder's end: which queue pair answers, and till when
 *	wire_recv.c   what it does with a request
 *	wire_reply.c  what it says
 *	wire_ud.c     datagrams
 *	cm_wire.c     the connection manager's messages
 *
 * Every connection is a stream socket that one process opens and another accepts:
 *
 *	cm    one for each connection that rdma_cm makes, as long as both ids live
 *	rc    one for each direction between two queue pairs: requests one way, answers the other, so
 *	      that a request nobody has a receive for never stands in an answer's way
 *	ud    one for each process that datagrams are sent to
 *
 * What arrives is never trusted: each frame is checked against what this end knows, and the first
 * that is wrong ends its connection, and with it the queue pair.
 */
#ifndef SOFTVERBS_NET_H
#define SOFTVERBS_NET_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "softverbs/cm.h"
#include "softverbs/ops.h"

/* ---- frames; both ends have the same byte order, or the magic doesn't match ---- */

#define SW_MAGIC   0x73677076u /* "sgpv" */
#define SW_VERSION 1u

enum sw_kind {
	SW_KIND_CM = 1,
	SW_KIND_RC,
	SW_KIND_UD,
};

/* First on every connection, from the side that opened it.
 *
 *	 0       4         6      7           8         12        16     20
 *	| magic | version | kind | transport | src QPN | dst QPN | zero |
 */
struct sw_hello {
	uint32_t magic;
	uint16_t version;
	uint8_t kind;
	uint8_t transport; /* 1: iWARP */
	uint32_t src_qpn;  /* rc: who asks */
	uint32_t dst_qpn;  /* rc: and whom */
	uint32_t zero;
};
_Static_assert(sizeof(struct sw_hello) == 20, "a frame's size");

/* rc, a request; `len` bytes of payload follow if it carries any.
 *
 *	 0    1       2      4     8     12             16     20     24      32          40     48
 *	| op | flags | zero | seq | len | imm or rkey  | rkey | SRQN | raddr | compare/add | swap |
 */
enum sw_req_op {
	SW_REQ_SEND = 1,
	SW_REQ_SEND_IMM,
	SW_REQ_SEND_INV,
	SW_REQ_WRITE,
	SW_REQ_WRITE_IMM,
	SW_REQ_READ,
	SW_REQ_CMP_SWAP,
	SW_REQ_FETCH_ADD,
	SW_REQ_BYE, /* the queue pair that asks has been reset, destroyed, or is in error */
	SW_REQ_OPS,
};
#define SW_REQ_SOLICITED 1u
#define SW_REQ_LATE      2u /* a WRITE's last bytes come `imm` ms after it: a fault */
struct sw_req {
	uint8_t op, flags;
	uint16_t zero;
	uint32_t seq; /* of the send queue */
	uint32_t len;
	uint32_t imm;
	uint32_t rkey;
	uint32_t srqn; /* XRC: whose receive it takes */
	uint64_t raddr;
	uint64_t compare_add, swap;
};
_Static_assert(sizeof(struct sw_req) == 48, "a frame's size");

/* rc, an answer; `len` bytes follow a DATA.
 *
 *	 0      1        2      4     8     12
 *	| kind | status | zero | seq | len |
 */
enum sw_rsp_kind {
	SW_RSP_READY = 1, /* the queue pair is there and takes requests */
	SW_RSP_ACK,       /* all up to seq are done */
	SW_RSP_NAK,       /* all before seq are done; seq failed with `status` */
	SW_RSP_RNR,       /* all before seq are done; no receive for seq; `status`: the timer */
	SW_RSP_DATA,      /* all before seq are done; some of what seq reads */
	SW_RSP_GONE,      /* the queue pair takes no more requests */
};
struct sw_rsp {
	uint8_t kind, status;
	uint16_t zero;
	uint32_t seq;
	uint32_t len;
};
_Static_assert(sizeof(struct sw_rsp) == 12, "a frame's size");
#define SW_SEGMENT (256u << 10) /* a DATA's bytes at most */

/* ud: a datagram, `len` bytes of payload follow.
 *
 *	 0     4         8         12     16    20      22     23      24        28   29     30    31
 *	| len | src QPN | dst QPN | qkey | imm | slid | sl | tclass | flow | hop | flags | zero | zero |
 *	 32         48         64
 *	| src GID | dst GID |
 */
#define SW_UD_IMM       1u
#define SW_UD_SOLICITED 2u
struct sw_dgram {
	uint32_t len, src_qpn, dst_qpn, qkey, imm;
	uint16_t slid;
	uint8_t sl, tclass;
	uint32_t flow;
	uint8_t hop, flags;
	uint16_t zero;
	union ibv_gid sgid, dgid;
};
_Static_assert(sizeof(struct sw_dgram) == 64, "a frame's size");

/* ---- net.c ---- */

/* A socket in the epoll. A handler may close any of them, its own too: what was closed is freed
 * when the next round of events begins. */
struct sw_sock {
	struct sw_list link;
	int fd;        /* -1: closed */
	uint32_t want; /* what the epoll looks for */
	void (*event)(struct sw_sock *s, uint32_t events);
};

/* Whether there are other processes at all; and starts what is needed to talk to them. 0, or an
 * errno. */
bool sw_net_wanted(void);
int sw_net_start(void);
/* Takes over fd: in the epoll, and closed if that fails. */
int sw_sock_add(struct sw_sock *s, int fd, uint32_t want,
		void (*event)(struct sw_sock *s, uint32_t events));
void sw_sock_want(struct sw_sock *s, uint32_t want);
void sw_sock_close(struct sw_sock *s);
/* Out of the epoll, and the descriptor is the caller's. */
int sw_sock_release(struct sw_sock *s);
/* Moves what can be moved. Cheap when there is no connection. */
void sw_net_progress(void);
/* Whoever polls finds nothing time and again, and should let others have the core. */
bool sw_net_idle(void);
/* Somebody is going to sleep on a completion channel: the thread must watch. */
void sw_net_watch(void);
/* Something will be due: the thread looks anew until when it may sleep. */
void sw_net_alarm(void);
/* How many connections there are; what listens, and who hasn't said hello, doesn't count. */
extern unsigned int sw_net_open;

/* ---- net_sock.c ---- */

/* Bytes in: frames are parsed out of it, and what is left of a read for memory lands in it. */
#define SW_INBUF 4096u
struct sw_inbuf {
	uint32_t at, end;
	bool dry; /* the last read had room for more: the socket was empty */
	uint8_t b[SW_INBUF];
};
/* Small frames on their way out. */
#define SW_OUTBUF 4096u
struct sw_outbuf {
	uint32_t at, end;
	uint8_t b[SW_OUTBUF];
};
enum sw_io {
	SW_IO_OK,
	SW_IO_AGAIN,
	SW_IO_END, /* closed by the peer, or broken */
};
/* At least n bytes in the buffer? Reads once if not. */
enum sw_io sw_in_need(int fd, struct sw_inbuf *in, uint32_t n);
static inline const void *sw_in_take(struct sw_inbuf *in, uint32_t n)
{
	in->at += n;
	return in->b + in->at - n;
}
/* Fills memory, from the buffer first, then from the socket; *got is how much. What comes beyond
 * the memory stays in the buffer. */
enum sw_io sw_in_memory(int fd, struct sw_inbuf *in, const struct sw_piece *to, uint32_t n,
			uint64_t *got);
/* Skips bytes of a list of pieces; returns how many pieces are left. */
uint32_t sw_skip(struct sw_piece *p, uint32_t n, uint64_t bytes);
/* Cuts a list of pieces to so many bytes; returns how many pieces are left. */
uint32_t sw_cut(struct sw_piece *p, uint32_t n, uint64_t bytes);
bool sw_out_room(const struct sw_outbuf *out, uint32_t n);
void sw_out_put(struct sw_outbuf *out, const void *frame, uint32_t n);
/* OK: all is written. */
enum sw_io sw_out_flush(int fd, struct sw_outbuf *out);
/* Writes a header (if hn is not 0) and memory; *sent is how much of both. */
enum sw_io sw_out_memory(int fd, const void *head, uint32_t hn, const struct sw_piece *p,
			 uint32_t n, uint64_t *sent);

/* ---- net_addr.c ---- */

/* QP numbers of one device in one process: a block, which has the name that leads there. */
#define SW_QPN_BLOCK 16384u
/* Claims a block for the device, once. */
int sw_net_claim_qpns(struct sw_device *dev);
void sw_net_release_qpns(struct sw_device *dev);
/* Whether it's a queue pair of another process. gid: where it is; may be NULL. */
bool sw_net_remote(const struct sw_device *dev, const union ibv_gid *gid, uint32_t qpn);
/* The blocks of the other processes' devices on this machine: at most `room`; gives how many. */
unsigned int sw_net_others(uint32_t *block, unsigned int room);
/* A connection to the process that has the QP number, or the port; the hello is under way. The
 * socket, or -1 with errno: ECONNREFUSED: there is no such process. */
int sw_net_to_qpn(const union ibv_gid *gid, uint32_t qpn);
int sw_net_to_port(enum rdma_port_space ps, const struct sockaddr *addr);
bool sw_net_reaches(const struct sockaddr *addr);
/* The address that the first device listens at, network order; 0: this machine alone. */
uint32_t sw_net_addr4(void);
void sw_net_tune(int fd, bool tcp);
/* The process at the other end of a Unix socket is the same user's. */
bool sw_net_trusted(int fd);
/* A port for this process alone; shared between its ids. */
struct sw_claim;
int sw_net_claim_port(struct sw_id *id);
int sw_net_listen(struct sw_id *id);
void sw_net_release_port(struct sw_id *id);
/* In a forked child: the ports are its parent's. */
void sw_net_disown_ports(void);

/* ---- net_hello.c ---- */

/* A listening socket has something: accepts it all. dev: what it listens for, or NULL for the cm. */
void sw_net_accept(int fd, struct sw_device *dev);
void sw_hello_fill(struct sw_hello *h, enum sw_kind kind, bool iwarp, uint32_t src, uint32_t dst);

/* ---- wire_send.c, wire_attach.c ---- */

struct sw_tx;
struct sw_rx;
#define SW_SENT 0x10001 /* not a status: it is under way, its completion comes with the answer */

/* The QP's peer lives in another process: its request in slot `at`. A status, SW_WAITING, SW_SENT. */
int sw_wire_send(struct sw_qp *qp, uint32_t at, const struct sw_piece *local, uint32_t n,
		 uint64_t len);
/* Short requests are gathered: they go out now. */
void sw_wire_flush(struct sw_qp *qp);
/* The QP's state has changed: connections are made, or ended. */
void sw_wire_state(struct sw_qp *qp);
/* The QP is in RESET or goes: nothing of it may be touched any more. */
void sw_wire_forget(struct sw_qp *qp);
/* Receives were posted. */
void sw_wire_kick(struct sw_qp *qp);
void sw_wire_kick_srq(struct sw_srq *srq);
/* XRC: the SRQ goes; a message that is coming in can't be ended. */
void sw_wire_srq_gone(struct sw_qp *qp);
/* The other process has ended: what was asked for fails, the rest is flushed. */
void sw_wire_died(struct sw_qp *qp);
/* What has arrived for the QP, requests and answers, is taken in. */
void sw_wire_drain(struct sw_qp *qp);
/* Takes over an accepted rc connection with its hello. */
void sw_wire_accepted(int fd, const struct sw_hello *h);
void sw_wire_tx_close(struct sw_qp *qp);
/* The responder's end of sw_wire_state and sw_wire_forget. */
void sw_wire_rx_state(struct sw_qp *qp);
void sw_wire_rx_end(struct sw_qp *qp);
void sw_wire_rx_drain(struct sw_qp *qp);

/* ---- wire_ud.c ---- */

/* Sends or keeps back: a status, or SW_WAITING till the way is free. */
int sw_wire_dgram(struct sw_qp *qp, const struct sw_dgram *d, const struct sw_piece *src,
		  uint32_t n);
void sw_wire_ud_accepted(int fd);
/* ud.c: hands it to a QP of this process; wrong ones are dropped. */
void sw_ud_deliver(struct sw_qp *to, const struct sw_dgram *d, const struct sw_piece *src,
		   uint32_t n);
/* To all members of the group that are on the device of dst_qpn's block. */
void sw_ud_group(const struct sw_dgram *d, const struct sw_piece *src, uint32_t n);

/* ---- cm_wire.c ---- */

void sw_cm_wire_accepted(int fd);

#endif
