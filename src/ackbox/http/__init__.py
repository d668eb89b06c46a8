"""The HTTP server: a fast path for events, FastAPI for the rest, served by uvicorn."""
