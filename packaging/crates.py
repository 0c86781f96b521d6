"""The crates that a binary of weir is linked from, as cargo resolves them for a target."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Crate:
    name: str
    version: str
    licence: str
    folder: Path
    authors: list[str]
    repository: str | None
    checksum: str | None
    # False for the crates of the workspace.
    is_foreign: bool
    # The names and versions of the crates that it uses.
    uses: set[tuple[str, str]] = field(default_factory=set)

    @property
    def key(self) -> tuple[str, str]:
        return (self.name, self.version)


def cargo(*arguments: str) -> str:
    """Returns what cargo prints. Raises CalledProcessError if it fails."""
    command = ["cargo", *arguments, "--locked", "--offline"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def expression(licence: str) -> str:
    """An SPDX expression. Older crates have a slash between alternatives."""
    return " OR ".join(part.strip() for part in licence.split("/"))


def checksums(lock: str) -> dict[tuple[str, str], str]:
    import tomllib

    packages = tomllib.loads(lock)["package"]
    return {(p["name"], p["version"]): p["checksum"] for p in packages if "checksum" in p}


def linked(target: str) -> list[Crate]:
    """The crates, weir first, the others by name. What runs only in the compiler is not among them."""
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", target))
    packages = {(p["name"], p["version"]): p for p in metadata["packages"]}
    sums = checksums((Path(metadata["workspace_root"]) / "Cargo.lock").read_text())
    tree = cargo(
        "tree", "-p", "weir", "--target", target, "-e", "normal,no-proc-macro", "--prefix", "depth", "--format", "|{p}"
    )
    found: dict[tuple[str, str], Crate] = {}
    above: list[tuple[str, str]] = []
    for line in tree.splitlines():
        depth, _, package = line.partition("|")
        name, version = package.split()[:2]
        key = (name, version.removeprefix("v"))
        if key not in found:
            p = packages[key]
            found[key] = Crate(
                name=name,
                version=key[1],
                licence=expression(p["license"] or ""),
                folder=Path(p["manifest_path"]).parent,
                authors=p["authors"],
                repository=p["repository"],
                checksum=sums.get(key),
                is_foreign=p["source"] is not None,
            )
        del above[int(depth) :]
        if above:
            found[above[-1]].uses.add(key)
        above.append(key)
    first, *rest = found.values()
    return [first, *sorted(rest, key=lambda crate: crate.key)]
