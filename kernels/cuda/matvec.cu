// matvec: quantised matrix times 1 to 8 rows of activations, and the same for float matrices.
//
//     y[n][row] = sum over columns of weight[row][column] * x[n][column]  (+ bias[row]) (+ y[n][row])
//
// matvec: x is quantised (activations.cuh). A warp streams groups of J * 32 / T rows (stream.cuh).
// Shared memory: warps * stages * rows * slot_bytes, the format's look-up table, and for teams
// warps * rows * N floats.
//
// matvec_float: x is f32. n_team warps share J rows; each lane multiplies 16 bytes of a row at a time.
// Shared memory: warps * J * N floats.

#include "stream.cuh"

struct MatvecArgs {
    float* y;               // f32[n_rows, y_stride]
    const uint8_t* weight;  // blocks of [n_out, n_cols], aligned to 16, readable to the next 16 bytes
    const uint8_t* x;       // activations [n_rows * n_planes]; for matvec_float f32[n_rows, n_cols]
    const float* bias;      // f32[n_out] or null
    int n_rows;
    int n_out;
    int n_cols;
    int row_bytes;
    int y_stride;
    int is_added;           // add to y
    int n_planes;           // rows of activations that add up to one of x: 1 or 2
    Geometry geometry;
};

__device__ __forceinline__ void write(const MatvecArgs& a, int n, int row, float value) {
    if (n >= a.n_rows) return;
    float* y = a.y + static_cast<int64_t>(n) * a.y_stride + row;
    value += a.bias ? a.bias[row] : 0;
    *y = a.is_added ? *y + value : value;
}

template <int N>
__device__ __forceinline__ void write_row(const MatvecArgs& a, int row, const float (&sums)[N]) {
    if (row >= a.n_out) return;
    if (a.n_planes == 1) {
#pragma unroll
        for (int n = 0; n < N; n++) write(a, n, row, sums[n]);
    } else {
#pragma unroll
        for (int n = 0; n + 1 < N; n += 2) write(a, n / 2, row, sums[n] + sums[n + 1]);
    }
}

template <int N>
struct MatrixJob {
    const MatvecArgs& a;
    int n_groups;
    int n_steps;
    int group_rows;
    int n_parallel;
    int segment_pieces;
    int x_row_bytes;

    __device__ MatrixJob(const MatvecArgs& args, int j_rows) : a(args) {
        n_parallel = WARP >> a.geometry.log2_lanes;
        group_rows = j_rows * n_parallel;
        n_groups = (a.n_out + group_rows - 1) / group_rows;
        n_steps = a.geometry.n_segments;
        segment_pieces = a.geometry.n_repeats << a.geometry.log2_lanes;
        x_row_bytes = activation_row_bytes(a.n_cols / PIECE);
    }
    __device__ const uint8_t* row_start(int group, int row, int step) const {
        const int index = min(group * group_rows + row, a.n_out - 1);
        return a.weight + static_cast<int64_t>(index) * a.row_bytes + step * a.geometry.segment_bytes;
    }
    __device__ int n_pieces(int step) const { return min(a.n_cols / PIECE - piece(step), segment_pieces); }
    __device__ int piece(int step) const { return step * segment_pieces; }
    __device__ const uint8_t* x(int, int n) const {
        return a.x + static_cast<int64_t>(min(n, a.n_rows * a.n_planes - 1)) * x_row_bytes;
    }
    __device__ float factor(int) const { return 1; }
    template <int J>
    __device__ void finish(int group, int lane_row, bool is_first, const float (&sums)[J][N]) const {
        if (!is_first) return;
#pragma unroll
        for (int j = 0; j < J; j++) write_row<N>(a, group * group_rows + j * n_parallel + lane_row, sums[j]);
    }
};

template <int QUANT, int N, int J>
__global__ void __launch_bounds__(256) matvec(const __grid_constant__ MatvecArgs a) {
    extern __shared__ __align__(16) uint8_t shared[];
    stream_rows<Quant<QUANT>, N, J>(MatrixJob<N>(a, J), a.geometry, shared);
}

// ---------------------------------------------------------------- float matrices

// The weights that 16 bytes of a row hold.
template <int QUANT>
struct Floats;

template <>
struct Floats<STRATA_F32> {
    static constexpr int N = 4, N_BYTES = 4;
    static __device__ float one(const uint8_t* at) { return *reinterpret_cast<const float*>(at); }
    static __device__ void unpack(const uint4& raw, float (&w)[N]) {
        w[0] = __uint_as_float(raw.x);
        w[1] = __uint_as_float(raw.y);
        w[2] = __uint_as_float(raw.z);
        w[3] = __uint_as_float(raw.w);
    }
};

template <>
struct Floats<STRATA_F16> {
    static constexpr int N = 8, N_BYTES = 2;
    static __device__ float one(const uint8_t* at) { return float_of_half(u16_at(at)); }
    static __device__ void unpack(const uint4& raw, float (&w)[N]) {
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < N; i++) w[i] = float_of_half(words[i / 2] >> i % 2 * 16 & 0xffff);
    }
};

template <>
struct Floats<STRATA_BF16> {
    static constexpr int N = 8, N_BYTES = 2;
    static __device__ float one(const uint8_t* at) { return float_of_bfloat(u16_at(at)); }
    static __device__ void unpack(const uint4& raw, float (&w)[N]) {
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < N; i++) w[i] = float_of_bfloat(words[i / 2] >> i % 2 * 16 & 0xffff);
    }
};

template <int QUANT, int N, int J>
__global__ void __launch_bounds__(256) matvec_float(const __grid_constant__ MatvecArgs a) {
    using F = Floats<QUANT>;
    extern __shared__ __align__(16) float partial[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, n_team = a.geometry.n_team;
    const int n_teams = blockDim.x / WARP / n_team, member = warp % n_team;
    const int first_row = (blockIdx.x * n_teams + warp / n_team) * J;
    const float* x[N];
    const uint8_t* rows[J];
    float sums[J][N];
#pragma unroll
    for (int n = 0; n < N; n++)
        x[n] = reinterpret_cast<const float*>(a.x) + static_cast<int64_t>(min(n, a.n_rows - 1)) * a.n_cols;
#pragma unroll
    for (int j = 0; j < J; j++) {
        rows[j] = a.weight + static_cast<int64_t>(min(first_row + j, a.n_out - 1)) * a.row_bytes;
#pragma unroll
        for (int n = 0; n < N; n++) sums[j][n] = 0;
    }
    const int start = member * WARP + lane, stride = n_team * WARP;
    if (a.n_cols % F::N == 0) {
#pragma unroll 2
        for (int c = start; c < a.n_cols / F::N; c += stride) {
            uint4 raw[J];
#pragma unroll
            for (int j = 0; j < J; j++) raw[j] = __ldg(reinterpret_cast<const uint4*>(rows[j]) + c);
            float w[J][F::N];
#pragma unroll
            for (int j = 0; j < J; j++) F::unpack(raw[j], w[j]);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int f = 0; f < F::N / 4; f++) {
                    const float4 four = __ldg(reinterpret_cast<const float4*>(x[n]) + c * (F::N / 4) + f);
#pragma unroll
                    for (int j = 0; j < J; j++) {
                        sums[j][n] = __fmaf_rn(w[j][4 * f], four.x, sums[j][n]);
                        sums[j][n] = __fmaf_rn(w[j][4 * f + 1], four.y, sums[j][n]);
                        sums[j][n] = __fmaf_rn(w[j][4 * f + 2], four.z, sums[j][n]);
                        sums[j][n] = __fmaf_rn(w[j][4 * f + 3], four.w, sums[j][n]);
                    }
                }
        }
    } else {
        for (int c = start; c < a.n_cols; c += stride)
#pragma unroll
            for (int j = 0; j < J; j++) {
                const float w = F::one(rows[j] + static_cast<int64_t>(c) * F::N_BYTES);
#pragma unroll
                for (int n = 0; n < N; n++) sums[j][n] = __fmaf_rn(w, x[n][c], sums[j][n]);
            }
    }
#pragma unroll
    for (int j = 0; j < J; j++)
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int o = WARP / 2; o; o /= 2) sums[j][n] += __shfl_xor_sync(~0u, sums[j][n], o);
            if (lane == 0) partial[(warp * J + j) * N + n] = sums[j][n];
        }
    __syncthreads();
    // One lane a row adds up what the team's warps have, in their order.
    if (member != 0 || lane >= J) return;
    float totals[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
        totals[n] = 0;
        for (int other = 0; other < n_team; other++) totals[n] += partial[((warp + other) * J + lane) * N + n];
    }
    write_row<N>(a, first_row + lane, totals);
}
