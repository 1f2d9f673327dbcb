"""Short-time Fourier transforms."""

from __future__ import annotations

import numpy as np

from partita.graph.numerics.registry import fails, numerics


@numerics("STFT", widen=True, why=fails("for a signal of two dimensions, as torch's exporter writes it"))
def stft(
    signal: np.ndarray, frame_step: np.ndarray, window: np.ndarray | None = None, frame_length: np.ndarray | None = None, *,
    onesided: int,
) -> np.ndarray:
    """The spectrum of each frame: [batch, frames, frequencies, 2]."""
    parts = signal[..., None] if signal.ndim == 2 else signal
    values = parts[..., 0] + 1j * parts[..., 1] if parts.shape[-1] == 2 else parts[..., 0]
    if window is None and frame_length is None:
        raise ValueError("it has neither a window nor a frame_length")
    length = int(frame_length.item()) if frame_length is not None else len(window)  # type: ignore[arg-type]
    if not 0 < length <= values.shape[-1] or (window is not None and len(window) != length):
        given = "" if window is None else f" and a window of {len(window)}"
        raise ValueError(f"a frame of {length}{given} does not fit a signal of {values.shape[-1]}")
    frames = np.lib.stride_tricks.sliding_window_view(values, length, axis=-1)[..., :: int(frame_step.item()), :]
    spectrum = np.fft.fft(frames if window is None else frames * window)
    spectrum = spectrum[..., : length // 2 + 1] if onesided else spectrum
    return np.stack([spectrum.real, spectrum.imag], axis=-1).astype(signal.dtype)
