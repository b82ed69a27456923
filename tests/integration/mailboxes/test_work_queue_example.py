"""The example of a work queue does each job once although its workers are killed.

Method: run it as a user does.

Promises of docs/reference/guarantees.md: G52.
"""

from tidelog_testing.documents.examples import run_program


def test_each_claim_has_one_result() -> None:
    ran = run_program("-m", "examples.work_queue", "--flights", "4000", "--kills", "4")
    assert "243 claims were done once each, and 22 letters sent" in ran.stdout
