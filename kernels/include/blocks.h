/* The byte layout of every weight block that kernels read, for C and CUDA alike.
 *
 * One struct a format, named after its ggml type. `d` scales and `m` shifts a block; both are the
 * bits of IEEE halves. How bits become values is said in kernels/reference/quants.py.
 */
#ifndef STRATA_BLOCKS_H
#define STRATA_BLOCKS_H

#include <stdint.h>

typedef uint16_t strata_half; /* bits of an IEEE half */

#if defined(__cplusplus)
#define STRATA_ASSERT_BYTES(block, n_bytes) static_assert(sizeof(block) == (n_bytes), #block)
#else
#define STRATA_ASSERT_BYTES(block, n_bytes) _Static_assert(sizeof(block) == (n_bytes), #block)
#endif

/* ggml ids, the same numbers as kernels/quants.py. */
enum {
    STRATA_F32 = 0,
    STRATA_F16 = 1,
    STRATA_Q4_0 = 2,
    STRATA_Q4_1 = 3,
    STRATA_Q5_0 = 6,
    STRATA_Q5_1 = 7,
    STRATA_Q8_0 = 8,
    STRATA_Q2_K = 10,
    STRATA_Q3_K = 11,
    STRATA_Q4_K = 12,
    STRATA_Q5_K = 13,
    STRATA_Q6_K = 14,
    STRATA_BF16 = 30,
    STRATA_N_QUANTS = 43 /* one past the largest ggml id known */
};

/* 32 weights: d * (q - 8). Byte i holds weight i (low nibble) and i + 16 (high nibble). */
typedef struct {
    strata_half d;
    uint8_t qs[16];
} strata_block_q4_0;
STRATA_ASSERT_BYTES(strata_block_q4_0, 18);

/* 32 weights: d * q + m. Nibbles as in q4_0. */
typedef struct {
    strata_half d;
    strata_half m;
    uint8_t qs[16];
} strata_block_q4_1;
STRATA_ASSERT_BYTES(strata_block_q4_1, 20);

/* 32 weights: d * (q - 16); bit i of qh is bit 4 of weight i. */
typedef struct {
    strata_half d;
    uint8_t qh[4];
    uint8_t qs[16];
} strata_block_q5_0;
STRATA_ASSERT_BYTES(strata_block_q5_0, 22);

/* 32 weights: d * q + m; bit i of qh is bit 4 of weight i. */
typedef struct {
    strata_half d;
    strata_half m;
    uint8_t qh[4];
    uint8_t qs[16];
} strata_block_q5_1;
STRATA_ASSERT_BYTES(strata_block_q5_1, 24);

/* 32 weights: d * q. */
typedef struct {
    strata_half d;
    int8_t qs[32];
} strata_block_q8_0;
STRATA_ASSERT_BYTES(strata_block_q8_0, 34);

/* 256 weights in 16 groups of 16: d * scale * q - m * minimum; a group's byte is minimum << 4 | scale. */
typedef struct {
    uint8_t scales[16];
    uint8_t qs[64];
    strata_half d;
    strata_half m;
} strata_block_q2_k;
STRATA_ASSERT_BYTES(strata_block_q2_k, 84);

/* 256 weights in 16 groups of 16: d * (scale - 32) * q, q = low two bits less 4 where hmask is 0. */
typedef struct {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    strata_half d;
} strata_block_q3_k;
STRATA_ASSERT_BYTES(strata_block_q3_k, 110);

/* 256 weights in 8 groups of 32: d * scale * q - m * minimum; scale and minimum are 6 bits each. */
typedef struct {
    strata_half d;
    strata_half m;
    uint8_t scales[12];
    uint8_t qs[128];
} strata_block_q4_k;
STRATA_ASSERT_BYTES(strata_block_q4_k, 144);

/* As q4_k with a fifth bit of each weight in qh. */
typedef struct {
    strata_half d;
    strata_half m;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} strata_block_q5_k;
STRATA_ASSERT_BYTES(strata_block_q5_k, 176);

/* 256 weights in 16 groups of 16: d * scale * (q - 32); ql has 4 low bits, qh 2 high bits. */
typedef struct {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    strata_half d;
} strata_block_q6_k;
STRATA_ASSERT_BYTES(strata_block_q6_k, 210);

#endif
