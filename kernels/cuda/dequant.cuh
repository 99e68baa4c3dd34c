// How 32 weights of every quant format become int8 codes and scales, one specialisation a format.
//
// A piece is 32 neighbouring weights, the run of activations that share a scale. With x as bytes:
//     weight = scale[h] * (code - OFFSET) - minimum[h],   h = 0 for weights 0..15, 1 for 16..31
// Products scale * code are exact in float32, so that only the minimum rounds: the values are those
// of kernels/reference/quants.py bit for bit.
//
// Pieces are read from shared memory, where up to 4 bytes past a block may be read too.
#pragma once

#include "blocks.h"
#include "words.cuh"
#define STRATA_TABLE static __device__ const
#include "grids.h"

constexpr int PIECE = 32;

// Word k of `codes` holds weights 4 k .. 4 k + 3 of a piece. In a format with QUADS, word k of a half
// holds its weights k, 4 + k, 8 + k, 12 + k.
struct Codes {
    uint32_t words[8];
    float scale[2];
    float minimum[2];
};

template <class Block, int WEIGHTS, int ALIGNMENT>
struct Format {
    static constexpr int N_WEIGHTS = WEIGHTS;
    static constexpr int N_BYTES = sizeof(Block);
    static constexpr int N_PIECES = WEIGHTS / PIECE;
    static constexpr int ALIGN = ALIGNMENT;     // of a block, when the matrix is aligned to 16
    static constexpr bool HALVES = false;       // scales (and minima) of the halves differ
    static constexpr bool HAS_MINIMUM = false;
    static constexpr bool QUADS = false;
    static constexpr int OFFSET = 0;
    static constexpr int TABLE_WORDS = 0;       // look-up table in shared memory
    static __device__ __forceinline__ uint32_t table_word(int) { return 0; }
};

template <int QUANT>
struct Quant;

// Low nibbles are weights 0..15 of a piece, high ones 16..31.
__device__ __forceinline__ void split_nibbles(const uint32_t (&packed)[4], uint32_t (&words)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = packed[i] & 0x0f0f0f0fu;
        words[4 + i] = packed[i] >> 4 & 0x0f0f0f0fu;
    }
}

__device__ __forceinline__ void add_fifth_bits(uint32_t bits, uint32_t (&words)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) words[i] |= bits_to_bytes(bits >> 4 * i) << 4;
}

template <>
struct Quant<STRATA_Q4_0> : Format<strata_block_q4_0, 32, 2> {
    static constexpr int OFFSET = 8;
    static __device__ __forceinline__ void decode(const uint8_t* block, int, const uint32_t*, Codes& codes) {
        uint32_t packed[4];
        read_words<ALIGN>(block + 2, packed);
        split_nibbles(packed, codes.words);
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block));
    }
};

template <>
struct Quant<STRATA_Q4_1> : Format<strata_block_q4_1, 32, 4> {
    static constexpr bool HAS_MINIMUM = true;
    static __device__ __forceinline__ void decode(const uint8_t* block, int, const uint32_t*, Codes& codes) {
        uint32_t packed[4];
        read_words<ALIGN>(block + 4, packed);
        split_nibbles(packed, codes.words);
        const uint32_t head = u32_at(block);
        codes.scale[0] = codes.scale[1] = float_of_half(head & 0xffff);
        codes.minimum[0] = codes.minimum[1] = -float_of_half(head >> 16);
    }
};

template <>
struct Quant<STRATA_Q5_0> : Format<strata_block_q5_0, 32, 2> {
    static constexpr int OFFSET = 16;
    static __device__ __forceinline__ void decode(const uint8_t* block, int, const uint32_t*, Codes& codes) {
        uint32_t all[5];
        read_words<ALIGN>(block + 2, all);
        const uint32_t packed[4] = {all[1], all[2], all[3], all[4]};
        split_nibbles(packed, codes.words);
        add_fifth_bits(all[0], codes.words);
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block));
    }
};

template <>
struct Quant<STRATA_Q5_1> : Format<strata_block_q5_1, 32, 8> {
    static constexpr bool HAS_MINIMUM = true;
    static __device__ __forceinline__ void decode(const uint8_t* block, int, const uint32_t*, Codes& codes) {
        uint32_t all[6];
        read_words<ALIGN>(block, all);
        const uint32_t packed[4] = {all[2], all[3], all[4], all[5]};
        split_nibbles(packed, codes.words);
        add_fifth_bits(all[1], codes.words);
        codes.scale[0] = codes.scale[1] = float_of_half(all[0] & 0xffff);
        codes.minimum[0] = codes.minimum[1] = -float_of_half(all[0] >> 16);
    }
};

template <>
struct Quant<STRATA_Q8_0> : Format<strata_block_q8_0, 32, 2> {
    static __device__ __forceinline__ void decode(const uint8_t* block, int, const uint32_t*, Codes& codes) {
        read_words<ALIGN>(block + 2, codes.words);
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block));
    }
};

template <>
struct Quant<STRATA_Q2_0> : Format<strata_block_q2_0, 64, 2> {
    static constexpr int OFFSET = 1;
    static constexpr bool QUADS = true;
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t*, Codes& codes) {
        uint32_t packed[2];
        read_words<ALIGN>(block + 2 + 8 * sub, packed);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            codes.words[k] = packed[0] >> 2 * k & 0x03030303u;
            codes.words[4 + k] = packed[1] >> 2 * k & 0x03030303u;
        }
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block));
    }
};

// ---------------------------------------------------------------- K: 256 weights, scales in integers

template <>
struct Quant<STRATA_Q2_K> : Format<strata_block_q2_k, 256, 4> {
    static constexpr bool HALVES = true;
    static constexpr bool HAS_MINIMUM = true;
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t*, Codes& codes) {
        read_words<ALIGN>(block + 16 + sub / 4 * 32, codes.words);
#pragma unroll
        for (int i = 0; i < 8; i++) codes.words[i] = codes.words[i] >> sub % 4 * 2 & 0x03030303u;
        const uint32_t groups = u16_at(block + 2 * sub);
        const uint32_t head = u32_at(block + 80);
        const float d = float_of_half(head & 0xffff), m = float_of_half(head >> 16);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            codes.scale[h] = d * static_cast<float>(groups >> 8 * h & 15);
            codes.minimum[h] = m * static_cast<float>(groups >> (8 * h + 4) & 15);
        }
    }
};

template <>
struct Quant<STRATA_Q3_K> : Format<strata_block_q3_k, 256, 2> {
    static constexpr bool HALVES = true;
    static constexpr int OFFSET = 4;
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t*, Codes& codes) {
        uint32_t third[8];
        read_words<ALIGN>(block, third);
        read_words<ALIGN>(block + 32 + sub / 4 * 32, codes.words);
#pragma unroll
        for (int i = 0; i < 8; i++)
            codes.words[i] = (codes.words[i] >> sub % 4 * 2 & 0x03030303u) | (third[i] >> sub & 0x01010101u) << 2;
        // Group g = 2 sub + h: low nibbles of bytes 0..7 are groups 0..7, high ones 8..15.
        const uint32_t low = u16_at(block + 96 + sub % 4 * 2) >> sub / 4 * 4;
        const uint32_t high = u16_at(block + 104 + sub % 2 * 2) >> sub / 2 * 2;
        const float d = float_of_half(u16_at(block + 108));
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int scale = (low >> 8 * h & 15) | (high >> 8 * h & 3) << 4;
            codes.scale[h] = d * static_cast<float>(scale - 32);
        }
    }
};

// Scale and minimum of piece `sub` from a block's first 16 bytes (d, m, 12 packed bytes).
__device__ __forceinline__ void read_k_scales(const uint32_t (&head)[4], int sub, Codes& codes) {
    const int shift = sub % 4 * 8;
    const uint32_t first = head[1] >> shift & 255, second = head[2] >> shift & 255, third = head[3] >> shift & 255;
    const uint32_t scale = sub < 4 ? first & 63 : (third & 15) | first >> 6 << 4;
    const uint32_t minimum = sub < 4 ? second & 63 : third >> 4 | second >> 6 << 4;
    codes.scale[0] = codes.scale[1] = float_of_half(head[0] & 0xffff) * static_cast<float>(scale);
    codes.minimum[0] = codes.minimum[1] = float_of_half(head[0] >> 16) * static_cast<float>(minimum);
}

template <>
struct Quant<STRATA_Q4_K> : Format<strata_block_q4_k, 256, 16> {
    static constexpr bool HAS_MINIMUM = true;
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t*, Codes& codes) {
        uint32_t head[4];
        read_words<ALIGN>(block, head);
        read_words<ALIGN>(block + 16 + sub / 2 * 32, codes.words);
#pragma unroll
        for (int i = 0; i < 8; i++) codes.words[i] = codes.words[i] >> sub % 2 * 4 & 0x0f0f0f0fu;
        read_k_scales(head, sub, codes);
    }
};

template <>
struct Quant<STRATA_Q5_K> : Format<strata_block_q5_k, 256, 16> {
    static constexpr bool HAS_MINIMUM = true;
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t*, Codes& codes) {
        uint32_t head[4], fifth[8];
        read_words<ALIGN>(block, head);
        read_words<ALIGN>(block + 16, fifth);
        read_words<ALIGN>(block + 48 + sub / 2 * 32, codes.words);
#pragma unroll
        for (int i = 0; i < 8; i++)
            codes.words[i] = (codes.words[i] >> sub % 2 * 4 & 0x0f0f0f0fu) | (fifth[i] >> sub & 0x01010101u) << 4;
        read_k_scales(head, sub, codes);
    }
};

template <>
struct Quant<STRATA_Q6_K> : Format<strata_block_q6_k, 256, 2> {
    static constexpr bool HALVES = true;
    static constexpr int OFFSET = 32;
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t*, Codes& codes) {
        // Runs of 32 of each half of 128: low nibbles of 64 bytes, then their high nibbles.
        uint32_t high[8];
        read_words<ALIGN>(block + sub / 4 * 64 + sub % 2 * 32, codes.words);
        read_words<ALIGN>(block + 128 + sub / 4 * 32, high);
#pragma unroll
        for (int i = 0; i < 8; i++)
            codes.words[i] = (codes.words[i] >> sub % 4 / 2 * 4 & 0x0f0f0f0fu) |
                             (high[i] >> sub % 4 * 2 & 0x03030303u) << 4;
        const uint32_t scales = u16_at(block + 192 + 2 * sub);
        const float d = float_of_half(u16_at(block + 208));
        codes.scale[0] = d * static_cast<float>(static_cast<int8_t>(scales & 255));
        codes.scale[1] = d * static_cast<float>(static_cast<int8_t>(scales >> 8));
    }
};

// ---------------------------------------------------------------- sixteen levels

__device__ __forceinline__ Levels16 levels_of_iq4() {
    // -127 -104 -83 -65 | -49 -35 -22 -10 | 1 13 25 38 | 53 69 89 113
    return {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};
}

__device__ __forceinline__ Levels16 levels_of_fp4() {
    // 0 1 2 3 | 4 6 8 12 | 0 -1 -2 -3 | -4 -6 -8 -12
    return {{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};
}

template <>
struct Quant<STRATA_IQ4_NL> : Format<strata_block_iq4_nl, 32, 2> {
    static __device__ __forceinline__ void decode(const uint8_t* block, int, const uint32_t*, Codes& codes) {
        uint32_t packed[4];
        read_words<ALIGN>(block + 2, packed);
#pragma unroll
        for (int i = 0; i < 4; i++) levels_of_iq4().look_up(packed[i], codes.words[i], codes.words[4 + i]);
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block));
    }
};

template <>
struct Quant<STRATA_IQ4_XS> : Format<strata_block_iq4_xs, 256, 8> {
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t*, Codes& codes) {
        uint32_t head[2], packed[4];
        read_words<ALIGN>(block, head);
        read_words<ALIGN>(block + 8 + 16 * sub, packed);
#pragma unroll
        for (int i = 0; i < 4; i++) levels_of_iq4().look_up(packed[i], codes.words[i], codes.words[4 + i]);
        const int scale = (head[1] >> 4 * sub & 15) | (head[0] >> (16 + 2 * sub) & 3) << 4;
        codes.scale[0] = codes.scale[1] = float_of_half(head[0] & 0xffff) * static_cast<float>(scale - 32);
    }
};

template <>
struct Quant<STRATA_MXFP4> : Format<strata_block_mxfp4, 32, 1> {
    static __device__ __forceinline__ void decode(const uint8_t* block, int, const uint32_t*, Codes& codes) {
        uint32_t packed[4];
        read_words<ALIGN>(block + 1, packed);
#pragma unroll
        for (int i = 0; i < 4; i++) levels_of_fp4().look_up(packed[i], codes.words[i], codes.words[4 + i]);
        // Half of 2^(e - 127), as the levels are doubled; below 2 that is a subnormal float.
        const uint32_t e = block[0];
        codes.scale[0] = codes.scale[1] = __uint_as_float(e < 2 ? 1u << 21 << e : (e - 1) << 23);
    }
};

// ---------------------------------------------------------------- lattices

// A table entry is eight nibbles, each the number of one of three magnitudes.
__device__ __forceinline__ uint32_t nibbles_of_bytes(uint64_t point, int shift) {
    uint32_t halves[2] = {static_cast<uint32_t>(point), static_cast<uint32_t>(point >> 32)};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t x = halves[h] >> shift & 0x03030303u;
        x = (x | x >> 4) & 0x00ff00ffu;
        halves[h] = (x | x >> 8) & 0xffffu;
    }
    return halves[0] | halves[1] << 16;
}

// Eight weights of an IQ2 point: magnitudes 8, 25, 43 (number = byte / 16), bit 2 of a nibble negates.
__device__ __forceinline__ void look_up_iq2(uint32_t magnitudes, uint32_t signs, uint32_t& first, uint32_t& second) {
    const uint32_t selector = magnitudes | bits_to_nibbles(signs) << 2;
    first = permute(0x002b1908u, 0x00d5e7f8u, selector);
    second = permute(0x002b1908u, 0x00d5e7f8u, selector >> 16);
}

template <>
struct Quant<STRATA_IQ2_XXS> : Format<strata_block_iq2_xxs, 256, 2> {
    static constexpr int TABLE_WORDS = 256;
    static __device__ __forceinline__ uint32_t table_word(int i) { return nibbles_of_bytes(strata_grid_iq2_xxs[i], 4); }
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t* table, Codes& codes) {
        uint32_t group[2];
        read_words<ALIGN>(block + 2 + 8 * sub, group);
#pragma unroll
        for (int l = 0; l < 4; l++)
            look_up_iq2(table[group[0] >> 8 * l & 255], eight_signs(group[1] >> 7 * l & 127), codes.words[2 * l],
                        codes.words[2 * l + 1]);
        const float half_scale = 0.5f + static_cast<float>(group[1] >> 28);
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block)) * half_scale * 0.25f;
    }
};

__device__ __forceinline__ void read_iq2_scales(const uint8_t* block, uint32_t nibbles, Codes& codes) {
    const float d = float_of_half(u16_at(block));
    codes.scale[0] = d * (0.5f + static_cast<float>(nibbles & 15)) * 0.25f;
    codes.scale[1] = d * (0.5f + static_cast<float>(nibbles >> 4)) * 0.25f;
}

template <>
struct Quant<STRATA_IQ2_XS> : Format<strata_block_iq2_xs, 256, 2> {
    static constexpr bool HALVES = true;
    static constexpr int TABLE_WORDS = 512;
    static __device__ __forceinline__ uint32_t table_word(int i) { return nibbles_of_bytes(strata_grid_iq2_xs[i], 4); }
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t* table, Codes& codes) {
        uint32_t group[2];
        read_words<ALIGN>(block + 2 + 8 * sub, group);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const uint32_t code = group[l / 2] >> l % 2 * 16 & 0xffff;
            look_up_iq2(table[code & 511], eight_signs(code >> 9), codes.words[2 * l], codes.words[2 * l + 1]);
        }
        read_iq2_scales(block, block[66 + sub], codes);
    }
};

template <>
struct Quant<STRATA_IQ2_S> : Format<strata_block_iq2_s, 256, 2> {
    static constexpr bool HALVES = true;
    static constexpr int TABLE_WORDS = 1024;
    static __device__ __forceinline__ uint32_t table_word(int i) { return nibbles_of_bytes(strata_grid_iq2_s[i], 4); }
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t* table, Codes& codes) {
        uint32_t low[1], signs[1];
        read_words<ALIGN>(block + 2 + 4 * sub, low);
        read_words<ALIGN>(block + 34 + 4 * sub, signs);
        const uint32_t high = block[66 + sub];
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const uint32_t index = (low[0] >> 8 * l & 255) | (high >> 2 * l & 3) << 8;
            look_up_iq2(table[index], signs[0] >> 8 * l & 255, codes.words[2 * l], codes.words[2 * l + 1]);
        }
        read_iq2_scales(block, block[74 + sub], codes);
    }
};

template <>
struct Quant<STRATA_IQ3_XXS> : Format<strata_block_iq3_xxs, 256, 2> {
    static constexpr int TABLE_WORDS = 256;
    static __device__ __forceinline__ uint32_t table_word(int i) { return strata_grid_iq3_xxs[i]; }
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t* table, Codes& codes) {
        uint32_t indices[2], tail[1];
        read_words<ALIGN>(block + 2 + 8 * sub, indices);
        read_words<ALIGN>(block + 66 + 4 * sub, tail);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const uint32_t signs = eight_signs(tail[0] >> 7 * l & 127);
            const uint32_t two = indices[l / 2] >> l % 2 * 16;
            codes.words[2 * l] = negate_bytes(table[two & 255], signs);
            codes.words[2 * l + 1] = negate_bytes(table[two >> 8 & 255], signs >> 4);
        }
        const float half_scale = 0.5f + static_cast<float>(tail[0] >> 28);
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block)) * half_scale * 0.5f;
    }
};

template <>
struct Quant<STRATA_IQ3_S> : Format<strata_block_iq3_s, 256, 2> {
    static constexpr int TABLE_WORDS = 512;
    static __device__ __forceinline__ uint32_t table_word(int i) { return strata_grid_iq3_s[i]; }
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t* table, Codes& codes) {
        uint32_t indices[2], signs[1];
        read_words<ALIGN>(block + 2 + 8 * sub, indices);
        read_words<ALIGN>(block + 74 + 4 * sub, signs);
        const uint32_t ninth = block[66 + sub];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t index = (indices[i / 4] >> i % 4 * 8 & 255) | (ninth >> i & 1) << 8;
            codes.words[i] = negate_bytes(table[index], signs[0] >> 4 * i);
        }
        const uint32_t scale = block[106 + sub / 2] >> sub % 2 * 4 & 15;
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block)) * static_cast<float>(1 + 2 * scale);
    }
};

// Eight weights of an IQ1 point, in eighths: 0, 8 or -8 (numbers 0, 1, 3), and one more or less.
__device__ __forceinline__ void look_up_iq1(uint32_t point, bool is_minus, uint32_t& first, uint32_t& second) {
    const uint32_t levels = is_minus ? 0xf70007ffu : 0xf9000901u;
    first = permute(levels, 0, point);
    second = permute(levels, 0, point >> 16);
}

template <>
struct Quant<STRATA_IQ1_S> : Format<strata_block_iq1_s, 256, 2> {
    static constexpr int TABLE_WORDS = 2048;
    static __device__ __forceinline__ uint32_t table_word(int i) { return nibbles_of_bytes(strata_grid_iq1_s[i], 0); }
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t* table, Codes& codes) {
        uint32_t low[1];
        read_words<ALIGN>(block + 2 + 4 * sub, low);
        const uint32_t high = u16_at(block + 34 + 2 * sub);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const uint32_t index = (low[0] >> 8 * l & 255) | (high >> 3 * l & 7) << 8;
            look_up_iq1(table[index], high & 0x8000, codes.words[2 * l], codes.words[2 * l + 1]);
        }
        const float scale = static_cast<float>(2 * (high >> 12 & 7) + 1);
        codes.scale[0] = codes.scale[1] = float_of_half(u16_at(block)) * scale * 0.125f;
    }
};

template <>
struct Quant<STRATA_IQ1_M> : Format<strata_block_iq1_m, 256, 8> {
    static constexpr bool HALVES = true;
    static constexpr int TABLE_WORDS = 2048;
    static __device__ __forceinline__ uint32_t table_word(int i) { return nibbles_of_bytes(strata_grid_iq1_s[i], 0); }
    static __device__ __forceinline__ void decode(const uint8_t* block, int sub, const uint32_t* table, Codes& codes) {
        uint32_t words[2];
        read_words<ALIGN>(block + 48, words);
        const uint32_t low = u32_at(block + 4 * sub);
        const uint32_t high = u16_at(block + 32 + 2 * sub);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const uint32_t nibble = high >> 4 * l & 15;
            const uint32_t index = (low >> 8 * l & 255) | (nibble & 7) << 8;
            look_up_iq1(table[index], nibble & 8, codes.words[2 * l], codes.words[2 * l + 1]);
        }
        // The top nibbles of four 16-bit words are d, the lowest first.
        const uint32_t d_bits = (words[0] >> 12 & 0x000f) | (words[0] >> 24 & 0x00f0) | (words[1] >> 4 & 0x0f00) |
                                (words[1] >> 16 & 0xf000);
        const float d = float_of_half(d_bits);
        const uint32_t scales = (sub < 4 ? words[0] : words[1]) >> (sub / 2 % 2 * 16 + sub % 2 * 6);
        codes.scale[0] = d * static_cast<float>(2 * (scales & 7) + 1) * 0.125f;
        codes.scale[1] = d * static_cast<float>(2 * (scales >> 3 & 7) + 1) * 0.125f;
    }
};

// Fills the format's look-up table in shared memory; the caller synchronises.
template <class Q>
__device__ __forceinline__ void fill_table(uint32_t* table) {
    for (int i = threadIdx.x; i < Q::TABLE_WORDS; i += blockDim.x) table[i] = Q::table_word(i);
}
