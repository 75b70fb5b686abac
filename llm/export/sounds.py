"""Writes `llm/tests/sounds`: short compressed audio files, and libsndfile's samples of them.

`sounds.json` contains their lengths and every n-th sample of the mean of the channels, as read by
the package `soundfile`.
"""

import json
from pathlib import Path

import numpy as np
import soundfile

OUT = Path(__file__).parent.parent / "tests" / "sounds"
STEP = 53


def sweep(rate: int, seconds: float, channels: int) -> np.ndarray:
    """A tone that rises from 100 Hz to 3 kHz; each channel is quieter than the previous one."""
    time = np.arange(int(rate * seconds)) / rate
    tone = np.sin(2 * np.pi * (100 * time + 1450 / seconds * time**2))
    return np.stack([0.7 / (1 + channel) * tone for channel in range(channels)], 1)


CASES = [
    ("mono_16", "flac", 16_000, 0.4, 1, "PCM_16"),
    ("stereo_24", "flac", 44_100, 0.05, 2, "PCM_24"),
    ("six_8", "flac", 8_000, 0.1, 6, "PCM_S8"),
    ("mono_16000", "mp3", 16_000, 0.4, 1, None),
    ("stereo_44100", "mp3", 44_100, 0.3, 2, None),
]


def main() -> None:
    OUT.mkdir(exist_ok=True)
    cases = []
    for name, form, rate, seconds, channels, subtype in CASES:
        path = OUT / f"{name}.{form}"
        soundfile.write(path, sweep(rate, seconds, channels), rate, subtype=subtype)
        samples, rate = soundfile.read(path, dtype="float64", always_2d=True)
        mean = samples.mean(1)
        some = [round(float(sample), 8) for sample in mean[::STEP]]
        cases.append(
            {"file": path.name, "rate": rate, "count": len(mean), "step": STEP, "samples": some}
        )
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / "sounds.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
