"""The HTTP door: FastAPI on uvicorn, over a scoped corpus for each request.

Importing it imports neither.
"""
