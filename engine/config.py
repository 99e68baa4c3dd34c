"""Frozen settings, checked where they are made. What is found out later is never written here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError

CHUNK_CELLS = 4096
"""Cells of a K/V chunk in the product; tests use smaller ones."""

DEFAULT_PORT = 8080


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolConfig:
    """The K/V pool and the lanes that share it.

    Attributes:
        n_lanes: rows of the running batch, main lane included (`--batch`).
        context_tokens: longest conversation (`--max-context`); None = the model's own.
        pool_tokens: cells of the shared pool, rounded up to chunks (`--kv-pool-tokens`);
            None = no pool: every lane has a whole context of its own (identity layout).
        chunk_cells: cells a chunk holds.
        n_parked: conversations kept without a lane, pool only.
    """

    n_lanes: int = 4
    context_tokens: int | None = None
    pool_tokens: int | None = None
    chunk_cells: int = CHUNK_CELLS
    n_parked: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.n_lanes <= 64:
            raise ConfigError(f"--batch must be between 1 and 64 lanes, got {self.n_lanes}.")
        if self.context_tokens is not None and self.context_tokens < 2:
            raise ConfigError(f"--max-context must be 2 or more, got {self.context_tokens}.")
        if self.pool_tokens is not None and self.pool_tokens < 1:
            raise ConfigError(f"--kv-pool-tokens must be 1 or more, got {self.pool_tokens}.")
        if self.chunk_cells < 1 or self.chunk_cells % 4:
            raise ConfigError(
                f"--kv-chunk-cells must be a multiple of 4 (a page), got {self.chunk_cells}."
            )
        if self.n_parked < 0:
            raise ConfigError(f"n_parked must be 0 or more, got {self.n_parked}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """How a step is filled.

    Attributes:
        span_tokens: prompt tokens read in one step at most (`--span`).
        max_yields: how often one long read gives way to shorter ones.
        max_waiting: requests that may wait for a lane; one more is refused.
        max_snapshots: recurrent states kept at most, of models that have one.
        snapshot_bytes: RAM they take at most.
        is_checking: verify `free + held = total` and every table after each step.
    """

    span_tokens: int = 256
    max_yields: int = 2
    max_waiting: int = 512
    max_snapshots: int = 64
    snapshot_bytes: int = 2 * 2**30
    is_checking: bool = False

    def __post_init__(self) -> None:
        if self.span_tokens < 1:
            raise ConfigError(f"--span must be 1 or more, got {self.span_tokens}.")
        if self.max_snapshots < 0:
            raise ConfigError(f"max_snapshots must be 0 or more, got {self.max_snapshots}.")
        if self.snapshot_bytes < 0:
            raise ConfigError(f"snapshot_bytes must be 0 or more, got {self.snapshot_bytes}.")

    def n_snapshots(self, state_bytes: int) -> int | None:
        """Snapshots of `state_bytes` kept at most; None for a model without recurrent state."""
        return min(self.max_snapshots, self.snapshot_bytes // state_bytes) if state_bytes else None


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendConfig:
    """How the model is computed.

    Attributes:
        backend: "cpu" (the only one so far).
        n_threads: worker threads; None = physical cores.
        is_exact: float32 products on dequantised weights and float32 K/V, for comparison.
    """

    backend: str = "cpu"
    n_threads: int | None = None
    is_exact: bool = False

    def __post_init__(self) -> None:
        if self.backend not in ("cpu",):
            raise ConfigError(f"--backend {self.backend!r} is not there; this version has: cpu.")
        if self.n_threads is not None and self.n_threads < 1:
            raise ConfigError(f"--threads must be 1 or more, got {self.n_threads}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiConfig:
    """Where the HTTP API listens.

    Attributes:
        host: address to bind.
        port: first port tried; the next free one is taken when it is in use.
        is_port_fixed: fail instead of taking the next port.
        api_key: if set, requests must carry it; Host is then not restricted.
        allowed_origins: web origins allowed besides loopback ones.
        allowed_hosts: Host names accepted besides loopback, IP addresses and this machine's name.
        keep_alive_s: silence after which a stream sends a comment line; 0 = never.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    is_port_fixed: bool = False
    api_key: str | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    keep_alive_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be between 0 and 65535, got {self.port}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which model is loaded, and how.

    Attributes:
        path: a GGUF file (any shard of a split one).
        alias: id shown by the API; None = from the file.
        pool: lanes and pool.
        scheduler: step filling.
        backend: computing.
    """

    path: Path
    alias: str | None = None
    pool: PoolConfig = PoolConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    backend: BackendConfig = BackendConfig()
