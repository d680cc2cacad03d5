"""State that processes on many machines share, in Redis (the extra ``redis``)."""
