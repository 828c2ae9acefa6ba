"""The OpenAPI document and the pages generated from it."""
