// dequantize: rows of a matrix as numbers, bit for bit those of kernels/reference/quants.py.
//
//     y[i][column] = weight[rows ? rows[i] : i][column]
//
// dequantize: a thread block takes 4096 columns of one row, a thread 32 of them. Shared memory: the
// bytes of those columns and the format's look-up table.
// convert: the same for F32, F16, BF16; a thread a number.

#include "dequant.cuh"

struct DequantizeArgs {
    void* y;                // float or half [n_rows, n_cols]
    const uint8_t* weight;  // blocks of [any, n_cols], aligned to 16, readable to the next 16 bytes
    const int* rows;        // i32[n_rows] or null
    int n_cols;
    int row_bytes;
};

constexpr int THREADS = 128;

__device__ __forceinline__ void store(float* to, float value) { *to = value; }
__device__ __forceinline__ void store(strata_half* to, float value) { *to = half_of_float(value); }

template <int QUANT, class Out>
__global__ void __launch_bounds__(THREADS) dequantize(const __grid_constant__ DequantizeArgs a) {
    using Q = Quant<QUANT>;
    constexpr int MAX_BYTES = THREADS / Q::N_PIECES * Q::N_BYTES;
    __shared__ __align__(16) uint8_t bytes[MAX_BYTES + 48];
    __shared__ uint32_t table[Q::TABLE_WORDS > 0 ? Q::TABLE_WORDS : 1];
    const int row = a.rows ? a.rows[blockIdx.x] : blockIdx.x;
    const int first = blockIdx.y * THREADS, n_pieces = min(a.n_cols / PIECE - first, THREADS);
    const uint8_t* start = a.weight + static_cast<int64_t>(row) * a.row_bytes + first / Q::N_PIECES * Q::N_BYTES;
    const uint8_t* end = start + n_pieces / Q::N_PIECES * Q::N_BYTES;
    const int odd = reinterpret_cast<uintptr_t>(start) & 15;
    for (const uint8_t* from = start - odd + threadIdx.x * 16; from < end; from += THREADS * 16)
        *reinterpret_cast<uint4*>(bytes + (from - (start - odd))) = *reinterpret_cast<const uint4*>(from);
    fill_table<Q>(table);
    __syncthreads();
    const int within = threadIdx.x;
    if (within >= n_pieces) return;
    Codes codes;
    Q::decode(bytes + odd + within / Q::N_PIECES * Q::N_BYTES, within % Q::N_PIECES, table, codes);
    Out* y = static_cast<Out*>(a.y) + static_cast<int64_t>(blockIdx.x) * a.n_cols + (first + within) * PIECE;
#pragma unroll
    for (int w = 0; w < 8; w++)
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const int code = static_cast<int8_t>(codes.words[w] >> 8 * b & 255) - Q::OFFSET;
            float value = __fmul_rn(codes.scale[w / 4], static_cast<float>(code));
            if constexpr (Q::HAS_MINIMUM) value = __fsub_rn(value, codes.minimum[w / 4]);
            store(y + (Q::QUADS ? w / 4 * 16 + b * 4 + w % 4 : w * 4 + b), value);
        }
}

template <int QUANT, class Out>
__global__ void __launch_bounds__(THREADS) convert(const __grid_constant__ DequantizeArgs a) {
    const int row = a.rows ? a.rows[blockIdx.x] : blockIdx.x;
    const int column = blockIdx.y * THREADS + threadIdx.x;
    if (column >= a.n_cols) return;
    const uint8_t* start = a.weight + static_cast<int64_t>(row) * a.row_bytes;
    float value;
    if constexpr (QUANT == STRATA_F32)
        value = reinterpret_cast<const float*>(start)[column];
    else if constexpr (QUANT == STRATA_F16)
        value = float_of_half(u16_at(start + 2 * column));
    else
        value = float_of_bfloat(u16_at(start + 2 * column));
    store(static_cast<Out*>(a.y) + static_cast<int64_t>(blockIdx.x) * a.n_cols + column, value);
}
