// Bits and bytes: conversions, unaligned words, table look-ups by byte permutation.
#pragma once

#include <stdint.h>

__device__ __forceinline__ float float_of_half(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ uint16_t half_of_float(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float float_of_bfloat(uint16_t bits) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

__device__ __forceinline__ uint32_t u16_at(const uint8_t* at) {
    return *reinterpret_cast<const uint16_t*>(at);
}

__device__ __forceinline__ uint32_t u32_at(const uint8_t* at) {
    return *reinterpret_cast<const uint32_t*>(at);
}

// Byte i of the result is byte (nibble i of selector) of the eight bytes low, high.
// Nibbles must be below 8 (the top bit would replicate a sign); the upper 16 bits do not count.
__device__ __forceinline__ uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}

// Reads N words from memory of which only ALIGN bytes of alignment are known.
// Below 4 it reads one aligned word more and shifts: up to 4 bytes past the last one.
template <int ALIGN, int N>
__device__ __forceinline__ void read_words(const uint8_t* at, uint32_t (&words)[N]) {
    if constexpr (ALIGN >= 16 && N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const uint4 four = reinterpret_cast<const uint4*>(at)[i];
            words[4 * i] = four.x;
            words[4 * i + 1] = four.y;
            words[4 * i + 2] = four.z;
            words[4 * i + 3] = four.w;
        }
    } else if constexpr (ALIGN >= 8 && N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const uint2 two = reinterpret_cast<const uint2*>(at)[i];
            words[2 * i] = two.x;
            words[2 * i + 1] = two.y;
        }
    } else if constexpr (ALIGN >= 4) {
#pragma unroll
        for (int i = 0; i < N; i++) words[i] = u32_at(at + 4 * i);
    } else {
        const uint32_t odd = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)) & 3;
        const uint8_t* aligned = at - odd;
        uint32_t raw[N + 1];
#pragma unroll
        for (int i = 0; i <= N; i++) raw[i] = u32_at(aligned + 4 * i);
#pragma unroll
        for (int i = 0; i < N; i++) words[i] = __funnelshift_r(raw[i], raw[i + 1], odd * 8);
    }
}

// Bit i of the four lowest bits becomes the lowest bit of byte i.
__device__ __forceinline__ uint32_t bits_to_bytes(uint32_t bits) {
    return (bits & 15) * 0x00204081u & 0x01010101u;
}

// Bit i of the eight lowest bits becomes the lowest bit of nibble i.
__device__ __forceinline__ uint32_t bits_to_nibbles(uint32_t bits) {
    uint32_t x = (bits | bits << 12) & 0x000f000fu;
    x = (x | x << 6) & 0x03030303u;
    return (x | x << 3) & 0x11111111u;
}

// Seven sign bits stand for eight: the number of minus signs is even.
__device__ __forceinline__ uint32_t eight_signs(uint32_t seven) {
    return seven | (__popc(seven) & 1) << 7;
}

// Negates the bytes (1..127) whose bit of the four lowest is set: ~x + 1 carries nowhere.
__device__ __forceinline__ uint32_t negate_bytes(uint32_t bytes, uint32_t bits) {
    const uint32_t ones = bits_to_bytes(bits);
    return (bytes ^ ones * 255) + ones;
}

// Sixteen signed bytes, looked up by the eight nibbles of a word: first the low nibbles of its
// bytes, then the high ones.
struct Levels16 {
    uint32_t bytes[4];
    __device__ __forceinline__ void look_up(uint32_t nibbles, uint32_t& low, uint32_t& high) const {
        const uint32_t within = nibbles & 0x77777777u;
        const uint32_t upper = (nibbles & 0x88888888u) >> 1 | 0x32103210u;
        const uint32_t first = permute(permute(bytes[0], bytes[1], within),
                                       permute(bytes[2], bytes[3], within), upper);
        const uint32_t second = permute(permute(bytes[0], bytes[1], within >> 16),
                                        permute(bytes[2], bytes[3], within >> 16), upper >> 16);
        low = permute(first, second, 0x6420);
        high = permute(first, second, 0x7531);
    }
};
