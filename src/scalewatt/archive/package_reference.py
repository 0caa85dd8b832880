"""Make the published rows in `reference/` the content of an archive.

Run it by `python -m scalewatt.archive.package_reference`.

Writes ro-crate-metadata.json and manifest.json over its files, the same for the same files.
"""

from __future__ import annotations

from pathlib import Path

from scalewatt.archive.ro_crate import METADATA, PAPER, Description, metadata
from scalewatt.common.files import read_json, write_text
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.reproduction.manifests import MANIFEST, REFERENCE, ArchiveManifest, entries_of

FOLDER = PROJECT_ROOT / "reference"
NAME = "published"
MODEL = "scaling_model.json"
DESCRIPTIONS = {
    "published_results.csv": "Every published number of a training: one row each, with where it stands",
    "claims.csv": "160 statements of the paper, each with its quantity and value",
    "claim_checks.csv": "What is checked of each claim: rule, series, quantity and tolerance",
    "portable_checks.csv": "What is checked of portable claims on other models' trainings",
    "tolerances.csv": "How far off a number may be, each with its reason and when it was chosen",
    "inconsistencies.csv": "Where the paper contradicts itself or the facts, and the reading chosen",
    MODEL: "The scaling model of time and energy, calibrated on the published rows",
}


def reference_texts(folder: Path = FOLDER) -> dict[str, str]:
    """Return the texts of ro-crate-metadata.json and manifest.json over the folder's other files."""
    files = {name: folder / name for name in DESCRIPTIONS}
    entries = entries_of(files)
    model = read_json(folder / MODEL)["provenance"]
    description = Description(
        name="scalewatt: the published results of Huber et al. 2025",
        description=(
            f"What {PAPER} and its authors' code print of each training, its statements as a table, "
            "and a scaling model calibrated on these numbers. Facts are taken over; text and code are "
            "not. Date: the day the scaling model was calibrated. manifest.json has the SHA-256 of every "
            "other file."
        ),
        date_published=str(model["made"])[:10],
        license="BSD-3-Clause",
        descriptions=DESCRIPTIONS,
    )
    described = metadata(entries, description)
    entries |= entries_of({METADATA: described})
    manifest = ArchiveManifest(NAME, REFERENCE, entries)
    return {METADATA: described.decode(), MANIFEST: manifest.text()}


def main() -> None:
    """Write both files."""
    for name, text in reference_texts().items():
        write_text(FOLDER / name, text)


if __name__ == "__main__":
    main()
