// experts: the routed experts of one layer, one launch for gate and up, one for down.
//
// An expert lies in a slot as [gate rows | up rows | down rows]. slot_of[expert] is its slot or -1: it
// is not on this card, and its part of the sum is left to others.
//
// experts_gate_up: grid (blocks, pairs); pair = one expert of one token.
//     h[pair][row] = silu(gate[row] . x[token]) * (up[row] . x[token]), quantised into `hidden` by
//     the warp that completes 32 rows. `counters` are zero before and after.
// experts_down: grid (blocks, tokens).
//     y[token][row] = sum over the token's experts of weight * (down[row] . hidden[pair])  (+ y)
// Shared memory as in matvec.cu.

#include "stream.cuh"

struct ExpertArgs {
    float* y;                             // f32[n_tokens, d_model]
    float* h;                             // f32[n_pairs, d_ff]
    uint8_t* hidden;                      // activations [n_pairs] of d_ff
    const uint8_t* x;                     // activations [n_tokens] of d_model
    const int* expert_ids;                // i32[n_tokens, n_used]
    const float* weights;                 // f32[n_tokens, n_used]
    const int* slot_of;                   // i32[n_experts]
    const unsigned long long* addresses;  // u64[n_slots], aligned to 16
    unsigned* counters;                   // u32[n_pairs, d_ff / 32]
    long long up_offset;                  // bytes from a slot's start
    long long down_offset;
    int n_used;                           // experts of a token, at most 32
    int d_model;
    int d_ff;
    int row_bytes;                        // of the matrix of this launch
    int is_added;
    Geometry geometry;
};

constexpr int MAX_USED = 32;

struct GateUpJob {
    const ExpertArgs& a;
    const uint8_t* slot;
    int pair;
    int n_groups;
    int n_steps;
    int group_rows;  // of h; a warp's group holds as many of gate and of up
    int n_parallel;
    int segment_pieces;

    __device__ GateUpJob(const ExpertArgs& args, const uint8_t* expert, int j_rows) : a(args), slot(expert) {
        pair = blockIdx.y;
        n_parallel = WARP >> a.geometry.log2_lanes;
        group_rows = j_rows / 2 * n_parallel;
        n_groups = a.d_ff / group_rows;
        n_steps = a.geometry.n_segments;
        segment_pieces = a.geometry.n_repeats << a.geometry.log2_lanes;
    }
    // Rows of a group: n_parallel of gate, the same of up, the next of gate ...
    __device__ const uint8_t* row_start(int group, int row, int step) const {
        const int j = row / n_parallel;
        const int index = group * group_rows + j / 2 * n_parallel + row % n_parallel;
        return slot + (j % 2 ? a.up_offset : 0) + static_cast<int64_t>(index) * a.row_bytes +
               step * a.geometry.segment_bytes;
    }
    __device__ int n_pieces(int step) const { return min(a.d_model / PIECE - piece(step), segment_pieces); }
    __device__ int piece(int step) const { return step * segment_pieces; }
    __device__ const uint8_t* x(int, int) const {
        return a.x + static_cast<int64_t>(pair / a.n_used) * activation_row_bytes(a.d_model / PIECE);
    }
    __device__ float factor(int) const { return 1; }

    template <int J>
    __device__ void finish(int group, int lane_row, bool is_first, const float (&sums)[J][1]) const {
        const int first_row = group * group_rows;
        float* h = a.h + static_cast<int64_t>(pair) * a.d_ff;
        if (is_first) {
#pragma unroll
            for (int j = 0; j < J; j += 2) {
                const float gate = sums[j][0];
                h[first_row + j / 2 * n_parallel + lane_row] = gate / (1 + __expf(-gate)) * sums[j + 1][0];
            }
            __threadfence();
        }
        __syncwarp();
        const int lane = threadIdx.x % WARP, piece = first_row / PIECE;
        unsigned* counter = a.counters + pair * (a.d_ff / PIECE) + piece;
        unsigned n_done = 0;
        if (lane == 0) n_done = atomicAdd(counter, static_cast<unsigned>(group_rows)) + group_rows;
        if (__shfl_sync(~0u, n_done, 0) != PIECE) return;
        // All 32 rows are there: this warp makes their codes.
        __threadfence();
        if (lane == 0) *counter = 0;
        const int quarter = lane % 8;
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; i++) values[i] = __ldcg(h + piece * PIECE + quarter * 4 + i);
        const int row_bytes = activation_row_bytes(a.d_ff / PIECE);
        quantize_piece<1>(values, a.hidden + static_cast<int64_t>(pair) * row_bytes, row_bytes, piece, quarter, lane < 8);
    }
};

template <int QUANT, int J>
__global__ void __launch_bounds__(256) experts_gate_up(const __grid_constant__ ExpertArgs a) {
    extern __shared__ __align__(16) uint8_t shared[];
    const int slot = a.slot_of[a.expert_ids[blockIdx.y]];
    if (slot < 0) return;
    const GateUpJob job(a, reinterpret_cast<const uint8_t*>(a.addresses[slot]), J);
    stream_rows<Quant<QUANT>, 1, J>(job, a.geometry, shared);
}

struct DownJob {
    const ExpertArgs& a;
    const uint8_t* const* starts;  // of the down rows of the token's experts, in shared memory
    const float* weights;          // 0 for those not on this card
    int token;
    int n_groups;
    int n_steps;
    int group_rows;
    int n_parallel;
    int segment_pieces;

    __device__ DownJob(const ExpertArgs& args, const uint8_t* const* downs, const float* factors, int j_rows)
        : a(args), starts(downs), weights(factors) {
        token = blockIdx.y;
        n_parallel = WARP >> a.geometry.log2_lanes;
        group_rows = j_rows * n_parallel;
        n_groups = (a.d_model + group_rows - 1) / group_rows;
        n_steps = a.geometry.n_segments * a.n_used;
        segment_pieces = a.geometry.n_repeats << a.geometry.log2_lanes;
    }
    __device__ int expert(int step) const { return step / a.geometry.n_segments; }
    __device__ int segment(int step) const { return step - expert(step) * a.geometry.n_segments; }
    __device__ const uint8_t* row_start(int group, int row, int step) const {
        const int index = min(group * group_rows + row, a.d_model - 1);
        return starts[expert(step)] + static_cast<int64_t>(index) * a.row_bytes +
               segment(step) * a.geometry.segment_bytes;
    }
    __device__ int n_pieces(int step) const { return min(a.d_ff / PIECE - piece(step), segment_pieces); }
    __device__ int piece(int step) const { return segment(step) * segment_pieces; }
    __device__ const uint8_t* x(int step, int) const {
        return a.hidden + static_cast<int64_t>(token * a.n_used + expert(step)) * activation_row_bytes(a.d_ff / PIECE);
    }
    __device__ float factor(int step) const { return weights[expert(step)]; }

    template <int J>
    __device__ void finish(int group, int lane_row, bool is_first, const float (&sums)[J][1]) const {
        if (!is_first) return;
#pragma unroll
        for (int j = 0; j < J; j++) {
            const int row = group * group_rows + j * n_parallel + lane_row;
            if (row >= a.d_model) return;
            float* y = a.y + static_cast<int64_t>(token) * a.d_model + row;
            *y = a.is_added ? *y + sums[j][0] : sums[j][0];
        }
    }
};

template <int QUANT, int J>
__global__ void __launch_bounds__(256) experts_down(const __grid_constant__ ExpertArgs a) {
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ const uint8_t* starts[MAX_USED];
    __shared__ float weights[MAX_USED];
    if (threadIdx.x < a.n_used) {
        const int pair = blockIdx.y * a.n_used + threadIdx.x;
        const int slot = a.slot_of[a.expert_ids[pair]];
        starts[threadIdx.x] = slot < 0 ? nullptr : reinterpret_cast<const uint8_t*>(a.addresses[slot]) + a.down_offset;
        weights[threadIdx.x] = slot < 0 ? 0 : a.weights[pair];
    }
    __syncthreads();
    stream_rows<Quant<QUANT>, 1, J>(DownJob(a, starts, weights, J), a.geometry, shared);
}
