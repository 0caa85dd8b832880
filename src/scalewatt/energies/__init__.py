"""From recordings of sensors to energy per node, device kind and stage."""
