"""Both retrievers inside a PostgreSQL catalog: pgvector for meaning, BM25 over sparse vectors
for words.
"""
