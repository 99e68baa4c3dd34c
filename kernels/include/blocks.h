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
    STRATA_IQ2_XXS = 16,
    STRATA_IQ2_XS = 17,
    STRATA_IQ3_XXS = 18,
    STRATA_IQ1_S = 19,
    STRATA_IQ4_NL = 20,
    STRATA_IQ3_S = 21,
    STRATA_IQ2_S = 22,
    STRATA_IQ4_XS = 23,
    STRATA_IQ1_M = 29,
    STRATA_BF16 = 30,
    STRATA_MXFP4 = 39,
    STRATA_Q2_0 = 42,
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

/* 64 weights: d * (q - 1). Byte i holds the neighbours 4 i .. 4 i + 3, the first in the low bits. */
typedef struct {
    strata_half d;
    uint8_t qs[16];
} strata_block_q2_0;
STRATA_ASSERT_BYTES(strata_block_q2_0, 18);

/* 32 weights: 2^(e - 128) * level; nibbles as in q4_0 name a level (twice a 4-bit float's). */
typedef struct {
    uint8_t e;
    uint8_t qs[16];
} strata_block_mxfp4;
STRATA_ASSERT_BYTES(strata_block_mxfp4, 17);

/* 32 weights: d * level; nibbles as in q4_0 name one of 16 levels. */
typedef struct {
    strata_half d;
    uint8_t qs[16];
} strata_block_iq4_nl;
STRATA_ASSERT_BYTES(strata_block_iq4_nl, 18);

/* 256 weights in 8 groups of 32: d * (scale - 32) * level; 16 bytes of nibbles a group as in q4_0.
 * A group's scale: a nibble of scales_l below two bits of scales_h. */
typedef struct {
    strata_half d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} strata_block_iq4_xs;
STRATA_ASSERT_BYTES(strata_block_iq4_xs, 136);

/* The lattice formats: 256 weights in 8 groups of 32; an index names 8 weights (iq3: 4) of a table
 * in grids.h. Seven sign bits stand for eight: the number of minus signs is even. */

/* A group: 4 index bytes, then 4 x 7 sign bits and 4 bits of scale: d * (scale + 1/2) / 4. */
typedef struct {
    strata_half d;
    uint16_t qs[32];
} strata_block_iq2_xxs;
STRATA_ASSERT_BYTES(strata_block_iq2_xxs, 66);

/* qs: 9 bits of index, 7 of signs; a nibble of scale for 16 weights: d * (scale + 1/2) / 4. */
typedef struct {
    strata_half d;
    uint16_t qs[32];
    uint8_t scales[8];
} strata_block_iq2_xs;
STRATA_ASSERT_BYTES(strata_block_iq2_xs, 74);

/* Ten bits of index: 8 in qs, 2 in qh (four indices a byte); 8 sign bits a byte; scales as iq2_xs. */
typedef struct {
    strata_half d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} strata_block_iq2_s;
STRATA_ASSERT_BYTES(strata_block_iq2_s, 82);

/* 8 index bytes a group; tails: 4 x 7 sign bits and 4 bits of scale: d * (scale + 1/2) / 2. */
typedef struct {
    strata_half d;
    uint8_t qs[64];
    uint16_t tails[16]; /* eight 32-bit words, low half first */
} strata_block_iq3_xxs;
STRATA_ASSERT_BYTES(strata_block_iq3_xxs, 98);

/* Nine bits of index: 8 in qs, 1 in qh; 8 sign bits a byte; a nibble of scale a group: d * (1 + 2 scale). */
typedef struct {
    strata_half d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} strata_block_iq3_s;
STRATA_ASSERT_BYTES(strata_block_iq3_s, 110);

/* Eleven bits of index: 8 in qs, 3 in qh; qh of a group: 4 x 3 index bits, 3 of scale, 1 sign of the
 * delta. Weights: d * (2 scale + 1) * (point +- 1/8). */
typedef struct {
    strata_half d;
    uint8_t qs[32];
    uint16_t qh[8];
} strata_block_iq1_s;
STRATA_ASSERT_BYTES(strata_block_iq1_s, 50);

/* As iq1_s; a nibble of qh: 3 index bits and a sign of the delta for 8 weights. scales: four words of
 * 4 x 3 bits (a scale for 16 weights) under 4 bits of d, the lowest four in the first word. */
typedef struct {
    uint8_t qs[32];
    uint8_t qh[16];
    uint16_t scales[4];
} strata_block_iq1_m;
STRATA_ASSERT_BYTES(strata_block_iq1_m, 56);

#endif
