"""Coq accepts the formal proofs, their audit passes, and the audit would notice a hole.

The links between proofs/README.md and Statements.v are test_proofs.py's, which needs no Coq.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FORMAL = Path(__file__).parents[1] / "proofs" / "formal"
STATEMENTS = (FORMAL / "Statements.v").read_text(encoding="utf-8")

needs_coq = pytest.mark.skipif(
    shutil.which("coqc") is None or shutil.which("make") is None,
    reason="needs coqc and make: apt-get install -y --no-install-recommends coq make",
)
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@needs_coq
def test_every_theorem_compiles_and_the_audit_passes():
    done = run("make", cwd=FORMAL)
    assert done.returncode == 0, done.stdout + done.stderr
    theorems = len(re.findall(r"^Theorem ", STATEMENTS, re.MULTILINE))
    refuted = (FORMAL / "Refuted.v").read_text(encoding="utf-8").count("\nTheorem not_")
    controls = (FORMAL / "controls.sh").read_text(encoding="utf-8").count("\ncontrol ")
    assert f"audit: {theorems} theorems rest on 4 axioms" in done.stdout
    assert f"controls: {controls} near misses refused, {refuted} of them" in done.stdout
    assert refuted >= 6


def test_every_statement_is_closed_by_a_theorem_of_its_name_alone():
    pattern = re.compile(r"^Theorem (\w+) :\n(.*?)^Proof\. ([^\n]*)$", re.DOTALL | re.MULTILINE)
    bodies = pattern.findall(STATEMENTS)
    assert len(bodies) == STATEMENTS.count("\nTheorem ")
    for name, statement, proof in bodies:
        assert re.fullmatch(rf"exact \w+\.{name}\. Qed\.", proof), name
        assert statement.strip().endswith("."), name


@needs_bash
@pytest.mark.parametrize(
    ("file", "planted", "complaint"),
    [
        ("Sum.v", "Lemma hole : False. Admitted.", "forbidden words"),
        ("Sum.v", "Axiom hole : False.", "forbidden words"),
        ("Heads.v", "Theorem T9_new : True. Proof. exact I. Qed.", "not in Statements.v: T9_new"),
        ("Statements.v", "Theorem T9_new : True. Proof. exact I. Qed.", "not in Audit.v: T9_new"),
    ],
)
def test_the_audit_notices(tmp_path, file, planted, complaint):
    for source in [*FORMAL.glob("*.v"), *FORMAL.glob("*.sh"), *FORMAL.glob("*.txt")]:
        shutil.copy(source, tmp_path)
    with (tmp_path / file).open("a", encoding="utf-8") as end:
        end.write(f"\n{planted}\n")
    done = run("bash", "audit.sh", cwd=tmp_path)
    assert done.returncode == 1
    assert complaint in done.stderr
