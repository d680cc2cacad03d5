"""What happens at the wire: whose turn it is, and what of a request is tagged and signed."""
