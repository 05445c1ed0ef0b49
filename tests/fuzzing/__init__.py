"""The fuzzer: random and mutated input to every public function and file reader.

Every call has a number. The seed and the number decide the target and all of its input, so both reproduce the call.
`targets` says what is called, `values` and `files` make the input, `calls` makes one call and checks the contract,
and `python -m fuzzing` makes many, in worker processes with limits.
"""
