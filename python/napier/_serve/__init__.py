"""python -m napier serve: a server of rollouts with OpenAI's HTTP interface (docs/serve.md). It needs starlette and uvicorn."""
