// Activations as int8 codes: the layout that quantise kernels write and products read.
//
// A row is tiles of 256 values, 576 bytes each; the last tile is whole even if the row ends before.
//     bytes   0..255  codes: first halves (16 bytes) of the tile's 8 pieces, then their second halves
//     bytes 256..511  the same, each half turned from 4 x 4 to its transpose (formats with QUADS)
//     bytes 512..575  a head a piece: f32 scale, i16 sums of the codes of both halves
// So lanes that take neighbouring pieces read neighbouring 16 bytes.
#pragma once

#include "words.cuh"

constexpr int TILE_PIECES = 8;
constexpr int TILE_BYTES = 576;
constexpr int TILE_QUADS = 256;
constexpr int TILE_HEADS = 512;
constexpr int HALF_STRIDE = 128;
constexpr int LARGEST_INT8 = 127;

struct Piece {
    uint32_t words[8];
    float scale;
    int sums[2];
};

__host__ __device__ constexpr int activation_row_bytes(int n_pieces) {
    return (n_pieces + TILE_PIECES - 1) / TILE_PIECES * TILE_BYTES;
}

// Reads piece `piece` of a row of activations.
template <bool QUADS>
__device__ __forceinline__ Piece read_piece(const uint8_t* row, int piece) {
    const uint8_t* tile = row + piece / TILE_PIECES * TILE_BYTES;
    const int within = piece % TILE_PIECES;
    const uint8_t* codes = tile + (QUADS ? TILE_QUADS : 0) + within * 16;
    const uint4 first = __ldg(reinterpret_cast<const uint4*>(codes));
    const uint4 second = __ldg(reinterpret_cast<const uint4*>(codes + HALF_STRIDE));
    const uint2 head = __ldg(reinterpret_cast<const uint2*>(tile + TILE_HEADS + within * 8));
    Piece x;
    x.words[0] = first.x;
    x.words[1] = first.y;
    x.words[2] = first.z;
    x.words[3] = first.w;
    x.words[4] = second.x;
    x.words[5] = second.y;
    x.words[6] = second.z;
    x.words[7] = second.w;
    x.scale = __uint_as_float(head.x);
    x.sums[0] = static_cast<int16_t>(head.y & 0xffff);
    x.sums[1] = static_cast<int16_t>(head.y >> 16);
    return x;
}

// Writes four neighbouring codes of a piece: `quarter` 0..7 is their place in it.
__device__ __forceinline__ void write_codes(uint8_t* row, int piece, int quarter, const int (&codes)[4]) {
    uint8_t* tile = row + piece / TILE_PIECES * TILE_BYTES;
    uint8_t* half = tile + quarter / 4 * HALF_STRIDE + piece % TILE_PIECES * 16;
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word |= (static_cast<uint32_t>(codes[i]) & 255) << 8 * i;
        half[TILE_QUADS + 4 * i + quarter % 4] = static_cast<uint8_t>(codes[i]);
    }
    *reinterpret_cast<uint32_t*>(half + quarter % 4 * 4) = word;
}

__device__ __forceinline__ void write_head(uint8_t* row, int piece, float scale, int first, int second) {
    uint8_t* tile = row + piece / TILE_PIECES * TILE_BYTES;
    const uint32_t sums = (static_cast<uint32_t>(first) & 0xffff) | static_cast<uint32_t>(second) << 16;
    *reinterpret_cast<uint2*>(tile + TILE_HEADS + piece % TILE_PIECES * 8) = make_uint2(__float_as_uint(scale), sums);
}

// Quantises a piece by 8 neighbouring lanes, four values each. All lanes of the warp must call.
//
// PLANES 1: x is about scale * code, codes of 8 bits.
// PLANES 2: codes of 15 bits as two rows of activations whose products add up: the first row holds
// the high parts at 128 times the scale, the second the low ones (-64..63).
template <int PLANES>
__device__ __forceinline__ void quantize_piece(const float (&values)[4], uint8_t* row, int row_bytes, int piece,
                                               int quarter, bool is_inside) {
    constexpr float LARGEST = PLANES == 1 ? LARGEST_INT8 : LARGEST_INT8 * 128;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) largest = fmaxf(largest, fabsf(values[i]));
#pragma unroll
    for (int o = 4; o; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o, 8));
    const float inverse = largest > 0 ? __fdiv_rn(LARGEST, largest) : 0;
    const float scale = __fdiv_rn(largest, LARGEST);
    int parts[PLANES][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int code = __float2int_rn(__fmul_rn(values[i], inverse));
        if constexpr (PLANES == 1) {
            parts[0][i] = code;
        } else {
            parts[0][i] = (code + 64) >> 7;
            parts[1][i] = code - parts[0][i] * 128;
        }
    }
#pragma unroll
    for (int p = 0; p < PLANES; p++) {
        int sum = parts[p][0] + parts[p][1] + parts[p][2] + parts[p][3];
        sum += __shfl_xor_sync(~0u, sum, 1, 8);
        sum += __shfl_xor_sync(~0u, sum, 2, 8);
        const int other = __shfl_xor_sync(~0u, sum, 4, 8);
        if (!is_inside) continue;
        write_codes(row + p * row_bytes, piece, quarter, parts[p]);
        if (quarter == 0) write_head(row + p * row_bytes, piece, p == PLANES - 1 ? scale : scale * 128, sum, other);
    }
}
