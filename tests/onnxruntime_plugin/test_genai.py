"""onnxruntime-genai generates through the provider the tokens that it generates by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import partita as pt
from tests.accelerators.sessions.test_joined_heads import SIZES, _Grouped, graph_of

pytest.importorskip("onnxruntime_genai")

PROVIDER = "PartitaExecutionProvider"

GENERATE = f"""
import sys
import onnxruntime_genai as og
if sys.argv[2:]:
    import logging
    import partita as pt
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    og.register_execution_provider_library({PROVIDER!r}, pt.ort_plugin(devices="HETERO:cpu,reference"))
model = og.Model(sys.argv[1])
options = og.GeneratorParams(model)
options.set_search_options(max_length=20, batch_size=1)
generator = og.Generator(model, options)
generator.append_tokens([[5, 6, 7, 8, 9]])
while not generator.is_done():
    generator.generate_next_token()
print([int(token) for token in generator.get_sequence(0)])
"""


def configuration(providers: list[str]) -> str:
    """The settings of the model for onnxruntime-genai."""
    names = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    past = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    present = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    decoder = {
        "session_options": {"provider_options": [{name: {}} for name in providers]}, "filename": "model.onnx",
        "head_size": SIZES.each, "hidden_size": SIZES.width, "num_attention_heads": SIZES.heads,
        "num_hidden_layers": SIZES.layers, "num_key_value_heads": SIZES.groups,
        "inputs": names | past, "outputs": {"logits": "logits", **present},
    }
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "context_length": 64, "vocab_size": SIZES.words}
    search = {"max_length": 32, "do_sample": False, "past_present_share_buffer": False}
    return json.dumps({"model": {**tokens, "type": "llama", "decoder": decoder}, "search": search})


@pytest.mark.slow
def test_the_same_tokens(tmp_path: Path) -> None:
    pt.save(graph_of(_Grouped), tmp_path / "model.onnx")

    def generated(*providers: str) -> list[str]:
        (tmp_path / "genai_config.json").write_text(configuration([*providers]))
        code = [sys.executable, "-c", GENERATE, str(tmp_path), *providers]
        return subprocess.run(code, check=True, capture_output=True, text=True, timeout=300).stdout.splitlines()

    *taken, ours = generated(PROVIDER)
    assert [ours] == generated()
    assert any(f"{PROVIDER} takes 57 of 57 ops in 1 subgraph" in line for line in taken)
