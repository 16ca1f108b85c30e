"""Both retrievers inside a PostgreSQL catalog: pgvector, and BM25 over sparse vectors."""
