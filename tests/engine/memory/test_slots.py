"""Slots for experts of one, two and many sizes; exact numbers on extents of 1024 bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.memory.slots import SLOT_ALIGN_BYTES, divide_slots

E = 1024


def test_one_size_fills_extents_across_their_borders() -> None:
    (only,) = divide_slots([384, 384], n_experts=8, n_extents=5, extent_bytes=E)
    assert (only.layers, only.n_experts, only.n_places) == ((0, 1), 16, 6)
    assert (only.n_extents, only.n_slots) == (5, 13)  # 5120 / 384 = 13.3
    assert only.lost_bytes == 5120 - 13 * 384
    assert [only.slot_offset(slot) for slot in (0, 1, 12)] == [0, 384, 4608]
    assert [list(only.slots_in(place)) for place in (0, 1, 5)] == [
        [0, 1, 2],
        [2, 3, 4, 5],
        [13, 14, 15],
    ]


def test_sizes_share_by_their_bytes_and_the_larger_remainder_rounds_up() -> None:
    small, large = divide_slots([256, 0, 640, 256], n_experts=16, n_extents=9, extent_bytes=E)
    assert (small.layers, large.layers) == ((0, 3), (2,))
    assert (small.n_places, large.n_places) == (8, 10)
    assert (small.n_extents, large.n_extents) == (4, 5)  # 9 x 8/18 = 4, 9 x 10/18 = 5
    assert (small.n_slots, large.n_slots) == (16, 8)
    assert (small.lost_bytes, large.lost_bytes) == (0, 0)
    assert (small.first_place, large.first_place) == (0, 8)
    assert large.slot_offset(2) == 8 * E + 1280
    assert list(large.slots_in(9)) == [1, 2, 3]
    small, large = divide_slots([256, 0, 640, 256], n_experts=16, n_extents=10, extent_bytes=E)
    assert (small.n_extents, large.n_extents) == (4, 6)  # 4.44 and 5.56


def test_when_all_experts_fit_the_rest_is_left_over() -> None:
    (only,) = divide_slots([512], n_experts=6, n_extents=50, extent_bytes=E)
    assert (only.n_extents, only.n_slots, only.lost_bytes) == (3, 6, 0)


def test_slots_begin_at_cache_lines_and_padding_counts_as_lost() -> None:
    (only,) = divide_slots([100], n_experts=100, n_extents=2, extent_bytes=E)
    assert (only.stride_bytes, only.n_slots) == (128, 16)
    assert only.lost_bytes == 2048 - 1600


def test_an_extent_smaller_than_an_expert_gives_no_slot_alone() -> None:
    (only,) = divide_slots([1500], n_experts=4, n_extents=1, extent_bytes=E)
    assert (only.stride_bytes, only.n_slots, only.lost_bytes) == (1536, 0, 1024)
    (only,) = divide_slots([1500], n_experts=4, n_extents=3, extent_bytes=E)
    assert only.n_slots == 2


def test_a_dense_model_has_no_classes() -> None:
    assert divide_slots([0, 0], n_experts=0, n_extents=9, extent_bytes=E) == ()
    assert divide_slots([], n_experts=0, n_extents=9, extent_bytes=E) == ()


@given(
    st.lists(st.sampled_from([0, 4096, 5120, 6016, 7296]), min_size=1, max_size=12),
    st.integers(1, 40),
    st.integers(0, 300),
)
def test_at_most_three_percent_is_lost_of_a_cache_of_some_extents_a_size(
    blobs: list[int], n_experts: int, n_extents: int
) -> None:
    extent_bytes = 32768
    classes = divide_slots(
        blobs, n_experts=n_experts, n_extents=n_extents, extent_bytes=extent_bytes
    )
    given_bytes = sum(part.n_extents for part in classes) * extent_bytes
    assert given_bytes <= n_extents * extent_bytes
    is_partial = sum(part.n_places for part in classes) > n_extents
    assert not is_partial or given_bytes == n_extents * extent_bytes
    at = 0
    for part in classes:
        assert part.first_place == at
        at += part.n_places
        assert 0 <= part.n_extents <= part.n_places
        assert part.n_slots <= part.n_experts
        assert part.slot_offset(0) % SLOT_ALIGN_BYTES == part.stride_bytes % SLOT_ALIGN_BYTES == 0
        end = part.slot_offset(part.n_experts) if part.n_experts else 0
        assert end <= (part.first_place + part.n_places) * extent_bytes
        if part.n_slots < part.n_experts:  # then less than one slot is lost
            assert 0 <= part.lost_bytes < part.stride_bytes
        else:  # at most the end of its last extent
            assert 0 <= part.lost_bytes < extent_bytes
    lost = sum(part.lost_bytes for part in classes)
    if given_bytes >= 34 * extent_bytes * len(classes):
        assert lost <= 0.03 * given_bytes


@given(st.integers(0, 64))
def test_each_slot_lies_in_the_places_that_name_it(n_extents: int) -> None:
    for part in divide_slots([640, 384], n_experts=30, n_extents=n_extents, extent_bytes=E):
        for slot in range(part.n_experts):
            first = part.slot_offset(slot) // E
            last = (part.slot_offset(slot) + part.stride_bytes - 1) // E
            named = [
                place
                for place in range(part.first_place, part.first_place + part.n_places)
                if slot in part.slots_in(place)
            ]
            assert named == list(range(first, last + 1))
