"""The HTTP door: FastAPI on uvicorn, over a `View` for each request.

Importing it imports neither.
"""
