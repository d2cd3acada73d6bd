"""Weights from a model hub: what a source names, what of it an engine needs, and the fetcher.

Shared by the controller's shell, which only asks what a revision is, and by nodes, which fetch.
`fetch` and `download` run in a process of their own and are the only users of `huggingface_hub`.
"""
