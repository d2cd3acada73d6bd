"""What every provider promises, each promise a test, run against every subject.

| module | owns |
|---|---|
| `subject` | what the suite asks of a vendor's stand-in: the only thing a new provider writes |
| `subjects` | the subjects there are, by name |
| `world` | one test's view of a subject: providers, requests, waiting, giving everything back |
| `interrupting` | cancelling a call at its n-th await |
| `test_*` | the promises |

    pytest tests/conformance                                  all subjects
    pytest tests/conformance --subject local                  one of them
    pytest tests/conformance --subject yours.testing:Subject  yours, by import path
"""
