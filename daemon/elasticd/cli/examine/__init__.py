"""What `elasticd doctor` looks at, one module a subject. Everything here reads; nothing is changed.

Each module gives `Finding`s. What cannot be found out is a finding too, never "fine".
"""
