"""Keys and addresses of persons are not exported, and provenance is recorded without keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archived import Project

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.redaction import Redaction, known_keys
from scalewatt.reproduction.manifest import write_manifest

FOUR = "resnet50-a100-n004-lbs0256-s0020018"


LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hI5kL7nO9qR1tU3wX5zA7cD9fG1iJ3lM5oP7rS9u"
"""Put together here, so that no file of this project has what looks like a key."""
KEYS = {
    "AWS": "AKIA" + "ABCDEFGHIJKLMNOP",
    "AWS, short-lived": "ASIA" + "ABCDEFGHIJKLMNOP",
    "AWS, secret": "aws_secret_access_key = " + LETTERS[:40],
    "AWS, secret in JSON": '"SecretAccessKey": "' + LETTERS[:40] + '"',
    "Hugging Face": "hf_" + LETTERS[:34],
    "GitHub": "ghp_" + LETTERS[:36],
    "GitHub, app": "ghs_" + LETTERS[:36],
    "GitHub, fine-grained": "github_pat_" + LETTERS[:22] + "_" + LETTERS[:40],
    "GitLab": "glpat-" + LETTERS[:20],
    "OpenAI": "sk-" + LETTERS[:48],
    "OpenAI, project": "sk-proj-" + LETTERS[:48],
    "Anthropic": "sk-ant-api03-" + LETTERS[:60],
    "Slack": "xoxb-" + "123456789012-" + LETTERS[:24],
    "Google": "AIza" + LETTERS[:35],
    "PyPI": "pypi-" + LETTERS[:60],
    "npm": "npm_" + LETTERS[:36],
    "JWT": "eyJ" + LETTERS[:20] + ".eyJ" + LETTERS[:20] + "." + LETTERS[:20],
    "a header": "Authorization: Bearer " + LETTERS[:30],
    "PEM": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "PEM of OpenSSH": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "a password in an address": "https://me:" + LETTERS[:12] + "@example.org/x",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_in_a_comment_is_refused_by_line_and_never_repeated(
    key: str, simulated_project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").symlink_to(simulated_project.path / "results")
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "small.yaml"
    file.write_text(f"# first\n# second: {key}\n{simulated_project.campaign.read_text()}")
    given = [
        "--site",
        str(simulated_project.path / "cluster.yaml"),
        "--results",
        str(tmp_path / "results"),
    ]
    out = ["--out", str(tmp_path / "a.zip")]
    for more in ([], ["--allow-private"]):
        assert main(["export", str(file), *given, *out, *more]) == 1
        message = capsys.readouterr().err
        assert "campaigns/small.yaml: line 2 (" in message
        assert all(part not in message for part in (LETTERS[:10], "ABCDEFGHIJ"))
    assert not (tmp_path / "a.zip").exists()


def test_a_token_in_an_edited_provenance_is_refused(project: Project) -> None:
    path = project.results / "runs" / FOUR / "1" / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": KEYS["Hugging Face"]}))
    write_manifest(project.results)
    with pytest.raises(InputError, match=r"provenance\.json: line 1 \(a token of Hugging Face\)"):
        project.export()


def test_texts_of_this_project_have_no_keys() -> None:
    for folder in ("campaigns", "profiles", "reference", "workflow"):
        for path in (PROJECT_ROOT / folder).rglob("*.*"):
            if path.suffix in (".yaml", ".csv", ".json", ".md", ".rst"):
                text = path.read_text(encoding="utf-8")
                assert [*known_keys(text)] == [], path


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_provenance_is_recorded_without_keys(key: str) -> None:
    text = Redaction(None, ()).text(f"train.py {key} --epochs 3")
    assert LETTERS[:10] not in text and "ABCDEFGHIJ" not in text and "train.py" in text


def test_a_whole_private_key_is_taken_out() -> None:
    key = f"-----BEGIN {'PRIVATE KEY'}-----\n{LETTERS}\n-----END {'PRIVATE KEY'}-----"
    assert Redaction(None, ()).text(f"a\n{key}\nb") == "a\n<secret>\nb"
