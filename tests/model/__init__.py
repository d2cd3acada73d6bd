"""The whole shell under all faults at once, in virtual time.

| module | owns |
|---|---|
| `loop` | virtual time that goes on from one life of the controller to the next |
| `vendor` | the cloud behind a wire that works on when its caller has died |
| `effects` | which faults there are, and when one of them has really shown |
| `books` | what is true of machines and money, by the cloud's own word |
| `cluster` | the agent, and the engines on the cloud's machines |
| `life` | one life of a controller: the real parts, and the places where it may die |
| `world` | all of it together, and what people do |
| `machine`, `machine_base` | the rules and the promises, as a Hypothesis machine |
"""
