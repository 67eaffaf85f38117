/* What an emulated computer (agent.c) and the library in its emulator (ask.c) share. */
#include <stdint.h>

enum { SLOTS = 512, ASK_PORT = 0x402, SOURCE = 6, ACKS = 4096 };

struct slot {
	uint32_t size;
	uint8_t bytes[2044]; /* a packet; when it was sent in place of its source's hardware address */
};

/* What the kernel says of a flow that a process decides for, and its answer: that of window.bpf.c.in. */
struct talk {
	uint64_t n, taken;
	int64_t now_ns, due_ns;
	uint64_t rate_Bps;
	uint32_t cwnd, sent, in_flight, delivered, lost, mss;
	struct {
		int64_t now_us, rtt_us;
	} acks[ACKS];
};

struct shared {
	struct talk talk; /* of a flow to decide for */
	int64_t flow; /* its number, from 1; 0: a question is one to the network */
	int64_t now, due, n_sent[2], n_due[2]; /* of the senders' and of the receivers' device */
	struct slot sent[2][SLOTS], arrived[2][SLOTS];
};
