"""Frozen snapshots of everything the dashboard shows, and the reading of RAM and commit.

The engine thread makes these values; the API sends them as JSON (`/v1/status`), the window draws
them. Field names here are the JSON names. Bytes are bytes, times seconds, sizes of the pool cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionHolding:
    """What one session holds.

    Attributes:
        id: session id, stable over its life ("s1", "s2", ...).
        key: the client's own name of the conversation (`prompt_cache_key`), or "".
        lane: its lane, or None while parked.
        state: "reading", "writing", "waiting" (its read gave way) or "idle".
        n_tokens: tokens whose K/V is known.
        cells: cells held, whole chunks (n_chunks x chunk_cells).
        n_chunks: chunks held, shared ones included.
        n_shared_chunks: of those, how many another session holds too.
        bytes: bytes of the chunks held.
        idle_s: seconds since its last request ended; 0 while busy.
        n_prompt_tokens: prompt tokens of the running request, 0 if idle.
        n_completion_tokens: generated so far by the running request.
        tokens_per_s: decode speed of the running (or last) request.
        n_snapshots: kept recurrent states it can be taken up at, shared ones included.
    """

    id: str
    key: str
    lane: int | None
    state: str
    n_tokens: int
    cells: int
    n_chunks: int
    n_shared_chunks: int
    bytes: int
    idle_s: float
    n_prompt_tokens: int
    n_completion_tokens: int
    tokens_per_s: float
    n_snapshots: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkHolding:
    """One chunk of the pool.

    Attributes:
        id: chunk id.
        sessions: ids of the sessions that hold it; empty = free.
        n_cells_used: cells of it whose K/V is known (the largest among its holders).
    """

    id: int
    sessions: tuple[str, ...]
    n_cells_used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KvPoolSnapshot:
    """The K/V pool.

    Attributes:
        is_pooled: False without `--kv-pool-tokens`: chunks are then each lane's own.
        cells: cells in all; `free` + `held` = `cells`.
        free: cells of free chunks.
        held: cells of held chunks, shared ones counted once.
        chunk_cells: cells a chunk.
        bytes_per_cell: K and V of all layers.
        backing: where the cells lie: "ram" (later "pinned", "vram").
        chunks: every chunk in id order.
        sessions: every session, in the order of their ids.
    """

    is_pooled: bool
    cells: int
    free: int
    held: int
    chunk_cells: int
    bytes_per_cell: int
    backing: str
    chunks: tuple[ChunkHolding, ...]
    sessions: tuple[SessionHolding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSnapshot:
    """Recurrent states kept in RAM beside those in the lanes; all 0 for models without one.

    Attributes:
        count: kept now, shared ones counted once.
        limit: kept at most.
        bytes: of all kept now.
        bytes_each: of one, and of the state of a lane.
    """

    count: int = 0
    limit: int = 0
    bytes: int = 0
    bytes_each: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestCounts:
    """Requests since start, but for the first two, which are now."""

    running: int = 0
    waiting: int = 0
    finished: int = 0
    refused: int = 0
    truncated: int = 0
    cancelled: int = 0
    failed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkCounts:
    """Work since start, and speed over the last seconds.

    Attributes:
        n_steps: steps run.
        n_prompt_tokens: prompt tokens read (cached ones not counted).
        n_cached_tokens: prompt tokens that did not need reading.
        n_completion_tokens: tokens generated.
        n_swaps: table swaps (admissions by move).
        n_evictions: idle conversations that gave way.
        copied_bytes: K/V bytes copied.
        prefill_tokens_per_s: over the last 5 s.
        decode_tokens_per_s: over the last 5 s, all lanes.
    """

    n_steps: int = 0
    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    n_completion_tokens: int = 0
    n_swaps: int = 0
    n_evictions: int = 0
    copied_bytes: int = 0
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSnapshot:
    """State of the engine thread after its last step.

    Attributes:
        kv_pool: the pool and its sessions.
        requests: counts of requests.
        work: counts of work.
        is_busy: whether a request runs or waits.
        states: kept recurrent states.
    """

    kv_pool: KvPoolSnapshot
    requests: RequestCounts
    work: WorkCounts
    is_busy: bool
    states: StateSnapshot = StateSnapshot()


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMemory:
    """RAM and commit of the machine, and this process's share.

    Attributes:
        ram_total_bytes, ram_used_bytes, ram_available_bytes: physical memory.
        commit_limit_bytes, commit_used_bytes: what the OS can promise and has promised.
        has_commit_limit: False where the OS over-commits freely, so the limit is advisory.
        process_bytes: resident memory of this process.
    """

    ram_total_bytes: int
    ram_used_bytes: int
    ram_available_bytes: int
    commit_limit_bytes: int
    commit_used_bytes: int
    has_commit_limit: bool
    process_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertPicks:
    """How often the router picked each expert since the model was loaded.

    Every token that was computed counts once for each expert it used, prompts included.

    Attributes:
        n_layers, n_experts, n_experts_used: dims; a layer without experts counts nothing.
        n_picks: the sum of all counts.
        counts: picks by layer and expert; None where they are left out of an event, since others
            are not due yet: those sent last are then still the newest.
    """

    n_layers: int
    n_experts: int
    n_experts_used: int
    n_picks: int
    counts: tuple[tuple[int, ...], ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertState:
    """The experts of the model: where they are computed, and which ones are used.

    Attributes:
        is_present: whether an expert cache keeps some of them in VRAM.
        reason: a sentence that says why not; "" if it does.
        picks: the router's choices, None for a model without experts or while none is ready.
    """

    is_present: bool
    reason: str
    picks: ExpertPicks | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VramSnapshot:
    """The graphics card, as far as the driver tells.

    Attributes:
        is_present: whether an NVIDIA driver answered.
        reason: why the engine uses no VRAM.
        name: card name, "" if none.
        total_bytes, used_bytes: of the card, 0 if none.
    """

    is_present: bool
    reason: str
    name: str
    total_bytes: int
    used_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VramHolding:
    """What one owner holds of the card.

    Attributes:
        owner: "weights", "kv", "state", "workspace" or "experts".
        bytes: held now, borrowed ones included.
        max_bytes: what its addresses have room for.
        lent_bytes: its own, lent to another owner now (not in `bytes`).
        borrowed_bytes: of `bytes`, what goes back to another owner.
    """

    owner: str
    bytes: int
    max_bytes: int
    lent_bytes: int
    borrowed_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ArenaSnapshot:
    """The card's memory by owner; `free_bytes` + the owners' `bytes` = `usable_bytes`.

    Attributes:
        usable_bytes: what owners may hold together.
        free_bytes: no owner holds it.
        reserve_bytes: left for the desktop, beyond `usable_bytes`.
        extent_bytes: unit in which memory moves.
        owners: one entry an owner.
        n_moved_extents: extents moved between owners since start.
        n_refusals: times the card had less than its driver had said.
    """

    usable_bytes: int
    free_bytes: int
    reserve_bytes: int
    extent_bytes: int
    owners: tuple[VramHolding, ...]
    n_moved_extents: int
    n_refusals: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadProgress:
    """Where a load stands.

    Attributes:
        stage: a few words ("Reading weights").
        done_bytes, total_bytes: 0 total = unknown.
    """

    stage: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSummary:
    """What a GGUF file holds, read from its header alone.

    Attributes:
        id: name the API shows.
        path: the file (first shard).
        name: `general.name` or the file's stem.
        architecture: `general.architecture`.
        is_supported: whether this version can run it.
        reason: why not, "" if it can.
        quantization: e.g. "Q4_1", the type most weights have.
        n_params: number of weights.
        file_bytes: all shards.
        n_shards: number of files.
        context_tokens: trained context length.
        n_layers, d_model, n_heads, n_kv_heads, n_vocab, n_experts, n_experts_used: dims; 0 = none.
        kv_bytes_per_token: K, V and index keys of all layers in the K/V format used now.
        has_chat_template: whether a template is in the file.
        tensor_types: type name -> number of tensors.
        group_bytes: "experts", "dense", "embeddings", "n-gram table", "unused" -> bytes, the
            largest first; groups without tensors are left out. The n-gram table stays in the file.
        group_formats: group -> type name -> bytes.
        kv_format_bytes: K/V format -> bytes of a token, index keys included.
        index_bytes_per_token: of these, the index keys of the sparse attention; 0 = none.
        state_bytes_per_lane: recurrent state of a conversation; 0 = none.
        warnings: what a person should know about how this file is run.
    """

    id: str
    path: str
    name: str
    architecture: str
    is_supported: bool
    reason: str
    quantization: str
    n_params: int
    file_bytes: int
    n_shards: int
    context_tokens: int
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    n_vocab: int
    n_experts: int
    n_experts_used: int
    kv_bytes_per_token: int
    has_chat_template: bool
    tensor_types: dict[str, int]
    group_bytes: dict[str, int] = field(default_factory=dict)
    group_formats: dict[str, dict[str, int]] = field(default_factory=dict)
    kv_format_bytes: dict[str, int] = field(default_factory=dict)
    index_bytes_per_token: int = 0
    state_bytes_per_lane: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelState:
    """The loaded model, or what stands instead.

    Attributes:
        state: "none", "loading", "ready" or "failed".
        summary: of the model loaded or loading, else None.
        progress: while loading, else None.
        error: why the last load failed, "" otherwise.
        context_tokens: longest conversation served, 0 if none.
        n_lanes: rows of the batch, 0 if none.
        backend: "cpu", "" if none.
        n_threads: worker threads, 0 if none.
        warnings: things a person should know about this model (e.g. a replaced template).
    """

    state: str
    summary: ModelSummary | None
    progress: LoadProgress | None
    error: str
    context_tokens: int
    n_lanes: int
    backend: str
    n_threads: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerState:
    """The API itself.

    Attributes:
        version: of the program.
        pid: process id.
        address: base URL ("http://127.0.0.1:8080").
        uptime_s: seconds since the service started.
        note: what a person should know about the address (a port that was taken), or "".
    """

    version: str
    pid: int
    address: str
    uptime_s: float
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusSnapshot:
    """`GET /v1/status`: one value with everything the dashboard shows.

    Attributes:
        time_s: Unix time of the snapshot.
        server: the API.
        model: the loaded model.
        engine: pool, requests, work; None while no model is ready.
        memory: RAM and commit.
        vram: the graphics card.
        experts: which experts the router picks; the expert cache (empty for now, says why).
    """

    time_s: float
    server: ServerState
    model: ModelState
    engine: EngineSnapshot | None
    memory: HostMemory
    vram: VramSnapshot
    experts: ExpertState
