"""Secrets, keys, paths and names are taken out of texts, and what only looks like one is left alone."""

from __future__ import annotations

import shlex

import pytest

from scalewatt.common.redaction import Redaction, known_keys, without_secrets

COMMIT = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"


NO_KEYS = [
    *(f'"aws-ofi-nccl": "{COMMIT}"', f"secret_commit: {COMMIT.upper()}"),
    *("https://user:${PASS}@example.org/a", "https://$USER:$PASS@example.org/a"),
    *("sk-toggleable__label-arrow", "sk-estimator-doc-link-2024-x", "task-sk-1", "scikit-learn"),
    *("https://example.org:8080/a@b", "git@github.com:a/b", "hf_hub_download", "ghp_", "0" * 64),
    *("sha256:" + "a1" * 32, "n001@node", "AKIAabcdefghijklmnop", "xoxo-kisses", "@media print"),
]
KEYS = [
    *("secret_key = " + "Ab1/" * 10, "sk-abcdefghijklmnopqrsT1"),
    *("https://user:$aX!@example.org/a", "https://user:${PASS}x@example.org/a"),
    *("a" * 50 + "://user:pass@example.org", "postgresql+asyncpg://user:pass@example.org"),
]


@pytest.mark.parametrize(("text", "count"), [*((t, 0) for t in NO_KEYS), *((t, 1) for t in KEYS)])
def test_keys_are_told_from_commits_variables_and_style_sheets(text: str, count: int) -> None:
    assert len(list(known_keys(text))) == count


QUOTED = ['KEY="hunter2', "KEY='hunter2", 'KEY="hunter2 hunter2"', "a=KEY=hunter2"]


@pytest.mark.parametrize("command", QUOTED)
def test_no_value_of_a_secret_is_told_however_it_is_quoted(command: str) -> None:
    assert "hunter2" not in " ".join(without_secrets([f"run {command}"]))


# --- paths and names ------------------------------------------------------------------------------

ALICE = Redaction("/home/alice", ("alice", "hk-project", "ab1"), "/srv/checkout")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/alice/data:/usr/lib", "$HOME/data:/usr/lib"),
        ("/home/bob/lib /hk/work/x", "<path> <path>"),
        ("file:///home/bob/x", "file://<path>"),
        ("/usr/../srv/private", "<path>"),
        ("/opt/users/bob/lib", "<path>"),
        ("/opt/bob/x:/opt/conda/lib", "<path>:<path>"),
        ("/dev/shm/bob/x /dev/shm /dev/null /usr/../dev/shm/b", "<path> /dev/shm /dev/null <path>"),
        ("/srv/checkout/../bob/x /srv/checkout/a/../b", "<path> b"),
        ("/home/alice/../bob /home/alice/a/../../../u", "<path> <path>"),
        ("~bob/x and ~/y, about ~5 s", "<path> and <path> about ~5 s"),
        ("python /srv/checkout/examples/a.py data/b.csv", "python examples/a.py data/b.csv"),
        ("/data/full: No space left (ENOSPC)", "<path>: No space left (ENOSPC)"),
        ("alice's alice_2, ab1 in ab12", "<name>'s <name>_2, <name> in ab12"),
        ("http://u:p@proxy/x", "http://<secret>@proxy/x"),
        ("n/256 of 1/2, a / b, ./c ../d", "n/256 of 1/2, a / b, ./c ../d"),
        ("mask_cpu:0x0000FFFF,0xFFFF0000", "mask_cpu:0x0000FFFF,0xFFFF0000"),
        ("GPU-8f3a1c2d-0000-1111-2222-333344445555", "GPU-8f3a1c2d-0000-1111-2222-333344445555"),
        ("tcp,self,cuda", "tcp,self,cuda"),
    ],
)
def test_a_text_keeps_what_is_nobodys(text: str, shown: str) -> None:
    assert ALICE.text(text) == shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("train --wandb-key X --lr 1", "train --wandb-key <secret> --lr 1"),
        ("train --hf-token=X", "train --hf-token=<secret>"),
        ("env WANDB_API_KEY=X train", "env WANDB_API_KEY=<secret> train"),
        ("train +wandb.api_key=X model=a", "train +wandb.api_key=<secret> model=a"),
        ("train --use-auth --lr 1", "train --use-auth --lr 1"),
        ("train --password 'a b'", "train --password <secret>"),
        ("train '--token=a b; c'", "train --token=<secret>"),
        ("sh -c 'export HF_TOKEN=\"a b\"; x --key  X --lr 1'",
         "sh -c export HF_TOKEN=<secret>; x --key  <secret> --lr 1"),
        ("get https://host/x?api_key=X&n=1", "get https://host/x?api_key=<secret>&n=1"),
        ("train --lr 1 a=b", "train --lr 1 a=b"),
        ("train --api-key X --api_key=X --apikey X --apiKey=X", "train --api-key <secret> "
         "--api_key=<secret> --apikey <secret> --apiKey=<secret>"),
        ("train --token=X -token X --password X", "train --token=<secret> -token <secret> "
         "--password <secret>"),
        ("env HF_TOKEN=X AWS_SECRET_ACCESS_KEY=X PGPASSWORD=X train",
         "env HF_TOKEN=<secret> AWS_SECRET_ACCESS_KEY=<secret> PGPASSWORD=<secret> train"),
        ("get https://me:X@host/x", "get https://<secret>@host/x"),
    ],
)  # fmt: skip
def test_what_a_secrets_name_is_given_is_not_told(words: str, shown: str) -> None:
    assert " ".join(without_secrets(shlex.split(words))) == shown


@pytest.mark.parametrize(
    "command",
    [
        "train --max-tokens 2048 --max_new_tokens=64",
        "train --tokenizer gpt2 --tokenizer-file=x.json",
        "train --num-keys=4 --key-dim 64 --keypoints 17",
        "train --author-weight 0.5 --num-users=3 --use-auth-loss 1",
        "train model.num_key_value_heads=8 MONKEY=1",
        "sh -c 'MAX_TOKENS=2048 train --tokenizer gpt2 --num-keys=4'",
    ],
)
def test_what_has_a_secrets_word_within_another_is_told(command: str) -> None:
    assert without_secrets(shlex.split(command)) == shlex.split(command)
