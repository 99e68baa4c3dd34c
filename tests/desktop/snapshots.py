"""Hand-made status snapshots: pools of any length, busy and idle sessions, cards and gaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from engine.stats import (
    ChunkHolding,
    EngineSnapshot,
    ExpertState,
    HostMemory,
    KvPoolSnapshot,
    LoadProgress,
    ModelState,
    ModelSummary,
    RequestCounts,
    ServerState,
    SessionHolding,
    StatusSnapshot,
    VramSnapshot,
    WorkCounts,
)

GIB = 1024**3
CHUNK_CELLS = 4096
BYTES_PER_CELL = 11_520

SUMMARY = ModelSummary(
    id="smollm2-135m",
    path="/models/SmolLM2-135M-Instruct.Q4_1.gguf",
    name="SmolLM2 135M Instruct",
    architecture="llama",
    is_supported=True,
    reason="",
    quantization="Q4_1",
    n_params=134_515_008,
    file_bytes=97_960_960,
    n_shards=1,
    context_tokens=8192,
    n_layers=30,
    d_model=576,
    n_heads=9,
    n_kv_heads=3,
    n_vocab=49152,
    n_experts=0,
    n_experts_used=0,
    kv_bytes_per_token=BYTES_PER_CELL,
    has_chat_template=True,
    tensor_types={"F32": 61, "Q4_1": 211},
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """A session of a made-up pool.

    Attributes:
        id: session id.
        n_tokens: tokens known; the chunks follow from them.
        state: as in the snapshot.
        n_shared: its first chunks are those of the session before it.
    """

    id: str
    n_tokens: int
    state: str = "idle"
    lane: int | None = None
    key: str = ""
    n_shared: int = 0
    idle_s: float = 0.0
    tokens_per_s: float = 0.0


def make_pool(
    n_chunks: int, held: Sequence[Held] = (), *, chunk_cells: int = CHUNK_CELLS
) -> KvPoolSnapshot:
    """Return a pool whose sessions take chunks from the front, one after the other."""
    holders: list[list[str]] = [[] for _ in range(n_chunks)]
    used = [0] * n_chunks
    sessions = []
    chunks_before: list[int] = []
    first_free = 0
    for one in held:
        n_needed = -(-one.n_tokens // chunk_cells)
        n_own = n_needed - one.n_shared
        mine = chunks_before[: one.n_shared] + list(range(first_free, first_free + n_own))
        first_free += n_own
        chunks_before = mine
        for place, chunk in enumerate(mine):
            holders[chunk].append(one.id)
            cells = min(chunk_cells, one.n_tokens - place * chunk_cells)
            used[chunk] = max(used[chunk], cells)
        sessions.append(
            SessionHolding(
                id=one.id,
                key=one.key,
                lane=one.lane,
                state=one.state,
                n_tokens=one.n_tokens,
                cells=n_needed * chunk_cells,
                n_chunks=n_needed,
                n_shared_chunks=one.n_shared,
                bytes=n_needed * chunk_cells * BYTES_PER_CELL,
                idle_s=one.idle_s,
                n_prompt_tokens=0,
                n_completion_tokens=0,
                tokens_per_s=one.tokens_per_s,
            )
        )
    n_held = sum(1 for chunk in holders if chunk)
    return KvPoolSnapshot(
        is_pooled=True,
        cells=n_chunks * chunk_cells,
        free=(n_chunks - n_held) * chunk_cells,
        held=n_held * chunk_cells,
        chunk_cells=chunk_cells,
        bytes_per_cell=BYTES_PER_CELL,
        backing="ram",
        chunks=tuple(
            ChunkHolding(id=number, sessions=tuple(holders[number]), n_cells_used=used[number])
            for number in range(n_chunks)
        ),
        sessions=tuple(sessions),
    )


HOST = HostMemory(
    ram_total_bytes=32 * GIB,
    ram_used_bytes=11 * GIB,
    ram_available_bytes=21 * GIB,
    commit_limit_bytes=48 * GIB,
    commit_used_bytes=17 * GIB,
    has_commit_limit=True,
    process_bytes=GIB // 2,
)
NO_CARD = VramSnapshot(
    is_present=False,
    reason="No NVIDIA driver answered; this version computes on the processor.",
    name="",
    total_bytes=0,
    used_bytes=0,
)
NO_EXPERTS = ExpertState(
    is_present=False, reason="The expert cache comes with the CUDA backend; there is none yet."
)


def make_status(
    pool: KvPoolSnapshot | None = None,
    *,
    time_s: float = 1_000.0,
    memory: HostMemory = HOST,
    vram: VramSnapshot = NO_CARD,
    state: str = "",
    error: str = "",
    progress: LoadProgress | None = None,
    work: WorkCounts | None = None,
    requests: RequestCounts | None = None,
    summary: ModelSummary | None = SUMMARY,
) -> StatusSnapshot:
    """Return a whole snapshot; without a pool no model is ready."""
    engine = None
    if pool is not None:
        engine = EngineSnapshot(
            kv_pool=pool,
            requests=requests or RequestCounts(),
            work=work or WorkCounts(),
            is_busy=any(session.state != "idle" for session in pool.sessions),
        )
    state = state or ("none" if pool is None else "ready")
    return StatusSnapshot(
        time_s=time_s,
        server=ServerState(
            version="0.1.0", pid=4242, address="http://127.0.0.1:8080", uptime_s=754.0
        ),
        model=ModelState(
            state=state,
            summary=None if state == "none" else summary,
            progress=progress,
            error=error,
            context_tokens=8192 if state == "ready" else 0,
            n_lanes=4 if state == "ready" else 0,
            backend="cpu" if state == "ready" else "",
            n_threads=8 if state == "ready" else 0,
            warnings=(),
        ),
        engine=engine,
        memory=memory,
        vram=vram,
        experts=NO_EXPERTS,
    )
