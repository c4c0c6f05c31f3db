"""Object stores and remote file systems behind one interface, `paddleflow.objects.store.ObjectStore`."""
