"""The paper's claims as data and checks: what results say of each (docs/paper/claims.md)."""
