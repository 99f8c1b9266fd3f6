"""The same work over more processes and machines: cut into shards by content, done anywhere, given back in order."""
