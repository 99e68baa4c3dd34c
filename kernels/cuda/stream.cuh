// Products of quantised rows with activations, fed by copies that run ahead.
//
// A warp takes a group of rows at a time. The group's rows are cut into segments; a ring of stages in
// shared memory holds the warp's next segments, copied in 16-byte pieces (any row alignment) while
// earlier ones are multiplied. Nothing but the warp itself waits.
//
//     group of R = J * 32 / T rows:  lane t of T lanes takes pieces t, t + T, ... of J rows
//
//     row 0     |  segment 0  |  segment 1  |  ...        one stage = the same segment of all R rows,
//     row 1     |  segment 0  |  segment 1  |  ...        each row in a slot of its own
//
// The order of additions within a row depends on the geometry only, not on how many rows of
// activations there are: their results are the same bits in any company.
#pragma once

#include "activations.cuh"
#include "dequant.cuh"

constexpr int WARP = 32;

// How a launch cuts its rows; kernels/cuda/geometry.py chooses it.
struct Geometry {
    int log2_lanes;     // T lanes share a row
    int n_repeats;      // pieces a lane takes of a row's segment
    int n_segments;     // of a row
    int segment_bytes;  // of a row, all but its last segment
    int n_chunks;       // 16-byte copies that cover any segment
    int slot_bytes;     // n_chunks * 16 + 16
    int n_stages;       // 2..8
    int n_team;         // warps that share a group, each taking every n_team-th segment
};

__device__ __forceinline__ void copy_16(uint8_t* to, const uint8_t* from) {
#if __CUDA_ARCH__ >= 800
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#else
    *reinterpret_cast<uint4*>(to) = __ldg(reinterpret_cast<const uint4*>(from));
#endif
}

__device__ __forceinline__ void end_of_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all but the last n groups of copies have arrived.
template <int N>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

__device__ __forceinline__ void wait_for_stage(int n_stages) {
    switch (n_stages) {
        case 2: wait_for_copies<0>(); break;
        case 3: wait_for_copies<1>(); break;
        case 4: wait_for_copies<2>(); break;
        case 5: wait_for_copies<3>(); break;
        case 6: wait_for_copies<4>(); break;
        case 7: wait_for_copies<5>(); break;
        default: wait_for_copies<6>(); break;
    }
    __syncwarp();
}

// Product of a piece of weights and a piece of activations, without the activations' scale.
template <class Q>
__device__ __forceinline__ float multiply(const Codes& codes, const Piece& x) {
    int first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first = __dp4a(static_cast<int>(codes.words[i]), static_cast<int>(x.words[i]), first);
        second = __dp4a(static_cast<int>(codes.words[4 + i]), static_cast<int>(x.words[4 + i]), second);
    }
    float sum;
    if constexpr (Q::HALVES) {
        first -= Q::OFFSET * x.sums[0];
        second -= Q::OFFSET * x.sums[1];
        sum = __fmaf_rn(codes.scale[1], static_cast<float>(second), __fmul_rn(codes.scale[0], static_cast<float>(first)));
        if constexpr (Q::HAS_MINIMUM) {
            sum = __fmaf_rn(-codes.minimum[0], static_cast<float>(x.sums[0]), sum);
            sum = __fmaf_rn(-codes.minimum[1], static_cast<float>(x.sums[1]), sum);
        }
    } else {
        const int all = first + second - Q::OFFSET * (x.sums[0] + x.sums[1]);
        sum = __fmul_rn(codes.scale[0], static_cast<float>(all));
        if constexpr (Q::HAS_MINIMUM)
            sum = __fmaf_rn(-codes.minimum[0], static_cast<float>(x.sums[0] + x.sums[1]), sum);
    }
    return sum;
}

// A job names what is multiplied:
//     n_groups, n_steps                  groups of rows; segments of each, of all its matrices
//     row_start(group, row, step)        first byte of a row's segment
//     n_pieces(step), piece(step)        pieces of the segment; its first one's number in `x`
//     x(step, n)                         n-th row of activations
//     factor(step)                       of the segment's product; 0 skips it
//     finish(group, lane_row, is_first, sums)  sums[j][n] of rows j * 32 / T + lane_row; called by all
//                                        lanes of a warp, is_first for one lane a row
template <class Q, int N, int J, class Job>
__device__ __forceinline__ void stream_rows(const Job& job, const Geometry& g, uint8_t* shared) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int n_warps = blockDim.x / WARP;
    const int n_lanes = 1 << g.log2_lanes;
    const int n_parallel = WARP >> g.log2_lanes;  // rows side by side in the warp
    const int n_rows = J * n_parallel;
    const int lane_in_row = lane & (n_lanes - 1), lane_row = lane >> g.log2_lanes;
    const int stage_bytes = n_rows * g.slot_bytes;
    uint8_t* ring = shared + warp * g.n_stages * stage_bytes;
    uint32_t* table = reinterpret_cast<uint32_t*>(shared + n_warps * g.n_stages * stage_bytes);
    float* partial = reinterpret_cast<float*>(table + Q::TABLE_WORDS);

    const int n_teams = n_warps / g.n_team;
    const int team = warp / g.n_team, member = warp % g.n_team;
    const int n_batches = (job.n_groups + n_teams - 1) / n_teams;
    const int n_rounds = (n_batches - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                         static_cast<int>(gridDim.x);
    const auto group_of = [&](int round) { return (static_cast<int>(blockIdx.x) + round * static_cast<int>(gridDim.x)) * n_teams + team; };

    int next_round = 0, next_step = member, next_stage = 0;
    const int reciprocal = 65536 / g.n_chunks + 1;  // exact for the few hundred copies of a stage
    const auto fetch = [&]() {
        const int group = group_of(next_round);
        if (next_round < n_rounds && group < job.n_groups && job.factor(next_step) != 0) {
            uint8_t* stage = ring + next_stage * stage_bytes;
            const int n_bytes = (job.n_pieces(next_step) + Q::N_PIECES - 1) / Q::N_PIECES * Q::N_BYTES;
            for (int c = lane; c < n_rows * g.n_chunks; c += WARP) {
                const int row = c * reciprocal >> 16, chunk = c - row * g.n_chunks;
                const uint8_t* start = job.row_start(group, row, next_step);
                const uint8_t* from = start - (reinterpret_cast<uintptr_t>(start) & 15) + 16 * chunk;
                if (from < start + n_bytes) copy_16(stage + row * g.slot_bytes + 16 * chunk, from);
            }
        }
        end_of_copies();
        next_stage = next_stage + 1 == g.n_stages ? 0 : next_stage + 1;
        next_step += g.n_team;
        if (next_step >= job.n_steps) {
            next_step = member;
            next_round++;
        }
    };
    for (int s = 0; s + 1 < g.n_stages; s++) fetch();
    if constexpr (Q::TABLE_WORDS > 0) {
        fill_table<Q>(table);
        __syncthreads();
    }

    int stage_index = 0;
    for (int round = 0; round < n_rounds; round++) {
        const int group = group_of(round);
        float sums[J][N];
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int n = 0; n < N; n++) sums[j][n] = 0;

        for (int step = member; step < job.n_steps; step += g.n_team) {
            const float factor = job.factor(step);
            const int n_pieces = job.n_pieces(step), first_piece = job.piece(step);
            wait_for_stage(g.n_stages);
            const uint8_t* stage = ring + stage_index * stage_bytes;
            stage_index = stage_index + 1 == g.n_stages ? 0 : stage_index + 1;
            fetch();  // into the stage that all lanes left before they met in the wait
            if (factor == 0 || group >= job.n_groups) continue;
            const uint8_t* slots[J];
#pragma unroll
            for (int j = 0; j < J; j++) {
                const int row = j * n_parallel + lane_row;
                slots[j] = stage + row * g.slot_bytes + (reinterpret_cast<uintptr_t>(job.row_start(group, row, step)) & 15);
            }
            for (int within = lane_in_row; within < n_pieces; within += n_lanes) {
                const int block = within / Q::N_PIECES * Q::N_BYTES;
                if constexpr (N == 1) {
                    Piece x = read_piece<Q::QUADS>(job.x(step, 0), first_piece + within);
                    x.scale *= factor;
#pragma unroll
                    for (int j = 0; j < J; j++) {
                        Codes codes;
                        Q::decode(slots[j] + block, within % Q::N_PIECES, table, codes);
                        sums[j][0] = __fmaf_rn(x.scale, multiply<Q>(codes, x), sums[j][0]);
                    }
                } else {
                    Codes codes[J];
#pragma unroll
                    for (int j = 0; j < J; j++) Q::decode(slots[j] + block, within % Q::N_PIECES, table, codes[j]);
#pragma unroll
                    for (int n = 0; n < N; n++) {
                        Piece x = read_piece<Q::QUADS>(job.x(step, n), first_piece + within);
                        x.scale *= factor;
#pragma unroll
                        for (int j = 0; j < J; j++) sums[j][n] = __fmaf_rn(x.scale, multiply<Q>(codes[j], x), sums[j][n]);
                    }
                }
            }
        }

#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int n = 0; n < N; n++)
                for (int o = n_lanes / 2; o; o /= 2) sums[j][n] += __shfl_xor_sync(~0u, sums[j][n], o);
        if (g.n_team > 1) {
            // [warp][row of group][n]; members add up in their order.
            float* mine = partial + warp * n_rows * N;
            if (lane_in_row == 0)
#pragma unroll
                for (int j = 0; j < J; j++)
#pragma unroll
                    for (int n = 0; n < N; n++) mine[(j * n_parallel + lane_row) * N + n] = sums[j][n];
            __syncthreads();
            if (member == 0 && lane_in_row == 0)
                for (int other = 1; other < g.n_team; other++)
#pragma unroll
                    for (int j = 0; j < J; j++)
#pragma unroll
                        for (int n = 0; n < N; n++)
                            sums[j][n] += mine[other * n_rows * N + (j * n_parallel + lane_row) * N + n];
            __syncthreads();
        }
        if (member == 0 && group < job.n_groups) job.finish(group, lane_row, lane_in_row == 0, sums);
    }
}
