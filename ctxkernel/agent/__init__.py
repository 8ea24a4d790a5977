"""The model side: the client of the Messages API, the turn of an ask, recorded turns, summaries."""
