// quantize_activations: f32 rows to int8 codes, a scale and two sums for 32 values (activations.cuh).
//
// quantize_activations: a thread block takes 1024 values of one row; 8 lanes a piece.
// rms_norm_quantize: a thread block takes a row: y = x / sqrt(mean(x^2) + epsilon) * weight, written as
// f32 too if `y` is given. Shared memory: 32 floats.

#include "activations.cuh"

struct QuantizeArgs {
    uint8_t* codes;       // activations [n_rows * PLANES]
    float* y;             // f32[n_rows, n_cols] or null
    const float* x;       // f32[n_rows, x_stride], aligned to 16
    const float* weight;  // f32[n_cols]
    int n_cols;           // a multiple of 32
    int x_stride;
    float epsilon;
};

constexpr int LANES_A_PIECE = 8;

template <int PLANES>
__global__ void __launch_bounds__(256) quantize_activations(const __grid_constant__ QuantizeArgs a) {
    const int quarter = threadIdx.x % LANES_A_PIECE;
    const int piece = (blockIdx.y * blockDim.x + threadIdx.x) / LANES_A_PIECE;
    const int row_bytes = activation_row_bytes(a.n_cols / 32);
    const bool is_inside = piece < a.n_cols / 32;
    float values[4] = {0, 0, 0, 0};
    if (is_inside) {
        const float* x = a.x + static_cast<int64_t>(blockIdx.x) * a.x_stride;
        const float4 four = reinterpret_cast<const float4*>(x)[piece * LANES_A_PIECE + quarter];
        values[0] = four.x;
        values[1] = four.y;
        values[2] = four.z;
        values[3] = four.w;
    }
    uint8_t* row = a.codes + static_cast<int64_t>(blockIdx.x) * PLANES * row_bytes;
    quantize_piece<PLANES>(values, row, row_bytes, piece, quarter, is_inside);
}

template <int PLANES>
__global__ void __launch_bounds__(1024) rms_norm_quantize(const __grid_constant__ QuantizeArgs a) {
    __shared__ float partial[32];
    const int n_fours = a.n_cols / 4;
    const float4* x = reinterpret_cast<const float4*>(a.x + static_cast<int64_t>(blockIdx.x) * a.x_stride);
    float sum = 0;
    for (int c = threadIdx.x; c < n_fours; c += blockDim.x) {
        const float4 four = x[c];
        sum += four.x * four.x + four.y * four.y + four.z * four.z + four.w * four.w;
    }
#pragma unroll
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0;
#pragma unroll
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    const float inverse = __frsqrt_rn(sum / static_cast<float>(a.n_cols) + a.epsilon);

    const int row_bytes = activation_row_bytes(a.n_cols / 32);
    uint8_t* row = a.codes + static_cast<int64_t>(blockIdx.x) * PLANES * row_bytes;
    // Whole warps go round, as the lanes of a piece exchange values.
    for (int start = 0; start < n_fours; start += blockDim.x) {
        const int c = start + threadIdx.x;
        const bool is_inside = c < n_fours;
        float values[4] = {0, 0, 0, 0};
        if (is_inside) {
            const float4 four = x[c], weight = reinterpret_cast<const float4*>(a.weight)[c];
            values[0] = four.x * inverse * weight.x;
            values[1] = four.y * inverse * weight.y;
            values[2] = four.z * inverse * weight.z;
            values[3] = four.w * inverse * weight.w;
            if (a.y)
                reinterpret_cast<float4*>(a.y + static_cast<int64_t>(blockIdx.x) * a.n_cols)[c] =
                    make_float4(values[0], values[1], values[2], values[3]);
        }
        quantize_piece<PLANES>(values, row, row_bytes, c / LANES_A_PIECE, c % LANES_A_PIECE, is_inside);
    }
}
