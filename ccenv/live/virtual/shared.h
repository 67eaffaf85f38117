/* What an emulated computer (agent.c) and the library in its emulator (ask.c) share. */
#include <stdint.h>

enum { SLOTS = 512, ASK_PORT = 0x402, SOURCE = 6 };

struct slot {
	uint32_t size;
	uint8_t bytes[2044]; /* a packet; when it was sent in place of its source's hardware address */
};

struct shared {
	int64_t now, due, n_sent[2], n_due[2]; /* of the senders' and of the receivers' device */
	struct slot sent[2][SLOTS], arrived[2][SLOTS];
};
