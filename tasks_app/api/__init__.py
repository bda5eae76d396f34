"""`/api/v1`: authentication, operations, schemas, problems, idempotency, the manual.

Operations call services and return schemas.
"""
