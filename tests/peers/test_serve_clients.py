"""napier serve with the clients that evaluate and train: lm-eval's local-completions, TRL's client of vLLM."""
import json
import os

import numpy as np
from transformers import AutoTokenizer

from serving import NAME, Server, direct


def test_lm_eval():
    """Log-likelihoods and greedy answers are the model's own."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    def instances(kind, arguments):
        return [Instance(request_type=kind, doc={}, arguments=one, idx=i) for i, one in enumerate(arguments)]

    with Server() as server:
        (server.folder / NAME / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}))
        theirs = get_model("local-completions")(
            model=NAME, tokenizer=str(server.folder / NAME), base_url=server.address + "/v1/completions", tokenizer_backend="huggingface",
            num_concurrent=4, max_length=256, max_retries=1)
        pairs = [("Hello,", " world"), ("2 + 2 =", " 4"), ("the", " end"), ("a b c", " d e f g h"), ("x", "kk")]
        for (prompt, answer), (total, greedy) in zip(pairs, theirs.loglikelihood(instances("loglikelihood", pairs), disable_tqdm=True)):
            ids, begin = server.model.encode(prompt + answer), len(server.model.encode(prompt))
            scores = server.model.score([ids[:begin]], [ids[begin:]])
            assert total == sum(scores.logprobs.tolist()) and greedy == bool(scores.is_greedy.all())
        asked = [(prompt, {"until": ["\n\n"], "max_gen_toks": 12}) for prompt, _ in pairs]
        for (prompt, _), got in zip(pairs, theirs.generate_until(instances("generate_until", asked), disable_tqdm=True)):
            assert got.strip() == direct(server.model, prompt, 0, temperature=0, max_tokens=12, stop=["\n\n", *server.model.info["eos_ids"]])[0][3].strip()
    return f"{len(pairs)} likelihoods, {len(asked)} answers"


def test_trl():
    """What TRL's trainers ask vLLM for: ids and log-probabilities of completions and of given sequences."""
    from trl.generation import vllm_client
    vllm_client.is_vllm_available = lambda *_, **__: True  # it is imported for its collective communication only
    with Server() as server:
        client, model = vllm_client.VLLMClient(base_url=server.address), server.model
        prompts = ["Hello, world", "the end"]
        for given in (prompts, [model.encode(prompt) for prompt in prompts]):
            made = client.generate(given, n=3, temperature=0.9, top_p=0.95, max_tokens=20, generation_kwargs={"seed": 4})
            assert made["prompt_ids"] == [model.encode(prompt) for prompt in prompts]
            wanted = [one for i, prompt in enumerate(prompts) for one in direct(model, prompt, 4 + 3 * i, 3, temperature=0.9, top_p=0.95, max_tokens=20)]
            for ids, logprobs, (wanted_ids, wanted_logprobs, *_) in zip(made["completion_ids"], made["logprobs"], wanted):
                assert ids == wanted_ids and [one for one, in logprobs] == wanted_logprobs
        talks = [[{"role": "user", "content": prompt}] for prompt in prompts]
        made = client.chat(talks, n=2, max_tokens=10, generation_kwargs={"seed": 4})
        for i, talk in enumerate(talks):
            text = model.tokenizer.apply_chat_template(talk, add_generation_prompt=True)
            assert made["prompt_ids"][i] == model.encode(text)
            wanted = direct(model, text, 4, 2, max_tokens=10)
            assert made["completion_ids"][2 * i:2 * i + 2] == [one[0] for one in wanted]
            assert made["logprobs"][2 * i:2 * i + 2] == [[[x] for x in one[1]] for one in wanted]
        sequences = [[5, 6, 7, 8, 9], [1, 2, 3]]
        scored = client.get_sequence_logprobs(sequences, [2, 1], top_logprobs=4, temperature=0.8)
        for ids, begin, places, names in zip(sequences, (2, 1), scored["logprobs"], scored["logprob_token_ids"]):
            logits = model.forward(ids)[begin - 1:-1]
            import napier
            rows = napier.token_logprobs(logits, ids[begin:], temperature=0.8, top_k=4)
            assert np.array_equal(np.float32(places), rows.top_logprobs) and names == rows.top_ids.tolist()
        assert client.get_server_info()["model_config"]["logprobs_mode"] == "processed_logprobs"
