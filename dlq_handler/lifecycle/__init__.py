"""Every queue has an owner and a life: flows, their two-phase stop, orphaned worker queues."""
